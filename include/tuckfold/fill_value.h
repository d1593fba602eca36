// A value that stands for a missing one.
#pragma once

#include <bit>
#include <cstdint>

namespace tuckfold {

// As netCDF's _FillValue: a value of its array's dtype. NaN stands for every NaN.
struct FillValue {
  double value = 0;

  friend bool operator==(const FillValue& a, const FillValue& b) noexcept {
    return std::bit_cast<std::uint64_t>(a.value) == std::bit_cast<std::uint64_t>(b.value) ||
           (a.value != a.value && b.value != b.value);
  }
};

}  // namespace tuckfold
