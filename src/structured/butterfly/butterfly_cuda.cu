// Butterflies on a GPU: all stages in one pass over memory. A block has some samples in shared memory;
// a thread takes eight features of a sample to registers, does three stages, and puts them back, for
// all samples with the same twiddles. So a stage's twiddles are read once for as many samples as shared
// memory holds.
#include "structured/butterfly/butterfly_blocks_cuda.cuh"

namespace tuckfold::structured {
namespace {

using cuda::launch;

template <class T>
struct ForwardArgs {
  CudaButterfly s;
  const T *x, *twiddle, *bias;
  T* y;
  std::int64_t samples;
  int rows;  // that a block takes
  bool whole_x, whole_y;
};

// A block's samples through one group: from x or shared memory, to y or shared memory.
template <class B, bool kFirst, bool kLast, class T>
__device__ TUCKFOLD_INLINE void forward_group(const ForwardArgs<T>& args, const CudaGroup& group,
                                              const Share& share, int product, std::int64_t first,
                                              int rows, float* tile) {
  const CudaButterfly& s = args.s;
  const T* twiddle = args.twiddle + static_cast<std::int64_t>(product) * s.pairs * 4;
  const int outputs = min(s.n, s.out - product * s.n);
  for (int u = share.first_unit; u < s.n / 8; u += share.unit_step) {
    const int base = base_of(u, group.lo);
    float4 t[B::kCount][4];
    load_twiddles<B>(twiddle, group, base, s.tied, t);
    float bias[8] = {};
    if (kLast && args.bias != nullptr) {
      load_features(args.bias + product * s.n, base, group.lo, outputs, false, bias);
    }
#pragma unroll 4
    for (int r = share.first_row; r < rows; r += share.row_step) {
      float v[8];
      if (kFirst) {
        load_features(args.x + (first + r) * s.in, base, group.lo, s.in, args.whole_x, v);
      } else {
        load_shared(tile + r * s.n, base, group.lo, v);
      }
      B::turn_all(t, v);
      if (kLast) {
        TUCKFOLD_UNROLL
        for (int k = 0; k < 8; ++k) v[k] += bias[k];
        store_features(args.y + (first + r) * s.out + product * s.n, base, group.lo, outputs,
                       args.whole_y, v);
      } else {
        store_shared(tile + r * s.n, base, group.lo, v);
      }
    }
  }
}

template <class T>
__global__ void __launch_bounds__(512) forward_kernel(const __grid_constant__ ForwardArgs<T> args) {
  const CudaButterfly& s = args.s;
  auto* tile = reinterpret_cast<float*>(cuda::shared_memory());
  const std::int64_t tiles = gridDim.x / s.stack;
  const int product = static_cast<int>(blockIdx.x / tiles);
  const std::int64_t first = blockIdx.x % tiles * args.rows;
  const int rows =
      static_cast<int>(min(static_cast<std::int64_t>(args.rows), args.samples - first));
  const Share share(s.n / 8);
  const int last = s.group_count - 1;
  for (int g = 0; g <= last; ++g) {
    const CudaGroup& group = s.groups[g];
    if (g > 0) __syncthreads();
    if (g == 0) {  // of three stages always
      const auto run = [&](auto bits) {
        using B = decltype(bits);
        last == 0 ? forward_group<B, true, true>(args, group, share, product, first, rows, tile)
                  : forward_group<B, true, false>(args, group, share, product, first, rows, tile);
      };
      group.bit[2] == 2 ? run(Bits<0, 1, 2>()) : run(Bits<2, 1, 0>());
      continue;
    }
    with_bits(group, [&](auto bits) {
      using B = decltype(bits);
      g == last ? forward_group<B, false, true>(args, group, share, product, first, rows, tile)
                : forward_group<B, false, false>(args, group, share, product, first, rows, tile);
    });
  }
}

template <class T>
void forward(const CudaButterfly& s, std::int64_t samples, const void* x, const void* twiddle,
             const void* bias, void* y, void* stream) {
  const cuda::DeviceLimits limits = cuda::device();
  const int threads = s.n >= 4096 ? 512 : 256;
  // One block of a processor has all of its shared memory where rows are long; else several.
  const std::size_t bytes = s.n >= 4096 ? limits.shared_bytes : s.n == 2048 ? 104 << 10 : 52 << 10;
  const int resident = limits.sms * (s.n >= 4096 ? 1 : s.n == 2048 ? 2 : 4);
  ForwardArgs<T> args{.s = s,
                      .x = static_cast<const T*>(x),
                      .twiddle = static_cast<const T*>(twiddle),
                      .bias = static_cast<const T*>(bias),
                      .y = static_cast<T*>(y),
                      .samples = samples,
                      .rows = rows_of(s, samples, bytes, resident),
                      .whole_x = s.in == s.n && aligned(x, s.in, sizeof(T)),
                      .whole_y = s.out % s.n == 0 && aligned(y, s.out, sizeof(T))};
  launch(forward_kernel<T>,
         {.blocks = cuda::blocks_for(samples, args.rows) * s.stack,
          .threads = threads,
          .shared_bytes = static_cast<std::size_t>(args.rows) * s.n * sizeof(float)},
         stream, args);
}

// With few samples, kernels that need nothing from others are as fast. The emulator, which has no time for
// many, always takes those for many.
#ifdef __CUDACC__
constexpr std::int64_t kManyHalves = 512, kManyFloats = 2048;
#else
constexpr std::int64_t kManyHalves = 0, kManyFloats = 0;
#endif

std::size_t forward_bytes(const CudaButterfly& s, DType dtype, std::int64_t samples) {
  return fits_blocks(s, dtype) && samples >= kManyHalves ? blocks_forward_bytes(s) : 0;
}

void forward_of(const CudaButterfly& s, DType dtype, std::int64_t samples, const void* x,
                const void* twiddle, const void* bias, void* y, void* workspace, void* stream) {
  if (fits_blocks(s, dtype) && samples >= kManyHalves) {
    return blocks_forward(s, dtype, samples, x, twiddle, bias, y, workspace, stream);
  }
  if (dtype == DType::F32 && fits_clusters(s) && samples >= kManyFloats) {
    return cluster_forward(s, samples, x, twiddle, bias, y, stream);
  }
  if (dtype == DType::F16) return forward<F16>(s, samples, x, twiddle, bias, y, stream);
  if (dtype == DType::BF16) return forward<BF16>(s, samples, x, twiddle, bias, y, stream);
  forward<float>(s, samples, x, twiddle, bias, y, stream);
}

}  // namespace

extern const ButterflyCudaKernels kButterflyCuda;
const ButterflyCudaKernels kButterflyCuda = {.forward_bytes = forward_bytes,
                                             .forward = forward_of,
                                             .backward_bytes = butterfly_backward_bytes,
                                             .backward = butterfly_backward};

}  // namespace tuckfold::structured
