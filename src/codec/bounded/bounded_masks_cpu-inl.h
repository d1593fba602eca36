// Payloads whose halves of rows have masks: planes of narrow numbers without those that are 0. Rows
// are in bytes; eight values are a word of 64 bits, whose bytes after a transposition are their
// planes.
#if defined(TUCKFOLD_CODEC_BOUNDED_MASKS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TUCKFOLD_CODEC_BOUNDED_MASKS_INL_H
#undef TUCKFOLD_CODEC_BOUNDED_MASKS_INL_H
#else
#define TUCKFOLD_CODEC_BOUNDED_MASKS_INL_H
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "codec/bounded/bounded_rows.h"

HWY_BEFORE_NAMESPACE();
namespace tuckfold::bounded::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A mask has a bit for each plane of half a row, whose numbers have K bytes.
template <int K>
using Mask = std::conditional_t<K == 1, std::uint8_t, std::uint16_t>;  // K is at most 2
template <int K>
struct Masks {
  alignas(64) Mask<K> halves[kHalves];
};

// The masks of a chunk's numbers, which are bytes: the OR of eight.
template <int K>
HWY_ATTR void masks_of(const std::uint8_t (*bytes)[kChunk], Masks<K>& masks) {
  const hn::ScalableTag<std::uint64_t> d;
  const hn::Rebind<Mask<K>, decltype(d)> narrow;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto of_byte = [&](int k, std::int64_t i) HWY_ATTR {
    auto v = hn::Load(d, reinterpret_cast<const std::uint64_t*>(bytes[k]) + i);
    v = hn::Or(v, hn::ShiftRight<32>(v));
    v = hn::Or(v, hn::ShiftRight<16>(v));
    return hn::Or(v, hn::ShiftRight<8>(v));
  };
  for (std::int64_t i = 0; i < kHalves; i += lanes) {
    auto v = of_byte(0, i);
    if constexpr (K > 1) {
      v = hn::Or(hn::And(v, hn::Set(d, 0xffu)), hn::ShiftLeft<8>(of_byte(1, i)));
    }
    hn::StoreU(hn::TruncateTo(narrow, v), narrow, masks.halves + i);
  }
}

// Planes below `full` are stored of all four halves of a group; masks say which of the others are,
// up to the last, `width` - 1. They take `bytes`.
struct Groups {
  alignas(64) std::uint64_t width[kGroupCount], full[kGroupCount], bytes[kGroupCount];
  int all_bytes;
};
template <class D>
HWY_ATTR HWY_INLINE auto group_bytes(D d, hn::Vec<D> width, hn::Vec<D> full) {
  return hn::ShiftRight<1>(hn::Add(hn::Sub(width, full), hn::Set(d, 1u)));
}
// Four masks to a lane.
template <int K, class D>
HWY_ATTR HWY_INLINE hn::Vec<D> load_four(D d, const Masks<K>& masks, std::int64_t i) {
  if constexpr (K == 1) {
    const hn::Rebind<std::uint32_t, D> d32;
    return hn::PromoteTo(d,
                         hn::LoadU(d32, reinterpret_cast<const std::uint32_t*>(masks.halves) + i));
  } else {
    return hn::Load(d, reinterpret_cast<const std::uint64_t*>(masks.halves) + i);
  }
}
template <int K, class D>
HWY_ATTR HWY_INLINE void store_four(D d, hn::Vec<D> four, std::int64_t i, Masks<K>& masks) {
  if constexpr (K == 1) {
    const hn::Rebind<std::uint32_t, D> d32;
    hn::StoreU(hn::TruncateTo(d32, four), d32, reinterpret_cast<std::uint32_t*>(masks.halves) + i);
  } else {
    hn::Store(four, d, reinterpret_cast<std::uint64_t*>(masks.halves) + i);
  }
}

