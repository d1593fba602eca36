// block_quant's kernels that pack. The fast one: a warp holds a tile of 1024 values of a dense
// tensor in registers, 16 bytes a lane and load, side by side, so that every load is whole lines.
// Groups are powers of two in a tile. Codes cross lanes as bytes in shared memory, and leave as
// whole words side by side.
#pragma once

#include <cstdint>

#include "base/cuda/view.cuh"
#include "codec/block_quant/block_quant_block.h"
#include "codec/blocks/vectors_cuda.cuh"

namespace tuckfold::block_quant {

using cuda::kAllLanes;
using cuda::kVector;
using cuda::kWarp;
using cuda::View;

inline constexpr int kTile = 1024;
inline constexpr int kPackThreads = 256;
inline constexpr int kPackBlocks = 4;  // on a multiprocessor: up to 64 registers a thread

struct PackArgs {
  View view;
  std::byte* codes;
  std::byte* headers;
  std::int64_t tiles, groups;  // tiles that the fast way packs; all groups
  std::int64_t group;
  std::uint64_t seed;
  int bits;
  int group_shift;  // of the fast way
  bool exact_zero;
};

// ---- what both ways share -----------------------------------------------------------------------

// Whole numbers in the order of the floats they stand for; the same function leads back.
__device__ TUCKFOLD_INLINE int image_of(int float_bits) {
  return float_bits ^ (float_bits >> 31 & 0x7fffffff);
}
inline constexpr int kNotFiniteImage = 0x7fffffff;  // above that of infinity

struct Range {
  int low = 0x7fffffff, high = -0x7fffffff - 1;  // images
};

// The range of some values; `high` is kNotFiniteImage if one is not finite.
template <int kCount>
__device__ TUCKFOLD_INLINE Range range_of(const float* x) {
  float low = x[0], high = x[0], nothing = x[0] * 0.0f;  // NaN unless all are finite
#pragma unroll
  for (int i = 1; i < kCount; ++i) {
    low = fminf(low, x[i]);
    high = fmaxf(high, x[i]);
    nothing = fmaf(x[i], 0.0f, nothing);
  }
  return {image_of(__float_as_int(low)),
          nothing == nothing ? image_of(__float_as_int(high)) : kNotFiniteImage};
}
__device__ TUCKFOLD_INLINE Range join(Range a, Range b) {
  return {a.low < b.low ? a.low : b.low, a.high > b.high ? a.high : b.high};
}

__device__ TUCKFOLD_INLINE Header header_of(Range range, int bits, bool exact_zero) {
  if (range.high == kNotFiniteImage) return {0x7fc0u, 0};
  return header_of(__int_as_float(image_of(range.low)), __int_as_float(image_of(range.high)), bits,
                   exact_zero);
}

// Codes have any number of bytes, and headers follow them at any address.
__device__ TUCKFOLD_INLINE void store_header(std::byte* to, Header header) {
  const std::uint32_t word = header.scale | static_cast<std::uint32_t>(header.minimum) << 16;
  const auto address = reinterpret_cast<std::uintptr_t>(to);
  if (address % 4 == 0) {
    *reinterpret_cast<std::uint32_t*>(to) = word;
  } else if (address % 2 == 0) {
    reinterpret_cast<std::uint16_t*>(to)[0] = header.scale;
    reinterpret_cast<std::uint16_t*>(to)[1] = header.minimum;
  } else {
    for (int i = 0; i < 4; ++i) to[i] = static_cast<std::byte>(word >> 8 * i);
  }
}

// How values of a group become codes, for all kinds of groups: code_of without its branches. Adding
// -0 and subtracting 0 change nothing, and a factor of 0 makes every code 0, of NaN too.
struct Scaling {
  float subtract, factor, add;
};
__device__ TUCKFOLD_INLINE Scaling scaling_of(Header header) {
  const Group group = group_of(header);
  if (!(group.scale < float_of(kInfBits))) return {0.0f, 0.0f, 0.0f};
  const float inverse = 1.0f / group.scale;
  return group.about_zero ? Scaling{0.0f, inverse, group.minimum}
                          : Scaling{group.minimum, inverse, -0.0f};
}

// random_nudge whose first step is done for key and place apart, since groups share places, and
// whose bits are put into a float as they are: 128 + n / 2^15 + 1 / 2^16.
__device__ TUCKFOLD_INLINE std::uint32_t first_step(std::uint32_t x) { return x ^ (x >> 16); }
__device__ TUCKFOLD_INLINE float nudge_of(std::uint32_t key, std::uint32_t place) {
  std::uint32_t x = (key ^ place) * kMix1;
  x = (x ^ (x >> 15)) * kMix2;
  return __uint_as_float(x >> 16 | 0x43000001u) - 128.5f;
}

// A word with the code in its low byte.
template <bool kStochastic>
__device__ TUCKFOLD_INLINE std::uint32_t code_word(float value, Scaling s, float levels,
                                                   std::uint32_t key, std::uint32_t place) {
  float scaled = (value - s.subtract) * s.factor + s.add;
  if constexpr (kStochastic) scaled = scaled + nudge_of(key, place);
  return __float_as_uint(fminf(fmaxf(scaled, 0.0f), levels) + kToInteger);
}

// ---- any group of any tensor --------------------------------------------------------------------

// One warp packs a group; a lane takes eight values at a time, which are `bits` bytes.
template <class T, bool kStochastic>
__device__ void pack_group(const PackArgs& a, std::int64_t group) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const T* data = reinterpret_cast<const T*>(a.view.data);
  const std::int64_t first = group * a.group;
  const std::int64_t left = a.view.elems - first;
  const int count = static_cast<int>(left < a.group ? left : a.group);
  Range range;
  for (int i = lane; i < count; i += kWarp) {
    const float x = cuda::as_float(data[a.view.offset(first + i)]);
    range = join(range, range_of<1>(&x));
  }
  range.low = __reduce_min_sync(kAllLanes, range.low);
  range.high = __reduce_max_sync(kAllLanes, range.high);
  const Header header = header_of(range, a.bits, a.exact_zero);
  if (lane == 0) store_header(a.headers + group * 4, header);
  const Scaling s = scaling_of(header);
  const float levels = static_cast<float>((1 << a.bits) - 1);
  const std::uint32_t key =
      kStochastic ? first_step(group_key(a.seed, static_cast<std::uint64_t>(group))) : 0u;
  auto* codes = reinterpret_cast<unsigned char*>(a.codes) + group * (a.group / 8 * a.bits);
  for (int at = 8 * lane; at < count; at += 8 * kWarp) {
    const int some = count - at < 8 ? count - at : 8;
    std::uint64_t bits = 0;
    for (int i = 0; i < some; ++i) {
      const float x = cuda::as_float(data[a.view.offset(first + at + i)]);
      const std::uint32_t word = code_word<kStochastic>(
          x, s, levels, key, first_step(static_cast<std::uint32_t>(at + i) * kPlace));
      bits |= static_cast<std::uint64_t>(word & 0xffu) << (i * a.bits);
    }
    const int bytes = (some * a.bits + 7) / 8;
    for (int i = 0; i < bytes; ++i) {
      codes[at / 8 * a.bits + i] = static_cast<unsigned char>(bits >> 8 * i);
    }
  }
}

