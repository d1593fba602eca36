// How far values are from those that they came from, in double precision.
#pragma once

#include <cstdint>

#include "tuckfold/container.h"

namespace tuckfold {

// |a - b|, exactly: 64-bit values that differ may be one and the same double.
template <class T>
double whole_distance(T a, T b) {
  const auto wide = static_cast<std::uint64_t>(a) - static_cast<std::uint64_t>(b);
  return static_cast<double>(a >= b ? wide : 0 - wide);
}

// Element `index` of row-major values of any dtype.
double value_at(DType dtype, const void* values, std::int64_t index);
// Elements first, first + step … of them, `count` in all.
void values_at(DType dtype, const void* values, std::int64_t first, std::int64_t step,
               std::int64_t count, double* out);

// Of row-major values. 64-bit whole numbers are compared, and have their range, as such: many are one
// and the same double.
// Where `marks` are given, values with a mark that is not 0 are fill values of the original.
Sums compare_values(DType original_type, const void* original, DType result_type,
                    const void* result, std::int64_t elems, const std::uint8_t* marks = nullptr);

// Whether a value that is no fill value is NaN, infinite or beyond 2^100: codecs that compute in f32
// may lose it, or values packed together with it.
bool has_extremes(DType dtype, const void* values, std::int64_t elems,
                  const std::uint8_t* marks = nullptr);

}  // namespace tuckfold
