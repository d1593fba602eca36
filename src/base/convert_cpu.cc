// The functions of half.h on vectors, step by step: conversion instructions treat NaN differently.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "base/convert_cpu.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

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
  static HWY_INLINE BF16 narrow_one(float value) { return to_bf16(value); }
  static HWY_INLINE VU widen(VU half) { return hn::ShiftLeft<16>(half); }
  static HWY_INLINE VU narrow(VU bits) {
    const auto sign = hn::ShiftRight<16>(hn::And(bits, set(kSignBit)));
    const auto odd = hn::And(hn::ShiftRight<16>(bits), set(1));
    const auto number = hn::ShiftRight<16>(hn::Add(hn::Add(bits, set(0x7fff)), odd));
    const auto is_nan = hn::Gt(hn::AndNot(set(kSignBit), bits), set(kInfBits));
    return hn::IfThenElse(is_nan, hn::Or(sign, set(0x7fc0)), number);
  }
};

struct OfF16 {
  using Half = F16;
  static HWY_INLINE F16 narrow_one(float value) { return to_f16(value); }
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
    const auto subnormal =
        hn::Sub(hn::BitCast(DU(), hn::Add(hn::BitCast(D(), magnitude), hn::Set(D(), 0.5f))),
                set(0x3f000000));
    const auto odd = hn::And(hn::ShiftRight<13>(magnitude), set(1));
    const auto normal =
        hn::ShiftRight<13>(hn::Add(hn::Sub(magnitude, set(0x38000000 - 0xfff)), odd));
    const auto finite = hn::IfThenElse(hn::Lt(magnitude, set(0x38800000)), subnormal, normal);
    const auto special = hn::IfThenElse(hn::Gt(magnitude, set(kInfBits)), set(0x7e00), set(0x7c00));
    return hn::Or(sign, hn::IfThenElse(hn::Lt(magnitude, set(0x47800000)), finite, special));
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

}  // namespace tuckfold::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tuckfold {

HWY_EXPORT(widen_f16);
HWY_EXPORT(widen_bf16);
HWY_EXPORT(narrow_f16);
HWY_EXPORT(narrow_bf16);

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

}  // namespace tuckfold
#endif  // HWY_ONCE
