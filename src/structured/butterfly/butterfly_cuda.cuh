// What forward and backward kernels of a butterfly share: features of a sample in registers, stages, how
// threads share the work.
#pragma once

#include <algorithm>

#include "base/cuda/kernel.cuh"
#include "base/half.h"
#include "structured/butterfly/butterfly_cuda.h"

namespace tuckfold::structured {

// ---- numbers ------------------------------------------------------------------------------------

__device__ inline float widen(float value) { return value; }
__device__ inline float widen(F16 value) { return to_float(value); }
__device__ inline float widen(BF16 value) { return to_float(value); }
__device__ inline void narrow(float value, float& to) { to = value; }
#ifdef __CUDA_ARCH__
// As to_f16() and to_bf16(), but the conversion comes before the choice, which so is no branch.
__device__ inline void narrow(float value, F16& to) {
  const std::uint16_t bits = detail::cvt_f16(value);
  to.bits = value == value ? bits : kF16Nan;
}
__device__ inline void narrow(float value, BF16& to) {
  const std::uint16_t bits = detail::cvt_bf16(value);
  to.bits = value == value ? bits : kBF16Nan;
}
#else
__device__ inline void narrow(float value, F16& to) { to = to_f16(value); }
__device__ inline void narrow(float value, BF16& to) { to = to_bf16(value); }
#endif

// Two or four numbers in one load.
template <class T>
struct alignas(4 * sizeof(T)) Four {
  T at[4];
};

// Features 2^lo apart from `base` on; those from `limit` on are zero.
template <class T>
__device__ TUCKFOLD_INLINE void load_features(const T* row, int base, int lo, int limit, bool whole,
                                              float (&v)[8]) {
  if (whole && lo == 0) {
    TUCKFOLD_UNROLL
    for (int half = 0; half < 2; ++half) {
      const auto four = *reinterpret_cast<const Four<T>*>(row + base + 4 * half);
      TUCKFOLD_UNROLL
      for (int k = 0; k < 4; ++k) v[4 * half + k] = widen(four.at[k]);
    }
    return;
  }
  TUCKFOLD_UNROLL
  for (int k = 0; k < 8; ++k) {
    const int i = base + (k << lo);
    v[k] = i < limit ? widen(row[i]) : 0.0f;
  }
}

template <class T>
__device__ TUCKFOLD_INLINE void store_features(T* row, int base, int lo, int limit, bool whole,
                                               const float (&v)[8]) {
  if (whole && lo == 0) {
    TUCKFOLD_UNROLL
    for (int half = 0; half < 2; ++half) {
      Four<T> four;
      TUCKFOLD_UNROLL
      for (int k = 0; k < 4; ++k) narrow(v[4 * half + k], four.at[k]);
      *reinterpret_cast<Four<T>*>(row + base + 4 * half) = four;
    }
    return;
  }
  TUCKFOLD_UNROLL
  for (int k = 0; k < 8; ++k) {
    const int i = base + (k << lo);
    if (i < limit) narrow(v[k], row[i]);
  }
}

// Where feature i is in shared memory: features that threads of a warp want at once, eight or 64 apart,
// are in different banks.
__device__ TUCKFOLD_INLINE int place(int i) { return i ^ ((i >> 5) & 7) ^ (((i >> 6) & 3) << 3); }

__device__ TUCKFOLD_INLINE void load_shared(const float* row, int base, int lo, float (&v)[8]) {
  TUCKFOLD_UNROLL
  for (int k = 0; k < 8; ++k) v[k] = row[place(base + (k << lo))];
}
__device__ TUCKFOLD_INLINE void store_shared(float* row, int base, int lo, const float (&v)[8]) {
  TUCKFOLD_UNROLL
  for (int k = 0; k < 8; ++k) row[place(base + (k << lo))] = v[k];
}

// ---- stages -------------------------------------------------------------------------------------

// The place among eight of the first of pair p, whose places differ in `bit`.
__device__ TUCKFOLD_INLINE constexpr int first_of(int p, int bit) {
  return ((p >> bit) << (bit + 1)) | (p & ((1 << bit) - 1));
}

template <int kBit>
__device__ TUCKFOLD_INLINE void turn(const float4 (&t)[4], float (&v)[8]) {
  TUCKFOLD_UNROLL
  for (int p = 0; p < 4; ++p) {
    constexpr int kApart = 1 << kBit;
    const int k = first_of(p, kBit);
    const float a = v[k], b = v[k + kApart];
    v[k] = fmaf(t[p].y, b, t[p].x * a);
    v[k + kApart] = fmaf(t[p].w, b, t[p].z * a);
  }
}

template <int kBit>
__device__ TUCKFOLD_INLINE void turn_back(const float4 (&t)[4], const float (&in)[8], float (&g)[8],
                                          float4 (&sums)[4]) {
  TUCKFOLD_UNROLL
  for (int p = 0; p < 4; ++p) {
    constexpr int kApart = 1 << kBit;
    const int k = first_of(p, kBit);
    const float a = in[k], b = in[k + kApart], ga = g[k], gb = g[k + kApart];
    sums[p].x = fmaf(ga, a, sums[p].x);
    sums[p].y = fmaf(ga, b, sums[p].y);
    sums[p].z = fmaf(gb, a, sums[p].z);
    sums[p].w = fmaf(gb, b, sums[p].w);
    g[k] = fmaf(t[p].z, gb, t[p].x * ga);
    g[k + kApart] = fmaf(t[p].w, gb, t[p].y * ga);
  }
}

// The stages of a group, in order: a register's number must be known when kernels are compiled.
template <int... kBit>
struct Bits {
  static constexpr int kCount = sizeof...(kBit);
  static __device__ TUCKFOLD_INLINE constexpr int at(int stage) {
    const int all[] = {kBit...};
    return all[stage];
  }
  static __device__ TUCKFOLD_INLINE void turn_all(const float4 (&t)[kCount][4], float (&v)[8]) {
    int stage = 0;
    (turn<kBit>(t[stage++], v), ...);
  }
};

// Calls body with the Bits of a group. Growing strides leave out the lowest bits where there are fewer
// than three, shrinking ones the highest.
template <class Body>
__device__ TUCKFOLD_INLINE void with_bits(const CudaGroup& group, Body&& body) {
  const bool grows = group.bit[group.count - 1] == 2;
  if (group.count == 3) {
    grows ? body(Bits<0, 1, 2>()) : body(Bits<2, 1, 0>());
  } else if (group.count == 2) {
    grows ? body(Bits<1, 2>()) : body(Bits<1, 0>());
  } else {
    grows ? body(Bits<2>()) : body(Bits<0>());
  }
}

// The first feature of unit u, eight features 2^lo apart.
__device__ TUCKFOLD_INLINE int base_of(int u, int lo) {
  return ((u >> lo) << (lo + 3)) | (u & ((1 << lo) - 1));
}

// The number of the matrix that takes features i and i + 2^level.
__device__ TUCKFOLD_INLINE int matrix_of(int i, int level, bool tied) {
  const int low = i & ((1 << level) - 1);
  return tied ? low : ((i >> (level + 1)) << level) | low;
}

template <class B, class T>
__device__ TUCKFOLD_INLINE void load_twiddles(const T* twiddle, const CudaGroup& group, int base,
                                              bool tied, float4 (&t)[B::kCount][4]) {
  TUCKFOLD_UNROLL
  for (int stage = 0; stage < B::kCount; ++stage) {
    const int level = group.lo + B::at(stage);
    TUCKFOLD_UNROLL
    for (int p = 0; p < 4; ++p) {
      const int k = first_of(p, B::at(stage));
      const int number = group.first[stage] + matrix_of(base + (k << group.lo), level, tied);
      const auto four = reinterpret_cast<const Four<T>*>(twiddle)[number];
      t[stage][p] =
          make_float4(widen(four.at[0]), widen(four.at[1]), widen(four.at[2]), widen(four.at[3]));
    }
  }
}

// ---- gradients of matrices ----------------------------------------------------------------------

__device__ TUCKFOLD_INLINE void add_to(float4& sum, const float4& more) {
  sum.x += more.x;
  sum.y += more.y;
  sum.z += more.z;
  sum.w += more.w;
}

// What all blocks have at a place, in the order of blocks; the next one's is `apart` further.
__device__ TUCKFOLD_INLINE float4 sum_of_blocks(const float4* at, int blocks, std::int64_t apart) {
  float4 sum = *at;
#pragma unroll 8
  for (int block = 1; block < blocks; ++block) {
    const float4 more = at[block * apart];
    add_to(sum, more);
  }
  return sum;
}

// The sum of all lanes, in all of them.
__device__ TUCKFOLD_INLINE void add_lanes(float4& sum) {
  for (int apart = cuda::kWarp / 2; apart > 0; apart /= 2) {
    sum.x += __shfl_xor_sync(cuda::kAllLanes, sum.x, apart);
    sum.y += __shfl_xor_sync(cuda::kAllLanes, sum.y, apart);
    sum.z += __shfl_xor_sync(cuda::kAllLanes, sum.z, apart);
    sum.w += __shfl_xor_sync(cuda::kAllLanes, sum.w, apart);
  }
}

template <class T>
__device__ TUCKFOLD_INLINE void store_matrix(const float4& sum, T* to) {
  narrow(sum.x, to[0]);
  narrow(sum.y, to[1]);
  narrow(sum.z, to[2]);
  narrow(sum.w, to[3]);
}

// ---- the work of a block ------------------------------------------------------------------------

// How a block's threads share units and samples.
struct Share {
  int first_unit, unit_step, first_row, row_step;

