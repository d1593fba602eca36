// Selects what view shows: an array, some of its samples, and their labels.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/dataset/samples.h"

namespace tuckfold::cli {

// Samples as they are asked for.
struct WhichSamples {
  std::string list, range;            // "3,17,100"; "100:200"
  std::optional<std::int64_t> count;  // of the range, spread evenly

  // Their numbers; `most` of them where no count is given. Throws InvalidArgument.
  std::vector<std::int64_t> of(std::int64_t samples, std::int64_t most) const;
};

// The array of that name, or the first that has pictures. Throws InvalidArgument.
std::size_t array_to_show(const std::string& name, const Samples& samples);

// " label 3" for each sample, or nothing: of the array `label` if there is one, else of the first
// of whole numbers.
std::vector<std::string> labels_of(const Samples& samples,
                                   const std::vector<std::int64_t>& numbers);

}  // namespace tuckfold::cli
