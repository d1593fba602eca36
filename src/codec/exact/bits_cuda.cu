// bits on CUDA: one pass for the range, then one for the codes. Only the device knows minimum and
// width until the host synchronizes. A block stages codes, or reads bits, as words of the packed
// bytes, which are aligned to four though codes may not be.
#include "base/cuda/runtime.h"
#include "codec/exact/bits.h"
#include "codec/exact/exact_cuda.cuh"
#include "codec/exact/raw.h"

namespace tuckfold::bits {
namespace {

using cuda::kAllLanes;
using cuda::kWarp;
using cuda::View;

constexpr int kThreads = 256;
constexpr int kEach = 8;                 // values of a thread
constexpr int kTile = kThreads * kEach;  // of a block; a multiple of 32, so that tiles start words
constexpr int kHalo = 8;  // values of the tile before that may share a tile's first word
constexpr int kRangeBlocks = 1024;
static_assert(sizeof(Range) <= kNoteBytes);

struct Args {
  View view;
  std::byte* packed;
  std::size_t packed_bytes;  // of unpack
  int given_width;           // 0: found
  Range* range;              // of pack
  std::uint64_t* device_result;
};

// Calls body with a value of the element type, to pick a kernel.
template <class Body>
void with_whole(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::I32: return body(std::int32_t{});
    case DType::I64: return body(std::int64_t{});
    default: return body(std::uint8_t{});
  }
}

template <class T>
using Word = std::make_unsigned_t<T>;
// The type in which codes are staged and shifted.
template <class T>
using Code = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;

// ---- range --------------------------------------------------------------------------------------

__global__ void range_begin_kernel(Range* range) {
  cuda::wait_for_previous_kernel();
  if (threadIdx.x == 0) *range = Range{};
}

template <class T, bool kDense>
__global__ void __launch_bounds__(kThreads) range_kernel(const __grid_constant__ Args a) {
  const T* data = reinterpret_cast<const T*>(a.view.data);
  const std::int64_t elems = a.view.elems;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kTile;
  cuda::wait_for_previous_kernel();
  Range range;
  for (std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * kTile; begin < elems;
       begin += step) {
    T x[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const std::int64_t at = begin + i * kThreads + threadIdx.x;
      const std::int64_t index = at < elems ? at : elems - 1;
      x[i] = data[kDense ? index : a.view.offset(index)];
    }
    T low = x[0], high = x[0];
#pragma unroll
    for (int i = 1; i < kEach; ++i) {
      low = x[i] < low ? x[i] : low;
      high = x[i] > high ? x[i] : high;
    }
    range.low = low < range.low ? low : range.low;
    range.high = high > range.high ? high : range.high;
  }
#pragma unroll
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    const std::int64_t low = __shfl_xor_sync(kAllLanes, range.low, mask);
    const std::int64_t high = __shfl_xor_sync(kAllLanes, range.high, mask);
    range.low = low < range.low ? low : range.low;
    range.high = high > range.high ? high : range.high;
  }
  if (threadIdx.x % kWarp == 0) {
    atomicMin(reinterpret_cast<long long*>(&a.range->low), static_cast<long long>(range.low));
    atomicMax(reinterpret_cast<long long*>(&a.range->high), static_cast<long long>(range.high));
  }
}

// ---- pack ---------------------------------------------------------------------------------------

// The position of a tile's staged code i: lanes that read codes 32 apart use different banks.
__device__ TUCKFOLD_INLINE int slot(int i) { return i + i / 32; }

