// The bytes of codes=bytes: small codes in planes, groups of 0 left out, escapes apart.
#if defined(TUCKFOLD_CODEC_BOUNDED_PLANES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TUCKFOLD_CODEC_BOUNDED_PLANES_INL_H
#undef TUCKFOLD_CODEC_BOUNDED_PLANES_INL_H
#else
#define TUCKFOLD_CODEC_BOUNDED_PLANES_INL_H
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>

#include "codec/bounded.h"
#include "codec/bounded_block.h"

HWY_BEFORE_NAMESPACE();
namespace tuckfold::bounded::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline std::uint32_t coded_of(std::int32_t code) {
  return zigzag(static_cast<std::uint32_t>(code));
}

// How many bits a zigzag number gets; those from the last of these bits on are escapes. An escape
// of 4 bits has a byte more, and past the last of that, as with 8 and 16 bits, the code itself,
// i32.
enum Width : std::uint8_t { kHalf, kByte, kTwoBytes, kLastWidth = kTwoBytes };
constexpr std::uint32_t kEscapes[] = {0xf, 0xff, 0xffff};
constexpr std::uint32_t kPastMore = kEscapes[kHalf] + 0xff;

constexpr std::int64_t kGroup = 4;  // bytes that are left out together where all are 0
constexpr std::int64_t kWord = 8;   // bytes that are looked at together
inline std::int64_t plane_bytes(Width width, std::int64_t count) {
  return width == kHalf ? (count + 1) / 2 : count;
}

// A part's codes, in bytes.
struct Planes {
  static constexpr std::int64_t kRoom = (kPartValues + 64) / kWord * kWord;
  alignas(64) std::uint8_t low[kRoom];   // two codes of 4 bits, the first lowest, or one of 8
  alignas(64) std::uint8_t high[kRoom];  // what codes of 16 bits have beside
  alignas(64) std::uint8_t more[kRoom];  // of escapes of 4 bits, in the order of their places
};

inline std::int64_t count_from(const std::int32_t* codes, std::int64_t count, std::uint32_t least) {
  std::uint32_t found = 0;
  for (std::int64_t i = 0; i < count; ++i) found += coded_of(codes[i]) >= least ? 1 : 0;
  return found;
}

// Calls visit(place of a code) for the escapes.
template <class Visit>
void for_each_escape(const Planes& planes, Width width, std::int64_t count, Visit&& visit) {
  for (std::int64_t i = 0; i < plane_bytes(width, count); i += kWord) {
    std::uint64_t bytes, beside;
    std::memcpy(&bytes, planes.low + i, kWord);
    if (width == kTwoBytes) {
      std::memcpy(&beside, planes.high + i, kWord);
      bytes &= beside;
    }
    // The lowest bit of every four, or eight, that are all 1.
    bytes &= bytes >> 1;
    bytes &= bytes >> 2;
    if (width != kHalf) bytes &= bytes >> 4;
    bytes &= width == kHalf ? 0x1111111111111111u : 0x0101010101010101u;
    for (; bytes != 0; bytes &= bytes - 1) {
      const int bit = std::countr_zero(bytes);
      visit(width == kHalf ? 2 * i + bit / 4 : i + bit / 8);
    }
  }
}

// Halves, and what escapes have beside. The first `count` of `narrow` change.
HWY_ATTR inline void split_halves(const std::int32_t* codes, std::int64_t count,
                                  std::uint8_t* narrow, Planes& planes) {
  const hn::ScalableTag<std::uint32_t> d;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::Rebind<std::uint8_t, decltype(d)> d8;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto escape = hn::Set(d, kEscapes[kHalf]), most = hn::Set(d, 0xffu);
  std::int64_t i = 0, found = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto code = hn::LoadU(di, codes + i);
    const auto coded =
        hn::Xor(hn::BitCast(d, hn::ShiftLeft<1>(code)), hn::BitCast(d, hn::BroadcastSignBit(code)));
    const auto half = hn::Min(coded, escape);
    hn::StoreU(hn::TruncateTo(d8, half), d8, narrow + i);
    const auto is_escape = hn::Eq(half, escape);
    const auto more = hn::Min(hn::Sub(coded, escape), most);
    hn::StoreU(hn::TruncateTo(d8, hn::Compress(more, is_escape)), d8, planes.more + found);
    found += static_cast<std::int64_t>(hn::CountTrue(d, is_escape));
  }
  for (; i < count; ++i) {
    const std::uint32_t coded = coded_of(codes[i]);
    narrow[i] = static_cast<std::uint8_t>(std::min(coded, kEscapes[kHalf]));
    if (coded < kEscapes[kHalf]) continue;
    planes.more[found++] = static_cast<std::uint8_t>(std::min(coded - kEscapes[kHalf], 0xffu));
  }
  for (i = 0; i < count / 2; ++i) {
    std::uint16_t pair;
    std::memcpy(&pair, narrow + 2 * i, 2);
    planes.low[i] = static_cast<std::uint8_t>(pair | pair >> 4);
  }
  if (count % 2 != 0) planes.low[count / 2] = narrow[count - 1];
}

// With 0 up to a whole word.
inline void split_codes(const std::int32_t* codes, std::int64_t count, Width width,
                        Planes& planes) {
  const std::int64_t bytes = plane_bytes(width, count);
  for (std::int64_t i = bytes; i % kWord != 0; ++i) planes.low[i] = 0;
  if (width == kHalf) {
    split_halves(codes, count, planes.high, planes);
    return;
  }
  const auto coded = [&](std::int64_t i) { return std::min(coded_of(codes[i]), kEscapes[width]); };
  for (std::int64_t i = 0; i < count; ++i) planes.low[i] = static_cast<std::uint8_t>(coded(i));
  if (width == kByte) return;
  for (std::int64_t i = bytes; i % kWord != 0; ++i) planes.high[i] = 0;
  for (std::int64_t i = 0; i < count; ++i)
    planes.high[i] = static_cast<std::uint8_t>(coded(i) >> 8);
}

