// Forward of a butterfly of 4096 halves by tensor cores, see butterfly_pipeline.cuh. Between the digits eight
// samples of a feature are side by side, sixteen bytes. A place where a matrix found its features is where it
// leaves its results.
#pragma once

#include "butterfly_pipeline.cuh"

namespace tuckfold::structured::pipeline {

using cuda::multiply_add;

constexpr int kMatrices = 32;  // of a warp

// Stores four 8 x 8 matrices of halves, as load_matrices<false>() loads them.
__device__ TUCKFOLD_INLINE void store_matrices(void* row, const uint4& v) {
#ifdef __CUDACC__
#if __CUDA_ARCH__ >= 900
  const auto at = static_cast<unsigned>(__cvta_generic_to_shared(row));
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at),
               "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
               : "memory");
#endif
#else
  auto& block = cuda::emulate::block();
  const int g = block.lane() / 4, t = block.lane() % 4;
  void* const* rows = block.exchange(row);
  const unsigned words[] = {v.x, v.y, v.z, v.w};
  for (int i = 0; i < 4; ++i) static_cast<unsigned*>(rows[8 * i + g])[t] = words[i];
  block.wait_for_warp();
#endif
}

// ---- matrices -----------------------------------------------------------------------------------

// The twiddles of a warp's matrices. Of the first digit a matrix has eight of a stage side by side. Of the others
// 16 matrices stand side by side, so that lanes read those of one in different banks.
template <class T, int kDigit>
struct Twiddles {
  Four<T>* at;

  __device__ TUCKFOLD_INLINE Four<T>* of(int bit, int matrix, int pair) const {
    if (kDigit == 0) return at + (bit * kMatrices + matrix) * 8 + pair;
    return at + ((bit * 2 + matrix / 16) * 8 + pair) * 16 + ((matrix % 16) ^ (2 * pair));
  }
  // Starts the copies: matrix m mixes feature(m, 0) to feature(m, 15).
  template <class Feature>
  __device__ TUCKFOLD_INLINE void start(const CudaButterfly& s, const T* twiddle, int lane,
                                        Feature&& feature) const {
    const auto* from = reinterpret_cast<const Four<T>*>(twiddle);
    TUCKFOLD_UNROLL
    for (int i = 0; i < 32; ++i) {
      const int bit = i / 8, number = i % 8 * 32 + lane;  // neighbours of memory by neighbours
      const int matrix = kDigit == 0 ? number / 8 : number / 128 * 16 + number % 16;
      const int pair = kDigit == 0 ? number % 8 : number / 16 % 8;
      start_matrix(of(bit, matrix, pair),
                   from + twiddle_of(s, feature(matrix, first_of(pair, bit)), 4 * kDigit + bit));
    }
  }
};

// Words of matrices of a lane: rows g and g + 8 of columns 2 t and 2 t + 8, and of the next ones.
template <class T, int kDigit>
struct Entries {
  const unsigned char* at;
  int first[2], second[2], third[2], last;  // where those of matrix 0 are, in bytes

  __device__ TUCKFOLD_INLINE Entries(const Twiddles<T, kDigit>& from, int lane)
      : at(reinterpret_cast<const unsigned char*>(from.at)) {
    const int g = lane / 4, t = lane % 4, each = static_cast<int>(sizeof(T));
    const auto place = [&](int bit, int pair, int number) {
      return static_cast<int>(from.of(bit, 0, pair) - from.at) * 4 * each + number * each;
    };
    TUCKFOLD_UNROLL
    for (int half = 0; half < 2; ++half) {
      first[half] = place(0, t + 4 * half, g % 2 * 2);
      second[half] = place(1, (t / 2 + 2 * half) * 2 + g % 2, g / 2 % 2 * 2 + t % 2);
      third[half] = place(2, half * 4 + g % 4, g / 4 * 2 + t / 2);
    }
    last = place(3, g, 0);
  }
  // The other matrices are elsewhere by the same bytes for all lanes, added or turned over.
  template <class V>
  __device__ TUCKFOLD_INLINE V read(int place, int matrix) const {
    constexpr int kFour = 4 * sizeof(T);
    if (kDigit == 0) return *reinterpret_cast<const V*>(at + place + matrix * 8 * kFour);
    return *reinterpret_cast<const V*>(at + (place ^ matrix % 16 * kFour) +
                                       matrix / 16 * (8 * 16 * kFour));
  }
  __device__ TUCKFOLD_INLINE uint4 words(int matrix) const {
    const auto fours = read<Four<T>>(last, matrix);
    unsigned words[4];
    TUCKFOLD_UNROLL
    for (int half = 0; half < 2; ++half) {
      const auto both = read<unsigned>(first[half], matrix);
      const T low{static_cast<std::uint16_t>(both)}, high{static_cast<std::uint16_t>(both >> 16)};
      const float others =
          widen(read<T>(second[half], matrix)) * widen(read<T>(third[half], matrix));
      const float x = widen(low) * others, y = widen(high) * others;
      TUCKFOLD_UNROLL
      for (int row = 0; row < 2; ++row) {
        const float by = widen(fours.at[2 * row + half]);
        words[2 * half + row] = cuda::pair_of<T>(x * by, y * by);
      }
    }
    return uint4{words[0], words[1], words[2], words[3]};
  }
};

