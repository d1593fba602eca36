// cross_entropy on CUDA: a block for each row, which it reads once, sixteen bytes a thread at a time. Rows need not begin
// at a multiple of sixteen bytes, as those of odd vocabularies: the values before the first such address and after
// the last are read one by one.
#include "codec/blocks/vectors_cuda.cuh"
#include "codec/loss/cross_entropy.h"

namespace tuckfold::loss {
namespace {

using cuda::kWarp;

constexpr int kThreads = 256;
constexpr int kTogether = 4;  // vectors that a thread loads before it uses the first
constexpr float kLowest = -3.402823466e+38f;
constexpr float kLog2E = 1.442695041f;

struct Args {
  const void* logits;
  const std::int64_t* classes;
  std::int64_t ignored, length;
  RowSum* sums;
  float* losses;       // of forward
  const float* scale;  // of the gradient
  void* out;
};

// e^x, which is 0 for x of minus infinity. Absolute errors are those of x in units of 2^-23.
__device__ TUCKFOLD_INLINE float power(float x) {
#ifdef __CUDA_ARCH__
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x * kLog2E));
  return result;
#else
  return std::exp2(x * kLog2E);
#endif
}

__device__ TUCKFOLD_INLINE RowSum join(RowSum a, RowSum b) {
  const float most = fmaxf(a.most, b.most);
  return {most, a.sum * power(a.most - most) + b.sum * power(b.most - most)};
}

// How a row lies: `before` values one by one, `vectors` of sixteen bytes, then what is left one by one.
template <class T>
struct Span {
  int before;
  std::int64_t vectors, after;  // the first value after them

  __device__ TUCKFOLD_INLINE Span(const T* from, std::int64_t length) {
    constexpr int kV = cuda::kVector<T>;
    const auto address = reinterpret_cast<std::uintptr_t>(from);
    before = static_cast<int>((16 - address % 16) % 16 / sizeof(T));
    if (before > length) before = static_cast<int>(length);
    vectors = (length - before) / kV;
    after = before + vectors * kV;
  }
  // Calls body with the places of values that are in no vector: two for a thread at most.
  template <class Body>
  __device__ TUCKFOLD_INLINE void each_single(std::int64_t length, Body&& body) const {
    const int at = static_cast<int>(threadIdx.x);
    if (at < before) body(static_cast<std::int64_t>(at));
    if (after + at < length) body(after + at);
  }
};

// Of the whole block, for all its threads.
__device__ TUCKFOLD_INLINE RowSum join_block(RowSum mine) {
  __shared__ RowSum of_warps[kThreads / kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) {
    mine = join(mine, {__shfl_xor_sync(cuda::kAllLanes, mine.most, step),
                       __shfl_xor_sync(cuda::kAllLanes, mine.sum, step)});
  }
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  if (warps == 1) return mine;
  if (lane == 0) of_warps[threadIdx.x / kWarp] = mine;
  __syncthreads();
  RowSum all = of_warps[0];
  for (int i = 1; i < warps; ++i) all = join(all, of_warps[i]);
  return all;
}

template <class T>
__global__ void __launch_bounds__(kThreads) forward_kernel(const __grid_constant__ Args args) {
  constexpr int kV = cuda::kVector<T>;
  const std::int64_t row = blockIdx.x;
  const T* x = static_cast<const T*>(args.logits) + row * args.length;
  const Span<T> span(x, args.length);
  cuda::wait_for_previous_kernel();
  RowSum mine{kLowest, 0.0f};
  span.each_single(args.length, [&](std::int64_t at) {
    const float value = cuda::as_float(x[at]), most = fmaxf(mine.most, value);
    mine = {most, mine.sum * power(mine.most - most) + power(value - most)};
  });
  const auto* vectors = reinterpret_cast<const uint4*>(x + span.before);
  const int step = static_cast<int>(blockDim.x);
  for (std::int64_t first = threadIdx.x; first < span.vectors; first += step * kTogether) {
    uint4 raw[kTogether];
#pragma unroll
    for (int k = 0; k < kTogether; ++k) {
      const std::int64_t at = first + k * step;
      raw[k] = vectors[at < span.vectors ? at : first];
    }
    float most = mine.most;
#pragma unroll
    for (int k = 0; k < kTogether; ++k) {
      float values[kV];
      cuda::floats_of<T>(raw[k], values);
#pragma unroll
      for (int i = 0; i < kV; ++i) most = fmaxf(most, values[i]);
    }
    mine = {most, mine.sum * power(mine.most - most)};
#pragma unroll
    for (int k = 0; k < kTogether; ++k) {
      if (first + k * step >= span.vectors) continue;
      float values[kV];
      cuda::floats_of<T>(raw[k], values);
#pragma unroll
      for (int i = 0; i < kV; ++i) mine.sum += power(values[i] - most);
    }
  }
  const RowSum all = join_block(mine);
  if (threadIdx.x != 0) return;
  args.sums[row] = all;
  const std::int64_t at = args.classes[row];
  const bool is_known = at >= 0 && at < args.length;
  const float value =
      is_known ? logf(all.sum) - (cuda::as_float(x[at]) - all.most) : float_of(kNanBits);
  args.losses[row] = at == args.ignored ? 0.0f : value;
}

// One value, rounded to the type.
template <class T>
__device__ TUCKFOLD_INLINE T rounded(float value) {
  if constexpr (sizeof(T) == 2) {
    return T{static_cast<std::uint16_t>(cuda::floats_to_halves<T>(value, value))};
  } else {
    return value;
  }
}

