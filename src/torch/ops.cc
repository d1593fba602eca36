// The codecs as operators of PyTorch, on its stable ABI alone: one binary for torch 2.10 and later.
//
//   torch.ops.tuckfold.pack(x, "dct_chop(keep=4)", 0)                      # uint8, one axis
//   torch.ops.tuckfold.unpack(packed, "dct_chop(keep=4)", shape, dtype)
//   torch.ops.tuckfold.pack_many([x, y], "dct_chop(keep=4)", 0)            # one launch for
//   many
//
// The stable ABI has neither fake kernels nor autograd; both are in python/tuckfold/torch/.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "torch/boxed.h"
#include "torch/call.h"
#include "torch/place.h"
#include "torch/plan.h"
#include "tuckfold/c.h"

namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;
using namespace tuckfold::torch_ops;

// ---- tensors ------------------------------------------------------------------------------------

std::size_t pack_into(const Place& place, const Plan& plan, const tuckfold_tensor& in,
                      const Tensor& out, std::int64_t seed,
                      const std::uint64_t* device_seed = nullptr) {
  std::size_t written = 0;
  const tuckfold_layout& fit = plan.layout();
  Run run = run_of(place, fit.workspace_bytes, seed);
  run.options.device_seed = device_seed;
  check(tuckfold_pack(plan.get(), &in, out.mutable_data_ptr(), fit.max_bytes, &run.options,
                      &written));
  return written;
}

void unpack_from(const char* what, const Place& place, const Tensor& packed, const Plan& plan,
                 const Tensor& out) {
  check_places(what, place, packed, out);
  const tuckfold_tensor view = view_of(what, place, out, out.mutable_data_ptr());
  const Run run = run_of(place, plan.layout().workspace_bytes, 0);
  const auto bytes = static_cast<std::size_t>(packed.numel()) * packed.element_size();
  check(tuckfold_unpack(plan.get(), packed.const_data_ptr(), bytes, &view, &run.options));
}

// ---- the operators ------------------------------------------------------------------------------

// The bytes written, out of the buffer for the worst case: copied if they are few, because a view
// would keep the whole buffer.
Tensor fitted(Tensor room, std::size_t written) {
  if (written == static_cast<std::size_t>(room.numel())) return room;
  return torch::stable::clone(
      torch::stable::narrow(room, 0, 0, static_cast<std::int64_t>(written)));
}

// A seed, or the tensor that holds it: read when kernels run, so that a graph need not be captured
// again for every seed.
struct Seed {
  std::int64_t value = 0;
  const std::uint64_t* on_device = nullptr;

  static Seed of(const Place& place, const Tensor& tensor) {
    if (tensor.scalar_type() != ScalarType::Long || tensor.numel() != 1) {
      refuse("pack", "a seed is an integer, or a tensor of one int64");
    }
    if (!place.holds(tensor)) refuse("pack", "the seed must be on the device of the tensor");
    if (place.cuda()) {
      return {.on_device = static_cast<const std::uint64_t*>(tensor.const_data_ptr())};
    }
    return {.value = *static_cast<const std::int64_t*>(tensor.const_data_ptr())};
  }
};

Tensor pack_with(const Tensor& x, std::string_view spec, const Place& place, const Seed& seed) {
  const tuckfold_tensor in = view_of("pack", place, x, const_cast<void*>(x.const_data_ptr()));
  const Plan plan(spec, in);
  Tensor out = place.bytes(plan.layout().max_bytes);
  return fitted(out, pack_into(place, plan, in, out, seed.value, seed.on_device));
}

Tensor pack(const Tensor& x, std::string_view spec, std::int64_t seed) {
  return pack_with(x, spec, Place(x), Seed{.value = seed});
}

Tensor pack_seeded(const Tensor& x, std::string_view spec, const Tensor& seed) {
  const Place place(x);
  return pack_with(x, spec, place, Seed::of(place, seed));
}