// ---- places -------------------------------------------------------------------------------------

// In what follows `low`, `middle` and `high` are digits. Lanes find what they want at once in different banks.

// Of a piece of x, in the part of a warp.
__device__ TUCKFOLD_INLINE int input_at(int high, int middle, int half, int sample) {
  const int piece = (2 * sample | (half ^ sample >> 2)) ^ (middle & 3) * 2;
  return high % 2 * kDigitBytes + middle * 256 + piece * 16;
}
// Of a feature's samples among those of the same highest digit.
__device__ TUCKFOLD_INLINE int between_at(int high, int middle, int low) {
  return middle * 256 + (low ^ ((middle ^ high) & 7)) * 16;
}
// Of eight lower digits of a sample of y, in a tile. They are where those features' samples were.
__device__ TUCKFOLD_INLINE int output_at(int high, int middle, int half, int sample) {
  return high * (kDigitBytes / 2) + middle * 256 + half * 128 +
         (sample ^ (high & 1) ^ ((2 * middle + half) & 7)) * 16;
}

// ---- forward ------------------------------------------------------------------------------------

template <class T>
__device__ TUCKFOLD_INLINE void first_digit(const uint4 (&a)[kMatrices], int warp, int lane,
                                            unsigned char* part) {
  const int row = lane % 8, odd = lane / 16, half = lane / 8 % 2;
  TUCKFOLD_UNROLL
  for (int m = 0; m < kMatrices; m += 2) {
    const int high = m / 16, middle = m % 16 + odd;
    const uint4 v = cuda::load_matrices<false>(part + input_at(high, middle, half, row));
    float c[2][4] = {};
    multiply_add<T>(c[0], a[m], v.x, v.y);
    multiply_add<T>(c[1], a[m + 1], v.z, v.w);
    store_matrices(part + high * kDigitBytes + between_at(2 * warp + high, middle, half * 8 + row),
                   uint4{cuda::pair_of<T>(c[0][0], c[0][1]), cuda::pair_of<T>(c[0][2], c[0][3]),
                         cuda::pair_of<T>(c[1][0], c[1][1]), cuda::pair_of<T>(c[1][2], c[1][3])});
  }
}

template <class T>
__device__ TUCKFOLD_INLINE void second_digit(const uint4 (&a)[kMatrices], int warp, int lane,
                                             unsigned char* part) {
  const int row = lane % 8, odd = lane / 16, half = lane / 8 % 2;
  TUCKFOLD_UNROLL
  for (int m = 0; m < kMatrices; m += 2) {
    const int high = m / 16, low = m % 16 + odd;
    unsigned char* at =
        part + high * kDigitBytes + between_at(2 * warp + high, half * 8 + row, low);
    const uint4 v = cuda::load_matrices<true>(at);
    float c[2][4] = {};
    multiply_add<T>(c[0], a[m], v.x, v.y);
    multiply_add<T>(c[1], a[m + 1], v.z, v.w);
    store_matrices(at,
                   uint4{cuda::pair_of<T>(c[0][0], c[0][1]), cuda::pair_of<T>(c[0][2], c[0][3]),
                         cuda::pair_of<T>(c[1][0], c[1][1]), cuda::pair_of<T>(c[1][2], c[1][3])});
  }
}

