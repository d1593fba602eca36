// The normative arithmetic of dct_quant on one block of 8 x 8, forward and inverse, and its bits.
// Every kernel, on any device, must give these bytes and these values.
//
// A block's 64 coefficients are cut into 16 tiles of 2 x 2, each with a width: its four values are
// integers of that many bits, in steps that the whole block shares. The header has the step and the
// widths, so decoding searches for nothing.
//
//   bits 0..9    step: the exponent and two bits of mantissa of an f32; 1023 marks a block that is
//                NaN throughout, 0 one of zeros where tile 0 has bits for them anyway
//   bits 10..13  width of tile 0, less `bias`
//   2 bits each  width of tile k less that of tile k-1, plus 2, for the tiles 1 … tiles-1
//   dc bits      the upper part of the first coefficient
//
// The bits that widths leave over give one more bit, so half the step, to as many of the first
// tiles.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/half.h"
#include "codec/dct_chop/dct_chop_block.h"

namespace tuckfold::dct_quant {

// Sizes that follow from the parameters of a stream.
struct Form {
  int bytes;      // a block, 8 * rate
  int dc;         // bits of the first coefficient beyond its tile's width
  int tiles;      // that are coded; the others are zero
  int nibbles;    // for the tiles' values, four bits each
  int bias;       // least width of tile 0
  int max_width;  // before the bit that is left over

  static constexpr Form of(int bytes, int dc) {
    Form form{.bytes = bytes, .dc = dc};
    form.tiles = std::min(16, 2 * (3 * bytes / 8));
    form.nibbles = 2 * bytes - form.header_bits() / 4;
    form.bias = std::max(0, (bytes + 7) / 8 - 8);
    form.max_width = form.bias == 0 ? 14 : std::min(15 + form.bias, 23);
    return form;
  }
  constexpr int header_bits() const { return 12 + 2 * tiles + dc; }
};

// Tiles in the order of the header: kTileRow[k], kTileCol[k] count pairs of frequencies.
TUCKFOLD_TABLE std::array<std::uint8_t, 16> kTileRow = {0, 0, 1, 2, 1, 0, 0, 1,
                                                        2, 3, 3, 2, 1, 2, 3, 3};
TUCKFOLD_TABLE std::array<std::uint8_t, 16> kTileCol = {0, 1, 0, 0, 1, 2, 3, 2,
                                                        1, 0, 1, 2, 3, 3, 2, 3};
// The row-major index of value t of tile k in a block of coefficients.
TUCKFOLD_HOST_DEVICE inline constexpr int place(int k, int t) {
  return (2 * kTileRow[k] + t / 2) * 8 + 2 * kTileCol[k] + t % 2;
}

// The tail has the tiles by columns: tile kTileAt[i] comes i-th.
TUCKFOLD_TABLE auto kTileAt = [] {
  std::array<std::uint8_t, 16> table{};
  for (int k = 0; k < 16; ++k) {
    table[kTileCol[k] * 4 + kTileRow[k]] = static_cast<std::uint8_t>(k);
  }
  return table;
}();

// The factors that both passes of the transform leave out.
TUCKFOLD_TABLE auto kScale = [] {
  std::array<float, 64> table{};
  for (int u = 0; u < 8; ++u) {
    for (int v = 0; v < 8; ++v) {
      table[u * 8 + v] =
          static_cast<float>(dct_chop::detail::alpha(u) * dct_chop::detail::alpha(v));
    }
  }
  return table;
}();

TUCKFOLD_HOST_DEVICE TUCKFOLD_INLINE void forward(const float* x, float* z) {
  float half[64];
  for (int j = 0; j < 8; ++j) dct_chop::forward_column_8(8, x + j, 8, half + j, 8);
  for (int u = 0; u < 8; ++u) dct_chop::forward_column_8(8, half + u * 8, 1, z + u * 8, 1);
  for (int i = 0; i < 64; ++i) z[i] = z[i] * kScale[i];
}

TUCKFOLD_HOST_DEVICE TUCKFOLD_INLINE void inverse(const float* z, float* x) {
  float scaled[64], half[64];
  for (int i = 0; i < 64; ++i) scaled[i] = z[i] * kScale[i];
  for (int u = 0; u < 8; ++u) dct_chop::inverse_column_8(8, scaled + u * 8, 1, half + u * 8, 1);
  for (int j = 0; j < 8; ++j) dct_chop::inverse_column_8(8, half + j, 8, x + j, 8);
}

// ---- steps and widths ---------------------------------------------------------------------------

TUCKFOLD_TABLE int kLeastStep = 80;      // 2^-107: its inverse and its half are ordinary numbers
inline constexpr int kNoStep = 1020;     // from here on steps would not be finite
inline constexpr int kNotFinite = 1023;  // marks a block that is NaN
inline constexpr int kHugeStep = 4 * (127 + 90);  // 2^90; below it no sum of codes overflows
inline constexpr int kNothing = 0;                // marks a block of zeros, where bias > 0
inline constexpr int kStepShift = 21;             // a step has what an f32 has above this bit

TUCKFOLD_HOST_DEVICE TUCKFOLD_INLINE float step_of(int q) {
  return float_of(static_cast<std::uint32_t>(q) << kStepShift);
}
// The same for a magnitude's bits, rounded down. The last number before a level counts as that
// level: multiplied by the inverse of a step, which is rounded up, it may reach the integer there.
TUCKFOLD_HOST_DEVICE TUCKFOLD_INLINE int level_of(std::uint32_t magnitude) {
  return static_cast<int>((magnitude + 1) >> kStepShift);
}

// The widths that a header gives the coded tiles. The bits that they leave over are given to the
// first tiles, four each.
struct Widths {
  std::array<int, 16> given{};    // by the header
  std::array<bool, 16> halved{};  // whether the tile has one bit more, and so half the step

