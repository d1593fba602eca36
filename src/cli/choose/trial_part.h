// A part of an array that represents the whole, the same on every run.
#pragma once

#include <cstdint>

#include "cli/dataset/array.h"

namespace tuckfold::cli {

// About `most` values: planes (the axes that codecs of blocks take together) spread over the
// leading axes, or bands of rows in multiples of 8 where a plane alone is larger. All of it where
// the array is no larger. A band has 8 rows at least, so that the part may pass `most`.
Array trial_part_of(const Array& array, std::int64_t most);

}  // namespace tuckfold::cli