template <int K>
HWY_ATTR void groups_of(const Masks<K>& masks, Groups& groups) {
  const hn::ScalableTag<std::uint64_t> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto planes = hn::Set(d, (std::uint64_t{1} << 8 * K) - 1), one = hn::Set(d, 1u);
  auto sum = hn::Zero(d);
  for (std::int64_t i = 0; i < kGroupCount; i += lanes) {
    const auto four = load_four(d, masks, i);
    auto any = hn::Or(four, hn::ShiftRight<16 * K>(four));
    any = hn::And(hn::Or(any, hn::ShiftRight<8 * K>(any)), planes);
    any = hn::Or(any, hn::ShiftRight<1>(any));  // and all bits below the highest
    any = hn::Or(any, hn::ShiftRight<2>(any));
    any = hn::Or(any, hn::ShiftRight<4>(any));
    if constexpr (K > 1) any = hn::Or(any, hn::ShiftRight<8>(any));
    auto all = hn::And(four, hn::ShiftRight<16 * K>(four));
    all = hn::And(hn::And(all, hn::ShiftRight<8 * K>(all)), planes);
    const auto width = hn::PopulationCount(any);
    const auto full = hn::PopulationCount(hn::AndNot(hn::Add(all, one), all));  // the lowest ones
    const auto bytes = group_bytes(d, width, full);
    hn::Store(width, d, groups.width + i);
    hn::Store(full, d, groups.full + i);
    hn::Store(bytes, d, groups.bytes + i);
    sum = hn::Add(sum, bytes);
  }
  groups.all_bytes = static_cast<int>(hn::GetLane(hn::SumOfLanes(d, sum)));
}

inline int bits_set(const void* bytes, std::size_t count) {
  int sum = 0;
  for (std::size_t i = 0; i < count; i += 8) {
    std::uint64_t word;
    std::memcpy(&word, static_cast<const std::byte*>(bytes) + i, 8);
    sum += std::popcount(word);
  }
  return sum;
}

// The sum of the rows' widths, two masks to a row.
template <int K>
HWY_ATTR int widths_of(const Masks<K>& masks) {
  const hn::ScalableTag<std::uint64_t> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto rows = hn::Set(d, K == 1 ? 0x00ff00ff00ff00ffu : 0x0000ffff0000ffffu);
  auto sum = hn::Zero(d);
  for (std::int64_t i = 0; i < kHalves * K / 8; i += lanes) {
    auto x = hn::Load(d, reinterpret_cast<const std::uint64_t*>(masks.halves) + i);
    x = hn::And(hn::Or(x, hn::ShiftRight<8 * K>(x)), rows);
    x = hn::Or(x, hn::ShiftRight<1>(x));  // and all bits below the highest
    x = hn::Or(x, hn::ShiftRight<2>(x));
    x = hn::Or(x, hn::ShiftRight<4>(x));
    if constexpr (K > 1) x = hn::Or(x, hn::ShiftRight<8>(x));
    sum = hn::Add(sum, hn::PopulationCount(hn::And(x, rows)));
  }
  return static_cast<int>(hn::GetLane(hn::SumOfLanes(d, sum)));
}

template <int K>
int row_width(const Masks<K>& masks, int row) {
  return std::bit_width(static_cast<unsigned>(masks.halves[2 * row] | masks.halves[2 * row + 1]));
}

// Of a chunk with masks; fills `groups` if the form may be kGroups.
template <int K>
PlaneCounts counts_of(const Masks<K>& masks, int widest, Groups& groups) {
  PlaneCounts counts{bits_set(masks.halves, sizeof(masks.halves)), widths_of(masks), 0};
  if (form_of(widest, counts) != kWidths) {
    groups_of(masks, groups);
    counts.mask_bytes = groups.all_bytes;
  }
  return counts;
}

// ---- masks of groups ----------------------------------------------------------------------------

// A group's masks one after the other, the bits for planes from `full` on of each, in 64 bits;
// and back.
template <int K, bool kJoin>
HWY_ATTR void move_group_masks(Masks<K>& masks, const Groups& groups, std::uint64_t* joined) {
  const hn::ScalableTag<std::uint64_t> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto one = hn::Set(d, 1u), all = hn::Set(d, (std::uint64_t{1} << 8 * K) - 1);
  for (std::int64_t i = 0; i < kGroupCount; i += lanes) {
    const auto full = hn::Load(d, groups.full + i);
    const auto bits = hn::Sub(hn::Load(d, groups.width + i), full), twice = hn::Add(bits, bits);
    if constexpr (kJoin) {
      const auto four = load_four(d, masks, i);
      const auto bits_of = [&](auto v) HWY_ATTR { return hn::Shr(hn::And(v, all), full); };
      const auto first = hn::Or(bits_of(four), hn::Shl(bits_of(hn::ShiftRight<8 * K>(four)), bits));
      const auto second = hn::Or(bits_of(hn::ShiftRight<16 * K>(four)),
                                 hn::Shl(bits_of(hn::ShiftRight<24 * K>(four)), bits));
      hn::Store(hn::Or(first, hn::Shl(second, twice)), d, joined + i);
    } else {
      const auto four = hn::Load(d, joined + i);
      const auto there = hn::Sub(hn::Shl(one, bits), one), below = hn::Sub(hn::Shl(one, full), one);
      const auto mask_of = [&](auto v)
                               HWY_ATTR { return hn::Or(hn::Shl(hn::And(v, there), full), below); };
      const auto rest = hn::Shr(four, twice);
      const auto first = hn::Or(mask_of(four), hn::ShiftLeft<8 * K>(mask_of(hn::Shr(four, bits))));
      const auto second = hn::Or(mask_of(rest), hn::ShiftLeft<8 * K>(mask_of(hn::Shr(rest, bits))));
      store_four(d, hn::Or(first, hn::ShiftLeft<16 * K>(second)), i, masks);
    }
  }
}

