// The last step of backward of a butterfly of halves, see butterfly_blocks_backward_cuda.cu: adds up the shares of
// samples, in order, and leads the gradients of matrices back to those of twiddles.
#include "structured/butterfly/butterfly_blocks_cuda.cuh"

namespace tuckfold::structured {
namespace {

// The gradients of kBits stages from those of a matrix that they make. Entry (i, j) of the first `level` stages is
// not zero where i and j agree in the bits from `level` on: part() has those, by the low bits of j. Likewise of the
// gradients of the first level + 1 stages only those count where i and j agree in the bits above: grads().
template <int kBits>
struct StageGradients {
  static constexpr int kRows = 1 << kBits, kThreads = 512;
  float twiddles[kBits * 2 * kRows];  // of each stage and pair
  float parts[kRows * (kRows - 1 + kBits)];
  float grads[kRows * (2 * kRows - 2 + kBits)];

  __device__ TUCKFOLD_INLINE float& part(int level, int i, int low) {
    return parts[kRows * ((1 << level) - 1 + level) + i * ((1 << level) + 1) + low];
  }
  __device__ TUCKFOLD_INLINE float& grad(int level, int i, int low) {
    const int before = 2 * kRows - (4 << level) + kBits - 1 - level;
    return grads[kRows * before + i * ((2 << level) + 1) + low];
  }
  __device__ TUCKFOLD_INLINE float twiddle(int level, int i, int row, int column) const {
    const int pair = i >> (level + 1) << level | (i & ((1 << level) - 1));
    return twiddles[4 * (level * (kRows / 2) + pair) + 2 * row + column];
  }

