// bits from its definition, one bit at a time. For tests only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tuckfold::bits_ref {

// Whether a comes before b, both as the bits of an i64, or of a u64.
struct Less {
  bool is_u64 = false;
  bool operator()(std::int64_t a, std::int64_t b) const {
    return is_u64 ? static_cast<std::uint64_t>(a) < static_cast<std::uint64_t>(b) : a < b;
  }
};

// How many bits the values' distances from their minimum take.
inline int width_of(const std::vector<std::int64_t>& values, Less less = {}) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end(), less);
  std::uint64_t span = static_cast<std::uint64_t>(*high) - static_cast<std::uint64_t>(*low);
  int width = 0;
  for (; span != 0; span >>= 1) ++width;
  return width;
}

// Minimum, width where `with_width`, codes.
inline std::vector<std::byte> pack(const std::vector<std::int64_t>& values, int width,
                                   bool with_width, Less less = {}) {
  const std::int64_t minimum = *std::min_element(values.begin(), values.end(), less);
  std::vector<std::byte> bytes;
  for (int i = 0; i < 8; ++i) {
    bytes.push_back(static_cast<std::byte>(static_cast<std::uint64_t>(minimum) >> (8 * i)));
  }
  if (with_width) bytes.push_back(static_cast<std::byte>(width));
  const std::size_t header = bytes.size();
  const std::size_t bits = values.size() * static_cast<std::size_t>(width);
  bytes.resize(header + (bits + 7) / 8);
  std::size_t at = 0;
  for (const std::int64_t value : values) {
    const std::uint64_t code =
        static_cast<std::uint64_t>(value) - static_cast<std::uint64_t>(minimum);
    for (int b = 0; b < width; ++b, ++at) {
      bytes[header + at / 8] |= static_cast<std::byte>((code >> b & 1) << (at % 8));
    }
  }
  return bytes;
}

}  // namespace tuckfold::bits_ref
