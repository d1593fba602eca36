// pool_index on CUDA: a block takes 2048 indices side by side, codes cross threads in shared
// memory, and eight of a thread leave as whole bytes.
#include "base/cuda/divide.cuh"
#include "base/cuda/runtime.h"
#include "codec/exact/exact_cuda.cuh"
#include "codec/exact/pool_index.h"

namespace tuckfold::pool_index {
namespace {

using cuda::Divider;
using cuda::Refusals;
using cuda::View;

constexpr int kThreads = 256, kEach = 8, kTile = kThreads * kEach;

struct Args {
  View view;
  unsigned char* codes;
  Refusals refusals;
  Outputs outputs;
  std::int64_t width;
  Divider by_inner, by_cols, by_rows, by_width;
  int kernel, stride, padding, bits;
  bool narrow;  // whether 31 bits number all outputs
};

__device__ TUCKFOLD_INLINE Window window_of(const Args& a, std::int64_t output) {
  if (!a.narrow) {
    const std::int64_t place = output / a.outputs.inner;
    return window_at(place / a.outputs.cols % a.outputs.rows, place % a.outputs.cols, a.stride,
                     a.padding);
  }
  const auto cols = static_cast<std::uint32_t>(a.outputs.cols);
  const auto rows = static_cast<std::uint32_t>(a.outputs.rows);
  const std::uint32_t place = a.by_inner.quotient(static_cast<std::uint32_t>(output));
  const std::uint32_t strip = a.by_cols.quotient(place);
  const std::uint32_t row = strip - a.by_rows.quotient(strip) * rows;
  return window_at(row, place - strip * cols, a.stride, a.padding);
}

// code_of by a faster division where the index is small.
__device__ TUCKFOLD_INLINE int code_at(const Args& a, std::int64_t index, std::int64_t output) {
  const Window window = window_of(a, output);
  if (static_cast<std::uint64_t>(index) >> 31 != 0) {
    return code_of(index, a.width, window, a.kernel);
  }
  const auto small = static_cast<std::uint32_t>(index);
  const std::uint32_t y = a.by_width.quotient(small);
  const auto dy = static_cast<std::uint32_t>(y - window.y);
  const auto dx =
      static_cast<std::uint32_t>(small - y * static_cast<std::uint32_t>(a.width) - window.x);
  const auto kernel = static_cast<std::uint32_t>(a.kernel);
  return dy < kernel && dx < kernel ? static_cast<int>(dy * kernel + dx) : -1;
}

template <class T, bool kDense>
__global__ void __launch_bounds__(kThreads) pack_kernel(const __grid_constant__ Args a) {
  __shared__ __align__(8) unsigned char staged[kTile];
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * kTile;
  const T* data = reinterpret_cast<const T*>(a.view.data);
  cuda::wait_for_previous_kernel();
  T indices[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const std::int64_t at = begin + i * kThreads + thread;
    const std::int64_t output = at < a.view.elems ? at : a.view.elems - 1;
    indices[i] = data[kDense ? output : a.view.offset(output)];
  }
  cuda::allow_next_kernel();
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const std::int64_t at = begin + i * kThreads + thread;
    int code = 0;
    if (at < a.view.elems) {
      code = code_at(a, indices[i], at);
      if (code < 0) refuse(a.refusals, at);
    }
    staged[i * kThreads + thread] = static_cast<unsigned char>(code);
  }
  __syncthreads();
  const uint2 words = reinterpret_cast<const uint2*>(staged)[thread];
  std::uint64_t eight = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const std::uint32_t code = (i < 4 ? words.x : words.y) >> 8 * (i % 4) & 0xffu;
    eight |= static_cast<std::uint64_t>(code) << i * a.bits;
  }
  const std::int64_t left = a.view.elems - (begin + kEach * thread);
  if (left <= 0) return;
  unsigned char* to = a.codes + (begin / 8 + thread) * a.bits;
  if (left >= kEach && a.bits == 4) {
    *reinterpret_cast<std::uint32_t*>(to) = static_cast<std::uint32_t>(eight);
  } else if (left >= kEach && a.bits == 2) {
    *reinterpret_cast<std::uint16_t*>(to) = static_cast<std::uint16_t>(eight);
  } else {
    const int bytes = ((left < kEach ? static_cast<int>(left) : kEach) * a.bits + 7) / 8;
    for (int i = 0; i < bytes; ++i, eight >>= 8) to[i] = static_cast<unsigned char>(eight);
  }
}

