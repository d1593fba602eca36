// The requirements of pack --append on the file that it appends to.
#pragma once

#include <string>
#include <vector>

#include "tuckfold/container.h"

namespace tuckfold::cli {

// The arrays of the file. Throws if there is none, or if appending would drop samples that a broken
// trailer lists.
std::vector<ArrayInfo> arrays_of(const std::string& path, bool strict);

// Throws InvalidArgument where arrays differ from those of the file in name, dtype, shape,
// codec or samples of a chunk.
void check_append(const std::string& path, const std::vector<ArrayInfo>& has,
                  const std::vector<ArrayInfo>& given);

}  // namespace tuckfold::cli
