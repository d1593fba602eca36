// What the CUDA kernels of a butterfly are given.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tuckfold/tensor.h"

namespace tuckfold::structured {

// Three stages at most whose strides are 2^lo, 2^(lo+1) and 2^(lo+2) in some order: a thread does them
// for eight features that are 2^lo apart.
struct CudaGroup {
  int lo, count;
  int bit[3];    // of a feature's place among the eight: the stride is 2^(lo + bit)
  int first[3];  // of the stage's 2 x 2 matrices, among those of a product
};

struct CudaButterfly {
  static constexpr int kLeast = 8, kMost = 8192;  // features
  static constexpr int kMostGroups = 16;

  int in, out, n;
  int stack;  // products of the same input
  int pairs;  // 2 x 2 matrices of each
  bool tied;
  bool grows;  // one block of stages, whose strides grow
  int group_count;
  CudaGroup groups[kMostGroups];
};

// Null in builds without CUDA. Pointers are to memory of the current device.
struct ButterflyCudaKernels {
  std::size_t (*forward_bytes)(const CudaButterfly& sizes, DType dtype, std::int64_t samples);
  void (*forward)(const CudaButterfly& sizes, DType dtype, std::int64_t samples, const void* x,
                  const void* twiddle, const void* bias, void* y, void* workspace, void* stream);
  std::size_t (*backward_bytes)(const CudaButterfly& sizes, DType dtype, std::int64_t samples);
  // grad_x, grad_twiddle and grad_bias may be null.
  void (*backward)(const CudaButterfly& sizes, DType dtype, std::int64_t samples, const void* x,
                   const void* twiddle, const void* grad_y, void* grad_x, void* grad_twiddle,
                   void* grad_bias, void* workspace, void* stream);
};
__attribute__((weak)) extern const ButterflyCudaKernels kButterflyCuda;

}  // namespace tuckfold::structured
