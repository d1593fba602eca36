// bounded: every value is restored within an error bound; the number of packed bytes depends on the
// values.
//
// Packed: for rel the absolute bound, f64; the headers of all parts; the payloads of all parts. If
// that is not smaller than the tensor, the tensor is stored unchanged, which a reader knows by the
// size.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>

#include "base/device.h"
#include "base/strided.h"
#include "codec/registry.h"

namespace tuckfold::bounded {

struct Params {
  double absolute, relative;  // one of them is 0
  bool exact_zero;
  bool bytes;  // codes=bytes, else bits

  static Params of(const Stage& stage);
};

// The smallest and the largest finite value; low > high where there is none.
struct Range {
  double low, high;
};

// What kernels need to know about the tensor and the bound.
struct TensorBound {
  DType dtype;
  double bound;
  bool exact_zero;
  std::int64_t elems;
};

// ---- kernels, which never throw

// The range of elements [begin, begin + count).
Range range_of(const FlatReader& in, std::int64_t begin, std::int64_t count);

// ---- codes=bits: chunks of 1024 values in row-major order ---------------------------------------

inline constexpr std::int64_t kChunk = 1024, kRow = 16, kRows = kChunk / kRow;

// As stored: the first code of the chunk; what it is; how many 16-bit words its payload has. Six
// bytes, little-endian, kind and words in one 16-bit number.
struct ChunkHeader {
  std::int32_t base;
  int kind;  // the number of its grid, kSame or kKept
  int words;
};
inline constexpr std::size_t kHeaderBytes = 6;
inline constexpr std::size_t kBoundBytes = 8;  // in front of all headers, for rel
inline constexpr std::int64_t kTogether = 16;  // chunks that a thread, or a block of them, takes
inline constexpr int kSame = 6;  // all values have the same bits, which are the payload
inline constexpr int kKept = 7;  // the values' bits are the payload
// Words of a payload before its planes, where each row has a width, and the least: bounded_rows.h.
inline constexpr int kWidthWords = 1 + static_cast<int>(kRows) / 4;
inline constexpr int kLeastWords = 1 + static_cast<int>(kRows) / 8;
// The most words of codes: 32 bits each, which for f64 is less than the values take.
inline constexpr int kMostWords = kWidthWords + 2 * static_cast<int>(kChunk);

inline ChunkHeader load_header(const std::byte* from) {
  std::int32_t base;
  std::uint16_t both;
  std::memcpy(&base, from, 4);
  std::memcpy(&both, from + 4, 2);
  return {.base = base, .kind = both & 7, .words = both >> 3};
}
// Values in chunk `index`, and the words that their bits take.
inline std::int64_t chunks_of(std::int64_t elems) { return (elems + kChunk - 1) / kChunk; }
TUCKFOLD_HOST_DEVICE inline std::int64_t chunk_elems(std::int64_t elems, std::int64_t index) {
  return elems - index * kChunk < kChunk ? elems - index * kChunk : kChunk;
}
TUCKFOLD_HOST_DEVICE inline int kept_words(std::size_t value_bytes, std::int64_t count) {
  return static_cast<int>((static_cast<std::size_t>(count) * value_bytes + 1) / 2);
}
TUCKFOLD_HOST_DEVICE inline bool well_formed(const ChunkHeader& header, std::size_t value_bytes,
                                             std::int64_t count) {
  const int kept = kept_words(value_bytes, count);
  if (header.kind == kKept) return header.words == kept;
  if (header.kind == kSame) return header.words == kept_words(value_bytes, 1);
  return header.words == 0 ||
         (header.words >= kLeastWords && header.words < kept && header.words <= kMostWords);
}

// Packs chunks [begin, end); their payloads, at most 2 * kept_words bytes each, go to `out`.
// Returns the bytes of all.
std::size_t pack_chunks(const TensorBound& tensor, const FlatReader& in, std::int64_t begin,
                        std::int64_t end, std::byte* headers, std::byte* out);
// Fills chunks from payloads that headers describe. False if headers or payloads contradict
// themselves, also where somebody changes the bytes after their headers were checked.
bool unpack_chunks(const TensorBound& tensor, const std::byte* headers,
                   std::span<const std::byte> payloads, const FlatWriter& out, std::int64_t begin,
                   std::int64_t end, bool stream);

// The workspace of CUDA kernels: for each kTogether chunks their offset, or the sum of sizes so
// far; the same for fewer and larger parts; the grids; and for f16 and bf16 a byte for each
// magnitude.
inline constexpr std::size_t kCudaControlBytes = 512;
inline std::size_t cuda_workspace_bytes(DType dtype, std::int64_t elems) {
  const auto parts = static_cast<std::size_t>((chunks_of(elems) + kTogether - 1) / kTogether);
  const std::size_t magnitudes = dtype == DType::F16 || dtype == DType::BF16 ? 1 << 15 : 0;
  return elems == 0 ? 0 : kCudaControlBytes + 16 * parts + magnitudes;
}

// ---- codes=bytes: parts of whole tiles, at most 33 x 513 values of a plane ----------------------

inline constexpr std::int64_t kTileRows = 33, kTileCols = 513;
inline constexpr std::int64_t kPartValues = kTileRows * kTileCols;  // at most, in one part
inline constexpr std::size_t kPartHeaderBytes = 4;                  // its payload's bytes

// A tensor as planes of the last two axes that are longer than 1, cut evenly into tiles.
struct Tiling {
  std::int64_t planes, rows, cols;  // of the tensor
  std::int64_t down, across;        // tiles in a plane
  std::int64_t together;            // tiles in a part

  explicit Tiling(const Shape& shape);
  std::int64_t tiles() const { return planes * down * across; }
  std::int64_t parts() const { return (tiles() + together - 1) / together; }
  std::int64_t row(std::int64_t tile) const { return tile * rows / down; }
  std::int64_t col(std::int64_t tile) const { return tile * cols / across; }
  // The first tile of a part, and values before a tile and before a part.
  std::int64_t first_tile(std::int64_t part) const {
    return part * together < tiles() ? part * together : tiles();
  }
  std::int64_t before(std::int64_t tile) const;
  std::int64_t before_part(std::int64_t part) const { return before(first_tile(part)); }
};

union AnyPartBuffers;  // bounded_buffers.h

// Packs a part; its payload, at most its values' bytes, goes to `out`. Returns its bytes.
std::size_t pack_part(const TensorBound& tensor, const Tiling& tiling, const FlatReader& in,
                      std::int64_t part, std::byte* out, AnyPartBuffers& buffers);
// False if the payload contradicts itself.
bool unpack_part(const TensorBound& tensor, const Tiling& tiling,
                 std::span<const std::byte> payload, const FlatWriter& out, std::int64_t part,
                 bool stream, AnyPartBuffers& buffers);

TUCKFOLD_WEAK extern const CudaCodec kCuda;

}  // namespace tuckfold::bounded
