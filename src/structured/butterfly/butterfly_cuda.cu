// Butterflies on a GPU: all stages in one pass over memory. A block has some samples in shared memory;
// a thread takes eight features of a sample to registers, does three stages, and puts them back, for
// all samples with the same twiddles. So a stage's twiddles are read once for as many samples as shared
// memory holds.
//
// Backward computes the inputs of the groups of stages again. Blocks walk over samples; each sums the
// gradients of twiddles into memory of its own, in order, and a last kernel adds what the blocks have:
// the same bits every time on the same kind of GPU.
#include <algorithm>

#include "base/cuda/kernel.cuh"
#include "base/half.h"
#include "structured/butterfly/butterfly_cuda.h"

namespace tuckfold::structured {
namespace {

using cuda::launch;

// ---- numbers ------------------------------------------------------------------------------------

__device__ inline float widen(float value) { return value; }
__device__ inline float widen(F16 value) { return to_float(value); }
__device__ inline float widen(BF16 value) { return to_float(value); }
__device__ inline void narrow(float value, float& to) { to = value; }
__device__ inline void narrow(float value, F16& to) { to = to_f16(value); }
__device__ inline void narrow(float value, BF16& to) { to = to_bf16(value); }

// Two or four numbers in one load.
template <class T>
struct alignas(4 * sizeof(T)) Four {
  T at[4];
};

// Features 2^lo apart from `base` on; those from `limit` on are zero.
template <class T>
__device__ TUCKFOLD_INLINE void load_features(const T* row, int base, int lo, int limit, bool whole,
                                              float (&v)[8]) {
  if (whole && lo == 0) {
    TUCKFOLD_UNROLL
    for (int half = 0; half < 2; ++half) {
      const auto four = *reinterpret_cast<const Four<T>*>(row + base + 4 * half);
      TUCKFOLD_UNROLL
      for (int k = 0; k < 4; ++k) v[4 * half + k] = widen(four.at[k]);
    }
    return;
  }
  TUCKFOLD_UNROLL
  for (int k = 0; k < 8; ++k) {
    const int i = base + (k << lo);
    v[k] = i < limit ? widen(row[i]) : 0.0f;
  }
}

template <class T>
__device__ TUCKFOLD_INLINE void store_features(T* row, int base, int lo, int limit, bool whole,
                                               const float (&v)[8]) {
  if (whole && lo == 0) {
    TUCKFOLD_UNROLL
    for (int half = 0; half < 2; ++half) {
      Four<T> four;
      TUCKFOLD_UNROLL
      for (int k = 0; k < 4; ++k) narrow(v[4 * half + k], four.at[k]);
      *reinterpret_cast<Four<T>*>(row + base + 4 * half) = four;
    }
    return;
  }
  TUCKFOLD_UNROLL
  for (int k = 0; k < 8; ++k) {
    const int i = base + (k << lo);
    if (i < limit) narrow(v[k], row[i]);
  }
}

// Where feature i is in shared memory: features that threads of a warp want at once, eight or 64 apart,
// are in different banks.
__device__ TUCKFOLD_INLINE int place(int i) { return i ^ ((i >> 5) & 7) ^ (((i >> 6) & 3) << 3); }

__device__ TUCKFOLD_INLINE void load_shared(const float* row, int base, int lo, float (&v)[8]) {
  TUCKFOLD_UNROLL
  for (int k = 0; k < 8; ++k) v[k] = row[place(base + (k << lo))];
}
__device__ TUCKFOLD_INLINE void store_shared(float* row, int base, int lo, const float (&v)[8]) {
  TUCKFOLD_UNROLL
  for (int k = 0; k < 8; ++k) row[place(base + (k << lo))] = v[k];
}

// ---- stages -------------------------------------------------------------------------------------

// The place among eight of the first of pair p, whose places differ in `bit`.
__device__ TUCKFOLD_INLINE constexpr int first_of(int p, int bit) {
  return ((p >> bit) << (bit + 1)) | (p & ((1 << bit) - 1));
}

template <int kBit>
__device__ TUCKFOLD_INLINE void turn(const float4 (&t)[4], float (&v)[8]) {
  TUCKFOLD_UNROLL
  for (int p = 0; p < 4; ++p) {
    constexpr int kApart = 1 << kBit;
    const int k = first_of(p, kBit);
    const float a = v[k], b = v[k + kApart];
    v[k] = fmaf(t[p].y, b, t[p].x * a);
    v[k + kApart] = fmaf(t[p].w, b, t[p].z * a);
  }
}

template <int kBit>
__device__ TUCKFOLD_INLINE void turn_back(const float4 (&t)[4], const float (&in)[8], float (&g)[8],
                                          float4 (&sums)[4]) {
  TUCKFOLD_UNROLL
  for (int p = 0; p < 4; ++p) {
    constexpr int kApart = 1 << kBit;
    const int k = first_of(p, kBit);
    const float a = in[k], b = in[k + kApart], ga = g[k], gb = g[k + kApart];
    sums[p].x = fmaf(ga, a, sums[p].x);
    sums[p].y = fmaf(ga, b, sums[p].y);
    sums[p].z = fmaf(gb, a, sums[p].z);
    sums[p].w = fmaf(gb, b, sums[p].w);
    g[k] = fmaf(t[p].z, gb, t[p].x * ga);
    g[k + kApart] = fmaf(t[p].w, gb, t[p].y * ga);
  }
}

// A register's number must be known when kernels are compiled.
__device__ TUCKFOLD_INLINE void turn(int bit, const float4 (&t)[4], float (&v)[8]) {
  if (bit == 0) {
    turn<0>(t, v);
  } else if (bit == 1) {
    turn<1>(t, v);
  } else {
    turn<2>(t, v);
  }
}
__device__ TUCKFOLD_INLINE void turn_back(int bit, const float4 (&t)[4], const float (&in)[8],
                                          float (&g)[8], float4 (&sums)[4]) {
  if (bit == 0) {
    turn_back<0>(t, in, g, sums);
  } else if (bit == 1) {
    turn_back<1>(t, in, g, sums);
  } else {
    turn_back<2>(t, in, g, sums);
  }
}

// The first feature of unit u, eight features 2^lo apart.
__device__ TUCKFOLD_INLINE int base_of(int u, int lo) {
  return ((u >> lo) << (lo + 3)) | (u & ((1 << lo) - 1));
}

// The number of the matrix that takes features i and i + 2^level.
__device__ TUCKFOLD_INLINE int matrix_of(int i, int level, bool tied) {
  const int low = i & ((1 << level) - 1);
  return tied ? low : ((i >> (level + 1)) << level) | low;
}

template <class T>
__device__ TUCKFOLD_INLINE void load_twiddles(const T* twiddle, const CudaGroup& group, int stage,
                                              int base, bool tied, float4 (&t)[4]) {
  const int level = group.lo + group.bit[stage];
  TUCKFOLD_UNROLL
  for (int p = 0; p < 4; ++p) {
    const int k = first_of(p, group.bit[stage]);
    const int number = group.first[stage] + matrix_of(base + (k << group.lo), level, tied);
    const auto four = reinterpret_cast<const Four<T>*>(twiddle)[number];
    t[p] = make_float4(widen(four.at[0]), widen(four.at[1]), widen(four.at[2]), widen(four.at[3]));
  }
}

// How a block's threads share units and samples.
struct Share {
  int first_unit, unit_step, first_row, row_step;

