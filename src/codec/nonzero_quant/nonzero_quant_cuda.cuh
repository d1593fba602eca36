// Shared by nonzero_quant's kernels. A warp takes a tile. Values that are not 0 lie side by side in
// its part of shared memory, where they are packed or unpacked, eight of a lane at a time. Global
// memory is accessed in contiguous vectors of 16 bytes per lane.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "base/cuda/look_back.cuh"
#include "base/cuda/view.cuh"
#include "codec/block_quant/block_quant_pack_cuda.cuh"
#include "codec/block_quant/block_quant_unpack_cuda.cuh"
#include "codec/nonzero_quant/nonzero_quant.h"

namespace tuckfold::nonzero_quant {

using cuda::kAllLanes;
using cuda::kWarp;
using cuda::View;

inline constexpr unsigned kWarps = kTogether, kThreads = kWarps * kWarp;
inline constexpr unsigned kTileValues = kTile;
inline constexpr unsigned kMaskWords = kTileValues / 32;

// What is kept of an element in shared memory: itself, or f32.
template <class T>
using KeptOf = std::conditional_t<std::is_same_v<T, F16> || std::is_same_v<T, BF16>, T, float>;

template <class T>
__device__ TUCKFOLD_INLINE KeptOf<T> kept_of(T value) {
  if constexpr (std::is_same_v<T, double>) {
    return to_f32_not_zero(value);
  } else if constexpr (std::is_same_v<T, std::uint8_t>) {
    return static_cast<float>(value);
  } else {
    return value;
  }
}
template <class T>
__device__ TUCKFOLD_INLINE T element_of(KeptOf<T> kept) {
  if constexpr (std::is_same_v<T, KeptOf<T>>) {
    return kept;
  } else {
    return cuda::from_float<T>(kept);
  }
}

template <class T>
inline constexpr float kSmallest = smallest_of(std::is_same_v<T, F16>            ? DType::F16
                                               : std::is_same_v<T, BF16>         ? DType::BF16
                                               : std::is_same_v<T, std::uint8_t> ? DType::U8
                                                                                 : DType::F32);

// The start of the workspace. The words that blocks exchange follow it.
struct Control {
  std::uint64_t verdict;  // CudaOptions::device_result where the caller has none
  unsigned tickets;
};
static_assert(sizeof(Control) <= kCudaControlBytes);

struct Settings {
  std::int64_t elems, tiles;
  unsigned group;
  int group_shift;  // -1: the group is no power of two up to 256
  unsigned bits;
  std::uint64_t mask_at, front_bytes;

  __device__ unsigned tile_elems(std::int64_t tile) const {
    const std::int64_t left = elems - tile * kTileValues;
    return left < kTileValues ? static_cast<unsigned>(left) : kTileValues;
  }
  __device__ unsigned group_of(unsigned value) const {
    return group_shift >= 0 ? value >> group_shift : value / group;
  }
  __device__ unsigned groups(unsigned count) const { return group_of(count + group - 1); }
  __device__ unsigned code_words(unsigned count) const { return (count * bits + 31) / 32; }
};

__device__ TUCKFOLD_INLINE unsigned lane_of() { return threadIdx.x % kWarp; }
__device__ TUCKFOLD_INLINE unsigned warp_of() { return threadIdx.x / kWarp; }

// A warp's part of shared memory. Arrays of a word for each group of the tile follow.
template <class Kept>
struct alignas(16) WarpPart {
  Kept kept[kTileValues];  // later, the codes
  std::uint32_t mask[kMaskWords];

