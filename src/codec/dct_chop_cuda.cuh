// dct_chop on CUDA, blocks of 8 of a dense tensor: one block a thread, coefficients through shared
// memory where a warp's would not leave it side by side.
#pragma once

#include <cstdint>

#include "codec/blocks_cuda.cuh"
#include "codec/dct_chop_block.h"

namespace tuckfold::dct_chop {

// Where coefficients are stored, and in which order.
struct Stored {
  void* data;
  bool triangle, planes;
  std::int64_t blocks;      // of the tensor, so values in a plane
  std::int64_t row_values;  // of squares: in one row of a strip
};

inline constexpr int kPackThreads = 128, kUnpackThreads = 64;
// Unpack writes more than it reads, and memory likes few writers at a time: room that nobody uses
// keeps the number of blocks on a multiprocessor down. With many coefficients there must be more
// blocks, to have enough of them on the way.
inline constexpr std::size_t unpack_ballast(int keep) { return keep <= 4 ? 50000 : 0; }

template <class Coef, int kKeep, int kThreads>
struct Tile {  // coefficients by warps
  alignas(16) Coef values[kThreads / cuda::kWarp][cuda::kWarp * kKeep * kKeep];
};

// A row of kKeep coefficients that one access moves.
template <class Coef, int kKeep>
inline constexpr bool kRowAtOnce = kKeep * sizeof(Coef) <= 16 &&
                                   (kKeep & (kKeep - 1)) == 0 && kKeep * sizeof(Coef) >= 4;
template <class Coef, int kKeep>
struct alignas(kKeep * sizeof(Coef)) Row {
  Coef values[kKeep];
};

// Copies `count` values between a warp's tile and memory, 16 bytes a lane and turn.
template <class Coef>
__device__ TUCKFOLD_INLINE void copy_by_warp(const Coef* from, Coef* to, int count, int lane) {
  constexpr int kEach = 16 / sizeof(Coef);
  for (int i = lane * kEach; i < count; i += cuda::kWarp * kEach) {
    if (i + kEach <= count) {
      *reinterpret_cast<uint4*>(to + i) = *reinterpret_cast<const uint4*>(from + i);
    } else {
      for (int j = i; j < count; ++j) to[j] = from[j];
    }
  }
}

// Calls visit(value's place in a square, its number among those stored).
template <int kKeep, bool kTriangle, class Visit>
__device__ TUCKFOLD_INLINE void for_each_value(Visit&& visit) {
  int number = 0;
#pragma unroll
  for (int u = 0; u < kKeep; ++u) {
#pragma unroll
    for (int v = 0; v < (kTriangle ? kKeep - u : kKeep); ++v) visit(u * kKeep + v, number++);
  }
}

// What a warp needs to know of its blocks.
template <int kThreads>
struct WarpPlace {
  int lane, warp, valid;      // valid: blocks that exist, from the first lane on; 0: none
  std::int64_t first, block;  // the warp's first block, and the lane's, at most the last