template <class T, bool kDense>
__global__ void __launch_bounds__(kThreads) pack_kernel(const __grid_constant__ Args a) {
  __shared__ Code<T> staged[kHalo + kTile + (kHalo + kTile) / 32 + 1];
  const int thread = static_cast<int>(threadIdx.x);
  const bool first = blockIdx.x == 0 && thread == 0;
  cuda::wait_for_previous_kernel();
  const std::int64_t minimum = a.range->low;
  const int needed = needed_width(*a.range);
  const int width = a.given_width == 0 ? needed : a.given_width;
  const std::size_t header = kMinimumBytes + (a.given_width == 0 ? kWidthBytes : 0);
  const std::size_t bytes = header + code_bytes(a.view.elems, width);
  if (needed > width) {
    if (first && a.device_result != nullptr) *a.device_result = kRefused;
    return;
  }
  if (first) {
    if (a.device_result != nullptr) *a.device_result = bytes;
    *reinterpret_cast<std::int64_t*>(a.packed) = minimum;
    if (a.given_width == 0) a.packed[kMinimumBytes] = static_cast<std::byte>(width);
  }
  if (width == 0) return;

  const T* data = reinterpret_cast<const T*>(a.view.data);
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * kTile;
  const auto stage = [&](int i) {
    const std::int64_t at = begin - kHalo + i;
    if (at < 0 || at >= a.view.elems) return;
    const auto word = static_cast<Word<T>>(data[kDense ? at : a.view.offset(at)]);
    staged[slot(i)] = static_cast<Word<T>>(word - static_cast<Word<T>>(minimum));
  };
#pragma unroll
  for (int i = 0; i < kEach; ++i) stage(kHalo + i * kThreads + thread);
  if (thread < kHalo) stage(thread);
  __syncthreads();

  // Word i holds bits 32 * i - ahead … of the tile; the bits after the last whole word of a tile
  // belong to the next tile.
  const int ahead = a.given_width == 0 ? 8 : 0;
  const std::int64_t left = a.view.elems - begin;
  const int count = static_cast<int>(left < kTile ? left : kTile);
  const int words = left <= kTile ? (count * width + ahead + 31) / 32 : kTile / 32 * width;
  std::byte* to = a.packed + kMinimumBytes + begin / 8 * width;
  for (int i = thread; i < words; i += kThreads) {
    const int bit = 32 * i - ahead;
    std::uint32_t word = 0;
    int value, at;  // the first code, and the bit of the word where it begins
    if (bit >= 0) {
      value = bit / width;
      at = value * width - bit;
    } else if (begin == 0) {
      word = static_cast<std::uint32_t>(width);
      value = 0;
      at = ahead;
    } else {
      value = -((ahead + width - 1) / width);
      at = value * width - bit;
    }
    for (; at < 32 && value < count; ++value, at += width) {
      const Code<T> code = staged[slot(kHalo + value)];
      word |= static_cast<std::uint32_t>(at >= 0 ? code << at : code >> -at);
    }
    std::byte* out = to + 4 * static_cast<std::int64_t>(i);
    const auto room = static_cast<std::int64_t>(bytes) - (out - a.packed);
    if (room >= 4) {
      *reinterpret_cast<std::uint32_t*>(out) = word;
    } else {
      for (int b = 0; b < room; ++b) out[b] = static_cast<std::byte>(word >> 8 * b);
    }
  }
}

// ---- unpack -------------------------------------------------------------------------------------

// Words that reach past the last byte are assembled from the bytes that exist.
__device__ TUCKFOLD_INLINE std::uint32_t load_word(const Args& a, std::size_t word) {
  const std::size_t at = word * 4;
  if (at + 4 <= a.packed_bytes) return __ldg(reinterpret_cast<const unsigned*>(a.packed) + word);
  std::uint32_t result = 0;
  for (std::size_t i = at; i < a.packed_bytes; ++i) {
    result |= static_cast<std::uint32_t>(a.packed[i]) << 8 * (i - at);
  }
  return result;
}

template <class T, bool kDense>
__global__ void __launch_bounds__(kThreads) unpack_kernel(const __grid_constant__ Args a) {
  const bool first = blockIdx.x == 0 && threadIdx.x == 0;
  constexpr int kMost = 8 * sizeof(T);
  cuda::wait_for_previous_kernel();
  const std::size_t header = kMinimumBytes + (a.given_width == 0 ? kWidthBytes : 0);
  int width = a.given_width;
  if (width == 0) {
    width = static_cast<int>(a.packed[kMinimumBytes]);
    if (width > kMost || a.packed_bytes != header + code_bytes(a.view.elems, width)) {
      if (first && a.device_result != nullptr) *a.device_result = kRefused;
      return;
    }
  }
  if (first && a.device_result != nullptr) *a.device_result = 0;
  const auto minimum = static_cast<Word<T>>(*reinterpret_cast<const std::int64_t*>(a.packed));
  const Code<T> mask = width == 0 ? Code<T>{0} : ~Code<T>{0} >> (8 * sizeof(Code<T>) - width);
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * kTile;
  const std::size_t word = header / 4 + static_cast<std::size_t>(begin / 32) * width;
  const unsigned ahead = header % 4 * 8;
  T* to = reinterpret_cast<T*>(a.view.data);
  Code<T> codes[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const unsigned at = i * kThreads + threadIdx.x;
    if (begin + at >= a.view.elems || width == 0) continue;
    const unsigned bit = ahead + at * static_cast<unsigned>(width), shift = bit & 31u;
    const unsigned end = shift + static_cast<unsigned>(width);
    std::uint64_t both = load_word(a, word + bit / 32);
    if (end > 32) both |= static_cast<std::uint64_t>(load_word(a, word + bit / 32 + 1)) << 32;
    both >>= shift;
    if constexpr (sizeof(T) == 8) {
      if (end > 64) {
        both |= static_cast<std::uint64_t>(load_word(a, word + bit / 32 + 2)) << (64 - shift);
      }
    }
    codes[i] = static_cast<Code<T>>(both) & mask;
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const std::int64_t at = begin + i * kThreads + threadIdx.x;
    if (at >= a.view.elems) continue;
    const auto code = static_cast<Word<T>>(width == 0 ? 0 : codes[i]);
    const T value = static_cast<T>(static_cast<Word<T>>(code + minimum));
    __stcs(to + (kDense ? at : a.view.offset(at)), value);
  }
}

}  // namespace

