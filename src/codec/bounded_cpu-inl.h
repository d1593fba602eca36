// Values of any dtype to codes and back, with the arithmetic of bounded_block.h.
#if defined(TUCKFOLD_CODEC_BOUNDED_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TUCKFOLD_CODEC_BOUNDED_INL_H
#undef TUCKFOLD_CODEC_BOUNDED_INL_H
#else
#define TUCKFOLD_CODEC_BOUNDED_INL_H
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

#include "codec/bounded.h"
#include "codec/bounded_block.h"

HWY_BEFORE_NAMESPACE();
namespace tuckfold::bounded::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// ---- elements as numbers ------------------------------------------------------------------------

template <class Element>
void widen_elements(const void* bits, std::int64_t count, float* out) {
  const auto* from = static_cast<const Element*>(bits);
  for (std::int64_t i = 0; i < count; ++i) {
    if constexpr (std::is_same_v<Element, std::uint8_t>) {
      out[i] = static_cast<float>(from[i]);
    } else {
      out[i] = to_float(from[i]);
    }
  }
}

// The elements themselves where they are numbers of the wanted type, else `buffer`.
inline const float* as_reals(DType dtype, const void* bits, std::int64_t count, float* buffer) {
  switch (dtype) {
    case DType::F16: widen_elements<F16>(bits, count, buffer); return buffer;
    case DType::BF16: widen_elements<BF16>(bits, count, buffer); return buffer;
    case DType::U8: widen_elements<std::uint8_t>(bits, count, buffer); return buffer;
    default: return static_cast<const float*>(bits);
  }
}
inline const double* as_reals(DType, const void* bits, std::int64_t, double*) {
  return static_cast<const double*>(bits);
}

template <class Real>
HWY_ATTR void widen(const Real* values, std::int64_t count, Range& range) {
  const hn::ScalableTag<Real> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  constexpr Real kInf = std::numeric_limits<Real>::infinity();
  constexpr Real kMost = std::numeric_limits<Real>::max();
  const auto above = hn::Set(d, kInf), below = hn::Set(d, -kInf), most = hn::Set(d, kMost);
  auto low = above, high = below;
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto v = hn::LoadU(d, values + i);
    const auto finite = hn::Le(hn::Abs(v), most);
    low = hn::Min(low, hn::IfThenElse(finite, v, above));
    high = hn::Max(high, hn::IfThenElse(finite, v, below));
  }
  range.low = std::min(range.low, static_cast<double>(hn::GetLane(hn::MinOfLanes(d, low))));
  range.high = std::max(range.high, static_cast<double>(hn::GetLane(hn::MaxOfLanes(d, high))));
  for (; i < count; ++i) {
    if (!(std::abs(values[i]) <= kMost)) continue;
    range.low = std::min(range.low, static_cast<double>(values[i]));
    range.high = std::max(range.high, static_cast<double>(values[i]));
  }
}

// The largest magnitude; infinity or NaN where there is one.
template <class Real>
Real largest_of(const Real* values, std::int64_t count) {
  constexpr Bits<Real> kMagnitude = std::numeric_limits<Bits<Real>>::max() >> 1;
  Bits<Real> most = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const Bits<Real> magnitude = std::bit_cast<Bits<Real>>(values[i]) & kMagnitude;
    most = magnitude > most ? magnitude : most;
  }
  return std::bit_cast<Real>(most);
}

// ---- values to codes ----------------------------------------------------------------------------

// Codes of values, and whether all of them hold; Round is what the dtype does to a value.
template <class Real, class Round>
bool quantize_each(const Real* values, std::int64_t count, const Grid<Real>& grid,
                   std::int32_t* codes, Round&& round) {
  bool good = true;
  for (std::int64_t i = 0; i < count; ++i) {
    codes[i] = code_of(values[i], grid);
    good &= holds(values[i], round(value_of(codes[i], grid)), grid);
  }
  return good;
}

template <bool kExactZero>
HWY_ATTR bool quantize_f32(const float* values, std::int64_t count, const Grid<float>& grid,
                           std::int32_t* codes) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto inverse = hn::Set(d, grid.inverse), half = hn::Set(d, grid.half);
  const auto bound = hn::Set(d, grid.bound), zero = hn::Zero(d);
  const auto to_integer = hn::Set(d, kToInteger<float>);
  const auto one = hn::Set(di, 1);
  const auto nearest_integer = [&](auto scaled) HWY_ATTR {
    return hn::Sub(hn::BitCast(di, hn::Add(scaled, to_integer)), hn::BitCast(di, to_integer));
  };
  auto good = hn::Eq(zero, zero);
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    // While this chunk is in cache memory would idle: fetch the next.
    __builtin_prefetch(reinterpret_cast<const char*>(values + i) + kChunk * 4, 0, 2);
    const auto v = hn::LoadU(d, values + i);
    auto back = zero;
    if constexpr (kExactZero) {
      const auto scaled = hn::Mul(hn::Abs(v), inverse);
      auto code = nearest_integer(scaled);
      const auto below = hn::RebindMask(di, hn::Lt(hn::ConvertTo(d, code), scaled));
      code = hn::Max(hn::Sub(code, hn::VecFromMask(di, below)), one);
      back = hn::Mul(hn::ConvertTo(d, hn::Sub(hn::Add(code, code), one)), half);
      back = hn::IfThenZeroElse(hn::Eq(v, zero), hn::CopySign(back, v));
      const auto negative = hn::RebindMask(di, hn::Lt(v, zero));
      code = hn::IfThenElse(negative, hn::Neg(code), code);
      code = hn::IfThenZeroElse(hn::RebindMask(di, hn::Eq(v, zero)), code);
      hn::StoreU(code, di, codes + i);
    } else {
      const auto code = nearest_integer(hn::Mul(v, inverse));
      back = hn::Mul(hn::ConvertTo(d, hn::Add(code, code)), half);
      hn::StoreU(code, di, codes + i);
    }
    good = hn::And(good, hn::Le(hn::Abs(hn::Sub(v, back)), bound));
  }
  return hn::AllTrue(d, good) &&
         quantize_each(values + i, count - i, grid, codes + i, [](float back) { return back; });
}

