// mask on the CPU: 64 values to and from a word of bits.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/exact/mask_cpu.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "codec/blocks/batch_cpu-inl.h"
#include "codec/exact/mask.h"

HWY_BEFORE_NAMESPACE();
namespace tuckfold::mask::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using tuckfold::HWY_NAMESPACE::kAheadBytes;
using tuckfold::HWY_NAMESPACE::kBatchElems;
using tuckfold::HWY_NAMESPACE::put;
using tuckfold::HWY_NAMESPACE::room_for;
using tuckfold::HWY_NAMESPACE::take;

constexpr std::int64_t kWordValues = 64;

// The bits of whole words of values; false if some value is neither of the two.
template <class T>
HWY_NOINLINE HWY_ATTR bool words_to_bits(const T* values, std::int64_t words, T clear, T set,
                                         std::byte* out) {
  const hn::CappedTag<T, kWordValues> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto zero = hn::Set(d, clear), one = hn::Set(d, set);
  auto known = hn::FirstN(d, static_cast<std::size_t>(lanes));
  for (std::int64_t i = 0; i < words; ++i) {
    std::uint64_t bits = 0;
    for (std::int64_t at = 0; at < kWordValues; at += lanes) {
      const T* from = values + i * kWordValues + at;
      __builtin_prefetch(reinterpret_cast<const char*>(from) + kAheadBytes, 0, 0);
      const auto v = hn::LoadU(d, from);
      const auto is_set = hn::Eq(v, one);
      known = hn::And(known, hn::Or(is_set, hn::Eq(v, zero)));
      std::uint64_t some = 0;  // StoreMaskBits may write all eight bytes
      hn::StoreMaskBits(d, is_set, reinterpret_cast<std::uint8_t*>(&some));
      bits |= some << at;
    }
    std::memcpy(out + i * 8, &bits, 8);
  }
  return hn::AllTrue(d, known);
}

template <class T>
HWY_ATTR void bits_to_words(const std::byte* in, std::int64_t words, T clear, T set, T* values) {
  const hn::CappedTag<T, kWordValues> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto zero = hn::Set(d, clear), one = hn::Set(d, set);
  for (std::int64_t i = 0; i < words; ++i) {
    std::uint64_t bits;
    std::memcpy(&bits, in + i * 8, 8);
    for (std::int64_t at = 0; at < kWordValues; at += lanes) {
      const std::uint64_t some = bits >> at;
      const auto is_set = hn::LoadMaskBits(d, reinterpret_cast<const std::uint8_t*>(&some));
      hn::StoreU(hn::IfThenElse(is_set, one, zero), d, values + i * kWordValues + at);
    }
  }
}

std::int64_t pack_bits_target(const PackJob& job, std::int64_t begin, std::int64_t end) {
  return with_word(job.in->dtype(), [&](auto word) {
    using T = decltype(word);
    const T clear = static_cast<T>(job.clear), set = static_cast<T>(job.set);
    alignas(64) T gathered[kBatchElems];
    for (std::int64_t at = begin; at < end; at += kBatchElems) {
      const std::int64_t count = std::min(kBatchElems, end - at);
      const std::int64_t whole = count / kWordValues, rest = count % kWordValues;
      const T* values = take(*job.in, at, count, gathered);
      bool known = words_to_bits(values, whole, clear, set, job.out + at / 8);
      if (rest != 0) {
        alignas(64) T last[kWordValues];
        std::byte bits[8];
        std::fill_n(last, kWordValues, clear);
        std::memcpy(last, values + whole * kWordValues, static_cast<std::size_t>(rest) * sizeof(T));
        known &= words_to_bits(last, 1, clear, set, bits);
        std::memcpy(job.out + at / 8 + whole * 8, bits, static_cast<std::size_t>((rest + 7) / 8));
      }
      if (known) continue;
      job.in->gather_bytes(at, count, gathered);
      return at + (std::find_if(gathered, gathered + count,
                                [&](T value) { return value != clear && value != set; }) -
                   gathered);
    }
    return end;
  });
}

void unpack_bits_target(const UnpackJob& job, std::int64_t begin, std::int64_t end) {
  with_word(job.out->dtype(), [&](auto word) {
    using T = decltype(word);
    const T clear = static_cast<T>(job.clear), set = static_cast<T>(job.set);
    alignas(64) T buffer[kBatchElems];
    for (std::int64_t at = begin; at < end; at += kBatchElems) {
      const std::int64_t count = std::min(kBatchElems, end - at);
      const std::int64_t whole = count / kWordValues, rest = count % kWordValues;
      T* values = rest == 0 ? room_for(*job.out, at, count, buffer) : buffer;
      bits_to_words(job.in + at / 8, whole, clear, set, values);
      if (rest != 0) {
        std::byte bits[8] = {};
        std::memcpy(bits, job.in + at / 8 + whole * 8, static_cast<std::size_t>((rest + 7) / 8));
        bits_to_words(bits, 1, clear, set, values + whole * kWordValues);
      }
      put(*job.out, at, count, values, buffer, job.stream);
    }
  });
}

}  // namespace tuckfold::mask::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "base/stream.h"

namespace tuckfold::mask {

HWY_EXPORT(pack_bits_target);
HWY_EXPORT(unpack_bits_target);

std::int64_t pack_bits(const PackJob& job, std::int64_t begin, std::int64_t end) {
  const ReadPanels panels(*job.in);
  return HWY_DYNAMIC_DISPATCH(pack_bits_target)(job, begin, end);
}

void unpack_bits(const UnpackJob& job, std::int64_t begin, std::int64_t end) {
  const WritePanels panels(*job.out);
  HWY_DYNAMIC_DISPATCH(unpack_bits_target)(job, begin, end);
  if (job.stream) stream_fence();
}

}  // namespace tuckfold::mask
#endif  // HWY_ONCE
