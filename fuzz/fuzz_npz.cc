// Any bytes as a .npz archive.
#include "source.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return tuckfold::fuzz_source(tuckfold::kNpzSource, data, size, "fuzz.npz");
}
