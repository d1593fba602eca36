// bounded's packed bits from the documentation alone, in double precision, one value at a time. For
// tests only.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "base/tensor_ref.h"

namespace tuckfold::bounded_ref {

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

// The largest f32 (f64 for f64) that is at most the bound.
inline double as_stored(DType dtype, double bound) {
  if (dtype == DType::F64) return bound;
  if (bound >= std::numeric_limits<float>::max()) return std::numeric_limits<float>::max();
  const auto near = static_cast<float>(bound);
  return near <= bound ? near : std::nextafterf(near, 0.0f);
}

// Half a step of the grid.
inline double half_step(DType dtype, double bound, bool exact, int grid) {
  if (dtype == DType::U8) {
    const double whole = std::floor(std::min(bound, 255.0));
    return exact && whole > 0 ? whole : whole + 0.5;
  }
  constexpr double kShrink[] = {0x1p-16, 0x1p-12, 0x1p-8, 0x1p-5, 0x1p-3, 0x1p-1};
  const double half = as_stored(dtype, bound) * (1 - kShrink[grid]);
  return dtype == DType::F64 ? half : static_cast<float>(half);
}

// What codes=bits unpacks to, as doubles of the tensor's dtype.
inline std::vector<double> unpack_bits(DType dtype, std::int64_t elems, bool relative, double bound,
                                       bool exact, std::span<const std::byte> packed) {
  const std::size_t width = size_bytes(dtype);
  std::vector<double> values;
  if (packed.size() == static_cast<std::size_t>(elems) * width) {
    for (std::int64_t i = 0; i < elems; ++i) values.push_back(ref::get(dtype, packed.data(), i));
    return values;
  }
  const std::byte* headers = packed.data();
  if (relative) {
    bound = load<double>(headers);
    headers += 8;
  }
  const std::int64_t chunks = (elems + 1023) / 1024;
  const std::byte* at = headers + 6 * chunks;
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk, headers += 6) {
    const auto both = load<std::uint16_t>(headers + 4);
    const int kind = both & 7, words = both >> 3;
    const std::int64_t count = std::min<std::int64_t>(1024, elems - 1024 * chunk);
    auto code = load<std::int32_t>(headers);
    const std::byte* row = at + 34;
    for (std::int64_t i = 0; i < count; ++i) {
      if (kind >= 6) {
        alignas(8) std::byte bits[8];
        std::memcpy(bits, at + (kind == 6 ? 0 : i * static_cast<std::int64_t>(width)), width);
        values.push_back(ref::get(dtype, bits, 0));
        continue;
      }
      if (words > 0) {
        const int nibbles = static_cast<int>(at[2 + i / 32]);
        const int planes =
            static_cast<int>(at[0]) + (i / 16 % 2 == 0 ? nibbles & 15 : nibbles >> 4);
        std::uint32_t coded = 0;
        for (int j = 0; j < planes; ++j) {
          coded |= ((load<std::uint16_t>(row + 2 * j) >> (i % 16)) & 1u) << j;
        }
        code += coded % 2 == 0 ? static_cast<std::int32_t>(coded / 2)
                               : -static_cast<std::int32_t>(coded / 2) - 1;
        if (i % 16 == 15) row += 2 * planes;
      }
      const double half = half_step(dtype, bound, exact, kind);
      const bool inward = exact && !(dtype == DType::U8 && bound < 1);
      const double steps = 2.0 * code - (inward ? (code > 0) - (code < 0) : 0);
      // One rounding to f32, then that of the dtype.
      alignas(8) std::byte bits[8];
      const double value = steps * half;
      ref::set(dtype, bits, 0, dtype == DType::F64 ? value : static_cast<float>(value));
      values.push_back(ref::get(dtype, bits, 0));
    }
    at += 2 * words;
  }
  if (at != packed.data() + packed.size()) throw std::runtime_error("bytes are left");
  return values;
}

}  // namespace tuckfold::bounded_ref
