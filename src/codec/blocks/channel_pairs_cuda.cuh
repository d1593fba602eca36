// Channels last, two neighbouring channels a thread: both values of a place are one access, and a warp
// moves whole lines. The lanes of a warp have one place of 64 channels.
//
//   if (const auto deal = channel_deal(blocks, most_blocks, most_run)) { … }
//
//   for (ChannelWalk at(deal, share, kWarps); at.more(); at.next(kWarps)) { … at.place … }
#pragma once

#include <optional>

#include "codec/blocks/planes_move_cuda.cuh"

namespace tuckfold::cuda {

// Whether neighbouring channels, the lanes, are neighbours in memory, every other one at a
// multiple of two values.
inline bool has_channel_pairs(const PlaneBlocks& b, const BlockOrder& order) {
  if (b.walk != Walk::Apart) return false;
  const std::uintptr_t pair = 2 * size_bytes(b.dtype);
  bool even = reinterpret_cast<std::uintptr_t>(b.data) % pair == 0 && b.row_step % 2 == 0 &&
              b.col_step % 2 == 0;
  bool channels = false;  // a step of 1
  for (int i = 0; i < 3; ++i) {
    if (b.lengths[i] == 1) continue;
    const bool one = b.steps[i] == 1 && b.lengths[i] == order.lane_length;
    channels = channels || one;
    even = even && (one || b.steps[i] % 2 == 0);
  }
  return channels && even && order.lane_length % 2 == 0;
}

// Blocks of a CTA: `lanes` channels, a multiple of 2, of `run` places each; see BlockDeal.
inline std::optional<BlockDeal> channel_deal(const PlaneBlocks& b, std::uint32_t most_blocks,
                                             std::uint32_t most_run) {
  const BlockOrder order = BlockOrder::of(b);
  if (!has_channel_pairs(b, order)) return std::nullopt;
  BlockDeal d{order};
  d.run = std::min(d.run_length, most_run);
  constexpr std::uint32_t kLanes = 2 * kWarp;
  d.lanes = std::max(most_blocks / d.run / kLanes, 1u) * kLanes;
  d.lanes = std::min(d.lanes, d.lane_length);  // no power of 2, so lane_shift has no use
  d.divide();
  return d;
}

// The places and pairs of channels of a CTA, one place and 32 pairs a warp at a time. All lanes of a
// warp have the same place.
struct ChannelWalk {
  std::uint32_t pairs, run;
  std::uint32_t first_pair, place;  // of the warp

  __device__ explicit ChannelWalk(const BlockDeal::Share& share)
      : pairs(share.lanes / 2), run(share.run), first_pair(0), place(threadIdx.x / kWarp) {
    settle();
  }
  __device__ bool more() const { return first_pair < pairs; }
  __device__ void next() {
    place += blockDim.x / kWarp;
    settle();
  }
  __device__ std::uint32_t pair() const { return first_pair + threadIdx.x % kWarp; }

 private:
  __device__ void settle() {
    while (place >= run && first_pair < pairs) {
      place -= run;
      first_pair += kWarp;
    }
  }
};

namespace detail {

template <class T>
__device__ TUCKFOLD_INLINE std::uint32_t load_word(const T* from) {
#ifdef __CUDA_ARCH__
  std::uint32_t word;
  asm volatile("ld.global.u32 %0, [%1];" : "=r"(word) : "l"(from));
  return word;
#else
  std::uint32_t word;
  std::memcpy(&word, from, sizeof word);
  return word;
#endif
}

}  // namespace detail

// The values of two channels at one place.
__device__ TUCKFOLD_INLINE void store_two(float* to, float first, float second) {
#ifdef __CUDA_ARCH__
  asm volatile("st.global.v2.f32 [%0], {%1, %2};" ::"l"(to), "f"(first), "f"(second) : "memory");
#else
  to[0] = first, to[1] = second;
#endif
}
__device__ TUCKFOLD_INLINE void store_two(BF16* to, std::uint32_t both) {
#ifdef __CUDA_ARCH__
  asm volatile("st.global.u32 [%0], %1;" ::"l"(to), "r"(both) : "memory");
#else
  to[0] = BF16{static_cast<std::uint16_t>(both)},
  to[1] = BF16{static_cast<std::uint16_t>(both >> 16)};
#endif
}
// tame: whether both are known to be numbers that the type holds.
__device__ TUCKFOLD_INLINE void store_two(BF16* to, float first, float second, bool tame) {
  store_two(to, tame ? floats_to_halves<BF16>(first, second)
                     : detail::half_bits(DType::BF16, first) |
                           detail::half_bits(DType::BF16, second) << 16);
}
__device__ TUCKFOLD_INLINE void store_two(float* to, float first, float second, bool tame) {
  store_two(to, tame ? first : canonical(first), tame ? second : canonical(second));
}

// Channels whose values of a place a thread loads at once: four bytes.
template <class T>
inline constexpr std::uint32_t kChannelsAtOnce = 4 / static_cast<std::uint32_t>(sizeof(T));

// A block of each of these channels, by columns: calls visit(column, its eight values of each). Rows
// and columns past the edge repeat the last ones.
template <class T, class Column>
__device__ TUCKFOLD_INLINE void load_columns(const PlaneBlocks& b, const BlockSpot& spot,
                                             Column&& visit) {
  constexpr int kCount = static_cast<int>(kChannelsAtOnce<T>);
  const auto* data = static_cast<const T*>(b.data) + spot.offset;
  std::uint32_t words[64];
  int rows[8];
#pragma unroll
  for (int r = 0; r < 8; ++r) rows[r] = detail::at_most(r, spot.rows - 1) * b.row_step;
#pragma unroll
  for (int c = 0; c < 8; ++c) {
    const T* column = detail::settled(
        data + static_cast<std::int64_t>(detail::at_most(c, spot.cols - 1)) * b.col_step);
#pragma unroll
    for (int r = 0; r < 8; ++r) words[8 * c + r] = detail::load_word(column + rows[r]);
  }
#pragma unroll
  for (int c = 0; c < 8; ++c) {
    float values[kCount][8];
#pragma unroll
    for (int r = 0; r < 8; ++r) {
      const std::uint32_t word = words[8 * c + r];
      if constexpr (kCount == 1) {
        values[0][r] = float_of(word);
      } else {
        values[0][r] = float_of(word << 16);
        values[1][r] = float_of(word & 0xffff0000u);
      }
    }
    visit(c, values);
  }
}

// Calls store(column, column pointer, step of rows, rows) for columns of a block that exist. The block
// of the second channel is one element further.
template <class T, class Column>
__device__ TUCKFOLD_INLINE void for_each_column(const PlaneBlocks& b, const BlockSpot& spot,
                                                Column&& visit) {
  T* data = static_cast<T*>(b.data) + spot.offset;
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    if (j < spot.cols) visit(j, detail::settled(data + static_cast<std::int64_t>(j) * b.col_step));
  }
}

}  // namespace tuckfold::cuda
