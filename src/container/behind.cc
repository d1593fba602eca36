#include "container/behind.h"

#include <algorithm>
#include <optional>

#include "container/file.h"
#include "container/format.h"
#include "container/shards.h"

namespace tuckfold {

bool has_broken_trailer(ByteSpan file, std::uint64_t end) {
  for (std::uint64_t at = end; at + kTrailerBytes <= file.size();) {
    if (is_damaged_trailer(file.subspan(at, kTrailerBytes))) return true;
    const std::optional<Record> record = record_at(file, at);
    at = record ? record->end() : at + kRecordAlign;
    if (!record || !record->is(RecordKind::Index) || !record->is_whole()) continue;
    // An index is followed by its trailer, or by what a file has that grew and was not written.
    if (at + kTrailerBytes > file.size()) return false;
    const ByteSpan slot = file.subspan(at, kTrailerBytes);
    return std::ranges::any_of(slot, [](std::byte byte) { return byte != std::byte{0}; });
  }
  return false;
}

std::vector<Behind> look_behind(const std::string& path) {
  std::vector<std::string> paths = {path};
  const MappedFile file(path);
  if (begins_with(file.bytes(), "{")) {
    paths.clear();
    for (const ManifestShard& shard : read_manifest(file.bytes(), path)) {
      paths.push_back(shard.path);
    }
  }
  std::vector<Behind> found;
  for (const std::string& part : paths) {
    const MappedFile shard(part);
    const std::optional<Trailer> trailer = find_trailer(shard.bytes());
    if (!trailer || trailer->end == shard.bytes().size()) continue;
    found.push_back({.path = part,
                     .bytes = shard.bytes().size() - trailer->end,
                     .trailer_broken = has_broken_trailer(shard.bytes(), trailer->end)});
  }
  return found;
}

}  // namespace tuckfold
