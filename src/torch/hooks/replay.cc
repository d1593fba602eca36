// Building a recipe for the graph of this pass, along the path on which it was built before.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <algorithm>

#include "torch/hooks/pass.h"

namespace tuckfold::hooks {
namespace {

std::int64_t number_of(const Node& node) { return static_cast<std::int64_t>(node.sequence_nr()); }

bool looks_like(const Handle& handle, const Argument& arg) {
  const Meta &a = handle.slot->meta, &b = arg.meta;
  return a.sizes == b.sizes && a.strides == b.strides && a.dtype == b.dtype && a.device == b.device;
}

// The leaf that an edge leads to, or null.
const at::TensorImpl* leaf_of(const torch::autograd::Edge& edge) {
  const auto* leaf = dynamic_cast<const torch::autograd::AccumulateGrad*>(edge.function.get());
  return leaf == nullptr ? nullptr : leaf->variable.unsafeGetTensorImpl();
}

// Whether a weight is a copy in another dtype, as autocast makes it, through transposes.
bool is_cast_leaf(const Node* node) {
  const auto next = [](const Node& of) -> const torch::autograd::Edge* {
    return of.next_edges().empty() ? nullptr : &of.next_edges()[0];
  };
  while (node != nullptr) {
    const Kind* kind = kind_of(*node);
    const torch::autograd::Edge* edge = next(*node);
    if (kind == nullptr || edge == nullptr) return false;
    if (kind->name == "ToCopyBackward0") return leaf_of(*edge) != nullptr;
    if (kind->name != "TBackward0" && kind->name != "TransposeBackward0") return false;
    node = edge->function.get();
  }
  return false;
}

std::uint32_t version_of(const at::Tensor& x) {
  return x.unsafeGetTensorImpl()->version_counter().current_version();
}

}  // namespace

// Whether the values are those that the node made, also where it made them in place.
bool Pass::is_as_made(const Node& node, const Kind& kind,
                      const std::vector<std::shared_ptr<Handle>>& handles) {
  const std::uint32_t version = handles[0]->version;
  for (const auto& h : handles) {
    if (h->version != version || !h->is_unchanged()) return false;
  }
  const auto is_output = [](const auto& h) { return h->slot->is_output; };
  if (version == 0 || std::ranges::any_of(handles, is_output)) return true;
  if (version != 1) return false;
  // Each change counts one version: this one overwrote what an operator had just made.
  const int self = kind.role("self");
  if (self < 0 || node.next_edges().empty() || !node.next_edges()[0].is_valid()) return false;
  const auto copy = taken(kind.saved(const_cast<Node&>(node), static_cast<std::size_t>(self)));
  const Kind* source = kind_of(*node.next_edges()[0].function);
  return copy != nullptr && copy->slot->is_copy && source != nullptr && source->makes_new;
}

Pass::Found Pass::recompute(std::size_t number, const std::vector<std::shared_ptr<Handle>>& handles,
                            std::vector<std::shared_ptr<const Form>>& forms) {
  const Group& group = *program_->groups[number];
  const Recipe& recipe = *group.recipe;
  const std::shared_ptr<Node> node = nodes_[recipe.target];
  Record& record = *records_[number];
  if (node == nullptr) return Found::kLater;
  const Kind& kind = *program_->targets[recipe.target].kind;
  if (record.pinned || !is_as_made(*node, kind, handles)) return Found::kNo;
  const auto is_made = [&](const auto& h) {
    return h->maker == number_of(*node) && h->maker_output == 0;
  };
  if (!std::ranges::any_of(handles, is_made)) {
    differs = "what " + kind.name + " made";
    return Found::kNo;
  }
  auto instance = std::make_shared<Instance>();
  instance->program = program_;
  instance->recipe = &recipe;
  instance->threads = at::get_num_threads();
  const Found found = build(recipe, 0, node, instance->leaves);
  if (found == Found::kLater) return found;
  if (found == Found::kNo) {
    differs = "how the output of " + kind.name + " is made";
    return found;
  }
  // What nested recipes read was marked when they were made.
  std::vector<Handle*> sources;
  for (const auto& each : instance->leaves) {
    if (const auto* source = std::get_if<std::shared_ptr<Handle>>(&each)) {
      if ((*source)->record->stream != record.stream) return Found::kNo;
      sources.push_back(source->get());
    }
  }
  for (Handle* source : sources) source->record->pinned = source->is_source = true;
  for (std::size_t i = 0; i < forms.size(); ++i) {
    if (group.forms[i].kind == FormKind::kRecompute) forms[i] = recomputed(instance);
  }
  return Found::kYes;
}

Pass::Found Pass::build(const Recipe& recipe, std::size_t number, const std::shared_ptr<Node>& node,
                        std::vector<Instance::Leaf>& leaves) {
  const Operator& op = recipe.operators[number];
  if (node == nullptr || typeid(*node) != *op.kind->type) return Found::kNo;
  std::vector<double> signature;
  signature_of(*op.kind, *node, signature);
  if (signature != op.signature || node->num_inputs() == 0) return Found::kNo;
  const auto& out = node->input_metadata(0);
  if (out.is_nested_tensor() || at::typeMetaToScalarType(out.options().dtype()) != op.out_dtype) {
    return Found::kNo;
  }
  const auto& shape = out.shape_as_dim_vector();
  if (!std::ranges::equal(shape, op.out_sizes)) return Found::kNo;
  if (is_product(op.code) && !is_cast_leaf(node->next_edges().back().function.get())) {
    return Found::kNo;
  }
  for (const Argument& arg : op.arguments) {
    if (arg.place == Argument::kChild) {
      const auto& edges = node->next_edges();
      const auto place = static_cast<std::size_t>(arg.argument);
      if (place >= edges.size() || edges[place].input_nr != 0) return Found::kNo;
      const Found found =
          build(recipe, static_cast<std::size_t>(arg.child), edges[place].function, leaves);
      if (found != Found::kYes) return found;
      continue;
    }
    Instance::Leaf& out_leaf = leaves.emplace_back();
    const Found found = leaf(arg, node, out_leaf);
    if (found != Found::kYes) return found;
  }
  return Found::kYes;
}

Pass::Found Pass::leaf(const Argument& arg, const std::shared_ptr<Node>& node,
                       Instance::Leaf& out) {
  if (arg.place == Argument::kSaved) return saved_leaf(arg, node, out);
  if (arg.place == Argument::kParameter) {
    auto locked = program_->parameters[static_cast<std::size_t>(arg.parameter)].lock();
    if (!locked.defined()) return Found::kNo;
    // The bias of a product: the leaf that this cast has read.
    const auto& edges = node->next_edges();
    if (edges.size() == 1 && leaf_of(edges[0]) != locked.get()) return Found::kNo;
    return kept_leaf(arg, at::Tensor(std::move(locked)), out);
  }
  const auto& edges = node->next_edges();
  const auto place = static_cast<std::size_t>(arg.argument);
  if (place >= edges.size() || !edges[place].is_valid()) return Found::kNo;
  return input_leaf(arg, edges[place], out);
}

Pass::Found Pass::saved_leaf(const Argument& arg, const std::shared_ptr<Node>& node,
                             Instance::Leaf& out) {
  const SavedVariable* saved = kind_of(*node)->saved(*node, arg.role);
  if (auto handle = taken(saved)) {
    const bool is_made_again = arg.is_shared && instance_of(handle->form.get()) != nullptr;
    if (handle->form != nullptr && !handle->form->whole && !is_made_again) return Found::kNo;
    const bool is_leaf = handle->slot->origin.empty() && handle->tensor.defined();
    if (is_leaf && arg.is_copied) return kept_leaf(arg, handle->tensor, out);
    if (is_leaf != arg.is_leaf || !looks_like(*handle, arg)) return Found::kNo;
    out = std::move(handle);
    return Found::kYes;
  }
  at::Tensor x;
  try {
    x = saved->unpack(node);
  } catch (const c10::Error&) {  // changed in place
    return Found::kNo;
  }
  if (arg.parameter >= 0) {  // the module whose weight this is has constants of the recipe
    const auto expected = program_->parameters[static_cast<std::size_t>(arg.parameter)].lock();
    if (!expected.defined() || expected.get() != x.unsafeGetTensorImpl()) return Found::kNo;
  }
  return kept_leaf(arg, x, out);
}

Pass::Found Pass::kept_leaf(const Argument& arg, const at::Tensor& x, Instance::Leaf& out) {
  if (!arg.meta.fits_but_for_place(x)) return Found::kNo;
  const std::shared_ptr<Node> made = x.grad_fn();
  if ((made == nullptr) != arg.is_leaf) return Found::kNo;
  if (arg.is_copied) {
    out = Kept{.tensor = copied(x), .is_copy = true};
    return Found::kYes;
  }
  out = kept_of(x);
  return Found::kYes;
}

Pass::Found Pass::input_leaf(const Argument& arg, const torch::autograd::Edge& edge,
                             Instance::Leaf& out) {
  const std::shared_ptr<Node> saver = nodes_[arg.target];
  if (saver == nullptr) return Found::kLater;
  const std::int64_t source = number_of(*edge.function);
  const SavedVariable* saved = program_->targets[arg.target].kind->saved(*saver, arg.role);
  const bool is_nested = arg.place == Argument::kNested;
  if (auto handle = taken(saved)) {
    if (handle->maker != source ||
        handle->maker_output != static_cast<std::int64_t>(edge.input_nr) || !handle->is_as_made()) {
      return Found::kNo;
    }
    if (!is_nested && !looks_like(*handle, arg)) return Found::kNo;
    if (handle->form == nullptr) {
      if (is_nested) return Found::kLater;
    } else if (auto nested = instance_of(handle->form.get())) {
      if (!is_nested) return Found::kNo;
      out = std::move(nested);
      return Found::kYes;
    } else if (is_nested || !is_lossy(handle->form.get())) {
      return Found::kNo;
    }
    out = std::move(handle);
    return Found::kYes;
  }
  if (is_nested) return Found::kNo;
  at::Tensor x;
  try {
    x = saved->unpack(saver);
  } catch (const c10::Error&) {
    return Found::kNo;
  }
  const std::shared_ptr<Node> made = x.grad_fn();
  if (made == nullptr || x.output_nr() != static_cast<std::int64_t>(edge.input_nr) ||
      number_of(*made) != source || (version_of(x) != 0 && !arg.is_output)) {
    return Found::kNo;
  }
  return kept_leaf(arg, x, out);
}

// A copy of a parameter, a buffer or a small input: all that earlier passes have asked for at once.
at::Tensor Pass::copied(const at::Tensor& x) {
  Outside outside;
  if (!has_copies_) {
    has_copies_ = true;
    std::vector<at::Tensor> alive;
    {
      const std::lock_guard lock(program_->mutex);
      std::erase_if(program_->copied, [&](const auto& entry) {
        auto locked = entry.second.lock();
        if (!locked.defined()) return true;
        alive.emplace_back(std::move(locked));
        return false;
      });
    }
    if (!alive.empty()) {
      const std::vector<at::Tensor> copies = at::_foreach_mul(alive, 1);
      for (std::size_t i = 0; i < alive.size(); ++i) {
        copies_.emplace(alive[i].unsafeGetTensorImpl(),
                        Copy{alive[i], copies[i], version_of(alive[i]), alive[i].data_ptr()});
      }
    }
  }
  const auto found = copies_.find(x.unsafeGetTensorImpl());
  if (found != copies_.end() && found->second.version == version_of(x) &&
      found->second.address == x.data_ptr()) {
    return found->second.copy;
  }
  {
    const std::lock_guard lock(program_->mutex);
    program_->copied.insert_or_assign(x.unsafeGetTensorImpl(), WeakTensor(x.getIntrusivePtr()));
  }
  return x.clone();
}

}  // namespace tuckfold::hooks
