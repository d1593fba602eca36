// The functions of half.h in SIMD, step by step: conversion instructions treat NaN and what is
// beyond the largest number differently. Where vectors have neither, x86's for f16 give the same
// bits.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "base/convert_cpu.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <limits>

#include "base/convert.h"

HWY_BEFORE_NAMESPACE();
namespace tuckfold::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using DU = hn::Repartition<std::uint32_t, D>;
using D16 = hn::Rebind<std::uint16_t, D>;
using VU = hn::Vec<DU>;

HWY_INLINE VU set(std::uint32_t bits) { return hn::Set(DU(), bits); }

struct OfBF16 {
  using Half = BF16;
  static HWY_INLINE BF16 narrow_one(float value) { return to_bf16_saturated(value); }
  static HWY_INLINE VU widen(VU half) { return hn::ShiftLeft<16>(half); }
  static HWY_INLINE VU narrow(VU bits) {
    const auto magnitude = hn::AndNot(set(kSignBit), bits);
    const auto half = hn::Add(hn::And(hn::ShiftRight<16>(bits), set(1)), set(0x7fff));
    const auto rounds = hn::Lt(magnitude, set(bits_of(kMaxBF16)));
    const auto number = hn::ShiftRight<16>(hn::Add(bits, hn::IfThenElseZero(rounds, half)));
    return hn::IfThenElse(hn::Gt(magnitude, set(kInfBits)), set(kBF16Nan), number);
  }
};

struct OfF16 {
  using Half = F16;
  static HWY_INLINE F16 narrow_one(float value) { return to_f16_saturated(value); }
  static HWY_INLINE VU widen(VU half) {
    const auto sign = hn::ShiftLeft<16>(hn::And(half, set(0x8000)));
    const auto magnitude = hn::ShiftLeft<13>(hn::And(half, set(0x7fff)));
    const auto finite =
        hn::BitCast(DU(), hn::Mul(hn::BitCast(D(), magnitude), hn::Set(D(), 0x1p112f)));
    const auto quiet =
        hn::And(hn::VecFromMask(DU(), hn::Gt(magnitude, set(0x0f800000))), set(0x00400000));
    const auto special = hn::Or(quiet, set(kInfBits));
    return hn::Or(sign, hn::IfThenElse(hn::Lt(magnitude, set(0x0f800000)), finite, special));
  }
  static HWY_INLINE VU narrow(VU bits) {
    const auto sign = hn::ShiftRight<16>(hn::And(bits, set(kSignBit)));
    const auto magnitude = hn::AndNot(set(kSignBit), bits);
    const auto limited = hn::Min(magnitude, set(bits_of(kMaxF16)));
    const auto subnormal = hn::Sub(
        hn::BitCast(DU(), hn::Add(hn::BitCast(D(), limited), hn::Set(D(), 0.5f))), set(0x3f000000));
    const auto odd = hn::And(hn::ShiftRight<13>(limited), set(1));
    const auto normal = hn::ShiftRight<13>(hn::Add(hn::Sub(limited, set(0x38000000 - 0xfff)), odd));
    const auto finite = hn::IfThenElse(hn::Lt(limited, set(0x38800000)), subnormal, normal);
    const auto number = hn::IfThenElse(hn::Lt(magnitude, set(kInfBits)), finite, set(0x7c00));
    return hn::IfThenElse(hn::Gt(magnitude, set(kInfBits)), set(kF16Nan), hn::Or(sign, number));
  }
};

#undef TUCKFOLD_CONVERT_F16C
#define TUCKFOLD_CONVERT_F16C (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2)

HWY_INLINE hn::Vec<D> widened(OfBF16, hn::Vec<D16> half) {
  return hn::BitCast(D(), OfBF16::widen(hn::PromoteTo(DU(), half)));
}
HWY_INLINE hn::Vec<D> widened(OfF16, hn::Vec<D16> half) {
#if TUCKFOLD_CONVERT_F16C
#if HWY_TARGET <= HWY_AVX3
  const hn::Vec<D> value{_mm512_cvtph_ps(half.raw)};
#else
  const hn::Vec<D> value{_mm256_cvtph_ps(half.raw)};
#endif
  // Of a NaN the sign is left, no payload.
  const auto nan = hn::And(value, hn::BitCast(D(), set(kSignBit | kNanBits)));
  return hn::IfThenElse(hn::Eq(value, value), value, nan);
#else
  return hn::BitCast(D(), OfF16::widen(hn::PromoteTo(DU(), half)));
#endif
}

