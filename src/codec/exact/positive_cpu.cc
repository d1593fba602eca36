// positive on the CPU: 64 values to a word of bits.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/exact/positive_cpu.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "codec/blocks/batch_cpu-inl.h"
#include "codec/exact/positive.h"

HWY_BEFORE_NAMESPACE();
namespace tuckfold::positive::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using tuckfold::HWY_NAMESPACE::kAheadBytes;
using tuckfold::HWY_NAMESPACE::kBatchElems;
using tuckfold::HWY_NAMESPACE::take;

constexpr std::int64_t kWordValues = 64;

template <class T>
HWY_NOINLINE HWY_ATTR void words_to_bits(const T* values, std::int64_t words, const Test<T>& test,
                                         std::byte* out) {
  const hn::CappedTag<T, kWordValues> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto one = hn::Set(d, T{1}), limit = hn::Set(d, test.limit);
  const auto minus_infinity = hn::Set(d, test.minus_infinity);
  for (std::int64_t i = 0; i < words; ++i) {
    std::uint64_t bits = 0;
    for (std::int64_t at = 0; at < kWordValues; at += lanes) {
      const T* from = values + i * kWordValues + at;
      __builtin_prefetch(reinterpret_cast<const char*>(from) + kAheadBytes, 0, 0);
      const auto v = hn::LoadU(d, from);
      const auto passes = hn::Or(hn::Lt(hn::Sub(v, one), limit), hn::Gt(v, minus_infinity));
      std::uint64_t some = 0;  // StoreMaskBits may write all eight bytes
      hn::StoreMaskBits(d, passes, reinterpret_cast<std::uint8_t*>(&some));
      bits |= some << at;
    }
    std::memcpy(out + i * 8, &bits, 8);
  }
}

void pack_bits_target(const PackJob& job, std::int64_t begin, std::int64_t end) {
  with_word(job.in->dtype(), [&](auto word) {
    using T = decltype(word);
    const Test<T> test = test_of<T>(job.in->dtype());
    alignas(64) T gathered[kBatchElems];
    for (std::int64_t at = begin; at < end; at += kBatchElems) {
      const std::int64_t count = std::min(kBatchElems, end - at);
      const std::int64_t whole = count / kWordValues, rest = count % kWordValues;
      const T* values = take(*job.in, at, count, gathered);
      words_to_bits(values, whole, test, job.out + at / 8);
      if (rest == 0) continue;
      alignas(64) T last[kWordValues] = {};
      std::byte bits[8];
      std::memcpy(last, values + whole * kWordValues, static_cast<std::size_t>(rest) * sizeof(T));
      words_to_bits(last, 1, test, bits);
      std::memcpy(job.out + at / 8 + whole * 8, bits, static_cast<std::size_t>((rest + 7) / 8));
    }
  });
}

}  // namespace tuckfold::positive::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tuckfold::positive {

HWY_EXPORT(pack_bits_target);

void pack_bits(const PackJob& job, std::int64_t begin, std::int64_t end) {
  const ReadPanels panels(*job.in);
  HWY_DYNAMIC_DISPATCH(pack_bits_target)(job, begin, end);
}

}  // namespace tuckfold::positive
#endif  // HWY_ONCE
