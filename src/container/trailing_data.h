// Damage that readers ignore: bytes after the last valid state of a file, from an append that was
// stopped or whose trailer was damaged later, and a broken schema at the start.
#pragma once

#include <string>
#include <vector>

#include "base/io/little_endian.h"
#include "tuckfold/container.h"

namespace tuckfold {

// "'a.tuck' may have missing samples: …", for a warning or an error.
std::string to_string(const TrailingData& trailing);

// Whether a trailer follows `end`, the end of the last whole state, and its checksum is wrong.
// A writer that is stopped leaves none.
bool has_broken_trailer(ByteSpan file, std::uint64_t end);

// Whether a whole state ends after `end`, the end of the one that a manifest lists.
bool has_later_state(ByteSpan file, std::uint64_t end);

// Whether the schema at the start of the file, or of a shard, is broken. Readers use the index's
// schema; this one is for a repair without an index.
bool has_broken_schema(const std::string& path);

}  // namespace tuckfold