  static std::size_t bytes(std::int64_t group, unsigned arrays) {
    const auto groups = static_cast<std::size_t>((kTile + group - 1) / group);
    return (sizeof(WarpPart) + 4 * arrays * groups + 15) / 16 * 16;
  }
};
template <class Kept>
__device__ TUCKFOLD_INLINE WarpPart<Kept>& own_part(std::uint32_t part_bytes) {
  return *reinterpret_cast<WarpPart<Kept>*>(cuda::shared_memory() + warp_of() * part_bytes);
}

// ---- vectors of kept values ---------------------------------------------------------------------

template <class Kept>
inline constexpr unsigned kV = 16 / sizeof(Kept);
template <class Kept>
inline constexpr unsigned kStep = kWarp* kV<Kept>;  // values of a vector of every lane

template <class Kept>
struct alignas(16) Sixteen {
  Kept values[kV<Kept>];
};

// How a kernel reads and writes elements: kVectors, if the tensor is dense, begins at a multiple of
// 16 bytes and has a type that is kept; else any tensor.
//
// A lane's values from element `index` on; 0 after the last.
template <class T, bool kVectors>
__device__ TUCKFOLD_INLINE uint4 load_vector(const View& view, std::int64_t index) {
  using Kept = KeptOf<T>;
  const auto* data = reinterpret_cast<const T*>(view.data);
  if constexpr (kVectors) {
    if (index + kV<Kept> <= view.elems) return *reinterpret_cast<const uint4*>(data + index);
  }
  Sixteen<Kept> some;
#pragma unroll
  for (unsigned i = 0; i < kV<Kept>; ++i) {
    some.values[i] = Kept{};
    if (index + i < view.elems) {
      some.values[i] = kept_of(data[kVectors ? index + i : view.offset(index + i)]);
    }
  }
  return std::bit_cast<uint4>(some);
}
template <class T, bool kVectors>
__device__ TUCKFOLD_INLINE void store_vector(const View& view, std::int64_t index,
                                             const uint4& vector) {
  using Kept = KeptOf<T>;
  auto* data = reinterpret_cast<T*>(view.data);
  if constexpr (kVectors) {
    if (index + kV<Kept> <= view.elems) {
      return cuda::store_away(reinterpret_cast<uint4*>(data + index), vector);
    }
  }
  const auto some = std::bit_cast<Sixteen<Kept>>(vector);
#pragma unroll
  for (unsigned i = 0; i < kV<Kept>; ++i) {
    if (index + i < view.elems) {
      data[kVectors ? index + i : view.offset(index + i)] = element_of<T>(some.values[i]);
    }
  }
}

// A bit for each value of a vector that is not 0.
template <class Kept>
__device__ TUCKFOLD_INLINE std::uint32_t bits_of_vector(const uint4& raw) {
  if constexpr (sizeof(Kept) == 2) {
    const auto two = [](std::uint32_t word) {
      return ((word & 0x7fff7fffu) + 0x7fff7fffu) >> 15 & 0x00010001u;
    };
    const std::uint32_t bits = two(raw.x) | two(raw.y) << 2 | two(raw.z) << 4 | two(raw.w) << 6;
    return (bits | bits >> 15) & 0xffu;
  } else {
    const auto one = [](std::uint32_t word) { return (word & 0x7fffffffu) != 0 ? 1u : 0u; };
    return one(raw.x) | one(raw.y) << 1 | one(raw.z) << 2 | one(raw.w) << 3;
  }
}

// Where the kept values of kCount vectors begin, after `base` others: by a sum over lanes of several
// counts in one word. Returns base and all that is kept.
template <class Kept, unsigned kCount>
__device__ TUCKFOLD_INLINE unsigned places_of(const std::uint32_t (&bits)[kCount], unsigned base,
                                              unsigned (&places)[kCount]) {
  constexpr unsigned kWidth = kStep<Kept> < 256 ? 8 : 16, kFields = 32 / kWidth;
  constexpr std::uint32_t kField = (1u << kWidth) - 1;
#pragma unroll
  for (unsigned first = 0; first < kCount; first += kFields) {
    std::uint32_t own = 0;
#pragma unroll
    for (unsigned j = 0; j < kFields && first + j < kCount; ++j) {
      own |= static_cast<std::uint32_t>(__popc(bits[first + j])) << kWidth * j;
    }
    std::uint32_t sums = own;
#pragma unroll
    for (unsigned by = 1; by < kWarp; by *= 2) {
      const std::uint32_t other = __shfl_up_sync(kAllLanes, sums, by);
      if (lane_of() >= by) sums += other;
    }
    const std::uint32_t all = __shfl_sync(kAllLanes, sums, kWarp - 1);
    sums -= own;
#pragma unroll
    for (unsigned j = 0; j < kFields && first + j < kCount; ++j) {
      places[first + j] = base + (sums >> kWidth * j & kField);
      base += all >> kWidth * j & kField;
    }
  }
  return base;
}

}  // namespace tuckfold::nonzero_quant
