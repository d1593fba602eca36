// nonzero_quant's pack kernel. Values are read once. How many bytes a tile takes follows from how
// many values are not 0, so that blocks publish their sizes before they quantize, and most are known
// when the first look back for them.
#pragma once

#include "codec/nonzero_quant/nonzero_quant_cuda.cuh"

namespace tuckfold::nonzero_quant {

namespace bq = block_quant;

struct PackArgs {
  View in;
  Settings settings;
  std::uint64_t seed;
  const std::uint64_t* device_seed;  // what is added to it, or null
  std::byte* out;
  unsigned* tickets;
  std::uint64_t* states;
  std::uint64_t* verdict;
  std::uint32_t part_bytes;
};

// ---- values side by side ------------------------------------------------------------------------

// Stores a lane's bits of kCount vectors, from vector `step` on.
template <class Kept, unsigned kCount>
__device__ TUCKFOLD_INLINE void store_mask(WarpPart<Kept>& part, unsigned step,
                                           const std::uint32_t (&bits)[kCount]) {
  auto* bytes = reinterpret_cast<unsigned char*>(part.mask) + step * (kStep<Kept> / 8);
  const unsigned lane = lane_of();
  if constexpr (kV<Kept> == 8) {
#pragma unroll
    for (unsigned j = 0; j < kCount; ++j) {
      bytes[j * kWarp + lane] = static_cast<unsigned char>(bits[j]);
    }
  } else {  // four bits: two lanes share a byte, one stores those of even vectors
    std::uint32_t all = 0;
#pragma unroll
    for (unsigned j = 0; j < kCount; ++j) all |= bits[j] << 4 * j;
    constexpr std::uint32_t kEven = 0x0f0f0f0fu;
    const std::uint32_t other = __shfl_xor_sync(kAllLanes, all, 1);
    const bool odd = lane % 2 != 0;
    const std::uint32_t mine =
        odd ? (other >> 4 & kEven) | (all & ~kEven) : (all & kEven) | (other & kEven) << 4;
#pragma unroll
    for (unsigned k = 0; 2 * k < kCount; ++k) {
      const unsigned j = 2 * k + lane % 2;
      if (j < kCount) {
        bytes[j * (kWarp / 2) + lane / 2] = static_cast<unsigned char>(mine >> 8 * k);
      }
    }
  }
}

template <class Kept>
__device__ TUCKFOLD_INLINE void keep_vector(const uint4& raw, std::uint32_t bits, Kept* to) {
  const auto some = std::bit_cast<Sixteen<Kept>>(raw);
#pragma unroll
  for (unsigned i = 0; i < kV<Kept>; ++i) {
    if ((bits >> i & 1u) != 0) *to++ = some.values[i];
  }
}

// Loads a tile; its mask and the values that are not 0 go to shared memory. Returns how many.
template <class T, bool kVectors>
__device__ TUCKFOLD_INLINE unsigned keep_tile(const PackArgs& args, std::int64_t tile,
                                              WarpPart<KeptOf<T>>& part) {
  using Kept = KeptOf<T>;
  constexpr unsigned kAtOnce = kVectors ? sizeof(Kept) == 2 ? 4 : 8 : 1;  // vectors in flight
  const std::int64_t first = tile * kTileValues + lane_of() * kV<Kept>;
  const bool full = kVectors && args.settings.tile_elems(tile) == kTileValues;
  unsigned count = 0;
#pragma unroll 1
  for (unsigned step = 0; step < kTileValues / kStep<Kept>; step += kAtOnce) {
    uint4 raw[kAtOnce];
    const std::int64_t index = first + step * kStep<Kept>;
    if (full) {  // no branch between two loads
      const auto* from = reinterpret_cast<const uint4*>(args.in.data) + index / kV<Kept>;
#pragma unroll
      for (unsigned j = 0; j < kAtOnce; ++j) raw[j] = from[j * kWarp];
    } else {
#pragma unroll
      for (unsigned j = 0; j < kAtOnce; ++j) {
        raw[j] = load_vector<T, kVectors>(args.in, index + j * kStep<Kept>);
      }
    }
    std::uint32_t bits[kAtOnce];
#pragma unroll
    for (unsigned j = 0; j < kAtOnce; ++j) bits[j] = bits_of_vector<Kept>(raw[j]);
    store_mask<Kept>(part, step, bits);
    unsigned places[kAtOnce];
    count = places_of<Kept>(bits, count, places);
#pragma unroll
    for (unsigned j = 0; j < kAtOnce; ++j) {
      keep_vector<Kept>(raw[j], bits[j], part.kept + places[j]);
    }
  }
  __syncwarp();
  // Up to a multiple of eight the last value is repeated, which changes no range.
  const unsigned at = count + lane_of();
  if (lane_of() < 7 && at % 8 > lane_of()) part.kept[at] = part.kept[count - 1];
  __syncwarp();
  return count;
}

// The mask of a tile has whole words in the packed bytes.
template <class Kept>
__device__ TUCKFOLD_INLINE void copy_mask(const PackArgs& args, std::int64_t tile,
                                          const WarpPart<Kept>& part) {
  const unsigned words = (args.settings.tile_elems(tile) + 31) / 32;
  auto* to = reinterpret_cast<std::uint32_t*>(args.out + args.settings.mask_at) + tile * kMaskWords;
#pragma unroll
  for (unsigned k = 0; k < 2; ++k) {
    const unsigned i = k * kWarp + lane_of();
    if (i < words) to[i] = part.mask[i];
  }
}

// ---- groups -------------------------------------------------------------------------------------

// For each group: its range, then its header, and how values become codes. A factor of 0 marks a
// group that is not finite.
struct Groups {
  float *lows, *highs;
  std::uint32_t* headers;  // in the place of the least values
  float* factors;          // in that of the largest
  std::uint32_t* keys;     // of random bytes

