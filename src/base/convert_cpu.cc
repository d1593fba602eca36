// The functions of half.h in SIMD, step by step: conversion instructions treat NaN differently.
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

template <class Of>
HWY_ATTR void widen_all(const std::uint16_t* in, std::int64_t count, float* out) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(D()));
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const VU half = hn::PromoteTo(DU(), hn::LoadU(D16(), in + i));
    hn::StoreU(hn::BitCast(D(), Of::widen(half)), D(), out + i);
  }
  for (; i < count; ++i) out[i] = to_float(typename Of::Half{in[i]});
}

template <class Of>
HWY_ATTR void narrow_all(const float* in, std::int64_t count, std::uint16_t* out) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(D()));
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const VU bits = hn::BitCast(DU(), hn::LoadU(D(), in + i));
    hn::StoreU(hn::TruncateTo(D16(), Of::narrow(bits)), D16(), out + i);
  }
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
void narrow_bf16(const float* in, std::int64_t count, std::uint16_t* out) {
  narrow_all<OfBF16>(in, count, out);
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
