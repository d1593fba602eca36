// A thread's block of 64 floats as words of the tensor's dtype.
#pragma once

#include <cstdint>

#include "codec/blocks/vectors_cuda.cuh"

namespace tuckfold::cuda::detail {

__device__ TUCKFOLD_INLINE int at_most(int i, int last) { return i < last ? i : last; }

// A value as F16 or BF16, by from_float. Rarely called, so not inlined.
__device__ TUCKFOLD_NOINLINE std::uint32_t half_bits(DType dtype, float value) {
  return dtype == DType::F16 ? from_float<F16>(value).bits : from_float<BF16>(value).bits;
}

// Where value i of vector v belongs in a block by rows.
template <bool kColumns>
__device__ TUCKFOLD_INLINE constexpr int in_block(int v, int i) {
  return kColumns ? i * 8 + v : v * 8 + i;
}

// A block as words of its dtype, eight rows or columns one after the other. As halves_of converts
// them, but with one test of all values for those that the instruction converts differently.
template <class T, bool kColumns = false>
struct BlockWords {
  static constexpr int kEach = 2 * static_cast<int>(sizeof(T));  // words of eight values
  std::uint32_t words[8 * kEach];

  // known_tame: whether that test is known to pass.
  __device__ TUCKFOLD_INLINE BlockWords([[maybe_unused]] DType dtype, const float* x,
                                        [[maybe_unused]] bool known_tame) {
    const auto value = [&](int i) { return x[in_block<kColumns>(i / 8, i % 8)]; };
    if constexpr (sizeof(T) == 4) {
#pragma unroll
      for (int i = 0; i < 64; ++i) words[i] = bits_of(value(i));
    } else {
      bool tame = known_tame;
      if (!tame) {
        float sums[4] = {};
#pragma unroll
        for (int i = 0; i < 64; ++i) sums[i % 4] = fmaf(x[i], x[i], sums[i % 4]);
        const float sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
        tame = sum < (dtype == DType::F16 ? kMaxF16 * kMaxF16 : float_of(kInfBits));
      }
      if (tame && dtype == DType::F16) {
#pragma unroll
        for (int i = 0; i < 32; ++i)
          words[i] = floats_to_halves<F16>(value(2 * i), value(2 * i + 1));
      } else if (tame) {
#pragma unroll
        for (int i = 0; i < 32; ++i) {
          words[i] = floats_to_halves<BF16>(value(2 * i), value(2 * i + 1));
        }
      } else {
#pragma unroll
        for (int i = 0; i < 32; ++i) {
          words[i] = half_bits(dtype, value(2 * i)) | half_bits(dtype, value(2 * i + 1)) << 16;
        }
      }
    }
  }
  __device__ TUCKFOLD_INLINE uint4 four(int i) const {
    return make_uint4(words[i], words[i + 1], words[i + 2], words[i + 3]);
  }
  // Element i of row or column v.
  __device__ TUCKFOLD_INLINE T element(int v, int i) const {
    if constexpr (sizeof(T) == 4) {
      return float_of(words[8 * v + i]);
    } else {
      return T{static_cast<std::uint16_t>(words[4 * v + i / 2] >> (16 * (i % 2)))};
    }
  }
};

}  // namespace tuckfold::cuda::detail
