// The normative arithmetic of block_quant: how a group's values become codes and back. Kernels give
// these bits on every device.
//
//   value = minimum + code * scale             minimum, scale: bf16
//   value = (code - zero) * scale              if zero=exact and the group has values on both sides
//                                              of 0 or touching it: 0 is code `zero`, exactly
//
// The minimum is rounded down and the scale up, so that codes 0 … 2^bits - 1 cover every value and
// the error is at most half a scale. A decoded value above f32's largest number becomes that
// number. A group with a NaN, an infinity, or a span that f32 or bf16 cannot represent decodes to
// the canonical NaN in every value.
#pragma once

#include <cstdint>

#include "base/device.h"
#include "base/half.h"

namespace tuckfold::block_quant {

// As stored: scale first, little-endian. The scale's sign bit says that `minimum` is the zero code.
struct Header {
  std::uint16_t scale;
  std::uint16_t minimum;
};

// A decoded header.
struct Group {
  float scale;
  float minimum;  // what is added to code * scale, or subtracted from the code as `zero`
  bool about_zero;
};

TUCKFOLD_HOST_DEVICE inline Group group_of(Header header) {
  Group group;
  group.about_zero = (header.scale & 0x8000u) != 0;
  group.scale = to_float(BF16{static_cast<std::uint16_t>(header.scale & 0x7fffu)});
  group.minimum =
      group.about_zero ? static_cast<float>(header.minimum) : to_float(BF16{header.minimum});
  return group;
}

inline constexpr Header kNotFinite = {kBF16Nan, 0};

// 1/scale must be finite.
inline constexpr float kMinScale = 0x1p-120f;

// The header for finite values between low and high.
TUCKFOLD_HOST_DEVICE inline Header header_of(float low, float high, int bits, bool exact_zero) {
  low = low + 0.0f;  // -0 becomes 0: which of the two a minimum gives is chance
  const float levels = static_cast<float>((1 << bits) - 1);
  if (exact_zero && low <= 0.0f && high >= 0.0f) {
    // One level less if values on both sides of 0 must round to whole steps.
    const float steps = low < 0.0f && high > 0.0f && bits > 1 ? levels - 1.0f : levels;
    const BF16 up = to_bf16_up((high - low) / steps);
    const float scale = to_float(up) > kMinScale ? to_float(up) : kMinScale;
    if (!(scale < float_of(kInfBits))) return kNotFinite;
    const float below = -low * (1.0f / scale);
    int zero = static_cast<int>(below);
    if (static_cast<float>(zero) < below) ++zero;
    if (zero > (1 << bits) - 1) zero = (1 << bits) - 1;
    return {static_cast<std::uint16_t>(to_bf16(scale).bits | 0x8000u),
            static_cast<std::uint16_t>(zero)};
  }
  const BF16 minimum = to_bf16_down(low);
  const BF16 up = to_bf16_up((high - to_float(minimum)) / levels);
  const float scale = to_float(up) > kMinScale ? to_float(up) : kMinScale;
  if (!(scale < float_of(kInfBits))) return kNotFinite;
  return {to_bf16(scale).bits, minimum.bits};
}

// A number below 2^22 plus kToInteger has its nearest integer in its low bits. Plus kToFixed, which
// is smaller by 2^8, it has eight bits of fraction below the integer.
inline constexpr float kToInteger = 0x1.8p23f, kToFixed = 0x1.8p15f;

// How values of a group become codes: (value - subtract) * factor, plus `zero`, is a code with a
// fraction.
struct Scaling {
  float subtract, factor, zero;
};
TUCKFOLD_HOST_DEVICE inline Scaling scaling_of(const Group& group) {
  const float inverse = 1.0f / group.scale;
  return group.about_zero ? Scaling{0.0f, inverse, group.minimum}
                          : Scaling{group.minimum, inverse, 0.0f};
}

// The nearest code, ties to even. The minimum is rounded down and the scale up, so no code is below
// 0, and none is above the last level except in a group around zero of one bit.
TUCKFOLD_HOST_DEVICE inline int nearest_code(float value, const Scaling& s, float levels) {
  const float sum = (value - s.subtract) * s.factor + (kToInteger + s.zero);
  const float most = kToInteger + levels;
  return static_cast<int>(bits_of(sum < most ? sum : most) & 0xffu);
}

// The code below or above, chosen with probability by distance: the fraction, rounded to eight
// bits, carries into the code when the byte `random` is added.
TUCKFOLD_HOST_DEVICE inline int random_code(float value, const Scaling& s, float levels,
                                            std::uint32_t random) {
  const float sum = (value - s.subtract) * s.factor + (kToFixed + s.zero);
  const float most = kToFixed + levels;
  return static_cast<int>((bits_of(sum < most ? sum : most) + random) >> 8 & 0xffu);
}

TUCKFOLD_HOST_DEVICE inline float ordinary_value(int code, const Group& group) {
  return group.about_zero ? (static_cast<float>(code) - group.minimum) * group.scale
                          : group.minimum + static_cast<float>(code) * group.scale;
}

// Whether a group is NaN, or has so large a scale that a code may exceed f32's largest number.
// Below 2^112 none does, not even 65535, which damaged bytes may have for `zero`.
TUCKFOLD_HOST_DEVICE inline bool is_extreme(const Group& group) {
  const bool finite_minimum = (bits_of(group.minimum) & ~kSignBit) < kInfBits;
  return !(group.scale < 0x1p112f) || !finite_minimum;
}

// The value in such a group, computed by halves, which do not overflow; otherwise the bits are
// those of ordinary_value.
TUCKFOLD_HOST_DEVICE inline float extreme_value(int code, const Group& group) {
  const bool finite =
      group.scale < float_of(kInfBits) && (bits_of(group.minimum) & ~kSignBit) < kInfBits;
  if (!finite) return float_of(kNanBits);
  const float half_scale = 0.5f * group.scale;
  const float half = group.about_zero
                         ? (static_cast<float>(code) - group.minimum) * half_scale
                         : 0.5f * group.minimum + static_cast<float>(code) * half_scale;
  const float most = 0x1.fffffep126f;  // half of f32's largest number
  return 2.0f * (half > most ? most : half < -most ? -most : half);
}

TUCKFOLD_HOST_DEVICE inline float value_of(int code, const Group& group) {
  return is_extreme(group) ? extreme_value(code, group) : ordinary_value(code, group);
}

// ---- random bytes: a hash of seed, group and place, so that order and threads do not matter

TUCKFOLD_HOST_DEVICE inline std::uint32_t group_key(std::uint64_t seed, std::uint64_t group) {
  std::uint64_t x = seed + (group + 1) * 0x9e3779b97f4a7c15u;  // splitmix64
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return static_cast<std::uint32_t>((x ^ (x >> 31)) >> 32);
}

inline constexpr std::uint32_t kQuad = 0x9e3779b9u, kMix1 = 0x7feb352du, kMix2 = 0x846ca68bu;

// The bytes of values 4 * quad and the three after it, lowest first. The first step is linear, so
// it can be done for key and position separately: groups share positions.
TUCKFOLD_HOST_DEVICE inline std::uint32_t first_step(std::uint32_t x) { return x ^ (x >> 16); }
TUCKFOLD_HOST_DEVICE inline std::uint32_t later_steps(std::uint32_t x) {
  x *= kMix1;
  x = (x ^ (x >> 15)) * kMix2;
  return x ^ (x >> 16);
}
TUCKFOLD_HOST_DEVICE inline std::uint32_t random_bytes(std::uint32_t key, std::uint32_t quad) {
  return later_steps(first_step(key ^ (quad * kQuad)));
}

}  // namespace tuckfold::block_quant