template <class T>
__device__ TUCKFOLD_INLINE uint4 rounded_vector(const float* y) {
  if constexpr (sizeof(T) == 4) {
    return make_uint4(__float_as_uint(y[0]), __float_as_uint(y[1]), __float_as_uint(y[2]),
                      __float_as_uint(y[3]));
  } else {
    return make_uint4(cuda::floats_to_halves<T>(y[0], y[1]), cuda::floats_to_halves<T>(y[2], y[3]),
                      cuda::floats_to_halves<T>(y[4], y[5]), cuda::floats_to_halves<T>(y[6], y[7]));
  }
}

// kVectors: whether out lies as the logits do.
template <class T, bool kVectors>
__global__ void __launch_bounds__(kThreads) gradient_kernel(const __grid_constant__ Args args) {
  constexpr int kV = cuda::kVector<T>;
  const std::int64_t row = blockIdx.x;
  const T* x = static_cast<const T*>(args.logits) + row * args.length;
  T* out = static_cast<T*>(args.out) + row * args.length;
  cuda::wait_for_previous_kernel();
  const std::int64_t here = args.classes[row];
  const RowSum of = args.sums[row];
  const bool is_known = here >= 0 && here < args.length;
  const bool is_ignored = here == args.ignored;
  const float inverse = 1.0f / of.sum, scale = is_known ? *args.scale : float_of(kNanBits);
  const auto gradient = [&](float value, bool is_class) {
    const float y = (power(value - of.most) * inverse - (is_class ? 1.0f : 0.0f)) * scale;
    return is_ignored ? 0.0f : y;
  };
  const int step = static_cast<int>(blockDim.x);
  if constexpr (!kVectors) {
    for (std::int64_t at = threadIdx.x; at < args.length; at += step) {
      out[at] = rounded<T>(gradient(cuda::as_float(x[at]), at == here));
    }
  } else {
    const Span<T> span(x, args.length);
    span.each_single(args.length, [&](std::int64_t at) {
      out[at] = rounded<T>(gradient(cuda::as_float(x[at]), at == here));
    });
    const auto* vectors = reinterpret_cast<const uint4*>(x + span.before);
    auto* to = reinterpret_cast<uint4*>(out + span.before);
    for (std::int64_t first = threadIdx.x; first < span.vectors; first += step * kTogether) {
      uint4 raw[kTogether];
#pragma unroll
      for (int k = 0; k < kTogether; ++k) {
        const std::int64_t at = first + k * step;
        raw[k] = vectors[at < span.vectors ? at : first];
      }
#pragma unroll
      for (int k = 0; k < kTogether; ++k) {
        const std::int64_t at = first + k * step;
        if (at >= span.vectors) continue;
        const std::int64_t place = here - span.before - at * kV;  // of the class in this vector
        float y[kV];
        cuda::floats_of<T>(raw[k], y);
        if (place >= 0 && place < kV) {
#pragma unroll
          for (int i = 0; i < kV; ++i) y[i] = gradient(y[i], i == place);
        } else {
#pragma unroll
          for (int i = 0; i < kV; ++i) y[i] = gradient(y[i], false);
        }
        cuda::store_away(to + at, rounded_vector<T>(y));
      }
    }
  }
}

// A block's threads: as many as have a vector to read.
cuda::Grid grid_of(const ConstTensorView& logits) {
  const auto vectors = logits.shape[1] * static_cast<std::int64_t>(size_bytes(logits.dtype)) / 16;
  int threads = kThreads;
  while (threads > kWarp && threads / 2 >= vectors) threads /= 2;
  return {.blocks = logits.shape[0], .threads = threads, .early = true};
}

// Calls body with a value of the type.
void for_type(DType dtype, const auto& body) {
  switch (dtype) {
    case DType::F16: return body(F16{});
    case DType::BF16: return body(BF16{});
    default: return body(float{});
  }
}

void run(const ConstTensorView& logits, const Classes& classes, float* losses, RowSum* sums,
         void* stream) {
  const Args args{.logits = logits.data,
                  .classes = classes.of_rows,
                  .ignored = classes.ignored,
                  .length = logits.shape[1],
                  .sums = sums,
                  .losses = losses,
                  .scale = nullptr,
                  .out = nullptr};
  for_type(logits.dtype,
           [&]<class T>(T) { cuda::launch(forward_kernel<T>, grid_of(logits), stream, args); });
}

void run_gradient(const ConstTensorView& logits, const Classes& classes, const RowSum* sums,
                  const float* scale, const TensorView& out, void* stream) {
  const Args args{.logits = logits.data,
                  .classes = classes.of_rows,
                  .ignored = classes.ignored,
                  .length = logits.shape[1],
                  .sums = const_cast<RowSum*>(sums),
                  .losses = nullptr,
                  .scale = scale,
                  .out = out.data};
  const auto place = [](const void* at) { return reinterpret_cast<std::uintptr_t>(at) % 16; };
  const bool is_alike = place(logits.data) == place(out.data);
  for_type(logits.dtype, [&]<class T>(T) {
    is_alike ? cuda::launch(gradient_kernel<T, true>, grid_of(logits), stream, args)
             : cuda::launch(gradient_kernel<T, false>, grid_of(logits), stream, args);
  });
}

}  // namespace

const CudaCrossEntropy kCudaCrossEntropy = {.run = run, .run_gradient = run_gradient};

}  // namespace tuckfold::loss
