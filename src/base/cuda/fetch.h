// One number from the device to the host, for codecs whose size only the device knows.
#pragma once

#include <cstdint>

#include "base/cuda/runtime.h"

namespace tuckfold::cuda {

// Reads a number in device memory when the stream has come so far; waits for that.
std::uint64_t fetch(const std::uint64_t* from, Stream stream);

}  // namespace tuckfold::cuda
