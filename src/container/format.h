// The parts of a .tuck file, as defined in docs/format.md: start, records, index, trailer.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/io/little_endian.h"
#include "tuckfold/container.h"

namespace tuckfold {

inline constexpr std::uint64_t kRecordAlign = 64;
inline constexpr std::uint64_t kFirstRecordAt = 64;
inline constexpr std::size_t kRecordHeadBytes = 32;
inline constexpr std::size_t kChunkHeadBytes = 16;  // of a chunk's payload; a frame follows
inline constexpr std::size_t kTrailerBytes = 64;

// A chunk that claims to unpack to more than this many times its bytes is refused, so that a small
// hostile file cannot demand much memory. zstd, which packs zeros smallest, stays below it.
inline constexpr std::uint64_t kMaxRatio = 32768;
bool passes_ratio(DType dtype, const Shape& shape, std::size_t frame_bytes);

// ---- start --------------------------------------------------------------------------------------

std::vector<std::byte> file_start();  // up to the first record

// Stored in the start of PATH.partial while it is written, and not in a complete file: identifies
// the source of its samples, so that a run is not resumed with other samples.
struct Begun {
  Origin origin;
  std::uint64_t seed = 0;
};
void put_begun(std::span<std::byte> start, const Begun& begun);
// Overwriting these bytes turns the start into that of a complete file.
inline constexpr std::size_t kBegunAt = 16, kBegunBytes = 48;
// Nothing if the start has none, or a damaged one.
std::optional<Begun> get_begun(ByteSpan file);

// Throws CorruptData or Unsupported where `file` does not begin as a .tuck file that can be read.
void check_start(ByteSpan file, const std::string& path);

// ---- records ------------------------------------------------------------------------------------

enum class RecordKind : std::uint32_t { Schema = 1, Chunk = 2, Index = 3 };

struct Record {
  std::uint32_t kind;
  std::uint64_t offset;  // of its head in the file
  ByteSpan payload;
  std::uint32_t payload_crc;

  bool is(RecordKind wanted) const { return kind == static_cast<std::uint32_t>(wanted); }
  std::uint64_t end() const {  // where the next one may begin
    return round_up(offset + kRecordHeadBytes + payload.size(), kRecordAlign);
  }
  // Whether the payload's checksum is right; of a chunk, that of its head.
  bool is_whole() const;
};

// The record at an offset; nothing where there is no whole head, or the payload passes the end.
std::optional<Record> record_at(ByteSpan file, std::uint64_t offset);

// Completes a record that starts at `record`, for this offset of the file: the payload is in place,
// and the head is written before it.
void put_record_head(std::span<std::byte> record, RecordKind kind, std::uint64_t offset);
// A whole record, padded for the next one.
std::vector<std::byte> make_record(RecordKind kind, ByteSpan payload, std::uint64_t offset);

// ---- chunks -------------------------------------------------------------------------------------

struct ChunkHead {
  std::uint32_t array;
  std::uint32_t samples;
  std::uint64_t number;  // of the first sample; later ones have higher numbers, some may be missing
};
void put_chunk_head(std::byte* at, const ChunkHead& head);
ChunkHead get_chunk_head(const std::byte* at);

// ---- schema -------------------------------------------------------------------------------------

struct Schema {
  std::vector<ArrayInfo> arrays;  // masks last
  std::string metadata = "{}";
};
// The number of arrays that are no masks.
std::size_t count_shown(std::span<const ArrayInfo> arrays);
// The number of the mask of an array; nothing where it has none.
std::optional<std::size_t> find_mask(std::span<const ArrayInfo> arrays, std::size_t array);
std::string schema_text(const Schema& schema);
// Throws CorruptData, or Unsupported where a codec or dtype is not known.
Schema parse_schema(std::string_view text, const std::string& path);

// The shape of `samples` samples together.
Shape with_samples(std::int64_t samples, const Shape& sample);
// Rows first .. first + count of a tensor, along its first axis.
template <class View>
View rows_of(View view, std::int64_t first, std::int64_t count) {
  using Byte = std::conditional_t<std::is_same_v<View, TensorView>, std::byte, const std::byte>;
  const std::int64_t step = view.strides[0] * static_cast<std::int64_t>(size_bytes(view.dtype));
  view.data = static_cast<Byte*>(view.data) + first * step;
  view.shape[0] = count;
  return view;
}

// ---- index and trailer --------------------------------------------------------------------------

// The samples of an array that a chunk holds: all of its rows, or those that a repair could save.
struct Entry {
  std::uint32_t array;
  std::uint32_t samples;
  std::uint64_t first;          // sample
  std::uint64_t offset;         // of the record
  std::uint64_t payload_bytes;  // of the record
  std::uint32_t skip;           // rows of the frame before these samples
  std::uint32_t crc;            // of the chunk's packed bytes: so an index knows what it lists
};

struct Index {
  Schema schema;
  std::uint64_t samples = 0;
  std::uint64_t next_number = 0;  // for the chunks of an append
  std::vector<Entry> entries;
  std::uint64_t end = 0;  // of the file's valid part
  std::uint32_t crc = 0;  // of the index record's payload
};

// The index record and the trailer after it, for the end of a file at `offset`.
struct Ending {
  std::vector<std::byte> index, trailer;
};
Ending make_ending(const Index& index, std::uint64_t offset);

struct Trailer {
  std::uint64_t index_offset, index_bytes, end;
};
// The last valid trailer, or nothing.
std::optional<Trailer> find_trailer(ByteSpan file);
// The checksum of the index whose trailer ends at `end`; nothing if no state of the file ends
// there.
std::optional<std::uint32_t> index_crc(ByteSpan file, std::uint64_t end);
// Whether these 64 bytes end like a trailer but have a wrong checksum.
bool is_damaged_trailer(ByteSpan bytes);

// The index of a file, with every number checked. Throws CorruptData with a remedy.
Index read_index(ByteSpan file, const std::string& path);

// ---- a chunk's frame ----------------------------------------------------------------------------

struct CheckedChunk {
  ChunkHead head;
  ByteSpan frame, packed;
  bool raw;  // the array's codec did not suit so few samples
};
// Checks a chunk record against its array, with every checksum. Throws CorruptData or Unsupported;
// messages begin with the reason, and the caller adds the place.
CheckedChunk check_chunk(const Record& record, const Schema& schema);

}  // namespace tuckfold
