// The codec of an array for which none is asked for: nothing is lost, and few bytes are left.
#pragma once

#include "tuckfold/codec.h"

namespace tuckfold {

// Of the exact codecs that refuse no values, the one that packs a part of the array to the fewest
// bytes, in chunks as a file has them: zstd unless another saves a hundredth. The part is row-major,
// its first axis the sample.
CodecSpec choose_exact(const ConstTensorView& part, int threads);

}  // namespace tuckfold
