// raw: unchanged bytes. bits uses it if its codes are as wide as the values.
#pragma once

#include "codec/registry.h"

namespace tuckfold::raw {

TUCKFOLD_WEAK extern const CudaCodec kCuda;

}  // namespace tuckfold::raw
