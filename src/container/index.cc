// The end of a file: the index of its chunks, and a trailer with the index's offset.
#include <algorithm>
#include <limits>

#include "base/crc32c.h"
#include "base/fail.h"
#include "container/format.h"
#include "container/frame.h"

namespace tuckfold {
namespace {

constexpr std::size_t kIndexHeadBytes = 32, kEntryBytes = 40;

constexpr std::string_view kTrailerMagic = "TuckEnd.";
constexpr std::uint32_t kTrailerVersion = 1;
constexpr std::size_t kTrailerCrcAt = 52, kTrailerVersionAt = 48, kTrailerMagicAt = 56;

std::uint32_t trailer_crc(const std::byte* trailer) {
  std::byte copy[kTrailerBytes];
  std::copy_n(trailer, kTrailerBytes, copy);
  store(copy + kTrailerCrcAt, std::uint32_t{0});
  return crc32c(copy);
}

std::optional<Trailer> trailer_before(ByteSpan file, std::uint64_t end) {
  const std::byte* at = file.data() + end - kTrailerBytes;
  if (!begins_with({at + kTrailerMagicAt, kTrailerMagic.size()}, kTrailerMagic)) return {};
  if (trailer_crc(at) != load<std::uint32_t>(at + kTrailerCrcAt)) return {};
  const Trailer trailer{.index_offset = load<std::uint64_t>(at),
                        .index_bytes = load<std::uint64_t>(at + 8),
                        .end = load<std::uint64_t>(at + 16)};
  // A trailer of a file that is a sample of this one names another offset.
  if (trailer.end != end) return {};
  return trailer;
}

// The index of a large file has megabytes, so it is made in place.
std::vector<std::byte> index_record(const Index& index, std::uint64_t offset) {
  const std::string schema = schema_text(index.schema);
  const std::size_t entries_bytes = index.entries.size() * kEntryBytes;
  const std::size_t bytes = kRecordHeadBytes + kIndexHeadBytes + entries_bytes + schema.size();
  std::vector<std::byte> record(round_up(bytes, kRecordAlign));
  std::byte* at = record.data() + kRecordHeadBytes;
  store(at, index.samples);
  store(at + 8, index.next_number);
  store(at + 16, std::uint64_t{index.entries.size()});
  store(at + 24, std::uint64_t{schema.size()});
  at += kIndexHeadBytes;
  for (const Entry& entry : index.entries) {
    store(at, entry.array);
    store(at + 4, entry.samples);
    store(at + 8, entry.first);
    store(at + 16, entry.offset);
    store(at + 24, entry.payload_bytes);
    store(at + 32, entry.skip);
    store(at + 36, entry.crc);
    at += kEntryBytes;
  }
  store_text(at, schema);
  put_record_head(std::span(record).first(bytes), RecordKind::Index, offset);
  return record;
}

Entry get_entry(const std::byte* at) {
  return {.array = load<std::uint32_t>(at),
          .samples = load<std::uint32_t>(at + 4),
          .first = load<std::uint64_t>(at + 8),
          .offset = load<std::uint64_t>(at + 16),
          .payload_bytes = load<std::uint64_t>(at + 24),
          .skip = load<std::uint32_t>(at + 32),
          .crc = load<std::uint32_t>(at + 36)};
}

// The entries of an array cover its samples in order; records precede the index.
void check_entries(const Index& index, std::uint64_t index_offset, const std::string& path) {
  std::vector<std::uint64_t> samples(index.schema.arrays.size());
  bool fits = index.samples <= std::uint64_t{1} << 62;
  for (const Entry& entry : index.entries) {
    fits = fits && entry.array < samples.size() && entry.samples > 0 &&
           entry.first == samples[entry.array] && entry.offset % kRecordAlign == 0 &&
           entry.offset >= kFirstRecordAt && entry.offset < index_offset &&
           entry.payload_bytes >= kChunkHeadBytes + kFrameHeadBytes &&
           entry.payload_bytes <= index_offset - entry.offset - kRecordHeadBytes;
    if (!fits) break;
    samples[entry.array] += entry.samples;
  }
  for (const std::uint64_t count : samples) fits = fits && count == index.samples;
  if (!fits) {
    fail(Errc::CorruptData,
         "[open] '{}': its index does not fit its records; `tuckfold repair` finds what is whole",
         path);
  }
}

}  // namespace

Ending make_ending(const Index& index, std::uint64_t offset) {
  Ending ending{.index = index_record(index, offset),
                .trailer = std::vector<std::byte>(kTrailerBytes)};
  std::byte* at = ending.trailer.data();
  store(at, offset);
  store(at + 8, std::uint64_t{ending.index.size()});
  store(at + 16, offset + ending.index.size() + kTrailerBytes);
  store(at + 24, index.samples);
  store(at + kTrailerVersionAt, kTrailerVersion);
  store_text(at + kTrailerMagicAt, kTrailerMagic);
  store(at + kTrailerCrcAt, trailer_crc(at));
  return ending;
}

bool is_damaged_trailer(ByteSpan bytes) {
  return begins_with(bytes.subspan(kTrailerMagicAt), kTrailerMagic) &&
         trailer_crc(bytes.data()) != load<std::uint32_t>(bytes.data() + kTrailerCrcAt);
}

std::optional<Trailer> find_trailer(ByteSpan file) {
  for (std::uint64_t end = file.size() / kTrailerBytes * kTrailerBytes; end > kFirstRecordAt;
       end -= kTrailerBytes) {
    if (const auto trailer = trailer_before(file, end)) return trailer;
  }
  return {};
}

std::optional<std::uint32_t> index_crc(ByteSpan file, std::uint64_t end) {
  if (end > file.size() || end <= kFirstRecordAt || end % kTrailerBytes != 0) return {};
  const std::optional<Trailer> trailer = trailer_before(file, end);
  if (!trailer) return {};
  const std::optional<Record> record = record_at(file.first(end), trailer->index_offset);
  if (!record || !record->is(RecordKind::Index)) return {};
  return record->payload_crc;
}

Index read_index(ByteSpan file, const std::string& path) {
  check_start(file, path);
  const std::optional<Trailer> trailer = find_trailer(file);
  if (!trailer) {
    fail(Errc::CorruptData,
         "[open] '{}' has no end: its writer was stopped, or the file was cut; go on writing with "
         "resume, or `tuckfold repair` finds what is whole",
         path);
  }
  const std::byte* at = file.data() + trailer->end - kTrailerBytes;
  if (const auto version = load<std::uint32_t>(at + kTrailerVersionAt);
      version != kTrailerVersion) {
    fail(Errc::Unsupported,
         "[open] '{}': an index of version {} can be read, got {}; a newer tuckfold may read it",
         path, kTrailerVersion, version);
  }
  const auto corrupt = [&] {
    fail(Errc::CorruptData,
         "[open] '{}': the checksum of its index is wrong; `tuckfold repair` finds what is whole",
         path);
  };
  const std::optional<Record> record = record_at(file.first(trailer->end), trailer->index_offset);
  if (!record || !record->is(RecordKind::Index) || !record->is_whole()) corrupt();
  const ByteSpan payload = record->payload;
  if (payload.size() < kIndexHeadBytes) corrupt();
  Index index{.samples = load<std::uint64_t>(payload.data()),
              .next_number = load<std::uint64_t>(payload.data() + 8),
              .end = trailer->end,
              .crc = record->payload_crc};
  const auto count = load<std::uint64_t>(payload.data() + 16);
  const auto schema_bytes = load<std::uint64_t>(payload.data() + 24);
  std::size_t left = payload.size() - kIndexHeadBytes;
  if (count > left / kEntryBytes || schema_bytes != left - count * kEntryBytes) corrupt();
  index.entries.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    index.entries.push_back(get_entry(payload.data() + kIndexHeadBytes + i * kEntryBytes));
  }
  index.schema = parse_schema(text_of(payload.last(schema_bytes)), path);
  check_entries(index, trailer->index_offset, path);
  return index;
}

}  // namespace tuckfold
