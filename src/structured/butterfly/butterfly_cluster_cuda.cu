// Forward of a butterfly with clusters. A warp has four samples of its block's 512 features, a thread 16
// features of each: four stages in registers, an exchange inside of the warp, four more, an exchange over the
// warps of the same number in the cluster's blocks, and the one to four stages that are left. Warps wait
// for those alone, never for their block.
#include "structured/butterfly/butterfly_cluster_cuda.cuh"

namespace tuckfold::structured {
namespace {

using cuda::ClusterSignal;

template <class T>
struct ClusterForwardArgs {
  CudaButterfly s;
  const T *x, *twiddle, *bias;
  T* y;
  std::int64_t samples;
  bool in_pieces;
};

// Shared memory of a block: matrices, then what each warp has for its samples, then signals.
template <class T, int kRanks>
struct ForwardMemory {
  static constexpr int kStages = 9 + log2_of(kRanks);
  static constexpr int kRows = 4;
  // Four samples of a feature are a float4.
  static constexpr int kTile = kBlockFeatures;
  static constexpr int kInput = kRows * kBlockFeatures * sizeof(T) / 16;
  static constexpr int kWarp = 2 * kTile + kInput;  // float4s
  static constexpr std::size_t kTwiddleBytes = kStages * 256 * sizeof(Four<T>);

  static std::size_t bytes(int warps) {
    return kTwiddleBytes + warps * (kWarp * sizeof(float4) + 2 * sizeof(ClusterSignal));
  }
};

// Features of a thread: in the first stages 16 side by side; then 16 that are 16 apart; then, of what
// all blocks have, those 256 apart, and where there are fewer than 16 of them, also some 32 apart.
template <int kRanks>
struct Places {
  static constexpr int kBeside = 8 / kRanks;  // 32 apart
  int rank, lane;

  __device__ TUCKFOLD_INLINE int first(int k) const { return 16 * lane + k; }
  __device__ TUCKFOLD_INLINE int second(int k) const {
    return lane / 16 * 256 + 16 * k + lane % 16;
  }
  // Of all features.
  __device__ TUCKFOLD_INLINE int last(int k) const {
    return rank * (256 / kRanks) + lane + from_last(k);
  }
  __device__ TUCKFOLD_INLINE static constexpr int from_last(int k) {
    return k / kBeside * 256 + k % kBeside * 32;
  }
  // Where feature i is during the exchange in the warp.
  __device__ TUCKFOLD_INLINE static int between(int i) { return i ^ ((i >> 4) & 7); }
  // Feature k of the second stages goes to this block, and place, of the exchange of blocks.
  __device__ TUCKFOLD_INLINE static constexpr int rank_of(int k) { return k / (16 / kRanks); }
  __device__ TUCKFOLD_INLINE int place_of(int k) const {
    const int number = (2 * rank + lane / 16) * kBeside + k % (16 / kRanks) / 2;
    return 32 * number + k % 2 * 16 + lane % 16;
  }
};

// Starts the copies of the block's matrices: for each stage and pair of a thread, the threads side by side.
template <int kRanks, class T>
__device__ TUCKFOLD_INLINE void start_matrices(const CudaButterfly& s, const T* twiddle, int rank,
                                               Four<T>* to) {
  constexpr int kStages = 9 + log2_of(kRanks), kLastBit = 3 - log2_of(kRanks);
  const auto* from = reinterpret_cast<const Four<T>*>(twiddle);
  for (int at = static_cast<int>(threadIdx.x); at < 256; at += static_cast<int>(blockDim.x)) {
    const Places<kRanks> places{rank, at % 32};
    const int p = at / 32, block = rank * kBlockFeatures;
    TUCKFOLD_UNROLL
    for (int level = 0; level < 4;
         ++level) {  // neighbours of memory by neighbours, not to their places
      const int feature = block + at / 8 * 16 + first_of(at % 8, level);
      start_matrix(to + level * 256 + at % 8 * 32 + at / 8, from + twiddle_of(s, feature, level));
    }
    TUCKFOLD_UNROLL
    for (int level = 4; level < kStages; ++level) {
      const int feature = level < 8 ? block + places.second(first_of(p, level - 4))
                                    : places.last(first_of(p, level - 8 + kLastBit));
      start_matrix(to + level * 256 + at, from + twiddle_of(s, feature, level));
    }
  }
}

template <class T, int kRanks>
__global__ void __launch_bounds__(256)
    cluster_forward_kernel(const __grid_constant__ ClusterForwardArgs<T> args) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  using Memory = ForwardMemory<T, kRanks>;
  constexpr int kRows = Memory::kRows, kTile = kBlockFeatures;
  constexpr int kLog = sizeof(T) == 4 ? 2 : 1;
  const CudaButterfly& s = args.s;
  const int rank = static_cast<int>(blockIdx.x) % kRanks;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int warps = static_cast<int>(blockDim.x) / 32;
  const int clusters = static_cast<int>(gridDim.x) / kRanks / s.stack;
  const int product = static_cast<int>(blockIdx.x) / (kRanks * clusters);
  const int team = static_cast<int>(blockIdx.x) / kRanks % clusters * warps + warp;
  const Places<kRanks> places{rank, lane};

