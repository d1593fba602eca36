// The table of dtypes: every other list of them is made from it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/half.h"
#include "tuckfold/tensor.h"

namespace tuckfold {

enum class DTypeKind : unsigned char { Float, Signed, Unsigned, Bool };

struct DTypeInfo {
  std::string_view name;
  std::size_t bytes;
  DTypeKind kind;
};

const DTypeInfo& info_of(DType dtype) noexcept;
std::string_view to_string(DTypeKind kind) noexcept;  // "float", "signed", "unsigned", "bool"
std::string dtype_names();                            // "f32, f16, … or bool"

inline bool is_float(DType dtype) noexcept { return info_of(dtype).kind == DTypeKind::Float; }
inline bool is_whole(DType dtype) noexcept { return !is_float(dtype); }

// Whether lossy codecs refuse the dtype: integers are labels and indices, except u8 and u16, which
// are pixels.
inline bool must_be_exact(DType dtype) noexcept {
  return is_whole(dtype) && dtype != DType::U8 && dtype != DType::U16;
}

// Calls body with a value of the element's C++ type; a bool is the byte that it is stored in.
template <class Body>
decltype(auto) with_element(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::F32: break;
    case DType::F16: return body(F16{});
    case DType::BF16: return body(BF16{});
    case DType::F64: return body(double{});
    case DType::I32: return body(std::int32_t{});
    case DType::I64: return body(std::int64_t{});
    case DType::U16: return body(std::uint16_t{});
    case DType::I16: return body(std::int16_t{});
    case DType::I8: return body(std::int8_t{});
    case DType::U32: return body(std::uint32_t{});
    case DType::U64: return body(std::uint64_t{});
    case DType::U8:
    case DType::Bool: return body(std::uint8_t{});
  }
  return body(float{});
}

// An element as a double; of 64-bit whole numbers the nearest.
template <class T>
double as_double(T element) {
  if constexpr (std::is_same_v<T, F16> || std::is_same_v<T, BF16>) {
    return to_float(element);
  } else {
    return static_cast<double>(element);
  }
}

}  // namespace tuckfold
