// Forward of a butterfly of halves by tensor cores, see butterfly_blocks_cuda.cuh. The blocks of a cluster have
// the features of a sample; matrices stay in registers while samples pass by. Those of 4096 features have a kernel of their own.
#include "structured/butterfly/butterfly_blocks_cuda.cuh"

namespace tuckfold::structured {
namespace {

using cuda::ClusterSignal;
using cuda::multiply_add;

// ---- matrices -----------------------------------------------------------------------------------

template <class T>
struct MatrixArgs {
  CudaButterfly s;
  const T* twiddle;
  unsigned *low, *high;
};

// A thread for each word of a fragment.
template <class T, class S>
__global__ void __launch_bounds__(256) matrices_kernel(const __grid_constant__ MatrixArgs<T> args) {
  const CudaButterfly& s = args.s;
  cuda::allow_next_kernel();
  constexpr int kLowWords = 4 * S::kLowWords, kHighWords = 4 * S::kHighWords;
  int at = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  const int product = at / (kLowWords + kHighWords);
  at %= kLowWords + kHighWords;
  const T* twiddle = args.twiddle + static_cast<std::int64_t>(product) * s.pairs * 4;
  if (at < kLowWords) {
    args.low[product * kLowWords + at] = low_word<T, S>(s, twiddle, at);
    return;
  }
  at -= kLowWords;
  args.high[product * kHighWords + at] = high_word<T, S, false>(s, twiddle, at);
}

// ---- forward ------------------------------------------------------------------------------------

template <class T>
struct BlocksForwardArgs {
  CudaButterfly s;
  const T *x, *bias;
  const uint4 *low, *high;
  T* y;
  std::int64_t samples;
  bool whole_x, whole_y;  // whether rows are whole pieces of sixteen bytes
};

// Bytes of fragments of high bits.
template <class S>
constexpr int kHighFragments = kTileWarps * 4 * S::kHighSteps * 32 * 16;

// Samples of three tiles, and of two between the halves of the work; fragments of high bits.
template <class S>
struct ForwardMemory {
  static constexpr std::size_t kBytes = 3 * kTileWarps * kInputBytes + 2 * Between<S>::kBytes +
                                        kHighFragments<S> + 4 * sizeof(ClusterSignal);
};

// A tile of y from what all warps left in shared memory, samples of a feature side by side: turned in 8 x 8.
template <class T, class S>
__device__ TUCKFOLD_INLINE void store_tile(const BlocksForwardArgs<T>& args, int product, int rank,
                                           int warp, int lane, std::int64_t first,
                                           const unsigned char* from) {
  const CudaButterfly& s = args.s;
  const int outputs = min(s.n, s.out - product * s.n);
  const int m = lane / 8, r = lane % 8, g = lane / 4, t = lane % 4;
  // Matrices of a load: kRun are neighbours in features, the others in high numbers.
  constexpr int kRun = S::kBeside / 8, kHighs = 4 / kRun;
  static_assert(kRun <= 4);
  const int low = (r / 2) * 2 * kRun + 2 * (m % kRun) + r % 2;
  const int piece = warp % 4;
  const std::int64_t row = first + turned(piece, g);
  const int feature = (warp / 4 * kHighs << S::kLow) + rank * S::kBeside + t * 2 * kRun;
  T* y = args.y + row * s.out + product * s.n + feature;
  const bool whole = outputs == s.n && args.whole_y;
  TUCKFOLD_UNROLL
  for (int i = 0; i < 8; ++i) {
    const int high = (2 * i + warp / 4) * kHighs;
    const uint4 v = cuda::load_matrices<true>(from + Between<S>::at(low, high + m / kRun, piece));
    if (row >= args.samples) continue;
    const unsigned words[4] = {v.x, v.y, v.z, v.w};
    TUCKFOLD_UNROLL
    for (int k = 0; k < kHighs; ++k) {
      const int more = (2 * i * kHighs + k) << S::kLow;
      store_words<kRun>(y + more, words + k * kRun, whole ? 8 : outputs - feature - more,
                        args.whole_y);
    }
  }
}

template <class T, class S>
__global__ void __launch_bounds__(256, 1)
    blocks_forward_kernel(const __grid_constant__ BlocksForwardArgs<T> args) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  using E = Between<S>;
  constexpr int kRanks = S::kRanks;
  const CudaButterfly& s = args.s;
  const int rank = static_cast<int>(blockIdx.x) % kRanks;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int clusters = static_cast<int>(gridDim.x) / kRanks / s.stack;
  const int product = static_cast<int>(blockIdx.x) / (kRanks * clusters);
  const int team = static_cast<int>(blockIdx.x) / kRanks % clusters;
  const int features = rank * kBlockFeatures + warp * 64;  // in the first half of the work

