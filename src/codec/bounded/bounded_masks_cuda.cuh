// Halves of rows with masks, for bounded's kernels: planes of narrow numbers without those that are
// 0. A lane has two rows, which are the four halves of a group.
#pragma once

#include "codec/bounded/bounded_cuda.cuh"
#include "codec/bounded/bounded_rows.h"

namespace tuckfold::bounded {

// The masks of a lane's rows; of each, its first half's in the low 16 bits and its second's above.
struct RowMasks {
  std::uint32_t rows[2];

  __device__ std::uint32_t half(int i) const { return rows[i / 2] >> (i % 2 * 16) & 0xffffu; }
  __device__ int planes() const { return __popc(rows[0]) + __popc(rows[1]); }
};

// ---- masks of half rows, 4, 8, 16 or 32 bits for each lane, one after the other -----------------

__device__ TUCKFOLD_INLINE void store_lane_masks(const RowMasks& masks, int bits,
                                                 unsigned char* to) {
  const int lane = lane_of();
  std::uint32_t joined = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) joined |= masks.half(i) << (bits * i);
  if (bits == 1) {  // of two lanes in a byte
    const std::uint32_t two = joined | __shfl_down_sync(kAllLanes, joined, 1) << 4;
    if (lane % 2 == 0) to[lane / 2] = static_cast<unsigned char>(two);
  } else if (bits == 2) {
    to[lane] = static_cast<unsigned char>(joined);
  } else {
    auto* words = reinterpret_cast<std::uint16_t*>(to) + (bits == 4 ? lane : 2 * lane);
    words[0] = static_cast<std::uint16_t>(joined);
    if (bits == 8) words[1] = static_cast<std::uint16_t>(joined >> 16);
  }
}
__device__ TUCKFOLD_INLINE RowMasks load_lane_masks(const unsigned char* from, int bits) {
  const int lane = lane_of();
  const auto* words = reinterpret_cast<const std::uint16_t*>(from);
  const std::uint32_t joined =
      bits == 1   ? from[lane / 2] >> (lane % 2 * 4) & 15u
      : bits == 2 ? from[lane]
      : bits == 4 ? words[lane]
                  : words[2 * lane] | static_cast<std::uint32_t>(words[2 * lane + 1]) << 16;
  const std::uint32_t all = (1u << bits) - 1;
  const auto half = [&](int i) { return joined >> (bits * i) & all; };
  return {half(0) | half(1) << 16, half(2) | half(3) << 16};
}

// ---- masks of groups ----------------------------------------------------------------------------

// Which bits the masks of a lane have.
struct Group {
  int width, full;

  __device__ static Group of(const RowMasks& masks) {
    const std::uint32_t any = masks.rows[0] | masks.rows[1], all = masks.rows[0] & masks.rows[1];
    return {width_of((any | any >> 16) & 0xffffu), __ffs(static_cast<int>(~(all & all >> 16))) - 1};
  }
  __device__ int bits() const { return width - full; }
  __device__ int mask_bytes() const { return group_mask_bytes(width, full); }
};

__device__ TUCKFOLD_INLINE void store_group_masks(const RowMasks& masks, unsigned char* to) {
  const Group group = Group::of(masks);
  std::uint64_t joined = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    joined |= static_cast<std::uint64_t>(masks.half(i) >> group.full) << (group.bits() * i);
  }
  const int bytes = group.mask_bytes();
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (i < bytes) to[i] = static_cast<unsigned char>(joined >> (8 * i));
  }
}
__device__ TUCKFOLD_INLINE RowMasks load_group_masks(const Group& group,
                                                     const unsigned char* from) {
  std::uint64_t joined = 0;
  const int bytes = group.mask_bytes();
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (i < bytes) joined |= static_cast<std::uint64_t>(from[i]) << (8 * i);
  }
  const std::uint32_t there = (1u << group.bits()) - 1, below = (1u << group.full) - 1;
  const auto half = [&](int i) {
    return (static_cast<std::uint32_t>(joined >> (group.bits() * i)) & there) << group.full | below;
  };
  return {half(0) | half(1) << 16, half(2) | half(3) << 16};
}

// ---- the planes of a row ------------------------------------------------------------------------

// Calls visit(j) for planes 0 … 3, and for 4 … 7 if numbers are wider than four bits.
template <class Visit>
__device__ TUCKFOLD_INLINE void for_each_plane(bool wide, Visit&& visit) {
#pragma unroll
  for (int j = 0; j < 4; ++j) visit(j);
  if (!wide) return;
#pragma unroll
  for (int j = 4; j < 8; ++j) visit(j);
}

