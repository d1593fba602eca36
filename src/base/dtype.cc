#include "base/dtype.h"

#include <array>

#include "base/fail.h"

namespace tuckfold {
namespace {

// In the order of DType, whose numbers are in files.
constexpr std::array kTable = {
    DTypeInfo{"f32", 4, DTypeKind::Float},    DTypeInfo{"f16", 2, DTypeKind::Float},
    DTypeInfo{"bf16", 2, DTypeKind::Float},   DTypeInfo{"f64", 8, DTypeKind::Float},
    DTypeInfo{"u8", 1, DTypeKind::Unsigned},  DTypeInfo{"i32", 4, DTypeKind::Signed},
    DTypeInfo{"i64", 8, DTypeKind::Signed},   DTypeInfo{"u16", 2, DTypeKind::Unsigned},
    DTypeInfo{"i16", 2, DTypeKind::Signed},   DTypeInfo{"i8", 1, DTypeKind::Signed},
    DTypeInfo{"u32", 4, DTypeKind::Unsigned}, DTypeInfo{"u64", 8, DTypeKind::Unsigned},
    DTypeInfo{"bool", 1, DTypeKind::Bool},
};
static_assert(kTable.size() == kDTypes.size());
static_assert(static_cast<std::size_t>(DType::Bool) + 1 == kTable.size());

}  // namespace

const DTypeInfo& info_of(DType dtype) noexcept { return kTable[static_cast<std::size_t>(dtype)]; }

std::string_view to_string(DTypeKind kind) noexcept {
  constexpr std::string_view kNames[] = {"float", "signed", "unsigned", "bool"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string dtype_names() {
  std::string names(kTable.front().name);
  for (std::size_t i = 1; i < kTable.size(); ++i) {
    names += fmt::format("{}{}", i + 1 < kTable.size() ? ", " : " or ", kTable[i].name);
  }
  return names;
}

std::size_t size_bytes(DType dtype) { return info_of(dtype).bytes; }

std::string_view to_string(DType dtype) { return info_of(dtype).name; }

DType parse_dtype(std::string_view text) {
  for (const DType dtype : kDTypes) {
    if (to_string(dtype) == text) return dtype;
  }
  invalid("[dtype] must be {}, got '{}'", dtype_names(), text);
}

}  // namespace tuckfold
