// Butterflies of halves by tensor cores. The first kLow stages mix features whose numbers differ in the low
// bits alone: they are a matrix of 2^kLow x 2^kLow for each of the 2^kHigh groups of neighbours. The others
// are one of 2^kHigh x 2^kHigh for each of the 2^kLow groups of features that are 2^kLow apart. A kernel
// multiplies the stages out, which needs no sums: from feature j to feature i leads one path, and the entry
// is the product of the twiddles on it.
//
// A warp has 64 features, a block of 8 warps 512, in both halves of the work. Between them samples of a
// feature are side by side.
#pragma once

#include "base/cuda/async.cuh"
#include "base/cuda/cluster.cuh"
#include "base/cuda/mma.cuh"
#include "structured/butterfly/butterfly_cluster_cuda.cuh"

namespace tuckfold::structured {

constexpr int kTileSamples = 32;  // that a warp has at once
constexpr int kTileWarps = 8;

template <int kLowBits, int kHighBits>
struct Split {
  static_assert(kLowBits >= 5 && kLowBits <= 6 && kHighBits >= 4 && kHighBits <= 6);
  static constexpr int kLow = kLowBits, kHigh = kHighBits;
  static constexpr int kFeatures = 1 << (kLow + kHigh);
  static constexpr int kRanks = kFeatures / kBlockFeatures;
  static constexpr int kLowSteps = (1 << kLow) / 16, kHighSteps = (1 << kHigh) / 16;
  // Matrices of a warp in the second half.
  static constexpr int kOfWarp = 64 >> kHigh;
  // Low numbers of a block in the second half, side by side.
  static constexpr int kBeside = (1 << kLow) / kRanks;
  // uint4s of fragments of each half: four tiles of 16 rows for 64 features.
  static constexpr int kLowWords = kFeatures / 64 * 4 * kLowSteps * 32;
  static constexpr int kHighWords = kFeatures / 64 * 4 * kHighSteps * 32;
};

// Calls body with the Split of n features.
template <class Body>
void with_split(int n, Body&& body) {
  if (n == 512) return body(Split<5, 4>());
  if (n == 1024) return body(Split<5, 5>());
  if (n == 2048) return body(Split<6, 5>());
  body(Split<6, 6>());
}

// Which of 64 neighbouring features is number (step, place) of the sums over them: so that lane t has eight
// that follow each other, and again eight, for two loads of sixteen bytes.
__device__ TUCKFOLD_INLINE constexpr int summed(int step, int t, int half) {
  return step / 2 * 32 + t * 8 + step % 2 * 4 + half * 2;
}

// ---- between the halves of the work ----------------------------------------------------------------

// A block's low numbers for each of the 2^kHigh high numbers: rows of 64 bytes, 32 samples. Where sixteen bytes
// of a row are: lanes find what they want at once in different banks, along each of the three axes. What goes
// from a warp to a block is in one piece.
template <class S>
struct Between {
  static constexpr int kBytes = kBlockFeatures * 64;
  __device__ TUCKFOLD_INLINE static int at(int low, int high, int piece) {
    return (high * S::kBeside + (low ^ (high & 1))) * 64 +
           ((piece ^ (high >> 1) ^ (low >> 1) ^ (low >> 3)) & 3) * 16;
  }
};

// ---- matrices -----------------------------------------------------------------------------------

// Products of twiddles on the ways from feature j to feature i, and from the one that differs from j in the
// lowest of these bits, through stages kFirst to kLast - 1. They differ in the first stage alone.
template <int kFirst, int kLast, class T>
__device__ TUCKFOLD_INLINE float2 entries(const CudaButterfly& s, const T* twiddle, int i, int j) {
  float product = 1;
  TUCKFOLD_UNROLL
  for (int level = kFirst + 1; level < kLast; ++level) {
    const int below = (1 << level) - 1;
    const int number = twiddle_of(s, (i & below) | (j & ~below), level);
    product *= widen(twiddle[4 * number + 2 * (i >> level & 1) + (j >> level & 1)]);
  }
  const int below = (1 << kFirst) - 1;
  const T* both =
      twiddle + 4 * twiddle_of(s, (i & below) | (j & ~below), kFirst) + 2 * (i >> kFirst & 1);
  return make_float2(product * widen(both[0]), product * widen(both[1]));
}
// The same from feature j to feature i, and to the one that differs from i in the lowest bit: in all stages.
template <int kFirst, int kLast, class T>
__device__ TUCKFOLD_INLINE float2 entries_to(const CudaButterfly& s, const T* twiddle, int i,
                                             int j) {
  const int bit = j >> kFirst & 1;
  const float2 first = entries<kFirst, kLast>(s, twiddle, i, j);
  const float2 second = entries<kFirst, kLast>(s, twiddle, i | 1 << kFirst, j);
  return bit == 0 ? make_float2(first.x, second.x) : make_float2(first.y, second.y);
}

// A word of a fragment of the matrices of low bits: `at` counts words, lanes, steps of the sum, and tiles of 16
// rows, four for a warp.
template <class T, class S>
__device__ TUCKFOLD_INLINE unsigned low_word(const CudaButterfly& s, const T* twiddle, int at) {
  const int k = at % 4, lane = at / 4 % 32, g = lane / 4, t = lane % 4;
  const int step = at / 128 % S::kLowSteps, tile = at / (128 * S::kLowSteps);
  // Tiles of a warp's second matrix, where it has two, are summed over that one's features.
  const int steps = tile % 4 * 16 / (1 << S::kLow) * S::kLowSteps + step;
  const float2 two = entries<0, S::kLow>(s, twiddle, tile * 16 + k % 2 * 8 + g,
                                         tile / 4 * 64 + summed(steps, t, k / 2));
  return cuda::pair_of<T>(two.x, two.y);
}

// The same of high bits: words, lanes, steps, tiles, and the low numbers of all features.
template <class T, class S, bool kTransposed>
__device__ TUCKFOLD_INLINE unsigned high_word(const CudaButterfly& s, const T* twiddle, int at) {
  constexpr int kLast = S::kLow + S::kHigh;
  const int k = at % 4, lane = at / 4 % 32, g = lane / 4, t = lane % 4;
  const int step = at / 128 % S::kHighSteps, tile = at / (128 * S::kHighSteps) % S::kHighSteps;
  const int low = at / (128 * S::kHighSteps * S::kHighSteps);
  const int row = (tile * 16 + k % 2 * 8 + g) << S::kLow | low;
  const int column = (step * 16 + k / 2 * 8 + 2 * t) << S::kLow | low;
  const float2 two = kTransposed ? entries_to<S::kLow, kLast>(s, twiddle, column, row)
                                 : entries<S::kLow, kLast>(s, twiddle, row, column);
  return cuda::pair_of<T>(two.x, two.y);
}

// ---- a warp's 64 features of a tile of samples ------------------------------------------------------

constexpr int kInputBytes = kTileSamples * 128;

// Which sample the column g of product n of 16 x 8 is: so that what a lane gets of four products is eight
// samples that follow each other. Applied twice, it gives back 8 n + g.
__device__ TUCKFOLD_INLINE constexpr int turned(int n, int g) { return g / 2 * 8 + n * 2 + g % 2; }

// The same number, of which compilers do not know that. Addresses that depend on it are computed where they are
// needed, and do not wait in registers, which matrices need, from one tile to the next.
__device__ TUCKFOLD_INLINE int fresh(int number) {
#ifdef __CUDACC__
  asm volatile("" : "+r"(number));
#endif
  return number;
}

// Groups of copies, see async.cuh.
__device__ TUCKFOLD_INLINE void end_copies() {
#ifdef __CUDACC__
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
template <int kNewest>
__device__ TUCKFOLD_INLINE void wait_for_older_copies() {
#ifdef __CUDACC__
  asm volatile("cp.async.wait_group %0;" ::"n"(kNewest) : "memory");
#endif
}

// Starts the copy of eight numbers of which there are `has`; the others are zero. In pieces, rows are whole
// ones of eight.
template <class T>
__device__ TUCKFOLD_INLINE void start_eight(unsigned char* to, const T* from, int has,
                                            bool in_pieces) {
  if (in_pieces && has > 0) {
    cuda::copy_async(to, from);
  } else if (has <= 0) {
    *reinterpret_cast<uint4*>(to) = uint4{0, 0, 0, 0};
  } else {
#pragma unroll 1
    for (int i = 0; i < 8; ++i) reinterpret_cast<T*>(to)[i] = i < has ? from[i] : T{};
  }
}
// Stores as many words of two numbers, of which `has` numbers have a place. Sixteen bytes go past the
// first cache, which is small beside so much shared memory: it would pass on parts of lines again and again.
template <int kWords, class T>
__device__ TUCKFOLD_INLINE void store_words(T* to, const unsigned* words, int has, bool in_pieces) {
  if (has <= 0) return;
  if (!in_pieces) {
    TUCKFOLD_UNROLL
    for (int i = 0; i < 2 * kWords; ++i) {
      if (i < has) to[i].bits = static_cast<std::uint16_t>(words[i / 2] >> (i % 2 * 16));
    }
  } else if constexpr (kWords == 4) {
    cuda::store_away(reinterpret_cast<uint4*>(to), uint4{words[0], words[1], words[2], words[3]});
  } else if constexpr (kWords == 2) {
    *reinterpret_cast<uint2*>(to) = uint2{words[0], words[1]};
  } else {
    *reinterpret_cast<unsigned*>(to) = words[0];
  }
}

// Starts the copies. Eight pieces of sixteen bytes are a row; those that lanes read at once are in different
// banks.
template <int kSamples = kTileSamples, class T>
__device__ TUCKFOLD_INLINE void start_tile(const T* x, int in, bool in_pieces, int feature,
                                           std::int64_t first, std::int64_t samples, int lane,
                                           unsigned char* to) {
  const int q = lane % 8;
  if (in_pieces && feature + 64 <= in && first + kSamples <= samples) {
    const T* from = x + (first + lane / 8) * in + feature + 8 * q;
    unsigned char* place = to + lane / 8 * 128 + (q ^ (lane / 8 % 2 * 4)) * 16;
    TUCKFOLD_UNROLL
    for (int i = 0; i < kSamples / 4; ++i) {
      cuda::copy_async(place + i * 512, from);
      from += 4 * static_cast<std::int64_t>(in);
    }
    return;
  }
#pragma unroll 1
  for (int i = 0; i < kSamples / 4; ++i) {
    const int row = 4 * i + lane / 8, at = feature + 8 * q;
    start_eight(to + row * 128 + (q ^ (row % 2 * 4)) * 16, x + (first + row) * in + at,
                first + row < samples ? in - at : 0, in_pieces);
  }
}

// 16 features each of eight samples each, as products take them; of 32 samples, or of 16.
template <int kEights = 4>
struct TileWords {
  unsigned at[kEights][4][2];  // samples, features

  __device__ TUCKFOLD_INLINE explicit TileWords(const unsigned char* from, int lane) {
    const int g = lane / 4, t = lane % 4;
    TUCKFOLD_UNROLL
    for (int i = 0; i < 2 * kEights; ++i) {
      const int n = i / 2, k = i % 2 * 2, q = i % 2 * 4 + t;
      const int row = g / 2 * (2 * kEights) + n * 2 + g % 2;  // turned(n, g), of 32
      const uint4 v = *reinterpret_cast<const uint4*>(from + row * 128 + (q ^ (g % 2 * 4)) * 16);
      at[n][k][0] = v.x, at[n][k][1] = v.y, at[n][k + 1][0] = v.z, at[n][k + 1][1] = v.w;
    }
  }
};

// Sixteen bytes of what a lane has of four products: eight samples of row g, or of row g + 8.
template <class T>
__device__ TUCKFOLD_INLINE uint4 eight_samples(const float (&c)[4][4], int half) {
  return uint4{cuda::pair_of<T>(c[0][2 * half], c[0][2 * half + 1]),
               cuda::pair_of<T>(c[1][2 * half], c[1][2 * half + 1]),
               cuda::pair_of<T>(c[2][2 * half], c[2][2 * half + 1]),
               cuda::pair_of<T>(c[3][2 * half], c[3][2 * half + 1])};
}

// The stages of low bits. Calls store with the first row of eight, of the warp's 64, and a lane's samples.
template <class T, class S, class Store>
__device__ TUCKFOLD_INLINE void low_products(const uint4 (&low)[4][S::kLowSteps],
                                             const TileWords<>& x, Store&& store) {
  TUCKFOLD_UNROLL
  for (int m = 0; m < 4; ++m) {
    float c[4][4] = {};
    TUCKFOLD_UNROLL
    for (int k = 0; k < S::kLowSteps; ++k) {
      const int step = m * 16 / (1 << S::kLow) * S::kLowSteps + k;
      TUCKFOLD_UNROLL
      for (int n = 0; n < 4; ++n) {
        cuda::multiply_add<T>(c[n], low[m][k], x.at[n][step][0], x.at[n][step][1]);
      }
    }
    TUCKFOLD_UNROLL
    for (int half = 0; half < 2; ++half) store(m * 16 + half * 8, eight_samples<T>(c, half));
  }
}

// The words of a matrix of high bits times what it multiplies, from rows of 64 bytes: where(high, piece).
template <class S, class Where>
__device__ TUCKFOLD_INLINE void load_high(unsigned (&v)[S::kHighSteps][4][2], int lane,
                                          Where&& where) {
  if constexpr (S::kHighSteps == 1) {
    TUCKFOLD_UNROLL
    for (int n = 0; n < 4; n += 2) {  // two of eight samples
      const uint4 w = cuda::load_matrices<true>(where(lane % 16, n + lane / 16));
      v[0][n][0] = w.x, v[0][n][1] = w.y, v[0][n + 1][0] = w.z, v[0][n + 1][1] = w.w;
    }
  } else {
    TUCKFOLD_UNROLL
    for (int i = 0; i < S::kHighSteps * 2; ++i) {
      const int k = i / 4 * 2, n = i % 4;
      const uint4 w = cuda::load_matrices<true>(where(k * 16 + lane, n));
      v[k][n][0] = w.x, v[k][n][1] = w.y, v[k + 1][n][0] = w.z, v[k + 1][n][1] = w.w;
    }
  }
}

// ---- the low stages alone ---------------------------------------------------------------------------

// What is between the halves, in memory of the device: for each tile of samples, each low number and each high
// number, 32 samples in 64 bytes.
template <class S>
__device__ TUCKFOLD_INLINE std::int64_t between_at(std::int64_t tile, int low, int high) {
  return (tile * S::kFeatures + (low << S::kHigh) + high) * 64;
}
// Where sixteen bytes of a row of 64 are in shared memory.
__device__ TUCKFOLD_INLINE int piece_at(int row, int piece) {
  return row * 64 + ((piece ^ (row >> 1)) & 3) * 16;
}

// A block's place: `rank` of the 512 features, and a share of the samples.
struct Share512 {
  int rank, share, shares, warp, lane;
  __device__ TUCKFOLD_INLINE explicit Share512(int ranks)
      : rank(static_cast<int>(blockIdx.x) % ranks),
        share(static_cast<int>(blockIdx.x) / ranks),
        shares(static_cast<int>(gridDim.x) / ranks),
        warp(static_cast<int>(threadIdx.x) / 32),
        lane(static_cast<int>(threadIdx.x) % 32) {}
};
__device__ TUCKFOLD_INLINE std::int64_t tiles_of(std::int64_t samples) {
  return (samples + kTileSamples - 1) / kTileSamples;
}

template <class T>
struct LowArgs {
  CudaButterfly s;
  const T* x;
  const uint4* low;
  unsigned char* v;  // what the stages give
  std::int64_t samples;
  bool whole_x;
};

template <class T, class S, int kAhead>
__global__ void __launch_bounds__(256, 1) low_kernel(const __grid_constant__ LowArgs<T> args) {
  const CudaButterfly& s = args.s;
  const Share512 of(S::kRanks);
  const int features = of.rank * kBlockFeatures + of.warp * 64;
  unsigned char* memory = cuda::shared_memory() + of.warp * kInputBytes;
  const auto input = [&](int turn) { return memory + turn % kAhead * kTileWarps * kInputBytes; };
  const std::int64_t tiles = tiles_of(args.samples);
  const auto start = [&](std::int64_t tile, int turn) {
    if (tile < tiles) {
      start_tile(args.x, s.in, args.whole_x, features, tile * kTileSamples, args.samples,
                 fresh(of.lane), input(turn));
    }
    end_copies();
  };
  TUCKFOLD_UNROLL
  for (int i = 0; i < kAhead; ++i) start(of.share + std::int64_t{i} * of.shares, i);
  uint4 low[4][S::kLowSteps];
  const uint4* from = args.low + features / 64 * (4 * S::kLowSteps * 32) + of.lane;
  TUCKFOLD_UNROLL
  for (int i = 0; i < 4 * S::kLowSteps; ++i) low[i / S::kLowSteps][i % S::kLowSteps] = from[i * 32];

  int turn = 0;
  for (std::int64_t tile = of.share; tile < tiles; tile += of.shares, ++turn) {
    wait_for_older_copies<kAhead - 1>();
    __syncwarp();
    const int lane = fresh(of.lane);
    const TileWords<> words(input(turn), lane);
    __syncwarp();
    start(tile + std::int64_t{kAhead} * of.shares, turn);
    low_products<T, S>(low, words, [&](int first, const uint4& v) {
      const int number = (first & ((1 << S::kLow) - 1)) + lane / 4;
      const int high = (features + first) >> S::kLow;
      *reinterpret_cast<uint4*>(args.v + between_at<S>(tile, number, high) + lane % 4 * 16) = v;
    });
  }
}

// In butterfly_blocks_cuda.cu and butterfly_blocks_backward_cuda.cu: one product of stages that grow, of halves.
inline bool fits_blocks(const CudaButterfly& s, DType dtype) {
  return dtype != DType::F32 && fits_clusters(s);
}
std::size_t blocks_forward_bytes(const CudaButterfly& s);
void blocks_forward(const CudaButterfly& s, DType dtype, std::int64_t samples, const void* x,
                    const void* twiddle, const void* bias, void* y, void* workspace, void* stream);
std::size_t blocks_backward_bytes(const CudaButterfly& s, std::int64_t samples);
void blocks_backward(const CudaButterfly& s, DType dtype, std::int64_t samples, const void* x,
                     const void* twiddle, const void* grad_y, void* grad_x, void* grad_twiddle,
                     void* grad_bias, void* workspace, void* stream);

// In butterfly_wide_cuda.cu: the same of 4096 features, without a workspace.
void wide_forward(const CudaButterfly& s, DType dtype, std::int64_t samples, const void* x,
                  const void* twiddle, const void* bias, void* y, void* stream);

// In butterfly_blocks_twiddles_cuda.cu: gradients of one product from sums of those of its matrices.
struct BlocksSums {
  CudaButterfly s;
  const void* twiddle;
  const float *low, *high, *bias;  // for each share of samples
  int shares, outputs;
  float* all;                      // of untied stages, where weights are tied; else null
  void *grad_twiddle, *grad_bias;  // may be null
};
void blocks_twiddles(const BlocksSums& sums, DType dtype, void* stream);

}  // namespace tuckfold::structured
