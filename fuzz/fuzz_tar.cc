// Any bytes as a tar archive.
#include "source.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return tuckfold::fuzz_source(tuckfold::kTarSource, data, size, "fuzz.tar");
}
