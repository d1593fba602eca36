// Forward of a butterfly of 4096 halves by tensor cores, see butterfly_blocks_cuda.cuh. A cluster of four blocks has
// the features of 16 samples, a warp 64 of them in the first half of the work. In the second a block has 16 low
// numbers, one for each warp: what it writes to y are pieces of 32 bytes, whole sectors of memory. With eight blocks
// there would be half ones, and more blocks to wait for.
#include "structured/butterfly/butterfly_blocks_cuda.cuh"

namespace tuckfold::structured {
namespace {

using cuda::ClusterSignal;
using cuda::multiply_add;
using S = Split<6, 6>;

constexpr int kRanks = 4, kWarps = 16, kSamples = 16;  // of a tile
constexpr int kWarpInput = kSamples * 128;             // bytes of 64 features
constexpr int kTileBytes = kWarps * kWarpInput;
constexpr int kFragments = kWarps * 16 * 32;  // uint4s of high bits
constexpr std::size_t kBytes =
    kFragments * sizeof(uint4) + 3 * kTileBytes + 4 * sizeof(ClusterSignal);

template <class T>
struct WideArgs {
  CudaButterfly s;
  const T *x, *twiddle, *bias;
  T* y;
  std::int64_t samples;
  bool whole_x, whole_y;  // whether rows are whole pieces of sixteen bytes
};

// What is between the halves: rows of 512 bytes for each high number, with 16 samples of each of the block's low
// numbers in two pieces of sixteen bytes. Lanes find what they want at once in different banks, along each axis.
template <class T>
struct Rows {
  static constexpr int kBeside = 16;  // low numbers
  __device__ TUCKFOLD_INLINE static int at(int low, int high, int piece) {
    const int turned = (high & 7) ^ (low >> 2 & 1) ^ (low >> 3 & 1) << 2;
    return high * (32 * kBeside) + ((2 * low + piece) ^ turned) * 16;
  }
};

// ---- matrices -----------------------------------------------------------------------------------

// The twiddles of a matrix, six stages. Those of 16 matrices stand side by side in each stage, 32 of each and one
// place more, so that lanes that copy or read them use different banks. `i` is a row and `j` a column.
template <class T>
struct Stages {
  static constexpr int kApart = 33, kStage = 16 * kApart;
  const Four<T>* first;

