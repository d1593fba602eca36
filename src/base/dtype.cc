// DType: sizes and names.
#include <algorithm>

#include "base/fail.h"
#include "tuckfold/tensor.h"

namespace tuckfold {
namespace {

struct Row {
  std::string_view name;
  std::size_t bytes;
};
constexpr Row kRows[] = {{"f32", 4}, {"f16", 2}, {"bf16", 2}, {"f64", 8},
                         {"u8", 1},  {"i32", 4}, {"i64", 8}};

}  // namespace

std::size_t size_bytes(DType dtype) { return kRows[static_cast<std::size_t>(dtype)].bytes; }

std::string_view to_string(DType dtype) { return kRows[static_cast<std::size_t>(dtype)].name; }

DType parse_dtype(std::string_view text) {
  for (const DType dtype : kDTypes) {
    if (to_string(dtype) == text) return dtype;
  }
  invalid("[dtype] must be f32, f16, bf16, f64, u8, i32 or i64, got '{}'", text);
}

}  // namespace tuckfold
