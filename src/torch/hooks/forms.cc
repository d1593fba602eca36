// The forms, with the operators and the bits that _forms.py and _lossy.py have.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <map>
#include <utility>

#include "torch/hooks/saved.h"

namespace tuckfold::hooks {
namespace {

// An operator of ours, with its text ready to be handed over.
class Operation {
 public:
  explicit Operation(const char* name)
      : handle_(c10::Dispatcher::singleton().findSchemaOrThrow(name, "")) {}

  at::Tensor pack(const at::Tensor& x, const std::string& codec, std::int64_t seed) const {
    torch::jit::Stack stack{x, codec, seed};
    handle_.callBoxed(stack);
    return std::move(stack.at(0)).toTensor();
  }
  void unpack(const at::Tensor& packed, const std::string& codec, const at::Tensor& out) const {
    torch::jit::Stack stack{packed, codec, out};
    handle_.callBoxed(stack);
  }

 private:
  c10::OperatorHandle handle_;
};

at::Tensor pack(const at::Tensor& x, const std::string& codec, std::int64_t seed) {
  static const Operation operation("tuckfold::pack");
  return operation.pack(x, codec, seed);
}

at::Tensor pack_checked(const at::Tensor& x, const std::string& codec) {
  static const Operation operation("tuckfold::pack_checked");
  return operation.pack(x, codec, 0);
}

void unpack_into(const at::Tensor& packed, const std::string& codec, const at::Tensor& out) {
  static const Operation operation("tuckfold::unpack_into");
  operation.unpack(packed, codec, out);
}

const std::string kPositive = "positive";

// A dense tensor's values in the order of its storage.
at::Tensor flat(const at::Tensor& x) { return x.as_strided({x.numel()}, {1}); }

at::Tensor as_bytes(const at::Tensor& x) {
  return x.scalar_type() == at::kBool ? x.view(at::kByte) : x;
}

// Rows that are contiguous: channels_last with the channels as the last axis.
at::Tensor planes(const at::Tensor& x) {
  const bool last = x.dim() == 4 && x.is_contiguous(at::MemoryFormat::ChannelsLast);
  return last ? x.permute({0, 2, 3, 1}) : x;
}

struct Nothing : Form {
  at::Tensor decode(Handle& handle) const override {
    Outside outside;
    return handle.slot->meta.empty();
  }
};

struct Bits : Form {
  at::Tensor bytes;
  double low, high;

  Bits(const at::Tensor& bits, bool all, double of_zero = 0, double of_one = 1)
      : low(of_zero), high(of_one) {
    whole = all;
    bytes = pack(flat(as_bytes(bits)), kPositive, 0);
  }
  std::size_t nbytes() const override { return bytes.nbytes(); }
  at::Tensor decode(Handle& handle) const override {
    if (const at::Tensor base = gated(handle); base.defined()) {
      return handle.slot->meta.view_of(base);
    }
    Outside outside;
    at::Tensor out = handle.slot->meta.empty();
    unpack_into(bytes, kPositive, as_bytes(flat(out)));
    if (low == 0 && high == 1) return out;
    const auto one = [&](double value) { return at::full({}, value, out.options()); };
    return at::where(out > 0, one(high), one(low));
  }

