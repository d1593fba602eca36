// Values that are far from all others: a few decide the range, and so what a PSNR means and what
// codecs that follow the range can do.
#pragma once

#include <string>

#include "cli/dataset/array.h"

namespace tuckfold::cli {

// What to say of an array before it is packed with a loss; empty where no few values, or only one,
// lie far from at least half of the others.
std::string note_on_outliers(const Array& part);

}  // namespace tuckfold::cli
