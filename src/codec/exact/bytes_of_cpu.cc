// bytes_of on the CPU: a multiplication guesses each byte, and the value that the byte represents
// is compared with the input.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/exact/bytes_of_cpu.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "base/convert.h"
#include "base/convert_cpu-inl.h"
#include "codec/blocks/batch_cpu-inl.h"
#include "codec/exact/bytes_of.h"

HWY_BEFORE_NAMESPACE();
namespace tuckfold::bytes_of::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using halves::HWY_NAMESPACE::OfBF16;
using halves::HWY_NAMESPACE::OfF16;
using tuckfold::HWY_NAMESPACE::kAheadBytes;
using tuckfold::HWY_NAMESPACE::kBatchElems;
using tuckfold::HWY_NAMESPACE::put;
using tuckfold::HWY_NAMESPACE::room_for;
using tuckfold::HWY_NAMESPACE::take;

using DF = hn::ScalableTag<float>;
using DU = hn::RebindToUnsigned<DF>;
using D8 = hn::Rebind<std::uint8_t, DF>;
using VF = hn::Vec<DF>;

// Elements may be floats where words are read, or words where floats are.
template <class T>
HWY_INLINE T load(const T* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

// Elements to f32, for guessing.
HWY_ATTR void widen(DType, const std::uint8_t* words, std::int64_t count, float* out) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = words[i];
}
void widen(DType dtype, const std::uint16_t* words, std::int64_t count, float* out) {
  if (dtype == DType::BF16) {
    to_floats(reinterpret_cast<const BF16*>(words), count, out);
  } else {
    to_floats(reinterpret_cast<const F16*>(words), count, out);
  }
}
HWY_ATTR void widen(DType, const std::uint64_t* words, std::int64_t count, float* out) {
  for (std::int64_t i = 0; i < count; ++i) {
    out[i] = static_cast<float>(std::bit_cast<double>(load(words + i)));
  }
}

// compute_f32 of vectors.
struct Compute {
  explicit HWY_ATTR Compute(const Factors& factors)
      : shift(hn::Set(DF(), factors.shift)),
        high(hn::Set(DF(), factors.high)),
        low(hn::Set(DF(), factors.low)),
        add(hn::Set(DF(), factors.add)) {}
  HWY_INLINE VF operator()(VF k) const {
    const VF shifted = hn::Add(k, shift);
    return hn::Add(hn::Add(hn::Mul(shifted, high), hn::Mul(shifted, low)), add);
  }
  const VF shift, high, low, add;
};

// The guesses of all values; with kCheck also whether they are right, by computing.
template <bool kCheck>
HWY_ATTR bool guess(const Table& table, const float* values, std::int64_t count,
                    std::uint8_t* codes) {
  const DF d;
  const DU du;
  const D8 d8;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto add = hn::Set(d, table.guess.add), factor = hn::Set(d, table.guess.inverse_scale);
  const auto to_integer = hn::Set(d, kToInteger);
  const Compute compute(table.factors);
  auto wrong = hn::Zero(du);
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    __builtin_prefetch(reinterpret_cast<const char*>(values + i) + kAheadBytes, 0, 0);
    const auto v = hn::LoadU(d, values + i);
    auto scaled = hn::Mul(hn::Sub(v, add), factor);
    scaled = hn::Min(hn::Max(scaled, hn::Zero(d)), hn::Set(d, 255.0f));
    const auto shifted = hn::Add(scaled, to_integer);
    const auto k = hn::And(hn::BitCast(du, shifted), hn::Set(du, 0xff));
    hn::StoreU(hn::TruncateTo(d8, k), d8, codes + i);
    if constexpr (kCheck) {
      const auto value = compute(hn::Sub(shifted, to_integer));
      wrong = hn::Or(wrong, hn::Xor(hn::BitCast(du, value), hn::BitCast(du, v)));
    }
  }
  bool right = hn::AllTrue(du, hn::Eq(wrong, hn::Zero(du)));
  for (; i < count; ++i) {
    const float value = load(values + i);
    const int k = guess_of(value, table.guess);
    codes[i] = static_cast<std::uint8_t>(k);
    if constexpr (kCheck) {
      right &= bits_of(compute_f32(table.factors, static_cast<float>(k))) == bits_of(value);
    }
  }
  return right;
}

HWY_ATTR void compute_all(const Table& table, const std::uint8_t* codes, std::int64_t count,
                          float* values) {
  const DF d;
  const D8 d8;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const Compute compute(table.factors);
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto k = hn::PromoteTo(hn::RebindToSigned<DF>(), hn::LoadU(d8, codes + i));
    hn::StoreU(compute(hn::ConvertTo(d, k)), d, values + i);
  }
  for (; i < count; ++i) values[i] = compute_f32(table.factors, codes[i]);
}

// ---- f16 and bf16, where one product and one sum give all values ---------------------------------

