// Estimates the cost of packing a dataset by packing a part of it as the writer would.
#pragma once

#include <cstdint>
#include <span>

#include "inputs/source.h"
#include "tuckfold/container.h"

namespace tuckfold::cli {

struct Estimate {
  std::uint64_t bytes = 0;         // of all samples
  std::uint64_t packed_bytes = 0;  // of the chunks
  double seconds = 0;              // to read and pack; how fast a disk writes is not known
  std::uint64_t memory_bytes = 0;  // at most at a time, the program itself included
};

// Tries about `trial_values` values of each array. `searched` says that a search for codecs comes
// first, on as many values, which also takes memory.
Estimate estimate_packing(const Source& source, std::span<const ArrayInfo> arrays,
                          std::int64_t trial_values, bool searched, int threads);

}  // namespace tuckfold::cli
