// How far a result is from its original, over the values that are finite in the original.
#pragma once

#include <cstdint>
#include <limits>

#include "container/compare.h"

namespace tuckfold::cli {

struct Quality {
  double psnr_db = std::numeric_limits<double>::infinity();  // peak = range; infinite: exact
  double max_error = 0;
  double range = 0;       // largest minus smallest value of the original
  std::int64_t lost = 0;  // values that were finite and came back NaN or infinite
  bool exact() const noexcept { return max_error == 0 && lost == 0; }
};

Quality quality_of(const Sums& sums);

// Both row-major. A lost value makes the error infinite and the PSNR NaN; an error where the
// original is constant makes it minus infinity. Values with a mark are left out (compare_values).
Quality compare(DType dtype, std::int64_t elems, const void* original, const void* result,
                const std::uint8_t* marks = nullptr);

}  // namespace tuckfold::cli
