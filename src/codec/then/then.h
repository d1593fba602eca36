// What unpack_then has on CUDA devices; null in builds without CUDA.
#pragma once

#include <cstddef>
#include <span>

#include "base/device.h"
#include "codec/registry.h"
#include "tuckfold/unpack_then.h"

namespace tuckfold::then {

struct CudaThen {
  // The same for a tensor that is unpacked already, in place.
  void (*apply)(const TensorView&, const Then&, void* stream);
};
TUCKFOLD_WEAK extern const CudaThen kCuda;

// Whether these are values, in the dtype and the order of `out`, that block_quant alone packed, so that a
// kernel may unpack them and do what follows. What unpack would refuse is left to unpack.
bool is_block_quant(const Plan& plan, std::span<const std::byte> packed, const TensorView& out);

}  // namespace tuckfold::then

namespace tuckfold::block_quant {

struct CudaUnpackThen {
  // Both at once; false, and nothing is done, for tensors that have no such kernel.
  bool (*unpack)(const Stage&, std::span<const std::byte> packed, const TensorView&, const Then&,
                 void* stream);
};
TUCKFOLD_WEAK extern const CudaUnpackThen kCudaUnpackThen;

}  // namespace tuckfold::block_quant
