#include "base/cuda/runtime.h"
#include "base/fail.h"

namespace tuckfold::cuda {

void raise(Errc code, const char* what, const char* text) {
  fail(code, "[cuda] {}: {}", what, text);
}

}  // namespace tuckfold::cuda
