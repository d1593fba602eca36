// layout, pack and unpack for one call without a plan, and for many tensors at once.
#include "tuckfold/codec.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/cuda/runtime.h"
#include "base/fail.h"
#include "base/fp_env.h"
#include "base/overlap.h"
#include "codec/plan.h"

namespace tuckfold {
namespace {

void check_counts(const char* what, std::size_t tensors, std::size_t others) {
  if (tensors != others) {
    invalid("[{}] every tensor needs its packed bytes, got {} tensors and {} others", what, tensors,
            others);
  }
}

// The codec, if it can process many tensors of a CUDA device at once.
template <class View>
const CudaCodec* cuda_for_many(const CodecSpec& spec, std::span<const View> views) {
  const bool on_device = std::all_of(views.begin(), views.end(),
                                     [](const View& v) { return v.device == Device::Cuda; });
  if (views.empty() || !on_device || spec.stages().size() != 1) return nullptr;
  const CudaCodec* cuda = row_of(spec.stages()[0]).cuda;
  return cuda != nullptr && cuda->pack_many != nullptr ? cuda : nullptr;
}

void check_plans(const char* what, std::span<const Plan> plans, std::size_t tensors) {
  if (plans.size() != tensors) {
    invalid("[{}] every tensor needs a plan, got {} tensors and {} plans", what, tensors,
            plans.size());
  }
  for (const Plan& plan : plans) {
    if (plan.spec() != plans[0].spec()) {
      invalid("[{}] all plans must have one spec, got {} and {}", what, plans[0].spec().print(),
              plan.spec().print());
    }
  }
}

template <class View>
std::vector<Plan> plans_for(const CodecSpec& spec, std::span<const View> views) {
  std::vector<Plan> plans;
  plans.reserve(views.size());
  for (const View& view : views) plans.emplace_back(spec, view.dtype, view.shape);
  return plans;
}

// Of views and bytes, one of which is written to.
template <class View>
void check_apart(const char* what, std::span<const View> views,
                 std::span<const std::span<const std::byte>> bytes, Writes writes) {
  const auto found = find_overlap(views, bytes, writes);
  if (!found) return;
  const auto name = [&](std::size_t i) {
    const bool is_view = i < views.size();
    return (is_view ? "tensor " : "packed bytes ") + std::to_string(is_view ? i : i - views.size());
  };
  invalid("[{}] {} and {} share memory; give each a place of its own", what, name(found->first),
          name(found->second));
}

RunOptions options_of_one(const RunOptions& options, std::size_t i) {
  RunOptions one = options;
  one.seed += i;
  if (one.cuda.device_result != nullptr) one.cuda.device_result += i;
  return one;
}

}  // namespace

bool has_cuda() { return cuda::built(); }
int cuda_devices() { return cuda::device_count(); }

Layout layout(const CodecSpec& spec, DType dtype, const Shape& shape) {
  return Steps("layout", spec, dtype, shape).layout();
}

std::size_t pack(const CodecSpec& spec, const ConstTensorView& in, std::span<std::byte> out,
                 const RunOptions& options) {
  const Steps steps("pack", spec, in.dtype, in.shape);
  steps.check_pack(in, out);
  return steps.pack(in, out, options);
}

void unpack(const CodecSpec& spec, std::span<const std::byte> packed, const TensorView& out,
            const RunOptions& options) {
  const Steps steps("unpack", spec, out.dtype, out.shape);
  steps.check_unpack(packed, out);
  steps.unpack(packed, out, options);
}

void pack_many(std::span<const Plan> plans, std::span<const ConstTensorView> in,
               std::span<const std::span<std::byte>> out, std::span<std::size_t> written,
               const RunOptions& options) {
  const FpEnv nearest;
  check_plans("pack_many", plans, in.size());
  check_counts("pack_many", in.size(), out.size());
  check_counts("pack_many", in.size(), written.size());
  for (std::size_t i = 0; i < in.size(); ++i) {
    const Steps& steps = plans[i].impl().steps_for("pack_many", in[i].dtype, in[i].shape);
    steps.check_pack(in[i], out[i]);
    if (in[i].device == Device::Cuda) steps.check_cuda("pack_many", out[i].data(), options);
    written[i] = steps.max_bytes();
  }
  std::vector<std::span<const std::byte>> rooms;
  rooms.reserve(out.size());
  for (std::size_t i = 0; i < out.size(); ++i) rooms.push_back(out[i].first(written[i]));
  check_apart("pack_many", in, rooms, Writes::Bytes);
  if (in.empty()) return;
  if (const CudaCodec* cuda = cuda_for_many(plans[0].spec(), in)) {
    return cuda->pack_many(plans[0].spec().stages()[0], in, out,
                           {.stream = options.cuda.stream,
                            .seed = options.seed,
                            .device_seed = options.cuda.device_seed});
  }
  for (std::size_t i = 0; i < in.size(); ++i) {
    written[i] = plans[i].impl().steps.pack(in[i], out[i], options_of_one(options, i));
  }
}

void unpack_many(std::span<const Plan> plans, std::span<const std::span<const std::byte>> packed,
                 std::span<const TensorView> out, const RunOptions& options) {
  const FpEnv nearest;
  check_plans("unpack_many", plans, out.size());
  check_counts("unpack_many", out.size(), packed.size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    const Steps& steps = plans[i].impl().steps_for("unpack_many", out[i].dtype, out[i].shape);
    steps.check_unpack(packed[i], out[i]);
    if (out[i].device == Device::Cuda) steps.check_cuda("unpack_many", packed[i].data(), options);
  }
  check_apart("unpack_many", out, packed, Writes::Views);
  if (out.empty()) return;
  if (const CudaCodec* cuda = cuda_for_many(plans[0].spec(), out)) {
    return cuda->unpack_many(plans[0].spec().stages()[0], packed, out,
                             {.stream = options.cuda.stream});
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    plans[i].impl().steps.unpack(packed[i], out[i], options_of_one(options, i));
  }
}

void pack_many(const CodecSpec& spec, std::span<const ConstTensorView> in,
               std::span<const std::span<std::byte>> out, std::span<std::size_t> written,
               const RunOptions& options) {
  pack_many(plans_for(spec, in), in, out, written, options);
}

void unpack_many(const CodecSpec& spec, std::span<const std::span<const std::byte>> packed,
                 std::span<const TensorView> out, const RunOptions& options) {
  unpack_many(plans_for(spec, out), packed, out, options);
}

}  // namespace tuckfold
