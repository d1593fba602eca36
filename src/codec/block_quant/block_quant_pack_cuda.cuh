// block_quant's pack kernels. In the fast one a warp holds a tile of a dense tensor in registers,
// with contiguous loads of 16 bytes per lane, so that every load is whole cache lines. Groups are
// powers of two in a tile. A lane whose eight values are whole bytes of codes stores them itself;
// else codes are exchanged as bytes in shared memory, and stored as contiguous words.
#pragma once

#include <cstdint>

#include "base/cuda/view.cuh"
#include "codec/block_quant/block_quant_cuda.cuh"

namespace tuckfold::block_quant {

inline constexpr int kPackThreads = 256, kPackWarps = kPackThreads / kWarp;
inline constexpr int kPackBlocks = 4;  // on a multiprocessor: up to 64 registers a thread

template <class T>
inline constexpr int kStepValues = kWarp* kVector<T>;  // that a warp loads at once

// ---- ranges and headers -------------------------------------------------------------------------

// Maps a float to an integer so that integers compare as the floats do; the function is its own
// inverse. A NaN maps beyond the infinity of its sign.
__device__ TUCKFOLD_INLINE int image_of(float value) {
  const int bits = __float_as_int(value);
  return bits ^ (bits >> 31 & 0x7fffffff);
}
__device__ TUCKFOLD_INLINE float float_of_image(int image) {
  return __int_as_float(image ^ (image >> 31 & 0x7fffffff));
}

struct Range {
  int low = 0x7fffffff, high = -0x7fffffff - 1;  // images
};
__device__ TUCKFOLD_INLINE Range join(Range a, Range b) {
  return {a.low < b.low ? a.low : b.low, a.high > b.high ? a.high : b.high};
}

// The least and the largest of sixteen bytes of halves, each in one half of the word.
template <class T>
__device__ TUCKFOLD_INLINE std::uint32_t least_of(const uint4& raw) {
  return cuda::least_halves<T>(cuda::least_halves<T>(raw.x, raw.y),
                               cuda::least_halves<T>(raw.z, raw.w));
}
template <class T>
__device__ TUCKFOLD_INLINE std::uint32_t most_of(const uint4& raw) {
  return cuda::most_halves<T>(cuda::most_halves<T>(raw.x, raw.y),
                              cuda::most_halves<T>(raw.z, raw.w));
}

// The range of sixteen bytes of values.
template <class T>
__device__ TUCKFOLD_INLINE Range range_of(const uint4& raw) {
  if constexpr (sizeof(T) == 4) {
    float x[4];
    cuda::floats_of<T>(raw, x);
    return {image_of(cuda::least(cuda::least(x[0], x[1]), cuda::least(x[2], x[3]))),
            image_of(cuda::most(cuda::most(x[0], x[1]), cuda::most(x[2], x[3])))};
  } else {
    const std::uint32_t low = least_of<T>(raw), high = most_of<T>(raw);
    const auto first = [](std::uint32_t both) {
      return image_of(cuda::half_to_float<T>(static_cast<std::uint16_t>(both)));
    };
    return {first(cuda::least_halves<T>(low, __byte_perm(low, 0, 0x1032))),
            first(cuda::most_halves<T>(high, __byte_perm(high, 0, 0x1032)))};
  }
}

// Both are NaN where a value is.
__device__ TUCKFOLD_INLINE Header header_of(float low, float high, const Settings& s) {
  const float infinity = float_of(kInfBits);
  if (!(low > -infinity && high < infinity)) return {kBF16Nan, 0};  // kNotFinite
  return header_of(low, high, s.bits, s.exact_zero);
}
__device__ TUCKFOLD_INLINE Header header_of(Range range, const Settings& s) {
  return header_of(float_of_image(range.low), float_of_image(range.high), s);
}

// Codes may have any number of bytes, so the headers after them may be at any address.
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

// ---- codes --------------------------------------------------------------------------------------

// How values of a group become sums with their codes in the low bits. A factor of 0 marks a group
// that is not finite, whose codes are 0.
struct ToSum {
  float subtract, factor, add;
};
template <bool kStochastic>
__device__ TUCKFOLD_INLINE ToSum to_sum(Header header) {
  const Group group = group_of(header);
  if (!(group.scale < float_of(kInfBits))) return {0.0f, 0.0f, 0.0f};
  const Scaling s = scaling_of(group);
  return {s.subtract, s.factor, (kStochastic ? kToFixed : kToInteger) + s.zero};
}

// Codes of four values, a byte each. A sum exceeds `most`, the sum of the last level, only in
// groups around zero of one bit: others need no clamp.
template <bool kStochastic, bool kClamp>
__device__ TUCKFOLD_INLINE std::uint32_t four_codes(const float* x, const ToSum& s, float most,
                                                    std::uint32_t random) {
  std::uint32_t sums[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float sum = (x[i] - s.subtract) * s.factor + s.add;
    sums[i] = __float_as_uint(kClamp ? fminf(sum, most) : sum);
  }
  std::uint32_t codes;
  if constexpr (kStochastic) {
    const std::uint32_t front = __byte_perm(sums[0], sums[1], 0x5410);
    const std::uint32_t back = __byte_perm(sums[2], sums[3], 0x5410);
    codes = __byte_perm(front + __byte_perm(random, 0, 0x4140),
                        back + __byte_perm(random, 0, 0x4342), 0x7531);
  } else {
    codes = __byte_perm(__byte_perm(sums[0], sums[1], 0x0040),
                        __byte_perm(sums[2], sums[3], 0x0040), 0x5410);
  }
  return s.factor == 0.0f ? 0u : codes;
}

// Packs four codes, each in a byte, into the low 4 * kBits bits. Products and sums carry nothing,
// because fields do not overlap.
template <int kBits>
__device__ TUCKFOLD_INLINE std::uint32_t squeeze_bytes(std::uint32_t x) {
  if constexpr (kBits == 1) {
    return x * 0x10204080u >> 28;
  } else if constexpr (kBits == 2) {
    return x * 0x01041040u >> 24;
  } else if constexpr (kBits == 4) {
    return __byte_perm(x + (x >> 4), 0, 0x4420);
  } else if constexpr (kBits == 8) {
    return x;
  } else {
    constexpr std::uint32_t kOne = ((1u << kBits) - 1u) * 0x00010001u;
    constexpr std::uint32_t kTwo = (1u << 2 * kBits) - 1u;
    x = (x & kOne) | (x >> (8 - kBits) & kOne << kBits);
    return (x & kTwo) | (x >> (16 - 2 * kBits) & kTwo << 2 * kBits);
  }
}

// Eight codes, a byte each, as `bits` bytes.
__device__ TUCKFOLD_INLINE std::uint64_t eight_codes(std::uint32_t front, std::uint32_t back,
                                                     int bits) {
  const auto squeezed = [&]<int kBits>() {
    return static_cast<std::uint64_t>(squeeze_bytes<kBits>(back)) << 4 * kBits |
           squeeze_bytes<kBits>(front);
  };
  switch (bits) {
    case 1: return squeezed.template operator()<1>();
    case 2: return squeezed.template operator()<2>();
    case 3: return squeezed.template operator()<3>();
    case 4: return squeezed.template operator()<4>();
    case 5: return squeezed.template operator()<5>();
    case 6: return squeezed.template operator()<6>();
    case 7: return squeezed.template operator()<7>();
    default: return squeezed.template operator()<8>();
  }
}

// ---- any group of any tensor --------------------------------------------------------------------

// The source of values, eight of one group at a time, of which `some` exist.
template <class T>
struct DenseValues {
  const T* data;
  bool aligned;  // to 16 bytes

