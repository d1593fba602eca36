// mask on CUDA: a warp takes 1024 values, and votes on 32 of them at a time.
#include "base/cuda/runtime.h"
#include "codec/exact/bit_cuda.cuh"
#include "codec/exact/exact_cuda.cuh"
#include "codec/exact/mask.h"
#include "codec/registry.h"

namespace tuckfold::mask {
namespace {

using cuda::kBitThreads;
using cuda::kBitTile;
using cuda::kWarp;
using cuda::Refusals;
using cuda::View;

template <class T>
struct Args {
  View view;
  T clear, set;
  unsigned char* bits;
  Refusals refusals;
};

// ---- pack ---------------------------------------------------------------------------------------

template <class T, bool kDense>
__global__ void __launch_bounds__(kBitThreads) pack_kernel(const __grid_constant__ Args<T> a) {
  const std::int64_t tile = cuda::bit_warp();
  cuda::wait_for_previous_kernel();
  if (tile * kBitTile >= a.view.elems) return;
  bool known = true;
  const std::uint32_t mine = cuda::vote<kDense>(a.view, tile, a.clear, [&](T x) {
    const bool is_set = x == a.set;
    known = known && (is_set || x == a.clear);
    return is_set;
  });
  cuda::store_bits(a.bits, a.view.elems, tile, mine);
  if (known) return;
  std::int64_t index = tile * kBitTile + threadIdx.x % kWarp;
#pragma unroll 1
  for (;; index += kWarp) {
    const T x = reinterpret_cast<const T*>(a.view.data)[a.view.offset(index)];
    if (x != a.set && x != a.clear) return refuse(a.refusals, index);
  }
}

// The bytes of a word that are the byte repeated in `all`, as four bits.
__device__ TUCKFOLD_INLINE std::uint32_t equal_bytes(std::uint32_t word, std::uint32_t all) {
  const std::uint32_t x = word ^ all;
  const std::uint32_t differ = (((x & 0x7f7f7f7fu) + 0x7f7f7f7fu) | x) & 0x80808080u;
  return ((differ ^ 0x80808080u) >> 7) * 0x10204080u >> 28;
}

// A dense tensor of bytes: 32 values a lane, four in a word.
__global__ void __launch_bounds__(kBitThreads)
    pack_bytes_kernel(const __grid_constant__ Args<std::uint8_t> a) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t tile = cuda::bit_warp(), begin = tile * kBitTile + lane * 32;
  cuda::wait_for_previous_kernel();
  if (begin >= a.view.elems) return;
  const auto* data = reinterpret_cast<const unsigned char*>(a.view.data);
  std::uint32_t mine = 0, known = 0;
  if (begin + 32 <= a.view.elems) {
    const uint4 front = *reinterpret_cast<const uint4*>(data + begin);
    const uint4 back = *reinterpret_cast<const uint4*>(data + begin + 16);
    const std::uint32_t words[8] = {front.x, front.y, front.z, front.w,
                                    back.x,  back.y,  back.z,  back.w};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const std::uint32_t set = equal_bytes(words[i], a.set * 0x01010101u);
      mine |= set << 4 * i;
      known |= (set | equal_bytes(words[i], a.clear * 0x01010101u)) << 4 * i;
    }
  } else {
    for (int i = 0; i < 32; ++i) {
      const unsigned char x = begin + i < a.view.elems ? data[begin + i] : a.clear;
      mine |= (x == a.set ? 1u : 0u) << i;
      known |= (x == a.set || x == a.clear ? 1u : 0u) << i;
    }
  }
  if (known != ~0u) refuse(a.refusals, begin + __ffs(static_cast<int>(~known)) - 1);
  cuda::store_bits(a.bits, a.view.elems, tile, mine);
}

// The halves of a word that are the half repeated in `all`, as bits 0 and 16.
__device__ TUCKFOLD_INLINE std::uint32_t equal_halves(std::uint32_t word, std::uint32_t all) {
  const std::uint32_t x = word ^ all;
  const std::uint32_t differ = (((x & 0x7fff7fffu) + 0x7fff7fffu) | x) & 0x80008000u;
  return (differ ^ 0x80008000u) >> 15;
}

