// Stages of a butterfly on tiles: pairs of rows (p, p + stride) become T (p, p + stride), T 2 x 2.
#pragma once

#include <cstdint>

namespace tuckfold::structured {

// One stage, or two of neighbouring strides that are done while their rows are in registers.
// Twiddles are 2 x 2 matrices a b c d, one for each pair: number block * stride + j for pair j of a
// block of 2 * stride rows; tied ones, number j in all blocks.
template <class T>
struct Stages {
  std::int64_t rows, lanes;
  int count;               // 1 or 2
  std::int64_t stride[2];  // in the order in which they are applied
  const T* twiddle[2];
  bool tied;
};

// out = stages(in); they may be the same tile.
template <class T>
using StagesForward = void (*)(const Stages<T>& stages, const T* in, T* out);
// In place, g becomes the gradient for `in`; sums of the twiddles' gradients are added to.
template <class T>
using StagesBackward = void (*)(const Stages<T>& stages, const T* in, T* g, T* const* g_twiddle);

template <class T>
struct StagesKernels {
  StagesForward<T> forward;
  StagesBackward<T> backward;
};
template <class T>
const StagesKernels<T>& stages_kernels() noexcept;

}  // namespace tuckfold::structured