inline bool quantize_all(DType dtype, const float* values, std::int64_t count,
                         const Grid<float>& grid, std::int32_t* codes) {
  switch (dtype) {
    case DType::F16: return quantize_each(values, count, grid, codes, as_f16);
    case DType::BF16: return quantize_each(values, count, grid, codes, as_bf16);
    case DType::U8: return quantize_each(values, count, grid, codes, as_u8);
    default: break;
  }
  return grid.exact_zero ? quantize_f32<true>(values, count, grid, codes)
                         : quantize_f32<false>(values, count, grid, codes);
}
inline bool quantize_all(DType, const double* values, std::int64_t count, const Grid<double>& grid,
                         std::int32_t* codes) {
  return quantize_each(values, count, grid, codes, [](double back) { return back; });
}

// Codes on the first grid on which all values hold, and its number; -1 where there is none.
template <class Real>
int quantize(const Job& job, const Real* values, std::int64_t count, std::int32_t* codes) {
  const Real largest = largest_of(values, count);
  if (!(largest <= std::numeric_limits<Real>::max())) return -1;
  Grid<Real> grid = grid_of<Real>(job.dtype, job.bound, job.exact_zero, 0);
  for (int number = first_grid(job.dtype, largest, grid); number < kGrids; ++number) {
    grid = grid_of<Real>(job.dtype, job.bound, job.exact_zero, number);
    if (!usable(grid) || !(largest * grid.inverse <= kMaxCode<Real>)) return -1;
    if (quantize_all(job.dtype, values, count, grid, codes)) return number;
  }
  return -1;
}

// ---- codes to values ----------------------------------------------------------------------------

template <bool kStream>
HWY_ATTR void store_f32(const Grid<float>& grid, const std::uint32_t* codes, std::int64_t count,
                        float* out) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto half = hn::Set(d, grid.half);
  const auto zero = hn::Zero(di);
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto code = hn::LoadU(di, reinterpret_cast<const std::int32_t*>(codes) + i);
    auto twice = hn::Add(code, code);
    if (grid.exact_zero) {
      twice = hn::Add(twice, hn::VecFromMask(di, hn::Gt(code, zero)));
      twice = hn::Sub(twice, hn::VecFromMask(di, hn::Lt(code, zero)));
    }
    const auto v = hn::Mul(hn::ConvertTo(d, twice), half);
    if constexpr (kStream) {
      hn::Stream(v, d, out + i);
    } else {
      hn::StoreU(v, d, out + i);
    }
  }
  for (; i < count; ++i) out[i] = value_of(static_cast<std::int32_t>(codes[i]), grid);
}

template <class Element, class Narrow>
void store_elements(const Grid<float>& grid, const std::uint32_t* codes, std::int64_t count,
                    void* bits, Narrow&& narrow) {
  auto* out = static_cast<Element*>(bits);
  for (std::int64_t i = 0; i < count; ++i) {
    out[i] = narrow(value_of(static_cast<std::int32_t>(codes[i]), grid));
  }
}

// Values of codes as elements; `stream` needs `bits` at the start of a cache line.
inline void store_values(DType dtype, const Grid<float>& grid, const std::uint32_t* codes,
                         std::int64_t count, bool stream, void* bits) {
  switch (dtype) {
    case DType::F16: return store_elements<F16>(grid, codes, count, bits, to_f16);
    case DType::BF16: return store_elements<BF16>(grid, codes, count, bits, to_bf16);
    case DType::U8:
      return store_elements<std::uint8_t>(grid, codes, count, bits, [](float value) {
        return static_cast<std::uint8_t>(as_u8(value));
      });
    default: break;
  }
  (stream ? store_f32<true> : store_f32<false>)(grid, codes, count, static_cast<float*>(bits));
}
inline void store_values(DType, const Grid<double>& grid, const std::uint32_t* codes,
                         std::int64_t count, bool, void* bits) {
  auto* out = static_cast<double*>(bits);
  for (std::int64_t i = 0; i < count; ++i) {
    out[i] = value_of(static_cast<std::int32_t>(codes[i]), grid);
  }
}

}  // namespace tuckfold::bounded::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