  __device__ TUCKFOLD_INLINE const T* at(int bit, int position, int row) const {
    const int pair = position >> (bit + 1) << bit | (position & ((1 << bit) - 1));
    return first[bit * kStage + pair].at + 2 * row;
  }
  // What leads from column j to row i in this stage; below it bits are those of the row.
  __device__ TUCKFOLD_INLINE float one(int bit, int i, int j) const {
    const int below = (1 << bit) - 1;
    return widen(at(bit, (i & below) | (j & ~below), i >> bit & 1)[j >> bit & 1]);
  }
  // Of columns j and j + 1 in the first stages, which are those of bits 0, 1 and 2.
  __device__ TUCKFOLD_INLINE float2 two(int i, int j) const {
    const T* both = at(0, j, i & 1);
    const float others = one(1, i, j) * one(2, i, j);
    return make_float2(widen(both[0]) * others, widen(both[1]) * others);
  }
};

// Starts the copies of those of a block, of low bits and of high bits.
template <class T>
__device__ TUCKFOLD_INLINE void start_twiddles(const CudaButterfly& s, const T* twiddle, int rank,
                                               Four<T>* low, Four<T>* high) {
  const auto* from = reinterpret_cast<const Four<T>*>(twiddle);
  const int thread = static_cast<int>(threadIdx.x);
  TUCKFOLD_UNROLL
  for (int bit = 0; bit < 6; ++bit) {
    int matrix = thread / 32, pair = thread % 32;  // neighbours of memory by neighbours
    const int feature = (rank * 16 + matrix) << S::kLow | first_of(pair, bit);
    start_matrix(low + bit * Stages<T>::kStage + matrix * Stages<T>::kApart + pair,
                 from + twiddle_of(s, feature, bit));
    matrix = thread % 16, pair = thread / 16;
    const int other = first_of(pair, bit) << S::kLow | rank * 16 | matrix;
    start_matrix(high + bit * Stages<T>::kStage + matrix * Stages<T>::kApart + pair,
                 from + twiddle_of(s, other, S::kLow + bit));
  }
}

template <class T>
__device__ TUCKFOLD_INLINE unsigned word_of(const float2& two, float others) {
  return cuda::pair_of<T>(two.x * others, two.y * others);
}

// As low_word() counts them: columns of a lane are those of summed().
template <class T>
__device__ TUCKFOLD_INLINE void make_low(const Stages<T>& stages, int lane, uint4 (&low)[4][4]) {
  const int g = lane / 4, t = lane % 4;
  float2 first[4][2];  // of steps, and of halves of the columns
  TUCKFOLD_UNROLL
  for (int n = 0; n < 8; ++n) first[n / 2][n % 2] = stages.two(g, summed(n / 2, t, n % 2));
  TUCKFOLD_UNROLL
  for (int m = 0; m < 4; ++m) {
    float last[2][2];  // of rows g and g + 8, and of the columns from 32 on
    TUCKFOLD_UNROLL
    for (int n = 0; n < 4; ++n) {
      const int i = m * 16 + n / 2 * 8 + g, j = n % 2 * 32 + t * 8;
      last[n / 2][n % 2] = stages.one(3, i, j) * stages.one(4, i, j) * stages.one(5, i, j);
    }
    TUCKFOLD_UNROLL
    for (int k = 0; k < 4; ++k) {
      low[m][k] =
          uint4{word_of<T>(first[k][0], last[0][k / 2]), word_of<T>(first[k][0], last[1][k / 2]),
                word_of<T>(first[k][1], last[0][k / 2]), word_of<T>(first[k][1], last[1][k / 2])};
    }
  }
}

// As high_word() counts them.
template <class T>
__device__ TUCKFOLD_INLINE void make_high(const Stages<T>& stages, int lane, uint4* high) {
  const int g = lane / 4, t = lane % 4;
  float2 first[4][2];
  TUCKFOLD_UNROLL
  for (int n = 0; n < 8; ++n) first[n / 2][n % 2] = stages.two(g, n * 8 + 2 * t);
  TUCKFOLD_UNROLL
  for (int m = 0; m < 4; ++m) {
    TUCKFOLD_UNROLL
    for (int k = 0; k < 4; ++k) {
      unsigned words[4];
      TUCKFOLD_UNROLL
      for (int n = 0; n < 2; ++n) {
        const int i = m * 16 + n * 8 + g, j = k * 16 + 2 * t;
        const float last = stages.one(4, i, j) * stages.one(5, i, j);
        words[n] = word_of<T>(first[k][0], stages.one(3, i, j) * last);
        words[n + 2] = word_of<T>(first[k][1], stages.one(3, i, j + 8) * last);
      }
      high[(m * 4 + k) * 32 + lane] = uint4{words[0], words[1], words[2], words[3]};
    }
  }
}

// ---- forward ------------------------------------------------------------------------------------

template <class T>
__global__ void __launch_bounds__(512, 1) wide_kernel(const __grid_constant__ WideArgs<T> args) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  using R = Rows<T>;
  const CudaButterfly& s = args.s;
  const int rank = static_cast<int>(blockIdx.x) % kRanks;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int clusters = static_cast<int>(gridDim.x) / kRanks / s.stack;
  const int product = static_cast<int>(blockIdx.x) / (kRanks * clusters);
  const int team = static_cast<int>(blockIdx.x) / kRanks % clusters;
  // The high number of the warp in the first half, the low one in the second.
  const int number = rank * kWarps + warp;
  const int outputs = min(s.n, s.out - product * s.n);

  unsigned char* memory = cuda::shared_memory();
  auto* high = reinterpret_cast<uint4*>(memory) + warp * (16 * 32);
  unsigned char* between = memory + kFragments * sizeof(uint4);
  unsigned char* input = between + 2 * kTileBytes + warp * kWarpInput;
  auto* full = reinterpret_cast<ClusterSignal*>(between + 3 * kTileBytes);
  ClusterSignal* empty = full + 2;