  TUCKFOLD_HOST_DEVICE int total(int k) const { return given[k] + (halved[k] ? 1 : 0); }
  // False where the widths do not fit the block.
  TUCKFOLD_HOST_DEVICE bool share_out(const Form& form) {
    int left = form.nibbles;
    bool fits = true;
    for (int k = 0; k < form.tiles; ++k) {
      left -= given[k];
      fits = fits && given[k] >= 0 && given[k] <= form.max_width;
    }
    for (int k = 0; k < form.tiles; ++k) halved[k] = k < left && given[k] > 0;
    return fits && left >= 0;
  }
};

// The smallest step whose widths fit, with them; kNotFinite where there is none.
TUCKFOLD_HOST_DEVICE TUCKFOLD_INLINE int choose_step(const Form& form, const float* z,
                                                     Widths& widths) {
  // A tile is w bits wide or more for steps up to need - 4 w. Neighbours must not differ by more
  // than a header can express; because that shifts with the step, it is ensured before the search.
  int need[16] = {}, most = 0;
  const int first = level_of(bits_of(z[0]) & ~kSignBit);
  bool finite = first < kNoStep;
  for (int k = 0; k < form.tiles; ++k) {
    std::uint32_t largest = 0;  // of the magnitudes' bits: a NaN is larger than any number
    for (int t = k == 0 ? 1 : 0; t < 4; ++t) {
      largest = std::max(largest, bits_of(z[place(k, t)]) & ~kSignBit);
    }
    finite = finite && level_of(largest) < kNoStep;
    need[k] = level_of(largest) + 8;
    if (k == 0) need[0] = std::max(need[0], first + 8 - 4 * form.dc);
    most = std::max(most, need[k]);
  }
  if (!finite) return kNotFinite;
  for (int k = form.tiles - 1; k > 0; --k) need[k - 1] = std::max(need[k - 1], need[k] - 4);
  for (int k = 1; k < form.tiles; ++k) need[k] = std::max(need[k], need[k - 1] - 8);
  const auto sum_at = [&](int q) {
    int sum = 0;
    for (int k = 0; k < form.tiles; ++k) {
      const int least = k == 0 ? form.bias : widths.given[k - 1] - 2;
      widths.given[k] = std::max(std::max(need[k] - q, 0) >> 2, least);
      sum += widths.given[k];
    }
    return sum;
  };
  int low = std::max(kLeastStep, most - 4 * form.max_width - 3) - 1;
  int high = std::max(kLeastStep, most);  // fits always
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (sum_at(middle) <= form.nibbles ? high : low) = middle;
  }
  sum_at(high);
  return high < kNoStep ? high : kNotFinite;
}