  __device__ TUCKFOLD_INLINE void eight(std::int64_t index, int some, float* x) const {
    const T* from = data + index;
    if (aligned && some == 8) {
      if constexpr (sizeof(T) == 2) {
        cuda::floats_of<T>(*reinterpret_cast<const uint4*>(from), x);
        return;
      } else if constexpr (sizeof(T) == 4) {
        cuda::floats_of<T>(reinterpret_cast<const uint4*>(from)[0], x);
        cuda::floats_of<T>(reinterpret_cast<const uint4*>(from)[1], x + 4);
        return;
      }
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = cuda::as_float(from[i < some ? i : 0]);
  }
};

template <class T>
__device__ TUCKFOLD_INLINE DenseValues<T> dense_values(const DenseTensor& tensor) {
  return {reinterpret_cast<const T*>(tensor.data),
          reinterpret_cast<std::uintptr_t>(tensor.data) % 16 == 0};
}

template <class T>
struct StridedValues {
  const cuda::View* view;

  __device__ TUCKFOLD_INLINE void eight(std::int64_t index, int some, float* x) const {
    const T* data = reinterpret_cast<const T*>(view->data);
    // One position on the inner axis is enough for all eight values, unless they cross its end.
    const std::int64_t first = view->offset(index), last = view->offset(index + some - 1);
    const std::int64_t step = view->steps[0];
    const bool even = last - first == (some - 1) * step;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int at = i < some ? i : 0;
      x[i] = cuda::as_float(data[even ? first + at * step : view->offset(index + at)]);
    }
  }
};

// One warp packs a group, eight values of a lane at a time. It reads them twice.
template <bool kStochastic, class Values>
__device__ TUCKFOLD_NOINLINE void pack_group(const Values& values, const Settings& settings,
                                             const DenseTensor& tensor, std::int64_t group) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t first = group * settings.group, left = tensor.elems - first;
  const int count = static_cast<int>(left < settings.group ? left : settings.group);
  Range range;
  for (int at = 8 * lane; at < count; at += 8 * kWarp) {
    float x[8];
    values.eight(first + at, count - at < 8 ? count - at : 8, x);
    float low = x[0], high = x[0];
#pragma unroll
    for (int i = 1; i < 8; ++i) {
      low = cuda::least(low, x[i]);
      high = cuda::most(high, x[i]);
    }
    range = join(range, {image_of(low), image_of(high)});
  }
  range.low = __reduce_min_sync(kAllLanes, range.low);
  range.high = __reduce_max_sync(kAllLanes, range.high);
  const Header header = header_of(range, settings);
  if (lane == 0) store_header(tensor.headers + group * 4, header);
  const ToSum s = to_sum<kStochastic>(header);
  const float most =
      (kStochastic ? kToFixed : kToInteger) + static_cast<float>((1 << settings.bits) - 1);
  const std::uint32_t key =
      kStochastic
          ? first_step(group_key(settings.seed_of(tensor), static_cast<std::uint64_t>(group)))
          : 0u;
  auto* codes =
      reinterpret_cast<unsigned char*>(tensor.codes) + group * (settings.group / 8 * settings.bits);
  for (int at = 8 * lane; at < count; at += 8 * kWarp) {
    const int some = count - at < 8 ? count - at : 8;
    float x[8];
    values.eight(first + at, some, x);
    std::uint32_t words[2];
#pragma unroll
    for (int w = 0; w < 2; ++w) {
      std::uint32_t random = 0;
      if constexpr (kStochastic) {
        random = later_steps(key ^ first_step(static_cast<std::uint32_t>(at / 4 + w) * kQuad));
      }
      words[w] = four_codes<kStochastic, true>(x + 4 * w, s, most, random);
    }
    std::uint64_t bits = eight_codes(words[0], words[1], settings.bits);
    unsigned char* to = codes + at / 8 * settings.bits;
    if (some == 8 && settings.bits == 8) {
      *reinterpret_cast<std::uint64_t*>(to) = bits;
    } else if (some == 8 && settings.bits == 4) {
      *reinterpret_cast<std::uint32_t*>(to) = static_cast<std::uint32_t>(bits);
    } else if (some == 8 && settings.bits == 2) {
      *reinterpret_cast<std::uint16_t*>(to) = static_cast<std::uint16_t>(bits);
    } else {
      bits &= ~std::uint64_t{0} >> (64 - some * settings.bits);
      const int bytes = (some * settings.bits + 7) / 8;
      for (int i = 0; i < bytes; ++i) to[i] = static_cast<unsigned char>(bits >> 8 * i);
    }
  }
}

