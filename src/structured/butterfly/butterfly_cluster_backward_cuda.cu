// Backward of a butterfly with clusters. A block takes eight samples of its 512 features at a time. A thread
// has a unit of eight features of four samples, and does three stages with them. The inputs of every three
// stages are computed again and stay in shared memory, as do the sums of the gradients of the block's
// matrices, which are the same threads' for all samples: the same bits every time on the same kind of GPU.
#include "structured/butterfly/butterfly_cluster_cuda.cuh"

namespace tuckfold::structured {
namespace {

using cuda::ClusterSignal;
using cuda::launch;
using cuda::Remote;

constexpr int kUnits = kBlockFeatures / 8, kThreads = 2 * kUnits, kSamples = 8;

template <class T>
struct ClusterBackwardArgs {
  CudaButterfly s;
  int product;
  const T *x, *twiddle, *grad_y;
  T* grad_x;
  float4* sums;      // of matrices, for each block
  float* bias_sums;  // for each cluster
  std::int64_t samples;
  bool in_pieces, whole_x;
};

// Features of a unit, of the block's for strides below 512, else of all.
struct Unit {
  int ranks, rank, u;

  __device__ TUCKFOLD_INLINE int beside() const { return 8 / ranks; }  // 64 apart in the last
  __device__ TUCKFOLD_INLINE int first(int k) const { return 8 * u + k; }
  __device__ TUCKFOLD_INLINE int second(int k) const { return u / 8 * 64 + 8 * k + u % 8; }
  __device__ TUCKFOLD_INLINE int third(int k) const { return 64 * k + u; }
  __device__ TUCKFOLD_INLINE int last(int k) const {
    return k / beside() * kBlockFeatures + last_in_block(k);
  }
  __device__ TUCKFOLD_INLINE int last_in_block(int k) const {
    return rank * (kBlockFeatures / ranks) + k % beside() * 64 + u;
  }
  // Of all features, for the stage of stride 2^level, whose bit of k is bit_of(level).
  __device__ TUCKFOLD_INLINE int feature(int k, int level) const {
    if (level >= 9) return last(k);
    return rank * kBlockFeatures + (level < 3 ? first(k) : level < 6 ? second(k) : third(k));
  }
  __device__ TUCKFOLD_INLINE int bit_of(int level) const {
    return level < 9 ? level % 3 : level - 6 - log2_of(ranks);
  }
};

// Shared memory of a block. Tiles have a float4 for each feature and four samples.
template <class T, int kRanks>
struct BackwardMemory {
  static constexpr int kStages = 9 + log2_of(kRanks);
  static constexpr int kTile = 2 * kBlockFeatures;
  Four<T> matrices[kStages * 4 * kUnits];  // of each stage, pair and unit
  float4 sums[kStages * 4 * kUnits];
  alignas(16) T x[2][kSamples * kBlockFeatures];
  float4 second[kTile], third[kTile];  // inputs of stages
  float4 last[kRanks > 1 ? kTile : 1];
  float4 grad[kTile];
  ClusterSignal last_ready, grad_ready;

