// normalize() on CUDA. A kernel for tensors whose channels are next to each other keeps a thread's
// channels, and their numbers in registers, for many rows; one for planes looks up one channel or two
// for sixteen bytes.
#include "codec/then/normalize.h"
#include "codec/then/normalize_block.h"
#include "codec/then/then_cuda.cuh"

namespace tuckfold::then {
namespace {

constexpr int kThreads = 256;
constexpr int kTogether = 4;  // vectors that a thread loads before it uses the first
constexpr int kRowsOfThread = 32;

struct Args {
  const void* x;
  const void* add;  // null: none
  void* out;
  const float *mean, *invstd, *weight, *bias;
  std::int64_t elems;
  CudaArgs place;  // of channels
  // Where channels are next to each other: threads of one row, pieces of a row, rows.
  int lanes, tiles;
  std::int64_t rows;

  __device__ TUCKFOLD_INLINE Factors factors(std::int64_t channel) const {
    return {__ldg(mean + channel), __ldg(invstd + channel), __ldg(weight + channel),
            __ldg(bias + channel)};
  }
};

// The values of a vector from their normalized ones, which are not rounded yet.
template <class T, bool kAdd>
__device__ TUCKFOLD_INLINE uint4 finished(float* y, const uint4& add, bool relu) {
  constexpr int kV = cuda::kVector<T>;
  if constexpr (kAdd) {
    float other[kV];
    cuda::floats_of<T>(add, other);
    if constexpr (sizeof(T) == 2) {
#pragma unroll
      for (int i = 0; i < kV; i += 2) {
        const std::uint32_t pair = cuda::floats_to_halves<T>(y[i], y[i + 1]);
        y[i] = cuda::half_to_float<T>(static_cast<std::uint16_t>(pair));
        y[i + 1] = cuda::half_to_float<T>(static_cast<std::uint16_t>(pair >> 16));
      }
    }
#pragma unroll
    for (int i = 0; i < kV; ++i) y[i] = y[i] + other[i];
  }
  if (relu) {
#pragma unroll
    for (int i = 0; i < kV; ++i) y[i] = rectified(y[i]);
  }
  if constexpr (sizeof(T) == 4) {
    return make_uint4(__float_as_uint(y[0]), __float_as_uint(y[1]), __float_as_uint(y[2]),
                      __float_as_uint(y[3]));
  } else {
    return make_uint4(cuda::floats_to_halves<T>(y[0], y[1]), cuda::floats_to_halves<T>(y[2], y[3]),
                      cuda::floats_to_halves<T>(y[4], y[5]), cuda::floats_to_halves<T>(y[6], y[7]));
  }
}

// One value, where vectors do not fit.
template <class T>
__device__ TUCKFOLD_INLINE T as_stored(float value) {
  if constexpr (sizeof(T) == 2) {
    return T{static_cast<std::uint16_t>(cuda::floats_to_halves<T>(value, value))};
  } else {
    return value;
  }
}

template <class T, bool kAdd>
__device__ TUCKFOLD_INLINE void finish_one(const Args& args, std::int64_t index) {
  const Factors of = args.factors(Position(args.place, index).channel);
  float y = normalized(cuda::as_float(static_cast<const T*>(args.x)[index]), of);
  if constexpr (kAdd) {
    y = cuda::as_float(as_stored<T>(y)) + cuda::as_float(static_cast<const T*>(args.add)[index]);
  }
  static_cast<T*>(args.out)[index] = as_stored<T>(args.place.relu ? rectified(y) : y);
}

template <class T, bool kAdd>
__global__ void channels_kernel(const __grid_constant__ Args args) {
  constexpr int kV = cuda::kVector<T>;
  const int lane = static_cast<int>(threadIdx.x) % args.lanes;
  const int rows_beside = kThreads / args.lanes;
  const int row_in_block = static_cast<int>(threadIdx.x) / args.lanes;
  const std::int64_t vectors_of_row = args.place.channels / kV;
  const std::int64_t group = static_cast<std::int64_t>(blockIdx.x) % args.tiles * args.lanes + lane;
  if (row_in_block >= rows_beside || group >= vectors_of_row) return;
  Factors of[kV];
#pragma unroll
  for (int i = 0; i < kV; ++i) of[i] = args.factors(group * kV + i);
  const std::int64_t rows_of_block = static_cast<std::int64_t>(rows_beside) * kRowsOfThread;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) / args.tiles * rows_of_block;
  const std::int64_t end = min(args.rows, first + rows_of_block);
  const auto* x = static_cast<const uint4*>(args.x) + group;
  const auto* add = static_cast<const uint4*>(args.add) + group;
  auto* out = static_cast<uint4*>(args.out) + group;
  for (std::int64_t row = first + row_in_block; row < end; row += rows_beside * kTogether) {
    uint4 values[kTogether], others[kTogether];
#pragma unroll
    for (int k = 0; k < kTogether; ++k) {
      const std::int64_t at = row + k * rows_beside;
      if (at >= end) continue;
      values[k] = x[at * vectors_of_row];
      if constexpr (kAdd) others[k] = add[at * vectors_of_row];
    }
#pragma unroll
    for (int k = 0; k < kTogether; ++k) {
      const std::int64_t at = row + k * rows_beside;
      if (at >= end) continue;
      float y[kV];
      cuda::floats_of<T>(values[k], y);
#pragma unroll
      for (int i = 0; i < kV; ++i) y[i] = normalized(y[i], of[i]);
      out[at * vectors_of_row] = finished<T, kAdd>(y, others[k], args.place.relu);
    }
  }
}

// The normalized values of the vector from `index` on.
template <class T>
__device__ TUCKFOLD_INLINE void normalize_vector(const Args& args, std::int64_t index, float* y) {
  constexpr int kV = cuda::kVector<T>;
  Position at(args.place, index);
  if (args.place.way == Channels::kOne) {
    const Factors of = args.factors(at.channel);
#pragma unroll
    for (int i = 0; i < kV; ++i) y[i] = normalized(y[i], of);
  } else if (args.place.way == Channels::kTwo) {
    const Factors here = args.factors(at.channel);
    const Factors next = args.factors(at.channel + 1 == args.place.channels ? 0 : at.channel + 1);
#pragma unroll
    for (int i = 0; i < kV; ++i) {
      y[i] = normalized(y[i], at.past + i < args.place.inner ? here : next);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kV; ++i) {
      y[i] = normalized(y[i], args.factors(at.channel));
      if (++at.past < args.place.inner) continue;
      at.past = 0;
      at.channel = at.channel + 1 == args.place.channels ? 0 : at.channel + 1;
    }
  }
}

template <class T, bool kAdd>
__global__ void planes_kernel(const __grid_constant__ Args args) {
  constexpr int kV = cuda::kVector<T>;
  const std::int64_t vectors = args.elems / kV;
  const std::int64_t first =
      static_cast<std::int64_t>(blockIdx.x) * (kThreads * kTogether) + threadIdx.x;
  const auto* x = static_cast<const uint4*>(args.x);
  const auto* add = static_cast<const uint4*>(args.add);
  uint4 values[kTogether], others[kTogether];
#pragma unroll
  for (int k = 0; k < kTogether; ++k) {
    const std::int64_t at = first + k * kThreads;
    if (at >= vectors) continue;
    values[k] = x[at];
    if constexpr (kAdd) others[k] = add[at];
  }
#pragma unroll
  for (int k = 0; k < kTogether; ++k) {
    const std::int64_t at = first + k * kThreads;
    if (at >= vectors) continue;
    float y[kV];
    cuda::floats_of<T>(values[k], y);
    normalize_vector<T>(args, at * kV, y);
    static_cast<uint4*>(args.out)[at] = finished<T, kAdd>(y, others[k], args.place.relu);
  }
  if (blockIdx.x == 0 && vectors * kV + threadIdx.x < args.elems) {
    finish_one<T, kAdd>(args, vectors * kV + threadIdx.x);
  }
}

template <class T, bool kAdd>
__global__ void any_kernel(const __grid_constant__ Args args) {
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (index < args.elems) finish_one<T, kAdd>(args, index);
}

// ---- rows of a layer normalization

struct RowArgs {
  const void* x;
  void* out;
  const float *mean, *invstd, *weight, *bias;
  std::int64_t rows, length;
  int lanes, tiles;
};

constexpr int kEight = 8;  // values of a thread in a row

template <class T>
__device__ TUCKFOLD_INLINE void load_eight(const T* from, float* x) {
  const auto* vectors = reinterpret_cast<const uint4*>(from);
#pragma unroll
  for (int i = 0; i < kEight / cuda::kVector<T>; ++i) {
    cuda::floats_of<T>(vectors[i], x + i * cuda::kVector<T>);
  }
}

template <class T, class U>
__global__ void rows_kernel(const __grid_constant__ RowArgs args) {
  const int lane = static_cast<int>(threadIdx.x) % args.lanes;
  const int rows_beside = kThreads / args.lanes;
  const int row_in_block = static_cast<int>(threadIdx.x) / args.lanes;
  const std::int64_t place =
      (static_cast<std::int64_t>(blockIdx.x) % args.tiles * args.lanes + lane) * kEight;
  if (row_in_block >= rows_beside || place >= args.length) return;
  float weight[kEight], bias[kEight];
#pragma unroll
  for (int i = 0; i < kEight; ++i) {
    weight[i] = __ldg(args.weight + place + i);
    bias[i] = __ldg(args.bias + place + i);
  }
  const std::int64_t rows_of_block = static_cast<std::int64_t>(rows_beside) * kRowsOfThread;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) / args.tiles * rows_of_block;
  const std::int64_t end = min(args.rows, first + rows_of_block);
#pragma unroll 4
  for (std::int64_t row = first + row_in_block; row < end; row += rows_beside) {
    float y[kEight];
    load_eight(static_cast<const T*>(args.x) + row * args.length + place, y);
    const float mean = __ldg(args.mean + row), invstd = __ldg(args.invstd + row);
#pragma unroll
    for (int i = 0; i < kEight; ++i) {
      y[i] = normalized_in_row(y[i], mean, invstd, weight[i], bias[i]);
    }
    if constexpr (sizeof(T) == 2 && !std::is_same_v<T, U>) {
#pragma unroll
      for (int i = 0; i < kEight; ++i) y[i] = cuda::as_float(as_stored<T>(y[i]));
    }
    auto* to = reinterpret_cast<uint4*>(static_cast<U*>(args.out) + row * args.length + place);
#pragma unroll
    for (int i = 0; i < kEight / cuda::kVector<U>; ++i) {
      to[i] = finished<U, false>(y + i * cuda::kVector<U>, uint4{}, false);
    }
  }
}