// Returns the end; up to 8 bytes past it may change.
template <int K>
std::uint8_t* store_groups(Masks<K>& masks, const Groups& groups, std::uint8_t* to) {
  alignas(64) std::uint64_t joined[kGroupCount];
  move_group_masks<K, true>(masks, groups, joined);
  for (int i = 0; i < kGroupCount; ++i) {
    *to++ = static_cast<std::uint8_t>(groups.width[i] | groups.full[i] << 4);
  }
  for (int i = 0; i < kGroupCount; ++i) {
    std::memcpy(to, joined + i, 8);
    to += groups.bytes[i];
  }
  return to;
}
// The groups of a payload. False if one contradicts itself.
HWY_ATTR inline bool read_groups(const std::uint8_t* heads, Groups& groups, bool& is_wide) {
  const hn::ScalableTag<std::uint64_t> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (int i = 0; i < kGroupCount; ++i) groups.width[i] = heads[i];
  auto sum = hn::Zero(d), wide = sum, bad = sum;  // the last by their highest bits
  for (std::int64_t i = 0; i < kGroupCount; i += lanes) {
    const auto head = hn::Load(d, groups.width + i);
    const auto width = hn::And(head, hn::Set(d, 15u)), full = hn::ShiftRight<4>(head);
    wide = hn::Or(wide, hn::Sub(hn::Set(d, 8u), width));
    bad = hn::Or(bad, hn::Sub(width, full));
    const auto bytes = group_bytes(d, width, full);
    hn::Store(width, d, groups.width + i);
    hn::Store(full, d, groups.full + i);
    hn::Store(bytes, d, groups.bytes + i);
    sum = hn::Add(sum, bytes);
  }
  // Bytes of such groups are no numbers to add up.
  if (!hn::AllFalse(d, hn::TestBit(bad, hn::Set(d, std::uint64_t{1} << 63)))) return false;
  groups.all_bytes = static_cast<int>(hn::GetLane(hn::SumOfLanes(d, sum)));
  is_wide = !hn::AllFalse(d, hn::TestBit(wide, hn::Set(d, std::uint64_t{1} << 63)));
  return true;
}
// Their masks; may read 8 bytes past the end.
template <int K>
void load_group_masks(const Groups& groups, const std::uint8_t* from, Masks<K>& masks) {
  alignas(64) std::uint64_t joined[kGroupCount];
  for (int i = 0; i < kGroupCount; ++i) {
    std::memcpy(joined + i, from, 8);
    from += groups.bytes[i];
  }
  move_group_masks<K, false>(masks, groups, joined);
}

// ---- masks of fewer than eight bits, eight at a time --------------------------------------------

// All ones in the low `bits` of every `of` bits.
constexpr std::uint64_t low_bits(int bits, int of) {
  if (bits == 64) return ~std::uint64_t{0};
  std::uint64_t all = 0;
  for (int i = 0; i < 64; i += of) all |= ((std::uint64_t{1} << bits) - 1) << i;
  return all;
}
template <int kBits>
std::uint8_t* store_masks(const std::uint8_t* masks, int count, std::uint8_t* to) {
  for (int i = 0; i < count; i += 8, to += kBits) {
    std::uint64_t x;
    std::memcpy(&x, masks + i, 8);
    x = (x | x >> (8 - kBits)) & low_bits(2 * kBits, 16);
    x = (x | x >> (16 - 2 * kBits)) & low_bits(4 * kBits, 32);
    x = x | x >> (32 - 4 * kBits);
    std::memcpy(to, &x, kBits);
  }
  return to;
}
template <int kBits>
void load_masks(const std::uint8_t* from, int count, std::uint8_t* masks) {
  for (int i = 0; i < count; i += 8, from += kBits) {
    std::uint64_t x = 0;
    std::memcpy(&x, from, kBits);
    x = (x | x << (32 - 4 * kBits)) & low_bits(4 * kBits, 32);
    x = (x | x << (16 - 2 * kBits)) & low_bits(2 * kBits, 16);
    x = (x | x << (8 - kBits)) & low_bits(kBits, 8);
    std::memcpy(masks + i, &x, 8);
  }
}
template <class Visit>
auto with_mask_bits(int bits, Visit&& visit) {
  if (bits == 1) return visit.template operator()<1>();
  if (bits == 2) return visit.template operator()<2>();
  if (bits == 4) return visit.template operator()<4>();
  return visit.template operator()<8>();
}

