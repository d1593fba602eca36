// Any bytes as an image file.
#include "source.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return tuckfold::fuzz_source(tuckfold::kImagesSource, data, size, "fuzz.png");
}
