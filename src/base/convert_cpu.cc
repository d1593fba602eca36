// The functions of half.h in SIMD.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "base/convert_cpu.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <limits>

#include "base/convert.h"
#include "base/convert_cpu-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tuckfold::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using halves::HWY_NAMESPACE::D;
using halves::HWY_NAMESPACE::D16;
using halves::HWY_NAMESPACE::DU;
using halves::HWY_NAMESPACE::narrowed_number;
using halves::HWY_NAMESPACE::narrowed_with_care;
using halves::HWY_NAMESPACE::OfBF16;
using halves::HWY_NAMESPACE::OfF16;
using halves::HWY_NAMESPACE::rounded_to_bf16;
using halves::HWY_NAMESPACE::set;
using halves::HWY_NAMESPACE::VU;
using halves::HWY_NAMESPACE::widened;

template <class Of>
HWY_INLINE void narrow_to(Of of, hn::Vec<D> value, std::uint16_t* out) {
  if (HWY_LIKELY(hn::AllTrue(D(), hn::Lt(hn::Abs(value), hn::Set(D(), Of::kFits))))) {
    hn::StoreU(narrowed_number(of, value), D16(), out);
  } else {
    hn::StoreU(narrowed_with_care(of, value), D16(), out);
  }
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
  const auto rounded = [&](hn::Vec<D> value)
                           HWY_ATTR { return hn::BitCast(dh, rounded_to_bf16(value)); };
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
