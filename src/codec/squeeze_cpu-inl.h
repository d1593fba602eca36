// squeeze_codes and spread_codes: whole numbers of B bits side by side, lowest bits first, and
// back; for kernels of the same target to inline.
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

// Fields of kWidth bits that hold kBits each to their word's low bits, and back. What stands above
// them in a word to spread does not matter, but where one field fills the word.
template <int kBits, int kWidth, class D, class V>
HWY_INLINE V squeeze(D d, V v) {
  if constexpr (kWidth == 64 || kBits == kWidth) {
    return v;
  } else {
    constexpr std::uint64_t kLow = every(2 * kWidth, kBits);
    v = hn::Or(hn::And(v, hn::Set(d, kLow)),
               hn::And(hn::ShiftRight<kWidth - kBits>(v), hn::Set(d, kLow << kBits)));
    return squeeze<2 * kBits, 2 * kWidth>(d, v);
  }
}
template <int kBits, int kWidth, class D, class V>
HWY_INLINE V spread(D d, V v) {
  if constexpr (kWidth == 64 || kBits == kWidth) {
    return v;
  } else {
    constexpr std::uint64_t kLow = every(2 * kWidth, kBits);
    v = spread<2 * kBits, 2 * kWidth>(d, v);
    return hn::Or(hn::And(v, hn::Set(d, kLow)),
                  hn::And(hn::ShiftLeft<kWidth - kBits>(v), hn::Set(d, kLow << kWidth)));
  }
}

// Eight codes of b bits are so many words, of each of which so many bits count.
constexpr int words_of(int b) { return b <= 8 ? 1 : b <= 16 ? 2 : b <= 32 ? 4 : 8; }
constexpr int part_of(int b) { return 8 * b / words_of(b); }

// Words that lie in memory as codes.
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
HWY_INLINE void store_words(D d, hn::Vec<D> words, Code* codes) {
#if HWY_TARGET == HWY_SCALAR
  const std::uint64_t word = hn::GetLane(words);
  std::memcpy(codes, &word, 8);
  static_cast<void>(d);
#else
  const hn::Repartition<Code, D> of_codes;
  hn::StoreU(hn::BitCast(of_codes, words), of_codes, codes);
#endif
}

// Every word of `codes` in place; `work` takes a tag and a vector of words.
template <class Code, class Work>
HWY_INLINE void for_each_word(Code* codes, std::int64_t words, Work&& work) {
  constexpr std::int64_t kCodes = 8 / sizeof(Code);  // in a word
  const auto run = [&](auto d, std::int64_t i) HWY_ATTR {
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    for (; i + lanes <= words; i += lanes) {
      store_words(d, work(d, load_words(d, codes + i * kCodes)), codes + i * kCodes);
    }
    return i;
  };
  run(hn::CappedTag<std::uint64_t, 1>(), run(hn::ScalableTag<std::uint64_t>(), 0));
}

// The parts of eight codes to B bytes without gaps, and back. Unless they are the last, up to seven
// bytes more are written, to be written again, or read, which is quicker.
template <int B, bool kLast>
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
  if constexpr (B % 8 != 0) std::memcpy(out, &joined, kLast ? B % 8 : 8);
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

// Where B bytes are a type of their own the parts join in the vector. Returns how many eights of
// codes were done.
template <int B>
HWY_INLINE std::int64_t squeeze_vectors(const std::uint8_t* codes, std::int64_t eights,
                                        std::byte* out) {
  std::int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  if constexpr (B == 1 || B == 2 || B == 4) {
    using Part = std::conditional_t<B == 4, std::uint32_t,
                                    std::conditional_t<B == 2, std::uint16_t, std::uint8_t>>;
    const hn::ScalableTag<std::uint64_t> d;
    const hn::Rebind<Part, decltype(d)> of_parts;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    for (; i + lanes <= eights; i += lanes) {
      const auto v = squeeze<B, 8>(d, load_words(d, codes + 8 * i));
      alignas(64) Part parts[8];
      hn::Store(hn::TruncateTo(of_parts, v), of_parts, parts);
      std::memcpy(out + i * B, parts, static_cast<std::size_t>(lanes * B));
    }
  }
#endif
  static_cast<void>(codes), static_cast<void>(eights), static_cast<void>(out);
  return i;
}

// `count` codes to count * B / 8 bytes, rounded up, and back. `codes` has room for whole eights; to
// squeeze them is to lose them.
template <int B>
HWY_ATTR void squeeze_codes(CodeOf<B>* codes, std::int64_t count, std::byte* out) {
  constexpr int kWords = words_of(B);
  if constexpr (B == 8 * kWords) {
    std::memcpy(out, codes, static_cast<std::size_t>(count) * kWords);
  } else {
    const std::int64_t eights = count / 8, rest = count % 8;
    if (rest != 0) std::fill_n(codes + count, 8 - rest, CodeOf<B>{0});
    std::int64_t i = 0;
    if constexpr (B <= 8) i = squeeze_vectors<B>(codes, eights, out);
    for_each_word(codes + 8 * i, (eights - i + (rest != 0 ? 1 : 0)) * kWords,
                  [](auto d, auto v) HWY_ATTR { return squeeze<B, 8 * kWords>(d, v); });
    for (; i < eights - 8; ++i) join<B, false>(codes + 8 * i, out + i * B);
    for (; i < eights; ++i) join<B, true>(codes + 8 * i, out + i * B);
    if (rest == 0) return;
    std::byte last[B];
    join<B, true>(codes + 8 * i, last);
    std::memcpy(out + i * B, last, static_cast<std::size_t>((rest * B + 7) / 8));
  }
}

template <int B>
HWY_ATTR void spread_codes(const std::byte* in, std::int64_t count, CodeOf<B>* codes) {
  constexpr int kWords = words_of(B);
  if constexpr (B == 8 * kWords) {
    std::memcpy(codes, in, static_cast<std::size_t>(count) * kWords);
  } else {
    const std::int64_t eights = count / 8, rest = count % 8;
    std::int64_t i = 0;
    for (; i < eights - 8; ++i) part<B>(in + i * B, codes + 8 * i);
    const std::int64_t bytes = (count * B + 7) / 8;
    for (; 8 * i < count; ++i) {
      std::byte last[B + 8] = {};
      std::memcpy(last, in + i * B,
                  static_cast<std::size_t>(std::min<std::int64_t>(B, bytes - i * B)));
      part<B>(last, codes + 8 * i);
    }
    for_each_word(codes, (eights + (rest != 0 ? 1 : 0)) * kWords,
                  [](auto d, auto v) HWY_ATTR { return spread<B, 8 * kWords>(d, v); });
  }
}

// Calls visit.operator()<B>() for the number of bits, kFirst..kLast, that is only now known.
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