template <class Of>
HWY_INLINE void narrow_with_care(Of, hn::Vec<D> value, std::uint16_t* out) {
  hn::StoreU(hn::TruncateTo(D16(), Of::narrow(hn::BitCast(DU(), value))), D16(), out);
}
HWY_INLINE void narrow_to(OfBF16 of, hn::Vec<D> value, std::uint16_t* out) {
  narrow_with_care(of, value, out);
}
HWY_INLINE void narrow_to(OfF16 of, hn::Vec<D> value, std::uint16_t* out) {
#if TUCKFOLD_CONVERT_F16C
  // From 65520 on numbers round to infinity.
  if (HWY_LIKELY(hn::AllTrue(D(), hn::Lt(hn::Abs(value), hn::Set(D(), 65520.0f))))) {
    constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
#if HWY_TARGET <= HWY_AVX3
    hn::StoreU(hn::Vec<D16>{_mm512_cvtps_ph(value.raw, kNearest)}, D16(), out);
#else
    hn::StoreU(hn::Vec<D16>{_mm256_cvtps_ph(value.raw, kNearest)}, D16(), out);
#endif
    return;
  }
#endif
  narrow_with_care(of, value, out);
}

template <class Of>
HWY_ATTR void widen_all(const std::uint16_t* in, std::int64_t count, float* out) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(D()));
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    hn::StoreU(widened(Of(), hn::LoadU(D16(), in + i)), D(), out + i);
  }
  for (; i < count; ++i) out[i] = to_float(typename Of::Half{in[i]});
}

template <class Of>
HWY_ATTR void narrow_all(const float* in, std::int64_t count, std::uint16_t* out) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(D()));
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) narrow_to(Of(), hn::LoadU(D(), in + i), out + i);
  for (; i < count; ++i) out[i] = Of::narrow_one(in[i]).bits;
}

void widen_f16(const std::uint16_t* in, std::int64_t count, float* out) {
  widen_all<OfF16>(in, count, out);
}
void widen_bf16(const std::uint16_t* in, std::int64_t count, float* out) {
  widen_all<OfBF16>(in, count, out);
}
void narrow_f16(const float* in, std::int64_t count, std::uint16_t* out) {
  narrow_all<OfF16>(in, count, out);
}

// Two vectors at a time without NaN and numbers that saturate: the upper halves of the rounded bits
// side by side.
HWY_ATTR void narrow_bf16(const float* in, std::int64_t count, std::uint16_t* out) {
#if HWY_TARGET == HWY_SCALAR
  narrow_all<OfBF16>(in, count, out);
#else
  const hn::Repartition<std::uint16_t, D> dh;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(D()));
  const auto most = hn::Set(D(), kMaxBF16);
  const auto rounded = [&](hn::Vec<D> value) HWY_ATTR {
    const VU bits = hn::BitCast(DU(), value);
    const VU odd = hn::And(hn::ShiftRight<16>(bits), set(1));
    return hn::BitCast(dh, hn::Add(bits, hn::Add(odd, set(0x7fff))));
  };
  std::int64_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    const auto a = hn::LoadU(D(), in + i), b = hn::LoadU(D(), in + i + lanes);
    const auto fit = hn::And(hn::Lt(hn::Abs(a), most), hn::Lt(hn::Abs(b), most));
    if (HWY_LIKELY(hn::AllTrue(D(), fit))) {
      hn::StoreU(hn::ConcatOdd(dh, rounded(b), rounded(a)), dh, out + i);
    } else {
      narrow_to(OfBF16(), a, out + i);
      narrow_to(OfBF16(), b, out + i + lanes);
    }
  }
  narrow_all<OfBF16>(in + i, count - i, out + i);
#endif
}

// f64 takes two passes; the second checks each value, and is hardly ever needed.
using DD = hn::ScalableTag<double>;
using DHalf = hn::Rebind<float, DD>;

HWY_ATTR void narrow_f64(const double* in, std::int64_t count, float* out) {
  const DD dd;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(dd));
  const auto most = hn::Set(dd, std::numeric_limits<float>::max());
  auto all_fit = hn::Eq(most, most);
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto values = hn::LoadU(dd, in + i);
    all_fit = hn::And(all_fit, hn::Le(hn::Abs(values), most));
    hn::StoreU(hn::DemoteTo(DHalf(), values), DHalf(), out + i);
  }
  for (std::int64_t j = hn::AllTrue(dd, all_fit) ? i : 0; j < count; ++j) {
    out[j] = to_f32_saturated(in[j]);
  }
}

