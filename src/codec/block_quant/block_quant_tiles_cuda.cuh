// block_quant's fast pack kernel. A warp holds a tile of a dense tensor in registers, with contiguous
// loads of 16 bytes per lane, so that every load is whole cache lines. Groups are powers of two in a
// tile. A lane whose eight values are whole bytes of codes stores them itself; else codes are
// exchanged as bytes in shared memory, and stored as contiguous words.
#pragma once

#include "codec/block_quant/block_quant_pack_cuda.cuh"

namespace tuckfold::block_quant {

// A tile has at most a group for each lane: small groups make small tiles.
inline constexpr int kSteps = 8, kSmallSteps = 1;
template <class T, int kTileSteps>
inline constexpr int kTileValues = kTileSteps* kStepValues<T>;

// The number of tiles of a tensor; pack_group packs the groups after them. A load at half a word
// reads the words around it, so one more value must follow.
template <class T, int kTileSteps>
__host__ __device__ inline std::int64_t tiles_of(const DenseTensor& tensor) {
  const bool reads_more = reinterpret_cast<std::uintptr_t>(tensor.data) % 4 != 0;
  return (tensor.elems - (reads_more ? 1 : 0)) / kTileValues<T, kTileSteps>;
}

// The codes of 1024 values, bytes in `staged`, to kBits words a lane.
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
__device__ TUCKFOLD_NOINLINE void store_codes(std::uint32_t* staged, int bits, std::uint32_t* to) {
  switch (bits) {
    case 1: return store_codes<1>(staged, to);
    case 2: return store_codes<2>(staged, to);
    case 3: return store_codes<3>(staged, to);
    case 4: return store_codes<4>(staged, to);
    case 5: return store_codes<5>(staged, to);
    case 6: return store_codes<6>(staged, to);
    default: return store_codes<7>(staged, to);
  }
}

// Gives lane g the range of the tile's group g, of 2^shift values; in every lane each step has a
// range of its own.
template <class T, int kTileSteps>
__device__ TUCKFOLD_INLINE Range ranges_to_lanes(Range (&ranges)[kTileSteps], int shift) {
  constexpr int kV = kVector<T>, kStep = kStepValues<T>;
  const int lane = static_cast<int>(threadIdx.x) % kWarp, group = 1 << shift;
  Range mine{0, 0};
  if (group >= kStep) {
#pragma unroll
    for (int s = 1; s < kTileSteps; s *= 2) {
      if (group <= kStep * s) break;
#pragma unroll
      for (int j = 0; j < kTileSteps; j += 2 * s) ranges[j] = join(ranges[j], ranges[j + s]);
    }
#pragma unroll
    for (int j = 0; j < kTileSteps; ++j) {
      if ((j * kStep & (group - 1)) != 0) continue;
      const int low = __reduce_min_sync(kAllLanes, ranges[j].low);
      const int high = __reduce_max_sync(kAllLanes, ranges[j].high);
      if (lane == j * kStep >> shift) mine = {low, high};
    }
    return mine;
  }
  const int lanes = group / kV;        // of a group
  const int together = kStep / group;  // groups of a step
  for (int mask = 1; mask < lanes; mask *= 2) {
#pragma unroll
    for (int j = 0; j < kTileSteps; ++j) {
      ranges[j] = join(ranges[j], {__shfl_xor_sync(kAllLanes, ranges[j].low, mask),
                                   __shfl_xor_sync(kAllLanes, ranges[j].high, mask)});
    }
  }
  const int source = (lane & (together - 1)) * lanes;
#pragma unroll
  for (int j = 0; j < kTileSteps; ++j) {
    const int low = __shfl_sync(kAllLanes, ranges[j].low, source);
    const int high = __shfl_sync(kAllLanes, ranges[j].high, source);
    if (lane >= j * together && lane < (j + 1) * together) mine = {low, high};
  }
  return mine;
}

// The same for eight groups of halves, one per step, in fewer steps: lanes exchange ranges until
// each has one group's range. Lanes 4 * g and the three after it have that of group g.
template <class T>
__device__ TUCKFOLD_INLINE void step_ranges(const uint4 (&raw)[kSteps], float& low, float& high) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  constexpr std::uint32_t kSigns = 0x80008000u;
  std::uint32_t ranges[kSteps];  // the largest value, and the least one's negative above it
#pragma unroll
  for (int j = 0; j < kSteps; ++j) {
    const std::uint32_t least = least_of<T>(raw[j]) ^ kSigns, most = most_of<T>(raw[j]);
    ranges[j] =
        cuda::most_halves<T>(__byte_perm(most, least, 0x5410), __byte_perm(most, least, 0x7632));
  }
#pragma unroll
  for (int count = kSteps / 2; count > 0; count /= 2) {
    const int mask = 4 * count;
    const bool upper = (lane & mask) != 0;
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const std::uint32_t given = upper ? ranges[i] : ranges[i + count];
      const std::uint32_t kept = upper ? ranges[i + count] : ranges[i];
      ranges[i] = cuda::most_halves<T>(kept, __shfl_xor_sync(kAllLanes, given, mask));
    }
  }
  std::uint32_t mine = ranges[0];
  mine = cuda::most_halves<T>(mine, __shfl_xor_sync(kAllLanes, mine, 2));
  mine = cuda::most_halves<T>(mine, __shfl_xor_sync(kAllLanes, mine, 1));
  high = cuda::half_to_float<T>(static_cast<std::uint16_t>(mine));
  low = -cuda::half_to_float<T>(static_cast<std::uint16_t>(mine >> 16));
}

