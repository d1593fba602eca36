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

#include "codec/bounded/bounded.h"
#include "codec/bounded/bounded_block.h"
#include "codec/bounded/bounded_buffers.h"

HWY_BEFORE_NAMESPACE();
namespace tuckfold::bounded::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline std::uint32_t coded_of(std::int32_t code) {
  return zigzag(static_cast<std::uint32_t>(code));
}

// How many bits a zigzag number gets. Numbers from the largest one of these bits on are escapes. An
// escape of 4 bits has another byte; past the largest byte, and past the largest number of 8 or 16
// bits, the code itself follows as i32.
enum Width : std::uint8_t { kHalf, kByte, kTwoBytes, kLastWidth = kTwoBytes };
constexpr std::uint32_t kEscapes[] = {0xf, 0xff, 0xffff};
constexpr std::uint32_t kPastMore = kEscapes[kHalf] + 0xff;

constexpr std::int64_t kGroup = 4;      // bytes that are left out together where all are 0
constexpr std::int64_t kWord = 8;       // bytes that are looked at together
constexpr std::int64_t kTrailing = 64;  // bytes after a plane that writing it may change
inline std::int64_t plane_bytes(Width width, std::int64_t count) {
  return width == kHalf ? (count + 1) / 2 : count;
}

// Zigzag numbers as bytes, and how many of them are escapes.
struct Counts {
  std::int64_t past_half, past_byte;
};
HWY_ATTR inline Counts narrow_codes(const std::int32_t* codes, std::int64_t count,
                                    std::uint8_t* __restrict narrow) {
  for (std::int64_t i = 0; i < count; ++i) {
    narrow[i] = static_cast<std::uint8_t>(std::min(coded_of(codes[i]), kEscapes[kByte]));
  }
  const hn::ScalableTag<std::uint8_t> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto half = hn::Set(d, std::uint8_t{kEscapes[kHalf]});
  const auto byte = hn::Set(d, std::uint8_t{kEscapes[kByte]});
  std::size_t past_half = 0, past_byte = 0;
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto coded = hn::LoadU(d, narrow + i);
    past_half += hn::CountTrue(d, hn::Eq(hn::Max(coded, half), coded));
    past_byte += hn::CountTrue(d, hn::Eq(coded, byte));
  }
  for (; i < count; ++i) {
    past_half += narrow[i] >= kEscapes[kHalf] ? 1 : 0;
    past_byte += narrow[i] == kEscapes[kByte] ? 1 : 0;
  }
  return {static_cast<std::int64_t>(past_half), static_cast<std::int64_t>(past_byte)};
}

inline std::int64_t count_from(const std::int32_t* codes, std::int64_t count, std::uint32_t least) {
  std::uint32_t found = 0;
  for (std::int64_t i = 0; i < count; ++i) found += coded_of(codes[i]) >= least ? 1 : 0;
  return found;
}

// The lowest bit of every escape in the eight bytes at i.
inline std::uint64_t escapes_at(const Planes& planes, Width width, std::int64_t i) {
  std::uint64_t bytes, beside;
  std::memcpy(&bytes, planes.low + i, kWord);
  if (width == kTwoBytes) {
    std::memcpy(&beside, planes.high + i, kWord);
    bytes &= beside;
  }
  bytes &= bytes >> 1;
  bytes &= bytes >> 2;
  if (width != kHalf) bytes &= bytes >> 4;
  return bytes & (width == kHalf ? 0x1111111111111111u : 0x0101010101010101u);
}

inline std::size_t count_escapes(const Planes& planes, Width width, std::int64_t count) {
  std::size_t found = 0;
  for (std::int64_t i = 0; i < plane_bytes(width, count); i += kWord) {
    found += static_cast<std::size_t>(std::popcount(escapes_at(planes, width, i)));
  }
  return found;
}