  // Where a tile has feature i: threads that want eight of them at once find them in different banks.
  __device__ TUCKFOLD_INLINE static int place(int i) { return i ^ ((i >> 3) & 7); }
};

// A unit of four samples back through the stages of bits kFirst to 2: grad becomes that of the inputs, sums
// gain what the samples of both halves of the warp give. A thread keeps half of the pairs of its unit.
template <int kFirst, class T>
__device__ TUCKFOLD_INLINE void back_rows(const Four<T>* matrices, float4* sums, int half,
                                          const float (&in)[8][4], float (&grad)[8][4]) {
  constexpr int kCount = 3 - kFirst;
  float inputs[kCount][8][4];
  TUCKFOLD_UNROLL
  for (int stage = 0; stage < kCount; ++stage) {
    TUCKFOLD_UNROLL
    for (int i = 0; i < 32; ++i) {
      inputs[stage][i / 4][i % 4] =
          stage == 0 ? in[i / 4][i % 4] : inputs[stage == 0 ? 0 : stage - 1][i / 4][i % 4];
    }
    if (stage == 0) continue;
    TUCKFOLD_UNROLL
    for (int p = 0; p < 4; ++p) {
      const float4 t = widen(matrices[((stage - 1) * 4 + p) * kUnits]);
      const int bit = kFirst + stage - 1, k = first_of(p, bit), other = k + (1 << bit);
      TUCKFOLD_UNROLL
      for (int r = 0; r < 4; ++r) {
        const float a = inputs[stage][k][r], b = inputs[stage][other][r];
        inputs[stage][k][r] = fmaf(t.y, b, t.x * a);
        inputs[stage][other][r] = fmaf(t.w, b, t.z * a);
      }
    }
  }
  TUCKFOLD_UNROLL
  for (int stage = kCount - 1; stage >= 0; --stage) {
    float sum[4][4];
    TUCKFOLD_UNROLL
    for (int p = 0; p < 4; ++p) {
      const float4 t = widen(matrices[(stage * 4 + p) * kUnits]);
      const int bit = kFirst + stage, k = first_of(p, bit), other = k + (1 << bit);
      TUCKFOLD_UNROLL
      for (int i = 0; i < 4; ++i) sum[p][i] = 0;
      TUCKFOLD_UNROLL
      for (int r = 0; r < 4; ++r) {
        const float a = inputs[stage][k][r], b = inputs[stage][other][r];
        const float ga = grad[k][r], gb = grad[other][r];
        sum[p][0] = fmaf(ga, a, sum[p][0]);
        sum[p][1] = fmaf(ga, b, sum[p][1]);
        sum[p][2] = fmaf(gb, a, sum[p][2]);
        sum[p][3] = fmaf(gb, b, sum[p][3]);
        grad[k][r] = fmaf(t.z, gb, t.x * ga);
        grad[other][r] = fmaf(t.w, gb, t.y * ga);
      }
    }
    TUCKFOLD_UNROLL
    for (int p = 0; p < 2; ++p) {
      float kept[4];
      TUCKFOLD_UNROLL
      for (int i = 0; i < 4; ++i) {
        const float given = half == 0 ? sum[p + 2][i] : sum[p][i];
        kept[i] =
            (half == 0 ? sum[p][i] : sum[p + 2][i]) + __shfl_xor_sync(cuda::kAllLanes, given, 16);
      }
      float4& to = sums[(stage * 4 + 2 * half + p) * kUnits];
      to = make_float4(to.x + kept[0], to.y + kept[1], to.z + kept[2], to.w + kept[3]);
    }
  }
}

template <class T, int kRanks>
__global__ void __launch_bounds__(kThreads)
    cluster_backward_kernel(const __grid_constant__ ClusterBackwardArgs<T> args) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  using Memory = BackwardMemory<T, kRanks>;
  constexpr int kBeside = 8 / kRanks, kFirst = 3 - log2_of(kRanks), kLog = sizeof(T) == 4 ? 1 : 0;
  const CudaButterfly& s = args.s;
  auto& memory = *reinterpret_cast<Memory*>(cuda::shared_memory());
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, half = lane / 16;
  const Unit unit{kRanks, static_cast<int>(blockIdx.x) % kRanks, thread / 32 * 16 + lane % 16};
  const int u = unit.u, rank = unit.rank;
  const int cluster = static_cast<int>(blockIdx.x) / kRanks;
  const int clusters = static_cast<int>(gridDim.x) / kRanks;
  const int outputs = min(s.n, s.out - args.product * s.n);
  const std::int64_t tiles = (args.samples + kSamples - 1) / kSamples;
  const auto start = [&](std::int64_t tile, int side) {
    if (tile >= tiles) return;
    start_rows<kSamples, kLog, kThreads>(s, args.x, args.in_pieces, tile * kSamples, args.samples,
                                         rank, thread, memory.x[side]);
  };
  const auto at = [&](int feature) { return half * kBlockFeatures + Memory::place(feature); };
  const auto everyone = [] {
    if (kRanks > 1) {
      cuda::cluster_barrier();
    } else {
      __syncthreads();
    }
  };

