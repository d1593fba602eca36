// Manifests: several files that are read as one.
#pragma once

#include <string>
#include <vector>

#include "container/format.h"

namespace tuckfold {

// A file as its manifest lists it: the state that ends at `bytes`, with an index of that checksum.
struct ManifestShard {
  std::string path;
  std::int64_t samples = 0;
  std::uint64_t bytes = 0;
  std::uint32_t index_crc = 0;
};

// Whether a file with these first bytes is a manifest, or means to be one.
bool is_manifest(ByteSpan file);
// The shards that a manifest names, in its folder. Throws CorruptData or Unsupported.
std::vector<ManifestShard> read_manifest(ByteSpan text, const std::string& path);
// The shards of a manifest at the path; none if there is another file, or nothing.
std::vector<ManifestShard> shards_at(const std::string& path);

// Writes a manifest of known shards; the other function opens the files.
void put_manifest(const std::string& path, const std::vector<ManifestShard>& shards);
// A shard as it is now. Throws where it cannot be opened.
ManifestShard list_shard(const std::string& path, Schema* schema = nullptr);

// The index of a shard, checked against the manifest. Throws CorruptData.
Index read_shard_index(ByteSpan file, const ManifestShard& shard, const std::string& manifest);

// Throws InvalidArgument where two files cannot be read as one.
void check_same_arrays(const Schema& a, const Schema& b, const std::string& path);

std::string folder_of(const std::string& path);  // "" or with a slash at its end

}  // namespace tuckfold
