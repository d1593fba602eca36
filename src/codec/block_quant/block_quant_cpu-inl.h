// block_quant's arithmetic on the CPU: a group's range, its codes, and its values; for kernels of the
// same target to inline.
#if defined(TUCKFOLD_CODEC_BLOCK_QUANT_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TUCKFOLD_CODEC_BLOCK_QUANT_INL_H
#undef TUCKFOLD_CODEC_BLOCK_QUANT_INL_H
#else
#define TUCKFOLD_CODEC_BLOCK_QUANT_INL_H
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

#include "codec/block_quant/block_quant_block.h"

HWY_BEFORE_NAMESPACE();
namespace tuckfold::block_quant::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr std::int64_t kBatchValues = 1024;  // values worked on at a time, a multiple of 8

using DF = hn::ScalableTag<float>;
using DI = hn::Repartition<std::int32_t, DF>;
using DU = hn::Repartition<std::uint32_t, DF>;
using VF = hn::Vec<DF>;

// ---- range --------------------------------------------------------------------------------------

struct Range {
  float low = float_of(kInfBits);
  float high = -float_of(kInfBits);
  bool finite = true;
};

inline HWY_ATTR void widen_range(const float* values, std::int64_t count, Range& range) {
  const DF d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  VF low = hn::Set(d, range.low), high = hn::Set(d, range.high);
  VF low2 = low, high2 = high;
  VF nothing = hn::Zero(d), nothing2 = nothing;  // x - x: NaN unless x is finite, and NaN stays
  std::int64_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    const VF a = hn::LoadU(d, values + i), b = hn::LoadU(d, values + i + lanes);
    low = hn::Min(low, a);
    high = hn::Max(high, a);
    low2 = hn::Min(low2, b);
    high2 = hn::Max(high2, b);
    nothing = hn::Add(nothing, hn::Sub(a, a));
    nothing2 = hn::Add(nothing2, hn::Sub(b, b));
  }
  range.low = hn::GetLane(hn::MinOfLanes(d, hn::Min(low, low2)));
  range.high = hn::GetLane(hn::MaxOfLanes(d, hn::Max(high, high2)));
  nothing = hn::Add(nothing, nothing2);
  range.finite &= hn::AllTrue(d, hn::Eq(nothing, nothing));
  for (; i < count; ++i) {
    range.low = std::min(range.low, values[i]);
    range.high = std::max(range.high, values[i]);
    range.finite &= (bits_of(values[i]) & ~kSignBit) < kInfBits;
  }
}

// ---- values and codes ---------------------------------------------------------------------------

// Random bytes for the values of a group from `place` on, a multiple of 4. May write up to a vector
// more.
inline HWY_ATTR void fill_random(std::uint32_t key, std::int64_t place, std::int64_t count,
                                 std::uint8_t* out) {
  const DU du;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(du));
  auto quads = hn::Iota(du, static_cast<std::uint32_t>(place / 4));
  for (std::int64_t i = 0; i < count; i += 4 * lanes) {
    auto x = hn::Xor(hn::Set(du, key), hn::Mul(quads, hn::Set(du, kQuad)));
    x = hn::Mul(hn::Xor(x, hn::ShiftRight<16>(x)), hn::Set(du, kMix1));
    x = hn::Mul(hn::Xor(x, hn::ShiftRight<15>(x)), hn::Set(du, kMix2));
    x = hn::Xor(x, hn::ShiftRight<16>(x));
    hn::StoreU(x, du, reinterpret_cast<std::uint32_t*>(out + i));
    quads = hn::Add(quads, hn::Set(du, static_cast<std::uint32_t>(lanes)));
  }
}

template <bool kStochastic>
HWY_ATTR void quantize(const float* values, std::int64_t count, const Scaling& s, int levels,
                       std::uint32_t key, std::int64_t place, std::uint8_t* codes) {
  const DF d;
  const DU du;
  const hn::Rebind<std::uint8_t, DF> d8;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  constexpr float kTo = kStochastic ? kToFixed : kToInteger;
  const VF subtract = hn::Set(d, s.subtract), factor = hn::Set(d, s.factor);
  const VF add = hn::Set(d, kTo + s.zero), most = hn::Set(d, kTo + static_cast<float>(levels));
  alignas(64) std::uint8_t random[kStochastic ? kBatchValues + HWY_MAX_BYTES : 1];
  if constexpr (kStochastic) fill_random(key, place, count, random);
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    // Memory would be idle while this batch is in cache: prefetch the next.
    __builtin_prefetch(reinterpret_cast<const char*>(values + i) + kBatchValues * 4, 0, 2);
    const VF scaled = hn::Mul(hn::Sub(hn::LoadU(d, values + i), subtract), factor);
    auto bits = hn::BitCast(du, hn::Min(hn::Add(scaled, add), most));
    if constexpr (kStochastic) {
      bits = hn::ShiftRight<8>(hn::Add(bits, hn::PromoteTo(du, hn::LoadU(d8, random + i))));
    }
    hn::StoreU(hn::TruncateTo(d8, bits), d8, codes + i);
  }
  for (; i < count; ++i) {
    const auto most_levels = static_cast<float>(levels);
    const int code = kStochastic ? random_code(values[i], s, most_levels, random[i])
                                 : nearest_code(values[i], s, most_levels);
    codes[i] = static_cast<std::uint8_t>(code);
  }
}

template <bool kStream>
HWY_ATTR void dequantize(const std::uint8_t* codes, std::int64_t count, const Group& group,
                         float* out) {
  const DF d;
  const DI di;
  const hn::Rebind<std::uint8_t, DF> d8;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  if (is_extreme(group)) {
    for (std::int64_t i = 0; i < count; ++i) out[i] = extreme_value(codes[i], group);
    return;
  }
  const VF minimum = hn::Set(d, group.minimum), scale = hn::Set(d, group.scale);
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const VF code = hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(d8, codes + i)));
    const VF v = group.about_zero ? hn::Mul(hn::Sub(code, minimum), scale)
                                  : hn::Add(minimum, hn::Mul(code, scale));
    if constexpr (kStream) {
      hn::Stream(v, d, out + i);
    } else {
      hn::StoreU(v, d, out + i);
    }
  }
  for (; i < count; ++i) out[i] = ordinary_value(codes[i], group);
}

}  // namespace tuckfold::block_quant::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
