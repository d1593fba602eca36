// check_repacked: chunks are packed side by side, as a writer packs them, and compared in order.
#include <algorithm>

#include "base/fail.h"
#include "base/in_order.h"
#include "base/io/file.h"
#include "container/chunk_packer.h"
#include "container/resume.h"

namespace tuckfold {
namespace {

// A chunk of an array in the file, and that of its mask where there is one: records without heads.
struct WrittenChunk {
  ChunkHead head;
  ByteSpan values, mask;
};

// The chunks of the first samples, in the order of their records.
std::vector<WrittenChunk> chunks_of(ByteSpan file, const Schema& schema, std::uint64_t first_record,
                                    std::int64_t samples) {
  const std::size_t shown = count_shown(schema.arrays);
  std::vector<WrittenChunk> chunks;
  std::optional<Record> record = record_at(file, first_record);
  for (; record && record->is(RecordKind::Chunk); record = record_at(file, record->end())) {
    const CheckedChunk found = check_chunk(*record, schema);
    if (static_cast<std::int64_t>(found.head.number) >= samples) continue;
    if (found.head.array < shown) {
      chunks.push_back({.head = found.head, .values = record->payload, .mask = {}});
    } else if (!chunks.empty()) {  // it follows its array's
      chunks.back().mask = record->payload;
    }
  }
  return chunks;
}

// What follows the head of a record.
ByteSpan payload_of(const PackedRecord& record) {
  return record.bytes.empty() ? ByteSpan() : ByteSpan(record.bytes).subspan(kRecordHeadBytes);
}

}  // namespace

void check_repacked(const std::string& path, std::int64_t samples, const FileWriter::Fetch& fetch,
                    const RepackOptions& options) {
  const MappedFile file(path, "resume");
  check_start(file.bytes(), path);
  const std::optional<Record> start = record_at(file.bytes(), kFirstRecordAt);
  if (!start || !start->is(RecordKind::Schema) || !start->is_whole()) {
    fail(Errc::CorruptData, "[resume] the schema of '{}' is damaged; start over with --force",
         path);
  }
  const Schema schema = parse_schema(text_of(start->payload), path);
  const std::vector<WrittenChunk> chunks = chunks_of(file.bytes(), schema, start->end(), samples);
  const ChunkPacker packer(schema.arrays, options.checks, options.seed);
  const auto bytes_of = [&](const WrittenChunk& chunk) {
    return schema.arrays[chunk.head.array].sample_bytes() * chunk.head.samples;
  };
  std::size_t most = 0;
  for (const WrittenChunk& chunk : chunks) most = std::max(most, bytes_of(chunk));
  const Lanes lanes = lanes_for(most, options.threads);
  std::vector<PackBuffers> rooms(static_cast<std::size_t>(lanes.workers));
  std::vector<PackedChunk> packed(static_cast<std::size_t>(lanes.window));
  in_order(
      std::ssize(chunks), lanes,
      [&](std::int64_t i, std::size_t slot, int worker) {
        const WrittenChunk& chunk = chunks[static_cast<std::size_t>(i)];
        const ArrayInfo& array = schema.arrays[chunk.head.array];
        PackBuffers& room = rooms[static_cast<std::size_t>(worker)];
        const std::byte* values =
            fetch(chunk.head.array, static_cast<std::int64_t>(chunk.head.number),
                  chunk.head.samples, room.samples.of(bytes_of(chunk)).data());
        const ConstTensorView view(values, array.dtype,
                                   with_samples(chunk.head.samples, array.shape));
        packer.pack({.array = chunk.head.array, .number = chunk.head.number, .view = view}, room,
                    packed[slot], lanes.threads_of_each);
      },
      [&](std::int64_t i, std::size_t slot) {
        const WrittenChunk& chunk = chunks[static_cast<std::size_t>(i)];
        if (!std::ranges::equal(payload_of(packed[slot].values), chunk.values) ||
            !std::ranges::equal(payload_of(packed[slot].mask), chunk.mask)) {
          invalid(
              "[resume] an input has changed: '{}' has samples {} to {} of '{}' as they were "
              "before; start over with --force",
              path, chunk.head.number, chunk.head.number + chunk.head.samples - 1,
              schema.arrays[chunk.head.array].name);
        }
        if (options.progress) options.progress(bytes_of(chunk));
      });
}

}  // namespace tuckfold