// A buffer for the worst case, and on the tensor's device the number of bytes written, or -1 if the
// codec refuses the values. Does not synchronize with a GPU.
std::tuple<Tensor, Tensor> pack_checked(const Tensor& x, std::string_view spec, std::int64_t seed) {
  constexpr std::int64_t kOne = 1;
  constexpr double kRefused = -1;
  const Place place(x);
  const tuckfold_tensor in = view_of("pack", place, x, const_cast<void*>(x.const_data_ptr()));
  const Plan plan(spec, in);
  const tuckfold_layout& fit = plan.layout();
  Tensor out = place.bytes(fit.max_bytes), result = place.empty({&kOne, 1}, ScalarType::Long);
  Run run = run_of(place, fit.workspace_bytes, seed);
  if (place.cuda()) {
    torch::stable::fill_(result, static_cast<double>(fit.max_bytes));
    run.options.device_result = static_cast<std::uint64_t*>(result.mutable_data_ptr());
  }
  std::size_t written = 0;
  const tuckfold_status status =
      tuckfold_pack(plan.get(), &in, out.mutable_data_ptr(), fit.max_bytes, &run.options, &written);
  // The plan has checked all but the values.
  const bool refused = !place.cuda() && status == TUCKFOLD_INVALID_ARGUMENT;
  if (!refused) check(status);
  if (refused) tuckfold_clear_error();
  if (!place.cuda()) {
    torch::stable::fill_(result, refused ? kRefused : static_cast<double>(written));
  }
  return {out, result};
}

// Refuses a shape that does not fit the packed bytes before memory is allocated for it.
void check_size(const Plan& plan, const Tensor& packed, const Axes& shape, std::int32_t dtype) {
  const tuckfold_layout& fit = plan.layout();
  const auto bytes = static_cast<std::size_t>(packed.numel());
  if (bytes <= fit.max_bytes && (fit.fixed == 0 || bytes == fit.max_bytes)) return;
  alignas(8) static char nowhere[8];  // never written: unpack checks the size first
  const tuckfold_tensor out = {
      .data = nowhere, .dtype = dtype, .rank = shape.rank, .shape = shape.lengths};
  check(tuckfold_unpack(plan.get(), packed.const_data_ptr(), bytes, &out, nullptr));
}

Tensor unpack(const Tensor& packed, std::string_view spec, const Axes& shape, ScalarType dtype) {
  check_bytes(packed);
  const std::int32_t ours = dtype_of("unpack", dtype);
  const Plan plan(spec, ours, shape.all());
  check_size(plan, packed, shape, ours);
  const Place place(packed);
  Tensor out = place.empty(shape.all(), dtype);
  unpack_from("unpack", place, packed, plan, out);
  return out;
}

// The tensor, and on its device 0, or -1 if the bytes are not of that codec, shape and dtype, where
// their number does not tell. Does not synchronize with a GPU.
std::tuple<Tensor, Tensor> unpack_checked(const Tensor& packed, std::string_view spec,
                                          const Axes& shape, ScalarType dtype) {
  constexpr std::int64_t kOne = 1;
  constexpr double kRefused = -1;
  check_bytes(packed);
  const std::int32_t ours = dtype_of("unpack", dtype);
  const Plan plan(spec, ours, shape.all());
  check_size(plan, packed, shape, ours);
  const Place place(packed);
  Tensor out = place.empty(shape.all(), dtype), result = place.empty({&kOne, 1}, ScalarType::Long);
  torch::stable::fill_(result, 0.0);
  check_places("unpack", place, packed, out);
  const tuckfold_tensor view = view_of("unpack", place, out, out.mutable_data_ptr());
  Run run = run_of(place, plan.layout().workspace_bytes, 0);
  if (place.cuda()) {
    run.options.device_result = static_cast<std::uint64_t*>(result.mutable_data_ptr());
  }
  const auto bytes = static_cast<std::size_t>(packed.numel());
  const tuckfold_status status =
      tuckfold_unpack(plan.get(), packed.const_data_ptr(), bytes, &view, &run.options);
  const bool refused = status == TUCKFOLD_CORRUPT_DATA;
  if (!refused) check(status);
  if (refused) {
    tuckfold_clear_error();
    torch::stable::fill_(result, kRefused);
  }
  return {out, result};
}

void unpack_into(const Tensor& packed, std::string_view spec, const Tensor& out) {
  check_bytes(packed);
  const Place place(out);
  const Plan plan(spec, view_of("unpack", place, out, nullptr));
  unpack_from("unpack", place, packed, plan, out);
}

