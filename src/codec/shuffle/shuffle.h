// shuffle: the first bytes of all values, then their second bytes and so on, for an entropy coder
// that follows; neighbours may be subtracted before.
//
// Packed: with w bytes a value and n values, byte k of value i at k * n + i; as many bytes as the
// tensor has.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/strided.h"
#include "codec/registry.h"
#include "codec/shuffle/shuffle_block.h"

namespace tuckfold::shuffle {

// Values of a tensor as planes of rows. A row is the last axis, with axes before it while they make
// fewer than 8 values; a plane is the rows of the axis before that one.
struct Planes {
  std::int64_t count = 0, rows = 0, cols = 0;

  static Planes of(const Shape& shape);
  std::int64_t elems() const noexcept { return rows * cols; }  // of one plane
};

struct PackJob {
  Delta delta;
  Planes planes;
  const FlatReader* in;
  std::byte* out;
};
struct UnpackJob {
  Delta delta;
  Planes planes;
  const std::byte* packed;
  const FlatWriter* out;
  const FlatReader* done;  // the same tensor: values above are read from where they were written
};

// The kernels. They never throw. Packing takes values [begin, end) of all; unpacking whole planes,
// since a value needs those before it; without a delta any values.
void pack_values(const PackJob& job, std::int64_t begin, std::int64_t end);
void unpack_values(const UnpackJob& job, std::int64_t begin, std::int64_t end);

}  // namespace tuckfold::shuffle
