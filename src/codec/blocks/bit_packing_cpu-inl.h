// squeeze_codes and spread_codes: integers of B bits to contiguous bits, lowest first, and back;
// for kernels of the same target to inline.
//
// A code arrives in the smallest unsigned type that holds B bits. First neighbours in a 64-bit word
// pair up, in at most three steps, in vectors of words; then the words' parts join without gaps, so
// that eight codes take B bytes.
#if defined(TUCKFOLD_CODEC_SQUEEZE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TUCKFOLD_CODEC_SQUEEZE_INL_H
#undef TUCKFOLD_CODEC_SQUEEZE_INL_H
#else
#define TUCKFOLD_CODEC_SQUEEZE_INL_H
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace tuckfold::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <int B>
using CodeOf = std::conditional_t<
    B <= 8, std::uint8_t,
    std::conditional_t<B <= 16, std::uint16_t,
                       std::conditional_t<B <= 32, std::uint32_t, std::uint64_t>>>;

// b low bits in every `width` bits.
constexpr std::uint64_t every(int width, int b) {
  std::uint64_t mask = 0;
  for (int at = 0; at < 64; at += width) mask |= ((std::uint64_t{1} << b) - 1) << at;
  return mask;
}

// Moves fields of kWidth bits, which hold kBits each, to the low bits of their word, and back.
// Higher bits of a word to spread are ignored, except where one field fills the word.
template <int kBits, int kWidth, class D, class V>
HWY_INLINE V squeeze(D d, V v) {
  using Word = hn::TFromD<D>;
  if constexpr (kWidth == 8 * sizeof(Word) || kBits == kWidth) {
    return v;
  } else {
    constexpr auto kLow = static_cast<Word>(every(2 * kWidth, kBits));
    constexpr auto kNext = static_cast<Word>(every(2 * kWidth, kBits) << kBits);
    v = hn::Or(hn::And(v, hn::Set(d, kLow)),
               hn::And(hn::ShiftRight<kWidth - kBits>(v), hn::Set(d, kNext)));
    return squeeze<2 * kBits, 2 * kWidth>(d, v);
  }
}
template <int kBits, int kWidth, class D, class V>
HWY_INLINE V spread(D d, V v) {
  using Word = hn::TFromD<D>;
  if constexpr (kWidth == 8 * sizeof(Word) || kBits == kWidth) {
    return v;
  } else {
    constexpr auto kLow = static_cast<Word>(every(2 * kWidth, kBits));
    constexpr auto kNext = static_cast<Word>(every(2 * kWidth, kBits) << kWidth);
    v = spread<2 * kBits, 2 * kWidth>(d, v);
    return hn::Or(hn::And(v, hn::Set(d, kLow)),
                  hn::And(hn::ShiftLeft<kWidth - kBits>(v), hn::Set(d, kNext)));
  }
}

// Eight codes of b bits take so many words, and so many bits of each word are used.
constexpr int words_of(int b) { return b <= 8 ? 1 : b <= 16 ? 2 : b <= 32 ? 4 : 8; }
constexpr int part_of(int b) { return 8 * b / words_of(b); }

// Words in memory as codes.
template <class D, class Code>
HWY_INLINE hn::Vec<D> load_words(D d, const Code* codes) {
#if HWY_TARGET == HWY_SCALAR
  std::uint64_t word;
  std::memcpy(&word, codes, 8);
  return hn::Set(d, word);
#else
  return hn::BitCast(d, hn::LoadU(hn::Repartition<Code, D>(), codes));
#endif
}
template <class D, class Code>
HWY_INLINE void store_words(D, hn::Vec<D> words, Code* codes) {
#if HWY_TARGET == HWY_SCALAR
  const std::uint64_t word = hn::GetLane(words);
  std::memcpy(codes, &word, 8);
#else
  const hn::Repartition<Code, D> of_codes;
  hn::StoreU(hn::BitCast(of_codes, words), of_codes, codes);
#endif
}

