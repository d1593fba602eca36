// Reads an unfinished file record by record up to the first that is not whole.
#include "container/resume.h"

#include <sys/stat.h>

#include <algorithm>

#include "base/fail.h"
#include "base/io/file.h"

namespace tuckfold {
namespace {

std::optional<CheckedChunk> whole_chunk(const std::optional<Record>& record, const Schema& schema) {
  if (!record) return {};
  try {
    return check_chunk(*record, schema);
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

bool file_exists(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0;
}

Kept find_kept(const std::string& path, const Schema& schema) {
  const MappedFile file(path, "resume");
  std::optional<Record> record = record_at(file.bytes(), kFirstRecordAt);
  if (!record || !record->is(RecordKind::Schema) || !record->is_whole()) return {};
  check_start(file.bytes(), path);
  if (text_of(record->payload) != schema_text(schema)) {
    invalid(
        "[resume] '{}' was begun with other arrays, chunks or metadata; give the same, or "
        "remove it",
        path);
  }
  // Records lie in the order of their last samples: where all arrays have come equally far, what
  // lies before is what a writer has at that sample.
  Kept kept{.entries = {}, .samples = 0, .end = record->end()};
  std::vector<Entry> entries;
  std::vector<std::uint64_t> samples(schema.arrays.size());
  record = record_at(file.bytes(), record->end());
  while (const std::optional<CheckedChunk> chunk = whole_chunk(record, schema)) {
    const ChunkHead& head = chunk->head;
    if (head.number != samples[head.array] || record->end() > file.bytes().size()) break;
    entries.push_back({.array = head.array,
                       .samples = head.samples,
                       .first = head.number,
                       .offset = record->offset,
                       .payload_bytes = record->payload.size(),
                       .skip = 0});
    samples[head.array] += head.samples;
    if (std::all_of(samples.begin(), samples.end(),
                    [&](std::uint64_t count) { return count == samples[0]; })) {
      kept = {.entries = entries, .samples = samples[0], .end = record->end()};
    }
    record = record_at(file.bytes(), record->end());
  }
  return kept;
}

}  // namespace tuckfold
