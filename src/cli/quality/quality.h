// How far a result is from its original, over the values that are finite in the original.
#pragma once

#include <cstdint>
#include <limits>

#include "tuckfold/tensor.h"

namespace tuckfold::cli {

struct Quality {
  double psnr_db = std::numeric_limits<double>::infinity();  // peak = range; infinite: exact
  double max_error = 0;
  double range = 0;       // largest minus smallest value of the original
  std::int64_t lost = 0;  // values that were finite and came back NaN or infinite
  bool exact() const noexcept { return max_error == 0 && lost == 0; }
};

// |a - b|, exactly: 64-bit values that differ may be one and the same double.
template <class T>
double whole_distance(T a, T b) {
  const auto wide = static_cast<std::uint64_t>(a) - static_cast<std::uint64_t>(b);
  return static_cast<double>(a >= b ? wide : 0 - wide);
}

// Both row-major. A lost value makes the error infinite and the PSNR NaN; an error where the
// original is constant makes it minus infinity.
Quality compare(DType dtype, std::int64_t elems, const void* original, const void* result);

// Element `index` of row-major values of any dtype.
double value_at(DType dtype, const void* values, std::int64_t index);
// Elements first, first + step … of them, `count` in all.
void values_at(DType dtype, const void* values, std::int64_t first, std::int64_t step,
               std::int64_t count, double* out);

}  // namespace tuckfold::cli
