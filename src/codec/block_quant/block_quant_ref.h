// block_quant from its definition, in double precision, one value at a time. For tests only.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace tuckfold::block_quant_ref {

// bf16 numbers next to a double: 8 bits of significand.
inline double bf16_floor(double value) {
  if (value == 0.0) return 0.0;
  int exponent;
  std::frexp(value, &exponent);
  const double unit = std::ldexp(1.0, std::max(exponent - 8, -133));
  return std::floor(value / unit) * unit;
}
inline double bf16_ceil(double value) { return -bf16_floor(-value); }

struct Group {
  double scale, minimum;
  std::vector<std::int64_t> codes;  // by rounding to nearest
};

// Quantizes finite values with the minimum rounded down and the scale rounded up.
inline Group quantize(const std::vector<float>& values, int bits) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  const double levels = std::ldexp(1.0, bits) - 1;
  Group group;
  group.minimum = bf16_floor(*low);
  group.scale = std::max(bf16_ceil((*high - group.minimum) / levels), 0x1p-120);
  for (const float value : values) {
    const double scaled = (value - group.minimum) / group.scale;
    group.codes.push_back(
        static_cast<std::int64_t>(std::clamp(std::nearbyint(scaled), 0.0, levels)));
  }
  return group;
}

// Code i of a group whose codes start at `bytes`: bits i*bits …, lowest first.
inline std::int64_t code_at(const unsigned char* bytes, std::int64_t i, int bits) {
  std::int64_t code = 0;
  for (int b = 0; b < bits; ++b) {
    const std::int64_t at = i * bits + b;
    code |= static_cast<std::int64_t>((bytes[at / 8] >> (at % 8)) & 1) << b;
  }
  return code;
}

}  // namespace tuckfold::block_quant_ref
