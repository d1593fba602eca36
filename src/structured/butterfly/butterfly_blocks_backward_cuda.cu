// Backward of a butterfly of halves by tensor cores, see butterfly_blocks_cuda.cuh. It multiplies the stages out
// once more, and needs three passes over samples:
//
//   low_kernel:            v = low stages of x, again
//   high_backward_kernel:  gradients of v and of the matrices of high bits, from v and grad_y
//   low_backward_kernel:   gradients of x and of the matrices of low bits, from x and the gradients of v
//
// A warp keeps the gradients of its matrices in registers. Each block has its share of samples; the last kernels
// add up the shares, in order, and lead the gradients of matrices back to those of twiddles: the same bits
// every time on the same kind of GPU.
#include "structured/butterfly/butterfly_blocks_cuda.cuh"

namespace tuckfold::structured {
namespace {

using cuda::load_matrices;
using cuda::multiply_add;

template <class T>
struct BlocksBackwardArgs {
  CudaButterfly s;
  int product;
  const T *x, *twiddle, *grad_y;  // the last two from this product on
  T* grad_x;                      // may be null
  uint4 *low, *low_back, *high;   // fragments
  unsigned char *v, *grad_v;
  float *low_sums, *high_sums, *bias_sums;  // of gradients, for each share of samples
  std::int64_t samples;
  bool whole_x, whole_y;  // whether rows are whole pieces of sixteen bytes
};

// Features of 64 that column g of product n is, in gradients of x: a lane's of four products are eight that
// follow each other.
__device__ TUCKFOLD_INLINE constexpr int beside(int n, int g) {
  return n / 4 * 32 + turned(n % 4, g);
}

// A thread for each word of a fragment.
template <class T, class S>
__global__ void __launch_bounds__(256)
    backward_matrices_kernel(const __grid_constant__ BlocksBackwardArgs<T> args) {
  const CudaButterfly& s = args.s;
  const auto word_of = [](uint4* words, int at) { return reinterpret_cast<unsigned*>(words) + at; };
  int at = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (at < 4 * S::kLowWords) {
    *word_of(args.low, at) = low_word<T, S>(s, args.twiddle, at);
    return;
  }
  at -= 4 * S::kLowWords;
  if (at < 4 * S::kHighWords) {
    *word_of(args.high, at) = high_word<T, S, true>(s, args.twiddle, at);
    return;
  }
  at -= 4 * S::kHighWords;
  // Words, lanes, pairs of products of 16 x 8, steps of the sum, matrices.
  constexpr int kPairs = (1 << S::kLow) / 16;
  const int k = at % 4, lane = at / 4 % 32, g = lane / 4, t = lane % 4;
  const int pair = at / 128 % kPairs, step = at / (128 * kPairs) % S::kLowSteps;
  const int first = at / (128 * kPairs * S::kLowSteps) << S::kLow;
  const float2 two = entries_to<0, S::kLow>(s, args.twiddle, first + step * 16 + k % 2 * 8 + 2 * t,
                                            first + beside(pair * 2 + k / 2, g));
  *word_of(args.low_back, at) = cuda::pair_of<T>(two.x, two.y);
}

// ---- high bits ----------------------------------------------------------------------------------

template <class S, int kAhead>
struct HighMemory {
  static constexpr int kHalf = kBlockFeatures * 64;  // bytes of a tile of 512 features
  static constexpr int kFragments = kTileWarps * 4 * S::kHighSteps * 32 * 16;
  static constexpr std::size_t kBytes = kAhead * 2 * kHalf + Between<S>::kBytes + kFragments;
};

// Starts the copies of a block's part of grad_y: pieces of eight low numbers, those of all samples for each
// high number and each eight. Lanes that turn them find them in different banks.
template <class T, class S>
__device__ TUCKFOLD_INLINE void start_grad_y(const BlocksBackwardArgs<T>& args, int rank,
                                             std::int64_t first, int thread, unsigned char* to) {
  constexpr int kEights = S::kBeside / 8;
  const CudaButterfly& s = args.s;
  const int outputs = min(s.n, s.out - args.product * s.n);
  TUCKFOLD_UNROLL
  for (int i = 0; i < 8; ++i) {
    const int number = i * 256 + thread;
    const int eight = number % kEights, sample = number / kEights % 32,
              high = number / kEights / 32;
    const int feature = (high << S::kLow) + rank * S::kBeside + eight * 8;
    unsigned char* place = to + ((high * kEights + eight) * 32 + (sample ^ (sample / 8 * 2))) * 16;
    start_eight(place, args.grad_y + (first + sample) * s.out + feature,
                first + sample < args.samples ? outputs - feature : 0, args.whole_y);
  }
}

template <class T>
__device__ TUCKFOLD_INLINE float sum_of(const uint4& eight) {
  float sum = 0;
  const unsigned words[4] = {eight.x, eight.y, eight.z, eight.w};
  TUCKFOLD_UNROLL
  for (int i = 0; i < 4; ++i) {
    sum += widen(T{static_cast<std::uint16_t>(words[i])});
    sum += widen(T{static_cast<std::uint16_t>(words[i] >> 16)});
  }
  return sum;
}

template <class T, class S, int kAhead>
__global__ void __launch_bounds__(256, 1)
    high_backward_kernel(const __grid_constant__ BlocksBackwardArgs<T> args) {
  using E = Between<S>;
  using Memory = HighMemory<S, kAhead>;
  constexpr int kEights = S::kBeside / 8, kRows = 1 << S::kHigh;
  const Share512 of(S::kRanks);
  const int first_low = of.rank * S::kBeside + of.warp * S::kOfWarp;  // of the warp

  unsigned char* memory = cuda::shared_memory();
  unsigned char* rows = memory + kAhead * 2 * Memory::kHalf;  // grad_y, samples side by side
  const auto raw = [&](int turn) { return memory + turn % kAhead * 2 * Memory::kHalf; };
  const auto input = [&](int turn) { return raw(turn) + Memory::kHalf + of.warp * 4096; };
  const std::int64_t tiles = tiles_of(args.samples);
  const auto start = [&](std::int64_t tile, int turn) {
    if (tile < tiles) {
      const int lane = fresh(of.lane);
      start_grad_y<T, S>(args, of.rank, tile * kTileSamples, of.warp * 32 + lane, raw(turn));
      const unsigned char* from = args.v + between_at<S>(tile, first_low, 0);
      TUCKFOLD_UNROLL
      for (int i = 0; i < 8; ++i) {
        const int number = i * 32 + lane;
        cuda::copy_async(input(turn) + piece_at(number / 4, number % 4), from + number * 16);
      }
    }
    end_copies();
  };
  TUCKFOLD_UNROLL
  for (int i = 0; i < kAhead; ++i) start(of.share + std::int64_t{i} * of.shares, i);

  auto* high = reinterpret_cast<uint4*>(rows + E::kBytes) + of.warp * (4 * S::kHighSteps * 32);
  const uint4* from = args.high + first_low * (S::kHighSteps * S::kHighSteps * 32) + of.lane;
  TUCKFOLD_UNROLL
  for (int i = 0; i < 4 * S::kHighSteps; ++i) high[i * 32 + of.lane] = from[i * 32];
  float sums[S::kOfWarp][S::kHighSteps][2 * S::kHighSteps][4] = {};
  float bias[8] = {};

  int turn = 0;
  for (std::int64_t tile = of.share; tile < tiles; tile += of.shares, ++turn) {
    wait_for_older_copies<kAhead - 1>();
    __syncthreads();
    TUCKFOLD_UNROLL
    for (int i = 0; i < 8; ++i) {  // a high number and eight low ones of 32 samples, turned
      const int at = fresh(of.lane);
      const int number = i * kTileWarps + of.warp;
      const int sample = turned(at / 8, at % 8);
      const uint4 v =
          load_matrices<true>(raw(turn) + (number * 32 + (sample ^ (sample / 8 * 2))) * 16);
      *reinterpret_cast<uint4*>(rows +
                                E::at(number % kEights * 8 + at / 4, number / kEights, at % 4)) = v;
      bias[i] += sum_of<T>(v);
    }
    __syncthreads();
    TUCKFOLD_UNROLL
    for (int u = 0; u < S::kOfWarp; ++u) {
      int lane = fresh(of.lane);
      const int at_low = of.warp * S::kOfWarp + u;
      const auto where = [&](int row, int piece) { return rows + E::at(at_low, row, piece); };
      unsigned v[S::kHighSteps][4][2];
      load_high<S>(v, lane, where);
#pragma unroll 1  // for registers
      for (int m = 0; m < S::kHighSteps; ++m) {
        float c[4][4] = {};
        TUCKFOLD_UNROLL
        for (int k = 0; k < S::kHighSteps; ++k) {
          const uint4 a = high[((u * S::kHighSteps + m) * S::kHighSteps + k) * 32 + lane];
          TUCKFOLD_UNROLL
          for (int n = 0; n < 4; ++n) multiply_add<T>(c[n], a, v[k][n][0], v[k][n][1]);
        }
        TUCKFOLD_UNROLL
        for (int half = 0; half < 2; ++half) {
          *reinterpret_cast<uint4*>(
              args.grad_v + between_at<S>(tile, first_low + u, m * 16 + half * 8 + lane / 4) +
              lane % 4 * 16) = eight_samples<T>(c, half);
        }
      }
      // Sums over samples, 16 at a time.
      lane = fresh(of.lane);
      uint4 a[S::kHighSteps][2];
      TUCKFOLD_UNROLL
      for (int i = 0; i < 2 * S::kHighSteps; ++i) {
        a[i / 2][i % 2] =
            load_matrices<false>(where(i / 2 * 16 + lane % 16, i % 2 * 2 + lane / 16));
      }
      TUCKFOLD_UNROLL
      for (int n = 0; n < 2 * S::kHighSteps; ++n) {
        const uint4 b =
            load_matrices<false>(input(turn) + piece_at(u * kRows + n * 8 + lane % 8, lane / 8));
        TUCKFOLD_UNROLL
        for (int m = 0; m < S::kHighSteps; ++m) {
          multiply_add<T>(sums[u][m][n], a[m][0], b.x, b.y);
          multiply_add<T>(sums[u][m][n], a[m][1], b.z, b.w);
        }
      }
    }
    __syncwarp();
    start(tile + std::int64_t{kAhead} * of.shares, turn);
  }

  const int g = of.lane / 4, t = of.lane % 4;
  TUCKFOLD_UNROLL
  for (int u = 0; u < S::kOfWarp; ++u) {
    const std::int64_t matrix =
        static_cast<std::int64_t>(of.share) * (1 << S::kLow) + first_low + u;
    float* to = args.high_sums + matrix * (kRows * kRows) + g * kRows + 2 * t;
    TUCKFOLD_UNROLL
    for (int i = 0; i < 2 * S::kHighSteps * S::kHighSteps; ++i) {
      const int m = i / (2 * S::kHighSteps), n = i % (2 * S::kHighSteps);
      const float(&c)[4] = sums[u][m][n];
      *reinterpret_cast<float2*>(to + m * 16 * kRows + n * 8) = make_float2(c[0], c[1]);
      *reinterpret_cast<float2*>(to + (m * 16 + 8) * kRows + n * 8) = make_float2(c[2], c[3]);
    }
  }
  if (args.bias_sums == nullptr) return;
  TUCKFOLD_UNROLL
  for (int i = 0; i < 8; ++i) {
    const int number = i * kTileWarps + of.warp;
    float sum = bias[i];
    sum += __shfl_xor_sync(cuda::kAllLanes, sum, 1);
    sum += __shfl_xor_sync(cuda::kAllLanes, sum, 2);
    const int feature =
        (number / kEights << S::kLow) + of.rank * S::kBeside + number % kEights * 8 + g;
    if (t == 0) args.bias_sums[static_cast<std::int64_t>(of.share) * S::kFeatures + feature] = sum;
  }
}

// ---- low bits -----------------------------------------------------------------------------------

template <class T, class S, int kAhead>
__global__ void __launch_bounds__(256, 1)
    low_backward_kernel(const __grid_constant__ BlocksBackwardArgs<T> args) {
  constexpr int kRows = 1 << S::kLow, kMatrices = 64 / kRows;
  const CudaButterfly& s = args.s;
  const Share512 of(S::kRanks);
  const int features = of.rank * kBlockFeatures + of.warp * 64;

  unsigned char* memory = cuda::shared_memory() + of.warp * 2 * kInputBytes;
  const auto grads = [&](int turn) {
    return memory + turn % kAhead * 2 * kTileWarps * kInputBytes;
  };
  const auto input = [&](int turn) { return grads(turn) + kInputBytes; };
  // Samples stand in the order in which gradients of v have them.
  const auto x_at = [&](int row, int q) { return row * 128 + (q ^ (row % 8)) * 16; };
  const std::int64_t tiles = tiles_of(args.samples);
  const auto start = [&](std::int64_t tile, int turn) {
    if (tile < tiles) {
      const int lane = fresh(of.lane), q = lane % 8;
      TUCKFOLD_UNROLL
      for (int i = 0; i < 8; ++i) {
        const int row = 4 * i + lane / 8;
        const std::int64_t sample = tile * kTileSamples + turned(row / 8, row % 8);
        start_eight(input(turn) + x_at(row, q), args.x + sample * s.in + features + 8 * q,
                    sample < args.samples ? s.in - features - 8 * q : 0, args.whole_x);
        const int number = i * 32 + lane, feature = features + number / 4;
        cuda::copy_async(grads(turn) + piece_at(number / 4, number % 4),
                         args.grad_v +
                             between_at<S>(tile, feature & (kRows - 1), feature >> S::kLow) +
                             number % 4 * 16);
      }
    }
    end_copies();
  };
  TUCKFOLD_UNROLL
  for (int i = 0; i < kAhead; ++i) start(of.share + std::int64_t{i} * of.shares, i);

  constexpr int kPairs = kRows / 16;
  auto* low =
      reinterpret_cast<uint4*>(cuda::shared_memory() + kAhead * 2 * kTileWarps * kInputBytes) +
      of.warp * (4 * S::kLowSteps * 32);
  const uint4* from = args.low_back + features / 64 * (4 * S::kLowSteps * 32) + of.lane;
  TUCKFOLD_UNROLL
  for (int i = 0; i < 4 * S::kLowSteps; ++i) low[i * 32 + of.lane] = from[i * 32];
  float sums[kMatrices][S::kLowSteps][kRows / 8][4] = {};

  int turn = 0;
  for (std::int64_t tile = of.share; tile < tiles; tile += of.shares, ++turn) {
    wait_for_older_copies<kAhead - 1>();
    __syncwarp();
    const int lane = fresh(of.lane), g = lane / 4, t = lane % 4;
    TUCKFOLD_UNROLL
    for (int u = 0; u < kMatrices; ++u) {
      if (args.grad_x != nullptr) {
#pragma unroll 1                       // for registers
        for (int m = 0; m < 2; ++m) {  // 16 samples
          uint4 a[S::kLowSteps];
          TUCKFOLD_UNROLL
          for (int k = 0; k < S::kLowSteps; ++k) {
            a[k] = load_matrices<true>(
                grads(turn) +
                piece_at(u * kRows + k * 16 + lane / 16 * 8 + lane % 8, m * 2 + lane / 8 % 2));
          }
          TUCKFOLD_UNROLL
          for (int q = 0; q < kRows / 32; ++q) {  // 32 features
            float c[4][4] = {};
            TUCKFOLD_UNROLL
            for (int k = 0; k < S::kLowSteps; ++k) {
              TUCKFOLD_UNROLL
              for (int n = 0; n < 4; n += 2) {
                const uint4 b = low[((u * S::kLowSteps + k) * kPairs + q * 2 + n / 2) * 32 + lane];
                multiply_add<T>(c[n], a[k], b.x, b.y);
                multiply_add<T>(c[n + 1], a[k], b.z, b.w);
              }
            }
            TUCKFOLD_UNROLL
            for (int half = 0; half < 2; ++half) {
              const std::int64_t sample = tile * kTileSamples + turned(m * 2 + half, g);
              const int feature = features + u * kRows + q * 32 + t * 8;
              if (sample >= args.samples || feature >= s.in) continue;
              T* to = args.grad_x + sample * s.in + feature;
              if (args.product > 0) {  // the gradients of all products
                TUCKFOLD_UNROLL
                for (int i = 0; i < 8; ++i) {
                  if (feature + i < s.in) c[i / 2][2 * half + i % 2] += widen(to[i]);
                }
              }
              const uint4 v = eight_samples<T>(c, half);
              const unsigned words[4] = {v.x, v.y, v.z, v.w};
              store_words<4>(to, words, s.in - feature, args.whole_x);
            }
          }
        }
      }
      uint4 a[S::kLowSteps][2];
      TUCKFOLD_UNROLL
      for (int i = 0; i < 2 * S::kLowSteps; ++i) {
        a[i / 2][i % 2] = load_matrices<false>(
            grads(turn) + piece_at(u * kRows + i / 2 * 16 + lane % 16, i % 2 * 2 + lane / 16));
      }
      TUCKFOLD_UNROLL
      for (int n = 0; n < kRows / 8; ++n) {
        const uint4 b = load_matrices<true>(input(turn) + x_at(lane, u * (kRows / 8) + n));
        TUCKFOLD_UNROLL
        for (int m = 0; m < S::kLowSteps; ++m) {
          multiply_add<T>(sums[u][m][n], a[m][0], b.x, b.y);
          multiply_add<T>(sums[u][m][n], a[m][1], b.z, b.w);
        }
      }
    }
    __syncwarp();
    start(tile + std::int64_t{kAhead} * of.shares, turn);
  }
  const int g = of.lane / 4, t = of.lane % 4;
  TUCKFOLD_UNROLL
  for (int u = 0; u < kMatrices; ++u) {
    const std::int64_t matrix =
        static_cast<std::int64_t>(of.share) * (1 << S::kHigh) + (features >> S::kLow) + u;
    float* to = args.low_sums + matrix * (kRows * kRows) + g * kRows + 2 * t;
    TUCKFOLD_UNROLL
    for (int i = 0; i < S::kLowSteps * (kRows / 8); ++i) {
      const int m = i / (kRows / 8), n = i % (kRows / 8);
      const float(&c)[4] = sums[u][m][n];
      *reinterpret_cast<float2*>(to + m * 16 * kRows + n * 8) = make_float2(c[0], c[1]);
      *reinterpret_cast<float2*>(to + (m * 16 + 8) * kRows + n * 8) = make_float2(c[2], c[3]);
    }
  }
}

// ---- launches -----------------------------------------------------------------------------------

template <class S>
struct BlocksBackwardShape {
  int shares;
  std::size_t fragments, between, low_sums, high_sums, bias_sums, all;  // bytes