// A lane's vectors of a tile, whose values `from` on are the lane's; all loads are in flight at once.
template <class T, int kTileSteps>
__device__ TUCKFOLD_INLINE void load_tile(const T* from, bool aligned, uint4 (&raw)[kTileSteps]) {
  constexpr int kStep = kStepValues<T>;
  if (aligned) {
#pragma unroll
    for (int j = 0; j < kTileSteps; ++j) {
      raw[j] = *reinterpret_cast<const uint4*>(from + j * kStep);
    }
  } else {
#pragma unroll
    for (int j = 0; j < kTileSteps; ++j) raw[j] = cuda::load_anywhere(from + j * kStep);
  }
}

// What a lane knows about the group whose header it makes.
struct LaneGroup {
  ToSum to_sum;
  std::uint32_t key;  // of the group's random bytes
};

// Codes of a tile's values, a byte each. Group g's LaneGroup is in lane g << kApart.
template <class T, bool kStochastic, int kApart, int kTileSteps>
__device__ TUCKFOLD_INLINE void codes_of_tile(const uint4 (&raw)[kTileSteps], const LaneGroup& mine,
                                              int shift,
                                              std::uint32_t (&words)[kTileSteps][kVector<T> / 4]) {
  constexpr int kV = kVector<T>, kStep = kStepValues<T>;
  const int lane = static_cast<int>(threadIdx.x) % kWarp, group = 1 << shift;
  ToSum s{};
  std::uint32_t key = 0;
#pragma unroll
  for (int j = 0; j < kTileSteps; ++j) {
    const int at = j * kStep + lane * kV;
    if (group <= kStep || (j * kStep & (group - 1)) == 0) {  // else the same group as before
      const int g = at >> shift << kApart;
      s = {__shfl_sync(kAllLanes, mine.to_sum.subtract, g),
           __shfl_sync(kAllLanes, mine.to_sum.factor, g),
           __shfl_sync(kAllLanes, mine.to_sum.add, g)};
      if constexpr (kStochastic) key = __shfl_sync(kAllLanes, mine.key, g);
    }
    float x[kV];
    cuda::floats_of<T>(raw[j], x);
    const auto quad = static_cast<std::uint32_t>((at & (group - 1)) / 4);
#pragma unroll
    for (int w = 0; w < kV / 4; ++w) {
      std::uint32_t random = 0;
      if constexpr (kStochastic) {
        random = later_steps(key ^ first_step((quad + static_cast<std::uint32_t>(w)) * kQuad));
      }
      words[j][w] = four_codes<kStochastic, false>(x + 4 * w, s, 0.0f, random);
    }
  }
}

// Stores the codes of a tile if each lane has whole bytes of them side by side; else returns false.
template <int kV, int kTileSteps>
__device__ TUCKFOLD_INLINE bool store_whole_bytes(const std::uint32_t (&words)[kTileSteps][kV / 4],
                                                  int bits, unsigned char* to) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  if (bits == 8) {
#pragma unroll
    for (int j = 0; j < kTileSteps; ++j) {
      if constexpr (kV == 4) {
        reinterpret_cast<std::uint32_t*>(to)[j * kWarp + lane] = words[j][0];
      } else {
        reinterpret_cast<uint2*>(to)[j * kWarp + lane] = make_uint2(words[j][0], words[j][1]);
      }
    }
    return true;
  }
  if constexpr (kV == 8) {
    if (bits == 4) {
#pragma unroll
      for (int j = 0; j < kTileSteps; ++j) {
        reinterpret_cast<std::uint32_t*>(to)[j * kWarp + lane] =
            __byte_perm(squeeze_bytes<4>(words[j][0]), squeeze_bytes<4>(words[j][1]), 0x5410);
      }
      return true;
    }
    if (bits == 2) {
#pragma unroll
      for (int j = 0; j < kTileSteps; ++j) {
        reinterpret_cast<std::uint16_t*>(to)[j * kWarp + lane] = static_cast<std::uint16_t>(
            squeeze_bytes<2>(words[j][0]) | squeeze_bytes<2>(words[j][1]) << 8);
      }
      return true;
    }
  }
  return false;
}

