// What the kernels share that do a butterfly of 512 to 4096 features with clusters of blocks. Each block of
// a cluster has 512 features of a sample: strides below 512 stay inside of it. Then blocks exchange features,
// so that each has the ones that larger strides pair. A block needs the matrices of 512 features alone. They
// stay in its shared memory while samples pass by, and no matrix is read twice.
#pragma once

#include <type_traits>

#include "base/cuda/async.cuh"
#include "base/cuda/cluster.cuh"
#include "structured/butterfly/butterfly_cuda.cuh"

namespace tuckfold::structured {

constexpr int kBlockFeatures = 512;

// One product of stages that grow.
inline bool fits_clusters(const CudaButterfly& s) {
  return s.grows && s.n >= kBlockFeatures && s.n <= 8 * kBlockFeatures &&
         cuda::ClusterDevice().has != 0;
}

// Calls body with the number of blocks of a cluster, as a type.
template <int kValue>
struct Int {
  static constexpr int value = kValue;
};
template <class Body>
void with_ranks(int n, Body&& body) {
  if (n == 512) return body(Int<1>());
  if (n == 1024) return body(Int<2>());
  if (n == 2048) return body(Int<4>());
  body(Int<8>());
}

__device__ TUCKFOLD_INLINE constexpr int log2_of(int power) {
  return power == 1 ? 0 : power == 2 ? 1 : power == 4 ? 2 : 3;
}

// The number of the matrix of features i and i + 2^level in a product.
__device__ TUCKFOLD_INLINE int twiddle_of(const CudaButterfly& s, int i, int level) {
  return (s.tied ? (1 << level) - 1 : level * (s.n / 2)) + matrix_of(i, level, s.tied);
}

// Sixteen or eight bytes of numbers, as floats. A bf16 is the upper half of one.
template <class T, int kCount>
__device__ TUCKFOLD_INLINE void widen_all(const T* from, float (&to)[kCount]) {
  if constexpr (sizeof(T) == 4) {
    static_assert(kCount == 4);
    const float4 four = *reinterpret_cast<const float4*>(from);
    to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
  } else {
    unsigned words[kCount / 2];
    if constexpr (kCount == 4) {
      const uint2 two = *reinterpret_cast<const uint2*>(from);
      words[0] = two.x, words[1] = two.y;
    } else {
      static_assert(kCount == 8);
      const uint4 four = *reinterpret_cast<const uint4*>(from);
      words[0] = four.x, words[1] = four.y, words[2] = four.z, words[3] = four.w;
    }
    TUCKFOLD_UNROLL
    for (int i = 0; i < kCount / 2; ++i) {
      if constexpr (std::is_same_v<T, BF16>) {
        to[2 * i] = float_of(words[i] << 16);
        to[2 * i + 1] = float_of(words[i] & 0xffff0000u);
      } else {
        to[2 * i] = to_float(F16{static_cast<std::uint16_t>(words[i])});
        to[2 * i + 1] = to_float(F16{static_cast<std::uint16_t>(words[i] >> 16)});
      }
    }
  }
}

template <class T>
__device__ TUCKFOLD_INLINE float4 widen(const Four<T>& t) {
  float v[4];
  widen_all(t.at, v);
  return make_float4(v[0], v[1], v[2], v[3]);
}

// Starts the copy of a matrix to shared memory: without registers, so that all are on their way at once. By the
// L1 cache (ca): tied matrices are few, and past it every thread of the GPU would ask L2 for the same lines.
template <class T>
__device__ TUCKFOLD_INLINE void start_matrix(Four<T>* to, const Four<T>* from) {
#ifdef __CUDACC__
  const auto shared = static_cast<unsigned>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared), "l"(from),
               "n"(static_cast<int>(sizeof(Four<T>)))
               : "memory");
#else
  *to = *from;
#endif
}

// A row of features in shared memory as it was in x, in pieces of sixteen bytes. Where piece q is: threads
// that read 2^kLog pieces each find them in different banks.
template <int kLog>
__device__ TUCKFOLD_INLINE int piece(int q) {
  return q ^ ((q >> 3) & ((1 << kLog) - 1));
}

