// Any bytes as a pickled batch of CIFAR's.
#include "source.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return tuckfold::fuzz_source(tuckfold::kCifarPickleSource, data, size, "fuzz");
}
