// bits: integers in `width` bits each, as their distance from the tensor's minimum.
//
// Packed: the minimum, 8 bytes, little-endian; where the spec names no width one byte with it; then
// the codes x - minimum in row-major order, code i in bits i*width …, lowest first. A width of all
// the dtype's bits given in the spec holds any value: no minimum is stored, and the codes are the
// values.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/device.h"
#include "base/strided.h"
#include "codec/registry.h"

namespace tuckfold::bits {

inline constexpr std::size_t kMinimumBytes = 8, kWidthBytes = 1;

inline int bits_of(DType dtype) { return static_cast<int>(8 * size_bytes(dtype)); }
inline int given_width(const Stage& stage) { return static_cast<int>(stage["width"]); }

// The bytes before the codes; none if there are no codes.
inline std::size_t header_bytes(int given_width, DType dtype, std::int64_t elems) {
  if (elems == 0 || given_width == bits_of(dtype)) return 0;
  return kMinimumBytes + (given_width == 0 ? kWidthBytes : 0);
}

// Written so that 2^62 elements of 64 bits do not overflow.
TUCKFOLD_HOST_DEVICE inline std::size_t code_bytes(std::int64_t elems, int width) {
  const auto count = static_cast<std::size_t>(elems), bits = static_cast<std::size_t>(width);
  return count / 8 * bits + (count % 8 * bits + 7) / 8;
}

// The kernels, over elements [begin, end); `begin` is a multiple of 8, where codes start at a byte.
// They never throw. Sums and differences are modulo 2^64, and then of the dtype's size.
struct Range {
  std::int64_t low = INT64_MAX, high = INT64_MIN;  // of no values; u64 values less 2^63
};
// The fewest bits that hold the distances from the minimum.
TUCKFOLD_HOST_DEVICE inline int needed_width(const Range& range) {
  const std::uint64_t span =
      static_cast<std::uint64_t>(range.high) - static_cast<std::uint64_t>(range.low);
#ifdef __CUDA_ARCH__
  return 64 - __clzll(static_cast<long long>(span));  // nvcc makes 0 of std::bit_width
#else
  return static_cast<int>(std::bit_width(span));
#endif
}
struct PackJob {
  int width;  // 1 or more, and no fewer bits than the range needs
  std::int64_t minimum;
  const FlatReader* in;
  std::byte* codes;
  bool stream;
};
struct UnpackJob {
  int width;
  std::int64_t minimum;
  const std::byte* codes;
  const FlatWriter* out;
  bool stream;
};
Range range_of(const FlatReader& in, std::int64_t begin, std::int64_t end);
void pack_codes(const PackJob& job, std::int64_t begin, std::int64_t end);
void unpack_codes(const UnpackJob& job, std::int64_t begin, std::int64_t end);

// Throws pack's error for a range that `width` bits cannot hold.
[[noreturn]] void refuse(int width, DType dtype, const Range& range);
// Throw CorruptData if the packed bytes are too few for the header, or do not match the width that
// was found.
void check_header(int given_width, std::size_t packed_bytes, const TensorView& out);
void check_width(int width, std::size_t packed_bytes, const TensorView& out);

TUCKFOLD_WEAK extern const CudaCodec kCuda;

}  // namespace tuckfold::bits
