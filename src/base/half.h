// f16 and bf16 to and from f32, rounding to nearest, ties to even: the same bits on every machine,
// whatever its conversion instructions do with subnormals and NaN. Without branches, so that
// compilers make vectors of loops over them. Expects the environment of FpEnv.
//
// What is stored as a NaN is the canonical one of its type: positive, quiet, without payload. The
// sign and payload of a NaN that is only computed with mean nothing, and differ between machines.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include "base/device.h"

namespace tuckfold {

struct F16 {
  std::uint16_t bits;
};
struct BF16 {
  std::uint16_t bits;
};

TUCKFOLD_HOST_DEVICE inline constexpr std::uint32_t bits_of(float value) {
  return std::bit_cast<std::uint32_t>(value);
}
TUCKFOLD_HOST_DEVICE inline constexpr float float_of(std::uint32_t bits) {
  return std::bit_cast<float>(bits);
}

inline constexpr std::uint32_t kSignBit = 0x80000000u;
inline constexpr std::uint32_t kInfBits = 0x7f800000u;
inline constexpr std::uint32_t kNanBits = 0x7fc00000u;
inline constexpr std::uint16_t kF16Nan = 0x7e00u, kBF16Nan = 0x7fc0u;
inline constexpr std::uint64_t kF64Nan = 0x7ff8000000000000u;
// The largest finite numbers.
inline constexpr float kMaxF16 = 65504.0f, kMaxBF16 = 0x1.fep127f;

// The value, or the canonical NaN.
TUCKFOLD_HOST_DEVICE inline float canonical(float value) {
  return value == value ? value : float_of(kNanBits);
}

// Selects without a branch: compilers do not vectorize loops in which they make `?:` a branch.
TUCKFOLD_HOST_DEVICE inline std::uint32_t pick(bool first, std::uint32_t a, std::uint32_t b) {
  const std::uint32_t mask = 0u - static_cast<std::uint32_t>(first);
  return (a & mask) | (b & ~mask);
}

namespace detail {

// kSaturate: finite numbers beyond the largest become that.
template <bool kSaturate>
TUCKFOLD_INLINE std::uint16_t bf16_bits(float value) {
  const std::uint32_t bits = bits_of(value), magnitude = bits & ~kSignBit;
  std::uint32_t half = 0x7fffu + ((bits >> 16) & 1u);
  // The largest number and those above it are not rounded.
  if constexpr (kSaturate) half = pick(magnitude < bits_of(kMaxBF16), half, 0u);
  const std::uint32_t number = (bits + half) >> 16;
  return static_cast<std::uint16_t>(magnitude > kInfBits ? kBF16Nan : number);
}

template <bool kSaturate>
TUCKFOLD_INLINE std::uint16_t f16_bits(float value) {
  const std::uint32_t bits = bits_of(value);
  const std::uint32_t sign = (bits & kSignBit) >> 16, magnitude = bits & ~kSignBit;
  const std::uint32_t most = bits_of(kMaxF16);
  const std::uint32_t limited = kSaturate && magnitude > most ? most : magnitude;
  // Below 2^-14, in units of 2^-24: adding 0.5 leaves the value's multiple of that, rounded to
  // even, in the low bits of the sum.
  const std::uint32_t subnormal = bits_of(float_of(limited) + 0.5f) - 0x3f000000u;
  // Rebias the exponent by 112 and round away 13 bits; a carry into 2^16 becomes infinity.
  const std::uint32_t normal = (limited - 0x38000000u + 0xfffu + ((limited >> 13) & 1u)) >> 13;
  const std::uint32_t finite = pick(limited < 0x38800000u, subnormal, normal);
  const std::uint32_t infinite_from = kSaturate ? kInfBits : 0x47800000u;  // 2^16
  const std::uint32_t half = sign | pick(magnitude < infinite_from, finite, 0x7c00u);
  return static_cast<std::uint16_t>(pick(magnitude > kInfBits, kF16Nan, half));
}

#ifdef __CUDA_ARCH__
// A GPU's instructions give the same bits, without saturating, but 0x7fff for NaN.
__device__ inline std::uint16_t cvt_bf16(float value) {
  std::uint16_t bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
__device__ inline std::uint16_t cvt_f16(float value) {
  std::uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
#endif

// Saturates the bits that such an instruction gives; they hardly ever change.
TUCKFOLD_HOST_DEVICE inline std::uint16_t saturated(std::uint16_t bits, float value,
                                                    std::uint16_t infinity, std::uint16_t nan) {
  if ((bits & 0x7fffu) < infinity) return bits;
  if (value != value) return nan;
  const bool finite = (bits_of(value) & ~kSignBit) < kInfBits;
  return static_cast<std::uint16_t>(bits - (finite ? 1u : 0u));  // the number before infinity
}

}  // namespace detail

TUCKFOLD_HOST_DEVICE inline BF16 to_bf16(float value) {
#ifdef __CUDA_ARCH__
  return {value == value ? detail::cvt_bf16(value) : kBF16Nan};
#else
  return {detail::bf16_bits<false>(value)};
#endif
}
TUCKFOLD_HOST_DEVICE inline F16 to_f16(float value) {
#ifdef __CUDA_ARCH__
  return {value == value ? detail::cvt_f16(value) : kF16Nan};
#else
  return {detail::f16_bits<false>(value)};
#endif
}

TUCKFOLD_HOST_DEVICE inline float to_float(BF16 value) {
  return float_of(static_cast<std::uint32_t>(value.bits) << 16);
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

// ---- what decoders store: a number that is finite stays so --------------------------------------

// Finite numbers beyond the type's largest become that; infinities stay.
TUCKFOLD_HOST_DEVICE inline F16 to_f16_saturated(float value) {
#ifdef __CUDA_ARCH__
  return {detail::saturated(detail::cvt_f16(value), value, 0x7c00u, kF16Nan)};
#else
  return {detail::f16_bits<true>(value)};
#endif
}
TUCKFOLD_HOST_DEVICE inline BF16 to_bf16_saturated(float value) {
#ifdef __CUDA_ARCH__
  return {detail::saturated(detail::cvt_bf16(value), value, 0x7f80u, kBF16Nan)};
#else
  return {detail::bf16_bits<true>(value)};
#endif
}
TUCKFOLD_HOST_DEVICE inline float to_f32_saturated(double value) {
  const float nearest = static_cast<float>(value);
  const bool infinite = (bits_of(nearest) & ~kSignBit) == kInfBits;
  const bool finite = (value < 0 ? -value : value) <= std::numeric_limits<double>::max();
  // The number before infinity.
  return float_of(bits_of(nearest) -
                  (static_cast<unsigned>(infinite) & static_cast<unsigned>(finite)));
}
TUCKFOLD_HOST_DEVICE inline double to_f64(float value) {
  return value == value ? static_cast<double>(value) : std::bit_cast<double>(kF64Nan);
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