// ---- bits ---------------------------------------------------------------------------------------

// Fields of a block, one after the other from its first bit on; at most 56 bits each.
class BitWriter {
 public:
  TUCKFOLD_HOST_DEVICE BitWriter(std::uint8_t* to, int bytes) : to_(to), end_(to + bytes) {}
  TUCKFOLD_HOST_DEVICE void put(std::uint64_t value, int bits) {
    pending_ |= (value & ((std::uint64_t{1} << bits) - 1)) << count_;
    for (count_ += bits; count_ >= 8; count_ -= 8, pending_ >>= 8) {
      *to_++ = static_cast<std::uint8_t>(pending_);
    }
  }
  // The rest is zero.
  TUCKFOLD_HOST_DEVICE void finish() {
    for (; to_ < end_; pending_ = 0) *to_++ = static_cast<std::uint8_t>(pending_);
  }

 private:
  std::uint8_t* to_;
  std::uint8_t* end_;
  std::uint64_t pending_ = 0;
  int count_ = 0;
};

class BitReader {
 public:
  TUCKFOLD_HOST_DEVICE explicit BitReader(const std::uint8_t* from) : from_(from) {}
  TUCKFOLD_HOST_DEVICE std::uint64_t get(int bits) {
    for (; count_ < bits; count_ += 8) pending_ |= static_cast<std::uint64_t>(*from_++) << count_;
    const std::uint64_t value = pending_ & ((std::uint64_t{1} << bits) - 1);
    pending_ >>= bits;
    count_ -= bits;
    return value;
  }

 private:
  const std::uint8_t* from_;
  std::uint64_t pending_ = 0;
  int count_ = 0;
};

// ---- a whole block ------------------------------------------------------------------------------

// The integer code of coefficient z in steps of 1 / inverse: rounded down, and half a step is added
// when decoding. The first coefficient is rounded to nearest, because it must keep 0 exact. z stays
// below the width's largest number because of how the width was chosen.
TUCKFOLD_HOST_DEVICE TUCKFOLD_INLINE std::int64_t code_of(float z, float inverse) {
  return static_cast<std::int64_t>(std::floor(z * inverse));
}
TUCKFOLD_HOST_DEVICE TUCKFOLD_INLINE std::int64_t first_code_of(float z, float inverse, int bits) {
  const auto code = static_cast<std::int64_t>(std::floor(std::fma(z, inverse, 0.5f)));
  return std::min(code, (std::int64_t{1} << (bits - 1)) - 1);
}

// 1 / step, correctly rounded: exact but for the two bits of mantissa.
TUCKFOLD_HOST_DEVICE TUCKFOLD_INLINE float inverse_of(int q) { return 1.0f / step_of(q); }

// Values of odd width store their lowest bit in the tail, so that the other bits of a tile are
// whole bytes.
TUCKFOLD_HOST_DEVICE TUCKFOLD_INLINE void write_codes(const Form& form, int q, const Widths& widths,
                                                      const std::int64_t (*codes)[4],
                                                      std::uint8_t* out) {
  BitWriter bits(out, form.bytes);
  bits.put(static_cast<std::uint64_t>(q), 10);
  bits.put(static_cast<std::uint64_t>(widths.given[0] - form.bias), 4);
  for (int k = 1; k < form.tiles; ++k) {
    bits.put(static_cast<std::uint64_t>(widths.given[k] - widths.given[k - 1] + 2), 2);
  }
  const int low_dc = form.header_bits() % 8;  // 0, or 4 bits that go to the tail
  const auto dc = static_cast<std::uint64_t>(codes[0][0] >> widths.total(0));
  bits.put(dc >> low_dc, form.dc - low_dc);
  for (int k = 0; k < form.tiles; ++k) {
    const int width = widths.total(k), low = width % 2;
    for (int t = 0; t < 4; ++t) {
      bits.put(static_cast<std::uint64_t>(codes[k][t] >> low), width - low);
    }
  }
  bits.put(dc, low_dc);
  for (const int k : kTileAt) {
    if (k >= form.tiles || widths.total(k) % 2 == 0) continue;
    for (int t = 0; t < 4; ++t) bits.put(static_cast<std::uint64_t>(codes[k][t]), 1);
  }
  bits.finish();
}