// Stores the codes of a tile, of any number of bits, by way of `staged` in shared memory.
template <int kV, int kTileSteps>
__device__ TUCKFOLD_INLINE void store_staged(const std::uint32_t (&words)[kTileSteps][kV / 4],
                                             int bits, std::uint32_t* staged, unsigned char* to) {
  constexpr int kStep = kWarp * kV, kTile = kTileSteps * kStep;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int j = 0; j < kTileSteps; ++j) {
#pragma unroll
    for (int w = 0; w < kV / 4; ++w) staged[j * kStep / 4 + lane * (kV / 4) + w] = words[j][w];
  }
  __syncwarp();
  if constexpr (kTile >= 1024) {
#pragma unroll 1
    for (int i = 0; i < kTile / 1024; ++i) {
      store_codes(staged + i * 256, bits, reinterpret_cast<std::uint32_t*>(to + i * 128 * bits));
    }
  } else if (lane < kTile / 8) {
    std::uint64_t eight = eight_codes(staged[2 * lane], staged[2 * lane + 1], bits);
    for (int i = 0; i < bits; ++i, eight >>= 8) {
      to[lane * bits + i] = static_cast<unsigned char>(eight);
    }
  }
}

// kShift: the group's shift as a constant, which saves a tenth of the instructions; else 0.
template <class T, bool kStochastic, int kShift, int kTileSteps>
__device__ TUCKFOLD_INLINE void pack_tile(const DenseTensor& tensor, const Settings& settings,
                                          std::int64_t tile, std::uint32_t* staged) {
  constexpr int kV = kVector<T>, kStep = kStepValues<T>, kTile = kTileValues<T, kTileSteps>;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int shift = kShift != 0 ? kShift : settings.group_shift;

  uint4 raw[kTileSteps];
  load_tile(reinterpret_cast<const T*>(tensor.data) + tile * kTile + lane * kV,
            reinterpret_cast<std::uintptr_t>(tensor.data) % 16 == 0, raw);
  cuda::allow_next_kernel();
  // Every lane makes a group's header; group g's is that of lane g << kApart.
  constexpr bool kStepGroups = sizeof(T) == 2 && kTileSteps == kSteps && 1 << kShift == kStep;
  constexpr int kApart = kStepGroups ? 2 : 0;
  float low, high;
  if constexpr (kStepGroups) {
    step_ranges<T>(raw, low, high);
  } else {
    Range ranges[kTileSteps];
#pragma unroll
    for (int j = 0; j < kTileSteps; ++j) ranges[j] = range_of<T>(raw[j]);
    const Range mine = ranges_to_lanes<T>(ranges, shift);
    low = float_of_image(mine.low), high = float_of_image(mine.high);
  }
  const std::int64_t own_group = (tile * kTile >> shift) + (lane >> kApart);
  const Header header = header_of(low, high, settings);
  if (lane >> kApart < kTile >> shift && lane % (1 << kApart) == 0) {
    store_header(tensor.headers + own_group * 4, header);
  }
  LaneGroup mine{to_sum<kStochastic>(header), 0};
  if constexpr (kStochastic) {
    mine.key =
        first_step(group_key(settings.seed_of(tensor), static_cast<std::uint64_t>(own_group)));
  }

  std::uint32_t words[kTileSteps][kV / 4];
  codes_of_tile<T, kStochastic, kApart>(raw, mine, shift, words);
  unsigned char* to =
      reinterpret_cast<unsigned char*>(tensor.codes) + tile * (kTile / 8) * settings.bits;
  if (!store_whole_bytes<kV>(words, settings.bits, to)) {
    store_staged<kV>(words, settings.bits, staged, to);
  }
}

// The warps after those of the tiles take the groups that are left.
template <class T, bool kStochastic, int kShift, int kTileSteps, int kMost>
__global__ void __launch_bounds__(kPackThreads, kPackBlocks)
    pack_tiles_kernel(const __grid_constant__ Tensors<kMost> tensors) {
  constexpr int kTile = kTileValues<T, kTileSteps>;
  __shared__ __align__(16) std::uint32_t staged[kPackWarps][kTile / 4];
  const DenseTensor& tensor = tensors.of(blockIdx.x);
  const Settings& settings = tensors.settings;
  const int in_block = static_cast<int>(threadIdx.x) / kWarp;
  const std::int64_t warp =
      static_cast<std::int64_t>(blockIdx.x - tensor.first_cta) * kPackWarps + in_block;
  const std::int64_t tiles = tiles_of<T, kTileSteps>(tensor);
  cuda::wait_for_previous_kernel();
  if (warp < tiles) {
    return pack_tile<T, kStochastic, kShift, kTileSteps>(tensor, settings, warp, staged[in_block]);
  }
  const std::int64_t group = (tiles * kTile >> settings.group_shift) + (warp - tiles);
  if (group * settings.group < tensor.elems) {
    pack_group<kStochastic>(dense_values<T>(tensor), settings, tensor, group);
  }
}

}  // namespace tuckfold::block_quant