// Bytes to words; not every target has a step from 8 bits to 64.
template <class D, class V>
HWY_INLINE hn::Vec<D> promote_bytes(D d, V bytes) {
  if constexpr (sizeof(hn::TFromD<D>) == 8) {
    const hn::Rebind<std::uint32_t, D> d32;
    return hn::PromoteTo(d, hn::PromoteTo(d32, bytes));
  } else {
    return hn::PromoteTo(d, bytes);
  }
}

// Applies `work`, which takes a tag and a vector of words, to every word of `codes` in place, and
// to some more up to a whole vector.
template <class Code, class Work>
HWY_INLINE void for_each_word(Code* codes, std::int64_t words, Work&& work) {
  constexpr std::int64_t kCodes = 8 / sizeof(Code);  // in a word
  const hn::CappedTag<std::uint64_t, 8> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t i = 0; i < words; i += lanes) {
    store_words(d, work(d, load_words(d, codes + i * kCodes)), codes + i * kCodes);
  }
}

// The parts of eight codes to B contiguous bytes, and back. Up to seven more bytes are written or
// read, which is faster.
template <int B>
HWY_INLINE void join(const CodeOf<B>* codes, std::byte* out) {
  constexpr int kWords = words_of(B), kPart = part_of(B);
  std::uint64_t joined = 0;
  int filled = 0;  // bits of `joined`
  HWY_UNROLL(8)
  for (int i = 0; i < kWords; ++i) {
    std::uint64_t part;
    std::memcpy(&part, codes + 8 / kWords * i, 8);
    joined |= part << filled;
    filled += kPart;
    if (filled < 64) continue;
    std::memcpy(out, &joined, 8);
    out += 8;
    filled -= 64;
    joined = filled == 0 ? 0 : part >> (kPart - filled);
  }
  if constexpr (B % 8 != 0) std::memcpy(out, &joined, 8);
}
template <int B>
HWY_INLINE void part(const std::byte* in, CodeOf<B>* codes) {
  constexpr int kWords = words_of(B), kPart = part_of(B);
  constexpr std::uint64_t kMask = ~std::uint64_t{0} >> (64 - kPart);
  HWY_UNROLL(8)
  for (int i = 0; i < kWords; ++i) {
    const int at = i * kPart / 8, shift = i * kPart % 8;
    std::uint64_t part;
    std::memcpy(&part, in + at, 8);
    part >>= shift;
    if (shift + kPart > 64) part |= static_cast<std::uint64_t>(in[at + 8]) << ((64 - shift) % 64);
    part &= kMask;
    std::memcpy(codes + 8 / kWords * i, &part, 8);
  }
}

// Where a byte holds whole codes, it is made from a word of them in few steps, and back. Returns
// how many groups of eight codes were done.
template <int B>
constexpr bool kWholeInByte = HWY_TARGET != HWY_SCALAR && (B == 1 || B == 2 || B == 4);
template <int B>
using WordOfByte = std::conditional_t<B == 4, std::uint16_t,
                                      std::conditional_t<B == 2, std::uint32_t, std::uint64_t>>;

template <int B>
HWY_INLINE std::int64_t squeeze_vectors(const std::uint8_t* codes, std::int64_t eights,
                                        std::byte* out) {
  std::int64_t i = 0;
  if constexpr (kWholeInByte<B>) {
    const hn::ScalableTag<WordOfByte<B>> d;
    const hn::Rebind<std::uint8_t, decltype(d)> of_bytes;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    for (; i + lanes <= eights * B; i += lanes) {
      const auto v = squeeze<B, 8>(d, load_words(d, codes + 8 / B * i));
      hn::StoreU(hn::TruncateTo(of_bytes, v), of_bytes, reinterpret_cast<std::uint8_t*>(out + i));
    }
  }
  static_cast<void>(codes), static_cast<void>(eights), static_cast<void>(out);
  return i / B;
}
template <int B>
HWY_INLINE std::int64_t spread_vectors(const std::byte* in, std::int64_t eights,
                                       std::uint8_t* codes) {
  std::int64_t i = 0;
  if constexpr (kWholeInByte<B>) {
    const hn::ScalableTag<WordOfByte<B>> d;
    const hn::Rebind<std::uint8_t, decltype(d)> of_bytes;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    for (; i + lanes <= eights * B; i += lanes) {
      const auto bytes = hn::LoadU(of_bytes, reinterpret_cast<const std::uint8_t*>(in + i));
      store_words(d, spread<B, 8>(d, promote_bytes(d, bytes)), codes + 8 / B * i);
    }
  }
  static_cast<void>(codes), static_cast<void>(eights), static_cast<void>(in);
  return i / B;
}

