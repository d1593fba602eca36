// block_quant's kernels that unpack. The fast one: a warp writes a tile of 1024 values of a dense
// tensor, 16 bytes a lane and store, side by side, so that every store is whole lines. It asks for
// all codes and headers of the tile before it uses the first. Groups may have any size.
#pragma once

#include <cstdint>

#include "base/cuda/view.cuh"
#include "codec/block_quant/block_quant_block.h"
#include "codec/block_quant/block_quant_pack_cuda.cuh"
#include "codec/blocks/vectors_cuda.cuh"

namespace tuckfold::block_quant {

inline constexpr int kUnpackThreads = 128;
// How many tiles ahead a warp asks for packed bytes: 16 MB of f32. Fewer may come too late, twice
// as many leave the cache before they are read.
inline constexpr int kTilesAhead = 4096;

struct UnpackArgs {
  View view;
  const std::byte* codes;
  const std::byte* headers;
  std::int64_t group;
  int bits;
  int group_shift;  // -1: the group is no power of two
};

// ---- what both ways share -----------------------------------------------------------------------

// Four bytes at any address.
__device__ TUCKFOLD_INLINE std::uint32_t load_bytes(const std::byte* from) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(from);
  std::uint32_t word = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) word |= static_cast<std::uint32_t>(__ldg(bytes + i)) << 8 * i;
  return word;
}

// How codes of a group become values, for both kinds of groups: value_of without its branches. The
// code is the low bits of a float of 2^23 and more, as kToInteger; adding -0 changes nothing.
struct Spread {
  float subtract, scale, add;
  __device__ explicit Spread(std::uint32_t header) {
    const bool about_zero = (header & 0x8000u) != 0;
    subtract = about_zero ? float_of(0x4b000000u | header >> 16) : kToInteger;
    scale = float_of((header & 0x7fffu) << 16);
    add = about_zero ? -0.0f : float_of(header & 0xffff0000u);
  }
  __device__ float value(std::uint32_t code_bits) const {
    return (float_of(code_bits) - subtract) * scale + add;
  }
};

__device__ TUCKFOLD_INLINE std::uint32_t code_at(const std::byte* codes, std::int64_t index,
                                                 int bits) {
  const auto* from = reinterpret_cast<const unsigned char*>(codes) + index / 8 * bits;
  const int bit = static_cast<int>(index % 8) * bits;
  std::uint32_t word = from[bit / 8];
  if (bit % 8 + bits > 8) word |= static_cast<std::uint32_t>(from[bit / 8 + 1]) << 8;
  return word >> bit % 8 & ((1u << bits) - 1u);
}

// ---- any tensor ---------------------------------------------------------------------------------

template <class T>
__device__ TUCKFOLD_INLINE void unpack_value(const UnpackArgs& a, std::int64_t index) {
  const Spread spread(load_bytes(a.headers + index / a.group * 4));
  const float value = spread.value(0x4b000000u | code_at(a.codes, index, a.bits));
  reinterpret_cast<T*>(a.view.data)[a.view.offset(index)] = cuda::from_float<T>(value);
}

template <class T>
__global__ void __launch_bounds__(kUnpackThreads)
    unpack_any_kernel(const __grid_constant__ UnpackArgs a) {
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kUnpackThreads + threadIdx.x;
  if (index < a.view.elems) unpack_value<T>(a, index);
}

// ---- dense tensors ------------------------------------------------------------------------------

// The codes of a lane's kCount values in step `step` of the tile whose codes begin at `tile`, in
// the low bits. Words past the last code's are not read.
template <int kBits, int kCount>
__device__ TUCKFOLD_INLINE std::uint64_t load_codes(const std::byte* tile, int lane, int step) {
  constexpr int kSize = kBits * kCount;
  const std::byte* from = tile + step * (kWarp * kSize / 8);
  if constexpr (kSize == 4) {
    return __ldg(reinterpret_cast<const unsigned char*>(from) + lane / 2) >> lane % 2 * 4;
  } else if constexpr (kSize == 8) {
    return __ldg(reinterpret_cast<const unsigned char*>(from) + lane);
  } else if constexpr (kSize == 16) {
    return __ldg(reinterpret_cast<const unsigned short*>(from) + lane);
  } else if constexpr (kSize == 32) {
    return __ldg(reinterpret_cast<const unsigned*>(from) + lane);
  } else if constexpr (kSize == 64) {
    const uint2 both = __ldg(reinterpret_cast<const uint2*>(from) + lane);
    return static_cast<std::uint64_t>(both.y) << 32 | both.x;
  } else {
    const int bit = lane * kSize, shift = bit % 32;
    const auto* words = reinterpret_cast<const unsigned*>(from) + bit / 32;
    std::uint64_t both = __ldg(words);
    if (shift + kSize > 32) both |= static_cast<std::uint64_t>(__ldg(words + 1)) << 32;
    both >>= shift;
    if constexpr (kSize > 40) {
      if (shift + kSize > 64) both |= static_cast<std::uint64_t>(__ldg(words + 2)) << (64 - shift);
    }
    return both;
  }
}

