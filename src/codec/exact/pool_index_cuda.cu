// pool_index on CUDA: a block takes 2048 indices in contiguous pairs; codes are exchanged between
// threads in shared memory, and a thread stores eight as whole bytes.
#include <cstdint>
#include <type_traits>

#include "base/cuda/divide.cuh"
#include "base/cuda/runtime.h"
#include "codec/exact/exact_cuda.cuh"
#include "codec/exact/pool_index.h"

namespace tuckfold::pool_index {
namespace {

using cuda::Divider;
using cuda::kAllLanes;
using cuda::kWarp;
using cuda::Refusals;
using cuda::View;

constexpr int kThreads = 256, kEach = 8, kTile = kThreads * kEach, kPairs = kEach / 2;

struct Args {
  View view;
  unsigned char* codes;
  Refusals refusals;
  Outputs outputs;
  std::int64_t width;
  Divider by_inner, by_cols, by_rows, by_width, by_kernel;
  int kernel, stride, padding, bits;
  // How far the window of an odd output is to the right of that of the even one before it; -1: it
  // may be in another row.
  int apart;
};

// Narrow tensors: 31 bits hold all outputs, those of the last tile's size beyond the end, and all
// indices. Then 32 bits and no division are enough, which needs fewer registers, too.
template <bool kNarrow>
using Place = std::conditional_t<kNarrow, std::int32_t, std::int64_t>;

// Where a window begins, in 32 bits; for narrow tensors.
struct Corner {
  int y, x;
};
__device__ TUCKFOLD_INLINE Corner corner_of(const Args& a, std::int32_t output) {
  const auto cols = static_cast<std::uint32_t>(a.outputs.cols);
  const auto rows = static_cast<std::uint32_t>(a.outputs.rows);
  const std::uint32_t place = a.by_inner.quotient(static_cast<std::uint32_t>(output));
  const std::uint32_t strip = a.by_cols.quotient(place);
  const std::uint32_t row = strip - a.by_rows.quotient(strip) * rows;
  return {static_cast<int>(row) * a.stride - a.padding,
          static_cast<int>(place - strip * cols) * a.stride - a.padding};
}

__device__ TUCKFOLD_INLINE Window window_of(const Args& a, std::int64_t output) {
  const std::int64_t place = output / a.outputs.inner;
  return window_at(place / a.outputs.cols % a.outputs.rows, place % a.outputs.cols, a.stride,
                   a.padding);
}

// The windows of an even output and of the next.
template <bool kNarrow>
struct TwoWindows {
  using Of = std::conditional_t<kNarrow, Corner, Window>;
  Of first, second;