  explicit BlocksBackwardShape(const CudaButterfly& s, std::int64_t samples) {
    const std::int64_t tiles = cuda::blocks_for(samples, kTileSamples);
    shares = static_cast<int>(
        std::clamp<std::int64_t>(tiles, 1, std::max(cuda::device().sms / S::kRanks, 1)));
    fragments = (2 * S::kLowWords + S::kHighWords) * sizeof(uint4);
    between = static_cast<std::size_t>(tiles) * S::kFeatures * 64;
    low_sums = static_cast<std::size_t>(shares) * S::kFeatures * (1 << S::kLow) * 4;
    high_sums = static_cast<std::size_t>(shares) * S::kFeatures * (1 << S::kHigh) * 4;
    bias_sums = static_cast<std::size_t>(shares) * S::kFeatures * 4;
    all = s.tied ? static_cast<std::size_t>(S::kFeatures) * (S::kLow + S::kHigh) * 8 : 0;
  }
  std::size_t bytes() const {
    return fragments + 2 * between + low_sums + high_sums + bias_sums + all;
  }
};

template <class T, class S>
void one_product(const BlocksBackwardArgs<T>& args, const BlocksSums& sums, void* stream) {
  cuda::launch(backward_matrices_kernel<T, S>,
               {.blocks = (2 * S::kLowWords + S::kHighWords) / 64, .threads = 256}, stream, args);
  const std::int64_t blocks = static_cast<std::int64_t>(sums.shares) * S::kRanks;
  constexpr int kAhead = 3, kAheadBack = 2;
  constexpr std::size_t kWarps = kTileWarps;
  cuda::launch(low_kernel<T, S, kAhead>,
               {.blocks = blocks, .threads = 256, .shared_bytes = kAhead * kWarps * kInputBytes},
               stream,
               LowArgs<T>{.s = args.s,
                          .x = args.x,
                          .low = args.low,
                          .v = args.v,
                          .samples = args.samples,
                          .whole_x = args.whole_x});
  cuda::launch(
      high_backward_kernel<T, S, kAheadBack>,
      {.blocks = blocks, .threads = 256, .shared_bytes = HighMemory<S, kAheadBack>::kBytes}, stream,
      args);
  cuda::launch(
      low_backward_kernel<T, S, kAheadBack>,
      {.blocks = blocks,
       .threads = 256,
       .shared_bytes = kAheadBack * 2 * kWarps * kInputBytes + kWarps * 4 * S::kLowSteps * 32 * 16},
      stream, args);
  blocks_twiddles(sums, std::is_same_v<T, F16> ? DType::F16 : DType::BF16, stream);
}

template <class T, class S>
void backward(const CudaButterfly& s, std::int64_t samples, const void* x, const void* twiddle,
              const void* grad_y, void* grad_x, void* grad_twiddle, void* grad_bias,
              void* workspace, void* stream) {
  const BlocksBackwardShape<S> shape(s, samples);
  auto* memory = static_cast<unsigned char*>(workspace);
  const auto take = [&](std::size_t bytes) {
    unsigned char* here = memory;
    memory += bytes;
    return here;
  };
  auto* fragments = reinterpret_cast<uint4*>(take(shape.fragments));
  BlocksBackwardArgs<T> args{.s = s,
                             .product = 0,
                             .x = static_cast<const T*>(x),
                             .twiddle = static_cast<const T*>(twiddle),
                             .grad_y = static_cast<const T*>(grad_y),
                             .grad_x = static_cast<T*>(grad_x),
                             .low = fragments,
                             .low_back = fragments + S::kLowWords,
                             .high = fragments + 2 * S::kLowWords,
                             .v = take(shape.between),
                             .grad_v = take(shape.between),
                             .low_sums = reinterpret_cast<float*>(take(shape.low_sums)),
                             .high_sums = reinterpret_cast<float*>(take(shape.high_sums)),
                             .bias_sums = reinterpret_cast<float*>(take(shape.bias_sums)),
                             .samples = samples,
                             .whole_x = in_pieces(x, s.in, sizeof(T)) &&
                                        (grad_x == nullptr || in_pieces(grad_x, s.in, sizeof(T))),
                             .whole_y = in_pieces(grad_y, s.out, sizeof(T))};
  BlocksSums sums{.s = s,
                  .twiddle = twiddle,
                  .low = args.low_sums,
                  .high = args.high_sums,
                  .bias = args.bias_sums,
                  .shares = shape.shares,
                  .outputs = s.out,
                  .all = s.tied ? reinterpret_cast<float*>(take(shape.all)) : nullptr,
                  .grad_twiddle = grad_twiddle,
                  .grad_bias = grad_bias};
  for (int product = 0; product < s.stack; ++product) {
    one_product<T, S>(args, sums, stream);
    const std::int64_t numbers = static_cast<std::int64_t>(s.pairs) * 4;
    ++args.product;
    args.twiddle += numbers;
    args.grad_y += s.n;
    sums.twiddle = args.twiddle;
    sums.outputs -= s.n;
    if (grad_twiddle != nullptr) sums.grad_twiddle = static_cast<T*>(sums.grad_twiddle) + numbers;
    if (grad_bias != nullptr) sums.grad_bias = static_cast<T*>(sums.grad_bias) + s.n;
  }
}

}  // namespace

std::size_t blocks_backward_bytes(const CudaButterfly& s, std::int64_t samples) {
  std::size_t bytes = 0;
  with_split(s.n,
             [&](auto split) { bytes = BlocksBackwardShape<decltype(split)>(s, samples).bytes(); });
  return bytes;
}

void blocks_backward(const CudaButterfly& s, DType dtype, std::int64_t samples, const void* x,
                     const void* twiddle, const void* grad_y, void* grad_x, void* grad_twiddle,
                     void* grad_bias, void* workspace, void* stream) {
  with_split(s.n, [&](auto split) {
    using S = decltype(split);
    const auto run = [&](auto element) {
      using T = decltype(element);
      backward<T, S>(s, samples, x, twiddle, grad_y, grad_x, grad_twiddle, grad_bias, workspace,
                     stream);
    };
    dtype == DType::F16 ? run(F16{}) : run(BF16{});
  });
}

}  // namespace tuckfold::structured
