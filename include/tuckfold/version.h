// The version of the library.
#pragma once

#include <string>

#include "tuckfold/export.h"

namespace tuckfold {

// The library's version, as in the file VERSION: "0.1.0".
TUCKFOLD_API std::string version();

// The SIMD target that kernels run on here, as TUCKFOLD_CPU names it: "avx3", "avx2", "sse4" …
TUCKFOLD_API std::string cpu_target();

}  // namespace tuckfold
