// Manifests: several files that are read as one.
#pragma once

#include <string>
#include <vector>

#include "container/format.h"

namespace tuckfold {

struct ManifestShard {
  std::string path;
  std::int64_t samples;
};

// The shards that a manifest names, in its folder. Throws CorruptData or Unsupported.
std::vector<ManifestShard> read_manifest(ByteSpan text, const std::string& path);

// Throws InvalidArgument where two files cannot be read as one.
void check_same_arrays(const Schema& a, const Schema& b, const std::string& path);

}  // namespace tuckfold
