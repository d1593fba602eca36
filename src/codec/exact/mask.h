// mask: one bit a value, for tensors of two values: 0 and s, or -s and s.
//
// Packed: value i in bit i % 8 of byte i / 8, set for s; bits past the last value are 0.
#pragma once

#include <cstdint>

#include "base/strided.h"
#include "codec/registry.h"

namespace tuckfold::mask {

// The two values' bits.
struct Pair {
  std::uint64_t clear, set;
};
Pair pair_of(const Stage& stage, DType dtype);

// Throws pack's error for an element that is neither.
[[noreturn]] void refuse(const Stage& stage, DType dtype, std::uint64_t bits, std::int64_t index);

// The kernels, over elements [begin, end); `begin` is a multiple of 8. They never throw. Values are
// compared by their bits.
struct PackJob {
  std::uint64_t clear, set;  // the two values' bits
  const FlatReader* in;
  std::byte* out;
};
struct UnpackJob {
  std::uint64_t clear, set;
  const std::byte* in;
  const FlatWriter* out;
  bool stream;
};
// The first element that is neither of the two, where packing stopped; `end` if there is none.
std::int64_t pack_bits(const PackJob& job, std::int64_t begin, std::int64_t end);
void unpack_bits(const UnpackJob& job, std::int64_t begin, std::int64_t end);

// A tensor from one bit a value.
void unpack_pair(const Pair& pair, std::span<const std::byte> packed, const TensorView& out,
                 int threads);
void unpack_pair_cuda(const Pair& pair, std::span<const std::byte> packed, const TensorView& out,
                      void* stream);

TUCKFOLD_WEAK extern const CudaCodec kCuda;

}  // namespace tuckfold::mask
