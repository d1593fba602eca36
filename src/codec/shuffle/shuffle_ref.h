// shuffle from its definition, one value at a time with wide numbers. For tests only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "tuckfold/tensor.h"

namespace tuckfold::shuffle_ref {

// Row-major bytes of a tensor to packed bytes.
inline std::vector<std::byte> pack(const std::vector<std::byte>& bytes, std::size_t width,
                                   const Shape& shape, std::string_view delta) {
  const std::size_t count = bytes.size() / width;
  const auto word = [&](std::size_t i) {
    std::uint64_t value = 0;
    for (std::size_t k = 0; k < width; ++k) {
      value |= static_cast<std::uint64_t>(bytes[i * width + k]) << (8 * k);
    }
    return value;
  };
  std::size_t cols = 1, axis = shape.rank();
  while (axis > 0 && cols < 8) cols *= static_cast<std::size_t>(shape[--axis]);
  const std::size_t rows = axis > 0 ? static_cast<std::size_t>(shape[axis - 1]) : 1;
  std::vector<std::byte> out(bytes.size());
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t at = i % (rows * cols);  // in its plane
    const std::uint64_t left = at == 0 ? 0 : word(i - 1);
    const std::uint64_t up = at < cols ? 0 : word(i - cols);
    const std::uint64_t corner = at < cols + 1 ? 0 : word(i - cols - 1);
    std::uint64_t value = word(i);
    if (delta == "xor") value ^= left;
    if (delta == "sub" || (at < cols && (delta == "rows" || delta == "plane"))) {
      value -= left;
    } else if (delta == "rows") {
      value -= up;
    } else if (delta == "plane") {
      value -= left + up - corner;
    }
    for (std::size_t k = 0; k < width; ++k) {
      out[k * count + i] = static_cast<std::byte>(value >> (8 * k));
    }
  }
  return out;
}

}  // namespace tuckfold::shuffle_ref