 private:
  // What was decoded with these bits, if that is still there.
  at::Tensor gated(Handle& handle) const {
    Record& record = *handle.record;
    const std::lock_guard lock(record.mutex);
    if (record.gate != this || !record.cache.defined()) {
      record.is_gate_read = true;
      return {};
    }
    std::erase(record.unread, &handle);
    return record.unread.empty() ? std::exchange(record.cache, at::Tensor()) : record.cache;
  }
};

// A mask of 0 and one positive value, as dropout on the CPU multiplies by; null if it is none.
std::shared_ptr<const Form> mask_of(const at::Tensor& x) {
  const at::Tensor high = x.max();
  if (!(high > 0).item<bool>() || !high.isfinite().item<bool>()) return nullptr;
  const at::Tensor rebuilt = at::where(x > 0, high, at::zeros({}, x.options()));
  const auto bits = [](const at::Tensor& of) {
    return of.view(of.element_size() == 2   ? at::kShort
                   : of.element_size() == 4 ? at::kInt
                                            : at::kLong);
  };
  if (!at::equal(bits(rebuilt), bits(x))) return nullptr;
  return std::make_shared<Bits>(x, true, 0, high.item<double>());
}

// u8 values below 4. Byte i takes value i of each fourth part, so that reads coalesce.
at::Tensor pack_pairs(const at::Tensor& values) {
  const std::int64_t part = (values.numel() + 3) / 4;
  at::Tensor packed = values.slice(0, 0, part).clone();
  for (std::int64_t i = 1; i < 4; ++i) {
    const at::Tensor piece = values.slice(0, i * part, (i + 1) * part);
    packed.slice(0, 0, piece.numel()).bitwise_or_(piece.__lshift__(i * 2));
  }
  return packed;
}

at::Tensor unpack_pairs(const at::Tensor& packed, std::int64_t length) {
  std::vector<at::Tensor> parts;
  for (std::int64_t i = 0; i < 4; ++i) {
    parts.push_back(packed.__rshift__(i * 2).bitwise_and(3));
  }
  return at::cat(parts).slice(0, 0, length);
}

struct Regions : Form {
  at::Tensor bytes;
  double high, middle;

  Regions(const at::Tensor& x, const std::array<double, 3>& limits)
      : high(limits[1]), middle(limits[2]) {
    at::Tensor code = ((x > limits[0]).bitwise_and(x < limits[1])).view(at::kByte);
    code.add_(x.isnan().view(at::kByte), 2);
    bytes = pack_pairs(flat(code));
  }
  std::size_t nbytes() const override { return bytes.nbytes(); }
  at::Tensor decode(Handle& handle) const override {
    Outside outside;
    at::Tensor out = handle.slot->meta.empty().fill_(high);
    const at::Tensor code = unpack_pairs(bytes, out.numel()).as_strided(out.sizes(), out.strides());
    out.masked_fill_(code == 1, middle);
    return out.masked_fill_(code == 2, std::numeric_limits<double>::quiet_NaN());
  }
};

struct Narrow : Form {
  at::Tensor values;

  Narrow(const at::Tensor& x, at::ScalarType dtype) : values(x.to(dtype)) { whole = true; }
  std::size_t nbytes() const override { return values.nbytes(); }
  at::Tensor decode(Handle& handle) const override {
    Outside outside;
    return handle.slot->meta.empty().copy_(values);
  }
};

struct CodecForm : Form {
  at::Tensor bytes;
  const std::string& codec;  // of the program

