#include "container/trailing_data.h"

#include <algorithm>
#include <optional>

#include "base/fail.h"
#include "base/io/file.h"
#include "container/format.h"
#include "container/shards.h"

namespace tuckfold {
namespace {

// The file, or the shards of a manifest.
std::vector<std::string> files_of(const std::string& path) {
  const MappedFile file(path);
  if (!begins_with(file.bytes(), "{")) return {path};
  std::vector<std::string> paths;
  for (const ManifestShard& shard : read_manifest(file.bytes(), path)) paths.push_back(shard.path);
  return paths;
}

}  // namespace

bool has_broken_trailer(ByteSpan file, std::uint64_t end) {
  for (std::uint64_t at = end; at + kTrailerBytes <= file.size();) {
    if (is_damaged_trailer(file.subspan(at, kTrailerBytes))) return true;
    const std::optional<Record> record = record_at(file, at);
    at = record ? record->end() : at + kRecordAlign;
    if (!record || !record->is(RecordKind::Index) || !record->is_whole()) continue;
    // An index is followed by its trailer, or by unwritten space of a file that grew.
    if (at + kTrailerBytes > file.size()) return false;
    const ByteSpan slot = file.subspan(at, kTrailerBytes);
    return std::ranges::any_of(slot, [](std::byte byte) { return byte != std::byte{0}; });
  }
  return false;
}

bool has_later_state(ByteSpan file, std::uint64_t end) {
  const std::optional<Trailer> last = find_trailer(file);
  return last && last->end > end;
}

std::string to_string(const TrailingData& trailing) {
  if (trailing.not_listed) {
    return fmt::format(
        "samples of '{}' are not read: it was appended to by itself, and its manifest does not "
        "list "
        "its last {} bytes; read them from the file, and append to the manifest instead",
        trailing.path, trailing.bytes);
  }
  return fmt::format(
      "samples of '{}' may be missing: {}, so that its last {} bytes are not read; `tuckfold "
      "repair` "
      "looks for samples there",
      trailing.path,
      trailing.trailer_broken ? "its last trailer is broken"
                              : "an append goes on or was stopped, or the file was cut short",
      trailing.bytes);
}

bool has_broken_schema(const std::string& path) {
  const std::vector<std::string> files = files_of(path);
  return std::ranges::any_of(files, [](const std::string& part) {
    const MappedFile shard(part);
    const std::optional<Record> record = record_at(shard.bytes(), kFirstRecordAt);
    return !record || !record->is(RecordKind::Schema) || !record->is_whole();
  });
}

}  // namespace tuckfold
