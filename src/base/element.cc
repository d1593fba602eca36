#include "base/element.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>

#include "base/half.h"

namespace tuckfold {
namespace {

// The float next to the value towards zero, its last bit set where it is not the value itself:
// rounding this once more, to fewer bits, is as good as rounding the value.
float to_odd(double value) {
  const auto near = static_cast<float>(value);
  if (near == value || std::isnan(value)) return near;
  const bool too_far = std::abs(double{near}) > std::abs(value);
  return float_of((bits_of(near) - (too_far ? 1u : 0u)) | 1u);
}

}  // namespace

std::uint64_t element_bits(DType dtype, double value) noexcept {
  switch (dtype) {
    case DType::F32: return bits_of(static_cast<float>(value));
    case DType::F16: return to_f16(to_odd(value)).bits;
    case DType::BF16: return to_bf16(to_odd(value)).bits;
    case DType::F64: return std::bit_cast<std::uint64_t>(value);
    case DType::U8: return static_cast<std::uint8_t>(value);
    case DType::I32: return static_cast<std::uint32_t>(static_cast<std::int32_t>(value));
    case DType::I64: break;
  }
  return static_cast<std::uint64_t>(static_cast<std::int64_t>(value));
}

double element_value(DType dtype, std::uint64_t bits) noexcept {
  const auto half = static_cast<std::uint16_t>(bits);
  switch (dtype) {
    case DType::F32: return float_of(static_cast<std::uint32_t>(bits));
    case DType::F16: return to_float(F16{half});
    case DType::BF16: return to_float(BF16{half});
    case DType::F64: return std::bit_cast<double>(bits);
    case DType::U8: return static_cast<std::uint8_t>(bits);
    case DType::I32: return static_cast<std::int32_t>(bits);
    case DType::I64: break;
  }
  return static_cast<double>(static_cast<std::int64_t>(bits));
}

std::string element_text(DType dtype, std::uint64_t bits) {
  const auto half = static_cast<std::uint16_t>(bits);
  switch (dtype) {
    case DType::F32: return fmt::format("{}", float_of(static_cast<std::uint32_t>(bits)));
    case DType::F16: return fmt::format("{}", to_float(F16{half}));
    case DType::BF16: return fmt::format("{}", to_float(BF16{half}));
    case DType::F64: return fmt::format("{}", std::bit_cast<double>(bits));
    case DType::U8: return fmt::format("{}", static_cast<std::uint8_t>(bits));
    case DType::I32: return fmt::format("{}", static_cast<std::int32_t>(bits));
    case DType::I64: break;
  }
  return fmt::format("{}", static_cast<std::int64_t>(bits));
}

bool holds(DType dtype, double value) noexcept {
  const bool whole = std::floor(value) == value;
  switch (dtype) {
    case DType::U8: return whole && value >= 0 && value <= 255;
    case DType::I32: return whole && value >= -0x1p31 && value < 0x1p31;
    case DType::I64: return whole && value >= -0x1p63 && value < 0x1p63;
    default: return true;
  }
}

}  // namespace tuckfold
