// One bit a value on CUDA: a warp takes 1024 values, and votes on 32 of them at a time.
#pragma once

#include <cstdint>

#include "base/cuda/view.cuh"

namespace tuckfold::cuda {

inline constexpr int kBitThreads = 256, kBitWarps = kBitThreads / kWarp;
inline constexpr int kBitTile = kWarp * 32;  // values of a warp: a word of bits for each lane

__device__ TUCKFOLD_INLINE std::int64_t bit_warp() {
  return static_cast<std::int64_t>(blockIdx.x) * kBitWarps + threadIdx.x / kWarp;
}
inline Grid bit_grid(std::int64_t elems) {
  return {.blocks = blocks_for(blocks_for(elems, kBitTile), kBitWarps),
          .threads = kBitThreads,
          .early = true};
}

// A lane's word of a tile; bytes past the last value's are not written.
__device__ TUCKFOLD_INLINE void store_bits(unsigned char* bits, std::int64_t elems,
                                           std::int64_t tile, std::uint32_t word) {
  const std::int64_t at = tile * (kBitTile / 8) + threadIdx.x % kWarp * 4;
  const std::int64_t bytes = (elems + 7) / 8;
  if (at + 4 <= bytes) {
    *reinterpret_cast<std::uint32_t*>(bits + at) = word;
    return;
  }
  for (std::int64_t i = at; i < bytes; ++i) {
    bits[i] = static_cast<unsigned char>(word >> 8 * (i - at));
  }
}

// The lane's word of a tile's bits: the result of `test` for each value; values past the last count
// as `outside`.
template <bool kDense, class T, class Test>
__device__ TUCKFOLD_INLINE std::uint32_t vote(const View& view, std::int64_t tile, T outside,
                                              Test&& test) {
  constexpr int kAtOnce = kDense ? 16 : 4;  // loads that a lane has in flight
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t begin = tile * kBitTile + lane;
  const bool whole = (tile + 1) * kBitTile <= view.elems;
  const T* data = reinterpret_cast<const T*>(view.data);
  std::uint32_t mine = 0;
#pragma unroll 1
  for (int j = 0; j < 32; j += kAtOnce) {
    T x[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const std::int64_t at = begin + (j + i) * kWarp;
      x[i] = whole || at < view.elems ? data[kDense ? at : view.offset(at)] : outside;
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const std::uint32_t word = __ballot_sync(kAllLanes, test(x[i]));
      if (lane == j + i) mine = word;
    }
  }
  return mine;
}

}  // namespace tuckfold::cuda
