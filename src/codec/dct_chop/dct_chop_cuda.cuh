// dct_chop on CUDA, blocks of 8 of a dense tensor: one block per thread. Coefficients go through
// shared memory if a warp's would not be contiguous.
#pragma once

#include <cstdint>

#include "codec/blocks/blocks_cuda.cuh"
#include "codec/dct_chop/dct_chop_block.h"

namespace tuckfold::dct_chop {

// Where coefficients are stored, and in which order.
struct StoredCoefs {
  void* data;
  bool triangle, planes;
  std::int64_t blocks;      // of the tensor, so values in a plane
  std::int64_t row_values;  // of squares: in one row of a block row
};

// How blocks are assigned to CTAs: the same number to each, one to a thread. If those are whole
// block rows, their packed squares are contiguous and are loaded and stored 16 bytes at a time.
struct Deal {
  int each;
  bool whole_block_rows;

  static Deal of(std::uint32_t block_cols, int threads) {
    if (block_cols > static_cast<std::uint32_t>(threads)) return {threads, false};
    const int cols = static_cast<int>(block_cols);
    return {threads / cols * cols, true};
  }
};

enum class Order { Rows, Triangles, Planes };

inline constexpr int kPackThreads = 128, kUnpackThreads = 64;
// Five CTAs are enough to keep memory busy, and leave registers for all loads of a block at once;
// four if as much is written as read.
inline constexpr int pack_blocks_per_sm(int keep) { return keep < 7 ? 5 : 4; }
// Unpack writes more than it reads, and memory is faster with few writers at a time: if there is
// little to compute, unused shared memory limits the number of CTAs on a multiprocessor. A tensor
// of less than kLongBytes takes a few tens of microseconds and rather fills the device at once.
//
// The sizes were the fastest ones on an H200 for each keep (bench/kernels has the ladder). Its
// multiprocessors have 228 KB of shared memory, so 49000 bytes allow at most 4 CTAs, 33000 allow 6,
// 24000 allow 9, 18000 allow 12 and 12000 allow 17.
inline std::size_t occupancy_limit_bytes(const cuda::WholeBlocks& blocks, std::size_t element_bytes,
                                         bool staged, int keep) {
  constexpr std::size_t kLongBytes = 128 << 20;
  if (static_cast<std::size_t>(blocks.count) * 64 * element_bytes < kLongBytes) return 0;
  if (element_bytes == 2) return keep <= 2 ? 33000 : keep <= 5 ? 24000 : 12000;
  if (keep <= 2 || (!staged && keep <= 5)) return 49000;
  if (keep <= 4 || !staged) return 33000;
  return keep <= 5 ? 18000 : keep <= 7 ? 12000 : 0;
}

template <class Coef, int kKeep, int kThreads>
struct Tile {  // coefficients by warps
  alignas(16) Coef values[kThreads / cuda::kWarp * cuda::kWarp * kKeep * kKeep + 16 / sizeof(Coef)];
  __device__ Coef* of_warp(int warp) { return values + warp * cuda::kWarp * kKeep * kKeep; }
};

// A row of kKeep coefficients that one access moves.
template <class Coef, int kKeep>
inline constexpr bool kRowAtOnce = kKeep * sizeof(Coef) <= 16 &&
                                   (kKeep & (kKeep - 1)) == 0 && kKeep * sizeof(Coef) >= 4;
// Two accesses may load one: the second finds its half of the sector in the cache.
template <class Coef, int kKeep>
inline constexpr bool kLoadsRow = kRowAtOnce<Coef, kKeep> || kKeep * sizeof(Coef) == 32;
template <class Coef, int kKeep>
struct alignas(kKeep * sizeof(Coef) < 16 ? kKeep * sizeof(Coef) : 16) Row {
  Coef values[kKeep];
};

// Copies kValues values of each of `blocks` blocks between a warp's tile and memory, 16 bytes a
// lane and turn. Whole warps have all their loads in flight.
template <int kValues, class Coef>
__device__ TUCKFOLD_INLINE void copy_by_warp(const Coef* from, Coef* to, int blocks, int lane) {
  constexpr int kEach = 16 / sizeof(Coef), kPieces = cuda::kWarp * kValues / kEach;
  constexpr int kTurns = (kPieces + cuda::kWarp - 1) / cuda::kWarp;
  if (blocks == cuda::kWarp) {
    uint4 pieces[kTurns];
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      const int i = turn * cuda::kWarp + lane;
      if (i < kPieces) pieces[turn] = reinterpret_cast<const uint4*>(from)[i];
    }
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      const int i = turn * cuda::kWarp + lane;
      if (i < kPieces) reinterpret_cast<uint4*>(to)[i] = pieces[turn];
    }
  } else {
    for (int i = lane; i < blocks * kValues; i += cuda::kWarp) to[i] = from[i];
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
struct WarpPlace {
  int lane, warp;
  int valid;                        // blocks that exist, from the first lane on
  std::int64_t first, block;        // the warp's first block, and the lane's, at most the last
  std::int64_t cta_first, cta_end;  // the CTA's blocks

  __device__ WarpPlace(std::int64_t blocks, int each)
      : lane(static_cast<int>(threadIdx.x) % cuda::kWarp),
        warp(static_cast<int>(threadIdx.x) / cuda::kWarp),
        cta_first(static_cast<std::int64_t>(blockIdx.x) * each) {
    cta_end = cta_first + each < blocks ? cta_first + each : blocks;
    first = cta_first + warp * cuda::kWarp;
    const std::int64_t left = cta_end - first;
    valid = left <= 0 ? 0 : left < cuda::kWarp ? static_cast<int>(left) : cuda::kWarp;
    block = lane < valid ? first + lane : blocks - 1;
  }
  __device__ bool exists() const { return lane < valid; }
};

// The squares of whole block rows in shared memory, in the order in which they are stored. `lead`
// values before them give 16-byte pieces of the tile the alignment of those in memory.
template <class Coef, int kKeep>
struct BlockRows {
  static constexpr int kEach = 16 / sizeof(Coef);
  int lead, total;
  int row, at;  // distance of a square's rows in the tile, and its place

  __device__ BlockRows(const WarpPlace& place, std::uint32_t block_cols) {
    const auto local = static_cast<std::uint32_t>(place.warp * cuda::kWarp + place.lane);
    const std::uint32_t block_row = local / block_cols, col = local - block_row * block_cols;
    row = static_cast<int>(block_cols) * kKeep;
    at = static_cast<int>(block_row) * row * kKeep + static_cast<int>(col) * kKeep;
    lead = static_cast<int>(place.cta_first * (kKeep * kKeep) % kEach);
    total = static_cast<int>(place.cta_end - place.cta_first) * (kKeep * kKeep);
  }
  // Copies them from `from` to `to`, which point `lead` values before the first. Out of the tile
  // one piece after the other; into it with all loads of a thread in flight together.
  template <int kThreads, bool kIntoTile>
  __device__ TUCKFOLD_INLINE void copy(const Coef* from, Coef* to) const {
    constexpr int kPieces = (kThreads * kKeep * kKeep + kEach - 1) / kEach + 1;
    constexpr int kTurns = (kPieces + kThreads - 1) / kThreads;
    const int thread = static_cast<int>(threadIdx.x);
    const auto begin = [&](int turn) { return (turn * kThreads + thread) * kEach; };
    const auto whole = [&](int i) { return i >= lead && i + kEach <= lead + total; };
    if constexpr (kIntoTile) {
      uint4 pieces[kTurns];
#pragma unroll
      for (int turn = 0; turn < kTurns; ++turn) {
        const int i = begin(turn);
        if (whole(i)) pieces[turn] = *reinterpret_cast<const uint4*>(from + i);
      }
#pragma unroll
      for (int turn = 0; turn < kTurns; ++turn) {
        const int i = begin(turn);
        if (whole(i)) *reinterpret_cast<uint4*>(to + i) = pieces[turn];
      }
    } else {
#pragma unroll 4
      for (int i = thread * kEach; i < lead + total; i += kThreads * kEach) {
        if (whole(i)) *reinterpret_cast<uint4*>(to + i) = *reinterpret_cast<const uint4*>(from + i);
      }
    }
    // The two ends.
    const int last = (lead + total) / kEach * kEach;
    if (thread < kEach && thread >= lead && thread < lead + total && !whole(0)) {
      to[thread] = from[thread];
    }
    if (thread < kEach && last > 0 && last + thread < lead + total) {
      to[last + thread] = from[last + thread];
    }
  }
};

// The place of a square's first value.
template <int kKeep>
__device__ TUCKFOLD_INLINE std::int64_t square_at(const StoredCoefs& s, std::uint32_t block_cols,
                                                  std::int64_t block) {
  const std::uint32_t block_row = static_cast<std::uint32_t>(block) / block_cols;
  const std::uint32_t col = static_cast<std::uint32_t>(block) - block_row * block_cols;
  return block_row * kKeep * s.row_values + col * kKeep;
}

// Calls visit(place in the tile, place in memory) for the warp's squares so that neighbouring lanes
// have neighbouring values. Where blocks are missing the last value is visited again: a branch
// would keep loads from being in flight together.
template <int kKeep, class Visit>
__device__ TUCKFOLD_INLINE void for_each_in_rows(const StoredCoefs& s, const WarpPlace& at,
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
__global__ void __launch_bounds__(kPackThreads, pack_blocks_per_sm(kKeep))
    pack_whole(const __grid_constant__ cuda::WholeBlocks in,
               const __grid_constant__ StoredCoefs out, const __grid_constant__ Deal deal) {
  __shared__ Tile<Coef, kKeep, kPackThreads> tile;
  const WarpPlace at(in.count, deal.each);
  cuda::wait_for_previous_kernel();
  float x[64], coefs[kKeep * kKeep];
  cuda::load_warp_blocks<T>(in, at.first, x);
  forward_block_8(kKeep, x, 8, coefs);
  cuda::allow_next_kernel();

  Coef* to = static_cast<Coef*>(out.data);
  Coef* mine = tile.of_warp(at.warp);
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
    copy_by_warp<kValues>(mine, to + at.first * kValues, at.valid, at.lane);
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
  } else if (deal.whole_block_rows) {
    const BlockRows<Coef, kKeep> block_rows(at, in.block_cols);
    if (at.exists()) {
      Coef* square = tile.values + block_rows.lead + block_rows.at;
#pragma unroll
      for (int i = 0; i < kKeep * kKeep; ++i)
        square[i / kKeep * block_rows.row + i % kKeep] = stored(i);
    }
    __syncthreads();
    to += at.cta_first * (kKeep * kKeep) - block_rows.lead;
    block_rows.template copy<kPackThreads, false>(tile.values, to);
  } else {
    if (at.valid == 0) return;
#pragma unroll
    for (int i = 0; i < kKeep * kKeep; ++i) {
      mine[i / kKeep * cuda::kWarp * kKeep + at.lane * kKeep + i % kKeep] = stored(i);
    }
    __syncwarp();
    for_each_in_rows<kKeep>(out, at, square_at<kKeep>(out, in.block_cols, at.block),
                            [&](int i, std::int64_t place) { to[place] = mine[i]; });
  }
}

template <class T, class Coef, int kKeep, Order kOrder>
__global__ void __launch_bounds__(kUnpackThreads)
    unpack_whole(const __grid_constant__ cuda::WholeBlocks out,
                 const __grid_constant__ StoredCoefs in, const __grid_constant__ Deal deal) {
  __shared__ Tile<Coef, kKeep, kUnpackThreads> tile;
  const WarpPlace at(out.count, deal.each);
  cuda::wait_for_previous_kernel();
  float x[64], coefs[kKeep * kKeep];
  const Coef* from = static_cast<const Coef*>(in.data);
  Coef* mine = tile.of_warp(at.warp);
  if constexpr (kOrder == Order::Planes) {
    const auto take = [&](int i, int number) {
      coefs[i] = cuda::as_float(from[number * in.blocks + at.block]);
    };
#pragma unroll
    for (int i = 0; i < kKeep * kKeep; ++i) coefs[i] = 0.0f;
    in.triangle ? for_each_value<kKeep, true>(take) : for_each_value<kKeep, false>(take);
  } else if constexpr (kOrder == Order::Triangles) {
    constexpr int kValues = kKeep * (kKeep + 1) / 2;
    copy_by_warp<kValues>(from + at.first * kValues, mine, at.valid, at.lane);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kKeep * kKeep; ++i) coefs[i] = 0.0f;
    for_each_value<kKeep, true>(
        [&](int i, int number) { coefs[i] = cuda::as_float(mine[at.lane * kValues + number]); });
  } else if constexpr (kLoadsRow<Coef, kKeep>) {
    from += square_at<kKeep>(in, out.block_cols, at.block);
#pragma unroll
    for (int u = 0; u < kKeep; ++u) {
      const auto row = *reinterpret_cast<const Row<Coef, kKeep>*>(from + u * in.row_values);
#pragma unroll
      for (int v = 0; v < kKeep; ++v) coefs[u * kKeep + v] = cuda::as_float(row.values[v]);
    }
  } else if (deal.whole_block_rows) {
    const BlockRows<Coef, kKeep> block_rows(at, out.block_cols);
    from += at.cta_first * (kKeep * kKeep) - block_rows.lead;
    block_rows.template copy<kUnpackThreads, true>(from, tile.values);
    __syncthreads();
    const Coef* square = tile.values + block_rows.lead + (at.exists() ? block_rows.at : 0);
#pragma unroll
    for (int i = 0; i < kKeep * kKeep; ++i) {
      coefs[i] = cuda::as_float(square[i / kKeep * block_rows.row + i % kKeep]);
    }
  } else {
    if (at.valid == 0) return;
    for_each_in_rows<kKeep>(in, at, square_at<kKeep>(in, out.block_cols, at.block),
                            [&](int i, std::int64_t place) { mine[i] = from[place]; });
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kKeep * kKeep; ++i) {
      coefs[i] =
          cuda::as_float(mine[i / kKeep * cuda::kWarp * kKeep + at.lane * kKeep + i % kKeep]);
    }
  }
  cuda::allow_next_kernel();
  inverse_unsettled_8(kKeep, coefs, x, 8);
  if constexpr (sizeof(T) == 4) settle_nans(8, 8, x, 8);
  cuda::WholeBlocks mine_alone = out;
  mine_alone.count = at.cta_end;
  cuda::store_warp_blocks<T>(mine_alone, at.first, x);
}

}  // namespace tuckfold::dct_chop
