// bytes_of: floats that are k * scale + add for integers k in 0..255, as the bytes k.
//
// Packed: k for each value in row-major order, a u8 tensor of the same shape. If several k have the
// value, it is the one guessed, or else the smallest.
#pragma once

#include <cstdint>

#include "base/strided.h"
#include "codec/exact/bytes_of_block.h"
#include "codec/registry.h"

namespace tuckfold::bytes_of {

// The values of the 256 bytes in one dtype.
struct Table {
  alignas(64) std::uint64_t words[256];  // the values' bits
  Guess guess;
  // Vectors of f32 compute faster than they look up: where `computed`, every value is that of
  // compute_f32, rounded to the dtype. Not in f64.
  bool computed;
  bool exact;  // and needs no rounding
  Factors factors;
  // Rounding to f16 or bf16 hides what one product and one sum lose in f32, for most rules.
  struct Simple {
    float scale, add;
    bool usable, exact;  // whether all values are k * scale + add, rounded; and need no rounding
  } simple;
};

Table table_of(const Stage& stage, DType dtype);

// Throws pack's error for an element that no byte represents.
[[noreturn]] void refuse(const Table& table, DType dtype, std::uint64_t bits, std::int64_t index);

// The kernels, over elements [begin, end). They never throw.
struct PackJob {
  const Table* table;
  const FlatReader* in;
  std::uint8_t* out;
};
struct UnpackJob {
  const Table* table;
  const std::uint8_t* in;
  const FlatWriter* out;
  bool stream;
};
// The first element that no byte represents, where packing stopped; `end` if there is none.
std::int64_t pack_bytes(const PackJob& job, std::int64_t begin, std::int64_t end);
void unpack_bytes(const UnpackJob& job, std::int64_t begin, std::int64_t end);

TUCKFOLD_WEAK extern const CudaCodec kCuda;

}  // namespace tuckfold::bytes_of
