// verify checks every chunk; repair copies the valid ones, and writes an index of the samples that
// every array still has.
#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/fail.h"
#include "base/in_order.h"
#include "base/io/file.h"
#include "base/io/new_file.h"
#include "container/format.h"
#include "container/frame.h"
#include "container/sharded.h"
#include "container/shards.h"
#include "container/trailing_data.h"

namespace tuckfold {
namespace {

// Samples [first, end) in the numbers of the broken file.
struct Range {
  std::uint64_t first, end;
};

// The samples of an array in a valid chunk.
struct Piece {
  std::uint32_t array;
  Range range;
  std::uint32_t skip;  // rows of the frame before them
  Record record;
};

struct Found {
  Schema schema;
  std::vector<Piece> pieces;
  std::uint64_t samples = 0, next_number = 0;
  bool by_index = true;
};

std::optional<CheckedChunk> whole_chunk(const std::optional<Record>& record, const Schema& schema) {
  if (!record) return {};
  try {
    return check_chunk(*record, schema);
  } catch (const Error& error) {
    if (error.code() != Errc::CorruptData) throw;
    return {};
  }
}

Found by_index(ByteSpan file, const std::string& path, const Progress& progress) {
  Index index = read_index(file, path);
  Found found{.schema = std::move(index.schema),
              .pieces = {},
              .samples = index.samples,
              .next_number = index.next_number};
  for (const Entry& entry : index.entries) {
    const std::optional<Record> record = record_at(file, entry.offset);
    const std::optional<CheckedChunk> chunk = whole_chunk(record, found.schema);
    if (progress) progress(entry.payload_bytes);
    if (!chunk || record->payload.size() != entry.payload_bytes ||
        chunk->head.array != entry.array || packed_crc_of(chunk->frame) != entry.crc ||
        std::uint64_t{entry.skip} + entry.samples > chunk->head.samples) {
      continue;
    }
    found.pieces.push_back({.array = entry.array,
                            .range = {entry.first, entry.first + entry.samples},
                            .skip = entry.skip,
                            .record = *record});
  }
  return found;
}

// The schema of a valid index or schema record.
std::optional<Schema> schema_of(const Record& record, const std::string& path) {
  if (!record.is_whole()) return {};
  if (record.is(RecordKind::Schema)) return parse_schema(text_of(record.payload), path);
  return {};
}

// Searches for records at every offset where one may begin.
Found by_records(ByteSpan file, const std::string& path, const Progress& progress) {
  std::vector<Record> chunks;
  std::optional<Schema> schema;
  for (std::uint64_t at = kFirstRecordAt; at < file.size();) {
    const std::optional<Record> record = record_at(file, at);
    if (record && record->is(RecordKind::Chunk)) chunks.push_back(*record);
    if (record && !schema) schema = schema_of(*record, path);
    at = record ? record->end() : at + kRecordAlign;
  }
  if (!schema) {
    fail(Errc::CorruptData,
         "[repair] '{}' has neither an index nor a schema; write it again, or, if it is of another "
         "format, pack it",
         path);
  }
  Found found{.schema = std::move(*schema), .pieces = {}, .by_index = false};
  for (const Record& record : chunks) {
    const std::optional<CheckedChunk> chunk = whole_chunk(record, found.schema);
    if (progress) progress(record.payload.size());
    if (!chunk || chunk->head.number > std::uint64_t{1} << 62) continue;
    const Range range{chunk->head.number, chunk->head.number + chunk->head.samples};
    found.pieces.push_back(
        {.array = chunk->head.array, .range = range, .skip = 0, .record = record});
    found.samples = std::max(found.samples, range.end);
  }
  found.next_number = found.samples;
  return found;
}

// Sorts the pieces of each array and drops those that another one covers.
std::vector<std::vector<Piece>> by_array(const Found& found) {
  std::vector<std::vector<Piece>> arrays(found.schema.arrays.size());
  for (const Piece& piece : found.pieces) arrays[piece.array].push_back(piece);
  for (std::vector<Piece>& pieces : arrays) {
    std::ranges::sort(pieces, {}, [](const Piece& piece) {
      return std::pair(piece.range.first, piece.record.offset);
    });
    std::uint64_t end = 0;
    std::erase_if(pieces, [&](const Piece& piece) {
      if (piece.range.first < end) return true;
      end = piece.range.end;
      return false;
    });
  }
  return arrays;
}

// The samples that both have.
std::vector<Range> both(const std::vector<Range>& a, const std::vector<Piece>& b) {
  std::vector<Range> result;
  for (std::size_t i = 0, k = 0; i < a.size() && k < b.size();) {
    const Range range{std::max(a[i].first, b[k].range.first), std::min(a[i].end, b[k].range.end)};
    if (range.first < range.end) {
      if (!result.empty() && result.back().end == range.first) {
        result.back().end = range.end;
      } else {
        result.push_back(range);
      }
    }
    if (a[i].end < b[k].range.end) {
      ++i;
    } else {
      ++k;
    }
  }
  return result;
}

// Copies the records of samples that stay, and makes a new index.
Index copy_kept(const std::vector<std::vector<Piece>>& arrays, const std::vector<Range>& kept,
                NewFile& out, const Progress& progress) {
  Index index;
  for (const Range& range : kept) index.samples += range.end - range.first;
  std::map<std::uint64_t, std::uint64_t> copied;  // offsets of records, before and now
  for (const std::vector<Piece>& pieces : arrays) {
    std::uint64_t first = 0;
    std::size_t k = 0;
    for (const Piece& piece : pieces) {
      while (k < kept.size() && kept[k].end <= piece.range.first) ++k;
      for (std::size_t i = k; i < kept.size() && kept[i].first < piece.range.end; ++i) {
        const std::uint64_t from = std::max(kept[i].first, piece.range.first);
        const std::uint64_t to = std::min(kept[i].end, piece.range.end);
        const auto [place, fresh] = copied.try_emplace(piece.record.offset, out.size());
        if (fresh) {
          out.write(make_record(RecordKind::Chunk, piece.record.payload, out.size()));
          if (progress) progress(piece.record.payload.size());
        }
        index.entries.push_back(
            {.array = piece.array,
             .samples = static_cast<std::uint32_t>(to - from),
             .first = first,
             .offset = place->second,
             .payload_bytes = piece.record.payload.size(),
             .skip = piece.skip + static_cast<std::uint32_t>(from - piece.range.first),
             .crc = packed_crc_of(piece.record.payload.subspan(kChunkHeadBytes))});
        first += to - from;
      }
    }
  }
  return index;
}

}  // namespace

VerifyReport verify(const std::string& path, int threads, const Progress& progress) {
  const FileReader reader(path);
  VerifyReport report{
      .samples = reader.samples(),
      .trailing_data = {reader.trailing_data().begin(), reader.trailing_data().end()}};
  report.schema_broken = has_broken_schema(path);
  const int workers = thread_count(threads);
  struct Column {
    std::size_t number;
    std::string name;
  };
  std::vector<Column> columns;
  for (std::size_t i = 0; i < reader.arrays().size(); ++i) {
    const std::string& name = reader.arrays()[i].name;
    columns.push_back({i, name});
    if (const std::optional<std::size_t> mask = reader.mask(i)) {
      columns.push_back({*mask, fmt::format("the mask of {}", name)});
    }
  }
  for (const auto& [array, name] : columns) {
    const std::span<const ChunkInfo> chunks = reader.chunks(array);
    std::vector<std::string> reasons(chunks.size());
    // A few at a time, so that each thread reads its own region of the file.
    constexpr std::size_t kTogether = 64;
    const auto turns = static_cast<std::int64_t>((chunks.size() + kTogether - 1) / kTogether);
    const auto for_each_of = [&](std::int64_t turn, const auto& visit) {
      const std::size_t first = static_cast<std::size_t>(turn) * kTogether;
      for (std::size_t i = first; i < std::min(first + kTogether, chunks.size()); ++i) visit(i);
    };
    in_order(
        turns, {.workers = workers, .threads_of_each = 1, .window = 4 * workers},
        [&](std::int64_t turn, std::size_t, int) {
          for_each_of(turn, [&](std::size_t i) {
            try {
              reader.chunk_bytes(array, i);
            } catch (const std::exception& error) {
              reasons[i] = error.what();
            }
          });
        },
        [&](std::int64_t turn, std::size_t) {
          std::uint64_t bytes = 0;
          for_each_of(turn, [&](std::size_t i) { bytes += chunks[i].frame_bytes; });
          if (progress) progress(bytes);
        });
    report.chunks += static_cast<std::int64_t>(chunks.size());
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      if (reasons[i].empty()) continue;
      report.broken.push_back(
          {.array = name, .range = {chunks[i].first, chunks[i].samples}, .reason = reasons[i]});
    }
  }
  return report;
}