TUCKFOLD_HOST_DEVICE TUCKFOLD_INLINE void pack_block(const Form& form, const float* x,
                                                     std::uint8_t* out) {
  float z[64];
  forward(x, z);
  Widths widths;
  const int q = choose_step(form, z, widths);
  if (q == kNotFinite) {
    BitWriter bits(out, form.bytes);
    bits.put(kNotFinite, 10);
    return bits.finish();
  }
  widths.share_out(form);
  std::int64_t codes[16][4] = {};
  // If tile 0 must have bits, its half steps would not be zero.
  bool nothing = form.bias > 0;
  for (int i = 0; i < 64; ++i) nothing = nothing && z[i] == 0;
  if (nothing) return write_codes(form, kNothing, widths, codes, out);
  const float inverse = inverse_of(q);
  for (int k = 0; k < form.tiles; ++k) {
    const float finer = widths.halved[k] ? 2 * inverse : inverse;
    for (int t = 0; t < 4; ++t) codes[k][t] = code_of(z[place(k, t)], finer);
    if (k == 0) codes[0][0] = first_code_of(z[0], finer, widths.total(0) + form.dc);
  }
  write_codes(form, q, widths, codes, out);
}

TUCKFOLD_HOST_DEVICE TUCKFOLD_INLINE std::int64_t sign_extended(std::uint64_t value, int bits) {
  return bits == 0 ? 0 : static_cast<std::int64_t>(value << (64 - bits)) >> (64 - bits);
}

TUCKFOLD_HOST_DEVICE TUCKFOLD_INLINE void unpack_block(const Form& form, const std::uint8_t* in,
                                                       float* x) {
  BitReader bits(in);
  const int q = static_cast<int>(bits.get(10));
  Widths widths;
  widths.given[0] = static_cast<int>(bits.get(4)) + form.bias;
  for (int k = 1; k < form.tiles; ++k) {
    widths.given[k] = widths.given[k - 1] + static_cast<int>(bits.get(2)) - 2;
  }
  const bool fits = widths.share_out(form);
  const bool nothing = fits && form.bias > 0 && q == kNothing;
  if (nothing || !fits || q < kLeastStep || q >= kNoStep) {
    for (int i = 0; i < 64; ++i) x[i] = nothing ? 0.0f : float_of(kNanBits);
    return;
  }
  const int low_dc = form.header_bits() % 8;
  std::uint64_t dc = bits.get(form.dc - low_dc) << low_dc;
  std::uint64_t codes[16][4] = {};
  for (int k = 0; k < form.tiles; ++k) {
    const int width = widths.total(k), low = width % 2;
    for (int t = 0; t < 4; ++t) codes[k][t] = bits.get(width - low) << low;
  }
  dc |= bits.get(low_dc);
  for (const int k : kTileAt) {
    if (k >= form.tiles || widths.total(k) % 2 == 0) continue;
    for (int t = 0; t < 4; ++t) codes[k][t] |= bits.get(1);
  }
  float z[64] = {};
  for (int k = 0; k < form.tiles; ++k) {
    const int width = widths.total(k);
    const float step = widths.halved[k] ? 0.5f * step_of(q) : step_of(q);
    for (int t = 0; t < 4 && width > 0; ++t) {
      const std::int64_t halves = 2 * sign_extended(codes[k][t], width) + 1;
      z[place(k, t)] = static_cast<float>(halves) * (0.5f * step);
    }
    if (k == 0) {
      const std::uint64_t code = dc << width | codes[0][0];
      z[0] = static_cast<float>(sign_extended(code, width + form.dc)) * step;
    }
  }
  inverse(z, x);
}

// The value to store, from a value of unpack_block.
TUCKFOLD_HOST_DEVICE TUCKFOLD_INLINE float finished(float x, float offset, bool clamp) {
  const float value = offset == 0 ? x : x + offset;
  return canonical(clamp && value < 0 ? 0.0f : value);
}

}  // namespace tuckfold::dct_quant
