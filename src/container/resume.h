// The initial state of a writer: checked arrays, or the part of an unfinished file that has samples
// of all of them.
#pragma once

#include <string>
#include <vector>

#include "container/format.h"

namespace tuckfold {

// Throws InvalidArgument where arrays cannot be written; settles their samples_per_chunk.
void check_arrays(std::vector<ArrayInfo>& arrays);
// Adds the masks that a file needs: of arrays with fill values and a lossy codec.
void add_masks(std::vector<ArrayInfo>& arrays);
// Throws InvalidArgument where this is no JSON object.
void check_metadata(const std::string& json);

struct Kept {
  std::vector<Entry> entries;
  std::uint64_t samples = 0;
  std::uint64_t end = 0;  // of their records; 0: start over
};
// Throws InvalidArgument, and names the difference, if the file was begun with another schema, from
// another source, or as part of a dataset of shards.
Kept find_kept(const std::string& path, const Schema& schema, const Begun& begun);

// The difference, such as "the codec of 'image': raw then, zstd now": between schemas that do
// differ, or between the origins of two writers, empty if they are equal.
std::string difference(const Schema& then, const Schema& now);
std::string difference(const Begun& then, const Begun& now);

}  // namespace tuckfold