  CodecForm(const at::Tensor& x, const std::string& text)
      : bytes(pack_checked(planes(x), text)), codec(text) {
    whole = true;
  }
  std::size_t nbytes() const override { return bytes.nbytes(); }
  at::Tensor decode(Handle& handle) const override {
    Outside outside;
    at::Tensor out = handle.slot->meta.empty();
    unpack_into(bytes, codec, planes(out));
    return out;
  }
};

// The tensor that all views of a storage look into, kept until the last of them was read: `decoded` of
// _gates.py. make gets the bits of a ReLU, or none, and says whether they were applied.
at::Tensor shared(Handle& handle, const Form& form, const std::shared_ptr<const Bits>& bits,
                  const auto& make, bool is_read = true) {
  Record& record = *handle.record;
  at::Tensor base;
  bool has_gate = bits != nullptr;
  {
    const std::lock_guard lock(record.mutex);
    base = record.cache;
    has_gate = has_gate && !record.is_gate_read;
  }
  const bool is_new = !base.defined();
  bool is_gated = false;
  if (is_new) base = make(has_gate ? bits->bytes : at::Tensor(), is_gated);
  const auto live = is_new ? record.live() : std::vector<std::shared_ptr<Handle>>();
  const std::lock_guard lock(record.mutex);
  if (is_new) {
    record.unread.clear();
    record.gate = is_gated ? bits.get() : nullptr;
    for (const auto& other : live) {
      const Form* of = other->form.get();
      if (of == &form || (is_gated && of == bits.get())) record.unread.push_back(other.get());
    }
  }
  if (is_read) std::erase(record.unread, &handle);
  record.cache = record.unread.empty() ? at::Tensor() : base;
  return base;
}

// A number on a device, kept for the next one who asks.
at::Tensor number(int value, at::Device device) {
  static std::mutex mutex;
  static auto& known = *new std::map<std::pair<int, int>, at::Tensor>();  // outlives CUDA
  const std::lock_guard lock(mutex);
  at::Tensor& found = known[{value, device.is_cuda() ? device.index() : -1}];
  if (!found.defined()) {
    found = at::full({1}, value, at::TensorOptions().dtype(at::kFloat).device(device));
  }
  return found;
}

struct Lossy : Form {
  at::Tensor bytes;
  const std::string& codec;
  std::shared_ptr<const Form> mask;
  mutable std::shared_ptr<const Bits> gate;  // of all values, where a ReLU made them
  Meta meta;
  bool is_changed;

  Lossy(const at::Tensor& x, const FormSpec& spec, std::int64_t seed,
        std::shared_ptr<const Form> of_relu)
      : bytes(pack(x, spec.codec, seed)),
        codec(spec.codec),
        mask(std::move(of_relu)),
        is_changed(spec.changes) {
    whole = true;
    meta = {x.sizes().vec(), x.strides().vec(), 0, x.scalar_type(), x.device()};
  }
  std::size_t nbytes() const override { return bytes.nbytes(); }
  bool changes() const override { return is_changed; }
  // Whether one kernel unpacks it and does what follows.
  bool is_fused() const {
    const bool is_known =
        meta.dtype == at::kFloat || meta.dtype == at::kHalf || meta.dtype == at::kBFloat16;
    return mask == nullptr && meta.sizes.size() == 1 && is_known &&
           codec.starts_with("block_quant(") && codec.find('|') == std::string::npos;
  }
  at::Tensor unpacked(const at::Tensor& bits, bool& is_gated) const {
    Outside outside;
    is_gated = bits.defined() && is_fused();
    if (is_gated) {
      return unpack_then({bytes, &codec, &meta}, {.scale = number(1, meta.device),
                                                  .shift = number(0, meta.device),
                                                  .inner = meta.sizes[0],
                                                  .gate = bits});
    }
    at::Tensor out = meta.empty();
    unpack_into(bytes, codec, out);
    if (mask != nullptr) {
      const at::Tensor ones = at::empty_like(out);
      unpack_into(static_cast<const Bits&>(*mask).bytes, kPositive, flat(ones));
      out = at::threshold_backward(out, ones, 0);
    }
    return out;
  }
  at::Tensor decode(Handle& handle) const override {
    return handle.slot->meta.view_of(
        shared(handle, *this, gate,
               [&](const at::Tensor& bits, bool& is_gated) { return unpacked(bits, is_gated); }));
  }
  at::Tensor once(Handle& handle) const override {
    at::Tensor base;
    {
      const std::lock_guard lock(handle.record->mutex);
      base = handle.record->cache;
    }
    bool is_gated = false;
    return handle.slot->meta.view_of(base.defined() ? base : unpacked({}, is_gated));
  }
};

struct Recomputed : Form {
  std::shared_ptr<const Instance> instance;
  mutable std::shared_ptr<const Bits> gate;  // of all values, where a ReLU made them

