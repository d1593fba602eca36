// positive: one bit a value, whether it is above 0. NaN counts as above: the backward of a ReLU
// lets its gradient pass, and this bit is what that backward needs.
//
// Packed: value i in bit i % 8 of byte i / 8; bits past the last value are 0. Unpacked: 0 and 1.
#pragma once

#include <cstdint>
#include <limits>

#include "base/device.h"
#include "base/strided.h"
#include "codec/registry.h"

namespace tuckfold::positive {

// The test on bits of a value, for every dtype: not (x <= 0). Bits 1 … limit are positive numbers
// and NaN of that sign; above minus_infinity are NaN of the other.
template <class Word>
struct Test {
  Word limit, minus_infinity;

  TUCKFOLD_HOST_DEVICE bool passes(Word bits) const {
    return static_cast<Word>(bits - 1) < limit || bits > minus_infinity;
  }
};
template <class Word>
Test<Word> test_of(DType dtype) {
  constexpr auto kMost = std::numeric_limits<Word>::max();
  const auto word = [](std::uint64_t bits) { return static_cast<Word>(bits); };
  switch (dtype) {
    case DType::F32: return {kMost / 2, word(0xff800000u)};
    case DType::F16: return {kMost / 2, word(0xfc00u)};
    case DType::BF16: return {kMost / 2, word(0xff80u)};
    case DType::F64: return {kMost / 2, word(0xfff0000000000000u)};
    default: return {kMost, kMost};
  }
}

// The kernel, over elements [begin, end); `begin` is a multiple of 8. It never throws.
struct PackJob {
  const FlatReader* in;
  std::byte* out;
};
void pack_bits(const PackJob& job, std::int64_t begin, std::int64_t end);

TUCKFOLD_WEAK extern const CudaCodec kCuda;

}  // namespace tuckfold::positive
