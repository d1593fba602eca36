// What exact codecs share on CUDA: how kernels say that they do not hold a value, and how the host
// hears of it.
//
//   const Refusals refusals = begin_pack(run, bytes);
//   launch(kernel, …, refusals);              // calls refuse(refusals, index)
//   if (const std::int64_t first = first_refused(refusals, run.stream); first >= 0) …
#pragma once

#include <cstdint>

#include "base/cuda/view.cuh"
#include "codec/registry.h"

namespace tuckfold::cuda {

inline constexpr std::uint64_t kNoneRefused = ~std::uint64_t{0};

// Either may be null: where the first refused element is noted, and the caller's outcome.
struct Refusals {
  unsigned long long* first;
  std::uint64_t* outcome;
};

// Where all is refused most threads find an earlier element noted, and leave it.
__device__ TUCKFOLD_INLINE void refuse(const Refusals& refusals, std::int64_t index) {
  const auto at = static_cast<unsigned long long>(index);
  if (refusals.first != nullptr && at < __ldcg(refusals.first)) atomicMin(refusals.first, at);
  if (refusals.outcome != nullptr) *refusals.outcome = kRefused;
}

inline bool waits(const CudaContext& run) {
  return run.outcome == nullptr && !is_capturing(run.stream);
}

namespace {

__global__ void begin_kernel(Refusals refusals, std::uint64_t bytes) {
  if (threadIdx.x != 0) return;
  if (refusals.first != nullptr) *refusals.first = kNoneRefused;
  if (refusals.outcome != nullptr) *refusals.outcome = bytes;
}

void set_outcome(const CudaContext& run, std::uint64_t value) {
  if (run.outcome == nullptr) return;
  launch(begin_kernel, {.blocks = 1, .threads = kWarp}, run.stream, Refusals{nullptr, run.outcome},
         value);
}

// The outcome is `bytes` unless a kernel refuses.
Refusals begin_pack(const CudaContext& run, std::uint64_t bytes) {
  void* first = waits(run) ? run.workspace.data() : nullptr;
  const Refusals refusals{static_cast<unsigned long long*>(first), run.outcome};
  if (refusals.first != nullptr || refusals.outcome != nullptr) {
    launch(begin_kernel, {.blocks = 1, .threads = kWarp}, run.stream, refusals, bytes);
  }
  return refusals;
}

// Waits for the stream, unless the outcome says it or nothing can. -1: none.
std::int64_t first_refused(const Refusals& refusals, void* stream) {
  if (refusals.first == nullptr) return -1;
  std::uint64_t first = 0;
  copy(&first, refusals.first, sizeof first, stream);
  synchronize(stream);
  return first == kNoneRefused ? -1 : static_cast<std::int64_t>(first);
}

// The bits of one element.
std::uint64_t fetch_element(const View& view, std::int64_t index, void* stream) {
  const auto size = static_cast<std::int64_t>(size_bytes(view.dtype));
  std::uint64_t bits = 0;
  copy(&bits, view.data + view.offset(index) * size, static_cast<std::size_t>(size), stream);
  synchronize(stream);
  return bits;
}

}  // namespace
}  // namespace tuckfold::cuda
