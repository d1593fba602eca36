// A batch normalization with known statistics, and the sum and ReLU that often follow it, in one pass
// over dense tensors: what backward computes again where forward stored only the input.
#pragma once

#include <cstdint>

#include "codec/registry.h"
#include "tuckfold/codec.h"

namespace tuckfold {

// y = weight[c] * (x - mean[c]) * invstd[c] + bias[c], rounded to the dtype; with a second tensor
// y + add, rounded again; and with relu max(y, 0). Products are rounded to f32, and the last product
// and sum together, as PyTorch's kernels do on a GPU. The channel c of the value at index i is
// i / inner % channels.
struct Normalization {
  const float* mean = nullptr;  // as many as there are channels, where the tensors are
  const float* invstd = nullptr;
  const float* weight = nullptr;
  const float* bias = nullptr;
  std::int64_t channels = 1;
  std::int64_t inner = 1;
  bool relu = false;
};

// `add` may be null. All tensors are of f32, f16 or bf16, of one shape, contiguous and on one device;
// `out` may be one of the others.
void normalize(const ConstTensorView& x, const ConstTensorView* add, const TensorView& out,
               const Normalization& how, const RunOptions& options = {});

namespace then {

struct CudaNormalize {
  void (*run)(const ConstTensorView& x, const ConstTensorView* add, const TensorView& out,
              const Normalization& how, void* stream);
};
TUCKFOLD_WEAK extern const CudaNormalize kCudaNormalize;  // null in builds without CUDA

}  // namespace then
}  // namespace tuckfold
