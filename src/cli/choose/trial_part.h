// A part of an array that represents the whole, the same on every run.
#pragma once

#include <cstdint>

#include "cli/dataset/array.h"

namespace tuckfold::cli {

// About `most` values: planes (the axes that block codecs take together) spread over the leading
// axes, or bands of rows in multiples of 8 if one plane is larger. The whole array if it is no
// larger. A band has at least 8 rows, so the part may exceed `most`.
Array trial_part_of(const Array& array, std::int64_t most);

}  // namespace tuckfold::cli
