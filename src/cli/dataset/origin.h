// Identifies what a dataset is packed from, by numbers, so that a run cannot be resumed with other
// inputs.
#pragma once

#include <string>
#include <vector>

#include "inputs/source.h"
#include "tuckfold/container.h"

namespace tuckfold::cli {

// Reads samples of every array, spread evenly: all of them if they have less than 4 MiB, else up to
// 256. Sizes, modification times and status times of the inputs count, for folders those of the
// files in them; for standard input, "-", all bytes. Paths do not count. No content of a file can
// change without its status time.
Origin origin_of(const Source& source, const std::vector<std::string>& inputs);

// Inputs that changed after that file did, for messages.
std::vector<std::string> changed_since(const std::string& file,
                                       const std::vector<std::string>& inputs);

}  // namespace tuckfold::cli
