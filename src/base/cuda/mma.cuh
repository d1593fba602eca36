// Products of small matrices by tensor cores, and the loads of shared memory that feed them. All lanes of a
// warp take part. Lane 4 g + t has of
//
//   a, 16 x 16:  rows g, g + 8, g, g + 8 of columns 2 t, 2 t, 2 t + 8, 2 t + 8, and of the next ones
//   b, 16 x 8:   rows 2 t, 2 t + 8 of column g, and the next ones
//   c, 16 x 8:   rows g, g, g + 8, g + 8 of columns 2 t, 2 t + 1, 2 t, 2 t + 1
//
// where a word has two numbers, the first of them below.
#pragma once

#include <type_traits>

#include "base/cuda/kernel.cuh"
#include "base/half.h"

namespace tuckfold::cuda {

// c += a b, of f16 or bf16, summed up in f32.
template <class T>
__device__ TUCKFOLD_INLINE void multiply_add(float (&c)[4], const uint4& a, unsigned b0,
                                             unsigned b1) {
#ifdef __CUDACC__
  if constexpr (std::is_same_v<T, BF16>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
  }
#else
  auto& block = emulate::block();
  const int g = block.lane() / 4, t = block.lane() % 4;
  const auto number = [](unsigned word, int k) {
    return to_float(T{static_cast<std::uint16_t>(k % 2 == 0 ? word : word >> 16)});
  };
  float rows[2][16], columns[2][16];
  for (int half = 0; half < 2; ++half) {
    const uint2* words = block.exchange(half == 0 ? uint2{a.x, a.y} : uint2{a.z, a.w});
    for (int k = 0; k < 8; ++k) {
      rows[0][8 * half + k] = number(words[4 * g + k / 2].x, k);
      rows[1][8 * half + k] = number(words[4 * g + k / 2].y, k);
    }
  }
  const uint2* words = block.exchange(uint2{b0, b1});
  for (int k = 0; k < 16; ++k) {
    for (int i = 0; i < 2; ++i) {
      const uint2 two = words[4 * (2 * t + i) + k % 8 / 2];
      columns[i][k] = number(k < 8 ? two.x : two.y, k);
    }
  }
  for (int i = 0; i < 4; ++i) {
    for (int k = 0; k < 16; ++k) c[i] += rows[i / 2][k] * columns[i % 2][k];
  }
#endif
}

// Four 8 x 8 matrices of halves: lane 8 i + r says where row r of matrix i is. Lane 4 g + t gets of each
// columns 2 t and 2 t + 1 of row g; transposed, rows 2 t and 2 t + 1 of column g.
template <bool kTransposed>
__device__ TUCKFOLD_INLINE uint4 load_matrices(const void* row) {
#ifdef __CUDACC__
  uint4 v;
  const auto at = static_cast<unsigned>(__cvta_generic_to_shared(row));
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(at)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(at)
                 : "memory");
  }
  return v;
#else
  auto& block = emulate::block();
  const int g = block.lane() / 4, t = block.lane() % 4;
  const void* const* rows = block.exchange(row);
  unsigned v[4];
  for (int i = 0; i < 4; ++i) {
    const auto at = [&](int r, int k) {
      return unsigned{static_cast<const std::uint16_t*>(rows[8 * i + r])[k]};
    };
    v[i] =
        kTransposed ? at(2 * t, g) | at(2 * t + 1, g) << 16 : at(g, 2 * t) | at(g, 2 * t + 1) << 16;
  }
  // Nobody may change what others still read.
  block.wait_for_warp();
  return {v[0], v[1], v[2], v[3]};
#endif
}

// Two numbers as a word, the first one below.
template <class T>
__device__ TUCKFOLD_INLINE unsigned pair_of(float first, float second) {
#ifdef __CUDACC__
  unsigned word;
  if constexpr (std::is_same_v<T, BF16>) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
  }
  return word;
#else
  if constexpr (std::is_same_v<T, BF16>) {
    return to_bf16(first).bits | unsigned{to_bf16(second).bits} << 16;
  } else {
    return to_f16(first).bits | unsigned{to_f16(second).bits} << 16;
  }
#endif
}

}  // namespace tuckfold::cuda
