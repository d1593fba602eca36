// How a payload of codes=bits says which bit planes it stores of a chunk's 64 rows. A width stores
// the first planes of a row. A mask stores those that are not 0: of a row, 16 bits each, or of each
// half of a row, 8 bits each. Narrow numbers use the form that needs the fewest bytes.
#pragma once

#include <cstdint>

#include "base/device.h"
#include "codec/bounded/bounded.h"

namespace tuckfold::bounded {

enum Form : int { kWidths, kRowMasks, kHalfMasks };
inline constexpr int kLastForm = kHalfMasks;

// The widest numbers that masks are for, and the bits of one mask.
inline constexpr int kMaskedBits = 8;
TUCKFOLD_HOST_DEVICE constexpr int mask_bits(int widest) {
  return widest <= 2 ? widest : widest <= 4 ? 4 : 8;
}
TUCKFOLD_HOST_DEVICE constexpr bool is_mask_bits(int bits) {
  return bits == 1 || bits == 2 || bits == 4 || bits == 8;
}

// Words before the planes: two bytes, and then widths of 4 bits or masks.
TUCKFOLD_HOST_DEVICE constexpr int front_words(Form form, int bits) {
  constexpr int kRowCount = static_cast<int>(kRows);
  return 1 + kRowCount * (form == kWidths ? 4 : form == kRowMasks ? bits : 2 * bits) / 16;
}
static_assert(front_words(kWidths, 0) == kWidthWords);
static_assert(front_words(kRowMasks, 1) == kLeastWords);

// Planes of a chunk that the forms would store: bits that are set in the masks of rows and of
// halves, and the sum of widths.
struct PlaneCounts {
  int rows, halves, widths;
};

TUCKFOLD_HOST_DEVICE constexpr int words_of(Form form, int widest, const PlaneCounts& counts) {
  return front_words(form, mask_bits(widest)) + (form == kWidths     ? counts.widths
                                                 : form == kRowMasks ? counts.rows
                                                                     : (counts.halves + 1) / 2);
}

// The form for numbers of at most kMaskedBits; others have widths.
TUCKFOLD_HOST_DEVICE constexpr Form form_of(int widest, const PlaneCounts& counts) {
  const int rows = words_of(kRowMasks, widest, counts);
  const int halves = words_of(kHalfMasks, widest, counts);
  const int widths = words_of(kWidths, widest, counts);
  if (widths < rows && widths < halves) return kWidths;
  return halves < rows ? kHalfMasks : kRowMasks;
}

}  // namespace tuckfold::bounded