// What unpacks into a new tensor of the dtype `to`, and does more.
struct Unpacks {
  Plan plan;
  Place place;
  Tensor out;
  tuckfold_tensor view;
  Run run;

  Unpacks(const char* what, const Tensor& packed, std::string_view spec, const Axes& shape,
          ScalarType dtype, ScalarType to)
      : plan(spec, dtype_of(what, dtype), shape.all()),
        place(packed),
        out(place.empty(shape.all(), to)),
        view(view_of(what, place, out, out.mutable_data_ptr())),
        run(run_of(place, plan.layout().workspace_bytes, 0)) {
    check_bytes(packed);
    check_size(plan, packed, shape, dtype_of(what, dtype));
    check_places(what, place, packed, out);
  }
};

// Unpacks, then scale[c] * x + shift[c], plus `add`, and ReLU if `act` says so; c changes every `inner` values.
// packed_add: instead of add, as it was packed, with numbers of its own or none; gate: bits of the values that stay above 0.
Tensor unpack_then(const Tensor& packed, std::string_view spec, const Axes& shape, ScalarType dtype,
                   const Tensor& scale, const Tensor& shift, std::int64_t inner,
                   std::string_view act, const std::optional<Tensor>& add,
                   const std::optional<Tensor>& packed_add, const std::optional<Tensor>& add_scale,
                   const std::optional<Tensor>& add_shift, const std::optional<Tensor>& gate) {
  if (act != "none" && act != "relu") {
    refuse("unpack_then", "act must be none or relu, got " + std::string(act));
  }
  const std::vector<Tensor> factors = {scale, shift};
  check_numbers("unpack_then", "scale and shift", factors, scale.numel());
  std::vector<Tensor> add_factors;
  for (const auto* each : {&add_scale, &add_shift}) {
    if (each->has_value()) add_factors.push_back(**each);
  }
  check_numbers("unpack_then", "add_scale and add_shift", add_factors, scale.numel());
  const Unpacks as("unpack_then", packed, spec, shape, dtype, dtype);
  const auto& [plan, place, out, view, run] = as;
  check_all_on("unpack_then", place, factors);
  check_all_on("unpack_then", place, add_factors);
  const auto numbers = [](const std::optional<Tensor>& of) {
    return of.has_value() ? static_cast<const float*>(of->const_data_ptr()) : nullptr;
  };
  if (add.has_value()) {
    check_all_on("unpack_then", place, std::span(&*add, 1));
    if (add->scalar_type() != dtype || !std::ranges::equal(add->sizes(), out.sizes()) ||
        !add->is_contiguous()) {
      refuse("unpack_then",
             "add must have the dtype and the shape of the tensor, and be contiguous");
    }
  }
  for (const auto& [bytes, count] :
       {std::pair(&packed_add, packed.numel()), std::pair(&gate, (out.numel() + 7) / 8)}) {
    if (!bytes->has_value()) continue;
    check_bytes(**bytes);
    check_all_on("unpack_then", place, std::span(&**bytes, 1));
    if ((*bytes)->numel() != count) {
      refuse("unpack_then", "packed_add must have the bytes of packed, and gate a bit a value");
    }
  }
  const tuckfold_then then{.scale = static_cast<const float*>(scale.const_data_ptr()),
                           .shift = static_cast<const float*>(shift.const_data_ptr()),
                           .channels = scale.numel(),
                           .inner = inner,
                           .relu = act == "relu" ? 1 : 0,
                           .add = add.has_value() ? add->const_data_ptr() : nullptr,
                           .packed_add = packed_add ? packed_add->const_data_ptr() : nullptr,
                           .add_scale = numbers(add_scale),
                           .add_shift = numbers(add_shift),
                           .gate = gate ? gate->const_data_ptr() : nullptr};
  check(tuckfold_unpack_then(plan.get(), packed.const_data_ptr(),
                             static_cast<std::size_t>(packed.numel()), &view, &then, &run.options));
  return out;
}

