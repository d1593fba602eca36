// block_quant on the CPU. Groups are processed in batches that stay in the L1 cache: first all
// ranges and headers, then all codes.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/block_quant/block_quant_cpu.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "codec/block_quant/block_quant.h"
#include "codec/block_quant/block_quant_block.h"
#include "codec/blocks/bit_packing_cpu-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tuckfold::block_quant::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using tuckfold::HWY_NAMESPACE::spread_codes;
using tuckfold::HWY_NAMESPACE::squeeze_codes;
using tuckfold::HWY_NAMESPACE::with_bits;

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

HWY_ATTR void widen_range(const float* values, std::int64_t count, Range& range) {
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
HWY_ATTR void fill_random(std::uint32_t key, std::int64_t place, std::int64_t count,
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

// ---- groups -------------------------------------------------------------------------------------

// Values [begin, begin + count): a pointer into the tensor if they are contiguous, else a gathered
// copy.
const float* values_at(const FlatReader& in, std::int64_t begin, std::int64_t count,
                       float* gathered) {
  const void* dense = in.dtype() == DType::F32 ? in.dense(begin, count) : nullptr;
  if (dense != nullptr) return static_cast<const float*>(dense);
  in.gather(begin, count, gathered);
  return gathered;
}

// Groups [g, …) of a batch. A group that is longer than a batch is a batch of its own, and is read
// twice.
template <int B>
void pack_batch(const PackJob& job, std::int64_t g, std::int64_t count, std::byte* out) {
  const Params& p = job.params;
  constexpr int kLevels = (1 << B) - 1;
  alignas(64) float gathered[kBatchValues];
  alignas(64) std::uint8_t codes[kBatchValues];
  const std::int64_t first = g * p.group;
  const float* values = nullptr;
  const auto load = [&](std::int64_t at, std::int64_t some) {
    values = values_at(*job.in, first + at, some, gathered);
  };
  const auto write_header = [&](std::int64_t group, const Range& range) {
    const Header header =
        range.finite ? header_of(range.low, range.high, B, p.exact_zero) : kNotFinite;
    std::memcpy(job.headers + group * 4, &header, 4);
  };
  const auto write_codes = [&](std::int64_t group_index, std::int64_t at, std::int64_t some,
                               const float* from, std::uint8_t* to) {
    Header header;
    std::memcpy(&header, job.headers + group_index * 4, 4);
    const Group group = group_of(header);
    if (!(group.scale < float_of(kInfBits))) {
      std::memset(to, 0, static_cast<std::size_t>(some));
      return;
    }
    if (p.stochastic) {
      const std::uint32_t key = group_key(job.seed, static_cast<std::uint64_t>(group_index));
      quantize<true>(from, some, scaling_of(group), kLevels, key, at, to);
    } else {
      quantize<false>(from, some, scaling_of(group), kLevels, 0, at, to);
    }
  };
  if (p.group <= kBatchValues) {
    load(0, count);
    for (std::int64_t at = 0; at < count; at += p.group) {
      Range range;
      widen_range(values + at, std::min(p.group, count - at), range);
      write_header(g + at / p.group, range);
    }
    for (std::int64_t at = 0; at < count; at += p.group) {
      write_codes(g + at / p.group, 0, std::min(p.group, count - at), values + at, codes + at);
    }
    squeeze_codes<B>(codes, count, out);
    return;
  }
  Range range;
  for (std::int64_t at = 0; at < count; at += kBatchValues) {
    const std::int64_t some = std::min(kBatchValues, count - at);
    load(at, some);
    widen_range(values, some, range);
  }
  write_header(g, range);
  for (std::int64_t at = 0; at < count; at += kBatchValues) {
    const std::int64_t some = std::min(kBatchValues, count - at);
    load(at, some);
    write_codes(g, at, some, values, codes);
    squeeze_codes<B>(codes, some, out + at * B / 8);
  }
}

template <int B>
void unpack_batch(const UnpackJob& job, std::int64_t g, std::int64_t count, const std::byte* in) {
  const Params& p = job.params;
  alignas(64) std::uint8_t codes[kBatchValues];
  alignas(64) float buffer[kBatchValues];
  for (std::int64_t at = 0; at < count; at += kBatchValues) {
    const std::int64_t some = std::min(kBatchValues, count - at);
    const std::int64_t first = g * p.group + at;
    spread_codes<B>(in + at * B / 8, some, codes);
    void* dense = job.out->dtype() == DType::F32 ? job.out->dense(first, some) : nullptr;
    float* values = dense == nullptr ? buffer : static_cast<float*>(dense);
    // Groups start at cache lines if the tensor does and they are multiples of one.
    const bool stream = dense != nullptr && job.stream && p.group % 16 == 0 &&
                        reinterpret_cast<std::uintptr_t>(dense) % 64 == 0;
    for (std::int64_t i = 0; i < some;) {
      const std::int64_t index = (first + i) / p.group;
      const std::int64_t end = std::min((index + 1) * p.group - first, some);
      Header header;
      std::memcpy(&header, job.headers + index * 4, 4);
      (stream ? dequantize<true> : dequantize<false>)(codes + i, end - i, group_of(header),
                                                      values + i);
      i = end;
    }
    if (dense == nullptr) job.out->scatter(first, some, buffer);
  }
}

// Calls run(first group, values, offset of its codes) for batches of groups [begin, end).
template <class Run>
void for_each_batch(const Params& p, std::int64_t elems, std::int64_t begin, std::int64_t end,
                    Run&& run) {
  const std::int64_t together = std::max<std::int64_t>(kBatchValues / p.group, 1);
  for (std::int64_t g = begin; g < end; g += together) {
    const std::int64_t last = std::min(g + together, end);
    run(g, std::min(last * p.group, elems) - g * p.group, g * p.code_bytes(p.group));
  }
}

void pack_groups_target(const PackJob& job, std::int64_t begin, std::int64_t end) {
  with_bits<1, 8>(job.params.bits, [&]<int B>() {
    for_each_batch(job.params, job.in->elems(), begin, end,
                   [&](std::int64_t g, std::int64_t count, std::int64_t at) {
                     pack_batch<B>(job, g, count, job.codes + at);
                   });
  });
}

void unpack_groups_target(const UnpackJob& job, std::int64_t begin, std::int64_t end) {
  with_bits<1, 8>(job.params.bits, [&]<int B>() {
    for_each_batch(job.params, job.out->elems(), begin, end,
                   [&](std::int64_t g, std::int64_t count, std::int64_t at) {
                     unpack_batch<B>(job, g, count, job.codes + at);
                   });
  });
}

}  // namespace tuckfold::block_quant::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "base/stream.h"

namespace tuckfold::block_quant {

HWY_EXPORT(pack_groups_target);
HWY_EXPORT(unpack_groups_target);

void pack_groups(const PackJob& job, std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(pack_groups_target)(job, begin, end);
}

void unpack_groups(const UnpackJob& job, std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(unpack_groups_target)(job, begin, end);
  if (job.stream) stream_fence();
}

}  // namespace tuckfold::block_quant
#endif  // HWY_ONCE
