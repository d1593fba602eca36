// How a payload of codes=bits says which bit planes it stores of a chunk's 64 rows. A width stores
// the first planes of a row. Masks store the planes of half rows that are not 0: with as many bits
// for each half of the chunk, or with as many as each group of four halves needs.
#pragma once

#include <cstdint>

#include "base/device.h"
#include "codec/bounded/bounded.h"

namespace tuckfold::bounded {

enum Form : int { kWidths, kHalfMasks, kGroups, kLastForm = kGroups };

// What a payload's numbers are: zigzag differences of codes, the codes, or zigzag differences with
// 2 added to odd ones. The last are |difference| above a sign: of even differences the second plane
// is then 0.
enum Numbers : int { kSteps, kCodes, kEvenSteps, kLastNumbers = kEvenSteps };

TUCKFOLD_HOST_DEVICE constexpr int front_byte(Form form, Numbers numbers) {
  return numbers | form << 2;
}
TUCKFOLD_HOST_DEVICE constexpr Form form_in(int front) { return static_cast<Form>(front >> 2); }
TUCKFOLD_HOST_DEVICE constexpr Numbers numbers_in(int front) {
  return static_cast<Numbers>(front & 3);
}
TUCKFOLD_HOST_DEVICE constexpr bool is_front(int front) {
  return form_in(front) <= kLastForm && numbers_in(front) <= kLastNumbers;
}

inline constexpr int kHalves = 2 * static_cast<int>(kRows);  // of rows, eight values each
inline constexpr int kGroupCount = kHalves / 4;

// The widest numbers that masks of halves and of groups are for, and the bits of one mask of a half.
// Planes of more than eight bits are slow to gather, which pays for differences of f32 and f64.
inline constexpr int kMaskedBits = 8, kGroupedBits = 15;
TUCKFOLD_HOST_DEVICE constexpr int grouped_bits(std::size_t value_bytes, bool differences) {
  return value_bytes >= 4 && differences ? kGroupedBits : kMaskedBits;
}
TUCKFOLD_HOST_DEVICE constexpr int mask_bits(int widest) {
  return widest <= 2 ? widest : widest <= 4 ? 4 : 8;
}
TUCKFOLD_HOST_DEVICE constexpr bool is_mask_bits(int bits) {
  return bits == 1 || bits == 2 || bits == 4 || bits == 8;
}
// Bytes of a group's four masks, which have bits for planes `full` … `width` - 1.
TUCKFOLD_HOST_DEVICE constexpr int group_mask_bytes(int width, int full) {
  return (width - full + 1) / 2;
}

// Words before the planes, without the masks of groups: two bytes, and then widths of 4 bits,
// masks, or the bytes that say which bits the masks of a group have.
inline constexpr int kGroupWords = 1 + kGroupCount / 2;
TUCKFOLD_HOST_DEVICE constexpr int front_words(Form form, int bits) {
  return form == kWidths ? kWidthWords : form == kHalfMasks ? 1 + kHalves * bits / 16 : kGroupWords;
}
static_assert(front_words(kHalfMasks, 1) == kLeastWords);

// What the forms would store: planes of halves that are not 0, the sum of the rows' widths, and the
// bytes of groups' masks.
struct PlaneCounts {
  int halves, widths, mask_bytes;
};

TUCKFOLD_HOST_DEVICE constexpr int words_of(Form form, int widest, const PlaneCounts& counts) {
  return front_words(form, mask_bits(widest)) + (form == kWidths ? counts.widths
                                                 : form == kHalfMasks
                                                     ? (counts.halves + 1) / 2
                                                     : (counts.halves + counts.mask_bytes + 1) / 2);
}

// The form for numbers of at most grouped_bits; others have widths. Widths are the fastest, so that
// masks must save more than one part in 32.
TUCKFOLD_HOST_DEVICE constexpr Form form_of(int widest, const PlaneCounts& counts) {
  const int widths = words_of(kWidths, widest, counts);
  const int groups = words_of(kGroups, widest, counts);
  const int halves = widest <= kMaskedBits ? words_of(kHalfMasks, widest, counts) : groups + 1;
  const int masked = halves <= groups ? halves : groups;
  if (masked + widths / 32 >= widths) return kWidths;
  return halves <= groups ? kHalfMasks : kGroups;
}

}  // namespace tuckfold::bounded