  unsigned char* memory = cuda::shared_memory();
  auto* matrices = reinterpret_cast<Four<T>*>(memory);
  auto* tiles = reinterpret_cast<float4*>(memory + Memory::kTwiddleBytes);
  float4* local = tiles + warp * Memory::kWarp;
  float4* exchanged = local + kTile;
  T* input = reinterpret_cast<T*>(exchanged + kTile);
  auto* signals = reinterpret_cast<ClusterSignal*>(tiles + warps * Memory::kWarp);
  ClusterSignal &full = signals[warp], &empty = signals[warps + warp];

  const std::int64_t groups = (args.samples + kRows - 1) / kRows, step = clusters * warps;
  const auto start = [&](std::int64_t group) {
    if (group >= groups) return;
    start_rows<kRows, kLog, 32>(s, args.x, args.in_pieces, group * kRows, args.samples, rank, lane,
                                input);
  };
  start(team);
  start_matrices<kRanks>(s, args.twiddle + static_cast<std::int64_t>(product) * s.pairs * 4, rank,
                         matrices);
  if (kRanks > 1 && lane == 0) {
    full.init(1);
    empty.init(kRanks);
  }
  const int outputs = min(s.n, s.out - product * s.n);
  // All loads before the first conversion, which waits.
  T narrow_bias[16];
  TUCKFOLD_UNROLL
  for (int k = 0; k < 16; ++k) {
    const bool has = args.bias != nullptr && places.last(k) < outputs;
    narrow_bias[k] = has ? args.bias[product * s.n + places.last(k)] : T{};
  }
  cuda::wait_for_copies();
  if (kRanks > 1) {
    cuda::cluster_barrier();
  } else {
    __syncthreads();
  }
  float bias[16];
  TUCKFOLD_UNROLL
  for (int k = 0; k < 16; ++k) bias[k] = widen(narrow_bias[k]);