// The last groups of eight go through a buffer, because no byte past the end may be touched.
constexpr std::int64_t kLastEights = 8;

// `count` codes to count * B / 8 bytes, rounded up, and back. `codes` has room for whole cache
// lines; squeezing overwrites it.
template <int B>
HWY_NOINLINE HWY_ATTR void squeeze_codes(CodeOf<B>* codes, std::int64_t count, std::byte* out) {
  constexpr int kWords = words_of(B);
  if constexpr (B == 8 * kWords) {
    std::memcpy(out, codes, static_cast<std::size_t>(count) * kWords);
  } else {
    const std::int64_t eights = (count + 7) / 8, bytes = (count * B + 7) / 8;
    std::fill_n(codes + count, 8 * eights - count, CodeOf<B>{0});
    std::int64_t i = 0;
    if constexpr (B <= 8) i = squeeze_vectors<B>(codes, count / 8, out);
    for_each_word(codes + 8 * i, (eights - i) * kWords,
                  [](auto d, auto v) HWY_ATTR { return squeeze<B, 8 * kWords>(d, v); });
    std::byte last[kLastEights * B + 8];
    const std::int64_t direct = std::max(eights - kLastEights, i);
    for (std::byte* to = out + i * B; i < eights; ++i, to += B) {
      if (i == direct) to = last;
      join<B>(codes + 8 * i, to);
    }
    std::memcpy(out + direct * B, last, static_cast<std::size_t>(bytes - direct * B));
  }
}

template <int B>
HWY_NOINLINE HWY_ATTR void spread_codes(const std::byte* in, std::int64_t count, CodeOf<B>* codes) {
  constexpr int kWords = words_of(B);
  if constexpr (B == 8 * kWords) {
    std::memcpy(codes, in, static_cast<std::size_t>(count) * kWords);
  } else {
    const std::int64_t eights = (count + 7) / 8, bytes = (count * B + 7) / 8;
    std::int64_t i = 0;
    if constexpr (B <= 8) i = spread_vectors<B>(in, count / 8, codes);
    const std::int64_t direct = std::max(eights - kLastEights, i);
    std::byte last[kLastEights * B + 8] = {};
    std::memcpy(last, in + direct * B, static_cast<std::size_t>(bytes - direct * B));
    const std::byte* from = in + i * B;
    CodeOf<B>* rest = codes + 8 * i;
    const std::int64_t rest_words = (eights - i) * kWords;
    for (; i < eights; ++i, from += B) {
      if (i == direct) from = last;
      part<B>(from, codes + 8 * i);
    }
    for_each_word(rest, rest_words,
                  [](auto d, auto v) HWY_ATTR { return spread<B, 8 * kWords>(d, v); });
  }
}

// Calls visit.operator()<B>() for a number of bits in kFirst..kLast, known only at run time.
template <int kFirst, int kLast, class Visit>
void with_bits(int bits, Visit&& visit) {
  if constexpr (kFirst == kLast) {
    visit.template operator()<kFirst>();
  } else {
    constexpr int kMiddle = (kFirst + kLast) / 2;
    if (bits <= kMiddle) return with_bits<kFirst, kMiddle>(bits, visit);
    with_bits<kMiddle + 1, kLast>(bits, visit);
  }
}

}  // namespace tuckfold::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