  __device__ explicit Share(int units) {
    const int threads = static_cast<int>(blockDim.x), thread = static_cast<int>(threadIdx.x);
    unit_step = units < threads ? units : threads;
    first_unit = thread % unit_step;
    first_row = thread / unit_step;
    row_step = threads / unit_step;
  }
};

// Samples that a block takes: as many as its shared memory holds, but so that all processors work.
inline int rows_of(const CudaButterfly& s, std::int64_t samples, std::size_t most_bytes,
                   int blocks) {
  const auto row_bytes = static_cast<std::size_t>(s.n) * sizeof(float);
  const auto most = static_cast<std::int64_t>(std::max<std::size_t>(most_bytes / row_bytes, 1));
  const std::int64_t waves = std::max<std::int64_t>(cuda::blocks_for(samples, most * blocks), 1);
  return static_cast<int>(
      std::clamp<std::int64_t>(cuda::blocks_for(samples, waves * blocks), 1, most));
}

inline bool aligned(const void* pointer, int row, std::size_t element) {
  return reinterpret_cast<std::uintptr_t>(pointer) % (4 * element) == 0 && row % 4 == 0;
}

// In butterfly_backward_cuda.cu.
std::size_t butterfly_backward_bytes(const CudaButterfly& s, DType dtype, std::int64_t samples);
void butterfly_backward(const CudaButterfly& s, DType dtype, std::int64_t samples, const void* x,
                        const void* twiddle, const void* grad_y, void* grad_x, void* grad_twiddle,
                        void* grad_bias, void* workspace, void* stream);

}  // namespace tuckfold::structured