// Codes from their planes but for escapes.
inline void join_codes(const Planes& planes, Width width, std::int64_t count,
                       std::int32_t* __restrict codes) {
  const auto code = [](std::uint32_t coded) { return static_cast<std::int32_t>(unzigzag(coded)); };
  if (width == kHalf) {
    for (std::int64_t i = 0; i < count / 2; ++i) {
      codes[2 * i] = code(planes.low[i] & 15u);
      codes[2 * i + 1] = code(planes.low[i] >> 4);
    }
    if (count % 2 != 0) codes[count - 1] = code(planes.low[count / 2] & 15u);
  } else if (width == kByte) {
    for (std::int64_t i = 0; i < count; ++i) codes[i] = code(planes.low[i]);
  } else {
    for (std::int64_t i = 0; i < count; ++i) {
      codes[i] = code(planes.low[i] | std::uint32_t{planes.high[i]} << 8);
    }
  }
}

// ---- planes in the payload ----------------------------------------------------------------------

inline std::int64_t groups_of(std::int64_t bytes) { return (bytes + kGroup - 1) / kGroup; }
inline std::size_t mask_bytes(std::int64_t bytes) {
  return static_cast<std::size_t>((groups_of(bytes) + 7) / 8);
}

inline std::size_t stored_bytes(const std::uint8_t* plane, std::int64_t bytes) {
  std::size_t present = 0;
  for (std::int64_t g = 0; g < groups_of(bytes); ++g) {
    std::uint32_t group;
    std::memcpy(&group, plane + g * kGroup, kGroup);
    present += group != 0 ? 1 : 0;
  }
  return mask_bytes(bytes) + present * kGroup;
}

// Writes a bit for every group and the bytes of those that are not 0; returns the end, behind which
// kGroup bytes may have changed.
inline std::byte* store_plane(const std::uint8_t* plane, std::int64_t bytes, std::byte* to) {
  std::byte* mask = to;
  to += mask_bytes(bytes);
  for (std::int64_t g = 0; g < groups_of(bytes); g += 8) {
    unsigned bits = 0;
    const std::int64_t some = std::min<std::int64_t>(8, groups_of(bytes) - g);
    for (std::int64_t i = 0; i < some; ++i) {
      std::uint32_t group;
      std::memcpy(&group, plane + (g + i) * kGroup, kGroup);
      const unsigned present = group != 0 ? 1 : 0;
      std::memcpy(to, &group, kGroup);
      to += present * kGroup;
      bits |= present << i;
    }
    mask[g / 8] = static_cast<std::byte>(bits);
  }
  return to;
}

// Reads what store_plane wrote, with 0 up to a whole word; false where the payload ends too early.
inline bool load_plane(std::span<const std::byte>& from, std::int64_t bytes, std::uint8_t* plane) {
  alignas(64) std::byte present[Planes::kRoom + 8 * kGroup];
  const std::size_t front = mask_bytes(bytes);
  if (from.size() < front) return false;
  const std::byte* mask = from.data();
  std::size_t size = 0;
  for (std::size_t i = 0; i < front; ++i) {
    size += static_cast<std::size_t>(std::popcount(static_cast<unsigned>(mask[i]))) * kGroup;
  }
  if (from.size() - front < size || size > Planes::kRoom) return false;
  std::memcpy(present, from.data() + front, size);
  const std::byte* next = present;
  for (std::int64_t g = 0; g < groups_of(bytes); ++g) {
    const std::uint32_t bit = static_cast<unsigned>(mask[g / 8]) >> (g % 8) & 1u;
    std::uint32_t group;
    std::memcpy(&group, next, kGroup);
    group &= 0 - bit;
    std::memcpy(plane + g * kGroup, &group, kGroup);
    next += bit * kGroup;
  }
  for (std::int64_t i = groups_of(bytes) * kGroup; i % kWord != 0; ++i) plane[i] = 0;
  from = from.subspan(front + size);
  return true;
}

// Reads planes and escapes; false if the payload ends too early or has escapes to spare.
inline bool load_codes(std::span<const std::byte>& from, Width width, std::size_t escapes,
                       std::int64_t count, Planes& planes, std::int32_t* codes) {
  const std::int64_t bytes = plane_bytes(width, count);
  if (!load_plane(from, bytes, planes.low)) return false;
  if (width == kTwoBytes && !load_plane(from, bytes, planes.high)) return false;
  join_codes(planes, width, count, codes);
  std::size_t places = 0;
  bool good = true;
  for_each_escape(planes, width, count, [&](std::int64_t i) {
    good = good && i < count;
    ++places;
  });
  const std::size_t more = width == kHalf ? places : 0;
  if (!good || from.size() < more || (from.size() - more) / 4 < escapes) return false;
  const std::byte *next_more = from.data(), *next = from.data() + more;
  std::size_t left = escapes;
  for_each_escape(planes, width, count, [&](std::int64_t i) {
    if (width == kHalf) {
      const auto beyond_half = static_cast<std::uint32_t>(*next_more++);
      codes[i] = static_cast<std::int32_t>(unzigzag(kEscapes[kHalf] + beyond_half));
      if (beyond_half < 0xff) return;
    }
    if (left == 0) {
      good = false;
      return;
    }
    std::memcpy(&codes[i], next, 4);
    next += 4;
    --left;
  });
  from = from.subspan(more + 4 * escapes);
  return good && left == 0;
}

}  // namespace tuckfold::bounded::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