  __device__ WarpPlace(std::int64_t blocks)
      : lane(static_cast<int>(threadIdx.x) % cuda::kWarp),
        warp(static_cast<int>(threadIdx.x) / cuda::kWarp),
        first(static_cast<std::int64_t>(blockIdx.x) * kThreads + warp * cuda::kWarp) {
    const std::int64_t left = blocks - first;
    valid = left <= 0 ? 0 : left < cuda::kWarp ? static_cast<int>(left) : cuda::kWarp;
    block = lane < valid ? first + lane : blocks - 1;
  }
  __device__ bool exists() const { return lane < valid; }
};

// The place of a square's first value.
template <int kKeep>
__device__ TUCKFOLD_INLINE std::int64_t square_at(const Stored& s, std::uint32_t block_cols,
                                                  std::int64_t block) {
  const std::uint32_t strip = static_cast<std::uint32_t>(block) / block_cols;
  const std::uint32_t col = static_cast<std::uint32_t>(block) - strip * block_cols;
  return strip * kKeep * s.row_values + col * kKeep;
}

// Calls visit(place in the tile, place in memory) for the warp's squares so that neighbouring lanes
// have neighbouring values. Where blocks are missing the last value is visited again: a branch
// would keep loads from being in flight together.
template <int kKeep, class Place, class Visit>
__device__ TUCKFOLD_INLINE void for_each_in_rows(const Stored& s, const Place& at,
                                                 std::int64_t square, Visit&& visit) {
  const int last = at.valid * kKeep - 1;
#pragma unroll
  for (int turn = 0; turn < kKeep; ++turn) {
    const int own = turn * cuda::kWarp + at.lane, i = own < last ? own : last;
    const std::int64_t from = __shfl_sync(cuda::kAllLanes, square, i / kKeep) + i % kKeep;
#pragma unroll
    for (int u = 0; u < kKeep; ++u) visit(u * cuda::kWarp * kKeep + i, from + u * s.row_values);
  }
}

template <class T, class Coef, int kKeep>
__global__ void __launch_bounds__(kPackThreads)
    pack_whole(const __grid_constant__ cuda::WholeBlocks in, const __grid_constant__ Stored out) {
  __shared__ Tile<Coef, kKeep, kPackThreads> tile;
  const WarpPlace<kPackThreads> at(in.count);
  if (at.valid == 0) return;
  float x[64], coefs[kKeep * kKeep];
  cuda::load_warp_blocks<T>(in, at.first, x);
  forward_block_8(kKeep, x, 8, coefs);

  Coef* to = static_cast<Coef*>(out.data);
  Coef* mine = tile.values[at.warp];
  const auto stored = [&](int i) { return cuda::from_float<Coef>(coefs[i]); };
  if (out.planes) {
    if (!at.exists()) return;
    const auto put = [&](int i, int number) { to[number * out.blocks + at.block] = stored(i); };
    out.triangle ? for_each_value<kKeep, true>(put) : for_each_value<kKeep, false>(put);
  } else if (out.triangle) {
    constexpr int kValues = kKeep * (kKeep + 1) / 2;
    for_each_value<kKeep, true>(
        [&](int i, int number) { mine[at.lane * kValues + number] = stored(i); });
    __syncwarp();
    copy_by_warp(mine, to + at.first * kValues, at.valid * kValues, at.lane);
  } else if constexpr (kRowAtOnce<Coef, kKeep>) {
    if (!at.exists()) return;
    to += square_at<kKeep>(out, in.block_cols, at.block);
#pragma unroll
    for (int u = 0; u < kKeep; ++u) {
      Row<Coef, kKeep> row;
#pragma unroll
      for (int v = 0; v < kKeep; ++v) row.values[v] = stored(u * kKeep + v);
      *reinterpret_cast<Row<Coef, kKeep>*>(to + u * out.row_values) = row;
    }
  } else {
#pragma unroll
    for (int i = 0; i < kKeep * kKeep; ++i) {
      mine[i / kKeep * cuda::kWarp * kKeep + at.lane * kKeep + i % kKeep] = stored(i);
    }
    __syncwarp();
    for_each_in_rows<kKeep>(out, at, square_at<kKeep>(out, in.block_cols, at.block),
                            [&](int i, std::int64_t place) { to[place] = mine[i]; });
  }
}

template <class T, class Coef, int kKeep>
__global__ void __launch_bounds__(kUnpackThreads)
    unpack_whole(const __grid_constant__ cuda::WholeBlocks out, const __grid_constant__ Stored in) {
  __shared__ Tile<Coef, kKeep, kUnpackThreads> tile;
  const WarpPlace<kUnpackThreads> at(out.count);
  if (at.valid == 0) return;
  float x[64], coefs[kKeep * kKeep];
  const Coef* from = static_cast<const Coef*>(in.data);
  Coef* mine = tile.values[at.warp];
  if (in.planes || in.triangle) {
#pragma unroll
    for (int i = 0; i < kKeep * kKeep; ++i) coefs[i] = 0.0f;
  }
  if (in.planes) {
    const auto take = [&](int i, int number) {
      coefs[i] = cuda::as_float(from[number * in.blocks + at.block]);
    };
    in.triangle ? for_each_value<kKeep, true>(take) : for_each_value<kKeep, false>(take);
  } else if (in.triangle) {
    constexpr int kValues = kKeep * (kKeep + 1) / 2;
    copy_by_warp(from + at.first * kValues, mine, at.valid * kValues, at.lane);
    __syncwarp();
    for_each_value<kKeep, true>(
        [&](int i, int number) { coefs[i] = cuda::as_float(mine[at.lane * kValues + number]); });
  } else if constexpr (kRowAtOnce<Coef, kKeep>) {
    from += square_at<kKeep>(in, out.block_cols, at.block);
#pragma unroll
    for (int u = 0; u < kKeep; ++u) {
      const auto row = *reinterpret_cast<const Row<Coef, kKeep>*>(from + u * in.row_values);
#pragma unroll
      for (int v = 0; v < kKeep; ++v) coefs[u * kKeep + v] = cuda::as_float(row.values[v]);
    }
  } else {
    for_each_in_rows<kKeep>(in, at, square_at<kKeep>(in, out.block_cols, at.block),
                            [&](int i, std::int64_t place) { mine[i] = from[place]; });
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kKeep * kKeep; ++i) {
      coefs[i] =
          cuda::as_float(mine[i / kKeep * cuda::kWarp * kKeep + at.lane * kKeep + i % kKeep]);
    }
  }
  inverse_block_8(kKeep, coefs, x, 8);
  cuda::store_warp_blocks<T>(out, at.first, x);
}

}  // namespace tuckfold::dct_chop