// weight * (x - mean) * invstd + bias by channels, which change every `inner` values, plus the
// tensors of `add`, one or none, and ReLU if `act` says so. All are contiguous; see tuckfold_normalize.
void normalize_into(const Tensor& x, const std::vector<Tensor>& add,
                    const std::vector<Tensor>& factors, std::int64_t inner, std::string_view act,
                    const Tensor& out) {
  if (act != "none" && act != "relu") {
    refuse("normalize", "act must be none or relu, got " + std::string(act));
  }
  if (add.size() > 1 || factors.size() != 4) {
    refuse("normalize",
           "add must be one tensor at most, and factors mean, invstd, weight and bias");
  }
  check_numbers("normalize", "factors", factors, factors[0].numel());
  const Place place(out);
  check_all_on("normalize", place, factors);
  check_all_on("normalize", place, add);
  check_all_on("normalize", place, std::span(&x, 1));
  const auto view = [&](const Tensor& tensor) {
    return view_of("normalize", place, tensor, const_cast<void*>(tensor.const_data_ptr()));
  };
  const tuckfold_tensor from = view(x), to = view(out);
  const tuckfold_tensor other = view(add.empty() ? x : add[0]);
  const auto numbers = [&](std::size_t i) {
    return static_cast<const float*>(factors[i].const_data_ptr());
  };
  const tuckfold_normalization how{.mean = numbers(0),
                                   .invstd = numbers(1),
                                   .weight = numbers(2),
                                   .bias = numbers(3),
                                   .channels = factors[0].numel(),
                                   .inner = inner,
                                   .relu = act == "relu" ? 1 : 0};
  const Run run = run_of(place, 0, 0);
  check(tuckfold_normalize(&from, add.empty() ? nullptr : &other, &to, &how, &run.options));
}

// The numbers of a layer normalization's rows: factors are mean, invstd, weight and bias.
tuckfold_row_normalization rows_of(const Place& place, const std::vector<Tensor>& factors,
                                   std::int64_t values) {
  if (factors.size() != 4) refuse("normalize", "factors must be mean, invstd, weight and bias");
  for (const Tensor& each : factors) {
    if (each.scalar_type() != ScalarType::Float || each.dim() != 1 || !each.is_contiguous()) {
      refuse("normalize", "factors must be contiguous, of float32, with one axis");
    }
  }
  const std::int64_t length = factors[2].numel();
  if (factors[3].numel() != length || factors[0].numel() != factors[1].numel() ||
      factors[0].numel() * length != values) {
    refuse("normalize",
           "there must be a mean and an invstd for each row, and a weight and a bias "
           "for each of its values");
  }
  check_all_on("normalize", place, factors);
  const auto numbers = [&](std::size_t i) {
    return static_cast<const float*>(factors[i].const_data_ptr());
  };
  return {.mean = numbers(0),
          .invstd = numbers(1),
          .weight = numbers(2),
          .bias = numbers(3),
          .length = std::max<std::int64_t>(length, 1)};
}

void normalize_rows_into(const Tensor& x, const std::vector<Tensor>& factors, const Tensor& out) {
  const Place place(out);
  const tuckfold_row_normalization how = rows_of(place, factors, x.numel());
  check_all_on("normalize", place, std::span(&x, 1));
  const tuckfold_tensor from =
      view_of("normalize", place, x, const_cast<void*>(x.const_data_ptr()));
  const tuckfold_tensor to = view_of("normalize", place, out, out.mutable_data_ptr());
  const Run run = run_of(place, 0, 0);
  check(tuckfold_normalize_rows(&from, &to, &how, &run.options));
}

// Unpacks, and normalizes rows as normalize_rows_into does.
Tensor unpack_rows(const Tensor& packed, std::string_view spec, const Axes& shape, ScalarType dtype,
                   const std::vector<Tensor>& factors, ScalarType to) {
  const Unpacks as("unpack_rows", packed, spec, shape, dtype, to);
  const tuckfold_row_normalization how = rows_of(as.place, factors, as.out.numel());
  const tuckfold_status status = tuckfold_unpack_rows(as.plan.get(), packed.const_data_ptr(),
                                                      static_cast<std::size_t>(packed.numel()),
                                                      &as.view, &how, &as.run.options);
  if (status != TUCKFOLD_UNSUPPORTED) {
    check(status);
    return as.out;
  }
  tuckfold_clear_error();
  const Tensor x = as.place.empty(shape.all(), dtype);
  unpack_from("unpack_rows", as.place, packed, as.plan, x);
  normalize_rows_into(x, factors, as.out);
  return as.out;
}

