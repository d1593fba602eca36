// The normative arithmetic of nonzero_quant, beside block_quant's: signs that stay, and values that
// never become 0. Kernels give these bits on every device.
//
// A group's header, codes and values are those of block_quant with zero=near. What is added:
//   - a code is moved to the nearest one whose value has the sign of what is packed; 0 counts as
//     positive;
//   - a value nearer to 0 than the smallest positive number of the dtype becomes that number, with
//     its sign.
#pragma once

#include <cstdint>

#include "base/device.h"
#include "codec/block_quant/block_quant_block.h"
#include "tuckfold/tensor.h"

namespace tuckfold::nonzero_quant {

inline constexpr std::int64_t kTile = 2048;             // values in row-major order
inline constexpr std::int64_t kTileGroups = kTile / 8;  // at most

// What block_quant's hash takes as a group's number, so that no two groups have the same.
TUCKFOLD_HOST_DEVICE inline std::uint64_t group_number(std::int64_t tile, std::int64_t group) {
  return static_cast<std::uint64_t>(tile * kTileGroups + group);
}

// The 32-bit words of a tile with `count` values that are not 0: a header for each group, then codes.
TUCKFOLD_HOST_DEVICE inline std::int64_t tile_words(int bits, std::int64_t group,
                                                    std::int64_t count) {
  return (count + group - 1) / group + (count * bits + 31) / 32;
}

// An f64 as f32, but not 0 unless it is 0.
TUCKFOLD_HOST_DEVICE inline float to_f32_not_zero(double value) {
  const float nearest = to_f32_saturated(value);
  if (nearest != 0.0f || value == 0.0) return nearest;
  return value < 0.0 ? -0x1p-149f : 0x1p-149f;
}

// The smallest positive number of a dtype, as far as f32 has it.
TUCKFOLD_HOST_DEVICE inline constexpr float smallest_of(DType dtype) {
  switch (dtype) {
    case DType::F16: return 0x1p-24f;
    case DType::BF16: return 0x1p-133f;
    case DType::U8:
    case DType::U16: return 1.0f;
    default: return 0x1p-149f;
  }
}

// A decoded value, away from 0. NaN stays.
TUCKFOLD_HOST_DEVICE inline float not_zero(float value, float smallest) {
  const float magnitude = float_of(bits_of(value) & ~kSignBit);
  if (!(magnitude < smallest)) return value;
  return value < 0.0f ? -smallest : smallest;
}

// The first code of a finite group whose value is not negative; levels + 1 where all are. Values
// grow with the code.
TUCKFOLD_HOST_DEVICE inline int first_positive(const block_quant::Group& group, int levels) {
  if (!(group.minimum < 0.0f)) return 0;
  const float most = static_cast<float>(levels);
  const float guess = -group.minimum * (1.0f / group.scale);
  int code = static_cast<int>(guess < most ? guess : most);
  while (code > 0 && block_quant::value_of(code - 1, group) >= 0.0f) --code;
  while (code <= levels && block_quant::value_of(code, group) < 0.0f) ++code;
  return code;
}

// The code nearest to `code` whose value has the sign of `value`. A group with a positive value has
// such a code: its last one reaches the largest value, or 0.
TUCKFOLD_HOST_DEVICE inline int with_sign_of(float value, int code, int first_positive) {
  if (value < 0.0f) return code < first_positive ? code : first_positive - 1;
  return code > first_positive ? code : first_positive;
}

}  // namespace tuckfold::nonzero_quant