  explicit Recomputed(std::shared_ptr<const Instance> of) : instance(std::move(of)) {
    whole = is_product(instance->recipe->operators[0].code);
  }
  bool changes() const override { return instance->is_changed(); }
  at::Tensor decode(Handle& handle) const override {
    return handle.slot->meta.view_of(shared(
        handle, *this, gate,
        [&](const at::Tensor& bits, bool& is_gated) { return instance->run(bits, is_gated); }));
  }
  at::Tensor ahead(Handle& handle) const override {
    const auto run = [&](const at::Tensor& bits, bool& is_gated) {
      return instance->run(bits, is_gated);
    };
    return handle.slot->meta.view_of(shared(handle, *this, nullptr, run, /*is_read=*/false));
  }
};

}  // namespace

void normalize_into(const at::Tensor& x, const std::vector<at::Tensor>& add,
                    const std::vector<at::Tensor>& factors, std::int64_t inner, bool relu,
                    const at::Tensor& out) {
  static const c10::OperatorHandle operation =
      c10::Dispatcher::singleton().findSchemaOrThrow("tuckfold::normalize_into", "");
  std::vector<at::Tensor> rows;
  for (const at::Tensor& each : add) rows.push_back(flat(each));
  torch::jit::Stack stack{flat(x),  rows, factors, inner, std::string(relu ? "relu" : "none"),
                          flat(out)};
  operation.callBoxed(stack);
}

void normalize_rows_into(const at::Tensor& x, const std::vector<at::Tensor>& factors,
                         const at::Tensor& out) {
  static const c10::OperatorHandle operation =
      c10::Dispatcher::singleton().findSchemaOrThrow("tuckfold::normalize_rows_into", "");
  torch::jit::Stack stack{x, factors, out};
  operation.callBoxed(stack);
}

std::optional<PackedRow> packed_row(const Handle& handle) {
  const std::lock_guard lock(handle.record->mutex);
  const auto* lossy = dynamic_cast<const Lossy*>(handle.form.get());
  if (lossy == nullptr || !lossy->is_fused() || handle.record->cache.defined()) return {};
  const Meta& like = handle.slot->meta;
  if (like.offset != 0 || c10::multiply_integers(like.sizes) != lossy->meta.sizes[0]) return {};
  return PackedRow{lossy->bytes, &lossy->codec, &like};
}

bool adds_packed(const PackedRow& row, const PackedRow& other) {
  const Meta &a = *row.like, &b = *other.like;
  const bool alike = a.sizes == b.sizes && a.strides == b.strides && a.dtype == b.dtype &&
                     c10::multiply_integers(a.sizes) % 16 == 0;
  const std::string& codec = *row.codec;
  const auto has = [&](const char* bits) { return codec.find(bits) != std::string::npos; };
  return alike && codec == *other.codec && (has("bits=2") || has("bits=4") || has("bits=8"));
}

at::Tensor unpack_then(const PackedRow& row, const After& after) {
  static const c10::OperatorHandle operation =
      c10::Dispatcher::singleton().findSchemaOrThrow("tuckfold::unpack_then", "");
  const std::vector<std::int64_t> shape = {c10::multiply_integers(row.like->sizes)};
  torch::jit::Stack stack{row.bytes,
                          *row.codec,
                          shape,
                          static_cast<std::int64_t>(row.like->dtype),
                          after.scale,
                          after.shift,
                          after.inner,
                          std::string(after.relu ? "relu" : "none"),
                          after.add.has_value() ? c10::IValue(flat(*after.add)) : c10::IValue(),
                          c10::IValue(after.packed_add),
                          c10::IValue(after.add_scale),
                          c10::IValue(after.add_shift),
                          c10::IValue(after.gate)};
  operation.callBoxed(stack);
  return row.like->view_of(std::move(stack.at(0)).toTensor());
}

at::Tensor unpack_gelu(const PackedRow& row) {
  static const c10::OperatorHandle operation =
      c10::Dispatcher::singleton().findSchemaOrThrow("tuckfold::unpack_gelu", "");
  const std::vector<std::int64_t> shape = {c10::multiply_integers(row.like->sizes)};
  torch::jit::Stack stack{row.bytes, *row.codec, shape, static_cast<std::int64_t>(row.like->dtype)};
  operation.callBoxed(stack);
  return row.like->view_of(std::move(stack.at(0)).toTensor());
}

at::Tensor unpack_rows(const PackedRow& row, const std::vector<at::Tensor>& factors,
                       at::ScalarType dtype) {
  static const c10::OperatorHandle operation =
      c10::Dispatcher::singleton().findSchemaOrThrow("tuckfold::unpack_rows", "");
  const std::vector<std::int64_t> shape = {c10::multiply_integers(row.like->sizes)};
  torch::jit::Stack stack{row.bytes, *row.codec,
                          shape,     static_cast<std::int64_t>(row.like->dtype),
                          factors,   static_cast<std::int64_t>(dtype)};
  operation.callBoxed(stack);
  return row.like->view_of(std::move(stack.at(0)).toTensor());
}

std::shared_ptr<const Form> form_of(const FormSpec& spec, const Handle& handle) {
  const at::Tensor& x = handle.tensor;
  switch (spec.kind) {
    case FormKind::kNothing: return std::make_shared<Nothing>();
    case FormKind::kBits: return std::make_shared<Bits>(x, x.scalar_type() == at::kBool);
    case FormKind::kAbove: return std::make_shared<Bits>(x > 0, false, -1, 1);
    case FormKind::kRegions: return std::make_shared<Regions>(x, spec.limits);
    case FormKind::kNarrow: return std::make_shared<Narrow>(x, spec.dtype);
    case FormKind::kCodec: return std::make_shared<CodecForm>(x, spec.codec);
    case FormKind::kMask: return mask_of(x);
    case FormKind::kLossy:
    case FormKind::kRecompute: break;
  }
  TORCH_CHECK(false, "[hooks] no form of one tensor alone");
}

std::shared_ptr<const Form> lossy_form(const FormSpec& spec, const at::Tensor& x, std::int64_t seed,
                                       std::shared_ptr<const Form> mask) {
  return std::make_shared<Lossy>(x, spec, seed, std::move(mask));
}

void give_gate(const Form& form, const std::shared_ptr<const Form>& bits) {
  auto gate = std::dynamic_pointer_cast<const Bits>(bits);
  if (const auto* lossy = dynamic_cast<const Lossy*>(&form)) lossy->gate = gate;
  if (const auto* made = dynamic_cast<const Recomputed*>(&form)) made->gate = gate;
}

std::shared_ptr<const Form> recomputed(std::shared_ptr<const Instance> instance) {
  return std::make_shared<Recomputed>(std::move(instance));
}

std::shared_ptr<const Instance> instance_of(const Form* form) {
  const auto* made = dynamic_cast<const Recomputed*>(form);
  return made == nullptr ? nullptr : made->instance;
}

bool is_lossy(const Form* form) { return dynamic_cast<const Lossy*>(form) != nullptr; }

at::Tensor witness_of(const Form& form, const FormSpec& spec, const Handle& handle) {
  const auto& lossy = static_cast<const Lossy&>(form);
  std::int64_t length = 1;
  for (const std::int64_t size : lossy.meta.sizes) length *= size;
  if (spec.group > 0) {
    const std::int64_t start = lossy.bytes.numel() - 4 * ((length + spec.group - 1) / spec.group);
    if (start % 2 == 0) return lossy.bytes.slice(0, start).view(at::kBFloat16);
  }
  const at::Tensor x = handle.tensor.as_strided({length}, {1}, 0);
  if (x.is_cpu()) return x;
  // Not the tensor itself, which would stay until the pass ends. The sum of many halves is no half.
  const at::ScalarType wide = x.element_size() < 4 ? at::kFloat : x.scalar_type();
  return at::linalg_vector_norm(x, 1, {}, false, wide).reshape({1});
}

Outside::Outside()
    : guard(c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset) {}

}  // namespace tuckfold::hooks
