// Backward of a butterfly on a GPU. It computes the inputs of the groups of stages again. Blocks walk over
// samples; each sums the gradients of twiddles into memory of its own, in order, and the last kernels add
// what the blocks have: the same bits every time on the same kind of GPU.
#include "structured/butterfly/butterfly_blocks_cuda.cuh"

namespace tuckfold::structured {
namespace {

using cuda::launch;

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

// Where a block is in its work.
struct Work {
  Share share;
  std::int64_t first;  // sample
  int rows, g;
  bool again;  // whether sums of an earlier tile are there
  float *tile, *inputs;
  float4* sums;
};

// The samples through group g, once more; what goes into it is kept, unless it is x.
template <class B, class T>
__device__ TUCKFOLD_INLINE void forward_again(const BackwardArgs<T>& args, const Work& work) {
  const CudaButterfly& s = args.s;
  const CudaGroup& group = s.groups[work.g];
  const int units = s.n / 8;
  const T* twiddle = args.twiddle + static_cast<std::int64_t>(args.product) * s.pairs * 4;
  for (int u = work.share.first_unit; u < units; u += work.share.unit_step) {
    const int base = base_of(u, group.lo);
    float4 t[B::kCount][4];
    load_twiddles<B>(twiddle, group, base, s.tied, t);
#pragma unroll 4
    for (int r = work.share.first_row; r < work.rows; r += work.share.row_step) {
      float v[8];
      if (work.g == 0) {
        load_features(args.x + (work.first + r) * s.in, base, group.lo, s.in, args.whole_x, v);
      } else {
        load_shared(work.tile + r * s.n, base, group.lo, v);
        float* to = input_of(work.inputs, s, args.rows, work.g, r, u);
        TUCKFOLD_UNROLL
        for (int k = 0; k < 8; ++k) to[k * units] = v[k];
      }
      B::turn_all(t, v);
      store_shared(work.tile + r * s.n, base, group.lo, v);
    }
  }
}

template <int kBit, int... kRest>
__device__ TUCKFOLD_INLINE void back_through(const float4 (*t)[4], const float (&in)[8],
                                             float (&g)[8], float4 (*sums)[4]) {
  if constexpr (sizeof...(kRest) > 0) {
    float next[8];
    TUCKFOLD_UNROLL
    for (int k = 0; k < 8; ++k) next[k] = in[k];
    turn<kBit>(*t, next);
    back_through<kRest...>(t + 1, next, g, sums + 1);
  }
  turn_back<kBit>(*t, in, g, *sums);
}
template <int... kBit>
__device__ TUCKFOLD_INLINE void back_through(Bits<kBit...>, const float4 (*t)[4],
                                             const float (&in)[8], float (&g)[8],
                                             float4 (*sums)[4]) {
  back_through<kBit...>(t, in, g, sums);
}

template <class B, bool kFirst, bool kLast, class T>
__device__ TUCKFOLD_INLINE void backward_group(const BackwardArgs<T>& args, const Work& work) {
  const CudaButterfly& s = args.s;
  const CudaGroup& group = s.groups[work.g];
  const int units = s.n / 8, outputs = min(s.n, s.out - args.product * s.n);
  const T* twiddle = args.twiddle + static_cast<std::int64_t>(args.product) * s.pairs * 4;
  for (int u = work.share.first_unit; u < units; u += work.share.unit_step) {
    const int base = base_of(u, group.lo);
    float4 t[B::kCount][4], total[B::kCount][4];
    load_twiddles<B>(twiddle, group, base, s.tied, t);
    TUCKFOLD_UNROLL
    for (int i = 0; i < 4 * B::kCount; ++i) total[i / 4][i % 4] = make_float4(0, 0, 0, 0);
#pragma unroll 2
    for (int r = work.share.first_row; r < work.rows; r += work.share.row_step) {
      float in[8], grad[8];
      if (kFirst) {
        load_features(args.x + (work.first + r) * s.in, base, group.lo, s.in, args.whole_x, in);
      } else if (kLast) {
        load_shared(work.tile + r * s.n, base, group.lo, in);
      } else {
        const float* from = input_of(work.inputs, s, args.rows, work.g, r, u);
        TUCKFOLD_UNROLL
        for (int k = 0; k < 8; ++k) in[k] = from[k * units];
      }
      if (kLast) {
        load_features(args.grad_y + (work.first + r) * s.out + args.product * s.n, base, group.lo,
                      outputs, args.whole_y, grad);
      } else {
        load_shared(work.tile + r * s.n, base, group.lo, grad);
      }
      back_through(B(), t, in, grad, total);
      if (!kFirst) {
        store_shared(work.tile + r * s.n, base, group.lo, grad);
      } else if (args.grad_x != nullptr) {
        T* to = args.grad_x + (work.first + r) * s.in;
        if (args.product > 0) {
          float before[8];
          load_features(to, base, group.lo, s.in, args.whole_x, before);
          TUCKFOLD_UNROLL
          for (int k = 0; k < 8; ++k) grad[k] += before[k];
        }
        store_features(to, base, group.lo, s.in, args.whole_x, grad);
      }
    }
    float4* to = work.sums + static_cast<std::int64_t>(work.g) * 12 * units + u;
    TUCKFOLD_UNROLL
    for (int i = 0; i < 4 * B::kCount; ++i) {
      float4 sum = total[i / 4][i % 4];
      if (work.again) {
        const float4 before = to[i * units];
        add_to(sum, before);
      }
      to[i * units] = sum;
    }
  }
}

template <class T>
__global__ void __launch_bounds__(256)
    backward_kernel(const __grid_constant__ BackwardArgs<T> args) {
  const CudaButterfly& s = args.s;
  const int units = s.n / 8, last = s.group_count - 1;
  Work work{.share = Share(units),
            .first = 0,
            .rows = 0,
            .g = 0,
            .again = false,
            .tile = reinterpret_cast<float*>(cuda::shared_memory()),
            .inputs = args.inputs +
                      static_cast<std::int64_t>(blockIdx.x) * max(last - 1, 0) * args.rows * s.n,
            .sums = nullptr};
  const std::int64_t slot =
      static_cast<std::int64_t>(blockIdx.x) * work.share.row_step + work.share.first_row;
  work.sums = args.sums + slot * s.group_count * 12 * units;
  const std::int64_t tiles = (args.samples + args.rows - 1) / args.rows;
  for (std::int64_t number = blockIdx.x; number < tiles; number += gridDim.x) {
    work.first = number * args.rows;
    work.rows =
        static_cast<int>(min(static_cast<std::int64_t>(args.rows), args.samples - work.first));
    work.again = number >= gridDim.x;
    for (work.g = 0; work.g < last; ++work.g) {
      __syncthreads();
      with_bits(s.groups[work.g], [&](auto bits) { forward_again<decltype(bits)>(args, work); });
    }
    for (work.g = last; work.g >= 0; --work.g) {
      __syncthreads();
      if (work.g == 0) {  // of three stages always
        const auto run = [&](auto bits) {
          using B = decltype(bits);
          last == 0 ? backward_group<B, true, true>(args, work)
                    : backward_group<B, true, false>(args, work);
        };
        s.groups[0].bit[2] == 2 ? run(Bits<0, 1, 2>()) : run(Bits<2, 1, 0>());
        continue;
      }
      with_bits(s.groups[work.g], [&](auto bits) {
        using B = decltype(bits);
        work.g == last ? backward_group<B, false, true>(args, work)
                       : backward_group<B, false, false>(args, work);
      });
    }
  }
  if (work.share.row_step == 1) return;
  // Threads of other samples have sums of their own; those of the first get all of them, so that the next
  // kernel has few to add.
  __syncthreads();
  const int places = s.group_count * 12 * units;
  float4* of_block =
      args.sums + static_cast<std::int64_t>(blockIdx.x) * work.share.row_step * places;
  for (int at = static_cast<int>(threadIdx.x); at < places; at += static_cast<int>(blockDim.x)) {
    if (at / units % 12 / 4 >= s.groups[at / units / 12].count) continue;
    of_block[at] = sum_of_blocks(of_block + at, work.share.row_step, places);
  }
}

// ---- sums of the blocks -------------------------------------------------------------------------

template <class T>
struct GatherArgs {
  CudaButterfly s;
  float4* sums;
  T* grad_twiddle;
  int blocks;
  std::int64_t apart;  // sums of one block and of the next
};

// A thread for each place of the blocks' sums: over the blocks, in order. Tied ones stay in the first
// block's place for the next kernel.
template <class T>
__global__ void __launch_bounds__(128) gather_kernel(const __grid_constant__ GatherArgs<T> args) {
  const CudaButterfly& s = args.s;
  const int units = s.n / 8;
  const int all = s.group_count * 12 * units;
  const int at = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (at >= all) return;
  const int u = at % units, i = at / units % 12, g = at / units / 12;
  const CudaGroup& group = s.groups[g];
  const int stage = i / 4;
  if (stage >= group.count) return;
  const float4 sum = sum_of_blocks(args.sums + at, args.blocks, args.apart);
  if (s.tied) {
    args.sums[at] = sum;
    return;
  }
  const int bit = group.bit[stage], k = first_of(i % 4, bit);
  const int feature = base_of(u, group.lo) + (k << group.lo);
  const int number = group.first[stage] + matrix_of(feature, group.lo + bit, false);
  store_matrix(sum, args.grad_twiddle + 4 * static_cast<std::int64_t>(number));
}

// A warp for each tied matrix: over the pairs that share it.
template <class T>
__global__ void __launch_bounds__(128)
    gather_tied_kernel(const __grid_constant__ GatherArgs<T> args) {
  const CudaButterfly& s = args.s;
  const int units = s.n / 8, lane = static_cast<int>(threadIdx.x) % cuda::kWarp;
  int at = static_cast<int>(blockIdx.x * (blockDim.x / cuda::kWarp) + threadIdx.x / cuda::kWarp);
  for (int g = 0; g < s.group_count; ++g) {
    const CudaGroup& group = s.groups[g];
    for (int stage = 0; stage < group.count; ++stage) {
      const int bit = group.bit[stage], level = group.lo + bit;
      if (at >= 1 << level) {
        at -= 1 << level;
        continue;
      }
      float4 sum = make_float4(0, 0, 0, 0);
      for (int block = lane; block < s.n >> (level + 1); block += cuda::kWarp) {
        const int i = (block << (level + 1)) | at;
        const int u = ((i >> (group.lo + 3)) << group.lo) | (i & ((1 << group.lo) - 1));
        const int k = (i >> group.lo) & 7;
        const int p = ((k >> (bit + 1)) << bit) | (k & ((1 << bit) - 1));
        const float4 more = args.sums[(g * 12 + stage * 4 + p) * units + u];
        add_to(sum, more);
      }
      add_lanes(sum);
      if (lane == 0) {
        store_matrix(sum,
                     args.grad_twiddle + 4 * static_cast<std::int64_t>(group.first[stage] + at));
      }
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

struct BackwardShape {
  int rows, blocks, slots;
  std::size_t input_bytes, sum_bytes, bias_bytes;

  BackwardShape(const CudaButterfly& s, std::int64_t samples) {
    const cuda::DeviceLimits limits = cuda::device();
    // Registers leave room for one block of a processor.
    const std::size_t bytes = s.n >= 2048 ? limits.shared_bytes : 112 << 10;
    const int resident = limits.sms;
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
    const std::int64_t places = static_cast<std::int64_t>(s.group_count) * 12 * (s.n / 8);
    const GatherArgs<T> gather{.s = s,
                               .sums = sums,
                               .grad_twiddle = static_cast<T*>(grad_twiddle) +
                                               static_cast<std::int64_t>(product) * s.pairs * 4,
                               .blocks = shape.blocks,
                               .apart = shape.slots / shape.blocks * places};
    launch(gather_kernel<T>, {.blocks = cuda::blocks_for(places, 128), .threads = 128}, stream,
           gather);
    if (s.tied) {
      launch(gather_tied_kernel<T>, {.blocks = cuda::blocks_for(s.pairs, 4), .threads = 128},
             stream, gather);
    }
  }
  if (grad_bias == nullptr) return;
  auto* chunks = reinterpret_cast<float*>(memory + shape.sum_bytes + shape.input_bytes);
  const std::int64_t across = cuda::blocks_for(s.out, 128);
  launch(column_sums_kernel<T>, {.blocks = across * kChunks, .threads = 128}, stream,
         static_cast<const T*>(grad_y), samples, s.out, chunks);
  launch(add_chunks_kernel<T>, {.blocks = across, .threads = 128}, stream,
         static_cast<const float*>(chunks), s.out, static_cast<T*>(grad_bias));
}

}  // namespace

std::size_t butterfly_backward_bytes(const CudaButterfly& s, DType dtype, std::int64_t samples) {
  if (fits_blocks(s, dtype)) return blocks_backward_bytes(s, samples);
  if (fits_clusters(s)) return cluster_backward_bytes(s, samples);
  const BackwardShape shape(s, samples);
  return shape.sum_bytes + shape.input_bytes + shape.bias_bytes;
}

void butterfly_backward(const CudaButterfly& s, DType dtype, std::int64_t samples, const void* x,
                        const void* twiddle, const void* grad_y, void* grad_x, void* grad_twiddle,
                        void* grad_bias, void* workspace, void* stream) {
  if (fits_blocks(s, dtype)) {
    return blocks_backward(s, dtype, samples, x, twiddle, grad_y, grad_x, grad_twiddle, grad_bias,
                           workspace, stream);
  }
  if (fits_clusters(s)) {
    return cluster_backward(s, samples, x, twiddle, grad_y, grad_x, grad_twiddle, grad_bias,
                            workspace, stream);
  }
  const auto run = [&](auto element) {
    using T = decltype(element);
    backward<T>(s, samples, x, twiddle, grad_y, grad_x, grad_twiddle, grad_bias, workspace, stream);
  };
  if (dtype == DType::F16) return run(F16{});
  if (dtype == DType::BF16) return run(BF16{});
  run(float{});
}

}  // namespace tuckfold::structured
