// f16 and bf16 to and from f32 in vectors, with the bits of half.h; for kernels of the same target
// to inline. Step by step: conversion instructions treat NaN and what is beyond the largest number
// differently. Where vectors have neither, x86's for f16 give the same bits.
#if defined(TUCKFOLD_BASE_CONVERT_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TUCKFOLD_BASE_CONVERT_INL_H
#undef TUCKFOLD_BASE_CONVERT_INL_H
#else
#define TUCKFOLD_BASE_CONVERT_INL_H
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <cstring>

#include "base/half.h"

HWY_BEFORE_NAMESPACE();
namespace tuckfold::halves::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using DU = hn::Repartition<std::uint32_t, D>;
using D16 = hn::Rebind<std::uint16_t, D>;
using V = hn::Vec<D>;
using VU = hn::Vec<DU>;

HWY_INLINE VU set(std::uint32_t bits) { return hn::Set(DU(), bits); }

struct OfBF16 {
  using Half = BF16;
  static constexpr std::uint16_t kInfinity = 0x7f80;
  // Numbers of smaller magnitude need no care when they are narrowed.
  static constexpr float kFits = kMaxBF16;
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
  static constexpr std::uint16_t kInfinity = 0x7c00;
  static constexpr float kFits = 65520.0f;  // from here on numbers round to infinity
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

// Of numbers and infinities; what becomes of NaN's payload is not said.
HWY_INLINE V widened_number(OfBF16, hn::Vec<D16> half) {
  return hn::BitCast(D(), OfBF16::widen(hn::PromoteTo(DU(), half)));
}
HWY_INLINE V widened_number(OfF16, hn::Vec<D16> half) {
#if TUCKFOLD_CONVERT_F16C
#if HWY_TARGET <= HWY_AVX3
  return V{_mm512_cvtph_ps(half.raw)};
#else
  return V{_mm256_cvtph_ps(half.raw)};
#endif
#else
  return hn::BitCast(D(), OfF16::widen(hn::PromoteTo(DU(), half)));
#endif
}

HWY_INLINE V widened(OfBF16 of, hn::Vec<D16> half) { return widened_number(of, half); }
HWY_INLINE V widened(OfF16 of, hn::Vec<D16> half) {
  const V value = widened_number(of, half);
#if TUCKFOLD_CONVERT_F16C
  // Of a NaN the sign is left, no payload.
  const auto nan = hn::And(value, hn::BitCast(D(), set(kSignBit | kNanBits)));
  return hn::IfThenElse(hn::Eq(value, value), value, nan);
#else
  return value;
#endif
}

template <class Of>
HWY_INLINE hn::Vec<D16> narrowed_with_care(Of, V value) {
  return hn::TruncateTo(D16(), Of::narrow(hn::BitCast(DU(), value)));
}
// The bits of bf16 are the upper 16.
HWY_INLINE VU rounded_to_bf16(V value) {
  const VU bits = hn::BitCast(DU(), value);
  return hn::Add(bits, hn::Add(hn::And(hn::ShiftRight<16>(bits), set(1)), set(0x7fff)));
}
// Of numbers below kFits.
HWY_INLINE hn::Vec<D16> narrowed_number(OfBF16, V value) {
  return hn::TruncateTo(D16(), hn::ShiftRight<16>(rounded_to_bf16(value)));
}
HWY_INLINE hn::Vec<D16> narrowed_number(OfF16 of, V value) {
#if TUCKFOLD_CONVERT_F16C
  static_cast<void>(of);
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
#if HWY_TARGET <= HWY_AVX3
  return hn::Vec<D16>{_mm512_cvtps_ph(value.raw, kNearest)};
#else
  return hn::Vec<D16>{_mm256_cvtps_ph(value.raw, kNearest)};
#endif
#else
  return narrowed_with_care(of, value);
#endif
}

// ---- twice as many halves as a vector has floats ------------------------------------------------

// Words of two halves each, at any address.
HWY_INLINE VU load_pairs(const std::uint16_t* from) {
#if HWY_TARGET == HWY_SCALAR
  std::uint32_t pair;
  std::memcpy(&pair, from, 4);
  return set(pair);
#else
  const hn::Repartition<std::uint16_t, D> d;
  return hn::BitCast(DU(), hn::LoadU(d, from));
#endif
}
template <bool kStream = false>
HWY_INLINE void store_pairs(VU pairs, std::uint16_t* to) {
#if HWY_TARGET == HWY_SCALAR
  const std::uint32_t pair = hn::GetLane(pairs);
  std::memcpy(to, &pair, 4);
#else
  const hn::Repartition<std::uint16_t, D> d;
  if constexpr (kStream) {
    hn::Stream(hn::BitCast(d, pairs), d, to);
  } else {
    hn::StoreU(hn::BitCast(d, pairs), d, to);
  }
#endif
}

struct Two {
  V a, b;
};
struct TwoWords {
  VU a, b;
};

// `a` has the even ones and `b` the odd ones: what is computed of them joins in their lanes. Of
// numbers; infinities and NaN of f16 become numbers from 2^16 on.
HWY_INLINE Two widened_pairs(OfBF16, const std::uint16_t* from) {
  const VU pairs = load_pairs(from);
  return {hn::BitCast(D(), hn::ShiftLeft<16>(pairs)),
          hn::BitCast(D(), hn::And(pairs, set(0xffff0000u)))};
}
HWY_INLINE Two widened_pairs(OfF16, const std::uint16_t* from) {
  // Exponent and mantissa move three places down, with copies of the sign above them; 2^112 is
  // what is missing then.
  const hn::RebindToSigned<DU> di;
  const auto widen = [&](VU upper) HWY_ATTR {
    const VU moved = hn::BitCast(DU(), hn::ShiftRight<3>(hn::BitCast(di, upper)));
    return hn::Mul(hn::BitCast(D(), hn::And(moved, set(0x8fffe000u))), hn::Set(D(), 0x1p112f));
  };
  const VU pairs = load_pairs(from);
  return {widen(hn::ShiftLeft<16>(pairs)), widen(pairs)};
}
// The low bytes of words that belong to such pairs, in the values' order; and bytes as such words.
HWY_INLINE void store_pairs_of_bytes(const TwoWords& two, std::uint8_t* to) {
  const VU pairs = hn::Or(hn::And(two.a, set(0xff)), hn::ShiftLeft<8>(two.b));
#if HWY_TARGET == HWY_SCALAR
  to[0] = static_cast<std::uint8_t>(hn::GetLane(pairs));
  to[1] = static_cast<std::uint8_t>(hn::GetLane(pairs) >> 8);
#else
  const hn::Repartition<std::uint8_t, D16> d8;
  hn::StoreU(hn::BitCast(d8, hn::TruncateTo(D16(), pairs)), d8, to);
#endif
}
HWY_INLINE TwoWords load_pairs_of_bytes(const std::uint8_t* from) {
#if HWY_TARGET == HWY_SCALAR
  return {set(from[0]), set(from[1])};
#else
  const hn::Repartition<std::uint8_t, D16> d8;
  const VU pairs = hn::PromoteTo(DU(), hn::BitCast(D16(), hn::LoadU(d8, from)));
  return {hn::And(pairs, set(0xff)), hn::ShiftRight<8>(pairs)};
#endif
}
// The same of four bits each: those above the low four of a byte must be 0.
HWY_INLINE void store_pairs_of_nibbles(const TwoWords& two, std::uint8_t* to) {
  const hn::Rebind<std::uint8_t, D> d8;
  hn::StoreU(hn::TruncateTo(d8, hn::Or(two.a, hn::ShiftLeft<4>(two.b))), d8, to);
}

// Bytes as words whose values narrow_two takes: for bf16 pairs as above, and for f16 first those of
// the first half, because its instructions give them side by side.
HWY_INLINE TwoWords load_bytes(OfBF16, const std::uint8_t* from) {
  return load_pairs_of_bytes(from);
}
HWY_INLINE TwoWords load_bytes(OfF16, const std::uint8_t* from) {
  const hn::Rebind<std::uint8_t, D> d8;
  return {hn::PromoteTo(DU(), hn::LoadU(d8, from)),
          hn::PromoteTo(DU(), hn::LoadU(d8, from + hn::Lanes(D())))};
}

// Of numbers below kFits. With kExact they are numbers of the dtype. With kStream the address is a
// multiple of a vector's bytes.
template <bool kExact = false, bool kStream = false>
HWY_INLINE void narrow_two(OfBF16, const Two& two, std::uint16_t* to) {
  const auto rounded = [](V value) HWY_ATTR {
    return kExact ? hn::BitCast(DU(), value) : rounded_to_bf16(value);
  };
  const VU even = hn::ShiftRight<16>(rounded(two.a));
  store_pairs<kStream>(hn::Or(even, hn::And(rounded(two.b), set(0xffff0000u))), to);
}
template <bool kExact = false, bool kStream = false>
HWY_INLINE void narrow_two(OfF16 of, const Two& two, std::uint16_t* to) {
  const auto a = narrowed_number(of, two.a), b = narrowed_number(of, two.b);
#if HWY_TARGET == HWY_SCALAR
  to[0] = hn::GetLane(a);
  to[1] = hn::GetLane(b);
#else
  const hn::Repartition<std::uint16_t, D> d;
  if constexpr (kStream) {
    hn::Stream(hn::Combine(d, b, a), d, to);
  } else {
    hn::StoreU(hn::Combine(d, b, a), d, to);
  }
#endif
}

}  // namespace tuckfold::halves::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
