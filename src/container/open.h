// What a writer goes on with: the part of an unfinished file that every array has.
#pragma once

#include <string>
#include <vector>

#include "container/format.h"

namespace tuckfold {

bool file_exists(const std::string& path);

struct Kept {
  std::vector<Entry> entries;
  std::uint64_t samples = 0;
  std::uint64_t end = 0;  // of their records; 0: start over
};
// Throws InvalidArgument where the file was begun with another schema.
Kept find_kept(const std::string& path, const Schema& schema);

}  // namespace tuckfold