  int turn = 0;
  for (std::int64_t group = team; group < groups; group += step, ++turn) {
    float v[16][kRows];
    cuda::wait_for_copies();
    __syncwarp();
    take_input<kLog>(input, 0, lane, v);
    __syncwarp();
    start(group + step);
    turn_rows<0, 32>(matrices + lane, v);
    // The other blocks have what was sent from here, and have read it.
    if (kRanks > 1 && turn > 0) empty.wait((turn - 1) % 2);
    TUCKFOLD_UNROLL
    for (int k = 0; k < 16; ++k) local[Places<kRanks>::between(places.first(k))] = four_rows(v[k]);
    __syncwarp();
    TUCKFOLD_UNROLL
    for (int k = 0; k < 16; ++k) {
      take_rows(local[Places<kRanks>::between(places.second(k))], v[k]);
    }
    turn_rows<0, 32>(matrices + 4 * 256 + lane, v);

    if (kRanks > 1 && lane == 0) full.arrive_expecting(kTile * 16);
    // What a block gets of this warp follows each other, and goes in one piece.
    constexpr int kOfRank = kTile / kRanks;
    __syncwarp();  // all have taken what was there
    TUCKFOLD_UNROLL
    for (int k = 0; k < 16; ++k) {
      const int at = places.place_of(k);
      if (kRanks > 1) {
        local[(Places<kRanks>::rank_of(k) - rank) * kOfRank + at] = four_rows(v[k]);
      } else {
        exchanged[at] = four_rows(v[k]);
      }
    }
    if (kRanks > 1) {
      cuda::before_send();
      __syncwarp();
      if (lane < kRanks) {
        cuda::send(exchanged + rank * kOfRank, local + lane * kOfRank, kOfRank * 16, full, lane);
      }
    }
    if (kRanks > 1) {
      full.wait(turn % 2);
    } else {
      __syncwarp();
    }
    TUCKFOLD_UNROLL
    for (int k = 0; k < 16; ++k) take_rows(exchanged[k * 32 + lane], v[k]);
    __syncwarp();
    if (kRanks > 1 && lane < kRanks) empty.arrive_in(lane);
    turn_rows<3 - log2_of(kRanks), 32>(matrices + 8 * 256 + lane, v, bias);

    TUCKFOLD_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const std::int64_t row = group * kRows + r;
      if (row >= args.samples) break;
      T* y = args.y + row * s.out + product * s.n + places.last(0);
      if (outputs == s.n) {
        TUCKFOLD_UNROLL
        for (int k = 0; k < 16; ++k) narrow(v[k][r], y[Places<kRanks>::from_last(k)]);
      } else {
        TUCKFOLD_UNROLL
        for (int k = 0; k < 16; ++k) {
          if (places.last(k) < outputs) narrow(v[k][r], y[Places<kRanks>::from_last(k)]);
        }
      }
    }
  }
  // Others may still write here, or signal.
  if (kRanks > 1) cuda::cluster_barrier();
#endif
}

template <class T, int kRanks>
void forward(const CudaButterfly& s, std::int64_t samples, const void* x, const void* twiddle,
             const void* bias, void* y, void* stream, int warps) {
  using Memory = ForwardMemory<T, kRanks>;
  const auto kernel = cluster_forward_kernel<T, kRanks>;
  cuda::Grid grid{.blocks = kRanks, .threads = 32 * warps, .shared_bytes = Memory::bytes(warps)};
  thread_local int known = -1, at_once = 0, known_warps = 0;
  const int device = cuda::ClusterDevice().number;
  if (device != known || known_warps != warps) {
    at_once = std::max(cuda::clusters_at_once(kernel, kRanks, grid), 1);
    known = device;
    known_warps = warps;
  }
  const std::int64_t wanted = cuda::blocks_for(samples, std::int64_t{Memory::kRows} * warps);
  const std::int64_t share = std::max(at_once / s.stack, 1);
  grid.blocks = std::min(wanted, share) * kRanks * s.stack;
  cuda::launch_clusters(kernel, kRanks, grid, stream,
                        ClusterForwardArgs<T>{.s = s,
                                              .x = static_cast<const T*>(x),
                                              .twiddle = static_cast<const T*>(twiddle),
                                              .bias = static_cast<const T*>(bias),
                                              .y = static_cast<T*>(y),
                                              .samples = samples,
                                              .in_pieces = in_pieces(x, s.in, sizeof(T))});
}

}  // namespace

void cluster_forward(const CudaButterfly& s, std::int64_t samples, const void* x,
                     const void* twiddle, const void* bias, void* y, void* stream) {
  if (samples == 0) return;
  with_ranks(s.n, [&](auto ranks) {
    constexpr int kWarps = ranks.value == 1 ? 4 : ranks.value == 2 ? 6 : 7;  // measured
    forward<float, ranks.value>(s, samples, x, twiddle, bias, y, stream, kWarps);
  });
}

}  // namespace tuckfold::structured