  // Twiddles and grad(kBits - 1, ...) are there. Calls store with a stage, the first feature of a pair, the
  // number of an entry, and its gradient.
  template <class Store>
  __device__ TUCKFOLD_INLINE void run(Store&& store) {
    const int thread = static_cast<int>(threadIdx.x);
    for (int i = thread; i < kRows; i += kThreads) part(0, i, 0) = 1;
    TUCKFOLD_UNROLL
    for (int level = 0; level + 1 < kBits; ++level) {
      __syncthreads();
      for (int at = thread; at < kRows * (2 << level); at += kThreads) {
        const int i = at >> (level + 1), j = at & ((2 << level) - 1), bit = j >> level;
        part(level + 1, i, j) =
            twiddle(level, i, i >> level & 1, bit) *
            part(level, (i & ~(1 << level)) | bit << level, j & ((1 << level) - 1));
      }
    }
    TUCKFOLD_UNROLL
    for (int level = kBits - 1; level >= 0; --level) {
      __syncthreads();
      for (int at = thread; at < 2 * kRows; at += kThreads) {
        const int pair = at / 4, row = at / 2 % 2, column = at % 2;
        const int i = pair >> level << (level + 1) | (pair & ((1 << level) - 1));
        float sum = 0;
#pragma unroll 8
        for (int low = 0; low < 1 << level; ++low) {
          sum = fmaf(grad(level, i | row << level, column << level | low),
                     part(level, i | column << level, low), sum);
        }
        store(level, i, at % 4, sum);
      }
      if (level == 0) break;
      for (int at = thread; at < kRows << level; at += kThreads) {
        const int i = at >> level, j = (i >> level & 1) << level | (at & ((1 << level) - 1));
        const int first = i & ~(1 << level), bit = i >> level & 1;
        grad(level - 1, i, at & ((1 << level) - 1)) =
            fmaf(twiddle(level, i, 1, bit), grad(level, first | 1 << level, j),
                 twiddle(level, i, 0, bit) * grad(level, first, j));
      }
    }
  }
};

// A block for each matrix: first those of low bits, then those of high bits; then for the bias.
template <class T, class S>
__global__ void __launch_bounds__(512) twiddles_kernel(const __grid_constant__ BlocksSums args) {
  const CudaButterfly& s = args.s;
  const int number = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  const bool of_matrix = number < (1 << S::kHigh) + (1 << S::kLow);
  if (of_matrix && args.grad_twiddle == nullptr) return;
  const auto run = [&](auto bits, const float* sums, int matrices, int matrix, int first_level,
                       auto&& feature) {
    constexpr int kBits = decltype(bits)::value, kRows = 1 << kBits;
    auto& g = *reinterpret_cast<StageGradients<kBits>*>(cuda::shared_memory());
    const auto pair_number = [&](int bit, int position) {
      return twiddle_of(s, feature(position), first_level + bit);
    };
    for (int at = thread; at < kBits * kRows / 2; at += 512) {
      const int bit = at / (kRows / 2), pair = at % (kRows / 2);
      const int position = pair >> bit << (bit + 1) | (pair & ((1 << bit) - 1));
      const auto four = reinterpret_cast<const Four<T>*>(args.twiddle)[pair_number(bit, position)];
      TUCKFOLD_UNROLL
      for (int i = 0; i < 4; ++i) g.twiddles[4 * at + i] = widen(four.at[i]);
    }
    // Shares of samples, in order: threads have four numbers, and where they are more than the fours, every
    // so many shares; those add up next.
    constexpr int kFours = kRows * kRows / 4, kParts = kFours < 512 ? 512 / kFours : 1;
    const auto* fours =
        reinterpret_cast<const float4*>(sums) + static_cast<std::int64_t>(matrix) * kFours;
    float4* others = reinterpret_cast<float4*>(&g + 1);
    TUCKFOLD_UNROLL
    for (int i = 0; i < kFours * kParts / 512; ++i) {
      const int at = (i * 512 + thread) % kFours, part = (i * 512 + thread) / kFours;
      float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 8
      for (int share = part; share < args.shares; share += kParts) {
        const float4 more = fours[static_cast<std::int64_t>(share) * matrices * kFours + at];
        add_to(sum, more);
      }
      if (kParts > 1) {
        others[part * kFours + at] = sum;
      } else {
        const float four[4] = {sum.x, sum.y, sum.z, sum.w};
        TUCKFOLD_UNROLL
        for (int k = 0; k < 4; ++k) {
          g.grad(kBits - 1, at * 4 / kRows, at * 4 % kRows + k) = four[k];
        }
      }
    }
    if (kParts > 1) {
      __syncthreads();
      for (int at = thread; at < kRows * kRows; at += 512) {
        float sum = 0;
        for (int part = 0; part < kParts; ++part) {
          sum += reinterpret_cast<const float*>(others)[part * kRows * kRows + at];
        }
        g.grad(kBits - 1, at / kRows, at % kRows) = sum;
      }
    }
    g.run([&](int bit, int position, int entry, float sum) {
      const int level = first_level + bit;
      if (args.all != nullptr) {
        const int pair = matrix_of(feature(position), level, false);
        args.all[4 * (level * (s.n / 2) + pair) + entry] = sum;
      } else {
        narrow(sum, static_cast<T*>(args.grad_twiddle)[4 * pair_number(bit, position) + entry]);
      }
    });
  };
  if (number < 1 << S::kHigh) {
    run(Int<S::kLow>(), args.low, 1 << S::kHigh, number, 0,
        [&](int position) { return number << S::kLow | position; });
  } else if (of_matrix) {
    const int low = number - (1 << S::kHigh);
    run(Int<S::kHigh>(), args.high, 1 << S::kLow, low, S::kLow,
        [&](int position) { return position << S::kLow | low; });
  } else {
    const int feature = (number - (1 << S::kHigh) - (1 << S::kLow)) * 512 + thread;
    if (args.grad_bias == nullptr || feature >= args.outputs || feature >= S::kFeatures) return;
    float sum = 0;
#pragma unroll 8
    for (int share = 0; share < args.shares; ++share) {
      sum += args.bias[static_cast<std::int64_t>(share) * S::kFeatures + feature];
    }
    narrow(sum, static_cast<T*>(args.grad_bias)[feature]);
  }
}
// Of the larger matrices, and what 512 threads have of smaller ones.
template <class S>
constexpr std::size_t kTwiddlesBytes =
    sizeof(StageGradients<(S::kLow > S::kHigh ? S::kLow : S::kHigh)>) + 512 * sizeof(float4);

// A warp for each tied matrix: over the pairs that share it.
template <class T>
__global__ void __launch_bounds__(128) tie_kernel(const __grid_constant__ BlocksSums args) {
  const CudaButterfly& s = args.s;
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp;
  int at = static_cast<int>(blockIdx.x * (blockDim.x / cuda::kWarp) + threadIdx.x / cuda::kWarp);
  if (at >= s.n - 1) return;
  int level = 0;
  for (const int number = at + 1; number >> (level + 1) > 0;) ++level;
  at -= (1 << level) - 1;
  float4 sum = make_float4(0, 0, 0, 0);
  for (int block = lane; block < s.n >> (level + 1); block += cuda::kWarp) {
    const float4 more =
        reinterpret_cast<const float4*>(args.all)[level * (s.n / 2) + (block << level) + at];
    add_to(sum, more);
  }
  add_lanes(sum);
  if (lane == 0)
    store_matrix(sum, static_cast<T*>(args.grad_twiddle) + 4 * ((1 << level) - 1 + at));
}

template <class T, class S>
void twiddles(const BlocksSums& sums, void* stream) {
  if (sums.grad_twiddle == nullptr && sums.grad_bias == nullptr) return;
  const std::int64_t matrices = (1 << S::kLow) + (1 << S::kHigh);
  cuda::launch(
      twiddles_kernel<T, S>,
      {.blocks = matrices + S::kFeatures / 512, .threads = 512, .shared_bytes = kTwiddlesBytes<S>},
      stream, sums);
  if (sums.s.tied && sums.grad_twiddle != nullptr) {
    cuda::launch(tie_kernel<T>, {.blocks = cuda::blocks_for(sums.s.n - 1, 4), .threads = 128},
                 stream, sums);
  }
}

}  // namespace

void blocks_twiddles(const BlocksSums& sums, DType dtype, void* stream) {
  with_split(sums.s.n, [&](auto split) {
    using S = decltype(split);
    dtype == DType::F16 ? twiddles<F16, S>(sums, stream) : twiddles<BF16, S>(sums, stream);
  });
}

}  // namespace tuckfold::structured
