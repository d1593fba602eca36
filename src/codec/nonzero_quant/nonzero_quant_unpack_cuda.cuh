// nonzero_quant's unpack kernel: tiles, one per warp, without communication between warps.
#pragma once

#include "codec/nonzero_quant/nonzero_quant_cuda.cuh"

namespace tuckfold::nonzero_quant {

struct UnpackArgs {
  View out;
  Settings settings;
  const std::byte* packed;
  std::uint64_t packed_bytes;
  std::uint64_t* verdict;
  std::uint32_t part_bytes;
};

// A lane's bits of a tile, for each vector, without those after the last value.
template <class Kept, unsigned kSteps>
__device__ TUCKFOLD_INLINE void load_mask(const UnpackArgs& args, std::int64_t tile,
                                          std::uint32_t (&bits)[kSteps]) {
  const auto* from = reinterpret_cast<const unsigned char*>(args.packed + args.settings.mask_at) +
                     tile * (kTileValues / 8);
  const unsigned elems = args.settings.tile_elems(tile), first = lane_of() * kV<Kept>;
#pragma unroll
  for (unsigned j = 0; j < kSteps; ++j) {
    const unsigned at = j * kStep<Kept> + first;
    bits[j] = 0;
    if (at < elems) bits[j] = static_cast<std::uint32_t>(__ldg(from + at / 8)) >> first % 8;
    bits[j] &= (1u << kV<Kept>)-1u;
  }
  if (elems == kTileValues) return;
#pragma unroll
  for (unsigned j = 0; j < kSteps; ++j) {
    const unsigned at = j * kStep<Kept> + first;
    if (at < elems && elems - at < kV<Kept>) bits[j] &= (1u << (elems - at)) - 1u;
  }
}

// The values of a lane's eight codes, four of them in each word.
template <class T>
__device__ TUCKFOLD_INLINE void store_eight(const std::uint32_t (&fours)[2], std::uint32_t header,
                                            unsigned bits, KeptOf<T>* to) {
  using Kept = KeptOf<T>;
  const std::uint32_t levels = (1u << bits) - 1u;
  const block_quant::Spread spread(header);
  const block_quant::Group group = block_quant::group_at(header);
  const auto code = [&](unsigned i) { return fours[i / 4] >> i % 4 * bits & levels; };
  float x[8];
#pragma unroll
  for (unsigned i = 0; i < 8; ++i) x[i] = spread.value(block_quant::kCodeBits | code(i));
  if (block_quant::is_extreme(group)) {
#pragma unroll
    for (unsigned i = 0; i < 8; ++i) {
      x[i] = block_quant::extreme_value(static_cast<int>(code(i)), group);
    }
  }
  // Values of a code are no less than the minimum, unless damaged bytes say otherwise.
  if (group.about_zero || !(group.minimum >= kSmallest<T>)) {
#pragma unroll
    for (unsigned i = 0; i < 8; ++i) x[i] = not_zero(x[i], kSmallest<T>);
  }
  auto* vectors = reinterpret_cast<uint4*>(to);
#pragma unroll
  for (unsigned i = 0; i < 8 / kV<Kept>; ++i) vectors[i] = cuda::vector_of<Kept>(x + i * kV<Kept>);
}

// Copies a payload to shared memory: headers after the part, codes to the end of the place for
// values. There values never reach codes that are not yet read, since they have no fewer bits.
template <class Kept>
__device__ TUCKFOLD_INLINE const std::uint32_t* stage_payload(const std::uint32_t* payload,
                                                              unsigned groups, unsigned words,
                                                              WarpPart<Kept>& part) {
  auto* headers = reinterpret_cast<std::uint32_t*>(&part + 1);
  auto* codes = reinterpret_cast<std::uint32_t*>(part.kept + kTileValues) - words;
  for (unsigned i = lane_of(); i < groups; i += kWarp) headers[i] = __ldg(payload + i);
#pragma unroll 4
  for (unsigned i = lane_of(); i < words; i += kWarp) codes[i] = __ldg(payload + groups + i);
  __syncwarp();
  return codes;
}

// Unpacks the values that are not 0, side by side.
template <class T>
__device__ TUCKFOLD_INLINE void unpack_values(const Settings& s, const std::uint32_t* codes,
                                              unsigned count, WarpPart<KeptOf<T>>& part) {
  const auto* headers = reinterpret_cast<const std::uint32_t*>(&part + 1);
#pragma unroll 1
  for (unsigned begin = 0; begin < count; begin += 8 * kWarp) {
    const unsigned at = begin + 8 * lane_of();
    std::uint32_t fours[2] = {}, header = 0;
    if (at < count) {
      const unsigned byte = at / 8 * s.bits, shift = byte % 4 * 8;
      const std::uint32_t* from = codes + byte / 4;  // up to two words after the codes are read
      const std::uint32_t low = __funnelshift_r(from[0], from[1], shift);
      const std::uint32_t high = s.bits > 4 ? __funnelshift_r(from[1], from[2], shift) : 0;
      fours[0] = low;
      fours[1] = s.bits == 8 ? high : __funnelshift_r(low, high, 4 * s.bits);
      header = headers[s.group_of(at)];
    }
    __syncwarp();  // all lanes have read the codes that values replace
    if (at < count) store_eight<T>(fours, header, s.bits, part.kept + at);
  }
  __syncwarp();
}

// The next of the kept values where a bit is set, else 0.
template <class Kept>
__device__ TUCKFOLD_INLINE uint4 spread_vector(std::uint32_t bits, const Kept* from) {
  Sixteen<Kept> some;
#pragma unroll
  for (unsigned i = 0; i < kV<Kept>; ++i) {
    some.values[i] = Kept{};
    if ((bits >> i & 1u) != 0) some.values[i] = *from++;
  }
  return std::bit_cast<uint4>(some);
}

template <class T>
__device__ TUCKFOLD_NOINLINE void refuse_tile(const UnpackArgs& args, std::int64_t tile) {
  if (lane_of() == 0) *args.verdict = kRefused;
  const std::int64_t end = tile * kTileValues + args.settings.tile_elems(tile);
  for (std::int64_t i = tile * kTileValues + lane_of(); i < end; i += kWarp) {
    reinterpret_cast<T*>(args.out.data)[args.out.offset(i)] =
        cuda::from_float<T>(float_of(kNanBits));
  }
}

template <class T, bool kVectors>
__global__ void __launch_bounds__(kThreads, sizeof(KeptOf<T>) == 2 ? 4 : 3)
    unpack_kernel(const __grid_constant__ UnpackArgs args) {
  using Kept = KeptOf<T>;
  const Settings& s = args.settings;
  const std::int64_t tile = static_cast<std::int64_t>(blockIdx.x) * kWarps + warp_of();
  if (tile >= s.tiles) return;
  WarpPart<Kept>& part = own_part<Kept>(args.part_bytes);
  const auto* ends = reinterpret_cast<const std::uint32_t*>(args.packed);
  const std::uint32_t began = tile > 0 ? __ldg(ends + tile - 1) : 0, ended = __ldg(ends + tile);
  constexpr unsigned kSteps = kTileValues / kStep<Kept>;
  std::uint32_t bits[kSteps];
  unsigned places[kSteps];
  load_mask<Kept>(args, tile, bits);
  const unsigned count = places_of<Kept>(bits, 0, places);
  const std::uint64_t wanted = std::uint64_t{began} + s.groups(count) + s.code_words(count);
  const std::uint64_t end_bytes = s.front_bytes + 4 * std::uint64_t{ended};
  const bool last = tile + 1 == s.tiles;
  if (ended != wanted || end_bytes > args.packed_bytes ||
      (last && end_bytes != args.packed_bytes)) {
    return refuse_tile<T>(args, tile);
  }
  const auto* payload = reinterpret_cast<const std::uint32_t*>(args.packed + s.front_bytes) + began;
  const std::uint32_t* codes = stage_payload(payload, s.groups(count), s.code_words(count), part);
  unpack_values<T>(s, codes, count, part);
  const std::int64_t first = tile * kTileValues + lane_of() * kV<Kept>;
  if (kVectors && s.tile_elems(tile) == kTileValues) {
    auto* to = reinterpret_cast<uint4*>(args.out.data) + first / kV<Kept>;
#pragma unroll
    for (unsigned j = 0; j < kSteps; ++j) {
      cuda::store_away(to + j * kWarp, spread_vector<Kept>(bits[j], part.kept + places[j]));
    }
  } else {
#pragma unroll
    for (unsigned j = 0; j < kSteps; ++j) {
      store_vector<T, kVectors>(args.out, first + j * kStep<Kept>,
                                spread_vector<Kept>(bits[j], part.kept + places[j]));
    }
  }
}

}  // namespace tuckfold::nonzero_quant
