// Any bytes as an idx file, gzipped or not.
#include "source.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return tuckfold::fuzz_source(tuckfold::kIdxSource, data, size, "fuzz-images.idx");
}