template <class T, class U>
__global__ void any_rows_kernel(const __grid_constant__ RowArgs args) {
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (index >= args.rows * args.length) return;
  const std::int64_t row = index / args.length, place = index % args.length;
  const float y = normalized_in_row(cuda::as_float(static_cast<const T*>(args.x)[index]),
                                    __ldg(args.mean + row), __ldg(args.invstd + row),
                                    __ldg(args.weight + place), __ldg(args.bias + place));
  static_cast<U*>(args.out)[index] = as_stored<U>(cuda::as_float(as_stored<T>(y)));
}

bool is_aligned(const void* at) { return reinterpret_cast<std::uintptr_t>(at) % 16 == 0; }

template <class T, class U>
void run_rows_as(RowArgs args, void* stream) {
  if (args.length % kEight != 0 || !is_aligned(args.x) || !is_aligned(args.out)) {
    const std::int64_t blocks = cuda::blocks_for(args.rows * args.length, kThreads);
    return cuda::launch(any_rows_kernel<T, U>, {.blocks = blocks, .threads = kThreads}, stream,
                        args);
  }
  const std::int64_t threads_of_row = args.length / kEight;
  args.lanes = static_cast<int>(std::min<std::int64_t>(threads_of_row, kThreads));
  args.tiles = static_cast<int>(cuda::blocks_for(threads_of_row, args.lanes));
  const std::int64_t parts = cuda::blocks_for(args.rows, kThreads / args.lanes * kRowsOfThread);
  cuda::launch(rows_kernel<T, U>, {.blocks = parts * args.tiles, .threads = kThreads}, stream,
               args);
}

