// The normative arithmetic of bounded: how a value becomes an integer and back. Kernels give these
// bits on every device.
//
//   value = 2 * code * half                    zero=near: code is the nearest to value / (2 * half)
//   value = (2 * |code| - 1) * half * sign     zero=exact: 0 is code 0 and nothing else is
//
// `half` is the bound, made smaller by 1/2^16 … 1/2 (six grids): what is taken off makes up for the
// rounding of products and of the result. Which grid a block of values needs follows from how large
// they are beside the bound; whether the bound holds is then checked value by value.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "base/device.h"
#include "base/half.h"
#include "tuckfold/tensor.h"

namespace tuckfold::bounded {

inline constexpr int kGrids = 6;
TUCKFOLD_TABLE float kShrink[kGrids] = {0x1p-16f, 0x1p-12f, 0x1p-8f, 0x1p-5f, 0x1p-3f, 0x1p-1f};

// The largest code; sums with kToInteger are exact and differences of codes fit 32 bits.
template <class Real>
inline constexpr Real kMaxCode = std::is_same_v<Real, float> ? Real{0x1p21} : Real{0x1p30};
// A number of at most kMaxCode plus this has its nearest integer, ties to even, in its low bits.
template <class Real>
inline constexpr Real kToInteger = std::is_same_v<Real, float> ? Real{0x1.8p23} : Real{0x1.8p52};

template <class Real>
using Bits = std::conditional_t<std::is_same_v<Real, float>, std::uint32_t, std::uint64_t>;

// rel * (high - low), rounded down: what is stored must not promise less than was asked for.
TUCKFOLD_HOST_DEVICE inline double bound_of(double relative, double low, double high) {
  if (!(low < high)) return 0;
  const double most = std::numeric_limits<double>::max();
  const auto below = [](double positive) {
    return std::bit_cast<double>(std::bit_cast<std::uint64_t>(positive) - 1);
  };
  double span = high - low;
  if (span > most) {
    span = most;
  } else {  // what rounding took from the difference (Knuth's two-sum)
    const double taken = span - high, given = span - taken;
    const double lost = (high - given) + (-low - taken);
    if (lost < 0) span = below(span);
  }
  double bound = relative * span < most ? relative * span : most;
  if (std::fma(relative, span, -bound) < 0) bound = below(bound);
  return bound;
}

// The largest Real that is at most a bound of 0 or more.
template <class Real>
TUCKFOLD_HOST_DEVICE inline Real round_down(double bound) {
  if (bound >= static_cast<double>(std::numeric_limits<Real>::max())) {
    return std::numeric_limits<Real>::max();
  }
  const Real nearest = static_cast<Real>(bound);
  if (static_cast<double>(nearest) <= bound) return nearest;
  return std::bit_cast<Real>(std::bit_cast<Bits<Real>>(nearest) - 1);
}

// u8 and u16, the whole numbers that may be lossy.
TUCKFOLD_HOST_DEVICE constexpr bool has_whole_values(DType dtype) {
  return dtype == DType::U8 || dtype == DType::U16;
}

template <class Real>
struct Grid {
  Real bound;
  Real half;
  Real inverse;  // of a step, which is two halves
  bool exact_zero;
};

template <class Real>
TUCKFOLD_HOST_DEVICE inline Grid<Real> grid_of(DType dtype, double bound, bool exact_zero,
                                               int number) {
  Grid<Real> grid;
  grid.bound = round_down<Real>(bound);
  grid.exact_zero = exact_zero;
  if (has_whole_values(dtype)) {
    // The bound of a middle value covers 2 * floor(bound) + 1 whole numbers.
    const int most = dtype == DType::U8 ? 255 : 65535;
    const Real whole = static_cast<Real>(bound < most ? static_cast<int>(bound) : most);
    grid.exact_zero = exact_zero && whole > 0;
    grid.half = grid.exact_zero ? whole : whole + Real{0.5};
  } else {
    grid.half = grid.bound * (Real{1} - static_cast<Real>(kShrink[number]));
  }
  grid.inverse = Real{0.5} / grid.half;
  return grid;
}

// The grid to try first for values up to `largest`; if the check fails, the next is tried.
// A product of f32 with 2^-24 of error is within the bound if codes are below shrink * 2^20.
template <class Real>
TUCKFOLD_HOST_DEVICE inline int first_grid(DType dtype, Real largest, const Grid<Real>& grid) {
  if (dtype != DType::F32) return 0;
  const Real steps = largest * grid.inverse;
  int number = 0;
  while (number + 1 < kGrids && !(steps <= static_cast<Real>(kShrink[number]) * Real{0x1p20})) {
    ++number;
  }
  return number;
}

template <class Real>
TUCKFOLD_HOST_DEVICE inline std::int32_t nearest(Real scaled) {
  return static_cast<std::int32_t>(std::bit_cast<Bits<Real>>(scaled + kToInteger<Real>) -
                                   std::bit_cast<Bits<Real>>(kToInteger<Real>));
}

// Whether there is any: a bound near 0 has no inverse.
template <class Real>
TUCKFOLD_HOST_DEVICE inline bool usable(const Grid<Real>& grid) {
  return grid.inverse <= std::numeric_limits<Real>::max();
}

// The code of a finite value; where that would pass kMaxCode some number, for which `holds` fails.
template <class Real>
TUCKFOLD_HOST_DEVICE inline std::int32_t code_of(Real value, const Grid<Real>& grid) {
  if (!grid.exact_zero) return nearest(value * grid.inverse);
  const Real magnitude = value < 0 ? -value : value;
  const Real scaled = magnitude * grid.inverse;
  std::int32_t code = nearest(scaled);
  if (static_cast<Real>(code) < scaled) code = static_cast<std::int32_t>(code + 1u);
  if (code < 1) code = 1;
  return value == 0 ? 0 : value < 0 ? -code : code;
}

template <class Real>
TUCKFOLD_HOST_DEVICE inline Real value_of(std::int32_t code, const Grid<Real>& grid) {
  const std::uint32_t twice = 2 * static_cast<std::uint32_t>(code);  // of corrupt bytes too
  const std::uint32_t inward = grid.exact_zero ? (code > 0 ? 1u : 0u) - (code < 0 ? 1u : 0u) : 0u;
  return static_cast<Real>(static_cast<std::int32_t>(twice - inward)) * grid.half;
}

// ---- what the tensor's dtype makes of a value, as a value again

TUCKFOLD_HOST_DEVICE inline float as_bf16(float value) {
  return to_float(to_bf16_saturated(value));
}
TUCKFOLD_HOST_DEVICE inline float as_f16(float value) { return to_float(to_f16_saturated(value)); }
TUCKFOLD_HOST_DEVICE inline float as_whole(float value, float most) {
  const float inside = value > 0.0f ? (value < most ? value : most) : 0.0f;
  return (inside + 0x1p23f) - 0x1p23f;
}
TUCKFOLD_HOST_DEVICE inline float as_u8(float value) { return as_whole(value, 255.0f); }
TUCKFOLD_HOST_DEVICE inline float as_u16(float value) { return as_whole(value, 65535.0f); }

// Whether `back` is within the bound of `value`. The difference is exact where it matters: numbers
// within a factor of two of each other subtract exactly, and others come from a code of at most 1
// in magnitude, where the grid is smaller than the bound by more than rounding takes.
template <class Real>
TUCKFOLD_HOST_DEVICE inline bool holds(Real value, Real back, const Grid<Real>& grid) {
  const Real off = value - back;
  const bool near = (off < 0 ? -off : off) <= grid.bound;
  return near && (!grid.exact_zero || (value == 0) == (back == 0));
}

// The grids on which an f16 or bf16 value is within the bound, a bit for each. The sign does not
// matter, so that 2^15 answers say what holds for all values of a tensor.
inline constexpr int kMagnitudes = 1 << 15;
template <class Element>
TUCKFOLD_HOST_DEVICE inline unsigned grids_that_hold(Element element, double bound,
                                                     bool exact_zero) {
  constexpr DType kDType = std::is_same_v<Element, F16> ? DType::F16 : DType::BF16;
  const float value = to_float(element);
  if (!(value <= std::numeric_limits<float>::max())) return 0;
  unsigned holding = 0;
  for (int number = 0; number < kGrids; ++number) {
    const auto grid = grid_of<float>(kDType, bound, exact_zero, number);
    if (!usable(grid) || !(value * grid.inverse <= kMaxCode<float>)) break;
    const float back = value_of(code_of(value, grid), grid);
    const float rounded = kDType == DType::F16 ? as_f16(back) : as_bf16(back);
    if (holds(value, rounded, grid)) holding |= 1u << number;
  }
  return holding;
}

// ---- codes=bytes: predictions between values that are known, at equal distances

// From two or four neighbours, and past the last two.
template <class Real>
TUCKFOLD_HOST_DEVICE inline Real interpolate(Real left, Real right) {
  return (left + right) * Real{0.5};
}
template <class Real>
TUCKFOLD_HOST_DEVICE inline Real interpolate(Real far_left, Real left, Real right, Real far_right) {
  return ((left + right) * Real{9} - (far_left + far_right)) * Real{0.0625};
}
template <class Real>
TUCKFOLD_HOST_DEVICE inline Real beyond(Real before_last, Real last) {
  return last * Real{1.5} - before_last * Real{0.5};
}

// The value that a code moves a prediction to.
template <class Real>
TUCKFOLD_HOST_DEVICE inline Real moved(Real predicted, std::int32_t code, const Grid<Real>& grid) {
  const auto twice = static_cast<std::int32_t>(2 * static_cast<std::uint32_t>(code));
  return predicted + static_cast<Real>(twice) * grid.half;
}

// A grid on which values up to `largest` hold but for few.
template <class Real>
TUCKFOLD_HOST_DEVICE inline int likely_grid(DType dtype, Real largest, const Grid<Real>& grid) {
  if (dtype != DType::F16 && dtype != DType::BF16) return first_grid(dtype, largest, grid);
  const Real reach = dtype == DType::F16 ? Real{0x1p9} : Real{0x1p6};
  int number = 0;
  while (number + 1 < kGrids && !(largest * grid.inverse <= Real{kShrink[number]} * reach)) {
    ++number;
  }
  return number;
}

// ---- differences of codes, as numbers that are small when they are

TUCKFOLD_HOST_DEVICE inline std::uint32_t zigzag(std::uint32_t difference) {
  return (difference << 1) ^ (0u - (difference >> 31));
}
TUCKFOLD_HOST_DEVICE inline std::uint32_t unzigzag(std::uint32_t coded) {
  return (coded >> 1) ^ (0u - (coded & 1u));
}

}  // namespace tuckfold::bounded
