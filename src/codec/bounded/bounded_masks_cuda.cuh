// Rows with masks, for bounded's kernels: planes of narrow numbers without those that are 0. A lane
// has two rows, or four halves of rows.
#pragma once

#include "codec/bounded/bounded_cuda.cuh"
#include "codec/bounded/bounded_rows.h"

namespace tuckfold::bounded {

// ---- the lanes' masks, 2, 4, 8, 16 or 32 bits for each lane, one after the other ----------------

__device__ TUCKFOLD_INLINE int lane_mask_bits(Form form, int bits) {
  return form == kRowMasks ? 2 * bits : 4 * bits;
}

// Without loops, since registers are scarce where this is used.
__device__ TUCKFOLD_INLINE void store_lane_masks(std::uint32_t masks, int bits, unsigned char* to) {
  const int lane = lane_of();
  if (bits < 8) {  // of four lanes, or of two, in a byte
    const std::uint32_t two = masks | __shfl_down_sync(kAllLanes, masks, 1) << bits;
    const std::uint32_t four = two | __shfl_down_sync(kAllLanes, two, 2) << 2 * bits;
    const int lanes = bits == 2 ? 4 : 2;
    if (lane % lanes == 0) to[lane / lanes] = static_cast<unsigned char>(bits == 2 ? four : two);
  } else if (bits == 8) {
    to[lane] = static_cast<unsigned char>(masks);
  } else {
    auto* halves = reinterpret_cast<std::uint16_t*>(to) + (bits == 16 ? lane : 2 * lane);
    halves[0] = static_cast<std::uint16_t>(masks);
    if (bits == 32) halves[1] = static_cast<std::uint16_t>(masks >> 16);
  }
}
__device__ TUCKFOLD_INLINE std::uint32_t load_lane_masks(const unsigned char* from, int bits) {
  const int lane = lane_of();
  if (bits <= 8) return from[lane * bits / 8] >> (lane * bits % 8) & ((1u << bits) - 1);
  const auto* halves = reinterpret_cast<const std::uint16_t*>(from);
  if (bits == 16) return halves[lane];
  return halves[2 * lane] | static_cast<std::uint32_t>(halves[2 * lane + 1]) << 16;
}

// Between masks of so many bits and masks in bytes.
__device__ TUCKFOLD_INLINE std::uint32_t masks_from_bytes(std::uint32_t bytes, int bits) {
  std::uint32_t masks = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) masks |= (bytes >> (8 * i) & 0xffu) << (bits * i);
  return masks;
}
__device__ TUCKFOLD_INLINE std::uint32_t masks_to_bytes(std::uint32_t masks, int bits) {
  std::uint32_t bytes = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) bytes |= (masks >> (bits * i) & ((1u << bits) - 1)) << (8 * i);
  return bytes;
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

// Planes of 16 bits by one mask; returns the end.
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
__device__ TUCKFOLD_INLINE const std::uint16_t* load_by_row(const std::uint16_t* from,
                                                            std::uint32_t mask, bool wide,
                                                            std::uint32_t* numbers) {
  std::uint32_t words[4] = {};
  for_each_plane(wide, [&](int j) {
    if ((mask >> j & 1u) == 0) return;
    words[j % 4] |= static_cast<std::uint32_t>(*from++) << (j < 4 ? 0 : 16);
  });
  narrow_numbers_of(words, 0xffu, numbers);
  return from;
}

// Planes of 8 bits by a mask for each half; returns the end.
__device__ TUCKFOLD_INLINE unsigned char* store_by_half(const std::uint32_t* numbers,
                                                        std::uint32_t masks, bool wide,
                                                        unsigned char* to) {
  std::uint32_t words[4];
  narrow_planes_of(numbers, words);
  unsigned char* second = to + __popc(masks & 0xffu);
  for_each_plane(wide, [&](int j) {
    const std::uint32_t plane = j < 4 ? words[j] : words[j - 4] >> 16;
    if ((masks >> j & 1u) != 0) *to++ = static_cast<unsigned char>(plane);
    if ((masks >> (8 + j) & 1u) != 0) *second++ = static_cast<unsigned char>(plane >> 8);
  });
  return second;
}
__device__ TUCKFOLD_INLINE const unsigned char* load_by_half(const unsigned char* from,
                                                             std::uint32_t masks, bool wide,
                                                             std::uint32_t* numbers) {
  std::uint32_t words[4] = {};
  const unsigned char* second = from + __popc(masks & 0xffu);
  for_each_plane(wide, [&](int j) {
    const int shift = j < 4 ? 0 : 16;
    if ((masks >> j & 1u) != 0) words[j % 4] |= static_cast<std::uint32_t>(*from++) << shift;
    if ((masks >> (8 + j) & 1u) != 0) {
      words[j % 4] |= static_cast<std::uint32_t>(*second++) << (shift + 8);
    }
  });
  narrow_numbers_of(words, 0xffu, numbers);
  return second;
}

// A lane's numbers from a payload with masks; false if it contradicts itself.
__device__ TUCKFOLD_INLINE bool load_masked_rows(const unsigned char* payload, int words,
                                                 std::uint32_t* numbers) {
  const int bits = payload[0];
  const auto form = static_cast<Form>(payload[1] >> 1);
  if (form > kLastForm || !is_mask_bits(bits) || words < front_words(form, bits)) return false;
  const int front = front_words(form, bits);
  const std::uint32_t masks = load_lane_masks(payload + 2, lane_mask_bits(form, bits));
  const int own = __popc(masks), sum = sum_of_lanes(own);
  const int all = __shfl_sync(kAllLanes, sum, kWarp - 1);
  if (words != front + (form == kRowMasks ? all : (all + 1) / 2)) return false;
  const std::uint32_t bytes = masks_to_bytes(masks, bits);
  const bool wide = bits > 4;
  if (form == kRowMasks) {
    const auto* from = reinterpret_cast<const std::uint16_t*>(payload) + front + sum - own;
    from = load_by_row(from, bytes & 0xffu, wide, numbers);
    load_by_row(from, bytes >> 8, wide, numbers + kRowValues);
  } else {
    const unsigned char* from = payload + 2 * front + sum - own;
    from = load_by_half(from, bytes & 0xffffu, wide, numbers);
    load_by_half(from, bytes >> 16, wide, numbers + kRowValues);
  }
  return true;
}

}  // namespace tuckfold::bounded
