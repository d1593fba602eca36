// Unpacks the input of a GELU and gives its output: backward reads both, and stores only the input.
#pragma once

#include <cstddef>
#include <span>

#include "codec/registry.h"
#include "tuckfold/codec.h"

namespace tuckfold {

// Like Plan::unpack, for tensors of f32, f16 and bf16, and then gelu(x), rounded to the dtype; see
// gelu_block.h. On a CUDA device block_quant of 2 and 4 bits does so in one kernel where its groups have
// 2^n values, 256 or more; other codecs use a second.
void unpack_gelu(const Plan& plan, std::span<const std::byte> packed, const TensorView& out,
                 const RunOptions& options = {});

namespace then {

struct CudaGelu {
  // Both at once; false, and nothing is done, for tensors that have no such kernel.
  bool (*unpack)(const Stage&, std::span<const std::byte> packed, const TensorView&, void* stream);
  // For a tensor that is unpacked already, in place.
  void (*apply)(const TensorView&, void* stream);
};
TUCKFOLD_WEAK extern const CudaGelu kCudaGelu;  // null in builds without CUDA

}  // namespace then
}  // namespace tuckfold
