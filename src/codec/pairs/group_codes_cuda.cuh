// Groups of 256 values of a warp, eight a lane: their ranges, and their values as codes and back.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/cuda/kernel.cuh"
#include "codec/block_quant/block_quant_block.h"

namespace tuckfold::dct_chop {

using block_quant::Group;
using block_quant::Header;

inline constexpr int kGroup = 256, kWarps = kGroup / cuda::kWarp;
inline constexpr int kEach =
    kGroup / cuda::kWarp;  // values of a group that a lane has, side by side

// Maps floats to integers of the same order; a NaN maps beyond the infinity of its sign.
__device__ TUCKFOLD_INLINE int ordered(float value) {
  const int bits = static_cast<int>(bits_of(value));
  return bits ^ ((bits >> 31) & 0x7fffffff);
}
__device__ TUCKFOLD_INLINE float unordered(int image) {
  return float_of(static_cast<std::uint32_t>(image ^ ((image >> 31) & 0x7fffffff)));
}

// Eight codes as `bits` bytes, the first in the lowest bits, and back.
__device__ TUCKFOLD_INLINE void store_codes(const std::uint32_t* codes, int bits,
                                            std::uint8_t* to) {
  if (bits == 8) {
    const std::uint32_t low = __byte_perm(__byte_perm(codes[0], codes[1], 0x0040),
                                          __byte_perm(codes[2], codes[3], 0x0040), 0x5410);
    const std::uint32_t high = __byte_perm(__byte_perm(codes[4], codes[5], 0x0040),
                                           __byte_perm(codes[6], codes[7], 0x0040), 0x5410);
    *reinterpret_cast<uint2*>(to) = make_uint2(low, high);
    return;
  }
  std::uint64_t all = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) all |= static_cast<std::uint64_t>(codes[i]) << (bits * i);
  switch (bits) {
    case 4: *reinterpret_cast<std::uint32_t*>(to) = static_cast<std::uint32_t>(all); break;
    case 2: *reinterpret_cast<std::uint16_t*>(to) = static_cast<std::uint16_t>(all); break;
    default:
      for (int i = 0; i < bits; ++i) to[i] = static_cast<std::uint8_t>(all >> (8 * i));
  }
}
__device__ TUCKFOLD_INLINE std::uint64_t load_codes(const std::uint8_t* from, int bits) {
  switch (bits) {
    case 8: return *reinterpret_cast<const std::uint64_t*>(from);
    case 4: return *reinterpret_cast<const std::uint32_t*>(from);
    case 2: return *reinterpret_cast<const std::uint16_t*>(from);
    default: break;
  }
  std::uint64_t all = 0;
  for (int i = 0; i < bits; ++i) all |= static_cast<std::uint64_t>(from[i]) << (8 * i);
  return all;
}

// Codes of a group's values, for both kinds of groups, in the low byte; what is above it means
// nothing. A group that is not finite has a factor of 0, and codes 0.
struct ToCode {
  float subtract, factor, zero;

  __device__ ToCode(float less, float times, float code_of_zero)
      : subtract(less), factor(times), zero(code_of_zero) {}
  __device__ explicit ToCode(Header header) {
    const Group group = block_quant::group_of(header);
    const block_quant::Scaling s = block_quant::scaling_of(group);
    const bool finite = group.scale < float_of(kInfBits);
    subtract = s.subtract;
    factor = finite ? s.factor : 0.0f;
    zero = s.zero;
  }
  // The nearest code of a group from its minimum on. No value is below that, and since scales are
  // rounded up none comes half a step above the last level: only NaN must become 0.
  __device__ std::uint32_t nearest(float value) const {
    return bits_of(fmaxf((value - subtract) * factor, 0.0f) + block_quant::kToInteger);
  }
  __device__ std::uint32_t code(float value, float levels, bool stochastic,
                                std::uint32_t random) const {
    if (factor == 0.0f) return 0;
    const block_quant::Scaling s{subtract, factor, zero};
    return static_cast<std::uint32_t>(stochastic
                                          ? block_quant::random_code(value, s, levels, random)
                                          : block_quant::nearest_code(value, s, levels));
  }
};

}  // namespace tuckfold::dct_chop
