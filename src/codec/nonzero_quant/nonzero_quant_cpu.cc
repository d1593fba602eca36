// nonzero_quant on the CPU: a tile's values that are not 0 are moved together, and then packed as
// block_quant packs groups; unpacking moves them apart again.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/nonzero_quant/nonzero_quant_cpu.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <type_traits>

#include "base/convert.h"
#include "base/convert_cpu-inl.h"
#include "codec/block_quant/block_quant_cpu-inl.h"
#include "codec/blocks/batch_cpu-inl.h"
#include "codec/blocks/bit_packing_cpu-inl.h"
#include "codec/nonzero_quant/nonzero_quant.h"

#ifndef TUCKFOLD_NONZERO_QUANT_RANKS
#define TUCKFOLD_NONZERO_QUANT_RANKS
namespace tuckfold::nonzero_quant {

// For each byte of a mask: how many of its bits are set below each bit.
inline constexpr auto kRanks = [] {
  std::array<std::array<std::uint8_t, 8>, 256> ranks{};
  for (unsigned byte = 0; byte < 256; ++byte) {
    for (unsigned bit = 0; bit < 8; ++bit) {
      ranks[byte][bit] = static_cast<std::uint8_t>(std::popcount(byte & ((1u << bit) - 1u)));
    }
  }
  return ranks;
}();

// The same as places of the two bytes of a half; 128, which gives 0, where a bit is not set.
inline constexpr auto kPlaces = [] {
  std::array<std::array<std::uint8_t, 16>, 256> places{};
  for (unsigned byte = 0; byte < 256; ++byte) {
    for (unsigned i = 0; i < 16; ++i) {
      const bool set = (byte >> (i / 2) & 1u) != 0;
      places[byte][i] = set ? static_cast<std::uint8_t>(2 * kRanks[byte][i / 2] + i % 2) : 128;
    }
  }
  return places;
}();

}  // namespace tuckfold::nonzero_quant
#endif

HWY_BEFORE_NAMESPACE();
namespace tuckfold::nonzero_quant::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace bq = tuckfold::block_quant::HWY_NAMESPACE;
using halves::HWY_NAMESPACE::OfBF16;
using halves::HWY_NAMESPACE::OfF16;
using tuckfold::HWY_NAMESPACE::put;
using tuckfold::HWY_NAMESPACE::room_for;
using tuckfold::HWY_NAMESPACE::spread_codes;
using tuckfold::HWY_NAMESPACE::squeeze_codes;
using tuckfold::HWY_NAMESPACE::take;
using tuckfold::HWY_NAMESPACE::with_bits;

constexpr std::int64_t kWordValues = 64, kTileWords = kTile / kWordValues;
constexpr std::int64_t kPad = 64;  // values that a vector may reach past the last one

// ---- values -------------------------------------------------------------------------------------

// How a tensor's values lie: as f32, or as one of the halves, which become f32 in registers.
struct OfF32 {};
template <class Of>
using Stored = std::conditional_t<std::is_same_v<Of, OfF32>, float, std::uint16_t>;

// Calls body with OfF32, OfF16 or OfBF16; other dtypes are converted to f32.
template <class Body>
auto with_stored(DType dtype, Body&& body) {
  if (dtype == DType::F16) return body(OfF16());
  if (dtype == DType::BF16) return body(OfBF16());
  return body(OfF32());
}

// A tile's values; gathered where they are not contiguous.
template <class Of>
const Stored<Of>* values_of(const FlatReader& in, std::int64_t first, std::int64_t count,
                            Stored<Of>* gathered) {
  if (!std::is_same_v<Of, OfF32> || in.dtype() == DType::F32) {
    return take(in, first, count, gathered);
  }
  if constexpr (std::is_same_v<Of, OfF32>) {
    in.gather(first, count, gathered);
    if (in.dtype() != DType::F64) return gathered;
    constexpr std::int64_t kSome = 256;
    double wide[kSome];
    for (std::int64_t at = 0; at < count; at += kSome) {
      const std::int64_t some = std::min(kSome, count - at);
      in.gather_bytes(first + at, some, wide);
      for (std::int64_t i = 0; i < some; ++i) gathered[at + i] = to_f32_not_zero(wide[i]);
    }
  }
  return gathered;
}

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

