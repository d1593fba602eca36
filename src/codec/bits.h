// bits: whole numbers in `width` bits each, as their distance from the tensor's minimum.
//
// Packed: the minimum, 8 bytes, little-endian; where the spec names no width one byte with it; then
// the codes x - minimum in row-major order, code i in bits i*width …, lowest first. A width of all
// the dtype's bits given in the spec holds any value: no minimum is stored, and the codes are the
// values.
#pragma once

#include <cstdint>

#include "base/strided.h"
#include "codec/registry.h"

namespace tuckfold::bits {

// The kernels, over elements [begin, end); `begin` is a multiple of 8, where codes start at a byte.
// They never throw. Sums and differences are modulo 2^64, and then of the dtype's size.
struct Range {
  std::int64_t low = INT64_MAX, high = INT64_MIN;  // of no values
};
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

}  // namespace tuckfold::bits