  __device__ TUCKFOLD_INLINE TwoWindows(const Args& a, Place<kNarrow> output) {
    if constexpr (kNarrow) {
      first = corner_of(a, output);
      second = a.apart >= 0 ? Corner{first.y, first.x + a.apart} : corner_of(a, output + 1);
    } else {
      first = window_of(a, output);
      second = window_of(a, output + 1);
    }
  }
};

// code_of, with 32 bits and without division where that is enough.
__device__ TUCKFOLD_INLINE int code_at(const Args& a, std::int64_t index, const Window& window) {
  return code_of(index, a.width, window, a.kernel);
}
__device__ TUCKFOLD_INLINE int code_at(const Args& a, std::int64_t index, const Corner& corner) {
  if (static_cast<std::uint64_t>(index) >> 31 != 0) return -1;
  const auto small = static_cast<std::uint32_t>(index);
  const std::uint32_t y = a.by_width.quotient(small);
  const std::uint32_t x = small - y * static_cast<std::uint32_t>(a.width);
  const std::uint32_t dy = y - static_cast<std::uint32_t>(corner.y);
  const std::uint32_t dx = x - static_cast<std::uint32_t>(corner.x);
  const auto kernel = static_cast<std::uint32_t>(a.kernel);
  return dy < kernel && dx < kernel ? static_cast<int>(dy * kernel + dx) : -1;
}

// index_of, likewise.
__device__ TUCKFOLD_INLINE std::int64_t index_at(const Args& a, std::uint32_t code,
                                                 const Window& window) {
  return index_of(static_cast<int>(code), a.width, window, a.kernel);
}
__device__ TUCKFOLD_INLINE std::int64_t index_at(const Args& a, std::uint32_t code,
                                                 const Corner& corner) {
  const auto kernel = static_cast<std::uint32_t>(a.kernel);
  code = min(code, kernel * kernel - 1);
  const std::uint32_t dy = a.by_kernel.quotient(code);
  const int y = max(corner.y + static_cast<int>(dy), 0);
  const int x = max(corner.x + static_cast<int>(code - dy * kernel), 0);
  return y * static_cast<int>(a.width) + min(x, static_cast<int>(a.width) - 1);
}

// What holds eight codes of 2 or 4 bits.
template <int kBits>
using Eight = std::conditional_t<kBits == 4, std::uint32_t, std::uint16_t>;

// Two neighbours that are read or written at once.
template <class T>
struct alignas(2 * sizeof(T)) Two {
  T first, second;
};

// kBits: of a code, where that is known here, else 0.
template <class T, bool kDense, bool kNarrow, int kBits>
__global__ void __launch_bounds__(kThreads) pack_kernel(const __grid_constant__ Args a) {
  __shared__ __align__(8) unsigned char staged[kTile];
  const int thread = static_cast<int>(threadIdx.x);
  using At = Place<kNarrow>;
  const At begin = static_cast<At>(blockIdx.x) * kTile, elems = static_cast<At>(a.view.elems);
  const T* data = reinterpret_cast<const T*>(a.view.data);
  cuda::wait_for_previous_kernel();
  Two<T> pairs[kPairs];
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    const At at = begin + 2 * (i * kThreads + thread);
    if (kDense && at + 1 < elems) {
      pairs[i] = *reinterpret_cast<const Two<T>*>(data + at);
    } else {
      const At last = elems - 1;
      const At first = at < last ? at : last, second = at + 1 < last ? at + 1 : last;
      pairs[i] = {data[a.view.offset(first)], data[a.view.offset(second)]};
    }
  }
  cuda::allow_next_kernel();
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    const int place = 2 * (i * kThreads + thread);
    const At at = begin + place;
    const auto code = [&](T index, const auto& window, At output) -> std::uint32_t {
      if (output >= elems) return 0;
      const int found = code_at(a, index, window);
      if (found >= 0) return static_cast<std::uint32_t>(found);
      refuse(a.refusals, output);
      return 0;
    };
    const TwoWindows<kNarrow> windows(a, at);
    const std::uint32_t both = code(pairs[i].first, windows.first, at) |
                               code(pairs[i].second, windows.second, at + 1) << 8;
    *reinterpret_cast<std::uint16_t*>(staged + place) = static_cast<std::uint16_t>(both);
  }
  __syncthreads();
  const uint2 words = reinterpret_cast<const uint2*>(staged)[thread];
  const int bits = kBits > 0 ? kBits : a.bits;
  std::conditional_t<kBits == 0, std::uint64_t, std::uint32_t> eight = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const decltype(eight) code = (i < 4 ? words.x : words.y) >> 8 * (i % 4) & 0xffu;
    eight |= code << i * bits;
  }
  const At left = elems - (begin + kEach * thread);
  if (left <= 0) return;
  unsigned char* to = a.codes + static_cast<std::int64_t>(begin / 8 + thread) * bits;
  if (left >= kEach && kBits > 0) {
    *reinterpret_cast<Eight<kBits>*>(to) = static_cast<Eight<kBits>>(eight);
  } else {
    const int bytes = ((left < kEach ? static_cast<int>(left) : kEach) * bits + 7) / 8;
    for (int i = 0; i < bytes; ++i, eight >>= 8) to[i] = static_cast<unsigned char>(eight);
  }
}

// A lane loads eight codes as one word; a warp's 256 outputs are written in contiguous pairs, whose
// codes come from the lanes that have them.
template <class T, int kBits>
__global__ void __launch_bounds__(kThreads) unpack_words_kernel(const __grid_constant__ Args a) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const auto elems = static_cast<std::int32_t>(a.view.elems);
  const int begin = static_cast<int>(blockIdx.x) * kTile +
                    static_cast<int>(threadIdx.x) / kWarp * (kWarp * kEach);
  T* data = reinterpret_cast<T*>(a.view.data);
  cuda::wait_for_previous_kernel();
  const int mine = begin + kEach * lane;
  const unsigned char* from = a.codes + static_cast<std::int64_t>(mine / kEach) * kBits;
  std::uint32_t eight = 0;
  if (mine + kEach <= elems) {
    eight = __ldg(reinterpret_cast<const Eight<kBits>*>(from));
  } else if (mine < elems) {
    const int bytes = ((elems - mine) * kBits + 7) / 8;
    for (int i = 0; i < bytes; ++i) eight |= static_cast<std::uint32_t>(__ldg(from + i)) << 8 * i;
  }
  cuda::allow_next_kernel();
  constexpr std::uint32_t kMask = (1u << kBits) - 1u;
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    const int pair = i * kWarp + lane, output = begin + 2 * pair;
    const std::uint32_t codes =
        __shfl_sync(kAllLanes, eight, pair / kPairs) >> 2 * kBits * (pair % kPairs);
    if (output >= elems) continue;
    const TwoWindows<true> windows(a, output);
    const auto first = static_cast<T>(index_at(a, codes & kMask, windows.first));
    if (output + 1 == elems) {
      data[output] = first;
      continue;
    }
    const auto second = static_cast<T>(index_at(a, codes >> kBits & kMask, windows.second));
    *reinterpret_cast<Two<T>*>(data + output) = {first, second};
  }
}

