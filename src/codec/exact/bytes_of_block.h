// The normative arithmetic of bytes_of: the value that byte k represents. Kernels give these bits
// on every device.
//
//   value = k * scale + add       in double, rounded to the dtype once
//   value = k / d + add           where scale is the double nearest to 1/d, d half a whole number
//
// The division matters to f64 alone: k / 255 is not always k * (1 / 255) there. With round=each the
// product and `add` are rounded to the dtype before their sum is, as in a program that computes in
// the dtype throughout.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/device.h"
#include "base/element.h"
#include "base/half.h"

namespace tuckfold::bytes_of {

struct Rule {
  double scale;
  double divisor;  // 0: there is none
  double add;
  bool each;
};

// On the host, under FpEnv; a kernel is given the 256 values.
inline Rule rule_of(double scale, double add, bool each) {
  const double divisor = std::nearbyint(2 / scale) / 2;
  return {scale, divisor > 0 && 1 / divisor == scale ? divisor : 0.0, add, each};
}

inline double rounded(DType dtype, double value) {
  return element_value(dtype, element_bits(dtype, value));
}

inline std::uint64_t value_bits(const Rule& rule, DType dtype, int k) {
  const double product = rule.divisor != 0 ? k / rule.divisor : k * rule.scale;
  if (!rule.each) return element_bits(dtype, product + rule.add);
  return element_bits(dtype, rounded(dtype, product) + rounded(dtype, rule.add));
}

// The same in f32, for most rules: `high` has so few bits that its product is exact, and `low` is
// the remainder. A sum that is a multiple of half a scale is added to k, where nothing cancels.
// Replaces value_bits only where all 256 values agree.
struct Factors {
  float shift, high, low, add;
};
inline Factors factors_of(const Rule& rule) {
  const auto scale = static_cast<float>(rule.scale);
  const float high = float_of(bits_of(scale) & 0xfffffe00u);
  const double halves = std::nearbyint(rule.add / rule.scale * 2);
  const bool shifts = !rule.each && std::abs(halves) < 1024;
  return {.shift = shifts ? static_cast<float>(halves / 2) : 0.0f,
          .high = high,
          .low = static_cast<float>(rule.scale - high),
          .add = shifts ? 0.0f : static_cast<float>(rule.add)};
}
TUCKFOLD_HOST_DEVICE inline float compute_f32(const Factors& factors, float k) {
  const float shifted = k + factors.shift;
  return (shifted * factors.high + shifted * factors.low) + factors.add;
}

// The byte whose value is probably this: the nearest one in f32. A number in [0, 2^22) plus 2^23
// has its nearest integer in its low bits.
inline constexpr float kToInteger = 0x1p23f;
struct Guess {
  float add, inverse_scale;
};
TUCKFOLD_HOST_DEVICE inline int guess_of(float value, Guess guess) {
  float scaled = (value - guess.add) * guess.inverse_scale;
  scaled = scaled > 0.0f ? scaled : 0.0f;  // NaN too
  scaled = scaled < 255.0f ? scaled : 255.0f;
  return static_cast<int>(bits_of(scaled + kToInteger) & 0xffu);
}

}  // namespace tuckfold::bytes_of
