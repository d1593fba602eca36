// dct_quant's decoder from docs/codecs/dct_quant.md, in double precision, one bit at a time; and
// fields of a header that tests can set. For tests only.
//
//   const Rules rules(rate, dc);
//   const Header header = read_header(rules, block);   // widths, and whether they fit
//   const Dense values = decode(rules, block);         // 8 x 8, NaN where the header does not fit
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "codec/dct_chop/dct_chop_ref.h"

namespace tuckfold::dct_quant_ref {

// What follows from the parameters, as the page has it.
struct Rules {
  Rules(double rate, int extra)
      : bytes(static_cast<int>(rate * 8)),
        dc(extra),
        tiles(static_cast<int>(std::min(16.0, 2 * std::floor(3 * rate)))),
        header_bits(12 + 2 * tiles + dc),
        nibbles((8 * bytes - header_bits) / 4),
        bias(static_cast<int>(std::max(0.0, std::ceil(rate) - 8))),
        max_width(rate <= 8 ? 14 : std::min(15 + bias, 23)) {}

  int bytes, dc, tiles, header_bits, nibbles, bias, max_width;
};

// Pairs of frequencies, vertical and horizontal, in the header's order.
inline constexpr int kTiles[16][2] = {{0, 0}, {0, 1}, {1, 0}, {2, 0}, {1, 1}, {0, 2},
                                      {0, 3}, {1, 2}, {2, 1}, {3, 0}, {3, 1}, {2, 2},
                                      {1, 3}, {2, 3}, {3, 2}, {3, 3}};

// ---- bits ---------------------------------------------------------------------------------------

inline std::uint64_t get_bits(const std::uint8_t* block, int at, int count) {
  std::uint64_t value = 0;
  for (int i = 0; i < count; ++i) {
    value |= static_cast<std::uint64_t>(block[(at + i) / 8] >> ((at + i) % 8) & 1) << i;
  }
  return value;
}
inline void set_bits(std::uint8_t* block, int at, int count, std::uint64_t value) {
  for (int i = 0; i < count; ++i) {
    const int mask = 1 << ((at + i) % 8);
    std::uint8_t& byte = block[(at + i) / 8];
    byte = static_cast<std::uint8_t>((value >> i & 1) != 0 ? byte | mask : byte & ~mask);
  }
}
inline std::int64_t as_signed(std::uint64_t value, int bits) {
  if (bits == 0) return 0;
  const std::uint64_t sign = std::uint64_t{1} << (bits - 1);
  return static_cast<std::int64_t>(value ^ sign) - static_cast<std::int64_t>(sign);
}

// ---- headers ------------------------------------------------------------------------------------

struct Header {
  int step;                 // the field
  std::vector<int> widths;  // as sent, of the coded tiles
  bool fits, zeros;

  int left(const Rules& rules) const {
    int nibbles = rules.nibbles;
    for (const int width : widths) nibbles -= width;
    return nibbles;
  }
  bool finer(const Rules& rules, int k) const {
    return k < left(rules) && widths[static_cast<std::size_t>(k)] > 0;
  }
  int bits(const Rules& rules, int k) const {
    return widths[static_cast<std::size_t>(k)] + (finer(rules, k) ? 1 : 0);
  }
};

inline Header read_header(const Rules& rules, const std::uint8_t* block) {
  Header header{.step = static_cast<int>(get_bits(block, 0, 10)),
                .widths = {static_cast<int>(get_bits(block, 10, 4)) + rules.bias},
                .fits = true,
                .zeros = false};
  for (int k = 1; k < rules.tiles; ++k) {
    header.widths.push_back(header.widths.back() +
                            static_cast<int>(get_bits(block, 12 + 2 * k, 2)) - 2);
  }
  for (const int width : header.widths) {
    header.fits = header.fits && 0 <= width && width <= rules.max_width;
  }
  header.fits = header.fits && header.left(rules) >= 0;
  header.zeros = header.fits && rules.bias > 0 && header.step == 0;
  header.fits = header.zeros || (header.fits && 80 <= header.step && header.step < 1020);
  return header;
}

// Widths must differ from the one before by -2 … 1.
inline void write_header(const Rules& rules, const Header& header, std::uint8_t* block) {
  set_bits(block, 0, 10, static_cast<std::uint64_t>(header.step));
  set_bits(block, 10, 4, static_cast<std::uint64_t>(header.widths[0] - rules.bias));
  for (std::size_t k = 1; k < header.widths.size(); ++k) {
    set_bits(block, 12 + 2 * static_cast<int>(k), 2,
             static_cast<std::uint64_t>(header.widths[k] - header.widths[k - 1] + 2));
  }
}

// 2^(e - 127) (1 + m/4), where e and m are the upper eight bits of the field and its lower two.
inline double step_size(int field) { return std::ldexp(1 + field % 4 / 4.0, field / 4 - 127); }

// ---- values -------------------------------------------------------------------------------------

// Coefficients, row u vertical and column v horizontal frequency; the header must fit. `used`
// becomes the number of bits that mean something.
inline ref::Dense coefficients(const Rules& rules, const std::uint8_t* block, int* used = nullptr) {
  const Header header = read_header(rules, block);
  ref::Dense z(8, 8);
  int at = 12 + 2 * rules.tiles;
  if (header.zeros) {
    if (used != nullptr) *used = at;
    return z;
  }
  const int below =
      rules.header_bits % 8;  // bits of the first coefficient's upper part in the tail
  std::uint64_t upper = get_bits(block, at, rules.dc - below) << below;
  at += rules.dc - below;
  std::uint64_t codes[16][4] = {};
  for (int k = 0; k < rules.tiles; ++k) {
    const int even = header.bits(rules, k) / 2 * 2;
    for (std::uint64_t& code : codes[k]) {
      code = get_bits(block, at, even);
      at += even;
    }
  }
  upper |= get_bits(block, at, below);
  at += below;
  for (int col = 0; col < 4; ++col) {
    for (int row = 0; row < 4; ++row) {
      for (int k = 0; k < rules.tiles; ++k) {
        if (kTiles[k][0] != row || kTiles[k][1] != col || header.bits(rules, k) % 2 == 0) continue;
        for (std::uint64_t& code : codes[k]) code = code << 1 | get_bits(block, at++, 1);
      }
    }
  }
  if (used != nullptr) *used = at;
  for (int k = 0; k < rules.tiles; ++k) {
    const int bits = header.bits(rules, k);
    const double step = step_size(header.step) / (header.finer(rules, k) ? 2 : 1);
    for (int t = 0; t < 4; ++t) {
      double& c = z.at(2 * kTiles[k][0] + t / 2, 2 * kTiles[k][1] + t % 2);
      if (k == 0 && t == 0) {
        c = static_cast<double>(as_signed(upper << bits | codes[0][0], bits + rules.dc)) * step;
      } else if (bits > 0) {
        c = (static_cast<double>(as_signed(codes[k][t], bits)) + 0.5) * step;
      }
    }
  }
  return z;
}

inline ref::Dense decode(const Rules& rules, const std::uint8_t* block) {
  ref::Dense values(8, 8);
  if (!read_header(rules, block).fits) {
    std::fill(values.values.begin(), values.values.end(), std::numeric_limits<double>::quiet_NaN());
    return values;
  }
  const ref::Dense t = ref::dct_matrix(8);
  return ref::product(ref::product(ref::transposed(t), coefficients(rules, block)), t);
}

}  // namespace tuckfold::dct_quant_ref
