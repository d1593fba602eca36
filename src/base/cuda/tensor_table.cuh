// Many tensors in one launch: the CTAs of a tensor follow those of the tensor before it, and a CTA
// finds its tensor by its number. The table is a kernel argument, so nothing must outlive the call,
// even if a graph records it.
//
//   struct Tensor { …; std::uint32_t first_cta; };
//   __global__ void kernel(const __grid_constant__ TensorTable<Tensor, kMost> table) {
//     const Tensor& tensor = table.of(blockIdx.x);
#pragma once

#include <cstdint>

#include "base/cuda/kernel.cuh"

namespace tuckfold::cuda {

template <class Tensor, int kMost>
struct TensorTable {
  Tensor tensors[kMost];
  int count;

  __device__ TUCKFOLD_INLINE const Tensor& of(std::uint32_t cta) const {
    int at = 0, end = kMost == 1 ? 1 : count;
    while (end - at > 1) {
      const int middle = (at + end) / 2;
      (tensors[middle].first_cta <= cta ? at : end) = middle;
    }
    return tensors[at];
  }
};

// As many as fit in an argument of 32 KB beside a hundred bytes of other arguments.
template <class Tensor>
inline constexpr int kMostTensors = (32764 - 128) / static_cast<int>(sizeof(Tensor));

}  // namespace tuckfold::cuda
