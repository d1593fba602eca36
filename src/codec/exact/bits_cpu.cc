// bits on the CPU, in batches that stay in the L1 cache: differences become codes as narrow as the
// width allows, then bits; and back.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/exact/bits_cpu.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "base/dtype.h"
#include "base/memory_order.h"
#include "codec/blocks/batch_cpu-inl.h"
#include "codec/blocks/bit_packing_cpu-inl.h"
#include "codec/exact/bits.h"

HWY_BEFORE_NAMESPACE();
namespace tuckfold::bits::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using tuckfold::HWY_NAMESPACE::kAheadBytes;
using tuckfold::HWY_NAMESPACE::kBatchElems;
using tuckfold::HWY_NAMESPACE::put;
using tuckfold::HWY_NAMESPACE::room_for;
using tuckfold::HWY_NAMESPACE::spread_codes;
using tuckfold::HWY_NAMESPACE::squeeze_codes;
using tuckfold::HWY_NAMESPACE::stream_lines;
using tuckfold::HWY_NAMESPACE::take;
using tuckfold::HWY_NAMESPACE::with_bits;

template <class T>
HWY_ATTR void widen_range(const T* values, std::int64_t count, Range& range) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  T least = values[0], most = values[0];
  std::int64_t i = 0;
  if (count >= 4 * lanes) {
    auto low = hn::LoadU(d, values), high = low, low2 = low, high2 = low;
    for (; i + 2 * lanes <= count; i += 2 * lanes) {
      __builtin_prefetch(reinterpret_cast<const char*>(values + i) + kAheadBytes, 0, 0);
      __builtin_prefetch(reinterpret_cast<const char*>(values + i) + kAheadBytes + 64, 0, 0);
      const auto a = hn::LoadU(d, values + i), b = hn::LoadU(d, values + i + lanes);
      low = hn::Min(low, a);
      high = hn::Max(high, a);
      low2 = hn::Min(low2, b);
      high2 = hn::Max(high2, b);
    }
    HWY_ALIGN T lows[HWY_MAX_BYTES / sizeof(T)], highs[HWY_MAX_BYTES / sizeof(T)];
    hn::Store(hn::Min(low, low2), d, lows);
    hn::Store(hn::Max(high, high2), d, highs);
    least = *std::min_element(lows, lows + lanes);
    most = *std::max_element(highs, highs + lanes);
  }
  for (; i < count; ++i) {
    least = std::min(least, values[i]);
    most = std::max(most, values[i]);
  }
  const auto ordered = [](T value) {
    constexpr std::uint64_t kBias = std::is_same_v<T, std::uint64_t> ? std::uint64_t{1} << 63 : 0;
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(value) ^ kBias);
  };
  range.low = std::min(range.low, ordered(least));
  range.high = std::max(range.high, ordered(most));
}

Range range_of_target(const FlatReader& in, std::int64_t begin, std::int64_t end) {
  Range range;
  with_element(in.dtype(), [&](auto element) {
    using T = decltype(element);
    if constexpr (std::is_integral_v<T>) {
      if (const void* dense = in.dense(begin, end - begin)) {
        return widen_range(static_cast<const T*>(dense), end - begin, range);
      }
      // Ranges of elements are ranges of memory then: others, but all are looked at.
      if (const void* all = all_in_memory_order(in)) {
        return widen_range(static_cast<const T*>(all) + begin, end - begin, range);
      }
      alignas(64) T gathered[kBatchElems];
      for (std::int64_t at = begin; at < end; at += kBatchElems) {
        const std::int64_t count = std::min(kBatchElems, end - at);
        widen_range(take(in, at, count, gathered), count, range);
      }
    }
  });
  return range;
}

template <class T, class Code>
HWY_ATTR void subtract(const T* values, std::int64_t count, std::int64_t minimum, Code* codes) {
  using Word = std::make_unsigned_t<T>;
  const hn::ScalableTag<T> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const hn::Rebind<Code, decltype(d)> dc;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto least = static_cast<Word>(minimum);
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    // Memory would be idle while this batch is in cache: prefetch the next.
    __builtin_prefetch(reinterpret_cast<const char*>(values + i) + kAheadBytes, 0, 0);
    const auto v = hn::Sub(hn::BitCast(du, hn::LoadU(d, values + i)), hn::Set(du, least));
    if constexpr (sizeof(Code) == sizeof(T)) {
      hn::StoreU(v, dc, codes + i);
    } else {
      hn::StoreU(hn::TruncateTo(dc, v), dc, codes + i);
    }
  }
  for (; i < count; ++i) codes[i] = static_cast<Code>(static_cast<Word>(values[i]) - least);
}
// A plain loop: compilers use the target's widening instructions.
template <class T, class Code>
HWY_ATTR void add(const Code* codes, std::int64_t count, std::int64_t minimum, T* values) {
  using Word = std::make_unsigned_t<T>;
  const auto least = static_cast<Word>(minimum);
  for (std::int64_t i = 0; i < count; ++i) {
    values[i] = static_cast<T>(static_cast<Word>(static_cast<Word>(codes[i]) + least));
  }
}