template <class T, bool kDense, bool kNarrow>
__global__ void __launch_bounds__(kThreads) unpack_kernel(const __grid_constant__ Args a) {
  using At = Place<kNarrow>;
  const At begin = static_cast<At>(blockIdx.x) * kTile, elems = static_cast<At>(a.view.elems);
  const int thread = static_cast<int>(threadIdx.x);
  T* data = reinterpret_cast<T*>(a.view.data);
  cuda::wait_for_previous_kernel();
  std::uint32_t codes[kPairs];  // of two outputs
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    const At output = begin + 2 * (i * kThreads + thread);
    codes[i] = 0;
    if (output >= elems) continue;
    const unsigned char* from = a.codes + static_cast<std::int64_t>(output / 8) * a.bits;
    const int bit = static_cast<int>(output % 8) * a.bits;
    const int bits = output + 1 < elems ? 2 * a.bits : a.bits;
    codes[i] = __ldg(from + bit / 8);
    if (bit % 8 + bits > 8) codes[i] |= static_cast<std::uint32_t>(__ldg(from + bit / 8 + 1)) << 8;
    if (bit % 8 + bits > 16) {
      codes[i] |= static_cast<std::uint32_t>(__ldg(from + bit / 8 + 2)) << 16;
    }
    codes[i] >>= bit % 8;
  }
  cuda::allow_next_kernel();
  const std::uint32_t mask = (1u << a.bits) - 1u;
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    const At output = begin + 2 * (i * kThreads + thread);
    if (output >= elems) continue;
    const TwoWindows<kNarrow> windows(a, output);
    const auto first = static_cast<T>(index_at(a, codes[i] & mask, windows.first));
    if (output + 1 == elems) {
      data[a.view.offset(output)] = first;
      continue;
    }
    const auto second = static_cast<T>(index_at(a, codes[i] >> a.bits & mask, windows.second));
    if (kDense) {
      *reinterpret_cast<Two<T>*>(data + output) = {first, second};
    } else {
      data[a.view.offset(output)] = first;
      data[a.view.offset(output + 1)] = second;
    }
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
          .by_kernel = by(p.kernel),
          .kernel = p.kernel,
          .stride = p.stride,
          .padding = p.padding,
          .bits = p.bits(),
          .apart = outputs.inner % 2 == 0                        ? 0
                   : outputs.inner == 1 && outputs.cols % 2 == 0 ? p.stride
                                                                 : -1};
}

bool is_narrow(const Args& a) {
  return a.view.elems <= INT32_MAX - kTile &&
         a.outputs.rows * a.stride + a.kernel <= INT32_MAX / a.width;
}

// Launches the kernel that `Kernels` has for the tensor.
template <template <class T> class Kernels>
void launch(const Args& args, void* stream) {
  const cuda::Grid grid{
      .blocks = cuda::blocks_for(args.view.elems, kTile), .threads = kThreads, .early = true};
  const bool dense = args.view.dense(2 * size_bytes(args.view.dtype));
  const auto run = [&](auto kernel) { cuda::launch(kernel, grid, stream, args); };
  const auto of_type = [&]<class T>(T) {
    if (!is_narrow(args)) {
      run(Kernels<T>::wide);
    } else if (!dense) {
      run(Kernels<T>::strided);
    } else {
      run(args.bits == 4 ? Kernels<T>::four : args.bits == 2 ? Kernels<T>::two : Kernels<T>::any);
    }
  };
  args.view.dtype == DType::I32 ? of_type(std::int32_t{}) : of_type(std::int64_t{});
}
template <class T>
struct Pack {
  static constexpr auto wide = pack_kernel<T, false, false, 0>;
  static constexpr auto strided = pack_kernel<T, false, true, 0>;
  static constexpr auto any = pack_kernel<T, true, true, 0>;
  static constexpr auto four = pack_kernel<T, true, true, 4>;
  static constexpr auto two = pack_kernel<T, true, true, 2>;
};
template <class T>
struct Unpack {
  static constexpr auto wide = unpack_kernel<T, false, false>;
  static constexpr auto strided = unpack_kernel<T, false, true>;
  static constexpr auto any = unpack_kernel<T, true, true>;
  static constexpr auto four = unpack_words_kernel<T, 4>;
  static constexpr auto two = unpack_words_kernel<T, 2>;
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