HWY_INLINE V load(OfF32, const float* from) { return hn::LoadU(D(), from); }
template <class Of>
HWY_INLINE V load(Of of, const std::uint16_t* from) {
  return widened_number(of, hn::LoadU(halves::HWY_NAMESPACE::D16(), from));
}

// The bits of whole words of values, and those that are not 0 side by side as f32; returns how
// many. Not CompressStore: some processors take very long for what it stores to memory at once.
template <class Of>
HWY_NOINLINE HWY_ATTR std::int64_t compress(Of of, const Stored<Of>* values, std::int64_t words,
                                            std::uint64_t* mask, float* kept) {
  const D d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto zero = hn::Zero(d);
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < words; ++i) {
    std::uint64_t bits = 0;
    for (std::int64_t at = 0; at < kWordValues; at += lanes) {
      const Stored<Of>* from = values + i * kWordValues + at;
      __builtin_prefetch(reinterpret_cast<const char*>(from) + kTile * sizeof(*from), 0, 2);
      const auto v = load(of, from);
      const auto set = hn::Not(hn::Eq(v, zero));  // NaN is not 0
      std::uint64_t some = 0;                     // StoreMaskBits may write all eight bytes
      hn::StoreMaskBits(d, set, reinterpret_cast<std::uint8_t*>(&some));
      bits |= some << at;
      hn::StoreU(hn::Compress(v, set), d, kept + count);
      count += std::popcount(some);
    }
    mask[i] = bits;
  }
  return count;
}

// The reverse: the next of `kept` where a bit is set, else 0.
HWY_NOINLINE HWY_ATTR void expand(const float* kept, const std::uint64_t* mask, std::int64_t words,
                                  float* values) {
  const hn::CappedTag<float, 8> d;
  const hn::Rebind<std::int32_t, decltype(d)> di;
  const hn::Rebind<std::uint8_t, decltype(d)> d8;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto all = (std::uint64_t{1} << lanes) - 1;
  for (std::int64_t i = 0; i < words; ++i) {
    for (std::int64_t at = 0; at < kWordValues; at += lanes) {
      const std::uint64_t some = mask[i] >> at & all;
      const auto ranks = hn::PromoteTo(di, hn::LoadU(d8, kRanks[some].data()));
      const auto spread = hn::TableLookupLanes(hn::LoadU(d, kept), hn::IndicesFromVec(d, ranks));
      const auto set = hn::LoadMaskBits(d, reinterpret_cast<const std::uint8_t*>(&some));
      hn::StoreU(hn::IfThenElseZero(set, spread), d, values + i * kWordValues + at);
      kept += std::popcount(some);
    }
  }
}
HWY_NOINLINE HWY_ATTR void expand(const std::uint16_t* kept, const std::uint64_t* mask,
                                  std::int64_t words, std::uint16_t* values) {
  for (std::int64_t i = 0; i < words; ++i) {
    for (int at = 0; at < kWordValues; at += 8) {
      const std::uint64_t some = mask[i] >> at & 0xff;
      std::uint16_t* to = values + i * kWordValues + at;
#if HWY_TARGET == HWY_SCALAR
      for (int bit = 0; bit < 8; ++bit) to[bit] = some >> bit & 1 ? kept[kRanks[some][bit]] : 0;
#else
      const hn::FixedTag<std::uint16_t, 8> d;
      const hn::Repartition<std::uint8_t, decltype(d)> bytes;
      const auto places = hn::LoadU(bytes, kPlaces[some].data());
      const auto next = hn::BitCast(bytes, hn::LoadU(d, kept));
      hn::StoreU(hn::BitCast(d, hn::TableLookupBytesOr0(next, places)), d, to);
#endif
      kept += std::popcount(some);
    }
  }
}

HWY_ATTR void keep_from_zero(float* values, std::int64_t count, float smallest) {
  for (std::int64_t i = 0; i < count; ++i) values[i] = not_zero(values[i], smallest);
}

// ---- a group ------------------------------------------------------------------------------------

