// Damage that readers pass by: what trails the last whole state of a file, an append that was
// stopped or one whose trailer has been damaged since, and the schema at its start.
#pragma once

#include <string>
#include <vector>

#include "base/io/little_endian.h"

namespace tuckfold {

struct TrailingData {
  std::string path;
  std::uint64_t bytes = 0;
  bool trailer_broken = false;
};

// Of a .tuck file or each shard of a manifest: those that have something there. The path must open
// as FileReader opens it.
std::vector<TrailingData> find_trailing_data(const std::string& path);

// Whether a trailer follows `end`, the end of the last whole state, and its checksum is wrong.
// A writer that is stopped leaves none.
bool has_broken_trailer(ByteSpan file, std::uint64_t end);

// Whether the schema at the start of the file, or of a shard, is broken. Readers take the index's;
// this one serves a repair that has lost the index.
bool has_broken_schema(const std::string& path);

}  // namespace tuckfold