// What a payload with masks says about a chunk's halves.
struct AnyMasks {
  Masks<1> narrow;
  Masks<2> wide;
  bool is_wide;
  std::size_t front_bytes;  // before the planes
};

// False if the payload has too few or too many words for its masks.
inline bool read_masks(const std::uint8_t* payload, int words, AnyMasks& masks) {
  const Form form = form_in(payload[1]);
  const int bits = payload[0];
  if (form == kHalfMasks && !is_mask_bits(bits)) return false;
  if (words < front_words(form, bits)) return false;
  int front = 2 * front_words(form, bits);
  masks.is_wide = false;
  if (form == kHalfMasks) {
    with_mask_bits(
        bits, [&]<int kBits>() { load_masks<kBits>(payload + 2, kHalves, masks.narrow.halves); });
  } else {
    Groups groups;
    const std::uint8_t* from = payload + front;
    if (!read_groups(payload + 2, groups, masks.is_wide)) return false;
    front += groups.all_bytes;
    if (front > 2 * words) return false;
    if (masks.is_wide) {
      load_group_masks(groups, from, masks.wide);
    } else {
      load_group_masks(groups, from, masks.narrow);
    }
  }
  const int planes = masks.is_wide ? bits_set(masks.wide.halves, sizeof(masks.wide.halves))
                                   : bits_set(masks.narrow.halves, sizeof(masks.narrow.halves));
  masks.front_bytes = static_cast<std::size_t>(front);
  return words == (front + planes + 1) / 2;
}

// ---- planes -------------------------------------------------------------------------------------

// For each mask, where bytes come from: kGather stores planes, kSpread loads them, a byte of
// kNothing being 0. A word has one plane in each byte.
inline constexpr std::uint8_t kNothing = 0x80;
using ByteOrders = std::array<std::array<std::uint8_t, 8>, 256>;

template <bool kGather>
constexpr ByteOrders byte_orders() {
  ByteOrders orders{};
  for (unsigned mask = 0; mask < 256; ++mask) {
    auto& order = orders[mask];
    order.fill(kNothing);
    std::uint8_t rank = 0;
    for (std::uint8_t plane = 0; plane < 8; ++plane) {
      if ((mask >> plane & 1u) == 0) continue;
      order[kGather ? rank : plane] = kGather ? plane : rank;
      ++rank;
    }
  }
  return orders;
}
template <bool kGather>
inline constexpr ByteOrders kByteOrders = byte_orders<kGather>();

// Eight bytes in that order.
template <bool kGather>
HWY_ATTR HWY_INLINE void move_planes(const std::uint8_t* from, unsigned mask, std::uint8_t* to) {
  const std::uint8_t* order = kByteOrders<kGather>[mask].data();
#if HWY_TARGET == HWY_SCALAR
  for (int i = 0; i < 8; ++i) to[i] = order[i] == kNothing ? std::uint8_t{0} : from[order[i]];
#else
  const hn::CappedTag<std::uint8_t, 8> d;
  hn::StoreU(hn::TableLookupBytesOr0(hn::LoadU(d, from), hn::LoadU(d, order)), d, to);
#endif
}

// The planes of all halves, from words of transposed bytes; returns the end. 8 bytes past it may
// change.
template <int K>
HWY_ATTR std::uint8_t* store_masked(const std::uint8_t (*words)[kChunk], const Masks<K>& masks,
                                    std::uint8_t* to) {
  for (int i = 0; i < kHalves; ++i) {
    for (int k = 0; k < K; ++k) {
      const unsigned mask = masks.halves[i] >> 8 * k & 0xffu;
      move_planes<true>(words[k] + 8 * i, mask, to);
      to += std::popcount(mask);
    }
  }
  return to;
}
// And back; may read 8 bytes past the end.
template <int K>
HWY_ATTR void load_masked(const std::uint8_t* from, const Masks<K>& masks,
                          std::uint8_t (*words)[kChunk]) {
  for (int i = 0; i < kHalves; ++i) {
    for (int k = 0; k < K; ++k) {
      const unsigned mask = masks.halves[i] >> 8 * k & 0xffu;
      move_planes<false>(from, mask, words[k] + 8 * i);
      from += std::popcount(mask);
    }
  }
}

}  // namespace tuckfold::bounded::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
