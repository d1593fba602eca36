// squeeze_codes and spread_codes: whole numbers of B bits side by side, lowest bits first, and
// back; for kernels of the same target to inline.
//
// A code arrives in the smallest unsigned type that holds B bits. Inside a 64-bit word neighbours
// pair up in at most three steps; the words' parts then join without gaps, so that eight codes take
// B bytes.
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

// Fields of kWidth bits that hold kBits each to the word's low bits, and back. What stands above
// them in a word to spread does not matter, but where one field fills the word.
template <int kBits, int kWidth>
HWY_INLINE std::uint64_t squeeze(std::uint64_t v) {
  if constexpr (kWidth == 64 || kBits == kWidth) {
    return v;
  } else {
    constexpr std::uint64_t kLow = every(2 * kWidth, kBits);
    v = (v & kLow) | ((v >> (kWidth - kBits)) & (kLow << kBits));
    return squeeze<2 * kBits, 2 * kWidth>(v);
  }
}
template <int kBits, int kWidth>
HWY_INLINE std::uint64_t spread(std::uint64_t v) {
  if constexpr (kWidth == 64 || kBits == kWidth) {
    return v;
  } else {
    constexpr std::uint64_t kLow = every(2 * kWidth, kBits);
    v = spread<2 * kBits, 2 * kWidth>(v);
    return (v & kLow) | ((v << (kWidth - kBits)) & (kLow << kWidth));
  }
}

// Eight codes are kWords words, of each of which kPart bits count.
template <int B>
inline constexpr int kWords = static_cast<int>(sizeof(CodeOf<B>));
template <int B>
inline constexpr int kPart = 8 * B / kWords<B>;

template <int B>
HWY_INLINE void squeeze_eight(const CodeOf<B>* codes, std::byte* out) {
  std::uint64_t words[kWords<B>];
  std::memcpy(words, codes, sizeof(words));
  std::uint64_t joined = 0;
  int filled = 0;  // bits of `joined`
  HWY_UNROLL(8)
  for (int i = 0; i < kWords<B>; ++i) {
    const std::uint64_t part = squeeze<B, 8 * kWords<B>>(words[i]);
    joined |= part << filled;
    filled += kPart<B>;
    if (filled < 64) continue;
    std::memcpy(out, &joined, 8);
    out += 8;
    filled -= 64;
    joined = filled == 0 ? 0 : part >> (kPart<B> - filled);
  }
  std::memcpy(out, &joined, B % 8);
}

template <int B>
HWY_INLINE void spread_eight(const std::byte* in, CodeOf<B>* codes) {
  constexpr std::uint64_t kMask = kPart<B> == 64 ? ~std::uint64_t{0} : every(64, kPart<B> % 64);
  std::uint64_t packed[(B + 7) / 8] = {};
  std::memcpy(packed, in, B);
  std::uint64_t words[kWords<B>];
  HWY_UNROLL(8)
  for (int i = 0; i < kWords<B>; ++i) {
    const int at = i * kPart<B>, left = at % 64;
    std::uint64_t part = packed[at / 64] >> left;
    if (left + kPart < B >> 64) part |= packed[at / 64 + 1] << (64 - left);
    words[i] = spread<B, 8 * kWords<B>>(part & kMask);
  }
  std::memcpy(codes, words, sizeof(words));
}

// Whole vectors of words; where B divides 8 the squeezed parts join in the vector. Returns how many
// words were done.
template <int B>
HWY_ATTR std::int64_t squeeze_vectors(const std::uint8_t* codes, std::int64_t words,
                                      std::byte* out) {
#if HWY_TARGET != HWY_SCALAR
  namespace hn = hwy::HWY_NAMESPACE;
  using Part = std::conditional_t<B == 4, std::uint32_t,
                                  std::conditional_t<B == 2, std::uint16_t, std::uint8_t>>;
  const hn::ScalableTag<std::uint64_t> d;
  const hn::Rebind<Part, decltype(d)> part;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto join = [&]<int kShift>(hn::Vec<decltype(d)> v, std::uint64_t low, std::uint64_t high)
                        HWY_ATTR {
                          return hn::Or(hn::And(v, hn::Set(d, low)),
                                        hn::And(hn::ShiftRight<kShift>(v), hn::Set(d, high)));
                        };
  std::int64_t i = 0;
  for (; i + lanes <= words; i += lanes) {
    auto v = hn::BitCast(d, hn::LoadU(hn::Repartition<std::uint8_t, decltype(d)>(), codes + 8 * i));
    v = join.template operator()<8 - B>(v, every(16, B), every(16, B) << B);
    v = join.template operator()<16 - 2 * B>(v, every(32, 2 * B), every(32, 2 * B) << (2 * B));
    v = join.template operator()<32 - 4 * B>(v, every(64, 4 * B), every(64, 4 * B) << (4 * B));
    alignas(64) Part parts[8];
    hn::Store(hn::TruncateTo(part, v), part, parts);
    std::memcpy(out + i * B, parts, static_cast<std::size_t>(lanes * B));
  }
  return i;
#else
  static_cast<void>(codes), static_cast<void>(words), static_cast<void>(out);
  return 0;
#endif
}

// `count` codes to count * B / 8 bytes, rounded up, and back.
template <int B>
HWY_ATTR void squeeze_codes(const CodeOf<B>* codes, std::int64_t count, std::byte* out) {
  if constexpr (B == 8 * kWords<B>) {
    std::memcpy(out, codes, static_cast<std::size_t>(count) * kWords<B>);
  } else {
    const std::int64_t eights = count / 8;
    std::int64_t i = 0;
    if constexpr (B == 1 || B == 2 || B == 4) i = squeeze_vectors<B>(codes, eights, out);
    for (; i < eights; ++i) squeeze_eight<B>(codes + 8 * i, out + i * B);
    if (count % 8 == 0) return;
    CodeOf<B> last[8] = {};
    std::byte squeezed[B];
    std::copy_n(codes + 8 * eights, count % 8, last);
    squeeze_eight<B>(last, squeezed);
    std::memcpy(out + eights * B, squeezed, static_cast<std::size_t>((count % 8 * B + 7) / 8));
  }
}

template <int B>
HWY_ATTR void spread_codes(const std::byte* in, std::int64_t count, CodeOf<B>* codes) {
  if constexpr (B == 8 * kWords<B>) {
    std::memcpy(codes, in, static_cast<std::size_t>(count) * kWords<B>);
  } else {
    const std::int64_t eights = count / 8;
    std::int64_t i = 0;
    if constexpr (B < 8) {
      // All but the last words can be read as eight bytes, which is quicker than as B.
      for (; i < eights - 8; ++i) {
        std::uint64_t v;
        std::memcpy(&v, in + i * B, 8);
        v = spread<B, 8>(v);
        std::memcpy(codes + 8 * i, &v, 8);
      }
    }
    for (; i < eights; ++i) spread_eight<B>(in + i * B, codes + 8 * i);
    if (count % 8 == 0) return;
    CodeOf<B> last[8];
    std::byte squeezed[B] = {};
    std::memcpy(squeezed, in + eights * B, static_cast<std::size_t>((count % 8 * B + 7) / 8));
    spread_eight<B>(squeezed, last);
    std::copy_n(last, count % 8, codes + 8 * eights);
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