Tensor unpack_gelu(const Tensor& packed, std::string_view spec, const Axes& shape,
                   ScalarType dtype) {
  const Unpacks as("unpack_gelu", packed, spec, shape, dtype, dtype);
  check(tuckfold_unpack_gelu(as.plan.get(), packed.const_data_ptr(),
                             static_cast<std::size_t>(packed.numel()), &as.view, &as.run.options));
  return as.out;
}

// ---- many at once

std::vector<const tuckfold_plan*> handles(const std::vector<Plan>& plans) {
  std::vector<const tuckfold_plan*> all;
  for (const Plan& plan : plans) all.push_back(plan.get());
  return all;
}

// The largest workspace of calls that run one after the other.
std::size_t most_workspace(const std::vector<Plan>& plans) {
  std::size_t most = 0;
  for (const Plan& plan : plans) most = std::max(most, plan.layout().workspace_bytes);
  return most;
}

std::vector<Tensor> pack_many(const std::vector<Tensor>& xs, std::string_view spec,
                              std::int64_t seed) {
  if (xs.empty()) return {};
  const Place place(xs[0]);
  check_all_on("pack", place, xs);
  std::vector<tuckfold_tensor> in;
  std::vector<Plan> plans;
  for (const Tensor& x : xs) {
    in.push_back(view_of("pack", place, x, const_cast<void*>(x.const_data_ptr())));
    plans.emplace_back(spec, in.back());
  }
  std::vector<Tensor> rooms;
  std::vector<void*> out;
  std::vector<std::size_t> room_bytes, written(xs.size());
  for (const Plan& plan : plans) {
    rooms.push_back(place.bytes(plan.layout().max_bytes));
    out.push_back(rooms.back().mutable_data_ptr());
    room_bytes.push_back(plan.layout().max_bytes);
  }
  const Run run = run_of(place, most_workspace(plans), seed);
  check(tuckfold_pack_many(handles(plans).data(), xs.size(), in.data(), out.data(),
                           room_bytes.data(), &run.options, written.data()));
  for (std::size_t i = 0; i < xs.size(); ++i) rooms[i] = fitted(rooms[i], written[i]);
  return rooms;
}

void unpack_many_into(const std::vector<Tensor>& packed, std::string_view spec,
                      const std::vector<Tensor>& outs) {
  if (packed.size() != outs.size()) {
    refuse("unpack", "needs as many outputs as packed tensors, got " +
                         std::to_string(packed.size()) + " and " + std::to_string(outs.size()));
  }
  if (outs.empty()) return;
  const Place place(outs[0]);
  std::vector<tuckfold_tensor> views;
  std::vector<Plan> plans;
  std::vector<const void*> from;
  std::vector<std::size_t> bytes;
  for (std::size_t i = 0; i < outs.size(); ++i) {
    check_bytes(packed[i]);
    check_places("unpack", place, packed[i], outs[i]);
    views.push_back(view_of("unpack", place, outs[i], outs[i].mutable_data_ptr()));
    plans.emplace_back(spec, views.back());
    from.push_back(packed[i].const_data_ptr());
    bytes.push_back(static_cast<std::size_t>(packed[i].numel()));
  }
  const Run run = run_of(place, most_workspace(plans), 0);
  check(tuckfold_unpack_many(handles(plans).data(), outs.size(), from.data(), bytes.data(),
                             views.data(), &run.options));
}

// The packed bytes as the tensor that Layout describes: for dct_chop, the coefficients.
Tensor compress(const Tensor& x, std::string_view spec) {
  const Place place(x);
  const tuckfold_tensor in = view_of("compress", place, x, const_cast<void*>(x.const_data_ptr()));
  const Plan plan(spec, in);
  const tuckfold_layout& fit = plan.layout();
  if (fit.fixed == 0) {
    refuse("compress", "needs a codec of a fixed size; use pack, got " + std::string(spec));
  }
  Tensor out = place.empty({fit.shape, static_cast<std::size_t>(fit.rank)}, torch_dtype(fit.dtype));
  pack_into(place, plan, in, out, 0);
  return out;
}

