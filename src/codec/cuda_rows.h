// The codecs that run on CUDA devices: each has pack_cuda and unpack_cuda in its _cuda.cu file, or
// in no_cuda.cc.
#pragma once

#include <cstddef>
#include <span>

#include "codec/registry.h"

namespace tuckfold {

#define TUCKFOLD_CUDA_ROWS(row)                                                           \
  row(raw) row(dct_chop) row(dct_quant) row(block_quant) row(bounded) row(bits) row(mask) \
      row(bytes_of)

#define TUCKFOLD_DECLARE(codec)                                                         \
  namespace codec {                                                                     \
  std::size_t pack_cuda(const Stage&, const ConstTensorView&, std::span<std::byte> out, \
                        CudaContext);                                                   \
  void unpack_cuda(const Stage&, std::span<const std::byte> packed, const TensorView&,  \
                   CudaContext);                                                        \
  }
TUCKFOLD_CUDA_ROWS(TUCKFOLD_DECLARE)
#undef TUCKFOLD_DECLARE

namespace dct_chop {
void pack_cuda_many(const Stage&, std::span<const ConstTensorView>,
                    std::span<const std::span<std::byte>> out, CudaContext);
void unpack_cuda_many(const Stage&, std::span<const std::span<const std::byte>> packed,
                      std::span<const TensorView>, CudaContext);
}  // namespace dct_chop

std::span<const CudaPair> cuda_pairs();

}  // namespace tuckfold
