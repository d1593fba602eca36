// What a dataset is packed from, in numbers: so that nobody goes on with what was packed from
// something else.
#pragma once

#include <string>
#include <vector>

#include "inputs/source.h"
#include "tuckfold/container.h"

namespace tuckfold::cli {

// Samples of every array, spread evenly, are read for it: all where they have less than 4 MiB, else
// up to 256. Of the inputs as they are given sizes and times of change count, of folders those of
// the files in them; of standard input, "-", all bytes. Paths do not.
Origin origin_of(const Source& source, const std::vector<std::string>& inputs);

// Inputs that were changed after that file was, for messages.
std::vector<std::string> changed_since(const std::string& file,
                                       const std::vector<std::string>& inputs);

}  // namespace tuckfold::cli
