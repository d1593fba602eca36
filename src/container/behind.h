// What lies behind the last whole state of a file: an append that was stopped, or one that was
// finished and whose trailer has been damaged since.
#pragma once

#include <string>
#include <vector>

#include "container/little_endian.h"

namespace tuckfold {

struct Behind {
  std::string path;
  std::uint64_t bytes = 0;
  bool trailer_broken = false;
};

// Of a .tuck file or each shard of a manifest: those that have something there. The path must open
// as FileReader opens it.
std::vector<Behind> look_behind(const std::string& path);

// Whether a trailer lies behind `end`, the end of the last whole state, and its checksum is wrong.
// A writer that is stopped leaves none.
bool has_broken_trailer(ByteSpan file, std::uint64_t end);

}  // namespace tuckfold
