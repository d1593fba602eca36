// The normative arithmetic of unpack_then: each operation is rounded to f32. Kernels give these
// bits on every device. What becomes f32 is made canonical; f16 and bf16 are when they are rounded.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/device.h"
#include "base/half.h"

namespace tuckfold::then {

TUCKFOLD_HOST_DEVICE inline float value_of(float x, float scale, float shift, bool relu) {
  const float product = scale * x;
  const float sum = product + shift;
  return relu && sum <= 0.0f ? 0.0f : sum;  // NaN is not less
}

// The same with a value that is added to it.
TUCKFOLD_HOST_DEVICE inline float value_of(float x, float scale, float shift, float add,
                                           bool relu) {
  const float sum = value_of(x, scale, shift, false) + add;
  return relu && sum <= 0.0f ? 0.0f : sum;
}

// The least number that a value above 0 becomes; in f16 the least of all, since others are scaled towards it.
template <class T>
inline constexpr float kAboveZero = std::is_same_v<T, F16> ? 0x1p-24f : 0x1p-126f;

// The value of a gate that is known: above 0 where it is open, else 0. NaN is not less.
TUCKFOLD_HOST_DEVICE inline float gated(float y, bool open, float least) {
  return open ? (y < least ? least : y) : 0.0f;
}

// The canonical NaN for any NaN. With integers, since compilers take NaN for NaN.
TUCKFOLD_HOST_DEVICE inline float without_payload(float value) {
  const std::uint32_t bits = bits_of(value);
  return float_of((bits & ~kSignBit) > kInfBits ? kNanBits : bits);
}

}  // namespace tuckfold::then
