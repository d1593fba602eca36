// Where each block's output begins when only the blocks know how much they write: a running sum
// over blocks, in one kernel (decoupled look-back).
//
//   const std::int64_t tile = take_ticket(tickets);         // by one thread, shared with the block
//   publish_own(states, tile, own);                         // by one thread, as early as can be
//   const std::uint64_t before = look_back(states, tile);   // by one whole warp
//   publish_all(states, tile, before + own);                // by one thread
//
// Tickets and states are 0 when the kernel starts. Tile i's state is one 64-bit word: two bits that
// say what it is, and a sum of less than 2^62. The sum and what it is travel in the same word,
// which is written and read whole (an aligned 64-bit access is never torn), and no other memory is
// handed from block to block. So the order in which words become visible does not matter, and no
// fence is needed: a reader sees nothing, the tile's own sum, or the sum up to and with the tile,
// and each of these is true whenever it is seen.
//
// Waiting ends: tile i waits only for tiles below i, and each of those was given to a block that
// was running then, and stays on its SM until it ends. Consider the lowest tile that has not
// published its own sum. Its block waits only for its own threads, or, if it took the ticket early,
// in look_back for a lower tile; all lower tiles have published their own sums, and look_back needs
// nothing else. So the block continues and publishes. Tile 0 waits for none.
#pragma once

#include <cstdint>

#include "base/cuda/kernel.cuh"

namespace tuckfold::cuda {

// The number of states that a lane reads at once. If a look takes time L and a block finishes every
// T, about L / T tiles before the current one have no total yet: a window larger than that needs
// one look. With few large tiles one state is enough, and faster.
inline constexpr int kManyLooks = 4;

inline constexpr std::uint64_t kOwnSum = std::uint64_t{1} << 62;
inline constexpr std::uint64_t kAllSum = std::uint64_t{2} << 62;
inline constexpr std::uint64_t kSumMask = kOwnSum - 1;

// Tiles are numbered as blocks come to run: hardware starts blocks in the order of their numbers,
// but promises nothing. (Of an atomicAdd the compiler would make a vote, an addition by one lane,
// and a shuffle that waits for it.)
__device__ inline std::int64_t take_ticket(unsigned* tickets) {
  return atomicInc(tickets, ~0u >> 1);
}

// Volatile: each call accesses the memory that blocks share.
__device__ inline void publish_own(std::uint64_t* states, std::int64_t tile, std::uint64_t sum) {
  *const_cast<volatile std::uint64_t*>(states + tile) = kOwnSum | sum;
}
__device__ inline void publish_all(std::uint64_t* states, std::int64_t tile, std::uint64_t sum) {
  *const_cast<volatile std::uint64_t*>(states + tile) = kAllSum | sum;
}

// The state of tile `at`; before the first there is nothing to add.
__device__ inline std::uint64_t state_at(const std::uint64_t* states, std::int64_t at) {
  return at < 0 ? kAllSum : *const_cast<const volatile std::uint64_t*>(states + at);
}

// The sum of all tiles before `tile`, for every lane. Own sums are less than 2^27.
template <int kLooks = kManyLooks>
__device__ inline std::uint64_t look_back(const std::uint64_t* states, std::int64_t tile) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  std::uint64_t sum = 0;
  for (std::int64_t nearest = tile - 1;; nearest -= kLooks * kWarp) {
    std::uint64_t seen[kLooks];
#pragma unroll
    for (int k = 0; k < kLooks; ++k) seen[k] = state_at(states, nearest - k * kWarp - lane);
#pragma unroll
    for (int k = 0; k < kLooks; ++k) {
      // Lanes up to the first that has the sum of all are needed, and must have something.
      unsigned finished, missing, needed;
      for (;;) {
        finished = __ballot_sync(kAllLanes, (seen[k] & kAllSum) != 0);
        missing = __ballot_sync(kAllLanes, seen[k] == 0);
        needed = finished == 0 ? kAllLanes : finished ^ (finished - 1);
        if ((missing & needed) == 0) break;
        seen[k] = state_at(states, nearest - k * kWarp - lane);
      }
      const bool own = (needed >> lane & 1u) != 0 && (seen[k] & kAllSum) == 0;
      sum += __reduce_add_sync(kAllLanes, own ? static_cast<unsigned>(seen[k]) : 0u);
      if (finished != 0) {
        return sum +
               (__shfl_sync(kAllLanes, seen[k], __ffs(static_cast<int>(finished)) - 1) & kSumMask);
      }
    }
  }
}

}  // namespace tuckfold::cuda
