// Taking saved tensors at the ends of modules, and storing what nobody else holds any more.
#include "torch/hooks/pass.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

namespace tuckfold::hooks {
namespace {

// What was surveyed is not what is found.
struct Differs {
  std::string what;
};

// Autograd's end of a handle.
class Hooks : public ::torch::autograd::SavedVariableHooks {
 public:
  explicit Hooks(std::shared_ptr<Handle> handle) : handle_(std::move(handle)) {}
  void call_pack_hook(const at::Tensor& tensor) override {
    handle_->tensor = tensor;  // detached already: it would hold the node that saved it otherwise
    handle_->version = tensor.unsafeGetTensorImpl()->version_counter().current_version();
  }
  at::Tensor call_unpack_hook() override {
    if (handle_->again == nullptr) return handle_->value();
    handle_->check();
    const at::Tensor made = handle_->again->value();
    return made.defined() ? made : handle_->value();
  }

 private:
  std::shared_ptr<Handle> handle_;
};

// What attention makes of what is decoded.
struct Made {
  using Leaf = std::variant<Kept, std::shared_ptr<Handle>>;

  Attention attention;
  std::vector<Leaf> values;  // q, k and v
  std::optional<Leaf> mask;

  // One result; backward asks for each once. Not defined where q and k are as they were.
  at::Tensor take(Attention::Result which) {
    if (!is_changed(values[0]) && !is_changed(values[1])) return {};
    const std::lock_guard lock(mutex_);
    if (!made_[which].defined()) {
      Outside outside;
      std::vector<at::Tensor> found;
      for (const Leaf& each : values) found.push_back(read(each));
      std::optional<at::Tensor> with;
      if (mask.has_value() && has_value(*mask)) with = read(*mask);
      made_ = attention.make(attention, found, with);
      if (attention.drops) made_[Attention::kMadeOutput].reset();
    }
    return std::exchange(made_[which], at::Tensor());
  }

 private:
  static bool is_changed(const Leaf& leaf) {
    const auto* handle = std::get_if<std::shared_ptr<Handle>>(&leaf);
    return handle != nullptr && (*handle)->is_changed();
  }
  static bool has_value(const Leaf& leaf) {
    const auto* kept = std::get_if<Kept>(&leaf);
    return kept == nullptr || kept->tensor.defined();
  }
  static at::Tensor read(const Leaf& leaf) {
    if (const auto* kept = std::get_if<Kept>(&leaf)) return kept->value();
    return std::get<std::shared_ptr<Handle>>(leaf)->given();
  }

  std::mutex mutex_;
  Attention::Made made_;
};

// What attention saved, or what it makes of what is decoded.
class MadeAgain : public ::torch::autograd::SavedVariableHooks {
 public:
  MadeAgain(std::shared_ptr<Made> made, Attention::Result which, const std::string& origin)
      : made_(std::move(made)), which_(which) {
    saved_.origin = origin;
    saved_.output_nr = static_cast<std::int64_t>(which);
  }
  void call_pack_hook(const at::Tensor& tensor) override {
    saved_.tensor = tensor;
    saved_.version = tensor.unsafeGetTensorImpl()->version_counter().current_version();
  }
  at::Tensor call_unpack_hook() override {
    const at::Tensor saved = saved_.value();  // raises where it was changed in place
    const at::Tensor made = made_->take(which_);
    return made.defined() ? made : saved;
  }

 private:
  std::shared_ptr<Made> made_;
  Attention::Result which_;
  Kept saved_;
};

struct Output : Again {
  std::shared_ptr<Made> made;