HWY_ATTR void widen_f32(const float* in, std::int64_t count, double* out) {
  const DD dd;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(dd));
  auto no_nan = hn::Eq(hn::Zero(DHalf()), hn::Zero(DHalf()));
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto values = hn::LoadU(DHalf(), in + i);
    no_nan = hn::And(no_nan, hn::Eq(values, values));
    hn::StoreU(hn::PromoteTo(dd, values), dd, out + i);
  }
  for (std::int64_t j = hn::AllTrue(DHalf(), no_nan) ? i : 0; j < count; ++j) {
    out[j] = to_f64(in[j]);
  }
}

// u8 and u16, as to_whole.
template <class T>
HWY_ATTR void widen_whole(const T* in, std::int64_t count, float* out) {
  const D d;
  const hn::Rebind<T, D> dt;
  const hn::RebindToSigned<D> di;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    hn::StoreU(hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(dt, in + i))), d, out + i);
  }
  for (; i < count; ++i) out[i] = static_cast<float>(in[i]);
}

template <class T>
HWY_ATTR void narrow_whole(const float* in, std::int64_t count, T* out) {
  const D d;
  const DU du;
  const hn::Rebind<T, D> dt;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const VU most = set(bits_of(static_cast<float>(std::numeric_limits<T>::max())));
  const auto shift = hn::Set(d, 0x1p23f);
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const VU bits = hn::BitCast(du, hn::LoadU(d, in + i));
    const auto number = hn::Lt(bits, set(kInfBits + 1));  // no NaN, and no sign
    const VU kept = hn::IfThenElseZero(number, hn::Min(bits, most));
    const VU rounded = hn::BitCast(du, hn::Add(hn::BitCast(d, kept), shift));
    hn::StoreU(hn::TruncateTo(dt, rounded), dt, out + i);
  }
  for (; i < count; ++i) out[i] = to_whole<T>(in[i]);
}

void widen_u8(const std::uint8_t* in, std::int64_t count, float* out) {
  widen_whole(in, count, out);
}
void widen_u16(const std::uint16_t* in, std::int64_t count, float* out) {
  widen_whole(in, count, out);
}
void narrow_u8(const float* in, std::int64_t count, std::uint8_t* out) {
  narrow_whole(in, count, out);
}
void narrow_u16(const float* in, std::int64_t count, std::uint16_t* out) {
  narrow_whole(in, count, out);
}

}  // namespace tuckfold::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tuckfold {

HWY_EXPORT(widen_f16);
HWY_EXPORT(widen_bf16);
HWY_EXPORT(narrow_f16);
HWY_EXPORT(narrow_bf16);
HWY_EXPORT(narrow_f64);
HWY_EXPORT(widen_f32);
HWY_EXPORT(widen_u8);
HWY_EXPORT(widen_u16);
HWY_EXPORT(narrow_u8);
HWY_EXPORT(narrow_u16);

void to_floats(const F16* in, std::int64_t count, float* out) noexcept {
  HWY_DYNAMIC_DISPATCH(widen_f16)(reinterpret_cast<const std::uint16_t*>(in), count, out);
}
void to_floats(const BF16* in, std::int64_t count, float* out) noexcept {
  HWY_DYNAMIC_DISPATCH(widen_bf16)(reinterpret_cast<const std::uint16_t*>(in), count, out);
}
void from_floats(const float* in, std::int64_t count, F16* out) noexcept {
  HWY_DYNAMIC_DISPATCH(narrow_f16)(in, count, reinterpret_cast<std::uint16_t*>(out));
}
void from_floats(const float* in, std::int64_t count, BF16* out) noexcept {
  HWY_DYNAMIC_DISPATCH(narrow_bf16)(in, count, reinterpret_cast<std::uint16_t*>(out));
}

void to_floats(const double* in, std::int64_t count, float* out) noexcept {
  HWY_DYNAMIC_DISPATCH(narrow_f64)(in, count, out);
}
void from_floats(const float* in, std::int64_t count, double* out) noexcept {
  HWY_DYNAMIC_DISPATCH(widen_f32)(in, count, out);
}

void to_floats(const std::uint8_t* in, std::int64_t count, float* out) noexcept {
  HWY_DYNAMIC_DISPATCH(widen_u8)(in, count, out);
}
void to_floats(const std::uint16_t* in, std::int64_t count, float* out) noexcept {
  HWY_DYNAMIC_DISPATCH(widen_u16)(in, count, out);
}
void from_floats(const float* in, std::int64_t count, std::uint8_t* out) noexcept {
  HWY_DYNAMIC_DISPATCH(narrow_u8)(in, count, out);
}
void from_floats(const float* in, std::int64_t count, std::uint16_t* out) noexcept {
  HWY_DYNAMIC_DISPATCH(narrow_u16)(in, count, out);
}

}  // namespace tuckfold
#endif  // HWY_ONCE
