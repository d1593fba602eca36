// Values to codes and codes to numbers, one chunk per warp, for bounded's pack kernel.
#pragma once

#include <limits>

#include "base/cuda/async.cuh"
#include "codec/bounded/bounded_cuda.cuh"
#include "codec/bounded/bounded_rows.h"

namespace tuckfold::bounded {

// Codes of f32 are stored doubled: that costs nothing, and saves a shift for each difference. Codes
// of f64 have no spare bit.
template <class Element>
inline constexpr int kHeldShift = std::is_same_v<Element, double> ? 0 : 1;

// ---- values -------------------------------------------------------------------------------------

// Any tensor's values. Past the end the last value is repeated, and so is its code. Not inlined,
// because it would take registers from the code that follows.
template <class Element>
__device__ __attribute__((noinline)) void stage_any(const PackArgs& args, std::int64_t chunk,
                                                    unsigned char* stage) {
  const int count = static_cast<int>(chunk_elems(args.in.elems, chunk));
  const auto* data = reinterpret_cast<const Element*>(args.in.data);
  for (int i = lane_of(); i < kChunk; i += kWarp) {
    const std::int64_t index = chunk * kChunk + (i < count ? i : count - 1);
    *reinterpret_cast<Element*>(stage + Stage16<Element>::value_place(i)) =
        data[args.in.offset(index)];
  }
}

// Starts to copy a chunk's values to the stage, if that is possible.
template <class Element>
__device__ TUCKFOLD_INLINE bool start_values(const PackArgs& args, std::int64_t chunk,
                                             unsigned char* stage) {
  using S = Stage16<Element>;
  if (!args.vectors || (chunk + 1) * kChunk > args.in.elems) return false;
  const auto* from =
      reinterpret_cast<const uint4*>(args.in.data) + chunk * (S::kVectors * kWarp) + lane_of();
#pragma unroll
  for (int k = 0; k < S::kVectors; ++k) {
    cuda::copy_async(stage + S::place(k), from + k * kWarp);
  }
  return true;
}

// Calls visit(i, value) for a lane's values, from its part of the stage.
template <class Element, class Visit>
__device__ TUCKFOLD_INLINE void for_each_value(const unsigned char* stage, Visit&& visit) {
  using S = Stage16<Element>;
  const unsigned char* own = stage + lane_of() * S::kStride;
#pragma unroll
  for (int v = 0; v < S::kVectors; ++v) {
    const auto some =
        std::bit_cast<Sixteen<Element>>(*reinterpret_cast<const uint4*>(own + 16 * v));
#pragma unroll
    for (int i = 0; i < S::kTogetherValues; ++i) {
      visit(v * S::kTogetherValues + i, real_of(some.elements[i]));
    }
  }
}

// The largest magnitude. It ignores NaN, which is within the bound on no grid.
template <class Element>
__device__ TUCKFOLD_INLINE RealOf<Element> largest_of(const unsigned char* stage) {
  using Real = RealOf<Element>;
  Real largest = 0;
  for_each_value<Element>(stage,
                          [&](int, Real value) { largest = std::fmax(largest, std::fabs(value)); });
  if constexpr (std::is_same_v<Real, float>) {
    // Bits of numbers that are not negative are in order.
    return __uint_as_float(__reduce_max_sync(kAllLanes, __float_as_uint(largest)));
  } else {
#pragma unroll
    for (int by = kWarp / 2; by > 0; by /= 2) {
      largest = std::fmax(largest, __shfl_xor_sync(kAllLanes, largest, by));
    }
    return largest;
  }
}

// A lane's codes, as stored, and whether all values are within the bound; if not, the codes are
// invalid.
template <class Element, bool kExactZero>
__device__ TUCKFOLD_INLINE bool quantize(const unsigned char* stage,
                                         const Grid<RealOf<Element>>& grid, std::uint32_t* codes) {
  using Real = RealOf<Element>;
  bool good[4] = {true, true, true, true};  // so that they need not wait for each other
  for_each_value<Element>(stage, [&](int i, Real value) {
    bool here;
    if constexpr (kExactZero) {
      const std::int32_t code = code_of(value, grid);
      const Real back = real_of(element_of<Element>(value_of(code, grid)));
      codes[i] = static_cast<std::uint32_t>(code) << kHeldShift<Element>;
      here = holds(value, back, grid);
    } else {
      // Codes are at most kMaxCode, so what comes out of the sum is exact, and twice that too.
      const Real sum = value * grid.inverse + kToInteger<Real>;
      const Real twice = std::fma(Real{2}, sum, Real{-2} * kToInteger<Real>);
      const Real back = real_of(element_of<Element>(twice * grid.half));
      constexpr auto kOrigin =
          static_cast<std::uint32_t>(std::bit_cast<Bits<Real>>(kToInteger<Real>));
      constexpr std::uint32_t kTimes = 1u << kHeldShift<Element>;
      codes[i] =
          static_cast<std::uint32_t>(std::bit_cast<Bits<Real>>(sum)) * kTimes - kOrigin * kTimes;
      here = std::fabs(value - back) <= grid.bound;
    }
    good[i % 4] = good[i % 4] & here;
  });
  return good[0] & good[1] & good[2] & good[3];
}

// As first_grid, without a branch: the limits grow from grid to grid.
template <class Element>
__device__ TUCKFOLD_INLINE int grid_for(RealOf<Element> largest, RealOf<Element> inverse) {
  using Real = RealOf<Element>;
  if constexpr (!std::is_same_v<Element, float>) return 0;
  const Real steps = largest * inverse;
  int number = 0;
#pragma unroll
  for (int i = 0; i + 1 < kGrids; ++i) {
    number += steps <= static_cast<Real>(kShrink[i]) * Real{0x1p20} ? 0 : 1;
  }
  return number;
}

// Codes on the first grid on which all values of the chunk are within the bound, and its number;
// -1: there is none.
template <class Element, bool kExactZero>
__device__ TUCKFOLD_INLINE int quantize_chunk(const Control* control, const unsigned char* stage,
                                              std::uint32_t* codes) {
  using Real = RealOf<Element>;
  const Real largest = largest_of<Element>(stage);
  if (!(largest <= std::numeric_limits<Real>::max())) return -1;
  const Real inverse = grid_at<Real>(control, 0).inverse;
  for (int number = grid_for<Element>(largest, inverse); number < kGrids; ++number) {
    const Grid<Real> grid = grid_at<Real>(control, number);
    if (!usable(grid) || !(largest * grid.inverse <= kMaxCode<Real>)) return -1;
    if (__all_sync(kAllLanes, quantize<Element, kExactZero>(stage, grid, codes))) return number;
  }
  return -1;
}

// The same for f16 and bf16, where `holding` knows the grids of every value.
template <class Element, bool kExactZero>
__device__ TUCKFOLD_INLINE int quantize_halves(const Control* control, const unsigned char* stage,
                                               const unsigned char* holding, std::uint32_t* codes) {
  using S = Stage16<Element>;
  unsigned all = ~0u;
#pragma unroll
  for (int v = 0; v < S::kVectors; ++v) {
    const uint4 some = *reinterpret_cast<const uint4*>(stage + lane_of() * S::kStride + 16 * v);
    const auto look = [&](unsigned two) {
      all &= holding[two & 0x7fffu] & holding[two >> 16 & 0x7fffu];
    };
    look(some.x);
    look(some.y);
    look(some.z);
    look(some.w);
  }
  const int number = __ffs(static_cast<int>(__reduce_and_sync(kAllLanes, all))) - 1;
  if (number < 0) return -1;
  const Grid<float> grid = grid_at<float>(control, number);
  for_each_value<Element>(stage, [&](int i, float value) {
    if constexpr (kExactZero) {
      codes[i] = static_cast<std::uint32_t>(code_of(value, grid)) << kHeldShift<Element>;
    } else {
      constexpr std::uint32_t kOrigin = std::bit_cast<std::uint32_t>(kToInteger<float>);
      const float sum = value * grid.inverse + kToInteger<float>;
      codes[i] = (__float_as_uint(sum) - kOrigin) << kHeldShift<Element>;
    }
  });
  return number;
}

// ---- codes --------------------------------------------------------------------------------------

// The zigzag number of a difference of held codes.
template <class Element>
__device__ TUCKFOLD_INLINE std::uint32_t zigzag_of(std::uint32_t held, std::uint32_t before) {
  const std::uint32_t step = held - before;
  if constexpr (kHeldShift<Element> == 0) return zigzag(step);
  return step ^ (0u - (step >> 31));
}

// The difference of held codes back from its zigzag number.
template <class Element>
__device__ TUCKFOLD_INLINE std::uint32_t step_of(std::uint32_t number) {
  if constexpr (kHeldShift<Element> == 0) return unzigzag(number);
  return number ^ (0u - (number & 1u));
}

// Stored codes to numbers, in place: to the codes themselves, if they take fewer bits than their
// differences and none is negative; else to differences. Decides like the CPU: by rows 0, 16 …,
// then rows 0, 4 …, which are first rows of lanes. Returns kEvenSteps where these numbers are
// better if they are narrow enough, but leaves kSteps. `before` is the code before the lane's first.
template <class Element>
__device__ TUCKFOLD_INLINE Numbers number_codes(std::uint32_t* held, std::uint32_t before) {
  const int lane = lane_of();
  const std::uint32_t between = held[kRowValues - 1];
  std::uint32_t alone = 0, steps = 0, parity = 0;
#pragma unroll
  for (int i = kRowValues; i-- > 0;) {
    const std::uint32_t left = i == 0 ? before : held[i - 1];
    alone |= held[i];
    parity |= held[i] ^ left;
    held[i] = zigzag_of<Element>(held[i], left);
    steps |= held[i];
  }
  // The width of a negative one is 32, doubled or not.
  const int width = alone >> 31 != 0 ? 32 : width_of(alone >> kHeldShift<Element>);
  const int saved = width_of(steps) - width;
  if (__reduce_add_sync(kAllLanes, lane % 8 == 0 ? saved : 0) > 0 &&
      __reduce_add_sync(kAllLanes, lane % 2 == 0 ? saved : 0) > 0) {
#pragma unroll
    for (int i = kRowValues; i < kEach; ++i) alone |= held[i];
    if (!__any_sync(kAllLanes, alone >> 31 != 0)) {
      // Registers are scarce: the first row's codes were not kept.
#pragma unroll
      for (int i = 0; i < kRowValues; ++i) {
        before += step_of<Element>(held[i]);
        held[i] = before >> kHeldShift<Element>;
        held[kRowValues + i] >>= kHeldShift<Element>;
      }
      return kCodes;
    }
  }
#pragma unroll
  for (int i = kEach; i-- > kRowValues;) {
    held[i] = zigzag_of<Element>(held[i], i == kRowValues ? between : held[i - 1]);
  }
  // In codes of equal parity all differences are even.
  const bool odd = (parity >> kHeldShift<Element> & 1u) != 0;
  constexpr unsigned kEvenLanes = 0x55555555u;
  const int odd_rows = __popc(__ballot_sync(kAllLanes, odd) & kEvenLanes);
  const int even_rows = __popc(__ballot_sync(kAllLanes, !odd && steps != 0) & kEvenLanes);
  return even_rows > odd_rows ? kEvenSteps : kSteps;
}

}  // namespace tuckfold::bounded