// What narrowing a value and widening it again gives.
HWY_INLINE VF rounded(OfBF16, VF value) {
  const auto bits = halves::HWY_NAMESPACE::rounded_to_bf16(value);
  return hn::BitCast(DF(), hn::And(bits, hn::Set(DU(), 0xffff0000u)));
}
HWY_INLINE VF rounded(OfF16 of, VF value) { return widened_number(of, narrowed_number(of, value)); }

// The guesses of all values, and whether they are right.
template <bool kExact, class Of>
HWY_NOINLINE HWY_ATTR bool guess_halves(Of of, const Table& table, const std::uint16_t* values,
                                        std::int64_t count, std::uint8_t* codes) {
  const DF d;
  const DU du;
  const auto step = 2 * static_cast<std::int64_t>(hn::Lanes(d));
  const auto minus = hn::Set(d, table.guess.add), factor = hn::Set(d, table.guess.inverse_scale);
  const auto scale = hn::Set(d, table.simple.scale), add = hn::Set(d, table.simple.add);
  const auto to_integer = hn::Set(d, kToInteger);
  auto wrong = hn::Zero(du), above = hn::BitCast(du, to_integer);
  const auto guess_one = [&](VF v) HWY_ATTR {
    const auto scaled = hn::Max(hn::Mul(hn::Sub(v, minus), factor), hn::Zero(d));
    const auto shifted = hn::Add(scaled, to_integer);
    VF value = hn::Add(hn::Mul(hn::Sub(shifted, to_integer), scale), add);
    if constexpr (!kExact) value = rounded(of, value);
    wrong = hn::Or(wrong, hn::Xor(hn::BitCast(du, value), hn::BitCast(du, v)));
    above = hn::Or(above, hn::BitCast(du, shifted));  // a guess above 255 sets a bit of its own
    return hn::BitCast(du, shifted);
  };
  std::int64_t i = 0;
  for (; i + step <= count; i += step) {
    __builtin_prefetch(reinterpret_cast<const char*>(values + i) + kAheadBytes, 0, 0);
    const auto two = widened_pairs(of, values + i);
    const auto a = guess_one(two.a), b = guess_one(two.b);
    halves::HWY_NAMESPACE::store_pairs_of_bytes({a, b}, codes + i);
  }
  const auto beyond = hn::AndNot(hn::Set(du, 0xff), hn::Xor(above, hn::BitCast(du, to_integer)));
  bool right = hn::AllTrue(du, hn::Eq(hn::Or(wrong, beyond), hn::Zero(du)));
  for (; i < count; ++i) {
    const int k = guess_of(to_float(typename Of::Half{values[i]}), table.guess);
    codes[i] = static_cast<std::uint8_t>(k);
    right &= table.words[k] == values[i];
  }
  return right;
}

template <bool kExact, class Of>
HWY_NOINLINE HWY_ATTR void compute_halves(Of of, const Table& table, const std::uint8_t* codes,
                                          std::int64_t count, std::uint16_t* words) {
  const DF d;
  const auto step = 2 * static_cast<std::int64_t>(hn::Lanes(d));
  const auto scale = hn::Set(d, table.simple.scale), add = hn::Set(d, table.simple.add);
  const auto value = [&](hn::Vec<DU> code) HWY_ATTR {
    const VF k = hn::ConvertTo(d, hn::BitCast(hn::RebindToSigned<DF>(), code));
    return hn::Add(hn::Mul(k, scale), add);
  };
  std::int64_t i = 0;
  for (; i + step <= count; i += step) {
    const auto two = load_bytes(of, codes + i);
    narrow_two<kExact>(of, {value(two.a), value(two.b)}, words + i);
  }
  for (; i < count; ++i) words[i] = static_cast<std::uint16_t>(table.words[codes[i]]);
}

// Calls body with OfF16 or OfBF16.
template <class Body>
auto with_half(DType dtype, Body&& body) {
  return dtype == DType::F16 ? body(OfF16()) : body(OfBF16());
}

// The values of codes in f16 or bf16, where they are computed.
void compute_all(const Table& table, DType dtype, const std::uint8_t* codes, std::int64_t count,
                 float* floats, std::uint16_t* words) {
  compute_all(table, codes, count, floats);
  if (dtype == DType::BF16) {
    from_floats(floats, count, reinterpret_cast<BF16*>(words));
  } else {
    from_floats(floats, count, reinterpret_cast<F16*>(words));
  }
}

template <class T>
HWY_ATTR bool check(const Table& table, const T* values, std::int64_t count,
                    const std::uint8_t* codes) {
  T wrong = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    wrong = static_cast<T>(wrong | (static_cast<T>(table.words[codes[i]]) ^ load(values + i)));
  }
  return wrong == 0;
}