// Asks for a tile's codes, and for its headers if they begin a line.
template <int kBits>
__device__ TUCKFOLD_INLINE void prefetch_tile(const UnpackArgs& a, std::int64_t tile, int lane) {
  if ((tile + 1) * kTile > a.view.elems) return;
  static_assert(kTile / 8 == cuda::kLine);  // so that a tile has as many lines as codes have bits
  if (lane < kBits) cuda::prefetch(a.codes + (tile * kBits + lane) * cuda::kLine);
  if (lane == kBits && a.group_shift >= 0) {
    const std::byte* headers = a.headers + (tile * kTile >> a.group_shift) * 4;
    const int bytes = 4 * kTile >> a.group_shift;
    if (static_cast<int>(reinterpret_cast<std::uintptr_t>(headers) % cuda::kLine) < bytes) {
      cuda::prefetch(headers);
    }
  }
}

template <class T, int kBits>
__global__ void __launch_bounds__(kUnpackThreads)
    unpack_tiles_kernel(const __grid_constant__ UnpackArgs a) {
  constexpr int kV = kVector<T>, kStep = kWarp * kV, kSteps = kTile / kStep;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t tile =
      static_cast<std::int64_t>(blockIdx.x) * (kUnpackThreads / kWarp) + threadIdx.x / kWarp;
  const std::int64_t begin = tile * kTile;
  T* to = reinterpret_cast<T*>(a.view.data) + begin + lane * kV;
  if (begin + kTile > a.view.elems) {
    for (std::int64_t i = begin + lane; i < a.view.elems; i += kWarp) unpack_value<T>(a, i);
    return;
  }
  prefetch_tile<kBits>(a, tile + kTilesAhead, lane);
  // Loops of their own, so that no branch is between two loads.
  std::uint64_t codes[kSteps];
  const std::byte* tile_codes = a.codes + tile * (kTile / 8 * kBits);
#pragma unroll
  for (int j = 0; j < kSteps; ++j) codes[j] = load_codes<kBits, kV>(tile_codes, lane, j);
  std::uint32_t groups[kSteps];  // from the tile's first on
  const std::int64_t first_group = a.group_shift >= 0 ? begin >> a.group_shift : begin / a.group;
  const auto past = static_cast<std::uint32_t>(begin - first_group * a.group + lane * kV);
  if (a.group_shift >= 0) {
#pragma unroll
    for (int j = 0; j < kSteps; ++j) groups[j] = (past + j * kStep) >> a.group_shift;
  } else {
#pragma unroll
    for (int j = 0; j < kSteps; ++j) {
      groups[j] = (past + j * kStep) / static_cast<std::uint32_t>(a.group);
    }
  }
  std::uint32_t headers[kSteps];
  const std::byte* from = a.headers + first_group * 4;
  if (reinterpret_cast<std::uintptr_t>(a.headers) % 4 == 0) {
#pragma unroll
    for (int j = 0; j < kSteps; ++j) {
      headers[j] = __ldg(reinterpret_cast<const unsigned*>(from) + groups[j]);
    }
  } else {
#pragma unroll
    for (int j = 0; j < kSteps; ++j) headers[j] = load_bytes(from + std::int64_t{4} * groups[j]);
  }
#pragma unroll
  for (int j = 0; j < kSteps; ++j) {
    const Spread spread(headers[j]);
    float x[kV];
#pragma unroll
    for (int i = 0; i < kV; ++i) {
      const auto code = static_cast<std::uint32_t>(codes[j] >> i * kBits) & ((1u << kBits) - 1u);
      x[i] = spread.value(0x4b000000u | code);
    }
    cuda::store_away(reinterpret_cast<uint4*>(to + j * kStep), cuda::vector_of<T>(x));
  }
}

}  // namespace tuckfold::block_quant
