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

struct Kept {
  std::vector<Entry> entries;
  std::uint64_t samples = 0;
  std::uint64_t end = 0;  // of their records; 0: start over
};
// Throws InvalidArgument, naming what differs, where the file was begun with another schema, from
// something else, or as part of a dataset of shards.
Kept find_kept(const std::string& path, const Schema& schema, const Begun& begun);

// What differs, as "the codec of 'image': raw then, zstd now": between schemas that do differ, and
// between what writers began from, where it is empty if nothing does.
std::string difference(const Schema& then, const Schema& now);
std::string difference(const Begun& then, const Begun& now);

}  // namespace tuckfold