template <int B>
void write_header(const float* values, std::int64_t count, std::byte* header_at) {
  bq::Range range;
  bq::widen_range(values, count, range);
  const block_quant::Header header = range.finite
                                         ? block_quant::header_of(range.low, range.high, B, false)
                                         : block_quant::kNotFinite;
  std::memcpy(header_at, &header, 4);
}

template <int B>
void write_codes(const PackJob& job, std::uint64_t number, const float* values, std::int64_t count,
                 const std::byte* header_at, std::uint8_t* codes) {
  constexpr int kLevels = (1 << B) - 1;
  block_quant::Header header;
  std::memcpy(&header, header_at, 4);
  const block_quant::Group group = block_quant::group_of(header);
  if (!(group.scale < float_of(kInfBits))) {
    std::memset(codes, 0, static_cast<std::size_t>(count));
    return;
  }
  const block_quant::Scaling scaling = block_quant::scaling_of(group);
  const std::uint32_t key = job.params.stochastic ? block_quant::group_key(job.seed, number) : 0;
  for (std::int64_t at = 0; at < count; at += bq::kBatchValues) {
    const std::int64_t some = std::min(bq::kBatchValues, count - at);
    (job.params.stochastic ? bq::quantize<true> : bq::quantize<false>)(values + at, some, scaling,
                                                                       kLevels, key, at,
                                                                       codes + at);
  }
  if (!(group.minimum < 0.0f)) return;
  const int positive = first_positive(group, kLevels);
  for (std::int64_t i = 0; i < count; ++i) {
    codes[i] = static_cast<std::uint8_t>(with_sign_of(values[i], codes[i], positive));
  }
}

void unpack_group(const block_quant::Group& group, const std::uint8_t* codes, std::int64_t count,
                  float smallest, float* values) {
  bq::dequantize<false>(codes, count, group, values);
  // Values of a code are no less than the minimum, unless damaged bytes say otherwise.
  if (group.about_zero || !(group.minimum >= smallest)) keep_from_zero(values, count, smallest);
}

// ---- tiles --------------------------------------------------------------------------------------

template <int B>
std::int64_t pack_tile(const PackJob& job, std::int64_t tile, std::byte* out) {
  const Params& p = job.params;
  alignas(64) float kept[kTile + kPad];
  alignas(64) std::uint8_t codes[kTile + kPad];
  std::uint64_t mask[kTileWords];
  const std::int64_t first = tile * kTile, elems = std::min(kTile, job.in->elems() - first);
  const std::int64_t whole = elems / kWordValues, rest = elems % kWordValues;
  const std::int64_t count = with_stored(job.in->dtype(), [&]<class Of>(Of of) {
    alignas(64) Stored<Of> gathered[kTile];
    const Stored<Of>* values = values_of<Of>(*job.in, first, elems, gathered);
    std::int64_t some = compress(of, values, whole, mask, kept);
    if (rest != 0) {
      alignas(64) Stored<Of> last[kWordValues] = {};
      std::copy_n(values + whole * kWordValues, rest, last);
      some += compress(of, last, 1, mask + whole, kept + some);
    }
    return some;
  });
  std::memcpy(job.mask + first / 8, mask, static_cast<std::size_t>((elems + 7) / 8));

  const std::int64_t groups = (count + p.group - 1) / p.group;
  // All headers first: a group's codes would wait for its own.
  for (std::int64_t g = 0; g < groups; ++g) {
    const std::int64_t at = g * p.group;
    write_header<B>(kept + at, std::min(p.group, count - at), out + g * 4);
  }
  for (std::int64_t g = 0; g < groups; ++g) {
    const std::int64_t at = g * p.group;
    write_codes<B>(job, group_number(tile, g), kept + at, std::min(p.group, count - at),
                   out + g * 4, codes + at);
  }
  std::byte* to = out + groups * 4;
  squeeze_codes<B>(codes, count, to);
  const std::int64_t words = p.words(count), bytes = (count * B + 7) / 8;
  std::memset(to + bytes, 0, static_cast<std::size_t>((words - groups) * 4 - bytes));
  return words;
}

