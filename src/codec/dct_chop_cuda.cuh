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

// How blocks are dealt out: as many to every team of threads, one a thread. Where those are whole
// strips their squares lie in one piece, which the team copies 16 bytes at a time.
struct Deal {
  int each;
  bool whole_strips;
  unsigned early;  // CTAs that come before their turn, and ask for their blocks meanwhile

  static Deal of(std::uint32_t block_cols, int team, unsigned early) {
    const int cols = static_cast<int>(block_cols), each = cols > team ? 0 : team / cols * cols;
    const int enough = team * 3 / 4;  // threads with a block; fewer take too long
    return each < enough ? Deal{team, false, early} : Deal{each, true, early};
  }
};

enum class Order { Rows, Triangles, Planes };

inline constexpr int kPackThreads = 128, kUnpackThreads = 64;
// Warps pack without waiting for each other; unpacking reads less at a time, and larger pieces pay.
inline constexpr int kPackTeam = cuda::kWarp, kUnpackTeam = kUnpackThreads;
// Unpack writes more than it reads, and memory likes few writers at a time: where there is little
// to compute, room that nobody uses keeps the number of blocks on a multiprocessor down. What is
// done in a few tens of microseconds rather fills the device fast.
inline std::size_t unpack_ballast(const cuda::WholeBlocks& blocks, std::size_t element_bytes,
                                  bool staged, int keep) {
  constexpr std::size_t kLongBytes = 128 << 20;
  if (static_cast<std::size_t>(blocks.count) * 64 * element_bytes < kLongBytes) return 0;
  if (element_bytes == 2) return keep <= 2 ? 33000 : keep <= 5 ? 24000 : 12000;
  if (keep <= 2) return 49000;
  if (keep <= 4 || !staged) return 33000;
  return keep <= 5 ? 18000 : keep <= 7 ? 12000 : 0;
}

// A team's coefficients in shared memory, with room for what makes 16-byte pieces of memory such of
// the tile.
template <class Coef, int kKeep, int kTeam>
struct Tile {
  alignas(16) Coef values[kTeam * kKeep * kKeep + 16 / sizeof(Coef)];
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

// Copies a piece of memory, `total` values from value `begin` on, to or from a tile, 16 bytes a
// thread and turn; the tile has begin % kEach values in front, as the piece of memory has. kValues:
// where every thread has a block. Where there are registers for them a thread's parts are in flight
// together.
template <int kThreads, int kValues, bool kIntoTile, class Coef>
__device__ TUCKFOLD_INLINE void copy_piece(Coef* memory, Coef* tile, std::int64_t begin, int total,
                                           int thread) {
  constexpr int kEach = 16 / sizeof(Coef);
  const int lead = static_cast<int>(begin % kEach), end = lead + total;
  Coef* from = kIntoTile ? memory + (begin - lead) : tile;
  Coef* to = kIntoTile ? tile : memory + (begin - lead);
  const auto part = [](Coef* at) -> uint4& { return *reinterpret_cast<uint4*>(at); };
  const auto in_flight = [&]<int kTurns>(auto&& has) {
    uint4 parts[kTurns];
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      const int i = (turn * kThreads + thread) * kEach;
      if (has(i)) parts[turn] = part(from + i);
    }
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      const int i = (turn * kThreads + thread) * kEach;
      if (has(i)) part(to + i) = parts[turn];
    }
  };
  constexpr int kTurns = (kValues / kEach + kThreads - 1) / kThreads;
  if constexpr (kTurns <= 9) {
    if (lead == 0 && total == kValues) {
      in_flight.template operator()<kTurns>([](int i) { return i < kValues; });
      return;
    }
  }
  const auto whole = [&](int i) { return i >= lead && i + kEach <= end; };
  if constexpr (kIntoTile) {
    in_flight.template operator()<(kValues / kEach + kThreads) / kThreads>(whole);
  } else {
#pragma unroll 4
    for (int i = thread * kEach; i < end; i += kThreads * kEach) {
      if (whole(i)) part(to + i) = part(from + i);
    }
  }
  // The two ends.
  const int last = end / kEach * kEach;
  if (thread < kEach && thread >= lead && thread < end && !whole(0)) to[thread] = from[thread];
  if (thread < kEach && last > 0 && last + thread < end) to[last + thread] = from[last + thread];
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

// What a thread needs to know of its team's blocks, and of its warp's.
template <int kTeam>
struct Place {
  int thread, lane;                // in the team, in the warp
  int warp;                        // in the team
  std::int64_t first;              // the team's first block
  int team_valid, valid;           // blocks of the team, and of the warp, that exist
  std::int64_t warp_first, block;  // the warp's first block, and the thread's, at most the last

