// Many tensors in one launch: the CTAs of one follow those of the one before it, and a CTA finds
// its tensor by its number. The table travels as an argument: nothing must outlive the call, not
// even where a graph records it.
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

// As many as an argument of 32 KB holds beside a hundred bytes of others.
template <class Tensor>
inline constexpr int kMostTensors = (32764 - 128) / static_cast<int>(sizeof(Tensor));

}  // namespace tuckfold::cuda