  explicit Output(std::shared_ptr<Made> of) : made(std::move(of)) {}
  at::Tensor value() override { return made->take(Attention::kMadeOutput); }
};

std::int64_t number_of(const Node& node) { return static_cast<std::int64_t>(node.sequence_nr()); }

// The node that made the storage of x, through views of it, and which of its outputs that is.
torch::autograd::Edge producer(const at::Tensor& x) {
  torch::autograd::Edge edge(x.grad_fn(), static_cast<std::uint32_t>(x.output_nr()));
  while (edge.function != nullptr) {
    const Kind* kind = kind_of(*edge.function);
    if (kind == nullptr || !kind->is_view) break;
    const auto& edges = edge.function->next_edges();
    edge = edges.empty() ? torch::autograd::Edge() : edges[0];
  }
  return edge;
}

// Whether x is what a node made, with other sizes, but no other order of axes.
bool is_reshaped(const at::Tensor& x) {
  std::shared_ptr<Node> node = x.grad_fn();
  while (node != nullptr) {
    const Kind* kind = kind_of(*node);
    if (kind == nullptr || !kind->is_view) return true;
    if (!kind->is_reshape) return false;
    const auto& edges = node->next_edges();
    node = edges.empty() ? nullptr : edges[0].function;
  }
  return false;
}

// Whether nobody else holds the storage, so that packing it frees it.
bool is_ours(const std::vector<std::shared_ptr<Handle>>& handles) {
  std::size_t held = 0;
  const at::Tensor* any = nullptr;
  for (const auto& handle : handles) {
    if (!handle->tensor.defined()) continue;
    any = &handle->tensor;
    ++held;
  }
  if (any == nullptr) return false;
  const auto& storage = any->unsafeGetTensorImpl()->unsafe_storage();
  // Python's own object of a storage, once somebody asked for it, holds it as long as others do.
  const auto* python = storage.unsafeGetStorageImpl()->pyobj_slot()->load_pyobj();
  return storage.use_count() <= held + (python != nullptr ? 1 : 0);
}

bool is_same(const Kind& kind, Node& node, const std::vector<double>& expected) {
  thread_local std::vector<double> found;
  found.clear();
  signature_of(kind, node, found);
  return found == expected;
}

// Where bits of a ReLU are stored for a whole storage, beside its values: `of` of _gates.py.
void give_gates(const std::vector<std::shared_ptr<Handle>>& handles,
                const std::vector<std::shared_ptr<const Form>>& forms) {
  for (const auto& h : handles) {
    const FormSpec& spec = h->record->program->groups[h->slot->group]->forms[h->slot->form];
    const bool is_float = at::isFloatingType(h->slot->meta.dtype);
    if (spec.kind != FormKind::kBits || !is_float || !h->slot->fills) continue;
    for (const auto& form : forms) {
      if (form != nullptr) give_gate(*form, forms[h->slot->form]);
    }
    return;
  }
}

// Whether values are finite, and below 2^100, where codecs that sum them would overflow: as in _finite.py.
at::Tensor is_usual(const at::Tensor& x) {
  return x.scalar_type() == at::kHalf ? x.isfinite() : x.abs().lt(0x1p100);
}

}  // namespace

std::int64_t stream_of(at::Device device) {
  if (!device.is_cuda()) return 0;
  return static_cast<std::int64_t>(
      c10::impl::VirtualGuardImpl(device.type()).getStream(device).id());
}

Pass::Pass(c10::intrusive_ptr<Program> program, std::int64_t seed,
           std::span<const std::int64_t> kept)
    : program_(std::move(program)),
      stream_(stream_of(program_->device)),
      seed_(seed),
      kept_(program_->groups.size()),
      nodes_(program_->targets.size()),
      records_(program_->groups.size()),
      looks_(program_->groups.size()) {
  for (const std::int64_t group : kept) kept_[static_cast<std::size_t>(group)] = 1;
}

void Pass::ended(std::int64_t module, std::span<const at::Tensor> outputs) {
  if (!differs.empty()) return;
  if (at_ >= program_->steps.size() || program_->steps[at_].module != module) {
    differs = "the order of modules";
    return;
  }
  take_all(program_->steps[at_++].targets, outputs, false);
}

bool Pass::finish(std::span<const at::Tensor> outputs) {
  if (at_ != program_->steps.size() && differs.empty()) differs = "the number of modules";
  if (differs.empty()) take_all(program_->last, outputs, true);
  nodes_.clear();
  taken_.clear();
  copies_.clear();
  records_.clear();
  pending_.clear();
  return differs.empty();
}

void Pass::take_all(std::span<const std::size_t> targets, std::span<const at::Tensor> outputs,
                    bool final) {
  try {
    for (const std::size_t target : targets) take(target, outputs);
    std::erase_if(pending_, [&](std::size_t group) { return is_done(group, final); });
  } catch (const Differs& difference) {
    differs = difference.what;
  } catch (const c10::Error& failure) {
    error = failure.what_without_backtrace();
    differs = "an error";
  } catch (const std::exception& failure) {
    error = failure.what();
    differs = "an error";
  }
}

void Pass::take(std::size_t number, std::span<const at::Tensor> outputs) {
  const Target& target = program_->targets[number];
  const auto output = outputs.size() == 1 ? 0 : static_cast<std::size_t>(target.output);
  if (output >= outputs.size() || !outputs[output].defined()) throw Differs{"the outputs"};
  std::shared_ptr<Node> node = outputs[output].grad_fn();
  for (const int step : target.path) {
    const auto place = static_cast<std::size_t>(step);
    if (node == nullptr || place >= node->next_edges().size()) {
      throw Differs{"no " + target.kind->name};
    }
    node = std::shared_ptr<Node>(node->next_edges()[place].function);
  }
  if (node == nullptr || typeid(*node) != *target.kind->type) {
    throw Differs{"another node instead of " + target.kind->name};
  }
  if (!is_same(*target.kind, *node, target.signature)) {
    throw Differs{"the numbers of " + target.kind->name};
  }
  nodes_[number] = node;
  for (const Slot& slot : target.slots) hook(node, *target.kind, slot);
  if (target.makes_sums) hook_sums(node, *target.kind);
}

// Sums of attention, and its output, follow from what is decoded.
void Pass::hook_sums(const std::shared_ptr<Node>& node, const Kind& kind) {
  const auto leaf_of = [&](std::size_t role) -> Made::Leaf {
    const SavedVariable* saved = kind.saved(*node, role);
    if (auto handle = taken(saved)) return handle;
    try {
      return kept_of(saved->unpack(node));
    } catch (const c10::Error&) {  // changed in place: autograd will say so in backward
      throw Differs{"what " + kind.name + " saved was changed"};
    }
  };
  auto made = std::make_shared<Made>();
  made->attention = kind.attention(*node);
  for (const auto role : {Attention::kQuery, Attention::kKey, Attention::kValue}) {
    made->values.push_back(leaf_of(role));
  }
  if (kind.roles.size() > Attention::kMask) made->mask = leaf_of(Attention::kMask);
  const auto hook = [&](Attention::Role role, Attention::Result which) {
    kind.saved(*node, role)->register_hooks(std::make_unique<MadeAgain>(made, which, kind.name));
  };
  hook(Attention::kSums, Attention::kMadeSums);
  if (made->attention.drops) return;
  if (const auto handle = taken(kind.saved(*node, Attention::kOutput))) {
    handle->again = std::make_shared<Output>(made);
  } else {
    hook(Attention::kOutput, Attention::kMadeOutput);
  }
}

void Pass::hook(const std::shared_ptr<Node>& node, const Kind& kind, const Slot& slot) {
  SavedVariable* saved = kind.saved(*node, slot.role);
  at::Tensor x;
  try {
    x = saved->unpack(node);
  } catch (const c10::Error&) {  // changed in place: autograd will say so in backward
    throw Differs{slot.what + " was changed"};
  }
  if (!slot.meta.fits(x)) throw Differs{"the sizes of " + slot.what};
  const Group& group = *program_->groups[slot.group];
  std::shared_ptr<Record>& record = records_[slot.group];
  const std::int64_t stream = stream_of(x.device());
  if (record == nullptr) {
    record = std::make_shared<Record>(program_, x, stream);
    if (record->nbytes != group.nbytes) throw Differs{"the bytes of " + slot.what};
  }
  const auto& storage = x.unsafeGetTensorImpl()->unsafe_storage();
  if (storage.unsafeGetStorageImpl() != record->storage || stream != stream_) {
    throw Differs{"the storage or stream of " + slot.what};
  }
  if (slot.is_copy && (x.grad_fn() == nullptr || number_of(*x.grad_fn()) != number_of(*node) + 1)) {
    throw Differs{slot.what + " is no copy"};
  }
  const torch::autograd::Edge made = producer(x);
  if (made.function != nullptr &&
      (slot.is_direct != (made.function == x.grad_fn()) || slot.is_reshaped != is_reshaped(x))) {
    throw Differs{"the views of " + slot.what};
  }
  auto handle = std::make_shared<Handle>(record, slot);
  saved->register_hooks(std::make_unique<Hooks>(handle));
  if (made.function != nullptr) {
    handle->maker = number_of(*made.function);
    handle->maker_output = made.input_nr;
  }
  taken_.emplace(saved, handle);
  record->handles.push_back(handle);
  ++hooked;
  if (record->handles.size() == group.count) pending_.push_back(slot.group);
}

bool Pass::is_done(std::size_t number, bool final) {
  Group& group = *program_->groups[number];
  const int looks = ++looks_[number];
  if (looks < group.first.load(std::memory_order_relaxed) && !final) return false;
  const Record& record = *records_[number];
  const auto handles = record.live();
  if (handles.size() != record.handles.size()) return true;  // a part of the graph is gone
  if (!is_ours(handles) || record.stream != stream_of(handles[0]->slot->meta.device)) return false;
  if (!std::ranges::all_of(handles, [](const auto& h) { return h->is_unchanged(); })) return true;
  group.first.store(looks, std::memory_order_relaxed);
  return store(number, handles);
}

bool Pass::store(std::size_t number, const std::vector<std::shared_ptr<Handle>>& handles) {
  const Group& group = *program_->groups[number];
  std::vector<std::shared_ptr<const Form>> forms(group.forms.size());
  bool has_lossy = false;
  for (const FormSpec& spec : group.forms) has_lossy |= spec.kind == FormKind::kLossy;
  if (has_lossy) {
    if (!store_lossy(number, handles, forms)) return true;
  } else {
    if (group.recipe.has_value()) {
      const Found found = recompute(number, handles, forms);
      if (found == Found::kLater) return false;
      if (found == Found::kNo) return true;
    }
    Outside outside;
    for (const auto& h : handles) {
      auto& form = forms[h->slot->form];
      if (form == nullptr) form = form_of(group.forms[h->slot->form], *h);
      if (form == nullptr) return true;  // its values are of another kind
      // A recipe of another storage reads all of its values.
      if (!group.recipe.has_value() && records_[number]->pinned && !form->whole) return true;
    }
  }
  give_gates(handles, forms);
  for (const auto& h : handles) {
    at::Tensor dropped;  // after the lock: what it calls may need Python's
    const std::lock_guard lock(h->record->mutex);
    h->form = forms[h->slot->form];
    dropped = std::move(h->tensor);
    ++stored;
  }
  return true;
}

bool Pass::store_lossy(std::size_t number, const std::vector<std::shared_ptr<Handle>>& handles,
                       std::vector<std::shared_ptr<const Form>>& forms) {
  const Group& group = *program_->groups[number];
  if (kept_[number] != 0) return false;
  const std::int64_t seed = seed_of(group);
  Outside outside;
  std::size_t lossy = 0, bytes = 0;
  at::Tensor x;
  for (const auto& h : handles) {
    const std::size_t form = h->slot->form;
    if (h->is_source && !h->slot->is_value) return false;  // a recipe reads what would be a mask
    if (group.forms[form].kind != FormKind::kLossy) {
      if (forms[form] == nullptr) {
        forms[form] = form_of(group.forms[form], *h);
        if (forms[form] == nullptr) return false;
        bytes += forms[form]->nbytes();
      }
      continue;
    }
    lossy = form;
  }
  const FormSpec& spec = group.forms[lossy];
  if (spec.is_row) {
    const at::Tensor& first = handles[0]->tensor;
    const auto length = static_cast<std::int64_t>(group.nbytes / first.element_size());
    x = first.as_strided({length}, {1}, 0);
  } else {
    const auto whole = std::ranges::find_if(handles, [](const auto& h) { return h->slot->fills; });
    if (whole == handles.end()) return false;
    x = (*whole)->tensor;
  }
  std::shared_ptr<const Form> mask;
  if (spec.mask >= 0) mask = forms[static_cast<std::size_t>(spec.mask)];
  forms[lossy] = lossy_form(spec, x, seed, std::move(mask));
  if (bytes + forms[lossy]->nbytes() >= group.nbytes) return false;
  const auto reader =
      std::ranges::find_if(handles, [&](const auto& h) { return h->slot->form == lossy; });
  const at::Tensor witness = witness_of(*forms[lossy], spec, **reader);
  if (witness.is_cpu()) {
    if (is_usual(witness).all().item<bool>()) return true;
    not_finite.push_back(static_cast<std::int64_t>(number));
    return false;
  }
  asked.push_back(static_cast<std::int64_t>(number));
  witnesses_.push_back(witness);
  return true;
}

void Pass::answer(at::Tensor out) {
  Outside outside;
  std::vector<at::Tensor> norms = at::_foreach_norm(witnesses_, 1);
  for (at::Tensor& norm : norms) norm = norm.to(at::kFloat);
  out.copy_(is_usual(at::stack(norms)).logical_not_(), /*non_blocking=*/true);
  witnesses_.clear();
}

std::shared_ptr<Handle> Pass::taken(const SavedVariable* saved) const {
  const auto found = taken_.find(saved);
  return found == taken_.end() ? nullptr : found->second.lock();
}

// The finalizer of splitmix64, as `mixed` of _lossy.py.
std::int64_t Pass::seed_of(const Group& group) const {
  std::uint64_t z = static_cast<std::uint64_t>(seed_) + (group.tensor + 1) * 0x9E3779B97F4A7C15ULL;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return static_cast<std::int64_t>(z ^ (z >> 31));
}

}  // namespace tuckfold::hooks
