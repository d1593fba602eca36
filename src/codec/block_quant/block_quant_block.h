// The normative arithmetic of block_quant: how a group's values become codes and back. Kernels give
// these bits on every device.
//
//   value = minimum + code * scale             minimum, scale: bf16
//   value = (code - zero) * scale              if zero=exact and the group has values on both sides
//                                              of 0 or touching it: 0 is code `zero`, exactly
//
// The minimum is rounded down and the scale up, so that codes 0 … 2^bits - 1 reach every value and
// the error is at most half a scale. A group with a NaN, an infinity, or a span that f32 or bf16
// cannot hold decodes to NaN throughout.
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

// A header, ready for use.
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

inline constexpr Header kNotFinite = {0x7fc0u, 0};

// 1/scale must be finite.
inline constexpr float kMinScale = 0x1p-120f;

// The header for finite values between low and high.
TUCKFOLD_HOST_DEVICE inline Header header_of(float low, float high, int bits, bool exact_zero) {
  low = low + 0.0f;  // -0 becomes 0: which of the two a minimum gives is chance
  const float levels = static_cast<float>((1 << bits) - 1);
  if (exact_zero && low <= 0.0f && high >= 0.0f) {
    // One level less where both sides must round to whole steps.
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

// The code of a value: the nearest one, ties to even, after moving by `nudge`, which is 0, or
// random in (-1/2, 1/2). A number in [0, 2^22) plus 2^23 has its nearest integer in its low bits.
inline constexpr float kToInteger = 0x1p23f;
TUCKFOLD_HOST_DEVICE inline int code_of(float value, Group group, float inverse_scale, float nudge,
                                        float levels) {
  float scaled = group.about_zero ? value * inverse_scale + group.minimum
                                  : (value - group.minimum) * inverse_scale;
  scaled = scaled + nudge;
  scaled = scaled > 0.0f ? scaled : 0.0f;
  scaled = scaled < levels ? scaled : levels;
  return static_cast<int>(bits_of(scaled + kToInteger) & 0xffu);
}

TUCKFOLD_HOST_DEVICE inline float value_of(int code, Group group) {
  return group.about_zero ? (static_cast<float>(code) - group.minimum) * group.scale
                          : group.minimum + static_cast<float>(code) * group.scale;
}

// ---- random nudges: a hash of seed, group and place, so that order and threads do not matter

TUCKFOLD_HOST_DEVICE inline std::uint32_t group_key(std::uint64_t seed, std::uint64_t group) {
  std::uint64_t x = seed + (group + 1) * 0x9e3779b97f4a7c15u;  // splitmix64
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return static_cast<std::uint32_t>((x ^ (x >> 31)) >> 32);
}

inline constexpr std::uint32_t kPlace = 0x9e3779b9u, kMix1 = 0x7feb352du, kMix2 = 0x846ca68bu;
inline constexpr float kNudgeStep = 0x1p-15f, kNudgeFirst = 0x1p-16f - 0.5f;

// One of 2^15 numbers evenly spread over (-1/2, 1/2): the sum with a code is exact, and never a
// tie.
TUCKFOLD_HOST_DEVICE inline float random_nudge(std::uint32_t key, std::uint32_t place) {
  std::uint32_t x = key ^ (place * kPlace);
  x = (x ^ (x >> 16)) * kMix1;
  x = (x ^ (x >> 15)) * kMix2;
  return static_cast<float>(x >> 17) * kNudgeStep + kNudgeFirst;
}

}  // namespace tuckfold::block_quant
