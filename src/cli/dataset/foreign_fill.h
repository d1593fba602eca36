// Fill values that an input names for an array whose dtype has no such value.
#pragma once

#include "cli/dataset/outcome.h"
#include "inputs/source.h"

namespace tuckfold::cli {

// Warns of _FillValue and missing_value, as a source has them, that are no values of an array which is
// to be packed lossily: what stands for them is then packed as any other value.
void warn_of_foreign_fill(const char* verb, const Outcome& one, const Source& source);

}  // namespace tuckfold::cli
