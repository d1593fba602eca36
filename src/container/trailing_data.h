// Damage that readers pass by: what trails the last whole state of a file, an append that was
// stopped or one whose trailer has been damaged since, and the schema at its start.
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

// Whether the schema at the start of the file, or of a shard, is broken. Readers take the index's;
// this one serves a repair that has lost the index.
bool has_broken_schema(const std::string& path);

}  // namespace tuckfold