// Eight numbers of the bias of a product, from `feature` on.
template <class T>
__device__ TUCKFOLD_INLINE uint4 eight_of_bias(const Args<T>& args, int product, int feature,
                                               int outputs) {
  if (args.bias == nullptr || feature >= outputs) return uint4{0, 0, 0, 0};
  const T* from = args.bias + product * args.s.n + feature;
  if (args.whole_bias) return *reinterpret_cast<const uint4*>(from);
  std::uint64_t words[2] = {};
#pragma unroll 1
  for (int i = 0; i < 4; ++i) {
    const auto bits = [&](int k) {
      return std::uint64_t{feature + k < outputs ? from[k].bits : std::uint16_t{0}} << (16 * i);
    };
    words[0] |= bits(i);
    words[1] |= bits(i + 4);
  }
  return uint4{static_cast<unsigned>(words[0]), static_cast<unsigned>(words[0] >> 32),
               static_cast<unsigned>(words[1]), static_cast<unsigned>(words[1] >> 32)};
}
template <class T>
__device__ TUCKFOLD_INLINE float number_of(const uint4& eight, int i) {
  const unsigned word = i / 2 == 0   ? eight.x
                        : i / 2 == 1 ? eight.y
                        : i / 2 == 2 ? eight.z
                                     : eight.w;
  return widen(T{static_cast<std::uint16_t>(i % 2 == 0 ? word : word >> 16)});
}

template <class T>
__device__ TUCKFOLD_INLINE void third_digit(const Args<T>& args, const uint4 (&a)[kMatrices],
                                            int product, int outputs, int rank, int warp, int lane,
                                            unsigned char* tile) {
  const int row = lane % 8, odd = lane / 16, upper = lane / 8 % 2;
  TUCKFOLD_UNROLL
  for (int eight = 0; eight < 4; ++eight) {
    const int middle = 2 * warp + eight / 2, half = eight % 2, g = lane / 4, t = lane % 4;
    const int feature = g * 256 + (rank * 8 + middle) * 16 + half * 8;
    const uint4 bias[2] = {eight_of_bias(args, product, feature, outputs),
                           eight_of_bias(args, product, feature + 8 * 256, outputs)};
    unsigned words[4][4];  // of two rows and two samples
    TUCKFOLD_UNROLL
    for (int k = 0; k < 4; ++k) {
      const uint4 v = cuda::load_matrices<true>(tile + (upper * 8 + row) * (kDigitBytes / 2) +
                                                between_at(row, middle, half * 8 + 2 * k + odd));
      float c[2][4];
      TUCKFOLD_UNROLL
      for (int i = 0; i < 8; ++i) c[i / 4][i % 4] = number_of<T>(bias[i % 4 / 2], 2 * k + i / 4);
      const int m = eight * 8 + 2 * k;
      multiply_add<T>(c[0], a[m], v.x, v.y);
      multiply_add<T>(c[1], a[m + 1], v.z, v.w);
      TUCKFOLD_UNROLL
      for (int i = 0; i < 4; ++i) words[i][k] = cuda::pair_of<T>(c[0][i], c[1][i]);
    }
    __syncwarp();  // all have loaded what was there
    TUCKFOLD_UNROLL
    for (int i = 0; i < 4; ++i) {
      *reinterpret_cast<uint4*>(tile + output_at(g + i / 2 * 8, middle, half, 2 * t + i % 2)) =
          uint4{words[i][0], words[i][1], words[i][2], words[i][3]};
    }
  }
}

// A quarter of the block's tile of y: runs of 256 bytes.
template <bool kPlain, class T>
__device__ TUCKFOLD_INLINE void store_quarter(const Args<T>& args, int product, int outputs,
                                              int rank, int warp, int lane, std::int64_t first,
                                              const unsigned char* tile) {
  const int q = lane % 16;
  const int feature = warp * 4 * 256 + rank * 128 + q * 8;
  T* y = args.y + (first + lane / 16) * args.s.out + product * args.s.n + feature;
  const auto piece = [&](int i) {
    return *reinterpret_cast<const uint4*>(
        tile + output_at(warp * 4 + i % 4, q / 2, q % 2, i / 4 * 2 + lane / 16));
  };
  if (args.whole_y && outputs == kFeatures && first + kSamples<T> <= args.samples) {
    TUCKFOLD_UNROLL
    for (int i = 0; i < 16; ++i) {
      auto* to = reinterpret_cast<uint4*>(y + i % 4 * 256);
      if (kPlain) {
        *to = piece(i);
      } else {
        cuda::store_away(to, piece(i));
      }
      if (i % 4 == 3) y += 2 * static_cast<std::int64_t>(args.s.out);
    }
    return;
  }
#pragma unroll 1
  for (int i = 0; i < 16; ++i) {
    const uint4 v = piece(i);
    const unsigned words[4] = {v.x, v.y, v.z, v.w};
    if (first + i / 4 * 2 + lane / 16 < args.samples) {
      store_words<4>(y + i % 4 * 256, words, outputs - feature - i % 4 * 256, args.whole_y);
    }
    if (i % 4 == 3) y += 2 * static_cast<std::int64_t>(args.s.out);
  }
}

