// Unpacks the input of a layer normalization and gives its output, with the statistics that are known.
#pragma once

#include <cstddef>
#include <span>

#include "codec/then/normalize.h"
#include "tuckfold/codec.h"

namespace tuckfold {

// What normalize_rows gives for what Plan::unpack gives: `out` has the plan's sizes, is contiguous, and may be
// of another dtype of f32, f16 and bf16. On a CUDA device only where one kernel does both: for block_quant
// of 2, 4 and 8 bits and rows of a multiple of 8 values, where `out` has the plan's dtype or the plan's is f32.
void unpack_rows(const Plan& plan, std::span<const std::byte> packed, const TensorView& out,
                 const RowNormalization& how, const RunOptions& options = {});

namespace then {

struct CudaUnpackRows {
  // dtype: of what was packed. False, and nothing is done, for tensors that have no such kernel.
  bool (*unpack)(const Stage&, std::span<const std::byte> packed, DType dtype, const TensorView&,
                 const RowNormalization&, void* stream);
};
TUCKFOLD_WEAK extern const CudaUnpackRows kCudaUnpackRows;  // null in builds without CUDA

}  // namespace then
}  // namespace tuckfold