// Calls body with a value of the narrowest type for codes of T's differences.
template <class T, class Body>
void with_code(int width, Body&& body) {
  if constexpr (sizeof(T) >= 2) {
    if (width > 8 && width <= 16) return body(std::uint16_t{});
  }
  if constexpr (sizeof(T) >= 4) {
    if (width > 16 && width <= 32) return body(std::uint32_t{});
  }
  if constexpr (sizeof(T) == 8) {
    if (width > 32) return body(std::uint64_t{});
  }
  body(std::uint8_t{});
}

// The widths whose codes are Code, so that what depends on the width is compiled once for all
// dtypes.
template <class Code>
constexpr int kMostBits = 8 * static_cast<int>(sizeof(Code));
template <class Code>
constexpr int kFewestBits = sizeof(Code) == 1 ? 1 : 4 * static_cast<int>(sizeof(Code)) + 1;

template <class Code>
void squeeze_batch(int width, Code* codes, std::int64_t count, std::byte* out) {
  with_bits<kFewestBits<Code>, kMostBits<Code>>(
      width, [&]<int B>() { squeeze_codes<B>(codes, count, out); });
}
template <class Code>
void spread_batch(int width, const std::byte* in, std::int64_t count, Code* codes) {
  with_bits<kFewestBits<Code>, kMostBits<Code>>(
      width, [&]<int B>() { spread_codes<B>(in, count, codes); });
}

void pack_codes_target(const PackJob& job, std::int64_t begin, std::int64_t end) {
  with_word(job.in->dtype(), [&]<class T>(T) {
    with_code<T>(job.width, [&]<class Code>(Code) {
      alignas(64) T gathered[kBatchElems];
      alignas(64) Code codes[kBatchElems];
      for (std::int64_t at = begin; at < end; at += kBatchElems) {
        const std::int64_t count = std::min(kBatchElems, end - at);
        subtract(take(*job.in, at, count, gathered), count, job.minimum, codes);
        std::byte* to = job.codes + at / 8 * job.width;
        if (job.stream && job.width == kMostBits<Code>) {  // the codes are the bytes
          stream_lines(reinterpret_cast<char*>(to), reinterpret_cast<const char*>(codes),
                       static_cast<std::size_t>(count) * sizeof(Code));
        } else {
          squeeze_batch(job.width, codes, count, to);
        }
      }
    });
  });
}

void unpack_codes_target(const UnpackJob& job, std::int64_t begin, std::int64_t end) {
  with_word(job.out->dtype(), [&]<class T>(T) {
    alignas(64) T buffer[kBatchElems];
    if (job.width == 0) {
      std::fill_n(buffer, kBatchElems, static_cast<T>(job.minimum));
      for (std::int64_t at = begin; at < end; at += kBatchElems) {
        put(*job.out, at, std::min(kBatchElems, end - at), buffer, job.stream);
      }
      return;
    }
    with_code<T>(job.width, [&]<class Code>(Code) {
      alignas(64) Code codes[kBatchElems];
      for (std::int64_t at = begin; at < end; at += kBatchElems) {
        const std::int64_t count = std::min(kBatchElems, end - at);
        spread_batch(job.width, job.codes + at / 8 * job.width, count, codes);
        T* values = room_for(*job.out, at, count, buffer);
        add(codes, count, job.minimum, values);
        put(*job.out, at, count, values, buffer, job.stream);
      }
    });
  });
}

}  // namespace tuckfold::bits::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "base/stream.h"

namespace tuckfold::bits {

HWY_EXPORT(range_of_target);
HWY_EXPORT(pack_codes_target);
HWY_EXPORT(unpack_codes_target);

Range range_of(const FlatReader& in, std::int64_t begin, std::int64_t end) {
  const ReadPanels panels(in);
  return HWY_DYNAMIC_DISPATCH(range_of_target)(in, begin, end);
}

void pack_codes(const PackJob& job, std::int64_t begin, std::int64_t end) {
  const ReadPanels panels(*job.in);
  HWY_DYNAMIC_DISPATCH(pack_codes_target)(job, begin, end);
  if (job.stream) stream_fence();
}

void unpack_codes(const UnpackJob& job, std::int64_t begin, std::int64_t end) {
  const WritePanels panels(*job.out);
  HWY_DYNAMIC_DISPATCH(unpack_codes_target)(job, begin, end);
  if (job.stream) stream_fence();
}

}  // namespace tuckfold::bits
#endif  // HWY_ONCE