// ---- channels

template <class T, bool kAdd>
void run_as(Args args, void* stream) {
  constexpr int kV = cuda::kVector<T>;
  const auto grid = [](std::int64_t threads) {
    return cuda::Grid{.blocks = cuda::blocks_for(threads, kThreads), .threads = kThreads};
  };
  if (!is_aligned(args.x) || !is_aligned(args.add) || !is_aligned(args.out)) {
    cuda::launch(any_kernel<T, kAdd>, grid(args.elems), stream, args);
  } else if (args.place.inner == 1 && args.place.channels % kV == 0) {
    const std::int64_t vectors_of_row = args.place.channels / kV;
    args.lanes = static_cast<int>(std::min<std::int64_t>(vectors_of_row, kThreads));
    args.tiles = static_cast<int>(cuda::blocks_for(vectors_of_row, args.lanes));
    args.rows = args.elems / args.place.channels;
    const std::int64_t parts = cuda::blocks_for(args.rows, kThreads / args.lanes * kRowsOfThread);
    cuda::launch(channels_kernel<T, kAdd>, {.blocks = parts * args.tiles, .threads = kThreads},
                 stream, args);
  } else {
    const std::int64_t vectors = std::max<std::int64_t>(args.elems / kV, 1);
    cuda::launch(planes_kernel<T, kAdd>, grid(cuda::blocks_for(vectors, kTogether)), stream, args);
  }
}