  template <class Kept>
  __device__ Groups(const Settings& s, WarpPart<Kept>& part) {
    const unsigned most = (kTileValues + s.group - 1) / s.group;
    headers = reinterpret_cast<std::uint32_t*>(&part + 1);
    lows = reinterpret_cast<float*>(headers);
    highs = factors = lows + most;
    keys = headers + 2 * most;
  }
};

// Eight values that lie side by side.
template <class Kept>
__device__ TUCKFOLD_INLINE void load_eight(const Kept* from, float* x) {
  const auto* vectors = reinterpret_cast<const uint4*>(from);
#pragma unroll
  for (unsigned i = 0; i < 8 / kV<Kept>; ++i) cuda::floats_of<Kept>(vectors[i], x + i * kV<Kept>);
}

// The least and the largest of a group, of which `lanes` lanes have eight values each, or none if
// not `exists`; NaN where one is.
template <class Kept>
__device__ TUCKFOLD_INLINE void range_of_group(const Kept* from, bool exists, int lanes, float& low,
                                               float& high) {
  if constexpr (sizeof(Kept) == 2) {  // the largest value, and the least one's negative above it
    constexpr std::uint32_t kSigns = 0x80008000u;
    constexpr std::uint32_t kNone = std::is_same_v<Kept, F16> ? 0xfc00fc00u : 0xff80ff80u;
    const uint4 raw = *reinterpret_cast<const uint4*>(from);
    const std::uint32_t least = bq::least_of<Kept>(raw) ^ kSigns, most = bq::most_of<Kept>(raw);
    std::uint32_t both =
        cuda::most_halves<Kept>(__byte_perm(most, least, 0x5410), __byte_perm(most, least, 0x7632));
    if (!exists) both = kNone;
    for (int by = 1; by < lanes; by *= 2) {
      both = cuda::most_halves<Kept>(both, __shfl_xor_sync(kAllLanes, both, by));
    }
    high = cuda::half_to_float<Kept>(static_cast<std::uint16_t>(both));
    low = -cuda::half_to_float<Kept>(static_cast<std::uint16_t>(both >> 16));
  } else {
    float x[8];
    load_eight(from, x);
    low = high = x[0];
#pragma unroll
    for (int i = 1; i < 8; ++i) {
      low = cuda::least(low, x[i]);
      high = cuda::most(high, x[i]);
    }
    if (!exists) low = float_of(kInfBits), high = -low;
    for (int by = 1; by < lanes; by *= 2) {
      low = cuda::least(low, __shfl_xor_sync(kAllLanes, low, by));
      high = cuda::most(high, __shfl_xor_sync(kAllLanes, high, by));
    }
  }
}

// Ranges of groups that are no power of two, or larger than what a warp takes at once.
template <class Kept>
__device__ TUCKFOLD_NOINLINE void find_any_ranges(const Settings& s, unsigned count,
                                                  const WarpPart<Kept>& part, Groups groups) {
  for (unsigned begin = 0, g = 0; begin < count; begin += s.group, ++g) {
    const unsigned end = begin + s.group < count ? begin + s.group : count;
    bq::Range range;
    for (unsigned i = begin + lane_of(); i < end; i += kWarp) {
      const int image = bq::image_of(cuda::as_float(part.kept[i]));
      range = bq::join(range, {image, image});
    }
    range.low = __reduce_min_sync(kAllLanes, range.low);
    range.high = __reduce_max_sync(kAllLanes, range.high);
    if (lane_of() == 0) {
      groups.lows[g] = bq::float_of_image(range.low);
      groups.highs[g] = bq::float_of_image(range.high);
    }
  }
}

template <class Kept>
__device__ TUCKFOLD_INLINE void find_ranges(const Settings& s, unsigned count,
                                            const WarpPart<Kept>& part, const Groups& groups) {
  if (s.group_shift < 0) return find_any_ranges(s, count, part, groups);
  const int lanes = 1 << s.group_shift >> 3;
#pragma unroll 1
  for (unsigned begin = 0; begin < count; begin += 8 * kWarp) {
    const unsigned at = begin + 8 * lane_of();
    float low, high;
    range_of_group(part.kept + at, at < count, lanes, low, high);
    if (at < count && (at & (s.group - 1)) == 0) {
      groups.lows[at >> s.group_shift] = low;
      groups.highs[at >> s.group_shift] = high;
    }
  }
}

// Headers from ranges, a lane each.
template <bool kStochastic>
__device__ TUCKFOLD_INLINE void make_headers(const PackArgs& args, std::int64_t tile,
                                             unsigned count, const Groups& groups) {
  std::uint64_t seed = 0;
  if constexpr (kStochastic) {
    seed = args.seed + (args.device_seed != nullptr ? *args.device_seed : 0);
  }
#pragma unroll 1
  for (unsigned g = lane_of(); g < args.settings.groups(count); g += kWarp) {
    const float low = groups.lows[g], high = groups.highs[g], infinity = float_of(kInfBits);
    bq::Header header{kBF16Nan, 0};  // kNotFinite
    if (low > -infinity && high < infinity) {
      header = bq::header_of(low, high, static_cast<int>(args.settings.bits), false);
    }
    groups.headers[g] = header.scale | static_cast<std::uint32_t>(header.minimum) << 16;
    groups.factors[g] = bq::to_sum<kStochastic>(header).factor;
    if constexpr (kStochastic) groups.keys[g] = bq::group_key(seed, group_number(tile, g));
  }
}

// Moves codes, a byte each, to the side of 0 that their values are on.
__device__ TUCKFOLD_NOINLINE void keep_signs(const float* x, std::uint32_t header, unsigned bits,
                                             std::uint32_t (&codes)[2]) {
  const bq::Group group = bq::group_at(header);
  const int first = first_positive(group, (1 << bits) - 1);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int shift = i % 4 * 8, code = static_cast<int>(codes[i / 4] >> shift & 0xffu);
    const auto moved = static_cast<std::uint32_t>(with_sign_of(x[i], code, first));
    codes[i / 4] = (codes[i / 4] & ~(0xffu << shift)) | moved << shift;
  }
}