template <int B>
bool unpack_tile(const UnpackJob& job, std::int64_t tile) {
  const Params& p = job.params;
  alignas(64) float kept[kTile + kPad];
  alignas(64) std::uint8_t codes[kTile + kPad];
  std::uint64_t mask[kTileWords] = {};
  const std::int64_t first = tile * kTile, elems = std::min(kTile, job.out->elems() - first);
  std::memcpy(mask, job.mask + first / 8, static_cast<std::size_t>((elems + 7) / 8));
  const std::int64_t rest = elems % kWordValues,
                     mask_words = (elems + kWordValues - 1) / kWordValues;
  if (rest != 0) mask[mask_words - 1] &= (std::uint64_t{1} << rest) - 1;
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < mask_words; ++i) count += std::popcount(mask[i]);

  std::uint32_t began = 0, ended;
  if (tile > 0) std::memcpy(&began, job.ends + (tile - 1) * 4, 4);
  std::memcpy(&ended, job.ends + tile * 4, 4);
  if (static_cast<std::int64_t>(ended - began) != p.words(count)) return false;

  const std::byte* headers = job.payloads + std::size_t{began} * 4;
  const std::int64_t groups = (count + p.group - 1) / p.group;
  const float smallest = smallest_of(job.out->dtype());
  spread_codes<B>(headers + groups * 4, count, codes);
  for (std::int64_t g = 0; g < groups; ++g) {
    const std::int64_t at = g * p.group;
    block_quant::Header header;
    std::memcpy(&header, headers + g * 4, 4);
    unpack_group(block_quant::group_of(header), codes + at, std::min(p.group, count - at), smallest,
                 kept + at);
  }
  std::fill_n(kept + count, kPad, 0.0f);
  const DType dtype = job.out->dtype();
  with_stored(dtype, [&]<class Of>(Of) {
    alignas(64) Stored<Of> buffer[kTile];
    if constexpr (std::is_same_v<Of, OfF32>) {
      if (dtype != DType::F32) {
        expand(kept, mask, mask_words, buffer);
        return job.out->scatter(first, elems, buffer);
      }
    }
    // Whole words are written.
    Stored<Of>* values = rest == 0 ? room_for(*job.out, first, elems, buffer) : buffer;
    if constexpr (std::is_same_v<Of, OfF32>) {
      expand(kept, mask, mask_words, values);
    } else {
      // Those that are not 0 are fewer than all.
      alignas(64) std::uint16_t halves[kTile + kPad];
      from_floats(kept, count + kPad, reinterpret_cast<typename Of::Half*>(halves));
      expand(halves, mask, mask_words, values);
    }
    put(*job.out, first, elems, values, buffer, job.stream);
  });
  return true;
}

std::int64_t pack_tiles_target(const PackJob& job, std::int64_t begin, std::int64_t end,
                               std::byte* out) {
  std::int64_t words = 0;
  with_bits<1, 8>(job.params.bits, [&]<int B>() {
    for (std::int64_t tile = begin; tile < end; ++tile) {
      const std::int64_t own = pack_tile<B>(job, tile, out + words * 4);
      const auto stored = static_cast<std::uint32_t>(own);
      std::memcpy(job.ends + tile * 4, &stored, 4);
      words += own;
    }
  });
  return words;
}

bool unpack_tiles_target(const UnpackJob& job, std::int64_t begin, std::int64_t end) {
  bool good = true;
  with_bits<1, 8>(job.params.bits, [&]<int B>() {
    for (std::int64_t tile = begin; tile < end; ++tile) good &= unpack_tile<B>(job, tile);
  });
  return good;
}

}  // namespace tuckfold::nonzero_quant::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "base/stream.h"

namespace tuckfold::nonzero_quant {

HWY_EXPORT(pack_tiles_target);
HWY_EXPORT(unpack_tiles_target);

std::int64_t pack_tiles(const PackJob& job, std::int64_t begin, std::int64_t end, std::byte* out) {
  return HWY_DYNAMIC_DISPATCH(pack_tiles_target)(job, begin, end, out);
}

bool unpack_tiles(const UnpackJob& job, std::int64_t begin, std::int64_t end) {
  const bool good = HWY_DYNAMIC_DISPATCH(unpack_tiles_target)(job, begin, end);
  if (job.stream) stream_fence();
  return good;
}

}  // namespace tuckfold::nonzero_quant
#endif  // HWY_ONCE
