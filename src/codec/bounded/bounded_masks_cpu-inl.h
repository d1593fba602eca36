// Payloads whose rows have masks: planes of narrow numbers without those that are 0. Rows are in
// bytes; eight values are a word of 64 bits, whose bytes after a transposition are their planes.
#if defined(TUCKFOLD_CODEC_BOUNDED_MASKS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TUCKFOLD_CODEC_BOUNDED_MASKS_INL_H
#undef TUCKFOLD_CODEC_BOUNDED_MASKS_INL_H
#else
#define TUCKFOLD_CODEC_BOUNDED_MASKS_INL_H
#endif

#include <hwy/highway.h>

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#include "codec/bounded/bounded_rows.h"

HWY_BEFORE_NAMESPACE();
namespace tuckfold::bounded::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline constexpr int kHalves = 2 * static_cast<int>(kRows);

struct Masks {
  alignas(64) std::uint8_t halves[kHalves], rows[kRows];
};

// The masks of a chunk's numbers, which are bytes: the OR of eight and of sixteen.
HWY_ATTR inline void masks_of(const std::uint8_t* bytes, Masks& masks) {
  const hn::ScalableTag<std::uint64_t> d;
  const hn::Rebind<std::uint8_t, decltype(d)> d8;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t i = 0; i < kHalves; i += lanes) {
    auto v = hn::Load(d, reinterpret_cast<const std::uint64_t*>(bytes) + i);
    v = hn::Or(v, hn::ShiftRight<32>(v));
    v = hn::Or(v, hn::ShiftRight<16>(v));
    v = hn::Or(v, hn::ShiftRight<8>(v));
    hn::StoreU(hn::TruncateTo(d8, v), d8, masks.halves + i);
  }
  for (int i = 0; i < kRows; ++i) {
    masks.rows[i] = static_cast<std::uint8_t>(masks.halves[2 * i] | masks.halves[2 * i + 1]);
  }
}

inline int bits_set(const std::uint8_t* bytes, int count) {
  int sum = 0;
  for (int i = 0; i < count; i += 8) {
    std::uint64_t word;
    std::memcpy(&word, bytes + i, 8);
    sum += std::popcount(word);
  }
  return sum;
}

inline PlaneCounts counts_of(const Masks& masks, int widest) {
  PlaneCounts counts{bits_set(masks.rows, kRows), bits_set(masks.halves, kHalves), 0};
  counts.widths = counts.rows;  // at least; four bits for a mask are no more than for a width
  if (widest <= 4) return counts;
  counts.widths = 0;
  for (const std::uint8_t mask : masks.rows) counts.widths += std::bit_width(mask);
  return counts;
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

// ---- planes -------------------------------------------------------------------------------------

// For each mask, where bytes come from: kGather stores planes, kSpread loads them, a byte of
// kNothing being 0. A word has one plane in each byte; a pair of words, with planes 0 … 7 of one
// half of a row and of the other, becomes planes of both halves and back.
inline constexpr std::uint8_t kNothing = 0x80;
template <int kSize>
using ByteOrders = std::array<std::array<std::uint8_t, kSize>, 256>;

template <bool kGather, int kSize>
constexpr ByteOrders<kSize> byte_orders() {
  constexpr int kWords = kSize / 8;
  ByteOrders<kSize> orders{};
  for (unsigned mask = 0; mask < 256; ++mask) {
    auto& order = orders[mask];
    order.fill(kNothing);
    unsigned rank = 0;
    for (unsigned plane = 0; plane < 8; ++plane) {
      if ((mask >> plane & 1u) == 0) continue;
      for (unsigned word = 0; word < kWords; ++word) {
        const unsigned apart = 8 * word + plane, together = kWords * rank + word;
        order[kGather ? together : apart] = static_cast<std::uint8_t>(kGather ? apart : together);
      }
      ++rank;
    }
  }
  return orders;
}
template <bool kGather, int kSize>
inline constexpr ByteOrders<kSize> kByteOrders = byte_orders<kGather, kSize>();

// Sixteen or eight bytes in that order.
template <bool kGather, int kSize>
HWY_ATTR HWY_INLINE void move_planes(const std::uint8_t* from, unsigned mask, std::uint8_t* to) {
  const std::uint8_t* order = kByteOrders<kGather, kSize>[mask].data();
#if HWY_TARGET == HWY_SCALAR
  for (int i = 0; i < kSize; ++i) to[i] = order[i] == kNothing ? std::uint8_t{0} : from[order[i]];
#else
  const hn::CappedTag<std::uint8_t, kSize> d;
  hn::StoreU(hn::TableLookupBytesOr0(hn::LoadU(d, from), hn::LoadU(d, order)), d, to);
#endif
}

// The planes of all rows, which are words of transposed bytes; returns the end. 16 bytes past it
// may change.
template <int kSize>
std::uint8_t* store_masked(const std::uint8_t* words, const std::uint8_t* masks, std::uint8_t* to) {
  for (int i = 0; i < kChunk; i += kSize, ++masks) {
    move_planes<true, kSize>(words + i, *masks, to);
    to += kSize / 8 * std::popcount(*masks);
  }
  return to;
}
// And back; may read 16 bytes past the end.
template <int kSize>
void load_masked(const std::uint8_t* from, const std::uint8_t* masks, std::uint8_t* words) {
  for (int i = 0; i < kChunk; i += kSize, ++masks) {
    move_planes<false, kSize>(from, *masks, words + i);
    from += kSize / 8 * std::popcount(*masks);
  }
}

}  // namespace tuckfold::bounded::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