void run(const ConstTensorView& x, const ConstTensorView* add, const TensorView& out,
         const Normalization& how, void* stream) {
  const std::int64_t elems = x.shape.elems();
  const auto run_dtype = [&]<class T>(T) {
    const Args args{.x = x.data,
                    .add = add == nullptr ? nullptr : add->data,
                    .out = out.data,
                    .mean = how.mean,
                    .invstd = how.invstd,
                    .weight = how.weight,
                    .bias = how.bias,
                    .elems = elems,
                    .place = CudaArgs({.scale = how.weight,
                                       .shift = how.bias,
                                       .channels = how.channels,
                                       .inner = how.inner,
                                       .relu = how.relu},
                                      elems, cuda::kVector<T>),
                    .lanes = 1,
                    .tiles = 1,
                    .rows = 0};
    add == nullptr ? run_as<T, false>(args, stream) : run_as<T, true>(args, stream);
  };
  switch (x.dtype) {
    case DType::F16: return run_dtype(F16{});
    case DType::BF16: return run_dtype(BF16{});
    default: return run_dtype(float{});
  }
}

// Calls body with a value of the type.
void for_type(DType dtype, const auto& body) {
  switch (dtype) {
    case DType::F16: return body(F16{});
    case DType::BF16: return body(BF16{});
    default: return body(float{});
  }
}

void run_rows(const ConstTensorView& x, const TensorView& out, const RowNormalization& how,
              void* stream) {
  const RowArgs args{.x = x.data,
                     .out = out.data,
                     .mean = how.mean,
                     .invstd = how.invstd,
                     .weight = how.weight,
                     .bias = how.bias,
                     .rows = x.shape.elems() / how.length,
                     .length = how.length,
                     .lanes = 1,
                     .tiles = 1};
  for_type(x.dtype, [&]<class T>(T) {
    for_type(out.dtype, [&]<class U>(U) { run_rows_as<T, U>(args, stream); });
  });
}

}  // namespace

const CudaNormalize kCudaNormalize = {.run = run, .run_rows = run_rows};

}  // namespace tuckfold::then