  const int tiles = static_cast<int>((args.samples + kSamples - 1) / kSamples);
  const auto start = [&](int tile) {
    if (tile < tiles) {
      start_tile<kSamples>(args.x, s.in, args.whole_x, number * 64, std::int64_t{tile} * kSamples,
                           args.samples, fresh(lane), input);
    }
    end_copies();
  };
  cuda::wait_for_previous_kernel();
  auto* low_twiddles = reinterpret_cast<Four<T>*>(between);
  Four<T>* high_twiddles = low_twiddles + 6 * Stages<T>::kStage;
  start_twiddles(s, args.twiddle + static_cast<std::int64_t>(product) * s.pairs * 4, rank,
                 low_twiddles, high_twiddles);
  end_copies();
  start(team);
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; ++i) {
      full[i].init(1);
      empty[i].init(kRanks * kWarps);
    }
  }
  float bias[4][2];
  TUCKFOLD_UNROLL
  for (int i = 0; i < 8; ++i) {
    const int feature = ((i * 8 + lane / 4) << S::kLow) + number;
    const bool has = args.bias != nullptr && feature < outputs;
    bias[i / 2][i % 2] = has ? widen(args.bias[product * s.n + feature]) : 0.0f;
  }
  wait_for_older_copies<1>();
  __syncthreads();
  make_high(Stages<T>{high_twiddles + warp * Stages<T>::kApart}, lane, high);
  uint4 low[4][4];
  make_low(Stages<T>{low_twiddles + warp * Stages<T>::kApart}, lane, low);
  __syncwarp();
  cuda::cluster_barrier();

  // The low stages of a turn's tile. Every eight samples of a feature go to the block that has it next.
  const auto first_half = [&](int tile, int turn) {
    const int side = turn % 2;
    wait_for_older_copies<0>();
    __syncwarp();
    const TileWords<2> words(input, fresh(lane));
    __syncwarp();
    start(tile + clusters);
    // All blocks have read what came to them two turns ago.
    if (turn > 1) empty[side].wait((turn / 2 - 1) % 2);
    if (threadIdx.x == 0) full[side].arrive_expecting(kTileBytes);
    const int at = fresh(lane);
    const bool odd = at % 2 != 0;  // of two lanes one takes row g + 8, the other row g
    unsigned char* to =
        between + side * kTileBytes + R::at((odd ? 8 : 0) + at / 4, number, at % 4 / 2);
    TUCKFOLD_UNROLL
    for (int m = 0; m < 4; ++m) {
      float c[2][4] = {};
      TUCKFOLD_UNROLL
      for (int k = 0; k < 4; ++k) {
        TUCKFOLD_UNROLL
        for (int n = 0; n < 2; ++n) {
          multiply_add<T>(c[n], low[m][k], words.at[n][k][0], words.at[n][k][1]);
        }
      }
      unsigned own[2], other[2];
      TUCKFOLD_UNROLL
      for (int n = 0; n < 2; ++n) {
        const unsigned first = cuda::pair_of<T>(c[n][0], c[n][1]);
        const unsigned second = cuda::pair_of<T>(c[n][2], c[n][3]);
        own[n] = odd ? second : first;
        other[n] = __shfl_xor_sync(cuda::kAllLanes, odd ? first : second, 1);
      }
      const float4 four = make_float4(
          __uint_as_float(odd ? other[0] : own[0]), __uint_as_float(odd ? other[1] : own[1]),
          __uint_as_float(odd ? own[0] : other[0]), __uint_as_float(odd ? own[1] : other[1]));
      cuda::Remote(reinterpret_cast<float4*>(to), full[side], m).store(0, four);
    }
  };

  // What is sent travels while the next tile's first half is done.
  if (team < tiles) first_half(team, 0);
  int turn = 0;
  for (int tile = team; tile < tiles; tile += clusters, ++turn) {
    const int side = turn % 2;
    unsigned char* rows = between + side * kTileBytes;
    if (tile + clusters < tiles) first_half(tile + clusters, turn + 1);
    full[side].wait(turn / 2 % 2);
    {
      const int at = fresh(lane);
      unsigned v[4][2][2];
      TUCKFOLD_UNROLL
      for (int k = 0; k < 4; ++k) {
        const uint4 w = cuda::load_matrices<true>(rows + R::at(warp, k * 16 + at % 16, at / 16));
        v[k][0][0] = w.x, v[k][0][1] = w.y, v[k][1][0] = w.z, v[k][1][1] = w.w;
      }
      TUCKFOLD_UNROLL
      for (int m = 0; m < 4; ++m) {
        float c[2][4];
        TUCKFOLD_UNROLL
        for (int i = 0; i < 8; ++i) c[i / 4][i % 4] = bias[m][i % 4 / 2];
        TUCKFOLD_UNROLL
        for (int k = 0; k < 4; ++k) {
          const uint4 a = high[(m * 4 + k) * 32 + at];
          TUCKFOLD_UNROLL
          for (int n = 0; n < 2; ++n) multiply_add<T>(c[n], a, v[k][n][0], v[k][n][1]);
        }
        TUCKFOLD_UNROLL
        for (int i = 0; i < 4; ++i) {
          const int half = i / 2, n = i % 2;
          *reinterpret_cast<unsigned*>(rows + R::at(warp, m * 16 + half * 8 + at / 4, n) +
                                       at % 4 * 4) =
              cuda::pair_of<T>(c[n][2 * half], c[n][2 * half + 1]);
        }
      }
    }
    __syncthreads();
    // Turned in 8 x 8: a lane gets eight low numbers of one sample, two lanes 32 bytes of y.
    const int at = fresh(lane), piece = warp % 2;
    uint4 v[4];
    TUCKFOLD_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int row = at % 8, low_number = row / 2 % 2 * 8 + at / 8 * 2 + row % 2;
      v[i] = cuda::load_matrices<true>(rows +
                                       R::at(low_number, warp / 2 * 8 + 2 * i + row / 4, piece));
    }
    __syncwarp();
    if (lane < kRanks) empty[side].arrive_in(lane);
    const std::int64_t row = std::int64_t{tile} * kSamples + piece * 8 + at / 4;
    if (row >= args.samples) continue;
    const int feature = ((warp / 2 * 8 + at % 4 / 2) << S::kLow) + rank * R::kBeside + at % 2 * 8;
    T* y = args.y + row * s.out + product * s.n + feature;
    TUCKFOLD_UNROLL
    for (int i = 0; i < 4; ++i) {
      const unsigned words[4] = {v[i].x, v[i].y, v[i].z, v[i].w};
      const int more = 2 * i << S::kLow;
      store_words<4>(y + more, words, outputs - feature - more, args.whole_y);
    }
  }
  // Others may still write here, or signal.
  cuda::cluster_barrier();
