// What a writer begins with: checked arrays, or the part of an unfinished file that all of them
// have.
#pragma once

#include <string>
#include <vector>

#include "container/format.h"

namespace tuckfold {

// Throws InvalidArgument where arrays cannot be written; settles their samples_per_chunk.
void check_arrays(std::vector<ArrayInfo>& arrays);
// Throws InvalidArgument where this is no JSON object.
void check_metadata(const std::string& json);

bool file_exists(const std::string& path);

struct Kept {
  std::vector<Entry> entries;
  std::uint64_t samples = 0;
  std::uint64_t end = 0;  // of their records; 0: start over
};
// Throws InvalidArgument where the file was begun with another schema.
Kept find_kept(const std::string& path, const Schema& schema);

}  // namespace tuckfold
