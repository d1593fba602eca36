#include "cli/quality/quality.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "base/dtype.h"

namespace tuckfold::cli {
namespace {

template <class T>
double distance(T a, T b) {
  if constexpr (std::is_integral_v<T> && sizeof(T) == 8) {
    return whole_distance(a, b);
  } else {
    return std::abs(as_double(a) - as_double(b));
  }
}

template <class T>
Quality compare_as(std::int64_t elems, const T* original, const T* result) {
  Quality quality;
  double low = std::numeric_limits<double>::infinity(), high = -low, squares = 0;
  std::int64_t finite = 0;
  for (std::int64_t i = 0; i < elems; ++i) {
    const double want = as_double(original[i]), got = as_double(result[i]);
    if (!std::isfinite(want)) continue;
    ++finite;
    low = std::min(low, want);
    high = std::max(high, want);
    if (!std::isfinite(got)) {
      ++quality.lost;
      continue;
    }
    const double error = distance(original[i], result[i]);
    quality.max_error = std::max(quality.max_error, error);
    squares += error * error;
  }
  if (finite == 0) return quality;
  quality.range = high - low;
  if (quality.lost > 0) {
    quality.max_error = std::numeric_limits<double>::infinity();
    quality.psnr_db = std::numeric_limits<double>::quiet_NaN();
  } else if (squares > 0) {
    const double mean_square = squares / static_cast<double>(finite);
    quality.psnr_db = 20 * std::log10(quality.range) - 10 * std::log10(mean_square);
  }
  return quality;
}

}  // namespace

Quality compare(DType dtype, std::int64_t elems, const void* original, const void* result) {
  return with_element(dtype, [&](auto element) {
    using T = decltype(element);
    return compare_as(elems, static_cast<const T*>(original), static_cast<const T*>(result));
  });
}

double value_at(DType dtype, const void* values, std::int64_t index) {
  return with_element(dtype, [&](auto element) {
    return as_double(static_cast<const decltype(element)*>(values)[index]);
  });
}

void values_at(DType dtype, const void* values, std::int64_t first, std::int64_t step,
               std::int64_t count, double* out) {
  with_element(dtype, [&](auto element) {
    const auto* from = static_cast<const decltype(element)*>(values) + first;
    for (std::int64_t i = 0; i < count; ++i) out[i] = as_double(from[i * step]);
  });
}

}  // namespace tuckfold::cli