namespace {

// The valid parts of a file: by its index or, if that is lost or bytes follow it, record by record.
Found find_whole(ByteSpan file, const std::string& path, const Progress& progress) {
  const std::optional<Trailer> trailer = find_trailer(file);
  if (trailer && trailer->end == file.size()) {
    try {
      return by_index(file, path, progress);
    } catch (const Error& error) {
      if (error.code() != Errc::CorruptData) throw;
    }
  }
  return by_records(file, path, progress);
}

RepairReport write_found(const Found& found, const std::string& to, const Progress& progress) {
  const std::vector<std::vector<Piece>> arrays = by_array(found);
  std::vector<Range> kept = {{0, found.samples}};
  for (const std::vector<Piece>& pieces : arrays) kept = both(kept, pieces);

  NewFile out("repair", to);
  out.write(file_start());
  const std::string schema = schema_text(found.schema);
  out.write(make_record(RecordKind::Schema, std::as_bytes(std::span(schema)), out.size()));
  Index index = copy_kept(arrays, kept, out, progress);
  index.schema = found.schema;
  index.next_number = found.next_number;
  const Ending ending = make_ending(index, out.size());
  out.write(ending.index);
  out.write(ending.trailer);
  out.finish();

  RepairReport report{.samples = static_cast<std::int64_t>(index.samples),
                      .by_index = found.by_index};
  std::uint64_t at = 0;
  kept.push_back({found.samples, found.samples});
  for (const Range& range : kept) {
    if (range.first > at) {
      report.dropped.push_back({.first = static_cast<std::int64_t>(at),
                                .samples = static_cast<std::int64_t>(range.first - at)});
    }
    at = range.end;
  }
  return report;
}

// Repairs shard by shard; shards without samples are left out. A shard that is missing or cannot be
// read loses its samples.
RepairReport repair_shards(const std::vector<ManifestShard>& shards, const std::string& to,
                           const Progress& progress) {
  ShardedOutput output({.path = to, .shards = static_cast<int>(shards.size()), .replace = true});
  RepairReport all;
  std::int64_t first = 0;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const ManifestShard& shard = shards[i];
    std::optional<MappedFile> file;
    std::optional<Found> found;
    try {
      file.emplace(shard.path, "repair");
      const bool listed = index_crc(file->bytes(), shard.bytes) == shard.index_crc;
      found = find_whole(listed ? file->bytes().first(shard.bytes) : file->bytes(), shard.path,
                         progress);
      if (!listed) all.not_listed.push_back(shard.path);
      if (listed && has_later_state(file->bytes(), shard.bytes)) all.grown.push_back(shard.path);
    } catch (const Error& error) {
      if (error.code() != Errc::CorruptData && error.code() != Errc::Io) throw;
      all.unreadable.push_back(error.what());
    }
    RepairReport report{.dropped = {{.first = 0, .samples = shard.samples}}};
    if (found) report = write_found(*found, output.paths()[i], progress);
    all.samples += report.samples;
    all.by_index = all.by_index && report.by_index;
    for (const SampleRange& range : report.dropped) {
      all.dropped.push_back({.first = first + range.first, .samples = range.samples});
    }
    first += shard.samples;
  }
  output.finish();
  return all;
}

}  // namespace

RepairReport repair(const std::string& from, const std::string& to, const Progress& progress) {
  const MappedFile file(from, "repair");
  if (is_manifest(file.bytes())) {
    return repair_shards(read_manifest(file.bytes(), from), to, progress);
  }
  return write_found(find_whole(file.bytes(), from, progress), to, progress);
}

}  // namespace tuckfold