// A dense tensor of 16-bit values: vectors of eight side by side, a byte each.
constexpr int kHalfSteps = 8, kHalfTile = kWarp * 8 * kHalfSteps;

__global__ void __launch_bounds__(kBitThreads)
    pack_halves_kernel(const __grid_constant__ Args<std::uint16_t> a) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t begin = cuda::bit_warp() * kHalfTile;
  const auto* from = reinterpret_cast<const std::uint16_t*>(a.view.data) + begin;
  const std::uint32_t set = a.set * 0x00010001u, clear = a.clear * 0x00010001u;
  cuda::wait_for_previous_kernel();
  if (begin + kHalfTile <= a.view.elems) {
    uint4 raw[kHalfSteps];
#pragma unroll
    for (int j = 0; j < kHalfSteps; ++j) {
      raw[j] = reinterpret_cast<const uint4*>(from)[j * kWarp + lane];
    }
    cuda::allow_next_kernel();
#pragma unroll
    for (int j = 0; j < kHalfSteps; ++j) {
      const std::uint32_t words[4] = {raw[j].x, raw[j].y, raw[j].z, raw[j].w};
      std::uint32_t sets = 0, clears = 0;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        sets |= equal_halves(words[i], set) << 2 * i;
        clears |= equal_halves(words[i], clear) << 2 * i;
      }
      const std::uint32_t known = sets | clears;
      const std::int64_t vector = begin / 8 + j * kWarp + lane;
      a.bits[vector] = static_cast<unsigned char>(sets | sets >> 15);
      if (known != 0x00550055u) {
        const std::uint32_t unknown = ~(known | known >> 15) & 0xffu;
        refuse(a.refusals, vector * 8 + __ffs(static_cast<int>(unknown)) - 1);
      }
    }
    return;
  }
  for (std::int64_t at = 8 * lane; begin + at < a.view.elems; at += 8 * kWarp) {
    std::uint32_t bits = 0;
    for (int i = 0; i < 8 && begin + at + i < a.view.elems; ++i) {
      const std::uint16_t x = from[at + i];
      bits |= (x == a.set ? 1u : 0u) << i;
      if (x != a.set && x != a.clear) refuse(a.refusals, begin + at + i);
    }
    a.bits[(begin + at) / 8] = static_cast<unsigned char>(bits);
  }
}

// ---- unpack -------------------------------------------------------------------------------------

template <class T>
__device__ TUCKFOLD_INLINE void unpack_value(const Args<T>& a, std::int64_t index) {
  const bool is_set = (a.bits[index / 8] >> index % 8 & 1) != 0;
  reinterpret_cast<T*>(a.view.data)[a.view.offset(index)] = is_set ? a.set : a.clear;
}

template <class T>
__global__ void __launch_bounds__(kBitThreads)
    unpack_any_kernel(const __grid_constant__ Args<T> a) {
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kBitThreads + threadIdx.x;
  cuda::wait_for_previous_kernel();
  if (index < a.view.elems) unpack_value(a, index);
}

// Sixteen bytes of values a lane and store, side by side.
template <class T>
__global__ void __launch_bounds__(kBitThreads) unpack_kernel(const __grid_constant__ Args<T> a) {
  constexpr int kV = 16 / sizeof(T), kStep = kWarp * kV, kSteps = 8;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t begin = cuda::bit_warp() * (kStep * kSteps);
  cuda::wait_for_previous_kernel();
  if (begin + kStep * kSteps > a.view.elems) {
    for (std::int64_t i = begin + lane; i < a.view.elems; i += kWarp) unpack_value(a, i);
    return;
  }
  std::uint32_t bits[kSteps];
#pragma unroll
  for (int j = 0; j < kSteps; ++j) {
    const std::int64_t at = begin + j * kStep + lane * kV;
    if constexpr (kV == 16) {
      bits[j] = __ldg(reinterpret_cast<const unsigned short*>(a.bits) + at / 16);
    } else {
      bits[j] = static_cast<std::uint32_t>(__ldg(a.bits + at / 8)) >> (at & 7);
    }
  }
  cuda::allow_next_kernel();
#pragma unroll
  for (int j = 0; j < kSteps; ++j) {
    std::uint32_t words[4];
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      if constexpr (sizeof(T) == 8) {
        const T value = (bits[j] >> w / 2 & 1u) != 0 ? a.set : a.clear;
        words[w] = static_cast<std::uint32_t>(value >> 32 * (w % 2));
      } else {
        constexpr int kIn = 4 / sizeof(T);  // values in a word
        words[w] = 0;
#pragma unroll
        for (int i = 0; i < kIn; ++i) {
          const std::uint32_t value = (bits[j] >> (w * kIn + i) & 1u) != 0 ? a.set : a.clear;
          words[w] |= value << i * 8 * static_cast<int>(sizeof(T));
        }
      }
    }
    cuda::store_away(
        reinterpret_cast<uint4*>(reinterpret_cast<T*>(a.view.data) + begin + j * kStep) + lane,
        make_uint4(words[0], words[1], words[2], words[3]));
  }
}

