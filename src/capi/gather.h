// Samples of a file in any order, as a training loop asks for them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tuckfold/container.h"

namespace tuckfold::capi {

// Row i of `out` becomes sample samples[i]; they may repeat. Samples are read chunk by chunk, so
// that a chunk whose samples cannot be unpacked alone is unpacked once. Throws as
// FileReader::read does; of several errors, that of the lowest sample.
void gather(const FileReader& reader, std::size_t array, std::span<const std::int64_t> samples,
            const TensorView& out, int threads);

}  // namespace tuckfold::capi