std::size_t pack_cuda(const Stage& stage, const ConstTensorView& in, std::span<std::byte> out,
                      CudaContext run) {
  const int width = given_width(stage);
  if (in.shape.elems() == 0 || width == bits_of(in.dtype)) {
    cuda::set_device_result(run, in.shape.elems() == 0 ? 0 : out.size());
    return in.shape.elems() == 0 ? 0 : raw::kCuda.pack(stage, in, out, run);
  }
  auto* range = reinterpret_cast<Range*>(run.workspace.data());
  const Args args{.view = View::of(in),
                  .packed = out.data(),
                  .given_width = width,
                  .range = range,
                  .device_result = run.device_result};
  const std::int64_t blocks = cuda::blocks_for(args.view.elems, kTile);
  const cuda::Grid all{.blocks = blocks, .threads = kThreads, .early = true};
  const cuda::Grid some{
      .blocks = blocks < kRangeBlocks ? blocks : kRangeBlocks, .threads = kThreads, .early = true};
  cuda::launch(range_begin_kernel, {.blocks = 1, .threads = kWarp, .early = true}, run.stream,
               range);
  with_whole(in.dtype, [&]<class T>(T) {
    if (args.view.dense()) {
      cuda::launch(range_kernel<T, true>, some, run.stream, args);
      cuda::launch(pack_kernel<T, true>, all, run.stream, args);
    } else {
      cuda::launch(range_kernel<T, false>, some, run.stream, args);
      cuda::launch(pack_kernel<T, false>, all, run.stream, args);
    }
  });
  if (!cuda::waits(run)) return out.size();
  Range found;
  cuda::copy(&found, range, sizeof found, run.stream);
  cuda::synchronize(run.stream);
  const int needed = needed_width(found);
  if (width != 0 && needed > width) refuse(width, in.dtype, found);
  return header_bytes(width, in.dtype, args.view.elems) +
         code_bytes(args.view.elems, width == 0 ? needed : width);
}

void unpack_cuda(const Stage& stage, std::span<const std::byte> packed, const TensorView& out,
                 CudaContext run) {
  const int width = given_width(stage);
  if (out.shape.elems() == 0 || width == bits_of(out.dtype)) {
    cuda::set_device_result(run, 0);
    if (out.shape.elems() != 0) raw::kCuda.unpack(stage, packed, out, run);
    return;
  }
  check_header(width, packed.size(), out);
  if (width == 0 && cuda::waits(run)) {
    std::byte found{};
    cuda::copy(&found, packed.data() + kMinimumBytes, 1, run.stream);
    cuda::synchronize(run.stream);
    check_width(static_cast<int>(found), packed.size(), out);
  }
  const Args args{.view = View::of(out),
                  .packed = const_cast<std::byte*>(packed.data()),
                  .packed_bytes = packed.size(),
                  .given_width = width,
                  .range = nullptr,
                  .device_result = run.device_result};
  const cuda::Grid all{
      .blocks = cuda::blocks_for(args.view.elems, kTile), .threads = kThreads, .early = true};
  with_whole(out.dtype, [&]<class T>(T) {
    args.view.dense() ? cuda::launch(unpack_kernel<T, true>, all, run.stream, args)
                      : cuda::launch(unpack_kernel<T, false>, all, run.stream, args);
  });
}

const CudaCodec kCuda = {.pack = pack_cuda, .unpack = unpack_cuda};

}  // namespace tuckfold::bits
