#include "base/element.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>

#include "base/dtype.h"

namespace tuckfold {
namespace {

// The float next to the value towards zero, with its last bit set if the result is inexact (round
// to odd): rounding it again to fewer bits gives the same as rounding the value once.
float to_odd(double value) {
  const auto near = static_cast<float>(value);
  if (near == value || std::isnan(value)) return near;
  const bool too_far = std::abs(double{near}) > std::abs(value);
  return float_of((bits_of(near) - (too_far ? 1u : 0u)) | 1u);
}

template <class T>
T element_of(std::uint64_t bits) {
  if constexpr (std::is_same_v<T, F16> || std::is_same_v<T, BF16>) {
    return T{static_cast<std::uint16_t>(bits)};
  } else if constexpr (std::is_same_v<T, float>) {
    return float_of(static_cast<std::uint32_t>(bits));
  } else if constexpr (std::is_same_v<T, double>) {
    return std::bit_cast<double>(bits);
  } else {
    return static_cast<T>(bits);
  }
}

}  // namespace

std::uint64_t element_bits(DType dtype, double value) noexcept {
  return with_element(dtype, [&](auto element) -> std::uint64_t {
    using T = decltype(element);
    if constexpr (std::is_same_v<T, float>) {
      return bits_of(static_cast<float>(value));
    } else if constexpr (std::is_same_v<T, F16>) {
      return to_f16(to_odd(value)).bits;
    } else if constexpr (std::is_same_v<T, BF16>) {
      return to_bf16(to_odd(value)).bits;
    } else if constexpr (std::is_same_v<T, double>) {
      return std::bit_cast<std::uint64_t>(value);
    } else {
      return static_cast<std::make_unsigned_t<T>>(static_cast<T>(value));
    }
  });
}

double element_value(DType dtype, std::uint64_t bits) noexcept {
  return with_element(dtype, [&](auto element) {
    using T = decltype(element);
    return as_double(element_of<T>(bits));
  });
}

std::string element_text(DType dtype, std::uint64_t bits) {
  return with_element(dtype, [&](auto element) {
    using T = decltype(element);
    if constexpr (std::is_same_v<T, F16> || std::is_same_v<T, BF16>) {
      return fmt::format("{}", to_float(element_of<T>(bits)));
    } else {
      return fmt::format("{}", element_of<T>(bits));
    }
  });
}

bool holds(DType dtype, double value) noexcept {
  const auto [name, bytes, kind] = info_of(dtype);
  if (kind == DTypeKind::Float) return true;
  if (kind == DTypeKind::Bool) return value == 0 || value == 1;
  const bool has_sign = kind == DTypeKind::Signed;
  const double end = std::ldexp(1.0, 8 * static_cast<int>(bytes) - (has_sign ? 1 : 0));
  return std::floor(value) == value && value < end && value >= (has_sign ? -end : 0);
}

}  // namespace tuckfold
