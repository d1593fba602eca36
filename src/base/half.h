// f16 and bf16 to and from f32, rounding to nearest, ties to even: the same bits on every machine,
// whatever its conversion instructions do with subnormals and NaN. Without branches, so that
// compilers make vectors of loops over them. Expects the environment of FpEnv.
//
// Every NaN becomes the quiet NaN of the same sign without payload. A GPU's instructions give the
// same bits but for NaN, and are used there.
#pragma once

#include <bit>
#include <cstdint>

#include "base/device.h"

namespace tuckfold {

struct F16 {
  std::uint16_t bits;
};
struct BF16 {
  std::uint16_t bits;
};

TUCKFOLD_HOST_DEVICE inline std::uint32_t bits_of(float value) {
  return std::bit_cast<std::uint32_t>(value);
}
TUCKFOLD_HOST_DEVICE inline float float_of(std::uint32_t bits) {
  return std::bit_cast<float>(bits);
}

inline constexpr std::uint32_t kSignBit = 0x80000000u;
inline constexpr std::uint32_t kInfBits = 0x7f800000u;

// A choice without a branch: compilers that make one of `?:` make no vectors.
TUCKFOLD_HOST_DEVICE inline std::uint32_t pick(bool first, std::uint32_t a, std::uint32_t b) {
  const std::uint32_t mask = 0u - static_cast<std::uint32_t>(first);
  return (a & mask) | (b & ~mask);
}

TUCKFOLD_HOST_DEVICE inline BF16 to_bf16(float value) {
#ifdef __CUDA_ARCH__
  BF16 result;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
  return result;
#else
  const std::uint32_t bits = bits_of(value);
  const std::uint32_t nan = ((bits & kSignBit) >> 16) | 0x7fc0u;
  const std::uint32_t number = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return {static_cast<std::uint16_t>((bits & ~kSignBit) > kInfBits ? nan : number)};
#endif
}

TUCKFOLD_HOST_DEVICE inline float to_float(BF16 value) {
  return float_of(static_cast<std::uint32_t>(value.bits) << 16);
}

TUCKFOLD_HOST_DEVICE inline F16 to_f16(float value) {
#ifdef __CUDA_ARCH__
  F16 result;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
  return result;
#else
  const std::uint32_t bits = bits_of(value);
  const std::uint32_t sign = (bits & kSignBit) >> 16;
  const std::uint32_t magnitude = bits & ~kSignBit;
  // Below 2^-14, in units of 2^-24: adding 0.5 leaves the value's multiple of that, rounded to
  // even, in the low bits of the sum.
  const std::uint32_t subnormal = bits_of(float_of(magnitude) + 0.5f) - 0x3f000000u;
  // Rebias the exponent by 112 and round away 13 bits; a carry into 2^16 becomes infinity.
  const std::uint32_t normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  const std::uint32_t finite = pick(magnitude < 0x38800000u, subnormal, normal);
  const std::uint32_t special = pick(magnitude > kInfBits, 0x7e00u, 0x7c00u);
  const std::uint32_t half = pick(magnitude < 0x47800000u, finite, special);  // 2^16 and up
  return {static_cast<std::uint16_t>(sign | half)};
#endif
}

TUCKFOLD_HOST_DEVICE inline float to_float(F16 value) {
#ifdef __CUDA_ARCH__
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
  return result;
#else
  const std::uint32_t sign = static_cast<std::uint32_t>(value.bits & 0x8000u) << 16;
  const std::uint32_t magnitude = static_cast<std::uint32_t>(value.bits & 0x7fffu) << 13;
  // Multiplying by 2^112 rebiases the exponent and normalizes subnormals, exactly.
  const std::uint32_t finite = bits_of(float_of(magnitude) * 0x1p112f);
  const std::uint32_t special = kInfBits | pick(magnitude > 0x0f800000u, 0x00400000u, 0u);
  return float_of(sign | pick(magnitude < 0x0f800000u, finite, special));
#endif
}

// The largest bf16 that is at most `value`, and the smallest that is at least it; for finite input.
// Past the largest finite bf16 they give infinity.
TUCKFOLD_HOST_DEVICE inline BF16 to_bf16_down(float value) {
  const std::uint32_t bits = bits_of(value);
  const std::uint32_t away = (bits & kSignBit) != 0 ? 0xffffu : 0u;
  return {static_cast<std::uint16_t>((bits + away) >> 16)};
}
TUCKFOLD_HOST_DEVICE inline BF16 to_bf16_up(float value) {
  const std::uint32_t bits = bits_of(value);
  const std::uint32_t away = (bits & kSignBit) != 0 ? 0u : 0xffffu;
  return {static_cast<std::uint16_t>((bits + away) >> 16)};
}

}  // namespace tuckfold
