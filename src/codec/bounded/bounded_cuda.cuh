// Shared by bounded's kernels. A warp takes a chunk, and each lane two of its rows. Values pass
// through the warp's buffer in shared memory, so that global memory is accessed in contiguous
// vectors of 16 bytes per lane.
#pragma once

#include <bit>
#include <cstdint>

#include "base/cuda/look_back.cuh"
#include "base/cuda/view.cuh"
#include "codec/bounded/bounded.h"
#include "codec/bounded/bounded_block.h"

namespace tuckfold::bounded {

using cuda::kAllLanes;
using cuda::kWarp;
using cuda::View;

inline constexpr int kEach = static_cast<int>(kChunk) / kWarp;  // values of a lane: two rows
inline constexpr int kRowValues = static_cast<int>(kRow);
static_assert(kEach == 2 * kRowValues);

template <class Element>
using RealOf = std::conditional_t<std::is_same_v<Element, double>, double, float>;

template <class Element>
inline constexpr DType kDTypeOf = std::is_same_v<Element, double>         ? DType::F64
                                  : std::is_same_v<Element, F16>          ? DType::F16
                                  : std::is_same_v<Element, BF16>         ? DType::BF16
                                  : std::is_same_v<Element, std::uint8_t> ? DType::U8
                                                                          : DType::F32;

// The start of the workspace. The state that blocks exchange follows it.
struct Control {
  alignas(16) unsigned char grids[kGrids * sizeof(Grid<double>)];
  unsigned long long lowest, highest;  // the range so far, as keys; 0 before there is any
  std::uint64_t verdict;               // CudaOptions::device_result where the caller has none
  std::uint64_t size;                  // of all packed bytes
  unsigned tickets;
  bool hopeless;  // the stored bound is none
};
static_assert(sizeof(Control) <= kCudaControlBytes);

template <class Real>
__device__ inline Grid<Real> grid_at(const Control* control, int number) {
  if constexpr (std::is_same_v<Real, float>) {  // all of it in one load
    static_assert(sizeof(Grid<float>) == sizeof(uint4));
    const uint4 all = reinterpret_cast<const uint4*>(control->grids)[number];
    return {__uint_as_float(all.x), __uint_as_float(all.y), __uint_as_float(all.z),
            (all.w & 0xffu) != 0};
  } else {
    return reinterpret_cast<const Grid<Real>*>(control->grids)[number];
  }
}

struct PackArgs {
  View in;
  std::int64_t chunks, tiles;
  std::byte* out;
  std::uint64_t out_bytes, front_bytes, bound_bytes;
  Control* control;
  std::uint64_t* states;
  const unsigned char* holding;  // f16, bf16: grids_that_hold of every magnitude
  int warps;                     // of a block that packs, each with a chunk of the tile
  bool vectors;                  // the tensor is dense, from a multiple of 16 bytes on
};

__device__ inline int lane_of() { return static_cast<int>(threadIdx.x) % kWarp; }
__device__ inline int width_of(std::uint32_t bits) { return 32 - __clz(static_cast<int>(bits)); }

// The sum over lanes up to and with this one.
__device__ inline int sum_of_lanes(int value) {
  const int lane = lane_of();
#pragma unroll
  for (int by = 1; by < kWarp; by *= 2) {
    const int other = __shfl_up_sync(kAllLanes, value, static_cast<unsigned>(by));
    if (lane >= by) value += other;
  }
  return value;
}

// ---- a chunk in shared memory -------------------------------------------------------------------

// Each lane's values are contiguous, with 16 bytes between lanes: then there are no bank conflicts,
// neither if each lane reads its own values nor if lanes read contiguous values.
template <class Element>
struct Stage16 {
  static constexpr int kSize = sizeof(Element);
  static constexpr int kLaneBytes = kEach * kSize;
  static constexpr int kStride = kLaneBytes + 16;
  static constexpr int kBytes = kWarp * kStride;
  static constexpr int kVectors = kLaneBytes / 16;    // of a lane, and of a lane's turn
  static constexpr int kTogetherValues = 16 / kSize;  // in one vector

