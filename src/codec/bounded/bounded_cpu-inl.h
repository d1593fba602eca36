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

#include "base/convert.h"
#include "base/convert_cpu-inl.h"
#include "codec/bounded/bounded.h"
#include "codec/bounded/bounded_block.h"

HWY_BEFORE_NAMESPACE();
namespace tuckfold::bounded::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// ---- elements as numbers ------------------------------------------------------------------------

inline F16 narrowed(float value, F16) { return to_f16_saturated(value); }
inline BF16 narrowed(float value, BF16) { return to_bf16_saturated(value); }
inline std::uint8_t narrowed(float value, std::uint8_t) {
  return static_cast<std::uint8_t>(static_cast<std::int32_t>(as_u8(value)));
}
inline std::uint16_t narrowed(float value, std::uint16_t) {
  return static_cast<std::uint16_t>(static_cast<std::int32_t>(as_u16(value)));
}

// The elements themselves if they have the wanted type, else converted in `buffer`.
inline const float* as_reals(DType dtype, const void* bits, std::int64_t count, float* buffer) {
  switch (dtype) {
    case DType::F16: to_floats(static_cast<const F16*>(bits), count, buffer); return buffer;
    case DType::BF16: to_floats(static_cast<const BF16*>(bits), count, buffer); return buffer;
    case DType::U8: to_floats(static_cast<const std::uint8_t*>(bits), count, buffer); return buffer;
    case DType::U16:
      to_floats(static_cast<const std::uint16_t*>(bits), count, buffer);
      return buffer;
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

// The same of f16 or bf16: as whole numbers with a sign they have the order of their values once
// the magnitude's bits of the negative ones are inverted. Infinities and NaN lie beyond.
template <class Of>
HWY_ATTR void widen_halves(const std::uint16_t* values, std::int64_t count, Range& range) {
  constexpr auto kInfinity = static_cast<std::int16_t>(Of::kInfinity);
  std::int16_t least = kInfinity, most = static_cast<std::int16_t>(~kInfinity);
  const auto add = [&](std::int16_t key) {
    if (key >= kInfinity || key <= static_cast<std::int16_t>(~kInfinity)) return;
    least = std::min(least, key);
    most = std::max(most, key);
  };
  std::int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::ScalableTag<std::int16_t> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto above = hn::Set(d, least), below = hn::Set(d, most);
  auto low = above, high = below;
  for (; i + lanes <= count; i += lanes) {
    const auto v = hn::LoadU(d, reinterpret_cast<const std::int16_t*>(values) + i);
    const auto key = hn::Xor(v, hn::And(hn::ShiftRight<15>(v), hn::Set(d, 0x7fff)));
    const auto finite = hn::And(hn::Lt(key, above), hn::Gt(key, below));
    low = hn::Min(low, hn::IfThenElse(finite, key, above));
    high = hn::Max(high, hn::IfThenElse(finite, key, below));
  }
  add(hn::GetLane(hn::MinOfLanes(d, low)));
  add(hn::GetLane(hn::MaxOfLanes(d, high)));
#endif
  const auto value_of_key = [](std::int16_t key) {
    const auto bits = static_cast<std::uint16_t>(key < 0 ? key ^ 0x7fff : key);
    return static_cast<double>(to_float(typename Of::Half{bits}));
  };
  for (; i < count; ++i) {
    const std::uint32_t bits = values[i];
    add(static_cast<std::int16_t>(bits ^ ((bits & 0x8000u) != 0 ? 0x7fffu : 0u)));
  }
  if (least > most) return;  // none is finite
  range.low = std::min(range.low, value_of_key(least));
  range.high = std::max(range.high, value_of_key(most));
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

// Rounds a value, or a vector of them, to the dtype.
template <class Real>
Real rounded(DType dtype, Real value) {
  if constexpr (std::is_same_v<Real, float>) {
    if (dtype == DType::F16) return as_f16(value);
    if (dtype == DType::BF16) return as_bf16(value);
    if (dtype == DType::U8) return as_u8(value);
    if (dtype == DType::U16) return as_u16(value);
  }
  return value;
}
template <class D, class V>
HWY_ATTR HWY_INLINE V rounded(DType dtype, D d, V value) {
  if constexpr (std::is_same_v<hn::TFromD<D>, float>) {
    const hn::RebindToUnsigned<D> du;
    const auto bits = hn::BitCast(du, value);
    const auto one = hn::Set(du, 1u);
    if (dtype == DType::BF16) {
      const auto odd = hn::And(hn::ShiftRight<16>(bits), one);
      const auto half = hn::Add(odd, hn::Set(du, 0x7fffu));
      // Infinity and numbers above the largest are not rounded.
      const auto rounds = hn::Lt(hn::Abs(value), hn::Set(d, kMaxBF16));
      const auto sum =
          hn::Add(bits, hn::BitCast(du, hn::IfThenElseZero(rounds, hn::BitCast(d, half))));
      return hn::BitCast(d, hn::And(sum, hn::Set(du, 0xffff0000u)));
    }
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
    if (dtype == DType::F16) {  // the same by an instruction
      const auto inside = hn::Min(hn::Abs(value), hn::Set(d, kMaxF16));
      constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
#if HWY_TARGET <= HWY_AVX3
      return hn::CopySign(V{_mm512_cvtph_ps(_mm512_cvtps_ph(inside.raw, kNearest))}, value);
#else
      return hn::CopySign(V{_mm256_cvtph_ps(_mm256_cvtps_ph(inside.raw, kNearest))}, value);
#endif
    }
#endif
    if (dtype == DType::F16) {
      const auto magnitude = hn::Abs(value), middle = hn::Set(d, 0.5f);
      const auto own = hn::BitCast(du, magnitude);
      const auto odd = hn::And(hn::ShiftRight<13>(own), one);
      const auto sum = hn::Add(hn::Add(own, hn::Set(du, 0xfffu)), odd);
      const auto normal = hn::BitCast(d, hn::And(sum, hn::Set(du, 0xffffe000u)));
      const auto subnormal = hn::Sub(hn::Add(magnitude, middle), middle);
      const auto small = hn::Lt(magnitude, hn::Set(d, 0x1p-14f));
      const auto finite = hn::IfThenElse(small, subnormal, normal);
      return hn::CopySign(hn::Min(finite, hn::Set(d, kMaxF16)), value);
    }
    if (has_whole_values(dtype)) {
      const auto most = hn::Set(d, dtype == DType::U8 ? 255.0f : 65535.0f);
      const auto to_integer = hn::Set(d, 0x1p23f);
      const auto inside = hn::Min(hn::Max(value, hn::Zero(d)), most);
      return hn::Sub(hn::Add(inside, to_integer), to_integer);
    }
  }
  return value;
}

// Scaled values to the nearest i32, and i32 to Real.
template <class D>
HWY_ATTR HWY_INLINE auto nearest_of(D d, hn::Vec<D> scaled) {
  using Real = hn::TFromD<D>;
  const hn::RebindToUnsigned<D> du;
  const auto to_integer = hn::Set(d, kToInteger<Real>);
  const auto whole =
      hn::Sub(hn::BitCast(du, hn::Add(scaled, to_integer)), hn::BitCast(du, to_integer));
  if constexpr (std::is_same_v<Real, float>) {
    return hn::BitCast(hn::RebindToSigned<D>(), whole);
  } else {
    const hn::Rebind<std::int32_t, D> di;
    return hn::BitCast(di, hn::TruncateTo(hn::Rebind<std::uint32_t, D>(), whole));
  }
}
template <class D, class V>
HWY_ATTR HWY_INLINE auto real_of(D d, V whole) {
  if constexpr (std::is_same_v<hn::TFromD<D>, float>) {
    return hn::ConvertTo(d, whole);
  } else {
    return hn::PromoteTo(d, whole);
  }
}

// A mask of Real as i32: all bits where it is true, else none.
template <class D, class M>
HWY_ATTR HWY_INLINE auto bits_where(D d, M mask) {
  const hn::Rebind<std::int32_t, D> di;
  if constexpr (std::is_same_v<hn::TFromD<D>, float>) {
    return hn::VecFromMask(di, hn::RebindMask(di, mask));
  } else {
    return nearest_of(d, hn::IfThenElseZero(mask, hn::Set(d, -1.0)));
  }
}

constexpr std::int64_t kStretch = 128;  // values between two looks at whether all hold

// Codes of values, and `count` if all of them are within the bound; if not, the codes are invalid,
// and it is the beginning of kStretch values of which one is not.
template <class Real, bool kExactZero>
HWY_ATTR std::int64_t quantize_lanes(DType dtype, const Real* values, std::int64_t count,
                                     const Grid<Real>& grid, std::int32_t* codes) {
  const hn::ScalableTag<Real> d;
  const hn::Rebind<std::int32_t, decltype(d)> di;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto inverse = hn::Set(d, grid.inverse), half = hn::Set(d, grid.half);
  const auto bound = hn::Set(d, grid.bound), zero = hn::Zero(d);
  const auto one = hn::Set(di, 1);
  std::int64_t i = 0;
  while (i + lanes <= count) {
    auto good = hn::Eq(zero, zero);
    const std::int64_t begin = i, end = std::min(i + kStretch, count);
    for (; i + lanes <= end; i += lanes) {
      // Memory would be idle while this chunk is in cache: prefetch the next.
      __builtin_prefetch(reinterpret_cast<const char*>(values + i) + kChunk * sizeof(Real), 0, 2);
      const auto v = hn::LoadU(d, values + i);
      if constexpr (kExactZero) {
        const auto scaled = hn::Mul(hn::Abs(v), inverse);
        const auto is_zero = hn::Eq(v, zero);
        auto code = nearest_of(d, scaled);
        // One more if the code is below the scaled value, at least 1, and then with the sign of the
        // value, or 0.
        code = hn::Sub(code, bits_where(d, hn::Lt(real_of(d, code), scaled)));
        code = hn::Max(code, one);
        auto back = hn::Mul(real_of(d, hn::Sub(hn::Add(code, code), one)), half);
        back = rounded(dtype, d, hn::IfThenZeroElse(is_zero, hn::CopySign(back, v)));
        const auto negative = bits_where(d, hn::Lt(v, zero));
        code = hn::Sub(hn::Xor(code, negative), negative);
        hn::StoreU(hn::AndNot(bits_where(d, is_zero), code), di, codes + i);
        good = hn::AndNot(hn::Xor(is_zero, hn::Eq(back, zero)), good);
        good = hn::And(good, hn::Le(hn::Abs(hn::Sub(v, back)), bound));
      } else {
        const auto code = nearest_of(d, hn::Mul(v, inverse));
        const auto back = rounded(dtype, d, hn::Mul(real_of(d, hn::Add(code, code)), half));
        hn::StoreU(code, di, codes + i);
        good = hn::And(good, hn::Le(hn::Abs(hn::Sub(v, back)), bound));
      }
    }
    if (!hn::AllTrue(d, good)) return begin;
  }
  for (; i < count; ++i) {
    codes[i] = code_of(values[i], grid);
    if (!holds(values[i], rounded(dtype, value_of(codes[i], grid)), grid)) return i;
  }
  return count;
}

template <class Real>
std::int64_t quantize_all(DType dtype, const Real* values, std::int64_t count,
                          const Grid<Real>& grid, std::int32_t* codes) {
  return grid.exact_zero ? quantize_lanes<Real, true>(dtype, values, count, grid, codes)
                         : quantize_lanes<Real, false>(dtype, values, count, grid, codes);
}

// Codes on the first grid on which all values are within the bound, and its number; -1 if there is
// none.
template <class Real>
int quantize(const TensorBound& tensor, const Real* values, std::int64_t count,
             std::int32_t* codes) {
  const Real largest = largest_of(values, count);
  if (!(largest <= std::numeric_limits<Real>::max())) return -1;
  Grid<Real> grid = grid_of<Real>(tensor.dtype, tensor.bound, tensor.exact_zero, 0);
  std::int64_t doubtful = 0;  // where the last grid failed, the next one may as well
  for (int number = first_grid(tensor.dtype, largest, grid); number < kGrids; ++number) {
    grid = grid_of<Real>(tensor.dtype, tensor.bound, tensor.exact_zero, number);
    if (!usable(grid) || !(largest * grid.inverse <= kMaxCode<Real>)) return -1;
    const std::int64_t some = std::min(kStretch, count - doubtful);
    if (doubtful > 0 &&
        quantize_all(tensor.dtype, values + doubtful, some, grid, codes + doubtful) < some) {
      continue;
    }
    doubtful = quantize_all(tensor.dtype, values, count, grid, codes);
    if (doubtful == count) return number;
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

template <class Element>
void store_elements(const Grid<float>& grid, const std::uint32_t* codes, std::int64_t count,
                    void* bits) {
  alignas(64) float values[kChunk];
  for (std::int64_t at = 0; at < count; at += kChunk) {
    const std::int64_t some = std::min(kChunk, count - at);
    store_f32<false>(grid, codes + at, some, values);
    from_floats(values, some, static_cast<Element*>(bits) + at);
  }
}

// Values of codes as elements; `stream` needs `bits` at the start of a cache line.
inline void store_values(DType dtype, const Grid<float>& grid, const std::uint32_t* codes,
                         std::int64_t count, bool stream, void* bits) {
  switch (dtype) {
    case DType::F16: return store_elements<F16>(grid, codes, count, bits);
    case DType::BF16: return store_elements<BF16>(grid, codes, count, bits);
    case DType::U8: return store_elements<std::uint8_t>(grid, codes, count, bits);
    case DType::U16: return store_elements<std::uint16_t>(grid, codes, count, bits);
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
