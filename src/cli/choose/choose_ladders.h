// The ladders of src/choose, for arrays of a command.
#pragma once

#include "choose/ladders.h"
#include "cli/dataset/array.h"

namespace tuckfold::cli {

using Ladder = SpecLadder;
using tuckfold::facts_of;
inline Facts facts_of(const Array& array) { return facts_of(array.view()); }

}  // namespace tuckfold::cli