  // The offset of vector `turn` * 32 + lane of the chunk.
  __device__ static int place(int turn) {
    return (turn * (kWarp / kVectors) + lane_of() / kVectors) * kStride + lane_of() % kVectors * 16;
  }
  // The offset of the chunk's value or byte.
  __device__ static int value_place(int value) {
    return value / kEach * kStride + value % kEach * kSize;
  }
  __device__ static int byte_place(int byte) {
    return byte / kLaneBytes * kStride + byte % kLaneBytes;
  }
};

// Sixteen bytes as elements.
template <class Element>
struct alignas(16) Sixteen {
  Element elements[16 / sizeof(Element)];
};

template <class Element>
__device__ TUCKFOLD_INLINE RealOf<Element> real_of(Element value) {
  if constexpr (std::is_same_v<Element, double>) {
    return value;
  } else {
    return cuda::as_float(value);
  }
}
template <class Element>
__device__ TUCKFOLD_INLINE Element element_of(RealOf<Element> value) {
  if constexpr (std::is_same_v<Element, double>) {
    return value;
  } else {
    return cuda::from_float<Element>(value);
  }
}

// ---- 16 numbers and their planes ----------------------------------------------------------------

// The bits of `a` where the mask has them, else those of `b`: one instruction when written so.
__device__ TUCKFOLD_INLINE std::uint32_t chosen(std::uint32_t mask, std::uint32_t a,
                                                std::uint32_t b) {
  return b ^ ((a ^ b) & mask);
}

// Exchanges one bit of a position in a word with the same bit of the word's number.
template <int kBy, int kWords>
__device__ TUCKFOLD_INLINE void exchange(std::uint32_t* words) {
  constexpr std::uint32_t kLow = kBy == 4 ? 0x0f0f0f0fu : kBy == 2 ? 0x33333333u : 0x55555555u;
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    if ((i & kBy) != 0) continue;
    const std::uint32_t a = words[i], b = words[i + kBy];
    words[i] = chosen(kLow, a, b << kBy);
    words[i + kBy] = chosen(kLow, a >> kBy, b);
  }
}
__device__ TUCKFOLD_INLINE void exchange_bits(std::uint32_t* words) {
  exchange<4, 8>(words);
  exchange<2, 8>(words);
  exchange<1, 8>(words);
}

// Planes of numbers below 256: plane j in the low half of word j, plane j + 4 in the high one.
__device__ TUCKFOLD_INLINE void exchange_narrow(std::uint32_t* words) {
  exchange<2, 4>(words);
  exchange<1, 4>(words);
}
__device__ TUCKFOLD_INLINE std::uint32_t swap_in_word(std::uint32_t word) {
  const std::uint32_t t = (word ^ (word >> 12)) & 0xf0f0u;
  return word ^ t ^ (t << 12);
}
__device__ TUCKFOLD_INLINE void narrow_planes_of(const std::uint32_t* numbers,
                                                 std::uint32_t* words) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t low = numbers[i] + 256 * numbers[i + 8];
    const std::uint32_t high = numbers[i + 4] + 256 * numbers[i + 12];
    words[i] = __byte_perm(low, high, 0x5410u);
  }
  exchange_narrow(words);
#pragma unroll
  for (int i = 0; i < 4; ++i) words[i] = swap_in_word(words[i]);
}
// `mask` has the bits for which there are planes; the others of the words are undefined.
__device__ TUCKFOLD_INLINE void narrow_numbers_of(std::uint32_t* words, std::uint32_t mask,
                                                  std::uint32_t* numbers) {
#pragma unroll
  for (int i = 0; i < 4; ++i) words[i] = swap_in_word(words[i]);
  exchange_narrow(words);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    numbers[i] = words[i] & mask;
    numbers[i + 8] = words[i] >> 8 & mask;
    numbers[i + 4] = words[i] >> 16 & mask;
    numbers[i + 12] = words[i] >> 24 & mask;
  }
}

// Planes 16 * kHalf … of numbers: plane j in the low half of word j, plane j + 8 in the high one.
template <int kHalf>
__device__ TUCKFOLD_INLINE void planes_of(const std::uint32_t* numbers, std::uint32_t* words) {
  // Bytes in the order: low of number i, low of i + 8, high of i, high of i + 8.
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    words[i] = __byte_perm(numbers[i], numbers[i + 8], kHalf == 0 ? 0x5140u : 0x7362u);
  }
  exchange_bits(words);
}
template <int kHalf>
__device__ TUCKFOLD_INLINE void numbers_of(std::uint32_t* words, std::uint32_t* numbers) {
  exchange_bits(words);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if constexpr (kHalf == 0) {
      numbers[i] = __byte_perm(words[i], 0, 0x4420u);
      numbers[i + 8] = __byte_perm(words[i], 0, 0x4431u);
    } else {
      numbers[i] = __byte_perm(numbers[i], words[i], 0x6410u);
      numbers[i + 8] = __byte_perm(numbers[i + 8], words[i], 0x7510u);
    }
  }
}

}  // namespace tuckfold::bounded
