// Start, records, chunks and their checks; the end of a file is in index.cc.
#include "container/format.h"

#include <algorithm>

#include "base/crc32c.h"
#include "base/fail.h"
#include "base/json.h"
#include "container/frame.h"

namespace tuckfold {
namespace {

constexpr std::string_view kFileMagic = "TuckFile", kRecordMagic = "TkRc", kBegunMagic = "TkOr";
constexpr std::uint32_t kVersion = 1;

constexpr std::size_t kKindAt = 4, kPayloadBytesAt = 8, kHeadCrcAt = 16, kPayloadCrcAt = 20,
                      kOffsetAt = 24;

// The checksum of a record's head, with zeros in place of the checksum itself.
std::uint32_t head_crc(const std::byte* head) {
  std::byte copy[kRecordHeadBytes];
  std::copy_n(head, kRecordHeadBytes, copy);
  store(copy + kHeadCrcAt, std::uint32_t{0});
  return crc32c(copy);
}

// A chunk's frame has its own checksums.
std::uint32_t payload_crc(std::uint32_t kind, ByteSpan payload) {
  const bool chunk = kind == static_cast<std::uint32_t>(RecordKind::Chunk);
  return crc32c(chunk ? payload.first(std::min(payload.size(), kChunkHeadBytes)) : payload);
}

}  // namespace

std::vector<std::byte> file_start() {
  std::vector<std::byte> bytes(kFirstRecordAt);
  store_text(bytes.data(), kFileMagic);
  store(bytes.data() + 8, kVersion);
  return bytes;
}

void put_begun(std::span<std::byte> start, const Begun& begun) {
  std::byte* at = start.data() + kBegunAt;
  const Origin& origin = begun.origin;
  for (const std::uint64_t field :
       {origin.samples, origin.first, origin.values, origin.files, begun.seed}) {
    store(at, field);
    at += sizeof field;
  }
  store_text(at, kBegunMagic);
  store(at + 4, crc32c(start.subspan(kBegunAt, kBegunBytes - 4)));
}

std::optional<Begun> get_begun(ByteSpan file) {
  if (file.size() < kFirstRecordAt) return {};
  const std::byte* at = file.data() + kBegunAt;
  if (!begins_with(file.subspan(kBegunAt + 40), kBegunMagic) ||
      load<std::uint32_t>(at + 44) != crc32c(file.subspan(kBegunAt, kBegunBytes - 4))) {
    return {};
  }
  const auto field = [&](int i) { return load<std::uint64_t>(at + 8 * i); };
  return Begun{
      .origin = {.samples = field(0), .first = field(1), .values = field(2), .files = field(3)},
      .seed = field(4)};
}

void check_start(ByteSpan file, const std::string& path) {
  if (file.empty()) fail(Errc::CorruptData, "[open] '{}' is empty; write it again", path);
  if (!begins_with(file, kFileMagic)) {
    fail(Errc::CorruptData,
         "[open] '{}': a .tuck file begins with '{}', and this one does not; pack files of other "
         "formats first",
         path, kFileMagic);
  }
  if (file.size() < kFirstRecordAt) {
    fail(Errc::CorruptData, "[open] '{}' ends after {} bytes; write it again", path, file.size());
  }
  const auto version = load<std::uint32_t>(file.data() + 8);
  const auto flags = load<std::uint32_t>(file.data() + 12);
  if (version != kVersion || flags != 0) {
    fail(Errc::Unsupported,
         "[open] '{}': version {} without flags can be read, got {} with flags {:#x}; a newer "
         "tuckfold may read it",
         path, kVersion, version, flags);
  }
}

bool Record::is_whole() const { return tuckfold::payload_crc(kind, payload) == payload_crc; }

std::optional<Record> record_at(ByteSpan file, std::uint64_t offset) {
  if (offset % kRecordAlign != 0 || offset > file.size() ||
      file.size() - offset < kRecordHeadBytes) {
    return {};
  }
  const std::byte* head = file.data() + offset;
  if (!begins_with(file.subspan(offset), kRecordMagic)) return {};
  if (head_crc(head) != load<std::uint32_t>(head + kHeadCrcAt)) return {};
  // A .tuck file may be a sample of another file: then its records are not at the offsets that they
  // store.
  if (load<std::uint64_t>(head + kOffsetAt) != offset) return {};
  const ByteSpan rest = file.subspan(offset + kRecordHeadBytes);
  const auto bytes = load<std::uint64_t>(head + kPayloadBytesAt);
  if (bytes > rest.size()) return {};
  return Record{.kind = load<std::uint32_t>(head + kKindAt),
                .offset = offset,
                .payload = rest.first(bytes),
                .payload_crc = load<std::uint32_t>(head + kPayloadCrcAt)};
}

void put_record_head(std::span<std::byte> record, RecordKind kind, std::uint64_t offset) {
  std::byte* head = record.data();
  const ByteSpan payload = record.subspan(kRecordHeadBytes);
  std::fill_n(head, kRecordHeadBytes, std::byte{0});
  store_text(head, kRecordMagic);
  store(head + kKindAt, static_cast<std::uint32_t>(kind));
  store(head + kPayloadBytesAt, std::uint64_t{payload.size()});
  store(head + kPayloadCrcAt, payload_crc(static_cast<std::uint32_t>(kind), payload));
  store(head + kOffsetAt, offset);
  store(head + kHeadCrcAt, head_crc(head));
}

std::vector<std::byte> make_record(RecordKind kind, ByteSpan payload, std::uint64_t offset) {
  const std::size_t bytes = kRecordHeadBytes + payload.size();
  std::vector<std::byte> record(round_up(bytes, kRecordAlign));
  std::copy(payload.begin(), payload.end(), record.begin() + kRecordHeadBytes);
  put_record_head(std::span(record).first(bytes), kind, offset);
  return record;
}

void put_chunk_head(std::byte* at, const ChunkHead& head) {
  store(at, head.array);
  store(at + 4, head.samples);
  store(at + 8, head.number);
}

ChunkHead get_chunk_head(const std::byte* at) {
  return {.array = load<std::uint32_t>(at),
          .samples = load<std::uint32_t>(at + 4),
          .number = load<std::uint64_t>(at + 8)};
}

bool passes_ratio(DType dtype, const Shape& shape, std::size_t frame_bytes) {
  const auto elems = static_cast<std::uint64_t>(shape.elems());  // at most 2^62
  return elems / (kMaxRatio / size_bytes(dtype)) > frame_bytes;
}

CheckedChunk check_chunk(const Record& record, const Schema& schema) {
  const auto corrupt = [](std::string_view reason) { fail(Errc::CorruptData, "{}", reason); };
  if (!record.is(RecordKind::Chunk)) corrupt("there is no chunk at its offset");
  if (record.payload.size() < kChunkHeadBytes || !record.is_whole()) {
    corrupt("the checksum of its head is wrong");
  }
  CheckedChunk chunk{.head = get_chunk_head(record.payload.data()),
                     .frame = record.payload.subspan(kChunkHeadBytes),
                     .packed = {},
                     .raw = false};
  if (chunk.head.array >= schema.arrays.size()) corrupt("it is of an array that is not there");
  const ArrayInfo& array = schema.arrays[chunk.head.array];
  const RawFrame frame = read_raw_frame(chunk.frame);
  if (frame.dtype != array.dtype || frame.shape != with_samples(chunk.head.samples, array.shape) ||
      chunk.head.samples == 0) {
    corrupt(fmt::format("its frame holds {} {} where {} samples of {} {} must be",
                        to_string(frame.dtype), to_string(frame.shape), chunk.head.samples,
                        to_string(array.dtype), to_string(array.shape)));
  }
  if (frame.header_bytes + frame.packed.size() != chunk.frame.size()) {
    corrupt(fmt::format("its frame has {} bytes, the record {}",
                        frame.header_bytes + frame.packed.size(), chunk.frame.size()));
  }
  chunk.packed = frame.packed;
  // Most texts are those that our writers print; others may have the same meaning.
  const CodecSpec spec = frame.spec == array.codec.print() ? array.codec : spec_in_file(frame.spec);
  chunk.raw = spec != array.codec;
  if (chunk.raw && spec != CodecSpec::parse("raw")) {
    corrupt(fmt::format("it is packed by {}, its array by {}", spec.print(), array.codec.print()));
  }
  if (passes_ratio(array.dtype, frame.shape, chunk.frame.size())) {
    corrupt(fmt::format("{} bytes cannot unpack to {} {}", chunk.frame.size(),
                        to_string(frame.dtype), to_string(frame.shape)));
  }
  try {
    const Layout fit = layout(spec, frame.dtype, frame.shape);
    if (fit.fixed ? fit.max_bytes != frame.packed.size() : fit.max_bytes < frame.packed.size()) {
      corrupt(fmt::format("it packs to {} bytes, got {}", fit.max_bytes, frame.packed.size()));
    }
  } catch (const Error& error) {
    if (error.code() != Errc::InvalidArgument) throw;
    corrupt(error.what());
  }
  if (!frame.packed_is_whole()) corrupt("the checksum of its packed bytes is wrong");
  return chunk;
}

}  // namespace tuckfold
