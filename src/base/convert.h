// Converts runs of f16, bf16, f64, u8 and u16 to and from f32 with SIMD; the bits of halves are
// those of half.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "base/half.h"

namespace tuckfold {

void to_floats(const F16* in, std::int64_t count, float* out) noexcept;
void to_floats(const BF16* in, std::int64_t count, float* out) noexcept;
// As to_f32_saturated.
void to_floats(const double* in, std::int64_t count, float* out) noexcept;
void to_floats(const std::uint8_t* in, std::int64_t count, float* out) noexcept;
void to_floats(const std::uint16_t* in, std::int64_t count, float* out) noexcept;
// As to_f16_saturated, to_bf16_saturated and to_f64.
void from_floats(const float* in, std::int64_t count, F16* out) noexcept;
void from_floats(const float* in, std::int64_t count, BF16* out) noexcept;
void from_floats(const float* in, std::int64_t count, double* out) noexcept;
// As to_whole.
void from_floats(const float* in, std::int64_t count, std::uint8_t* out) noexcept;
void from_floats(const float* in, std::int64_t count, std::uint16_t* out) noexcept;

// To the nearest whole number, ties to even; what is too large, and infinity, becomes the largest,
// what is negative, and NaN, 0.
template <class T>
T to_whole(float value) {
  // The bits of nonnegative floats have the floats' order. A float near 2^23 has no fraction: adding
  // that rounds the value, and its low bits are the number.
  constexpr std::uint32_t kMost = bits_of(static_cast<float>(std::numeric_limits<T>::max()));
  const std::uint32_t bits = bits_of(value);
  const std::uint32_t kept = bits > kInfBits ? 0 : std::min(bits, kMost);  // NaN, or a sign
  return static_cast<T>(bits_of(float_of(kept) + 0x1p23f));
}

}  // namespace tuckfold
