// nonzero_quant from its definition, in double precision, one value and one bit at a time. For tests
// only.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/half.h"
#include "codec/block_quant/block_quant_ref.h"

namespace tuckfold::nonzero_quant_ref {

using Bytes = std::vector<unsigned char>;

inline constexpr std::size_t kTile = 2048;

inline void append_number(Bytes& bytes, std::uint32_t number) {
  for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<unsigned char>(number >> 8 * i));
}
inline std::uint32_t number_at(const Bytes& bytes, std::size_t at) {
  std::uint32_t number = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    number |= static_cast<std::uint32_t>(bytes.at(at + i)) << 8 * i;
  }
  return number;
}
inline void append_bits(Bytes& bytes, std::size_t& bit, std::uint64_t value, int count) {
  for (int i = 0; i < count; ++i, ++bit) {
    if (bit % 8 == 0) bytes.push_back(0);
    bytes.back() = static_cast<unsigned char>(bytes.back() | (value >> i & 1) << bit % 8);
  }
}
inline void pad_to_word(Bytes& bytes) {
  while (bytes.size() % 4 != 0) bytes.push_back(0);
}
// A bf16 number, which the value is.
inline std::uint32_t bf16_bits(double value) { return bits_of(static_cast<float>(value)) >> 16; }

// The codes of a group of finite values that are not 0, moved to the side of 0 of their values.
inline block_quant_ref::Group quantize(const std::vector<float>& values, int bits) {
  block_quant_ref::Group group = block_quant_ref::quantize(values, bits);
  const std::int64_t levels = (std::int64_t{1} << bits) - 1;
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::int64_t& code = group.codes[i];
    const auto negative = [&] {
      return group.minimum + static_cast<double>(code) * group.scale < 0;
    };
    while (values[i] < 0 && code > 0 && !negative()) --code;
    while (values[i] > 0 && code < levels && negative()) ++code;
  }
  return group;
}

// Packs finite values, rounding to nearest.
inline Bytes pack(const std::vector<float>& values, int bits, std::size_t per_group) {
  Bytes ends, mask, payloads;
  std::size_t mask_bit = 0;
  for (std::size_t first = 0; first < values.size(); first += kTile) {
    std::vector<float> kept;
    for (std::size_t i = first; i < std::min(first + kTile, values.size()); ++i) {
      append_bits(mask, mask_bit, values[i] != 0 ? 1 : 0, 1);
      if (values[i] != 0) kept.push_back(values[i]);
    }
    Bytes headers, codes;
    std::size_t bit = 0;
    for (std::size_t at = 0; at < kept.size(); at += per_group) {
      const std::vector<float> part(
          kept.begin() + static_cast<std::ptrdiff_t>(at),
          kept.begin() + static_cast<std::ptrdiff_t>(std::min(at + per_group, kept.size())));
      const block_quant_ref::Group group = quantize(part, bits);
      append_number(headers, bf16_bits(group.scale) | bf16_bits(group.minimum) << 16);
      for (const std::int64_t code : group.codes) {
        append_bits(codes, bit, static_cast<std::uint64_t>(code), bits);
      }
    }
    pad_to_word(codes);
    payloads.insert(payloads.end(), headers.begin(), headers.end());
    payloads.insert(payloads.end(), codes.begin(), codes.end());
    append_number(ends, static_cast<std::uint32_t>(payloads.size() / 4));
  }
  pad_to_word(mask);
  ends.insert(ends.end(), mask.begin(), mask.end());
  ends.insert(ends.end(), payloads.begin(), payloads.end());
  return ends;
}

// A code and the scale of its group, for each value that is not 0.
struct Code {
  std::int64_t code;
  double scale, minimum;
  double value() const { return minimum + static_cast<double>(code) * scale; }
};
// One entry for each value; the scale of a value that is 0 is 0.
inline std::vector<Code> codes_of(const Bytes& packed, std::size_t elems, int bits,
                                  std::size_t per_group) {
  const std::size_t tiles = (elems + kTile - 1) / kTile, mask_at = 4 * tiles;
  const std::size_t payloads = mask_at + (elems + 31) / 32 * 4;
  std::vector<Code> all;
  for (std::size_t tile = 0; tile < tiles; ++tile) {
    const std::size_t last = std::min((tile + 1) * kTile, elems);
    const std::size_t begin =
        payloads + (tile == 0 ? 0 : 4 * std::size_t{number_at(packed, 4 * (tile - 1))});
    std::vector<std::size_t> places;
    for (std::size_t i = tile * kTile; i < last; ++i) {
      all.push_back({0, 0, 0});
      if ((packed.at(mask_at + i / 8) >> i % 8 & 1) != 0) places.push_back(i);
    }
    const std::size_t headers_bytes = (places.size() + per_group - 1) / per_group * 4;
    for (std::size_t i = 0; i < places.size(); ++i) {
      const std::uint32_t header = number_at(packed, begin + i / per_group * 4);
      all[places[i]] = {block_quant_ref::code_at(packed.data() + begin + headers_bytes,
                                                 static_cast<std::int64_t>(i), bits),
                        to_float(BF16{static_cast<std::uint16_t>(header)}),
                        to_float(BF16{static_cast<std::uint16_t>(header >> 16)})};
    }
  }
  return all;
}

}  // namespace tuckfold::nonzero_quant_ref
