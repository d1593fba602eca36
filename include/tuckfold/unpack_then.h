// Unpacks, then normalizes and activates: one tensor of a normalization-activation pair is stored,
// and the other follows from it while it is unpacked.
//
//   unpack_then(plan, packed, out, {.scale = scale, .shift = shift, .channels = 64,
//                                   .inner = 56 * 56, .relu = true});
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tuckfold/codec.h"

namespace tuckfold {

// y = scale[c] * x + shift[c], plus add where that is given, and with relu max(y, 0). The channel c of the value at index i, in
// row-major order, is i / inner % channels: inner is height * width in rows, 1 in channels_last.
struct Then {
  const float* scale = nullptr;  // as many as there are channels, where the tensor is
  const float* shift = nullptr;
  std::int64_t channels = 1;
  std::int64_t inner = 1;
  bool relu = false;
  const void* add = nullptr;  // a tensor with the dtype, shape, strides and device of the output
  // The same, as the plan packed it: as many bytes as `packed`. On a CUDA device only for
  // block_quant of 2, 4 and 8 bits and a multiple of 16 values that are contiguous.
  const std::byte* packed_add = nullptr;
  const float* add_scale =
      nullptr;  // of channels: add_scale[c] * add + add_shift[c], rounded to the dtype, is added
  const float* add_shift = nullptr;
  // Which values are above 0, a bit each, as the codec `positive` packs them: others become 0, and these the
  // least number above 0 that has all its digits, or for f16 the least of all, where they are not above 0.
  const std::byte* gate = nullptr;
};

// Like Plan::unpack, for tensors of f32, f16 and bf16. x is the value that unpack gives, in the
// tensor's dtype. The product and each sum are rounded to f32, and the result to the dtype:
// finite numbers beyond its largest become that. ReLU gives +0 for -0, and NaN stays. On a CUDA
// device block_quant of 2, 4 and 8 bits does all of it in one kernel; other codecs use a second.
TUCKFOLD_API void unpack_then(const Plan& plan, std::span<const std::byte> packed,
                              const TensorView& out, const Then& then,
                              const RunOptions& options = {});

}  // namespace tuckfold