// Any tensor; the tensor has what is packed.
template <class T, bool kStochastic>
__global__ void __launch_bounds__(kPackThreads)
    pack_any_kernel(const __grid_constant__ cuda::View view,
                    const __grid_constant__ DenseTensor tensor,
                    const __grid_constant__ Settings settings) {
  const std::int64_t warp =
      static_cast<std::int64_t>(blockIdx.x) * kPackWarps + threadIdx.x / kWarp;
  cuda::wait_for_previous_kernel();
  if (warp * settings.group >= tensor.elems) return;
  pack_group<kStochastic>(StridedValues<T>{&view}, settings, tensor, warp);
}

// Dense tensors whose groups do not suit tiles.
template <class T, bool kStochastic, int kMost>
__global__ void __launch_bounds__(kPackThreads)
    pack_groups_kernel(const __grid_constant__ Tensors<kMost> tensors) {
  const DenseTensor& tensor = tensors.of(blockIdx.x);
  const Settings& settings = tensors.settings;
  const std::int64_t warp =
      static_cast<std::int64_t>(blockIdx.x - tensor.first_cta) * kPackWarps + threadIdx.x / kWarp;
  cuda::wait_for_previous_kernel();
  if (warp * settings.group >= tensor.elems) return;
  pack_group<kStochastic>(dense_values<T>(tensor), settings, tensor, warp);
}

