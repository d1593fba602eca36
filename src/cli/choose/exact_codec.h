// The codec of an array for which none is asked for: nothing is lost, and few bytes are left.
#pragma once

#include "cli/dataset/array.h"
#include "tuckfold/codec.h"

namespace tuckfold::cli {

// Of the exact codecs that refuse no values, the one that packs a part of the array to the fewest
// bytes, in chunks as a file has them: zstd unless another saves a hundredth.
CodecSpec choose_exact(const Array& part, int threads);

}  // namespace tuckfold::cli
