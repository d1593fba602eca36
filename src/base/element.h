// One element of any dtype from a number, correctly rounded, and as text.
#pragma once

#include <cstdint>
#include <string>

#include "tuckfold/tensor.h"

namespace tuckfold {

// The element's bits, in the low size_bytes(dtype) bytes. Rounds once, to nearest even; a
// whole-number dtype must hold the value. Needs FpEnv.
std::uint64_t element_bits(DType dtype, double value) noexcept;

// The value of an element with these bits; of i64 and u64 the nearest double.
double element_value(DType dtype, std::uint64_t bits) noexcept;

// The shortest text that reads back as the element with these bits; -0 and NaN have theirs.
std::string element_text(DType dtype, std::uint64_t bits);

// Whether a whole-number dtype holds the value; true for the others.
bool holds(DType dtype, double value) noexcept;

}  // namespace tuckfold