// The first element that no byte represents, or `count`; corrects the guesses up to there.
template <class T>
std::int64_t search(const Table& table, const T* values, std::int64_t count, std::uint8_t* codes) {
  for (std::int64_t i = 0; i < count; ++i) {
    const T value = load(values + i);
    if (static_cast<T>(table.words[codes[i]]) == value) continue;
    const std::uint64_t* found = std::find(table.words, table.words + 256, value);
    if (found == table.words + 256) return i;
    codes[i] = static_cast<std::uint8_t>(found - table.words);
  }
  return count;
}

std::int64_t pack_bytes_target(const PackJob& job, std::int64_t begin, std::int64_t end) {
  return with_word(job.in->dtype(), [&](auto word) {
    using T = decltype(word);
    const Table::Simple& simple = job.table->simple;
    alignas(64) T gathered[kBatchElems];
    alignas(64) float floats[kBatchElems];
    for (std::int64_t at = begin; at < end; at += kBatchElems) {
      const std::int64_t count = std::min(kBatchElems, end - at);
      std::uint8_t* codes = job.out + at;
      const T* words = take(*job.in, at, count, gathered);
      if constexpr (std::is_same_v<T, std::uint16_t>) {
        const bool right =
            simple.usable && with_half(job.in->dtype(), [&](auto of) {
              return (simple.exact
                          ? guess_halves<true, decltype(of)>
                          : guess_halves<false, decltype(of)>)(of, *job.table, words, count, codes);
            });
        if (right) continue;
      }
      const float* values = floats;
      if constexpr (std::is_same_v<T, std::uint32_t>) {
        values = reinterpret_cast<const float*>(words);
      } else {
        widen(job.in->dtype(), words, count, floats);
      }
      if (job.table->exact && guess<true>(*job.table, values, count, codes)) continue;
      guess<false>(*job.table, values, count, codes);
      if constexpr (std::is_same_v<T, std::uint16_t>) {
        if (job.table->computed) {
          alignas(64) std::uint16_t represented[kBatchElems];
          compute_all(*job.table, job.in->dtype(), codes, count, floats, represented);
          const auto bytes = static_cast<std::size_t>(count) * sizeof(T);
          if (std::memcmp(represented, words, bytes) == 0) continue;
        }
      }
      if (check(*job.table, words, count, codes)) continue;
      const std::int64_t refused = search(*job.table, words, count, codes);
      if (refused < count) return at + refused;
    }
    return end;
  });
}

template <class T>
void look_up(const Table& table, const std::uint8_t* codes, std::int64_t count, T* words) {
  for (std::int64_t i = 0; i < count; ++i) words[i] = static_cast<T>(table.words[codes[i]]);
}

void unpack_bytes_target(const UnpackJob& job, std::int64_t begin, std::int64_t end) {
  with_word(job.out->dtype(), [&](auto word) {
    using T = decltype(word);
    const Table::Simple& simple = job.table->simple;
    alignas(64) T buffer[kBatchElems];
    alignas(64) float floats[kBatchElems];
    for (std::int64_t at = begin; at < end; at += kBatchElems) {
      const std::int64_t count = std::min(kBatchElems, end - at);
      const std::uint8_t* codes = job.in + at;
      T* words = room_for(*job.out, at, count, buffer);
      if constexpr (std::is_same_v<T, std::uint32_t>) {
        if (job.table->computed) {
          compute_all(*job.table, codes, count, reinterpret_cast<float*>(words));
          put(*job.out, at, count, words, buffer, job.stream);
          continue;
        }
      }
      if constexpr (std::is_same_v<T, std::uint16_t>) {
        if (simple.usable) {
          with_half(job.out->dtype(), [&](auto of) {
            (simple.exact
                 ? compute_halves<true, decltype(of)>
                 : compute_halves<false, decltype(of)>)(of, *job.table, codes, count, words);
          });
          put(*job.out, at, count, words, buffer, job.stream);
          continue;
        }
        if (job.table->computed) {
          compute_all(*job.table, job.out->dtype(), codes, count, floats, words);
          put(*job.out, at, count, words, buffer, job.stream);
          continue;
        }
      }
      look_up(*job.table, codes, count, words);
      put(*job.out, at, count, words, buffer, job.stream);
    }
  });
}

}  // namespace tuckfold::bytes_of::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "base/stream.h"

namespace tuckfold::bytes_of {

HWY_EXPORT(pack_bytes_target);
HWY_EXPORT(unpack_bytes_target);

std::int64_t pack_bytes(const PackJob& job, std::int64_t begin, std::int64_t end) {
  const ReadPanels panels(*job.in);
  return HWY_DYNAMIC_DISPATCH(pack_bytes_target)(job, begin, end);
}

void unpack_bytes(const UnpackJob& job, std::int64_t begin, std::int64_t end) {
  const WritePanels panels(*job.out);
  HWY_DYNAMIC_DISPATCH(unpack_bytes_target)(job, begin, end);
  if (job.stream) stream_fence();
}

}  // namespace tuckfold::bytes_of
#endif  // HWY_ONCE
