// Shared by exact codecs on CUDA: how kernels report a value that they cannot represent, and how
// the host reads the report.
//
//   const Refusals refusals = begin_pack(run, bytes);
//   launch(kernel, …, refusals);              // calls refuse(refusals, index)
//   check_refused(refusals, view, stream, [](std::uint64_t bits, std::int64_t index) { … });
#pragma once

#include <cstdint>

#include "base/cuda/view.cuh"
#include "codec/registry.h"

namespace tuckfold::cuda {

inline constexpr std::uint64_t kNoneRefused = ~std::uint64_t{0};

// Either may be null: the place for the first refused element, and the caller's device_result.
struct Refusals {
  unsigned long long* first;
  std::uint64_t* device_result;
};

// If all values are refused, most threads find an earlier element noted, and do not write.
__device__ TUCKFOLD_INLINE void refuse(const Refusals& refusals, std::int64_t index) {
  const auto at = static_cast<unsigned long long>(index);
  if (refusals.first != nullptr && at < __ldcg(refusals.first)) atomicMin(refusals.first, at);
  if (refusals.device_result != nullptr) *refusals.device_result = kRefused;
}

inline bool waits(const CudaContext& run) {
  return run.device_result == nullptr && !is_capturing(run.stream);
}

namespace {

__global__ void begin_kernel(Refusals refusals, std::uint64_t bytes) {
  wait_for_previous_kernel();
  if (threadIdx.x != 0) return;
  if (refusals.first != nullptr) *refusals.first = kNoneRefused;
  if (refusals.device_result != nullptr) *refusals.device_result = bytes;
}

void set_device_result(const CudaContext& run, std::uint64_t value) {
  if (run.device_result == nullptr) return;
  launch(begin_kernel, {.blocks = 1, .threads = kWarp, .early = true}, run.stream,
         Refusals{nullptr, run.device_result}, value);
}

// The device_result is `bytes` unless a kernel refuses.
Refusals begin_pack(const CudaContext& run, std::uint64_t bytes) {
  void* first = waits(run) ? run.workspace.data() : nullptr;
  const Refusals refusals{static_cast<unsigned long long*>(first), run.device_result};
  if (refusals.first != nullptr || refusals.device_result != nullptr) {
    launch(begin_kernel, {.blocks = 1, .threads = kWarp, .early = true}, run.stream, refusals,
           bytes);
  }
  return refusals;
}

// Synchronizes, unless the device_result reports it or the codec refuses nothing, and calls
// refuse(bits, index) for the first element that was refused.
template <class Refuse>
void check_refused(const Refusals& refusals, const View& view, void* stream, Refuse&& refuse) {
  if (refusals.first == nullptr) return;
  std::uint64_t first = 0, bits = 0;
  copy(&first, refusals.first, sizeof first, stream);
  synchronize(stream);
  if (first == kNoneRefused) return;
  const auto index = static_cast<std::int64_t>(first);
  const auto size = static_cast<std::int64_t>(size_bytes(view.dtype));
  copy(&bits, view.data + view.offset(index) * size, static_cast<std::size_t>(size), stream);
  synchronize(stream);
  refuse(bits, index);
}

}  // namespace
}  // namespace tuckfold::cuda
