// Any bytes as a safetensors file.
#include "source.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return tuckfold::fuzz_source(tuckfold::kSafetensorsSource, data, size, "fuzz.safetensors");
}