  __device__ Place(std::int64_t blocks, int each)
      : thread(static_cast<int>(threadIdx.x) % kTeam),
        lane(thread % cuda::kWarp),
        warp(thread / cuda::kWarp) {
    const auto number = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / kTeam;
    first = number * each;
    const std::int64_t left = blocks - first;
    team_valid = left <= 0 ? 0 : left < each ? static_cast<int>(left) : each;
    const int left_of_warp = team_valid - warp * cuda::kWarp;
    valid = left_of_warp < 0 ? 0 : left_of_warp < cuda::kWarp ? left_of_warp : cuda::kWarp;
    warp_first = first + warp * cuda::kWarp;
    block = lane < valid ? warp_first + lane : first + team_valid - 1;
  }
  __device__ bool exists() const { return lane < valid; }
  __device__ std::int64_t end() const { return first + team_valid; }
  __device__ static void sync() {
    if constexpr (kTeam == cuda::kWarp) {
      __syncwarp();
    } else {
      __syncthreads();
    }
  }
};

// Where a thread's square lies in its team's piece of whole strips.
template <int kKeep>
struct SquareInStrips {
  int row, at;  // distance of its rows, and its first value

  __device__ SquareInStrips(std::int64_t block_in_team, std::uint32_t block_cols) {
    const auto local = static_cast<std::uint32_t>(block_in_team);
    const std::uint32_t strip = local / block_cols, col = local - strip * block_cols;
    row = static_cast<int>(block_cols) * kKeep;
    at = static_cast<int>(strip) * row * kKeep + static_cast<int>(col) * kKeep;
  }
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
template <int kKeep, class Visit>
__device__ TUCKFOLD_INLINE void for_each_in_rows(const Stored& s, int valid, int lane,
                                                 std::int64_t square, Visit&& visit) {
  const int last = valid * kKeep - 1;
#pragma unroll
  for (int turn = 0; turn < kKeep; ++turn) {
    const int own = turn * cuda::kWarp + lane, i = own < last ? own : last;
    const std::int64_t from = __shfl_sync(cuda::kAllLanes, square, i / kKeep) + i % kKeep;
#pragma unroll
    for (int u = 0; u < kKeep; ++u) visit(u * cuda::kWarp * kKeep + i, from + u * s.row_values);
  }
}

template <class T, class Coef, int kKeep>
__global__ void __launch_bounds__(kPackThreads)
    pack_whole(const __grid_constant__ cuda::WholeBlocks in, const __grid_constant__ Stored out,
               const __grid_constant__ Deal deal) {
  __shared__ Tile<Coef, kKeep, kPackTeam> tiles[kPackThreads / kPackTeam];
  const Place<kPackTeam> at(in.count, deal.each);
  if (blockIdx.x < deal.early && at.exists()) {
    const T* from = static_cast<const T*>(in.data) + in.first(at.block);
#pragma unroll
    for (int r = 0; r < 8; ++r) cuda::prefetch(from + r * in.cols);
  }
  cuda::await_turn();
  if (at.valid == 0) return;
  float x[64], coefs[kKeep * kKeep];
  cuda::load_warp_blocks<T>(in.up_to(at.end()), at.warp_first, x);
  cuda::give_turn();
  forward_block_8(kKeep, x, 8, coefs);

  constexpr int kEach = 16 / sizeof(Coef);
  Coef* to = static_cast<Coef*>(out.data);
  Coef* mine = tiles[threadIdx.x / kPackTeam].values;
  const auto stored = [&](int i) { return cuda::from_float<Coef>(coefs[i]); };
  if (out.planes) {
    if (!at.exists()) return;
    const auto put = [&](int i, int number) { to[number * out.blocks + at.block] = stored(i); };
    out.triangle ? for_each_value<kKeep, true>(put) : for_each_value<kKeep, false>(put);
  } else if (out.triangle) {
    constexpr int kValues = kKeep * (kKeep + 1) / 2;
    const std::int64_t begin = at.first * kValues;
    if (at.exists()) {
      Coef* own = mine + begin % kEach + at.thread * kValues;
      for_each_value<kKeep, true>([&](int i, int number) { own[number] = stored(i); });
    }
    at.sync();
    copy_piece<kPackTeam, kPackTeam * kValues, false>(to, mine, begin, at.team_valid * kValues,
                                                      at.thread);
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
  } else if (deal.whole_strips) {
    constexpr int kValues = kKeep * kKeep;
    const std::int64_t begin = at.first * kValues;
    if (at.exists()) {
      const SquareInStrips<kKeep> square(at.thread, in.block_cols);
      Coef* own = mine + begin % kEach + square.at;
#pragma unroll
      for (int i = 0; i < kValues; ++i) own[i / kKeep * square.row + i % kKeep] = stored(i);
    }
    at.sync();
    copy_piece<kPackTeam, kPackTeam * kValues, false>(to, mine, begin, at.team_valid * kValues,
                                                      at.thread);
  } else {
#pragma unroll
    for (int i = 0; i < kKeep * kKeep; ++i) {
      mine[i / kKeep * cuda::kWarp * kKeep + at.lane * kKeep + i % kKeep] = stored(i);
    }
    __syncwarp();
    for_each_in_rows<kKeep>(out, at.valid, at.lane, square_at<kKeep>(out, in.block_cols, at.block),
                            [&](int i, std::int64_t place) { to[place] = mine[i]; });
  }
}

template <class T, class Coef, int kKeep, Order kOrder>
__global__ void __launch_bounds__(kUnpackThreads)
    unpack_whole(const __grid_constant__ cuda::WholeBlocks out, const __grid_constant__ Stored in,
                 const __grid_constant__ Deal deal) {
  __shared__ Tile<Coef, kKeep, kUnpackTeam> tile;
  static_assert(kUnpackTeam == kUnpackThreads);
  const Place<kUnpackTeam> at(out.count, deal.each);
  cuda::await_turn();
  float x[64], coefs[kKeep * kKeep];
  constexpr int kEach = 16 / sizeof(Coef);
  Coef* from = static_cast<Coef*>(in.data);
  Coef* of_warp = tile.of_warp(at.warp);
  if constexpr (kOrder == Order::Planes) {
    const auto take = [&](int i, int number) {
      coefs[i] = cuda::as_float(from[number * in.blocks + at.block]);
    };
#pragma unroll
    for (int i = 0; i < kKeep * kKeep; ++i) coefs[i] = 0.0f;
    in.triangle ? for_each_value<kKeep, true>(take) : for_each_value<kKeep, false>(take);
  } else if constexpr (kOrder == Order::Triangles) {
    constexpr int kValues = kKeep * (kKeep + 1) / 2;
    copy_piece<cuda::kWarp, cuda::kWarp * kValues, true>(from, of_warp, at.warp_first * kValues,
                                                         at.valid * kValues, at.lane);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kKeep * kKeep; ++i) coefs[i] = 0.0f;
    for_each_value<kKeep, true>(
        [&](int i, int number) { coefs[i] = cuda::as_float(of_warp[at.lane * kValues + number]); });
  } else if constexpr (kLoadsRow<Coef, kKeep>) {
    from += square_at<kKeep>(in, out.block_cols, at.block);
#pragma unroll
    for (int u = 0; u < kKeep; ++u) {
      const auto row = *reinterpret_cast<const Row<Coef, kKeep>*>(from + u * in.row_values);
#pragma unroll
      for (int v = 0; v < kKeep; ++v) coefs[u * kKeep + v] = cuda::as_float(row.values[v]);
    }
  } else if (deal.whole_strips) {
    constexpr int kValues = kKeep * kKeep;
    const std::int64_t begin = at.first * kValues;
    copy_piece<kUnpackTeam, kUnpackTeam * kValues, true>(from, tile.values, begin,
                                                         at.team_valid * kValues, at.thread);
    at.sync();
    const SquareInStrips<kKeep> square(at.block - at.first, out.block_cols);
    const Coef* own = tile.values + begin % kEach + square.at;
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      coefs[i] = cuda::as_float(own[i / kKeep * square.row + i % kKeep]);
    }
  } else {
    if (at.valid == 0) return;
    for_each_in_rows<kKeep>(in, at.valid, at.lane, square_at<kKeep>(in, out.block_cols, at.block),
                            [&](int i, std::int64_t place) { of_warp[i] = from[place]; });
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kKeep * kKeep; ++i) {
      coefs[i] =
          cuda::as_float(of_warp[i / kKeep * cuda::kWarp * kKeep + at.lane * kKeep + i % kKeep]);
    }
  }
  cuda::give_turn();
  inverse_block_8(kKeep, coefs, x, 8);
  cuda::store_warp_blocks<T>(out.up_to(at.end()), at.warp_first, x);
}

}  // namespace tuckfold::dct_chop
