// Figures of samples that are in a file already, against what they were packed from.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "inputs/source.h"
#include "tuckfold/container.h"

namespace tuckfold::cli {

// Adds the figures of the file's first `samples` samples, which come from the source's sample
// `first` on, for arrays whose check asks to measure.
void measure_kept(const std::string& path, std::int64_t samples, const Source& source,
                  std::int64_t first, std::span<const ArrayCheck> checks, int threads,
                  std::span<WrittenArray> written);

}  // namespace tuckfold::cli
