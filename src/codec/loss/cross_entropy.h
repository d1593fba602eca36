// The cross entropy of rows of logits, and its gradient: two passes over the logits in all, and nothing as
// large as them but the gradient.
#pragma once

#include <cstdint>

#include "codec/registry.h"
#include "tuckfold/codec.h"

namespace tuckfold {

// Rows whose class is `ignored` have no loss and no gradient. A class that no logit has makes NaN of its row's.
struct Classes {
  const std::int64_t* of_rows = nullptr;  // where the logits are
  std::int64_t ignored = -100;
};

// Of a row: the largest logit, and the sum of exp(x - most). Backward needs no more.
struct RowSum {
  float most, sum;
};

// logits: rows x classes of f32, f16 or bf16, contiguous. losses and sums: one for each row, where the logits are.
void cross_entropy(const ConstTensorView& logits, const Classes& classes, float* losses,
                   RowSum* sums, const RunOptions& options = {});

// out = (softmax(x) - [c is the row's class]) * *scale, rounded to the dtype of the logits, which it has the shape of;
// scale is where the logits are.
void cross_entropy_gradient(const ConstTensorView& logits, const Classes& classes,
                            const RowSum* sums, const float* scale, const TensorView& out,
                            const RunOptions& options = {});

namespace loss {

struct CudaCrossEntropy {
  void (*run)(const ConstTensorView& logits, const Classes& classes, float* losses, RowSum* sums,
              void* stream);
  void (*run_gradient)(const ConstTensorView& logits, const Classes& classes, const RowSum* sums,
                       const float* scale, const TensorView& out, void* stream);
};
TUCKFOLD_WEAK extern const CudaCrossEntropy kCudaCrossEntropy;  // null in builds without CUDA

}  // namespace loss
}  // namespace tuckfold