Tensor decompress(const Tensor& coefs, std::string_view spec, const Axes& shape, ScalarType dtype) {
  const Plan plan(spec, dtype_of("decompress", dtype), shape.all());
  if (dtype_of("decompress", coefs.scalar_type()) != plan.layout().dtype) {
    refuse("decompress", "the tensor is not of the dtype that compress gives");
  }
  const Place place(coefs);
  Tensor out = place.empty(shape.all(), dtype);
  // Gradients may be slices of any tensor.
  const bool usable = !place.cuda() || aligned(coefs);
  unpack_from("decompress", place, usable ? coefs : torch::stable::clone(coefs), plan, out);
  return out;
}

}  // namespace

STABLE_TORCH_LIBRARY(tuckfold, library) {
  library.def("pack(Tensor x, str spec, SymInt seed=0) -> Tensor");
  library.def("pack_seeded(Tensor x, str spec, Tensor seed) -> Tensor");
  library.def("pack_checked(Tensor x, str spec, SymInt seed=0) -> (Tensor, Tensor)");
  library.def("unpack(Tensor packed, str spec, SymInt[] shape, ScalarType dtype) -> Tensor");
  library.def(
      "unpack_checked(Tensor packed, str spec, SymInt[] shape, ScalarType dtype) -> (Tensor, "
      "Tensor)");
  library.def(
      "unpack_then(Tensor packed, str spec, SymInt[] shape, ScalarType dtype, Tensor scale, "
      "Tensor shift, SymInt inner, str act, Tensor? add=None, Tensor? packed_add=None, "
      "Tensor? add_scale=None, Tensor? add_shift=None, Tensor? gate=None) -> Tensor");
  library.def("unpack_into(Tensor packed, str spec, Tensor(a!) out) -> ()");
  library.def(
      "normalize_into(Tensor x, Tensor[] add, Tensor[] factors, SymInt inner, str act, "
      "Tensor(a!) out) -> ()");
  library.def("normalize_rows_into(Tensor x, Tensor[] factors, Tensor(a!) out) -> ()");
  library.def(
      "unpack_rows(Tensor packed, str spec, SymInt[] shape, ScalarType dtype, Tensor[] factors, "
      "ScalarType to) -> Tensor");
  library.def("unpack_gelu(Tensor packed, str spec, SymInt[] shape, ScalarType dtype) -> Tensor");
  library.def("pack_many(Tensor[] xs, str spec, SymInt seed=0) -> Tensor[]");
  library.def("unpack_many_into(Tensor[] packed, str spec, Tensor(a!)[] outs) -> ()");
  library.def("compress(Tensor x, str spec) -> Tensor");
  library.def("decompress(Tensor coefs, str spec, SymInt[] shape, ScalarType dtype) -> Tensor");
}

// The same for both: an operator asks its tensors for their device.
#define TUCKFOLD_REGISTER(device)                                    \
  STABLE_TORCH_LIBRARY_IMPL(tuckfold, device, library) {             \
    library.impl("pack", boxed<pack>);                               \
    library.impl("pack_seeded", boxed<pack_seeded>);                 \
    library.impl("pack_checked", boxed<pack_checked>);               \
    library.impl("unpack", boxed<unpack>);                           \
    library.impl("unpack_checked", boxed<unpack_checked>);           \
    library.impl("unpack_then", boxed<unpack_then>);                 \
    library.impl("unpack_into", boxed<unpack_into>);                 \
    library.impl("normalize_into", boxed<normalize_into>);           \
    library.impl("normalize_rows_into", boxed<normalize_rows_into>); \
    library.impl("unpack_rows", boxed<unpack_rows>);                 \
    library.impl("unpack_gelu", boxed<unpack_gelu>);                 \
    library.impl("pack_many", boxed<pack_many>);                     \
    library.impl("unpack_many_into", boxed<unpack_many_into>);       \
    library.impl("compress", boxed<compress>);                       \
    library.impl("decompress", boxed<decompress>);                   \
  }
TUCKFOLD_REGISTER(CPU)
TUCKFOLD_REGISTER(CUDA)
#undef TUCKFOLD_REGISTER
