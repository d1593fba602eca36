// The initial state of a writer: checked arrays, or the part of an unfinished file that has samples
// of all of them.
#pragma once

#include <optional>
#include <span>
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

// Packs the first samples of a file, complete or not, once more, and compares bytes: what certainty
// about changed inputs takes. Throws InvalidArgument, and names the samples, where they differ. The
// checks and the seed are those of the writer.
struct RepackOptions {
  std::span<const ArrayCheck> checks{};
  std::uint64_t seed = 0;
  int threads = 1;
  Progress progress{};  // of samples, unpacked
};
void check_repacked(const std::string& path, std::int64_t samples, const FileWriter::Fetch& fetch,
                    const RepackOptions& options);

// What a writer with these options begins with. The bounds of arrays are part of it: a file must not
// have chunks that were checked with another one.
Begun begun_with(const WriteOptions& options);

// What PATH.partial was begun with: that of a file, or of a dataset of shards. Nothing where there
// is none.
std::optional<Begun> begun_at(const std::string& path);

// The difference, such as "the codec of 'image': raw then, zstd now": between schemas that do
// differ, or between the origins of two writers, empty if they are equal.
std::string difference(const Schema& then, const Schema& now);
std::string difference(const Begun& then, const Begun& now);

}  // namespace tuckfold
