// Normalizations with known statistics, and what often follows them, in one pass over dense tensors:
// what backward computes again where forward stored only the input.
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

// Rows of a layer normalization: y = weight[c] * (invstd[r] * (x - mean[r])) + bias[c], the last product
// and sum rounded together, then to the dtype of `out`, which may differ from that of x.
struct RowNormalization {
  const float* mean = nullptr;  // one for each row
  const float* invstd = nullptr;
  const float* weight = nullptr;  // one for each value of a row
  const float* bias = nullptr;
  std::int64_t length = 1;  // of a row
};
void normalize_rows(const ConstTensorView& x, const TensorView& out, const RowNormalization& how,
                    const RunOptions& options = {});
// Throws where normalize_rows would refuse them.
void check_rows(const ConstTensorView& x, const TensorView& out, const RowNormalization& how);

namespace then {

struct CudaNormalize {
  void (*run)(const ConstTensorView& x, const ConstTensorView* add, const TensorView& out,
              const Normalization& how, void* stream);
  void (*run_rows)(const ConstTensorView& x, const TensorView& out, const RowNormalization& how,
                   void* stream);
};
TUCKFOLD_WEAK extern const CudaNormalize kCudaNormalize;  // null in builds without CUDA

}  // namespace then
}  // namespace tuckfold
