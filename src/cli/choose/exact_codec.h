// The choice of src/choose, for arrays of a command.
#pragma once

#include "choose/exact_codec.h"
#include "cli/dataset/array.h"

namespace tuckfold::cli {

inline CodecSpec choose_exact(const Array& part, int threads) {
  return tuckfold::choose_exact(part.view(), threads);
}

}  // namespace tuckfold::cli