template <class T, bool kStochastic>
__global__ void __launch_bounds__(kPackThreads)
    pack_any_kernel(const __grid_constant__ PackArgs a) {
  const std::int64_t warp =
      static_cast<std::int64_t>(blockIdx.x) * (kPackThreads / kWarp) + threadIdx.x / kWarp;
  if (warp < a.groups) pack_group<T, kStochastic>(a, warp);
}

// ---- whole tiles of a dense tensor --------------------------------------------------------------

// Four codes, each in a byte, to the low 4 * kBits bits.
template <int kBits>
__device__ TUCKFOLD_INLINE std::uint32_t squeeze_bytes(std::uint32_t x) {
  constexpr std::uint32_t kOne = ((1u << kBits) - 1u) * 0x00010001u;
  constexpr std::uint32_t kTwo = (1u << 2 * kBits) - 1u;
  x = (x & kOne) | (x >> (8 - kBits) & kOne << kBits);
  return (x & kTwo) | (x >> (16 - 2 * kBits) & kTwo << 2 * kBits);
}

// The codes of a tile, bytes in `staged`, to kBits words a lane.
template <int kBits>
__device__ TUCKFOLD_INLINE void store_codes(std::uint32_t* staged, std::uint32_t* to) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const uint4 front = reinterpret_cast<const uint4*>(staged)[2 * lane];
  const uint4 back = reinterpret_cast<const uint4*>(staged)[2 * lane + 1];
  const std::uint32_t bytes[8] = {front.x, front.y, front.z, front.w,
                                  back.x,  back.y,  back.z,  back.w};
  std::uint32_t words[kBits + 1] = {};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const std::uint32_t four = squeeze_bytes<kBits>(bytes[i]);
    const int word = 4 * kBits * i / 32, shift = 4 * kBits * i % 32;
    words[word] |= four << shift;
    if (shift + 4 * kBits > 32) words[word + 1] |= four >> (32 - shift);
  }
  if constexpr (kBits == 1) {
    to[lane] = words[0];
  } else if constexpr (kBits == 2) {
    reinterpret_cast<uint2*>(to)[lane] = make_uint2(words[0], words[1]);
  } else if constexpr (kBits == 4) {
    reinterpret_cast<uint4*>(to)[lane] = make_uint4(words[0], words[1], words[2], words[3]);
  } else {
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kBits; ++i) staged[lane * kBits + i] = words[i];
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kBits; ++i) to[lane + kWarp * i] = staged[lane + kWarp * i];
  }
}