  __device__ explicit Share(int units) {
    const int threads = static_cast<int>(blockDim.x), thread = static_cast<int>(threadIdx.x);
    unit_step = units < threads ? units : threads;
    first_unit = thread % unit_step;
    first_row = thread / unit_step;
    row_step = threads / unit_step;
  }
};

// ---- forward ------------------------------------------------------------------------------------

template <class T>
struct ForwardArgs {
  CudaButterfly s;
  const T *x, *twiddle, *bias;
  T* y;
  std::int64_t samples;
  int rows;  // that a block takes
  bool whole_x, whole_y;
};

template <class T>
__global__ void __launch_bounds__(512) forward_kernel(const __grid_constant__ ForwardArgs<T> args) {
  const CudaButterfly& s = args.s;
  auto* tile = reinterpret_cast<float*>(cuda::shared_memory());
  const std::int64_t tiles = gridDim.x / s.stack;
  const int product = static_cast<int>(blockIdx.x / tiles);
  const std::int64_t first = blockIdx.x % tiles * args.rows;
  const int rows =
      static_cast<int>(min(static_cast<std::int64_t>(args.rows), args.samples - first));
  const T* twiddle = args.twiddle + static_cast<std::int64_t>(product) * s.pairs * 4;
  const int outputs = min(s.n, s.out - product * s.n);
  const Share share(s.n / 8);
  for (int g = 0; g < s.group_count; ++g) {
    const CudaGroup& group = s.groups[g];
    const bool is_last = g + 1 == s.group_count;
    if (g > 0) __syncthreads();
    for (int u = share.first_unit; u < s.n / 8; u += share.unit_step) {
      const int base = base_of(u, group.lo);
      float4 t[3][4];
      TUCKFOLD_UNROLL
      for (int stage = 0; stage < 3; ++stage) {
        if (stage < group.count) load_twiddles(twiddle, group, stage, base, s.tied, t[stage]);
      }
      float bias[8] = {};
      if (is_last && args.bias != nullptr) {
        load_features(args.bias + product * s.n, base, group.lo, outputs, false, bias);
      }
#pragma unroll 4
      for (int r = share.first_row; r < rows; r += share.row_step) {
        float v[8];
        if (g == 0) {
          load_features(args.x + (first + r) * s.in, base, group.lo, s.in, args.whole_x, v);
        } else {
          load_shared(tile + r * s.n, base, group.lo, v);
        }
        TUCKFOLD_UNROLL
        for (int stage = 0; stage < 3; ++stage) {
          if (stage < group.count) turn(group.bit[stage], t[stage], v);
        }
        if (is_last) {
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
}

// ---- backward -----------------------------------------------------------------------------------

template <class T>
struct BackwardArgs {
  CudaButterfly s;
  int product;
  const T *x, *twiddle, *grad_y;
  T* grad_x;
  float* inputs;  // of the groups between the first and the last, for each block
  float4* sums;   // of gradients, for each block
  std::int64_t samples;
  int rows;
  bool whole_x, whole_y;
};

// Eight numbers of each unit, the units side by side.
__device__ TUCKFOLD_INLINE float* input_of(float* inputs, const CudaButterfly& s, int rows, int g,
                                           int r, int u) {
  return inputs + (static_cast<std::int64_t>((g - 1) * rows + r) * 8 * (s.n / 8)) + u;
}

template <class T>
__global__ void __launch_bounds__(256)
    backward_kernel(const __grid_constant__ BackwardArgs<T> args) {
  const CudaButterfly& s = args.s;
  auto* tile = reinterpret_cast<float*>(cuda::shared_memory());
  const int units = s.n / 8, last = s.group_count - 1;
  const Share share(units);
  const T* twiddle = args.twiddle + static_cast<std::int64_t>(args.product) * s.pairs * 4;
  const int outputs = min(s.n, s.out - args.product * s.n);
  float* inputs =
      args.inputs + static_cast<std::int64_t>(blockIdx.x) * max(last - 1, 0) * args.rows * s.n;
  float4* sums =
      args.sums + (static_cast<std::int64_t>(blockIdx.x) * share.row_step + share.first_row) *
                      s.group_count * 12 * units;
  const std::int64_t tiles = (args.samples + args.rows - 1) / args.rows;
  for (std::int64_t tile_number = blockIdx.x; tile_number < tiles; tile_number += gridDim.x) {
    const std::int64_t first = tile_number * args.rows;
    const int rows =
        static_cast<int>(min(static_cast<std::int64_t>(args.rows), args.samples - first));
    __syncthreads();  // the tile before is done with shared memory
    for (int g = 0; g < last; ++g) {
      const CudaGroup& group = s.groups[g];
      if (g > 0) __syncthreads();
      for (int u = share.first_unit; u < units; u += share.unit_step) {
        const int base = base_of(u, group.lo);
        float4 t[3][4];
        TUCKFOLD_UNROLL
        for (int stage = 0; stage < 3; ++stage) {
          if (stage < group.count) load_twiddles(twiddle, group, stage, base, s.tied, t[stage]);
        }
#pragma unroll 2
        for (int r = share.first_row; r < rows; r += share.row_step) {
          float v[8];
          if (g == 0) {
            load_features(args.x + (first + r) * s.in, base, group.lo, s.in, args.whole_x, v);
          } else {
            load_shared(tile + r * s.n, base, group.lo, v);
            float* to = input_of(inputs, s, args.rows, g, r, u);
            TUCKFOLD_UNROLL
            for (int k = 0; k < 8; ++k) to[k * units] = v[k];
          }
          TUCKFOLD_UNROLL
          for (int stage = 0; stage < 3; ++stage) {
            if (stage < group.count) turn(group.bit[stage], t[stage], v);
          }
          store_shared(tile + r * s.n, base, group.lo, v);
        }
      }
    }
    for (int g = last; g >= 0; --g) {
      const CudaGroup& group = s.groups[g];
      __syncthreads();
      for (int u = share.first_unit; u < units; u += share.unit_step) {
        const int base = base_of(u, group.lo);
        float4 t[3][4], total[3][4];
        TUCKFOLD_UNROLL
        for (int stage = 0; stage < 3; ++stage) {
          if (stage < group.count) load_twiddles(twiddle, group, stage, base, s.tied, t[stage]);
          TUCKFOLD_UNROLL
          for (int p = 0; p < 4; ++p) total[stage][p] = make_float4(0, 0, 0, 0);
        }
        for (int r = share.first_row; r < rows; r += share.row_step) {
          float in[3][8], grad[8];
          if (g == 0) {
            load_features(args.x + (first + r) * s.in, base, group.lo, s.in, args.whole_x, in[0]);
          } else if (g == last) {
            load_shared(tile + r * s.n, base, group.lo, in[0]);
          } else {
            const float* from = input_of(inputs, s, args.rows, g, r, u);
            TUCKFOLD_UNROLL
            for (int k = 0; k < 8; ++k) in[0][k] = from[k * units];
          }
          if (g == last) {
            load_features(args.grad_y + (first + r) * s.out + args.product * s.n, base, group.lo,
                          outputs, args.whole_y, grad);
          } else {
            load_shared(tile + r * s.n, base, group.lo, grad);
          }
          TUCKFOLD_UNROLL
          for (int stage = 1; stage < 3; ++stage) {
            if (stage >= group.count) break;
            TUCKFOLD_UNROLL
            for (int k = 0; k < 8; ++k) in[stage][k] = in[stage - 1][k];
            turn(group.bit[stage - 1], t[stage - 1], in[stage]);
          }
          TUCKFOLD_UNROLL
          for (int stage = 2; stage >= 0; --stage) {
            if (stage < group.count) {
              turn_back(group.bit[stage], t[stage], in[stage], grad, total[stage]);
            }
          }
          if (g > 0) {
            store_shared(tile + r * s.n, base, group.lo, grad);
          } else if (args.grad_x != nullptr) {
            T* to = args.grad_x + (first + r) * s.in;
            if (args.product > 0) {
              float before[8];
              load_features(to, base, group.lo, s.in, args.whole_x, before);
              TUCKFOLD_UNROLL
              for (int k = 0; k < 8; ++k) grad[k] += before[k];
            }
            store_features(to, base, group.lo, s.in, args.whole_x, grad);
          }
        }
        float4* to = sums + static_cast<std::int64_t>(g) * 12 * units + u;
        TUCKFOLD_UNROLL
        for (int stage = 0; stage < 3; ++stage) {
          if (stage >= group.count) break;
          TUCKFOLD_UNROLL
          for (int p = 0; p < 4; ++p) {
            float4& at = to[(stage * 4 + p) * units];
            float4 sum = total[stage][p];
            if (tile_number >= gridDim.x) {
              sum.x += at.x;
              sum.y += at.y;
              sum.z += at.z;
              sum.w += at.w;
            }
            at = sum;
          }
        }
      }
    }
  }
}

// Adds the blocks' sums, in order: a thread for each 2 x 2 matrix of a stage.
template <class T>
struct GatherArgs {
  CudaButterfly s;
  const float4* sums;
  T* grad_twiddle;
  int slots;
};

template <class T>
__global__ void __launch_bounds__(128) gather_kernel(const __grid_constant__ GatherArgs<T> args) {
  const CudaButterfly& s = args.s;
  const int units = s.n / 8;
  int at = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  for (int g = 0; g < s.group_count; ++g) {
    const CudaGroup& group = s.groups[g];
    for (int stage = 0; stage < group.count; ++stage) {
      const int level = group.lo + group.bit[stage];
      const int matrices = s.tied ? 1 << level : s.n / 2;
      if (at >= matrices) {
        at -= matrices;
        continue;
      }
      float4 sum = make_float4(0, 0, 0, 0);
      // Features of the pairs that this matrix takes: one, or one in every block.
      const int blocks = s.tied ? s.n >> (level + 1) : 1;
      for (int slot = 0; slot < args.slots; ++slot) {
        for (int block = 0; block < blocks; ++block) {
          const int low = at & ((1 << level) - 1);
          const int high = s.tied ? block : at >> level;
          const int i = (high << (level + 1)) | low;
          const int u = ((i >> (group.lo + 3)) << group.lo) | (i & ((1 << group.lo) - 1));
          const int k = (i >> group.lo) & 7, bit = group.bit[stage];
          const int p = ((k >> (bit + 1)) << bit) | (k & ((1 << bit) - 1));
          const float4 more =
              args.sums[((static_cast<std::int64_t>(slot) * s.group_count + g) * 12 + stage * 4 +
                         p) *
                            units +
                        u];
          sum.x += more.x;
          sum.y += more.y;
          sum.z += more.z;
          sum.w += more.w;
        }
      }
      T* to = args.grad_twiddle + 4 * static_cast<std::int64_t>(group.first[stage] + at);
      narrow(sum.x, to[0]);
      narrow(sum.y, to[1]);
      narrow(sum.z, to[2]);
      narrow(sum.w, to[3]);
      return;
    }
  }
}

// Sums of columns over chunks of samples, and over the chunks.
constexpr int kChunks = 64;
template <class T>
__global__ void __launch_bounds__(128)
    column_sums_kernel(const T* from, std::int64_t samples, int columns, float* sums) {
  const int across = (columns + 127) / 128;
  const int column = static_cast<int>(blockIdx.x) % across * 128 + static_cast<int>(threadIdx.x);
  const std::int64_t chunk = blockIdx.x / across;
  if (column >= columns) return;
  float sum = 0;
  for (std::int64_t i = chunk * samples / kChunks; i < (chunk + 1) * samples / kChunks; ++i) {
    sum += widen(from[i * columns + column]);
  }
  sums[chunk * columns + column] = sum;
}
template <class T>
__global__ void __launch_bounds__(128) add_chunks_kernel(const float* sums, int columns, T* to) {
  const int column = static_cast<int>(blockIdx.x * 128 + threadIdx.x);
  if (column >= columns) return;
  float sum = 0;
  for (int chunk = 0; chunk < kChunks; ++chunk) sum += sums[chunk * columns + column];
  narrow(sum, to[column]);
}

// ---- launches -----------------------------------------------------------------------------------

// Samples that a block takes: as many as its shared memory holds, but so that all processors work.
int rows_of(const CudaButterfly& s, std::int64_t samples, std::size_t most_bytes, int blocks) {
  const auto row_bytes = static_cast<std::size_t>(s.n) * sizeof(float);
  const auto most = static_cast<std::int64_t>(std::max<std::size_t>(most_bytes / row_bytes, 1));
  const std::int64_t waves = std::max<std::int64_t>(cuda::blocks_for(samples, most * blocks), 1);
  return static_cast<int>(
      std::clamp<std::int64_t>(cuda::blocks_for(samples, waves * blocks), 1, most));
}

bool aligned(const void* pointer, int row, std::size_t element) {
  return reinterpret_cast<std::uintptr_t>(pointer) % (4 * element) == 0 && row % 4 == 0;
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

struct BackwardShape {
  int rows, blocks, slots;
  std::size_t input_bytes, sum_bytes, bias_bytes;

  BackwardShape(const CudaButterfly& s, std::int64_t samples) {
    const cuda::DeviceLimits limits = cuda::device();
    const std::size_t bytes = s.n >= 8192   ? limits.shared_bytes
                              : s.n >= 2048 ? 112 << 10
                                            : 56 << 10;
    const int resident = limits.sms * (s.n >= 8192 ? 1 : 2);
    rows = rows_of(s, samples, bytes, resident);
    blocks = static_cast<int>(std::min<std::int64_t>(
        resident, std::max<std::int64_t>(cuda::blocks_for(samples, rows), 1)));
    const int units = s.n / 8;
    slots = blocks * std::max(256 / units, 1);
    input_bytes =
        static_cast<std::size_t>(blocks) * std::max(s.group_count - 2, 0) * rows * s.n * 4;
    sum_bytes = static_cast<std::size_t>(slots) * s.group_count * 12 * units * sizeof(float4);
    bias_bytes = static_cast<std::size_t>(kChunks) * s.out * 4;
  }
};

std::size_t backward_bytes(const CudaButterfly& s, std::int64_t samples) {
  const BackwardShape shape(s, samples);
  return shape.sum_bytes + shape.input_bytes + shape.bias_bytes;
}

template <class T>
void backward(const CudaButterfly& s, std::int64_t samples, const void* x, const void* twiddle,
              const void* grad_y, void* grad_x, void* grad_twiddle, void* grad_bias,
              void* workspace, void* stream) {
  const BackwardShape shape(s, samples);
  auto* memory = static_cast<std::byte*>(workspace);
  auto* sums = reinterpret_cast<float4*>(memory);
  for (int product = 0; product < s.stack; ++product) {
    const BackwardArgs<T> args{
        .s = s,
        .product = product,
        .x = static_cast<const T*>(x),
        .twiddle = static_cast<const T*>(twiddle),
        .grad_y = static_cast<const T*>(grad_y),
        .grad_x = static_cast<T*>(grad_x),
        .inputs = reinterpret_cast<float*>(memory + shape.sum_bytes),
        .sums = sums,
        .samples = samples,
        .rows = shape.rows,
        .whole_x = s.in == s.n && aligned(x, s.in, sizeof(T)) && aligned(grad_x, s.in, sizeof(T)),
        .whole_y = s.out % s.n == 0 && aligned(grad_y, s.out, sizeof(T))};
    launch(backward_kernel<T>,
           {.blocks = shape.blocks,
            .threads = 256,
            .shared_bytes = static_cast<std::size_t>(shape.rows) * s.n * sizeof(float)},
           stream, args);
    if (grad_twiddle == nullptr) continue;
    const GatherArgs<T> gather{.s = s,
                               .sums = sums,
                               .grad_twiddle = static_cast<T*>(grad_twiddle) +
                                               static_cast<std::int64_t>(product) * s.pairs * 4,
                               .slots = shape.slots};
    launch(gather_kernel<T>, {.blocks = cuda::blocks_for(s.pairs, 128), .threads = 128}, stream,
           gather);
  }
  if (grad_bias == nullptr) return;
  auto* chunks = reinterpret_cast<float*>(memory + shape.sum_bytes + shape.input_bytes);
  const std::int64_t across = cuda::blocks_for(s.out, 128);
  launch(column_sums_kernel<T>, {.blocks = across * kChunks, .threads = 128}, stream,
         static_cast<const T*>(grad_y), samples, s.out, chunks);
  launch(add_chunks_kernel<T>, {.blocks = across, .threads = 128}, stream,
         static_cast<const float*>(chunks), s.out, static_cast<T*>(grad_bias));
}

void forward_of(const CudaButterfly& s, DType dtype, std::int64_t samples, const void* x,
                const void* twiddle, const void* bias, void* y, void* stream) {
  if (dtype == DType::F16) return forward<F16>(s, samples, x, twiddle, bias, y, stream);
  if (dtype == DType::BF16) return forward<BF16>(s, samples, x, twiddle, bias, y, stream);
  forward<float>(s, samples, x, twiddle, bias, y, stream);
}

void backward_of(const CudaButterfly& s, DType dtype, std::int64_t samples, const void* x,
                 const void* twiddle, const void* grad_y, void* grad_x, void* grad_twiddle,
                 void* grad_bias, void* workspace, void* stream) {
  const auto run = [&](auto element) {
    using T = decltype(element);
    backward<T>(s, samples, x, twiddle, grad_y, grad_x, grad_twiddle, grad_bias, workspace, stream);
  };
  if (dtype == DType::F16) return run(F16{});
  if (dtype == DType::BF16) return run(BF16{});
  run(float{});
}

}  // namespace

extern const ButterflyCudaKernels kButterflyCuda;
const ButterflyCudaKernels kButterflyCuda = {
    .forward = forward_of, .backward_bytes = backward_bytes, .backward = backward_of};

}  // namespace tuckfold::structured