template <class T, class L, Way kWay>
__global__ void __launch_bounds__(kThreads, 1) half_kernel(const __grid_constant__ Args<T> args) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  const CudaButterfly& s = args.s;
  int product;
  const L line = line_of<L>(args, product);
  const int role = static_cast<int>(threadIdx.x) / (32 * kOfRole);
  const int rank = line.rank, warp = line.warp, lane = line.lane;
  const int outputs = min(s.n, s.out - product * s.n);
  const T* twiddle = args.twiddle + static_cast<std::int64_t>(product) * s.pairs * 4;
  auto* twiddles = reinterpret_cast<Four<T>*>(line.second(0) + threadIdx.x / 32 * kPartBytes);
  static_assert(L::kSecond * kTileBytes >= kThreads / 32 * kPartBytes);
  const int feature = (rank * kOfRole + warp) * 512;  // in the first digits

  const auto start = [&](int tile, unsigned char* to) {
    if (!has_loads(kWay) && tile >= 0) return;
    start_part(args, feature, std::int64_t{tile} * kSamples<T>, fresh(lane),
               [&](int sample, int piece) {
                 return to + input_at(piece / 32, piece / 2 % 16, piece % 2, sample);
               });
  };
  if (threadIdx.x == 0) line.init();
  if (kWay == Way::NextEarly) cuda::allow_next_kernel();
  cuda::wait_for_previous_kernel();
  // Matrices are made while the first tiles come.
  const auto make = [&](const auto& from, uint4(&a)[kMatrices]) {
    TUCKFOLD_UNROLL
    for (int m = 0; m < kMatrices; ++m) a[m] = from.words(m);
  };
  uint4 a[kMatrices];
  if (role == 0) {
    const Twiddles<T, 0> from{twiddles};
    from.start(s, twiddle, lane,
               [&](int matrix, int place) { return feature + matrix * 16 + place; });
    end_copies();
    line.start_first(start);
    wait_for_older_copies<L::kFirst>();
    __syncwarp();
    make(Entries(from, lane), a);
    cuda::cluster_barrier();
    line.run_first(start, [&](unsigned char* part) { first_digit<T>(a, warp, fresh(lane), part); });
  } else if (role == 1) {
    const Twiddles<T, 1> from{twiddles};
    from.start(s, twiddle, lane, [&](int matrix, int place) {
      return feature + matrix / 16 * 256 + place * 16 + matrix % 16;
    });
    cuda::wait_for_copies();
    __syncwarp();
    make(Entries(from, lane), a);
    cuda::cluster_barrier();
    line.run_second([&](unsigned char* part) { second_digit<T>(a, warp, fresh(lane), part); });
  } else {
    const Twiddles<T, 2> from{twiddles};
    from.start(s, twiddle, lane, [&](int matrix, int place) {
      return place * 256 + (rank * 8 + 2 * warp) * 16 + matrix;
    });
    cuda::wait_for_copies();
    __syncwarp();
    make(Entries(from, lane), a);
    cuda::cluster_barrier();
    line.run_third([&](int tile, unsigned char* from_tile, int turn) {
      third_digit(args, a, product, outputs, rank, warp, fresh(lane), from_tile);
      __syncwarp();
      cuda::Signal& staged = line.signals->staged[turn % L::kSecond];
      if (lane == 0) staged.arrive();
      staged.wait(turn / L::kSecond % 2);
      if (has_stores(kWay) || tile < 0) {
        store_quarter<kWay == Way::PlainStores>(args, product, outputs, rank, warp, fresh(lane),
                                                std::int64_t{tile} * kSamples<T>, from_tile);
      }
    });
  }
  // Others may still write here, or signal.
  cuda::cluster_barrier();
#endif
}

template <class T, class L, Way kWay = Way::Whole>
void half_forward(const CudaButterfly& s, std::int64_t samples, const T* x, const T* twiddle,
                  const T* bias, T* y, void* stream) {
  thread_local AtOnce at_once;
  run(half_kernel<T, L, kWay>, L::kBytes, args_of<T>(s, samples, x, twiddle, bias, y), stream,
      at_once);
}

}  // namespace tuckfold::structured::pipeline