std::size_t pack_cuda(const Stage& stage, const ConstTensorView& in, std::span<std::byte> out,
                      CudaContext run) {
  const View view = View::of(in);
  const Refusals refusals = cuda::begin_pack(run, out.size());
  if (view.elems == 0) return out.size();
  const Pair pair = pair_of(stage, in.dtype);
  with_word(view.dtype, [&]<class T>(T) {
    const Args<T> args{view, static_cast<T>(pair.clear), static_cast<T>(pair.set),
                       reinterpret_cast<unsigned char*>(out.data()), refusals};
    const cuda::Grid grid = cuda::bit_grid(view.elems);
    if constexpr (sizeof(T) == 1) {
      if (view.dense(16)) return cuda::launch(pack_bytes_kernel, grid, run.stream, args);
    }
    if constexpr (sizeof(T) == 2) {
      const std::int64_t warps = cuda::blocks_for(view.elems, kHalfTile);
      const cuda::Grid halves{.blocks = cuda::blocks_for(warps, cuda::kBitWarps),
                              .threads = kBitThreads,
                              .early = true};
      if (view.dense(16)) return cuda::launch(pack_halves_kernel, halves, run.stream, args);
    }
    view.dense() ? cuda::launch(pack_kernel<T, true>, grid, run.stream, args)
                 : cuda::launch(pack_kernel<T, false>, grid, run.stream, args);
  });
  cuda::check_refused(refusals, view, run.stream, [&](std::uint64_t bits, std::int64_t index) {
    refuse(stage, in.dtype, bits, index);
  });
  return out.size();
}

void unpack_cuda(const Stage& stage, std::span<const std::byte> packed, const TensorView& out,
                 CudaContext run) {
  cuda::set_device_result(run, 0);
  unpack_pair_cuda(pair_of(stage, out.dtype), packed, out, run.stream);
}

}  // namespace

void unpack_pair_cuda(const Pair& pair, std::span<const std::byte> packed, const TensorView& out,
                      void* stream) {
  const View view = View::of(out);
  if (view.elems == 0) return;
  auto* bits = const_cast<std::byte*>(packed.data());
  with_word(view.dtype, [&]<class T>(T) {
    const Args<T> args{view,
                       static_cast<T>(pair.clear),
                       static_cast<T>(pair.set),
                       reinterpret_cast<unsigned char*>(bits),
                       {}};
    if (view.dense(16)) {
      const std::int64_t warps = cuda::blocks_for(view.elems, 8 * kWarp * 16 / sizeof(T));
      return cuda::launch(unpack_kernel<T>,
                          {.blocks = cuda::blocks_for(warps, cuda::kBitWarps),
                           .threads = kBitThreads,
                           .early = true},
                          stream, args);
    }
    cuda::launch(unpack_any_kernel<T>,
                 {.blocks = cuda::blocks_for(view.elems, kBitThreads),
                  .threads = kBitThreads,
                  .early = true},
                 stream, args);
  });
}

const CudaCodec kCuda = {.pack = pack_cuda, .unpack = unpack_cuda, .every_dtype = true};

}  // namespace tuckfold::mask