// Stores a lane's eight codes, `bits` bytes.
__device__ TUCKFOLD_INLINE void store_codes(std::uint32_t low, std::uint32_t high, unsigned bits,
                                            unsigned char* to) {
  if (bits == 8) {
    *reinterpret_cast<uint2*>(to) = make_uint2(low, high);
  } else if (bits == 4) {
    *reinterpret_cast<std::uint32_t*>(to) = low;
  } else {
#pragma unroll
    for (unsigned i = 0; i < 7; ++i) {
      if (i < bits) to[i] = static_cast<unsigned char>((i < 4 ? low : high) >> i % 4 * 8);
    }
  }
}

// Codes in the place of the values. The codes of a step end before the values of the next begin: a
// value has no fewer bits than a code.
template <class Kept, bool kStochastic>
__device__ TUCKFOLD_INLINE void quantize_values(const Settings& s, unsigned count,
                                                WarpPart<Kept>& part, const Groups& groups) {
  auto* codes = reinterpret_cast<unsigned char*>(part.kept);
#pragma unroll 1
  for (unsigned begin = 0; begin < count; begin += 8 * kWarp) {
    const unsigned at = begin + 8 * lane_of();
    std::uint64_t packed = 0;
    if (at < count) {
      float x[8];
      load_eight(part.kept + at, x);
      const unsigned g = s.group_of(at);
      const float minimum = float_of(groups.headers[g] & 0xffff0000u);
      const bq::ToSum to_sum{minimum, groups.factors[g],
                             kStochastic ? bq::kToFixed : bq::kToInteger};
      std::uint32_t words[2];
#pragma unroll
      for (unsigned w = 0; w < 2; ++w) {
        std::uint32_t random = 0;
        if constexpr (kStochastic) {
          random = bq::random_bytes(groups.keys[g], (at - g * s.group) / 4 + w);
        }
        words[w] = bq::four_codes<kStochastic, false>(x + 4 * w, to_sum, 0.0f, random);
      }
      if (minimum < 0.0f && to_sum.factor != 0.0f) keep_signs(x, groups.headers[g], s.bits, words);
      packed = bq::eight_codes(words[0], words[1], static_cast<int>(s.bits));
      if (count - at < 8) packed &= (std::uint64_t{1} << (count - at) * s.bits) - 1;
    }
    __syncwarp();  // all lanes have read the values that codes replace
    if (at < count) {
      store_codes(static_cast<std::uint32_t>(packed), static_cast<std::uint32_t>(packed >> 32),
                  s.bits, codes + at / 8 * s.bits);
    }
  }
  __syncwarp();
  const unsigned end = (count + 7) / 8 * s.bits, byte = end + lane_of();  // of whole eights
  if (byte < 4 * s.code_words(count)) codes[byte] = 0;
  __syncwarp();
}