  unsigned char* memory = cuda::shared_memory();
  unsigned char* between = memory + 3 * kTileWarps * kInputBytes;
  auto* high = reinterpret_cast<uint4*>(between + 2 * E::kBytes) + warp * (4 * S::kHighSteps * 32);
  auto* signals = reinterpret_cast<ClusterSignal*>(between + 2 * E::kBytes + kHighFragments<S>);
  ClusterSignal *full = signals, *empty = signals + 2;
  const auto input = [&](int turn) {
    return memory + (turn % 3 * kTileWarps + warp) * kInputBytes;
  };

  const std::int64_t tiles = (args.samples + kTileSamples - 1) / kTileSamples;
  const auto start = [&](std::int64_t tile, int turn) {
    if (tile < tiles) {
      start_tile(args.x, s.in, args.whole_x, features, tile * kTileSamples, args.samples,
                 fresh(lane), input(turn));
    }
    end_copies();
  };
  start(team, 0);
  start(team + clusters, 1);
  if (kRanks > 1 && threadIdx.x == 0) {
    for (int i = 0; i < 2; ++i) {
      full[i].init(1);
      empty[i].init(kRanks * kTileWarps);
    }
  }
  float bias[S::kOfWarp][S::kHighSteps][2];
  TUCKFOLD_UNROLL
  for (int i = 0; i < 8; ++i) {
    const int of_warp = i / (2 * S::kHighSteps), tile = i / 2 % S::kHighSteps;
    const int feature = ((tile * 16 + i % 2 * 8 + lane / 4) << S::kLow) + rank * S::kBeside +
                        warp * S::kOfWarp + of_warp;
    const bool has = args.bias != nullptr && product * s.n + feature < s.out;
    bias[of_warp][tile][i % 2] = has ? widen(args.bias[product * s.n + feature]) : 0.0f;
  }
  cuda::wait_for_previous_kernel();
  uint4 low[4][S::kLowSteps];
  {
    const uint4* from =
        args.high + product * S::kHighWords +
        (rank * S::kBeside + warp * S::kOfWarp) * (S::kHighSteps * S::kHighSteps * 32) + lane;
    TUCKFOLD_UNROLL
    for (int i = 0; i < 4 * S::kHighSteps; ++i) high[i * 32 + lane] = from[i * 32];
    from = args.low + product * S::kLowWords + (features / 64) * (4 * S::kLowSteps * 32) + lane;
    TUCKFOLD_UNROLL
    for (int i = 0; i < 4 * S::kLowSteps; ++i) {
      low[i / S::kLowSteps][i % S::kLowSteps] = from[i * 32];
    }
  }
  if (kRanks > 1) cuda::cluster_barrier();

  // The low stages of a turn's tile. What a warp sends to a block stands together, where its input was.
  const auto first_half = [&](std::int64_t tile, int turn) {
    const int side = turn % 2, first_high = features >> S::kLow;
    constexpr int kOfRank = 64 * 64 / kRanks;
    unsigned char *rows = between + side * E::kBytes, *sent = input(turn);
    wait_for_older_copies<0>();
    __syncwarp();
    const TileWords<> words(sent, fresh(lane));
    __syncwarp();
    // All blocks have read what came to them two turns ago, so that there is place for this turn's. What this
    // block sent then, it did from where the next tile goes.
    if (kRanks == 1 && turn > 1) __syncthreads();
    if (kRanks > 1 && turn > 1) empty[side].wait((turn / 2 - 1) % 2);
    if (turn > 0) start(tile + clusters, turn + 1);
    if (kRanks > 1 && threadIdx.x == 0) full[side].arrive_expecting(E::kBytes);
    const int here = fresh(lane);
    low_products<T, S>(low, words, [&](int first, const uint4& v) {
      const int number = first & ((1 << S::kLow) - 1);  // low number of the first lanes
      const int at_low = number % S::kBeside + here / 4, at_high = (features + first) >> S::kLow;
      const int place = E::at(at_low, at_high, here % 4);
      if (kRanks > 1) {
        const int of_warp = place - first_high * S::kBeside * 64;
        *reinterpret_cast<uint4*>(sent + number / S::kBeside * kOfRank + of_warp) = v;
      } else {
        *reinterpret_cast<uint4*>(rows + place) = v;
      }
    });
    if (kRanks == 1) return;
    cuda::before_send();
    __syncwarp();
    if (lane < kRanks) {
      cuda::send(rows + first_high * S::kBeside * 64, sent + lane * kOfRank, kOfRank, full[side],
                 lane);
    }
  };