// Planes of 16 bits, those of the mask; returns the end.
__device__ TUCKFOLD_INLINE std::uint16_t* store_by_row(const std::uint32_t* numbers,
                                                       std::uint32_t mask, bool wide,
                                                       std::uint16_t* to) {
  std::uint32_t words[4];
  narrow_planes_of(numbers, words);
  for_each_plane(wide, [&](int j) {
    if ((mask >> j & 1u) == 0) return;
    *to++ = static_cast<std::uint16_t>(j < 4 ? words[j] : words[j - 4] >> 16);
  });
  return to;
}

// Planes of 8 bits by the masks of a row's halves; returns the end. `widest` is the chunk's.
__device__ TUCKFOLD_INLINE unsigned char* store_by_half(const std::uint32_t* numbers,
                                                        std::uint32_t masks, int widest,
                                                        unsigned char* to) {
  unsigned char* second = to + __popc(masks & 0xffffu);
  const auto store = [&](int j, std::uint32_t plane) {
    if ((masks >> j & 1u) != 0) *to++ = static_cast<unsigned char>(plane);
    if ((masks >> (16 + j) & 1u) != 0) *second++ = static_cast<unsigned char>(plane >> 8);
  };
  std::uint32_t words[8];
  if (widest <= kMaskedBits) {
    narrow_planes_of(numbers, words);
    for_each_plane(widest > 4, [&](int j) { store(j, j < 4 ? words[j] : words[j - 4] >> 16); });
  } else {
    planes_of<0>(numbers, words);
#pragma unroll
    for (int j = 0; j < kGroupedBits; ++j) store(j, j < 8 ? words[j] : words[j - 8] >> 16);
  }
  return second;
}
__device__ TUCKFOLD_INLINE const unsigned char* load_by_half(const unsigned char* from,
                                                             std::uint32_t masks, int widest,
                                                             std::uint32_t* numbers) {
  std::uint32_t words[8] = {};
  const unsigned char* second = from + __popc(masks & 0xffffu);
  const auto load = [&](int j, std::uint32_t& word, int shift) {
    if ((masks >> j & 1u) != 0) word |= static_cast<std::uint32_t>(*from++) << shift;
    if ((masks >> (16 + j) & 1u) != 0) word |= static_cast<std::uint32_t>(*second++) << (shift + 8);
  };
  if (widest <= kMaskedBits) {
    for_each_plane(widest > 4, [&](int j) { load(j, words[j % 4], j < 4 ? 0 : 16); });
    narrow_numbers_of(words, 0xffu, numbers);
  } else {
#pragma unroll
    for (int j = 0; j < kGroupedBits; ++j) load(j, words[j % 8], j < 8 ? 0 : 16);
    numbers_of<0>(words, numbers);
  }
  return second;
}

// A lane's numbers from a payload with masks; false if it contradicts itself.
__device__ TUCKFOLD_INLINE bool load_masked_rows(const unsigned char* payload, int words,
                                                 std::uint32_t* numbers) {
  const Form form = form_in(payload[1]);
  int widest = payload[0], front = front_words(form, widest);
  if ((form == kHalfMasks && !is_mask_bits(widest)) || words < front) return false;
  front *= 2;
  RowMasks masks;
  if (form == kHalfMasks) {
    masks = load_lane_masks(payload + 2, widest);
  } else {
    const int head = payload[2 + lane_of()];
    const Group group{head & 15, head >> 4};
    if (__any_sync(kAllLanes, group.full > group.width)) return false;
    const int own = group.mask_bytes(), sum = sum_of_lanes(own);
    const unsigned char* from = payload + front + sum - own;
    front += __shfl_sync(kAllLanes, sum, kWarp - 1);
    if (front > 2 * words) return false;
    masks = load_group_masks(group, from);
    widest = __reduce_max_sync(kAllLanes, group.width);
  }
  const int own = masks.planes(), sum = sum_of_lanes(own);
  const int all = __shfl_sync(kAllLanes, sum, kWarp - 1);
  if (words != (front + all + 1) / 2) return false;
  const unsigned char* from = payload + front + sum - own;
  from = load_by_half(from, masks.rows[0], widest, numbers);
  load_by_half(from, masks.rows[1], widest, numbers + kRowValues);
  return true;
}

}  // namespace tuckfold::bounded
