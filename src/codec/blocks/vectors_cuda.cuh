// Sixteen bytes of a dense tensor of f32, f16 or bf16 as floats and back, with the device's
// conversions; the bits are those of base/half.h.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/cuda/view.cuh"
#include "base/device.h"
#include "base/half.h"

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

namespace tuckfold::cuda {

template <class T>
inline constexpr int kVector = 16 / static_cast<int>(sizeof(T));  // elements in 16 bytes

template <class T>
__device__ TUCKFOLD_INLINE float half_to_float(std::uint16_t bits) {
#ifdef __CUDACC__
  if constexpr (std::is_same_v<T, F16>) return __half2float(__ushort_as_half(bits));
#endif
  return to_float(T{bits});
}

// Two values as the halves of a word, by the instruction: NaN becomes 0x7fff, and numbers beyond
// the type's largest become infinities.
template <class T>
__device__ TUCKFOLD_INLINE std::uint32_t floats_to_halves(float low, float high) {
#ifdef __CUDACC__
  if constexpr (std::is_same_v<T, F16>) {
    const __half2 both = __floats2half2_rn(low, high);
    return static_cast<std::uint32_t>(__half_as_ushort(both.y)) << 16 | __half_as_ushort(both.x);
  } else {
    const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    return static_cast<std::uint32_t>(__bfloat16_as_ushort(both.y)) << 16 |
           __bfloat16_as_ushort(both.x);
  }
#else
  const auto half = [](float value) -> std::uint32_t {
    if (value != value) return 0x7fffu;
    if constexpr (std::is_same_v<T, F16>) return to_f16(value).bits;
    return to_bf16(value).bits;
  };
  return half(low) | half(high) << 16;
#endif
}

// Eight values rounded as by from_float. If the sum of their squares is small, none is NaN or
// beyond the type's largest, and the instruction is enough; else they are converted one by one.
// known_tame: whether that is known without the sum.
template <class T>
__device__ TUCKFOLD_INLINE uint4 halves_of(const float* x, bool known_tame = false) {
  constexpr float kTame = std::is_same_v<T, F16> ? kMaxF16 * kMaxF16 : float_of(kInfBits);
  bool tame = known_tame;
  if (!tame) {
    float sum = x[0] * x[0];
#pragma unroll
    for (int i = 1; i < 8; ++i) sum = fmaf(x[i], x[i], sum);
    tame = sum < kTame;
  }
  std::uint32_t pairs[4];
  if (tame) {
#pragma unroll
    for (int i = 0; i < 4; ++i) pairs[i] = floats_to_halves<T>(x[2 * i], x[2 * i + 1]);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      pairs[i] = from_float<T>(x[2 * i]).bits |
                 static_cast<std::uint32_t>(from_float<T>(x[2 * i + 1]).bits) << 16;
    }
  }
  return make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
}

template <class T>
__device__ TUCKFOLD_INLINE void floats_of(const uint4& raw, float* x) {
  const std::uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (sizeof(T) == 4) {
      x[i] = __uint_as_float(words[i]);
    } else {
      x[2 * i] = half_to_float<T>(static_cast<std::uint16_t>(words[i]));
      x[2 * i + 1] = half_to_float<T>(static_cast<std::uint16_t>(words[i] >> 16));
    }
  }
}

template <class T>
__device__ TUCKFOLD_INLINE uint4 vector_of(const float* x) {
  if constexpr (sizeof(T) == 4) {
    return make_uint4(__float_as_uint(x[0]), __float_as_uint(x[1]), __float_as_uint(x[2]),
                      __float_as_uint(x[3]));
  } else {
    return halves_of<T>(x);
  }
}

// The smaller and the larger of two, or NaN where one is.
__device__ TUCKFOLD_INLINE float least(float a, float b) {
#ifdef __CUDA_ARCH__
  float result;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
#else
  return a < b || a != a ? a : b;
#endif
}
__device__ TUCKFOLD_INLINE float most(float a, float b) {
#ifdef __CUDA_ARCH__
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
#else
  return a > b || a != a ? a : b;
#endif
}

// The same for the halves of two words.
template <class T>
__device__ TUCKFOLD_INLINE std::uint32_t least_halves(std::uint32_t a, std::uint32_t b) {
#ifdef __CUDA_ARCH__
  std::uint32_t result;
  if constexpr (std::is_same_v<T, F16>) {
    asm("min.NaN.f16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  } else {
    asm("min.NaN.bf16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  }
  return result;
#else
  const auto pick = [&](int shift) {
    const T x{static_cast<std::uint16_t>(a >> shift)}, y{static_cast<std::uint16_t>(b >> shift)};
    const float first = to_float(x);
    return static_cast<std::uint32_t>((first < to_float(y) || first != first ? x : y).bits)
           << shift;
  };
  return pick(0) | pick(16);
#endif
}
template <class T>
__device__ TUCKFOLD_INLINE std::uint32_t most_halves(std::uint32_t a, std::uint32_t b) {
#ifdef __CUDA_ARCH__
  std::uint32_t result;
  if constexpr (std::is_same_v<T, F16>) {
    asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  } else {
    asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  }
  return result;
#else
  constexpr std::uint32_t kSigns = 0x80008000u;
  return least_halves<T>(a ^ kSigns, b ^ kSigns) ^ kSigns;
#endif
}

// All ones for each half that is not 0 or less; NaN is not.
template <class T>
__device__ TUCKFOLD_INLINE std::uint32_t halves_above_zero(std::uint32_t word) {
#ifdef __CUDACC__
  using Two = std::conditional_t<std::is_same_v<T, F16>, __half2, __nv_bfloat162>;
  const std::uint32_t zero = 0;
  return __hgtu2_mask(*reinterpret_cast<const Two*>(&word), *reinterpret_cast<const Two*>(&zero));
#else
  const auto above = [&](int shift) {
    return !(to_float(T{static_cast<std::uint16_t>(word >> shift)}) <= 0.0f);
  };
  return (above(0) ? 0xffffu : 0u) | (above(16) ? 0xffff0000u : 0u);
#endif
}

// Sixteen bytes of contiguous elements at any element's address, word by word. If they begin within
// a word, the words around them are read whole.
template <class T>
__device__ TUCKFOLD_INLINE uint4 load_anywhere(const T* from) {
  const auto address = reinterpret_cast<std::uintptr_t>(from);
  const auto* words = reinterpret_cast<const std::uint32_t*>(address & ~std::uintptr_t{3});
  if (address % 4 == 0) return make_uint4(words[0], words[1], words[2], words[3]);
  const std::uint32_t a = words[0], b = words[1], c = words[2], d = words[3], e = words[4];
  return make_uint4(__funnelshift_r(a, b, 16), __funnelshift_r(b, c, 16), __funnelshift_r(c, d, 16),
                    __funnelshift_r(d, e, 16));
}

}  // namespace tuckfold::cuda