template <class Kept, bool kStochastic>
__device__ TUCKFOLD_INLINE void quantize_tile(const PackArgs& args, std::int64_t tile,
                                              unsigned count, WarpPart<Kept>& part,
                                              const Groups& groups) {
  find_ranges(args.settings, count, part, groups);
  __syncwarp();
  make_headers<kStochastic>(args, tile, count, groups);
  __syncwarp();
  quantize_values<Kept, kStochastic>(args.settings, count, part, groups);
}

// ---- tiles --------------------------------------------------------------------------------------

template <class T, bool kVectors, bool kStochastic>
__global__ void __launch_bounds__(kThreads, sizeof(KeptOf<T>) == 2 ? 4 : 3)
    pack_kernel(const __grid_constant__ PackArgs args) {
  using Kept = KeptOf<T>;
  __shared__ std::int64_t shared_block;
  __shared__ std::uint64_t shared_before;
  __shared__ std::uint32_t sizes[kWarps];
  if (threadIdx.x == 0) shared_block = cuda::take_ticket(args.tickets);
  __syncthreads();
  const Settings& s = args.settings;
  const unsigned lane = lane_of(), warp = warp_of();
  const std::int64_t block = shared_block, tile = block * kWarps + warp;
  WarpPart<Kept>& part = own_part<Kept>(args.part_bytes);
  const Groups group_arrays(s, part);
  const bool exists = tile < s.tiles;
  const unsigned count = exists ? keep_tile<T, kVectors>(args, tile, part) : 0;
  const unsigned groups = s.groups(count), code_words = s.code_words(count);
  if (lane == 0) sizes[warp] = groups + code_words;
  __syncthreads();
  unsigned inside = 0, all = 0;
#pragma unroll
  for (unsigned i = 0; i < kWarps; ++i) {
    if (i < warp) inside += sizes[i];
    all += sizes[i];
  }
  if (threadIdx.x == 0) cuda::publish_own(args.states, block, all);
  if (exists) {
    copy_mask(args, tile, part);
    quantize_tile<Kept, kStochastic>(args, tile, count, part, group_arrays);
  }
  if (warp == 0) {
    const std::uint64_t before = cuda::look_back(args.states, block);
    if (lane == 0) {
      cuda::publish_all(args.states, block, before + all);
      shared_before = before;
      if ((block + 1) * kWarps >= s.tiles) *args.verdict = s.front_bytes + 4 * (before + all);
    }
  }
  __syncthreads();
  if (!exists) return;
  const std::uint64_t began = shared_before + inside;
  auto* to = reinterpret_cast<std::uint32_t*>(args.out + s.front_bytes) + began;
  const auto* codes = reinterpret_cast<const std::uint32_t*>(part.kept);
  for (unsigned i = lane; i < groups; i += kWarp) {
    to[i] = group_arrays.headers[i];
  }
  for (unsigned i = lane; i < code_words; i += kWarp) {
    to[groups + i] = codes[i];
  }
  if (lane == 0) {
    reinterpret_cast<std::uint32_t*>(args.out)[tile] =
        static_cast<std::uint32_t>(began + groups + code_words);
  }
}

}  // namespace tuckfold::nonzero_quant