// ---- whole tiles of a dense tensor --------------------------------------------------------------

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

// kShift: the group's shift as a constant, which saves a tenth of the instructions; else 0.
template <class T, bool kStochastic, int kShift, int kTileSteps>
__device__ TUCKFOLD_INLINE void pack_tile(const DenseTensor& tensor, const Settings& settings,
                                          std::int64_t tile, std::uint32_t* staged) {
  constexpr int kV = kVector<T>, kStep = kStepValues<T>, kTile = kTileValues<T, kTileSteps>;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int shift = kShift != 0 ? kShift : settings.group_shift, group = 1 << shift;
  const int bits = settings.bits;

  const T* from = reinterpret_cast<const T*>(tensor.data) + tile * kTile + lane * kV;
  uint4 raw[kTileSteps];
  if (reinterpret_cast<std::uintptr_t>(tensor.data) % 16 == 0) {
#pragma unroll
    for (int j = 0; j < kTileSteps; ++j) {
      raw[j] = *reinterpret_cast<const uint4*>(from + j * kStep);
    }
  } else {
#pragma unroll
    for (int j = 0; j < kTileSteps; ++j) raw[j] = cuda::load_anywhere(from + j * kStep);
  }
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
  const ToSum to_sums = to_sum<kStochastic>(header);
  std::uint32_t key = 0;
  if constexpr (kStochastic) {
    key = first_step(group_key(settings.seed_of(tensor), static_cast<std::uint64_t>(own_group)));
  }

  std::uint32_t words[kTileSteps][kV / 4];
  ToSum s{};
  std::uint32_t its_key = 0;
#pragma unroll
  for (int j = 0; j < kTileSteps; ++j) {
    const int at = j * kStep + lane * kV;
    if (group <= kStep || (j * kStep & (group - 1)) == 0) {  // else the group is that of before
      const int g = at >> shift << kApart;
      s = {__shfl_sync(kAllLanes, to_sums.subtract, g), __shfl_sync(kAllLanes, to_sums.factor, g),
           __shfl_sync(kAllLanes, to_sums.add, g)};
      if constexpr (kStochastic) its_key = __shfl_sync(kAllLanes, key, g);
    }
    float x[kV];
    cuda::floats_of<T>(raw[j], x);
    const auto quad = static_cast<std::uint32_t>((at & (group - 1)) / 4);
#pragma unroll
    for (int w = 0; w < kV / 4; ++w) {
      std::uint32_t random = 0;
      if constexpr (kStochastic) {
        random = later_steps(its_key ^ first_step((quad + static_cast<std::uint32_t>(w)) * kQuad));
      }
      words[j][w] = four_codes<kStochastic, false>(x + 4 * w, s, 0.0f, random);
    }
  }

  unsigned char* to = reinterpret_cast<unsigned char*>(tensor.codes) + tile * (kTile / 8) * bits;
  if (bits == 8) {
#pragma unroll
    for (int j = 0; j < kTileSteps; ++j) {
      if constexpr (kV == 4) {
        reinterpret_cast<std::uint32_t*>(to)[j * kWarp + lane] = words[j][0];
      } else {
        reinterpret_cast<uint2*>(to)[j * kWarp + lane] = make_uint2(words[j][0], words[j][1]);
      }
    }
    return;
  }
  if constexpr (kV == 8) {
    if (bits == 4) {
#pragma unroll
      for (int j = 0; j < kTileSteps; ++j) {
        reinterpret_cast<std::uint32_t*>(to)[j * kWarp + lane] =
            __byte_perm(squeeze_bytes<4>(words[j][0]), squeeze_bytes<4>(words[j][1]), 0x5410);
      }
      return;
    }
    if (bits == 2) {
#pragma unroll
      for (int j = 0; j < kTileSteps; ++j) {
        reinterpret_cast<std::uint16_t*>(to)[j * kWarp + lane] = static_cast<std::uint16_t>(
            squeeze_bytes<2>(words[j][0]) | squeeze_bytes<2>(words[j][1]) << 8);
      }
      return;
    }
  }
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