// Calls visit(place of a code) for the escapes.
template <class Visit>
void for_each_escape(const Planes& planes, Width width, std::int64_t count, Visit&& visit) {
  for (std::int64_t i = 0; i < plane_bytes(width, count); i += kWord) {
    for (std::uint64_t bits = escapes_at(planes, width, i); bits != 0; bits &= bits - 1) {
      const int bit = std::countr_zero(bits);
      visit(width == kHalf ? 2 * i + bit / 4 : i + bit / 8);
    }
  }
}

// Packs two numbers in each byte; numbers above 15 become 15.
inline void join_halves(std::uint8_t* bytes, std::int64_t count, std::uint8_t* __restrict halves) {
  for (std::int64_t i = 0; i < count; ++i) bytes[i] = std::min<std::uint8_t>(bytes[i], 15);
  for (std::int64_t i = 0; i < count / 2; ++i) {
    std::uint16_t pair;
    std::memcpy(&pair, bytes + 2 * i, 2);
    halves[i] = static_cast<std::uint8_t>(pair | pair >> 4);
  }
  if (count % 2 != 0) halves[count / 2] = bytes[count - 1];
}

// Splits codes, whose zigzag numbers are in `narrow`, into planes, padded with 0 to a whole word.
// May change `narrow`.
inline void split_codes(const std::int32_t* codes, std::int64_t count, Width width,
                        std::uint8_t* narrow, Planes& planes) {
  const std::int64_t bytes = plane_bytes(width, count);
  if (width == kHalf) {
    join_halves(narrow, count, planes.low);
  } else if (width == kByte) {
    std::memcpy(planes.low, narrow, static_cast<std::size_t>(count));
  } else {
    for (std::int64_t i = 0; i < count; ++i) {
      const std::uint32_t coded = std::min(coded_of(codes[i]), kEscapes[kTwoBytes]);
      planes.low[i] = static_cast<std::uint8_t>(coded);
      planes.high[i] = static_cast<std::uint8_t>(coded >> 8);
    }
    for (std::int64_t i = bytes; i % kWord != 0; ++i) planes.high[i] = 0;
  }
  for (std::int64_t i = bytes; i % kWord != 0; ++i) planes.low[i] = 0;
}

template <class D>
HWY_ATTR hn::Vec<D> coded_at(D d, const std::int32_t* codes) {
  const auto code = hn::LoadU(hn::RebindToSigned<D>(), codes);
  return hn::Xor(hn::BitCast(d, hn::ShiftLeft<1>(code)),
                 hn::BitCast(d, hn::BroadcastSignBit(code)));
}

// The second byte of 4-bit escapes. Codes have kTrailing readable bytes after them.
HWY_ATTR inline void split_more(const std::int32_t* codes, std::int64_t count, std::uint8_t* more) {
  const hn::ScalableTag<std::uint32_t> d;
  const hn::Rebind<std::uint8_t, decltype(d)> d8;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto escape = hn::Set(d, kEscapes[kHalf]), most = hn::Set(d, 0xffu);
  for (std::int64_t i = 0; i < count; i += lanes) {
    const auto coded = coded_at(d, codes + i);
    const auto is_escape = hn::Eq(hn::Max(coded, escape), coded);
    const auto beyond = hn::Min(hn::Sub(coded, escape), most);
    hn::StoreU(hn::TruncateTo(d8, hn::Compress(beyond, is_escape)), d8, more);
    more += hn::CountTrue(d, is_escape);
  }
}

// Writes the codes whose zigzag numbers are at least `least`; there are few.
HWY_ATTR inline std::byte* store_escapes(const std::int32_t* codes, std::int64_t count,
                                         std::uint32_t least, std::byte* to) {
  const hn::ScalableTag<std::uint32_t> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto from = hn::Set(d, least);
  for (std::int64_t i = 0; i < count; i += lanes) {
    const auto coded = coded_at(d, codes + i);
    if (HWY_LIKELY(hn::AllFalse(d, hn::Eq(hn::Max(coded, from), coded)))) continue;
    for (std::int64_t j = i; j < std::min(i + lanes, count); ++j) {
      if (coded_of(codes[j]) < least) continue;
      std::memcpy(to, &codes[j], 4);
      to += 4;
    }
  }
  return to;
}