  // What is sent travels while the next tile's first half is done.
  if (team < tiles) first_half(team, 0);
  int turn = 0;
  for (std::int64_t tile = team; tile < tiles; tile += clusters, ++turn) {
    const int side = turn % 2;
    unsigned char* rows = between + side * E::kBytes;
    if (tile + clusters < tiles) first_half(tile + clusters, turn + 1);
    if (kRanks > 1) {
      full[side].wait(turn / 2 % 2);
    } else {
      __syncthreads();
    }

    TUCKFOLD_UNROLL
    for (int u = 0; u < S::kOfWarp; ++u) {
      const int at_low = warp * S::kOfWarp + u, at = fresh(lane);
      unsigned v[S::kHighSteps][4][2];
      load_high<S>(v, at, [&](int row, int n) { return rows + E::at(at_low, row, n); });
      TUCKFOLD_UNROLL
      for (int m = 0; m < S::kHighSteps; ++m) {
        float c[4][4];
        TUCKFOLD_UNROLL
        for (int i = 0; i < 16; ++i) c[i / 4][i % 4] = bias[u][m][i % 4 / 2];
        TUCKFOLD_UNROLL
        for (int k = 0; k < S::kHighSteps; ++k) {
          const uint4 a = high[((u * S::kHighSteps + m) * S::kHighSteps + k) * 32 + at];
          TUCKFOLD_UNROLL
          for (int n = 0; n < 4; ++n) multiply_add<T>(c[n], a, v[k][n][0], v[k][n][1]);
        }
        TUCKFOLD_UNROLL
        for (int half = 0; half < 2; ++half) {
          *reinterpret_cast<uint4*>(rows + E::at(at_low, m * 16 + half * 8 + at / 4, at % 4)) =
              eight_samples<T>(c, half);
        }
      }
    }
    __syncthreads();
    store_tile<T, S>(args, product, rank, warp, fresh(lane), tile * kTileSamples, rows);
    if (kRanks > 1) {
      cuda::before_send();
      __syncwarp();
      if (lane < kRanks) empty[side].arrive_in(lane);
    }
  }
  // Others may still write here, or signal.
  if (kRanks > 1) cuda::cluster_barrier();
#endif
}

template <class T, class S>
void forward(const CudaButterfly& s, std::int64_t samples, const void* x, const void* twiddle,
             const void* bias, void* y, void* workspace, void* stream) {
  auto* low = static_cast<uint4*>(workspace);
  uint4* high = low + static_cast<std::int64_t>(s.stack) * S::kLowWords;
  cuda::launch(matrices_kernel<T, S>,
               {.blocks = static_cast<std::int64_t>(s.stack) * (S::kLowWords + S::kHighWords) / 64,
                .threads = 256},
               stream,
               MatrixArgs<T>{.s = s,
                             .twiddle = static_cast<const T*>(twiddle),
                             .low = reinterpret_cast<unsigned*>(low),
                             .high = reinterpret_cast<unsigned*>(high)});
  const BlocksForwardArgs<T> args{.s = s,
                                  .x = static_cast<const T*>(x),
                                  .bias = static_cast<const T*>(bias),
                                  .low = low,
                                  .high = high,
                                  .y = static_cast<T*>(y),
                                  .samples = samples,
                                  .whole_x = in_pieces(x, s.in, sizeof(T)),
                                  .whole_y = in_pieces(y, s.out, sizeof(T))};
  const auto kernel = blocks_forward_kernel<T, S>;
  cuda::Grid grid{.blocks = S::kRanks, .threads = 256, .shared_bytes = ForwardMemory<S>::kBytes};
  thread_local int known = -1, at_once = 0;
  const int device = cuda::ClusterDevice().number;
  if (device != known) {
    at_once = std::max(cuda::clusters_at_once(kernel, S::kRanks, grid), 1);
    known = device;
  }
  const std::int64_t wanted = cuda::blocks_for(samples, kTileSamples);
  grid.blocks =
      std::min<std::int64_t>(wanted, std::max(at_once / s.stack, 1)) * S::kRanks * s.stack;
  grid.early = true;
  cuda::launch_clusters(kernel, S::kRanks, grid, stream, args);
}

template <class S>
constexpr bool is_wide = S::kFeatures == 4096;

}  // namespace

std::size_t blocks_forward_bytes(const CudaButterfly& s) {
  std::size_t bytes = 0;
  with_split(s.n, [&](auto split) {
    using S = decltype(split);
    if (is_wide<S>) return;
    bytes = static_cast<std::size_t>(s.stack) * (S::kLowWords + S::kHighWords) * sizeof(uint4);
  });
  return bytes;
}

void blocks_forward(const CudaButterfly& s, DType dtype, std::int64_t samples, const void* x,
                    const void* twiddle, const void* bias, void* y, void* workspace, void* stream) {
  with_split(s.n, [&](auto split) {
    using S = decltype(split);
    if constexpr (is_wide<S>) {
      wide_forward(s, dtype, samples, x, twiddle, bias, y, stream);
    } else if (dtype == DType::F16) {
      forward<F16, S>(s, samples, x, twiddle, bias, y, workspace, stream);
    } else {
      forward<BF16, S>(s, samples, x, twiddle, bias, y, workspace, stream);
    }
  });
}

}  // namespace tuckfold::structured