  start(cluster, 0);
  const auto* twiddle = reinterpret_cast<const Four<T>*>(
      args.twiddle + static_cast<std::int64_t>(args.product) * s.pairs * 4);
  TUCKFOLD_UNROLL
  for (int level = 0; level < Memory::kStages; ++level) {
    for (int i = thread; i < 4 * kUnits; i += kThreads) {
      const Unit of{kRanks, rank, i % kUnits};
      const int k = first_of(i / kUnits, of.bit_of(level)), place = level * 4 * kUnits + i;
      start_matrix(memory.matrices + place, twiddle + twiddle_of(s, of.feature(k, level), level));
      memory.sums[place] = make_float4(0, 0, 0, 0);
    }
  }
  if (kRanks > 1 && thread == 0) {
    memory.last_ready.init(1);
    memory.grad_ready.init(1);
  }
  float bias_sums[8] = {};
  cuda::wait_for_copies();
  everyone();

  // Who sends inputs of the last stages has got its gradients of the samples before, from threads that had
  // read theirs; who sends gradients has got inputs from threads that are done with the gradients before. So
  // no block writes what another still reads.
  int side = 0;
  for (std::int64_t tile = cluster; tile < tiles; tile += clusters, side ^= 1) {
    float grad[8][4], in[8][4];
    T given[8][4];  // converted when it is wanted: before, each load would be waited for
    TUCKFOLD_UNROLL
    for (int r = 0; r < 4; ++r) {
      const std::int64_t row = tile * kSamples + 4 * half + r;
      const int feature = kRanks > 1 ? unit.last(0) : u;
      const T* from = args.grad_y + row * s.out + args.product * s.n + feature;
      TUCKFOLD_UNROLL
      for (int k = 0; k < 8; ++k) {
        const int past = k / kBeside * kBlockFeatures + k % kBeside * 64;
        const bool has = row < args.samples && (outputs == s.n || feature + past < outputs);
        given[k][r] = has ? from[past] : T{};
      }
    }
    cuda::wait_for_copies();
    __syncthreads();
    start(tile + clusters, side ^ 1);
    if (kRanks > 1 && thread == 0) {
      memory.last_ready.arrive_expecting(sizeof(memory.last));
      memory.grad_ready.arrive_expecting(sizeof(memory.grad));
    }

    // Forward, once more.
    take_input<kLog>(memory.x[side], 4 * half, u, in);
    turn_rows<0, kUnits>(memory.matrices + u, in);
    TUCKFOLD_UNROLL
    for (int k = 0; k < 8; ++k) memory.second[at(unit.first(k))] = four_rows(in[k]);
    __syncwarp();  // the features of a unit are those of eight units of the same warp
    TUCKFOLD_UNROLL
    for (int k = 0; k < 8; ++k) take_rows(memory.second[at(unit.second(k))], in[k]);
    turn_rows<0, kUnits>(memory.matrices + 12 * kUnits + u, in);
    TUCKFOLD_UNROLL
    for (int k = 0; k < 8; ++k) memory.third[at(unit.second(k))] = four_rows(in[k]);
    __syncthreads();
    TUCKFOLD_UNROLL
    for (int k = 0; k < 8; ++k) take_rows(memory.third[at(unit.third(k))], in[k]);

    TUCKFOLD_UNROLL
    for (int i = 0; i < 32; ++i) grad[i / 4][i % 4] = widen(given[i / 4][i % 4]);
    TUCKFOLD_UNROLL
    for (int k = 0; k < 8; ++k) {
      bias_sums[k] += (grad[k][0] + grad[k][1]) + (grad[k][2] + grad[k][3]);
    }
    if constexpr (kRanks > 1) {
      turn_rows<0, kUnits>(memory.matrices + 24 * kUnits + u, in);
      TUCKFOLD_UNROLL
      for (int k = 0; k < 8; ++k) {
        const int number = rank * kBeside + k % kBeside;
        Remote(memory.last, memory.last_ready, k / kBeside)
            .store(half * kBlockFeatures + 64 * number + u, four_rows(in[k]));
      }
      memory.last_ready.wait(side);
      TUCKFOLD_UNROLL
      for (int k = 0; k < 8; ++k) {
        take_rows(memory.last[half * kBlockFeatures + 64 * k + u], in[k]);
      }
      // Back.
      back_rows<kFirst>(memory.matrices + 36 * kUnits + u, memory.sums + 36 * kUnits + u, half, in,
                        grad);
      TUCKFOLD_UNROLL
      for (int k = 0; k < 8; ++k) {
        Remote(memory.grad, memory.grad_ready, k / kBeside)
            .store(at(unit.last_in_block(k)), four_rows(grad[k]));
      }
      memory.grad_ready.wait(side);
      TUCKFOLD_UNROLL
      for (int k = 0; k < 8; ++k) {
        take_rows(memory.third[at(unit.third(k))], in[k]);
        take_rows(memory.grad[at(unit.third(k))], grad[k]);
      }
    }
    back_rows<0>(memory.matrices + 24 * kUnits + u, memory.sums + 24 * kUnits + u, half, in, grad);
    TUCKFOLD_UNROLL
    for (int k = 0; k < 8; ++k) memory.grad[at(unit.third(k))] = four_rows(grad[k]);
    __syncthreads();
    TUCKFOLD_UNROLL
    for (int k = 0; k < 8; ++k) {
      take_rows(memory.second[at(unit.second(k))], in[k]);
      take_rows(memory.grad[at(unit.second(k))], grad[k]);
    }
    back_rows<0>(memory.matrices + 12 * kUnits + u, memory.sums + 12 * kUnits + u, half, in, grad);
    TUCKFOLD_UNROLL
    for (int k = 0; k < 8; ++k) memory.grad[at(unit.second(k))] = four_rows(grad[k]);
    __syncwarp();
    take_input<kLog>(memory.x[side], 4 * half, u, in);
    TUCKFOLD_UNROLL
    for (int k = 0; k < 8; ++k) take_rows(memory.grad[at(unit.first(k))], grad[k]);
    back_rows<0>(memory.matrices + u, memory.sums + u, half, in, grad);
    if (args.grad_x == nullptr) continue;
    TUCKFOLD_UNROLL
    for (int r = 0; r < 4; ++r) {
      const std::int64_t row = tile * kSamples + 4 * half + r;
      if (row >= args.samples) break;
      T* to = args.grad_x + row * s.in;
      const int base = rank * kBlockFeatures + unit.first(0);
      float all[8];
      TUCKFOLD_UNROLL
      for (int k = 0; k < 8; ++k) all[k] = grad[k][r];
      if (args.product > 0) {
        float before[8];
        load_features(to, base, 0, s.in, args.whole_x, before);
        TUCKFOLD_UNROLL
        for (int k = 0; k < 8; ++k) all[k] += before[k];
      }
      store_features(to, base, 0, s.in, args.whole_x, all);
    }
  }
  everyone();  // of the block for its sums; and nobody writes to a block that has ended
  float4* to = args.sums + static_cast<std::int64_t>(blockIdx.x) * Memory::kStages * 4 * kUnits;
  for (int i = thread; i < Memory::kStages * 4 * kUnits; i += kThreads) to[i] = memory.sums[i];
  TUCKFOLD_UNROLL
  for (int k = 0; k < 8; ++k) {
    const float sum = bias_sums[k] + __shfl_xor_sync(cuda::kAllLanes, bias_sums[k], 16);
    const int feature = kRanks > 1 ? unit.last(k) : unit.third(k);
    if (half == 0) args.bias_sums[static_cast<std::int64_t>(cluster) * s.n + feature] = sum;
  }
#endif
}

// ---- sums of the clusters -----------------------------------------------------------------------

template <class T>
struct ClusterGatherArgs {
  CudaButterfly s;
  int ranks, stages, clusters, outputs;
  float4* sums;
  const float* bias_sums;
  T *grad_twiddle, *grad_bias;  // may be null
};

// A thread for each matrix of a cluster, and for each output: over the clusters, in order. Sums of tied
// matrices stay in the first cluster's place for the next kernel.
template <class T>
__global__ void __launch_bounds__(128)
    cluster_gather_kernel(const __grid_constant__ ClusterGatherArgs<T> args) {
  const CudaButterfly& s = args.s;
  const int of_block = args.stages * 4 * kUnits, all = args.ranks * of_block;
  const int at = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (at >= all) {
    const int column = at - all;
    if (column >= args.outputs || args.grad_bias == nullptr) return;
    float sum = 0;
#pragma unroll 8
    for (int c = 0; c < args.clusters; ++c) sum += args.bias_sums[c * s.n + column];
    narrow(sum, args.grad_bias[column]);
    return;
  }
  if (args.grad_twiddle == nullptr) return;
  const float4 sum = sum_of_blocks(args.sums + at, args.clusters, all);
  if (s.tied) {
    args.sums[at] = sum;
    return;
  }
  const int place = at % of_block, level = place / (4 * kUnits);
  const Unit unit{args.ranks, at / of_block, place % kUnits};
  const int k = first_of(place / kUnits % 4, unit.bit_of(level));
  store_matrix(sum, args.grad_twiddle + 4 * twiddle_of(s, unit.feature(k, level), level));
}

// A warp for each tied matrix: over the pairs that share it.
template <class T>
__global__ void __launch_bounds__(128)
    cluster_gather_tied_kernel(const __grid_constant__ ClusterGatherArgs<T> args) {
  const CudaButterfly& s = args.s;
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp;
  const int number =
      static_cast<int>(blockIdx.x * (blockDim.x / cuda::kWarp) + threadIdx.x / cuda::kWarp);
  if (number >= s.n - 1) return;
  int level = 0;
  while (number >= (2 << level) - 1) ++level;
  const int low = number - ((1 << level) - 1);
  float4 sum = make_float4(0, 0, 0, 0);
  for (int block = lane; block < s.n >> (level + 1); block += cuda::kWarp) {
    const int i = (block << (level + 1)) | low, here = i % kBlockFeatures;
    int rank = i / kBlockFeatures, u = here % 64, k = here / 64;
    if (level < 3) {
      u = here / 8;
      k = here % 8;
    } else if (level < 6) {
      u = here / 64 * 8 + here % 8;
      k = here / 8 % 8;
    } else if (level >= 9) {
      const int of_rank = kBlockFeatures / args.ranks;
      k = rank * (8 / args.ranks) + here % of_rank / 64;
      rank = here / of_rank;
    }
    const int bit = Unit{args.ranks, rank, u}.bit_of(level);
    const int p = ((k >> (bit + 1)) << bit) | (k & ((1 << bit) - 1));
    const float4 more = args.sums[((rank * args.stages + level) * 4 + p) * kUnits + u];
    add_to(sum, more);
  }
  add_lanes(sum);
  if (lane == 0) store_matrix(sum, args.grad_twiddle + 4 * number);
}

template <class T, int kRanks>
int clusters_of(std::int64_t samples) {
  thread_local int known = -1, at_once = 0;
  const int device = cuda::ClusterDevice().number;
  if (device != known) {
    const cuda::Grid grid{
        .blocks = kRanks, .threads = kThreads, .shared_bytes = sizeof(BackwardMemory<T, kRanks>)};
    at_once = std::max(cuda::clusters_at_once(cluster_backward_kernel<T, kRanks>, kRanks, grid), 1);
    known = device;
  }
  const std::int64_t tiles = std::max<std::int64_t>(cuda::blocks_for(samples, kSamples), 1);
  return static_cast<int>(std::min<std::int64_t>(tiles, at_once));
}

template <class T, int kRanks>
void backward(const CudaButterfly& s, std::int64_t samples, const void* x, const void* twiddle,
              const void* grad_y, void* grad_x, void* grad_twiddle, void* grad_bias,
              void* workspace, void* stream) {
  using Memory = BackwardMemory<T, kRanks>;
  const int clusters = clusters_of<T, kRanks>(samples), places = Memory::kStages * 4 * kUnits;
  auto* sums = static_cast<float4*>(workspace);
  auto* bias_sums = reinterpret_cast<float*>(sums + std::int64_t{places} * kRanks * clusters);
  for (int product = 0; product < s.stack; ++product) {
    const bool whole_x = s.in == s.n && aligned(grad_x, s.in, sizeof(T));
    cuda::launch_clusters(cluster_backward_kernel<T, kRanks>, kRanks,
                          {.blocks = std::int64_t{clusters} * kRanks,
                           .threads = kThreads,
                           .shared_bytes = sizeof(Memory)},
                          stream,
                          ClusterBackwardArgs<T>{.s = s,
                                                 .product = product,
                                                 .x = static_cast<const T*>(x),
                                                 .twiddle = static_cast<const T*>(twiddle),
                                                 .grad_y = static_cast<const T*>(grad_y),
                                                 .grad_x = static_cast<T*>(grad_x),
                                                 .sums = sums,
                                                 .bias_sums = bias_sums,
                                                 .samples = samples,
                                                 .in_pieces = in_pieces(x, s.in, sizeof(T)),
                                                 .whole_x = whole_x});
    auto* twiddles = static_cast<T*>(grad_twiddle);
    auto* bias = static_cast<T*>(grad_bias);
    if (twiddles == nullptr && bias == nullptr) continue;
    const std::int64_t first = static_cast<std::int64_t>(product) * s.pairs * 4;
    const ClusterGatherArgs<T> gather{
        .s = s,
        .ranks = kRanks,
        .stages = Memory::kStages,
        .clusters = clusters,
        .outputs = std::min(s.n, s.out - product * s.n),
        .sums = sums,
        .bias_sums = bias_sums,
        .grad_twiddle = twiddles == nullptr ? nullptr : twiddles + first,
        .grad_bias = bias == nullptr ? nullptr : bias + product * s.n};
    launch(cluster_gather_kernel<T>,
           {.blocks = cuda::blocks_for(std::int64_t{places} * kRanks + s.n, 128), .threads = 128},
           stream, gather);
    if (s.tied && twiddles != nullptr) {
      launch(cluster_gather_tied_kernel<T>,
             {.blocks = cuda::blocks_for(s.n - 1, 4), .threads = 128}, stream, gather);
    }
  }
}

}  // namespace

std::size_t cluster_backward_bytes(const CudaButterfly& s, std::int64_t samples) {
  std::size_t bytes = 0;
  with_ranks(s.n, [&](auto ranks) {
    constexpr int kRanks = decltype(ranks)::value;
    const int clusters = clusters_of<float, kRanks>(samples);
    bytes =
        static_cast<std::size_t>(clusters) * (sizeof(BackwardMemory<float, kRanks>::sums) * kRanks +
                                              static_cast<std::size_t>(s.n) * sizeof(float));
  });
  return bytes;
}

void cluster_backward(const CudaButterfly& s, std::int64_t samples, const void* x,
                      const void* twiddle, const void* grad_y, void* grad_x, void* grad_twiddle,
                      void* grad_bias, void* workspace, void* stream) {
  with_ranks(s.n, [&](auto ranks) {
    backward<float, decltype(ranks)::value>(s, samples, x, twiddle, grad_y, grad_x, grad_twiddle,
                                            grad_bias, workspace, stream);
  });
}

}  // namespace tuckfold::structured