// Codes from their planes, without escapes.
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

// Writes a bit for every group and the bytes of groups that are not 0. Returns the end; kTrailing
// bytes after it may have changed.
HWY_ATTR inline std::byte* store_plane(const std::uint8_t* plane, std::int64_t bytes,
                                       std::byte* to) {
  const hn::CappedTag<std::uint32_t, kTrailing / kGroup> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t groups = groups_of(bytes);
  std::byte* mask = to;
  to += mask_bytes(bytes);
  std::int64_t g = 0;
  for (; g + kTrailing / kGroup <= groups; g += kTrailing / kGroup) {
    std::uint16_t bits = 0;
    for (std::int64_t i = 0; i < kTrailing / kGroup; i += lanes) {
      const auto some = hn::LoadU(d, reinterpret_cast<const std::uint32_t*>(plane) + g + i);
      const auto present = hn::Ne(some, hn::Zero(d));
      std::uint8_t stored[8] = {};
      hn::StoreMaskBits(d, present, stored);
      std::uint16_t part;
      std::memcpy(&part, stored, 2);
      bits = static_cast<std::uint16_t>(bits | part << i);
      hn::StoreU(hn::Compress(some, present), d, reinterpret_cast<std::uint32_t*>(to));
      to += std::popcount(part) * kGroup;
    }
    std::memcpy(mask + g / 8, &bits, 2);
  }
  for (; g < groups; g += 8) {
    unsigned bits = 0;
    const std::int64_t some = std::min<std::int64_t>(8, groups - g);
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

// Reads what store_plane wrote, padded with 0 to a whole word; false if the payload ends too early.
// `present` has room for Planes::kRoom and eight groups.
inline bool load_plane(std::span<const std::byte>& from, std::int64_t bytes, std::byte* present,
                       std::uint8_t* plane) {
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
  for (std::size_t i = 0; i < front; ++i, plane += 8 * kGroup) {
    const auto bits = static_cast<unsigned>(mask[i]);
    if (bits == 0) {
      std::memset(plane, 0, 8 * kGroup);
    } else if (bits == 0xff) {
      std::memcpy(plane, next, 8 * kGroup);
      next += 8 * kGroup;
    } else {
      for (int g = 0; g < 8; ++g) {
        std::uint32_t group;
        std::memcpy(&group, next, kGroup);
        group &= 0 - (bits >> g & 1u);
        std::memcpy(plane + g * kGroup, &group, kGroup);
        next += (bits >> g & 1u) * kGroup;
      }
    }
  }
  from = from.subspan(front + size);
  return true;
}

// Reads planes and escapes; false if the payload ends too early or has surplus escapes.
template <class Real>
bool load_codes(std::span<const std::byte>& from, Width width, std::size_t escapes,
                std::int64_t count, PartBuffers<Real>& buffers) {
  Planes& planes = buffers.planes;
  std::int32_t* codes = buffers.codes;
  const std::int64_t bytes = plane_bytes(width, count);
  if (!load_plane(from, bytes, buffers.present, planes.low)) return false;
  if (width == kTwoBytes && !load_plane(from, bytes, buffers.present, planes.high)) return false;
  // Damaged input may have a nonzero half byte after the last code.
  if (width == kHalf && count % 2 != 0) planes.low[bytes - 1] &= 15;
  for (std::int64_t i = bytes; i % kWord != 0; ++i) planes.low[i] = 0;
  join_codes(planes, width, count, codes);
  const std::size_t more = width == kHalf ? count_escapes(planes, width, count) : 0;
  if (from.size() < more || (from.size() - more) / 4 < escapes) return false;
  bool good = true;
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