template <class T, bool kDense>
__global__ void __launch_bounds__(kThreads) unpack_kernel(const __grid_constant__ Args a) {
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * kTile;
  T* data = reinterpret_cast<T*>(a.view.data);
  cuda::wait_for_previous_kernel();
  std::uint32_t codes[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const std::int64_t output = begin + i * kThreads + threadIdx.x;
    codes[i] = 0;
    if (output >= a.view.elems) continue;
    const unsigned char* from = a.codes + output / 8 * a.bits;
    const int bit = static_cast<int>(output % 8) * a.bits;
    std::uint32_t both = __ldg(from + bit / 8);
    if (bit % 8 + a.bits > 8) both |= static_cast<std::uint32_t>(__ldg(from + bit / 8 + 1)) << 8;
    codes[i] = both >> bit % 8 & ((1u << a.bits) - 1u);
  }
  cuda::allow_next_kernel();
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const std::int64_t output = begin + i * kThreads + threadIdx.x;
    if (output >= a.view.elems) continue;
    const std::int64_t index =
        index_of(static_cast<int>(codes[i]), a.width, window_of(a, output), a.kernel);
    __stcs(data + (kDense ? output : a.view.offset(output)), static_cast<T>(index));
  }
}

Args args_of(const Params& p, const View& view, const Shape& shape, const std::byte* codes,
             const Refusals& refusals) {
  const Outputs outputs = Outputs::of(p, shape);
  const auto by = [](std::int64_t divisor) { return Divider(static_cast<std::uint32_t>(divisor)); };
  return {.view = view,
          .codes = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(codes)),
          .refusals = refusals,
          .outputs = outputs,
          .width = p.width,
          .by_inner = by(outputs.inner),
          .by_cols = by(outputs.cols),
          .by_rows = by(outputs.rows),
          .by_width = by(p.width),
          .kernel = p.kernel,
          .stride = p.stride,
          .padding = p.padding,
          .bits = p.bits(),
          .narrow = view.elems >> 31 == 0};
}

// Calls launch(kernel for the tensor).
template <template <class T, bool kDense> class Kernel>
void launch(const Args& args, void* stream) {
  const cuda::Grid grid{
      .blocks = cuda::blocks_for(args.view.elems, kTile), .threads = kThreads, .early = true};
  const bool dense = args.view.dense();
  const auto run = [&](auto kernel) { cuda::launch(kernel, grid, stream, args); };
  if (args.view.dtype == DType::I32) {
    dense ? run(Kernel<std::int32_t, true>::kernel) : run(Kernel<std::int32_t, false>::kernel);
  } else {
    dense ? run(Kernel<std::int64_t, true>::kernel) : run(Kernel<std::int64_t, false>::kernel);
  }
}
template <class T, bool kDense>
struct Pack {
  static constexpr auto kernel = pack_kernel<T, kDense>;
};
template <class T, bool kDense>
struct Unpack {
  static constexpr auto kernel = unpack_kernel<T, kDense>;
};

std::size_t pack_cuda(const Stage& stage, const ConstTensorView& in, std::span<std::byte> out,
                      CudaContext run) {
  const View view = View::of(in);
  const Refusals refusals = cuda::begin_pack(run, out.size());
  if (view.elems == 0) return out.size();
  const Params p = Params::of(stage);
  const Args args = args_of(p, view, in.shape, out.data(), refusals);
  launch<Pack>(args, run.stream);
  cuda::check_refused(refusals, view, run.stream, [&](std::uint64_t bits, std::int64_t output) {
    const auto index = view.dtype == DType::I32 ? static_cast<std::int32_t>(bits)
                                                : static_cast<std::int64_t>(bits);
    refuse(p, args.outputs, index, output);
  });
  return out.size();
}

void unpack_cuda(const Stage& stage, std::span<const std::byte> packed, const TensorView& out,
                 CudaContext run) {
  cuda::set_device_result(run, 0);
  const View view = View::of(out);
  if (view.elems == 0) return;
  launch<Unpack>(args_of(Params::of(stage), view, out.shape, packed.data(), {}), run.stream);
}

}  // namespace

const CudaCodec kCuda = {.pack = pack_cuda, .unpack = unpack_cuda};

}  // namespace tuckfold::pool_index
