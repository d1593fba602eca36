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
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/convert_cpu-inl.h"
#include "codec/block_quant/block_quant_block.h"

HWY_BEFORE_NAMESPACE();
namespace tuckfold::block_quant::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using halves::HWY_NAMESPACE::OfBF16;
using halves::HWY_NAMESPACE::OfF16;

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

#if HWY_TARGET != HWY_SCALAR && !HWY_HAVE_SCALABLE
// The least of all even lanes and of all odd ones, in the lower and the upper half of 32 bits.
template <class D>
HWY_INLINE std::uint32_t least_pair(D d, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(D()) > 8) {
    const hn::Half<D> half;
    return least_pair(half, hn::Min(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  } else {
    const hn::Repartition<std::uint32_t, D> d32;
    v = hn::Min(v, hn::BitCast(d, hn::Shuffle1032(hn::BitCast(d32, v))));
    v = hn::Min(v, hn::BitCast(d, hn::Shuffle2301(hn::BitCast(d32, v))));
    return hn::GetLane(hn::BitCast(d32, v));
  }
}
#endif

// The same of f16 or bf16. As whole numbers with a sign halves have the order of their values once
// the magnitude's bits of the negative ones are inverted, with NaN beyond the infinities.
template <class Of>
HWY_NOINLINE HWY_ATTR void widen_range(Of, const std::uint16_t* values, std::int64_t count,
                                       Range& range) {
  const auto ordered = [](std::uint16_t bits) {
    return static_cast<std::int16_t>(bits ^ ((bits & 0x8000u) != 0 ? 0x7fffu : 0u));
  };
  const auto value_of = [](std::int16_t key) {
    const auto bits = static_cast<std::uint16_t>(key < 0 ? key ^ 0x7fff : key);
    return to_float(typename Of::Half{bits});
  };
  constexpr auto kInfinity = static_cast<std::int16_t>(Of::kInfinity);
  std::int16_t least = kInfinity, most = static_cast<std::int16_t>(~kInfinity);
  std::int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::ScalableTag<std::int16_t> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  if (count >= 2 * lanes) {
    const auto* words = reinterpret_cast<const std::int16_t*>(values);
    const auto keys = [&](std::int64_t at) HWY_ATTR {
      const auto v = hn::LoadU(d, words + at);
      return hn::Xor(v, hn::And(hn::ShiftRight<15>(v), hn::Set(d, 0x7fff)));
    };
    auto low = keys(0), high = low, low2 = keys(lanes), high2 = low2;
    for (i = 2 * lanes; i + 2 * lanes <= count; i += 2 * lanes) {
      const auto a = keys(i), b = keys(i + lanes);
      low = hn::Min(low, a);
      high = hn::Max(high, a);
      low2 = hn::Min(low2, b);
      high2 = hn::Max(high2, b);
    }
    low = hn::Min(low, low2);
    high = hn::Max(high, high2);
#if HWY_HAVE_SCALABLE
    least = hn::GetLane(hn::MinOfLanes(d, low));
    most = hn::GetLane(hn::MaxOfLanes(d, high));
#else
    const auto not_high = hn::Not(high);
    const std::uint32_t both = least_pair(
        d, hn::Min(hn::InterleaveLower(d, low, not_high), hn::InterleaveUpper(d, low, not_high)));
    least = static_cast<std::int16_t>(both & 0xffffu);
    most = static_cast<std::int16_t>(~(both >> 16));
#endif
  }
#endif
  for (; i < count; ++i) {
    least = std::min(least, ordered(values[i]));
    most = std::max(most, ordered(values[i]));
  }
  range.finite &= least > static_cast<std::int16_t>(~kInfinity) && most < kInfinity;
  range.low = std::min(range.low, value_of(least));
  range.high = std::max(range.high, value_of(most));
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

// The same of f16 or bf16. With kNibbles codes have four bits, and two of them make a byte.
template <bool kStochastic, bool kNibbles, class Of>
HWY_NOINLINE HWY_ATTR void quantize(Of of, const std::uint16_t* values, std::int64_t count,
                                    const Scaling& s, int levels, std::uint32_t key,
                                    std::int64_t place, std::uint8_t* codes) {
  const DF d;
  const DU du;
  const auto step = 2 * static_cast<std::int64_t>(hn::Lanes(d));
  constexpr float kTo = kStochastic ? kToFixed : kToInteger;
  const VF subtract = hn::Set(d, s.subtract), factor = hn::Set(d, s.factor);
  const VF add = hn::Set(d, kTo + s.zero), most = hn::Set(d, kTo + static_cast<float>(levels));
  alignas(64) std::uint8_t random[kStochastic ? kBatchValues + HWY_MAX_BYTES : 1];
  if constexpr (kStochastic) fill_random(key, place, count, random);
  const auto scaled = [&](VF value) HWY_ATTR {
    const VF sum = hn::Add(hn::Mul(hn::Sub(value, subtract), factor), add);
    // Only codes of one bit may pass the last level.
    return hn::BitCast(du, kNibbles ? sum : hn::Min(sum, most));
  };
  std::int64_t i = 0;
  for (; i + step <= count; i += step) {
    __builtin_prefetch(reinterpret_cast<const char*>(values + i) + kBatchValues * 2, 0, 2);
    const auto two = widened_pairs(of, values + i);
    auto a = scaled(two.a), b = scaled(two.b);
    if constexpr (kStochastic) {
      const auto chance = halves::HWY_NAMESPACE::load_pairs_of_bytes(random + i);
      a = hn::ShiftRight<8>(hn::Add(a, chance.a));
      b = hn::ShiftRight<8>(hn::Add(b, chance.b));
    }
    if constexpr (kNibbles) {
      halves::HWY_NAMESPACE::store_pairs_of_nibbles({a, b}, codes + i / 2);
    } else {
      halves::HWY_NAMESPACE::store_pairs_of_bytes({a, b}, codes + i);
    }
  }
  for (; i < count; ++i) {
    const float value = to_float(typename Of::Half{values[i]});
    const auto most_levels = static_cast<float>(levels);
    const int code = kStochastic ? random_code(value, s, most_levels, random[i])
                                 : nearest_code(value, s, most_levels);
    if constexpr (!kNibbles) {
      codes[i] = static_cast<std::uint8_t>(code);
    } else if (i % 2 == 0) {
      codes[i / 2] = static_cast<std::uint8_t>(code);
    } else {
      codes[i / 2] = static_cast<std::uint8_t>(codes[i / 2] | code << 4);
    }
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

// The same to f16 or bf16, as from_floats rounds them. A group has so few values that those of all
// codes of up to four bits are looked up: bytes by bytes.
struct HalfTable {
  alignas(16) std::uint8_t low[16], high[16];

  std::uint16_t operator[](std::size_t code) const {
    return static_cast<std::uint16_t>(low[code] | high[code] << 8);
  }
};

// Those of neighbouring groups.
template <int B, class Of>
HWY_NOINLINE HWY_ATTR void make_tables(Of of, const std::byte* headers, std::int64_t groups,
                                       HalfTable* tables) {
  static_assert(B <= 4);
  const DF d;
  const hn::Rebind<std::uint8_t, DF> d8;
  alignas(64) float values[16] = {};
  alignas(16) static constexpr std::uint8_t kCodes[16] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                          8, 9, 10, 11, 12, 13, 14, 15};
  for (std::int64_t g = 0; g < groups; ++g) {
    Header header;
    std::memcpy(&header, headers + g * 4, 4);
    dequantize<false>(kCodes, 1 << B, group_of(header), values);
    for (std::size_t code = 0; code < 16; code += hn::Lanes(d)) {
      const auto half = narrowed_with_care(of, hn::LoadU(d, values + code));
      const auto word = hn::PromoteTo(DU(), half);
      hn::StoreU(hn::TruncateTo(d8, word), d8, tables[g].low + code);
      hn::StoreU(hn::TruncateTo(d8, hn::ShiftRight<8>(word)), d8, tables[g].high + code);
    }
  }
}

// With kStream the address is a multiple of a vector's bytes.
template <bool kStream>
HWY_NOINLINE HWY_ATTR void look_up(const HalfTable& table, const std::uint8_t* codes,
                                   std::int64_t count, std::uint16_t* out) {
  std::int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::ScalableTag<std::uint16_t> d16;
  const hn::Rebind<std::uint8_t, decltype(d16)> d8;
  const hn::Repartition<std::uint8_t, decltype(d16)> bytes;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d16));
  const auto lows = hn::LoadDup128(bytes, table.low), highs = hn::LoadDup128(bytes, table.high);
  for (; i + lanes <= count; i += lanes) {
    // An index of 128 and more gives 0.
    const auto code = hn::PromoteTo(d16, hn::LoadU(d8, codes + i));
    const auto at_low = hn::BitCast(bytes, hn::Or(code, hn::Set(d16, 0x8000)));
    const auto at_high = hn::BitCast(bytes, hn::Or(hn::ShiftLeft<8>(code), hn::Set(d16, 0x0080)));
    const auto value = hn::BitCast(d16, hn::Or(hn::TableLookupBytesOr0(lows, at_low),
                                               hn::TableLookupBytesOr0(highs, at_high)));
    if constexpr (kStream) {
      hn::Stream(value, d16, out + i);
    } else {
      hn::StoreU(value, d16, out + i);
    }
  }
#endif
  for (; i < count; ++i) out[i] = table[codes[i]];
}

template <int B, bool kStream, class Of>
HWY_NOINLINE HWY_ATTR void dequantize(Of of, const std::uint8_t* codes, std::int64_t count,
                                      const Group& group, std::uint16_t* out) {
  const DF d;
  const auto half_of = [&](int code)
                           HWY_ATTR { return Of::narrow_one(value_of(code, group)).bits; };
  std::int64_t i = 0;
  // Values rise with the code: the others lie between these.
  const float first = value_of(0, group), last = value_of((1 << B) - 1, group);
  const auto fits = [](float value) { return value < Of::kFits && value > -Of::kFits; };
  if (fits(first) && fits(last) && !is_extreme(group)) {
    const VF minimum = hn::Set(d, group.minimum), scale = hn::Set(d, group.scale);
    const auto value = [&](hn::Vec<DU> code) HWY_ATTR {
      const VF number = hn::ConvertTo(d, hn::BitCast(DI(), code));
      return group.about_zero ? hn::Mul(hn::Sub(number, minimum), scale)
                              : hn::Add(minimum, hn::Mul(number, scale));
    };
    const auto step = 2 * static_cast<std::int64_t>(hn::Lanes(d));
    for (; i + step <= count; i += step) {
      const auto two = load_bytes(of, codes + i);
      narrow_two<false, kStream>(of, {value(two.a), value(two.b)}, out + i);
    }
  }
  for (; i < count; ++i) out[i] = half_of(codes[i]);
}

}  // namespace tuckfold::block_quant::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