// kShift: the group's, where it is compiled in, which saves a tenth of the instructions; else 0.
template <class T, bool kStochastic, int kShift>
__device__ TUCKFOLD_INLINE void pack_tile(const PackArgs& a, std::int64_t tile,
                                          std::uint32_t* staged) {
  constexpr int kV = kVector<T>, kStep = kWarp * kV, kSteps = kTile / kStep;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int shift = kShift != 0 ? kShift : a.group_shift, group = 1 << shift;

  const T* from = reinterpret_cast<const T*>(a.view.data) + tile * kTile + lane * kV;
  uint4 raw[kSteps];
#pragma unroll
  for (int j = 0; j < kSteps; ++j) raw[j] = *reinterpret_cast<const uint4*>(from + j * kStep);
  float x[kSteps][kV];
  Range ranges[kSteps];
#pragma unroll
  for (int j = 0; j < kSteps; ++j) {
    cuda::floats_of<T>(raw[j], x[j]);
    ranges[j] = range_of<kV>(x[j]);
  }

  // Lane g is given the range of the tile's group g.
  Range mine{0, 0};
  if (group >= kStep) {
#pragma unroll
    for (int s = 1; s < kSteps; s *= 2) {
      if (group <= kStep * s) break;
#pragma unroll
      for (int j = 0; j < kSteps; j += 2 * s) ranges[j] = join(ranges[j], ranges[j + s]);
    }
#pragma unroll
    for (int j = 0; j < kSteps; ++j) {
      if ((j * kStep & (group - 1)) != 0) continue;
      const int low = __reduce_min_sync(kAllLanes, ranges[j].low);
      const int high = __reduce_max_sync(kAllLanes, ranges[j].high);
      if (lane == j * kStep >> shift) mine = {low, high};
    }
  } else {
    const int lanes = group / kV;        // of a group
    const int together = kStep / group;  // groups of a step
    for (int mask = 1; mask < lanes; mask *= 2) {
#pragma unroll
      for (int j = 0; j < kSteps; ++j) {
        ranges[j] = join(ranges[j], {__shfl_xor_sync(kAllLanes, ranges[j].low, mask),
                                     __shfl_xor_sync(kAllLanes, ranges[j].high, mask)});
      }
    }
    const int source = (lane & (together - 1)) * lanes;
#pragma unroll
    for (int j = 0; j < kSteps; ++j) {
      const int low = __shfl_sync(kAllLanes, ranges[j].low, source);
      const int high = __shfl_sync(kAllLanes, ranges[j].high, source);
      if (lane >= j * together && lane < (j + 1) * together) mine = {low, high};
    }
  }

  const std::int64_t first_group = tile * kTile >> shift;
  const Header header = header_of(mine, a.bits, a.exact_zero);
  if (lane < kTile >> shift) store_header(a.headers + (first_group + lane) * 4, header);
  const Scaling scaling = scaling_of(header);
  std::uint32_t key = 0;
  if constexpr (kStochastic) {
    key = first_step(group_key(a.seed, static_cast<std::uint64_t>(first_group + lane)));
  }

  const float levels = static_cast<float>((1 << a.bits) - 1);
  std::uint32_t words[kSteps][kV / 4];
  Scaling s{};
  std::uint32_t its_key = 0;
#pragma unroll
  for (int j = 0; j < kSteps; ++j) {
    const int at = j * kStep + lane * kV;
    if (group <= kStep || (j * kStep & (group - 1)) == 0) {  // else the group is that of before
      const int g = at >> shift;
      s = {__shfl_sync(kAllLanes, scaling.subtract, g), __shfl_sync(kAllLanes, scaling.factor, g),
           __shfl_sync(kAllLanes, scaling.add, g)};
      if constexpr (kStochastic) its_key = __shfl_sync(kAllLanes, key, g);
    }
    const std::uint32_t place = static_cast<std::uint32_t>(at & (group - 1)) * kPlace;
#pragma unroll
    for (int w = 0; w < kV / 4; ++w) {
      std::uint32_t code[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        code[i] = code_word<kStochastic>(
            x[j][4 * w + i], s, levels, its_key,
            first_step(place + static_cast<std::uint32_t>(4 * w + i) * kPlace));
      }
      words[j][w] = __byte_perm(__byte_perm(code[0], code[1], 0x0040),
                                __byte_perm(code[2], code[3], 0x0040), 0x5410);
    }
  }

  if (a.bits == 8) {
    auto* to = reinterpret_cast<std::uint32_t*>(a.codes + tile * kTile) + lane * (kV / 4);
#pragma unroll
    for (int j = 0; j < kSteps; ++j) {
      if constexpr (kV == 4) {
        to[j * kStep / 4] = words[j][0];
      } else {
        *reinterpret_cast<uint2*>(to + j * kStep / 4) = make_uint2(words[j][0], words[j][1]);
      }
    }
    return;
  }
#pragma unroll
  for (int j = 0; j < kSteps; ++j) {
#pragma unroll
    for (int w = 0; w < kV / 4; ++w) staged[j * kStep / 4 + lane * (kV / 4) + w] = words[j][w];
  }
  __syncwarp();
  auto* to = reinterpret_cast<std::uint32_t*>(a.codes + tile * (kTile / 8) * a.bits);
  switch (a.bits) {
    case 1: return store_codes<1>(staged, to);
    case 2: return store_codes<2>(staged, to);
    case 3: return store_codes<3>(staged, to);
    case 4: return store_codes<4>(staged, to);
    case 5: return store_codes<5>(staged, to);
    case 6: return store_codes<6>(staged, to);
    default: return store_codes<7>(staged, to);
  }
}

// The warps behind those of the tiles take the groups that are left.
template <class T, bool kStochastic, int kShift>
__global__ void __launch_bounds__(kPackThreads, kPackBlocks)
    pack_tiles_kernel(const __grid_constant__ PackArgs a) {
  __shared__ __align__(16) std::uint32_t staged[kPackThreads / kWarp][kTile / 4];
  const int in_block = static_cast<int>(threadIdx.x) / kWarp;
  const std::int64_t warp =
      static_cast<std::int64_t>(blockIdx.x) * (kPackThreads / kWarp) + in_block;
  if (warp < a.tiles) return pack_tile<T, kStochastic, kShift>(a, warp, staged[in_block]);
  const std::int64_t group = (a.tiles * kTile >> a.group_shift) + (warp - a.tiles);
  if (group < a.groups) pack_group<T, kStochastic>(a, group);
}

}  // namespace tuckfold::block_quant