#endif
}

template <class T>
void run(const WideArgs<T>& args, void* stream) {
  const auto kernel = wide_kernel<T>;
  cuda::Grid grid{.blocks = kRanks, .threads = 32 * kWarps, .shared_bytes = kBytes};
  thread_local int known = -1, at_once = 0;
  const int device = cuda::ClusterDevice().number;
  if (device != known) {
    at_once = std::max(cuda::clusters_at_once(kernel, kRanks, grid), 1);
    known = device;
  }
  const std::int64_t wanted = cuda::blocks_for(args.samples, kSamples);
  grid.blocks =
      std::min<std::int64_t>(wanted, std::max(at_once / args.s.stack, 1)) * kRanks * args.s.stack;
  grid.early = true;
  cuda::launch_clusters(kernel, kRanks, grid, stream, args);
}

}  // namespace

void wide_forward(const CudaButterfly& s, DType dtype, std::int64_t samples, const void* x,
                  const void* twiddle, const void* bias, void* y, void* stream) {
  const auto run_as = [&](auto number) {
    using T = decltype(number);
    run(WideArgs<T>{.s = s,
                    .x = static_cast<const T*>(x),
                    .twiddle = static_cast<const T*>(twiddle),
                    .bias = static_cast<const T*>(bias),
                    .y = static_cast<T*>(y),
                    .samples = samples,
                    .whole_x = in_pieces(x, s.in, sizeof(T)),
                    .whole_y = in_pieces(y, s.out, sizeof(T))},
        stream);
  };
  dtype == DType::F16 ? run_as(F16{}) : run_as(BF16{});
}

}  // namespace tuckfold::structured