// Starts the copies of the block's features of kRows samples; kThreads share them. Samples and features
// that x does not have are zero.
template <int kRows, int kLog, int kThreads, class T>
__device__ TUCKFOLD_INLINE void start_rows(const CudaButterfly& s, const T* x, bool in_pieces,
                                           std::int64_t first, std::int64_t samples, int rank,
                                           int thread, T* to) {
  constexpr int kEach = 16 / sizeof(T), kPieces = kBlockFeatures / kEach;
  // A thread has a piece of every row, or several, or one of every other row.
  constexpr int kOfRow = kPieces > kThreads ? kPieces / kThreads : 1;
  constexpr int kAtOnce = kThreads > kPieces ? kThreads / kPieces : 1;
  const int q = thread % kPieces, at = thread / kPieces;
  const int rows = static_cast<int>(min(samples - first, static_cast<std::int64_t>(kRows)));
  const T* from = x + (first + at) * s.in + rank * kBlockFeatures + q * kEach;
  T* place = to + (at * kPieces + piece<kLog>(q)) * kEach;
  const int left = s.in - rank * kBlockFeatures - q * kEach;
  if (!in_pieces) {
    for (int i = 0; i < kRows / kAtOnce * kOfRow; ++i) {
      const int r = i / kOfRow * kAtOnce, past = i % kOfRow * kThreads * kEach;
      const int has = at + r < rows ? left - past : 0;
      for (int e = 0; e < kEach; ++e) {
        place[r * kBlockFeatures + past + e] =
            e < has ? from[static_cast<std::int64_t>(r) * s.in + past + e] : T{};
      }
    }
    return;
  }
  TUCKFOLD_UNROLL
  for (int i = 0; i < kRows / kAtOnce * kOfRow; ++i) {
    const int r = i / kOfRow * kAtOnce, past = i % kOfRow * kThreads * kEach;
    T* to_here = place + r * kBlockFeatures + past;
    if (at + r < rows && past < left) {
      cuda::copy_async(to_here, from + static_cast<std::int64_t>(r) * s.in + past);
    } else {
      *reinterpret_cast<uint4*>(to_here) = uint4{0, 0, 0, 0};
    }
  }
}
// Whether rows are whole pieces.
inline bool in_pieces(const void* x, int features, std::size_t element) {
  return reinterpret_cast<std::uintptr_t>(x) % 16 == 0 && features * element % 16 == 0;
}

// kFeatures of the thread that follow each other, for kRows samples that do; from what start_rows() left.
template <int kLog, int kFeatures, int kRows, class T>
__device__ TUCKFOLD_INLINE void take_input(const T* input, int row, int unit,
                                           float (&v)[kFeatures][kRows]) {
  constexpr int kEach = 16 / sizeof(T), kCount = kFeatures / kEach;
  TUCKFOLD_UNROLL
  for (int r = 0; r < kRows; ++r) {
    TUCKFOLD_UNROLL
    for (int m = 0; m < kCount; ++m) {
      const int at = (row + r) * (kBlockFeatures / kEach) + piece<kLog>(unit * kCount + m);
      float wide[kEach];
      widen_all(input + at * kEach, wide);
      TUCKFOLD_UNROLL
      for (int i = 0; i < kEach; ++i) v[m * kEach + i][r] = wide[i];
    }
  }
}

// Four samples of a feature.
template <int kRows>
__device__ TUCKFOLD_INLINE float4 four_rows(const float (&v)[kRows], int quad = 0) {
  return make_float4(v[4 * quad], v[4 * quad + 1], v[4 * quad + 2], v[4 * quad + 3]);
}
template <int kRows>
__device__ TUCKFOLD_INLINE void take_rows(const float4& four, float (&v)[kRows], int quad = 0) {
  v[4 * quad] = four.x;
  v[4 * quad + 1] = four.y;
  v[4 * quad + 2] = four.z;
  v[4 * quad + 3] = four.w;
}

// The stages of bits kFirst and up of a feature's place among kFeatures. The matrices of a thread's pairs
// are kUnits apart. The last stage adds bias, if that is given.
template <int kFirst, int kUnits, class T, int kFeatures, int kRows>
__device__ TUCKFOLD_INLINE void turn_rows(const Four<T>* matrices, float (&v)[kFeatures][kRows],
                                          const float* bias = nullptr) {
  TUCKFOLD_UNROLL
  for (int bit = kFirst; 1 << bit < kFeatures; ++bit) {
    TUCKFOLD_UNROLL
    for (int p = 0; p < kFeatures / 2; ++p) {
      const float4 t = widen(matrices[((bit - kFirst) * (kFeatures / 2) + p) * kUnits]);
      const int k = first_of(p, bit), other = k + (1 << bit);
      TUCKFOLD_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const float a = v[k][r], b = v[other][r];
        const bool adds = bias != nullptr && 2 << bit == kFeatures;
        v[k][r] = fmaf(t.y, b, adds ? fmaf(t.x, a, bias[k]) : t.x * a);
        v[other][r] = fmaf(t.w, b, adds ? fmaf(t.z, a, bias[other]) : t.z * a);
      }
    }
  }
}

// In butterfly_cluster_cuda.cu and butterfly_cluster_backward_cuda.cu, for f32.
void cluster_forward(const CudaButterfly& s, std::int64_t samples, const void* x,
                     const void* twiddle, const void* bias, void* y, void* stream);
std::size_t cluster_backward_bytes(const CudaButterfly& s, std::int64_t samples);
void cluster_backward(const CudaButterfly& s, std::int64_t samples, const void* x,
                      const void* twiddle, const void* grad_y, void* grad_x, void* grad_twiddle,
                      void* grad_bias, void* workspace, void* stream);

}  // namespace tuckfold::structured
