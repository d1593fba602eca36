// Operators that are run again in backward, as _recompute.py and _recipe.py have them.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "torch/hooks/saved.h"

namespace tuckfold::hooks {
namespace {

using Values = std::vector<at::Tensor>;

std::optional<at::Tensor> at_or_none(const Values& v, std::size_t i) {
  return i < v.size() ? std::optional(v[i]) : std::nullopt;
}

std::vector<std::int64_t> sizes_from(const std::vector<double>& c, std::size_t first) {
  std::vector<std::int64_t> sizes;
  for (std::size_t i = first; i < c.size(); ++i) sizes.push_back(static_cast<std::int64_t>(c[i]));
  return sizes;
}

// constants: eps, training.
template <class Call>
at::Tensor batch_norm(const Values& v, const std::vector<double>& c, Call call) {
  const bool training = c[1] != 0;
  const std::size_t affine = v.size() - 1 - (training ? 0 : 2);
  const auto weight = affine > 0 ? at_or_none(v, 1) : std::nullopt;
  const auto bias = affine > 0 ? at_or_none(v, 2) : std::nullopt;
  const auto mean = training ? std::nullopt : at_or_none(v, 1 + affine);
  const auto variance = training ? std::nullopt : at_or_none(v, 2 + affine);
  return call(v[0], weight, bias, mean, variance, training, c[0]);
}

at::Tensor made(const Operator& op, Values& v, const std::vector<char>& fresh) {
  const std::vector<double>& c = op.constants;
  switch (op.code) {
    case Code::kRelu: return fresh[0] ? at::relu_(v[0]) : at::relu(v[0]);
    case Code::kGelu: return at::gelu(v[0], c[0] == 0 ? "none" : "tanh");
    case Code::kSilu: return at::silu(v[0]);
    case Code::kHardswish: return at::hardswish(v[0]);
    case Code::kMish: return at::mish(v[0]);
    case Code::kHardtanh: return at::hardtanh(v[0], c[0], c[1]);
    case Code::kLeakyRelu: return at::leaky_relu(v[0], c[0]);
    case Code::kAdd: {
      const bool in_place = fresh[0] && v[0].sizes() == v[1].sizes() &&
                            at::result_type(v[0], v[1]) == v[0].scalar_type();
      return in_place ? v[0].add_(v[1]) : at::add(v[0], v[1]);
    }
    case Code::kMul: return at::mul(v[0], v[1]);
    case Code::kDropout: return at::native_dropout_backward(v[0], v[1], c[0]);
    case Code::kTo: return at::_to_copy(v[0], v[0].options().dtype(op.out_dtype));
    case Code::kView: return v[0].view(op.out_sizes);
    case Code::kLayerNorm:
      return std::get<0>(
          at::native_layer_norm(v[0], sizes_from(c, 1), at_or_none(v, 1), at_or_none(v, 2), c[0]));
    case Code::kRmsNorm: {
      const auto eps = std::isnan(c[0]) ? std::nullopt : std::optional(c[0]);
      return std::get<0>(at::_fused_rms_norm(v[0], sizes_from(c, 1), at_or_none(v, 1), eps));
    }
    case Code::kGroupNorm: {
      const auto n = sizes_from(c, 1);
      return std::get<0>(at::native_group_norm(v[0], at_or_none(v, 1), at_or_none(v, 2), n[0], n[1],
                                               n[2], n[3], c[0]));
    }
    case Code::kNativeBatchNorm:
      return batch_norm(v, c,
                        [](const auto& x, const auto& weight, const auto& bias, const auto& mean,
                           const auto& variance, bool training, double eps) {
                          return std::get<0>(at::native_batch_norm(x, weight, bias, mean, variance,
                                                                   training, 0.0, eps));
                        });
    case Code::kCudnnBatchNorm:
      return batch_norm(v, c,
                        [](const auto& x, const auto& weight, const auto& bias, const auto& mean,
                           const auto& variance, bool training, double eps) {
                          return std::get<0>(at::cudnn_batch_norm(x, weight.value(), bias, mean,
                                                                  variance, training, 0.0, eps));
                        });
    case Code::kAddmm: return at::addmm(v[0], v[1], v[2]);
    case Code::kMm: return at::mm(v[0], v[1]);
    case Code::kNormalizeRows: break;
    case Code::kNormalize: return at::batch_norm_elemt(v[0], v[1], v[2], v[3], v[4], c[0]);
  }
  TORCH_CHECK(false, "[hooks] unknown operator");
}

// What one operator makes, and whether it is new memory.
struct Result {
  at::Tensor value;
  bool is_fresh;
};

// Bits for what is made, and whether they were applied.
struct Gate {
  const at::Tensor& bits;
  bool& is_used;
};

Result evaluate(const Instance& instance, std::size_t number, std::size_t& leaf,
                Gate* gate = nullptr);

Result argument(const Instance& instance, const Argument& arg, std::size_t& leaf) {
  if (arg.place == Argument::kChild) {
    return evaluate(instance, static_cast<std::size_t>(arg.child), leaf);
  }
  const Instance::Leaf& found = instance.leaves[leaf++];
  if (const auto* nested = std::get_if<std::shared_ptr<const Instance>>(&found)) {
    std::size_t first = 0;
    return evaluate(**nested, 0, first);
  }
  if (const auto* handle = std::get_if<std::shared_ptr<Handle>>(&found)) {
    return {(*handle)->ahead(), false};
  }
  return {std::get<Kept>(found).value(), false};
}

// The packed values of an argument, which is then not read.
std::optional<PackedRow> packed_leaf(const Instance& instance, const Argument& arg,
                                     std::size_t leaf) {
  if (arg.place == Argument::kChild) return {};
  const auto* handle = std::get_if<std::shared_ptr<Handle>>(&instance.leaves[leaf]);
  return handle == nullptr ? std::nullopt : packed_row(**handle);
}

// A normalization, and the sum and the ReLU that follow it, which one kernel does together: Chain of
// _recipe.py.
struct Chain {
  const Operator* normalize = nullptr;
  const Argument* other = nullptr;  // what is added
  bool relu = false;
};

Chain chain_of(const Recipe& recipe, std::size_t number) {
  const Operator* op = &recipe.operators[number];
  Chain chain;
  const auto first = [&]() -> const Operator* {
    const Argument& of = op->arguments[0];
    return of.place == Argument::kChild ? &recipe.operators[static_cast<std::size_t>(of.child)]
                                        : nullptr;
  };
  if (op->code == Code::kRelu) {
    chain.relu = true;
    op = first();
  }
  if (op != nullptr && op->code == Code::kAdd) {
    chain.other = &op->arguments[1];
    op = first();
  }
  const bool is_ours = op != nullptr && op->code == Code::kNormalize && op->constants[1] != 0;
  if (is_ours) chain.normalize = op;
  return chain;
}

bool is_channels_last(const at::Tensor& x) {
  return (x.dim() == 4 && x.is_contiguous(at::MemoryFormat::ChannelsLast)) ||
         (x.dim() == 5 && x.is_contiguous(at::MemoryFormat::ChannelsLast3d));
}

// `fused` of _recipe.py: v is x, weight, bias, mean and invstd.
at::Tensor fused(const Values& v, const Values& others, bool relu) {
  const at::Tensor& x = v[0];
  const bool in_order = x.is_contiguous();
  bool takes = in_order || is_channels_last(x);
  for (const at::Tensor& other : others) {
    takes = takes && other.scalar_type() == x.scalar_type() && other.sizes() == x.sizes() &&
            other.strides() == x.strides();
  }
  for (std::size_t i = 1; i < v.size(); ++i) {
    takes = takes && v[i].scalar_type() == at::kFloat && v[i].is_contiguous();
  }
  if (!takes) {
    at::Tensor out = at::batch_norm_elemt(x, v[1], v[2], v[3], v[4], 0);
    if (!others.empty()) out = at::add(out, others[0]);
    return relu ? at::relu_(out) : out;
  }
  std::int64_t inner = 1;
  for (std::int64_t i = 2; in_order && i < x.dim(); ++i) inner *= x.size(i);
  const at::Tensor out = at::empty_like(x);
  normalize_into(x, others, {v[3], v[4], v[1], v[2]}, inner, relu, out);
  return out;
}

bool are_numbers(const Values& v) {
  return std::ranges::all_of(v, [](const at::Tensor& each) {
    return each.scalar_type() == at::kFloat && each.is_contiguous();
  });
}

// One factor and one sum for each channel, of weight, bias, mean and invstd.
std::pair<at::Tensor, at::Tensor> factors_of(const Values& numbers) {
  const at::Tensor scale = at::mul(numbers[0], numbers[3]);
  return {scale, at::addcmul(numbers[1], numbers[2], scale, -1)};
}

// What is added, as it is packed, normalized or not; whether there is such, and its leaves are read.
bool packed_other(const Instance& instance, const PackedRow& row, const Argument& arg,
                  std::size_t& leaf, After& after) {
  const Operator* normalize = nullptr;
  if (arg.place == Argument::kChild) {
    normalize = &instance.recipe->operators[static_cast<std::size_t>(arg.child)];
    if (normalize->code != Code::kNormalize || normalize->constants[1] == 0) return false;
  }
  const Argument& packed = normalize == nullptr ? arg : normalize->arguments[0];
  const std::optional<PackedRow> other = packed_leaf(instance, packed, leaf);
  if (!other.has_value() || !adds_packed(row, *other)) return false;
  std::size_t next = leaf + 1;
  if (normalize != nullptr) {
    Values numbers;
    for (std::size_t i = 1; i < normalize->arguments.size(); ++i) {
      numbers.push_back(argument(instance, normalize->arguments[i], next).value);
    }
    if (!are_numbers(numbers)) return false;
    std::tie(after.add_scale, after.add_shift) = factors_of(numbers);
  }
  after.packed_add = other->bytes;
  leaf = next;
  return true;
}

// `fused_unpack` of _recipe.py; numbers are weight, bias, mean and invstd. Not defined where the kernel
// does not take them.
at::Tensor fused_unpack(const PackedRow& row, const Values& numbers, const Values& others,
                        After after) {
  const Meta& like = *row.like;
  const at::Tensor meta = at::empty_strided(like.sizes, like.strides, at::device(at::kMeta));
  const bool in_order = meta.is_contiguous();
  bool takes = (in_order || is_channels_last(meta)) && are_numbers(numbers);
  for (const at::Tensor& other : others) {
    takes = takes && other.scalar_type() == like.dtype && other.sizes() == like.sizes &&
            other.strides() == like.strides;
  }
  if (!takes) return {};
  std::int64_t inner = 1;
  for (std::size_t i = 2; in_order && i < like.sizes.size(); ++i) inner *= like.sizes[i];
  after.inner = inner;
  std::tie(after.scale, after.shift) = factors_of(numbers);
  if (!others.empty()) after.add = others[0];
  return unpack_then(row, after);
}

// What follows a layer normalization of ours: its dtype.
struct Cast {
  const Operator* normalize = nullptr;
  at::ScalarType dtype = at::kFloat;
};

Cast cast_of(const Recipe& recipe, std::size_t number) {
  const Operator& op = recipe.operators[number];
  if (op.code == Code::kNormalizeRows) return {&op, op.out_dtype};
  if (op.code != Code::kTo || op.arguments[0].place != Argument::kChild) return {};
  const Operator& first = recipe.operators[static_cast<std::size_t>(op.arguments[0].child)];
  return first.code == Code::kNormalizeRows ? Cast{&first, op.out_dtype} : Cast{};
}

// Of weight, bias, mean and invstd, as our operators take them.
Values row_factors(const at::Tensor* v) {
  return {v[2].reshape(-1), v[3].reshape(-1), v[0].reshape(-1), v[1].reshape(-1)};
}

// `fused_rows` of _recipe.py.
at::Tensor fused_rows(const Values& v, at::ScalarType dtype) {
  TORCH_CHECK(v[0].is_contiguous(), "[hooks] rows that are not contiguous");
  const at::Tensor out = at::empty_like(v[0], v[0].options().dtype(dtype));
  normalize_rows_into(v[0], row_factors(&v[1]), out);
  return out;
}

Result evaluate(const Instance& instance, std::size_t number, std::size_t& leaf, Gate* gate) {
  if (const Cast cast = cast_of(*instance.recipe, number); cast.normalize != nullptr) {
    const std::vector<Argument>& arguments = cast.normalize->arguments;
    const std::optional<PackedRow> row = packed_leaf(instance, arguments[0], leaf);
    if (row.has_value()) ++leaf;  // it is not read
    Values values;
    for (std::size_t i = row.has_value() ? 1 : 0; i < arguments.size(); ++i) {
      values.push_back(argument(instance, arguments[i], leaf).value);
    }
    return {row.has_value() ? unpack_rows(*row, row_factors(values.data()), cast.dtype)
                            : fused_rows(values, cast.dtype),
            true};
  }
  if (const Chain chain = chain_of(*instance.recipe, number); chain.normalize != nullptr) {
    const std::vector<Argument>& arguments = chain.normalize->arguments;
    const std::size_t first = leaf;
    const std::optional<PackedRow> row = packed_leaf(instance, arguments[0], leaf);
    if (row.has_value()) ++leaf;  // it is not read
    Values values, others;
    for (std::size_t i = row.has_value() ? 1 : 0; i < arguments.size(); ++i) {
      values.push_back(argument(instance, arguments[i], leaf).value);
    }
    std::size_t other_leaf = leaf;  // once more, where the kernel does not take it
    After after{.relu = chain.relu};
    const bool is_packed = row.has_value() && chain.other != nullptr &&
                           packed_other(instance, *row, *chain.other, leaf, after);
    if (chain.other != nullptr && !is_packed) {
      others.push_back(argument(instance, *chain.other, leaf).value);
    }
    if (row.has_value()) {
      const bool is_gated = gate != nullptr && gate->bits.defined() && chain.relu;
      if (is_gated) after.gate = gate->bits;
      const at::Tensor out = fused_unpack(*row, values, others, after);
      if (out.defined()) {
        if (is_gated) gate->is_used = true;
        return {out, true};
      }
      if (is_packed) {
        others.push_back(argument(instance, *chain.other, other_leaf).value);
      }
      std::size_t again = first;
      values.insert(values.begin(), argument(instance, arguments[0], again).value);
    }
    return {fused(values, others, chain.relu), true};
  }
  const Operator& op = instance.recipe->operators[number];
  if (op.code == Code::kGelu && op.constants[0] == 0) {
    if (const auto row = packed_leaf(instance, op.arguments[0], leaf)) {
      ++leaf;
      return {unpack_gelu(*row), true};
    }
  }
  Values values;
  std::vector<char> fresh;
  for (const Argument& each : op.arguments) {
    Result result = argument(instance, each, leaf);
    values.push_back(std::move(result.value));
    fresh.push_back(static_cast<char>(result.is_fresh));
  }
  const bool owns = op.code != Code::kView || fresh[0];
  return {made(op, values, fresh), owns};
}

}  // namespace

bool Instance::is_changed() const {
  return std::ranges::any_of(leaves, [](const Leaf& leaf) {
    if (const auto* nested = std::get_if<std::shared_ptr<const Instance>>(&leaf)) {
      return (*nested)->is_changed();
    }
    const auto* handle = std::get_if<std::shared_ptr<Handle>>(&leaf);
    return handle != nullptr && (*handle)->is_changed();
  });
}

// With as many threads as in the forward pass: on the CPU the last bits of some operators, such as
// SiLU, depend on where a thread's part ends.
at::Tensor Instance::run(const at::Tensor& bits, bool& is_gated) const {
  struct Threads {
    int before = at::get_num_threads();
    bool changes;
    explicit Threads(int wanted) : changes(wanted != before) {
      if (changes) at::set_num_threads(wanted);
    }
    ~Threads() {
      if (changes) at::set_num_threads(before);
    }
  };
  Outside outside;
  const Threads as_before(threads);
  std::size_t leaf = 0;
  Gate gate{bits, is_gated};
  return evaluate(*this, 0, leaf, &gate).value;
}

}  // namespace tuckfold::hooks
