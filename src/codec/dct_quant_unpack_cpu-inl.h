// dct_quant's unpacking kernel of 512 bits. Headers are read four at a time, a block's codes spread
// by byte and bit permutations, and two blocks at a time transformed back. It needs VBMI, which all
// but the first CPUs with these vectors have.
#if defined(TUCKFOLD_CODEC_DCT_QUANT_UNPACK_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TUCKFOLD_CODEC_DCT_QUANT_UNPACK_INL_H
#undef TUCKFOLD_CODEC_DCT_QUANT_UNPACK_INL_H
#else
#define TUCKFOLD_CODEC_DCT_QUANT_UNPACK_INL_H
#endif

#include <hwy/highway.h>

#include <array>
#include <cstdint>
#include <cstring>

#include "codec/dct_quant_wide_cpu-inl.h"

#if TUCKFOLD_DCT_QUANT_WIDE
#define TUCKFOLD_VBMI HWY_TARGET_STR ",avx512vbmi"
#define TUCKFOLD_VBMI_ATTR __attribute__((target(TUCKFOLD_VBMI)))
HWY_PUSH_ATTRIBUTES(TUCKFOLD_VBMI)
namespace tuckfold::dct_quant::HWY_NAMESPACE {

inline bool can_unpack_wide() { return __builtin_cpu_supports("avx512vbmi") != 0; }

struct alignas(64) UnpackBuffers {
  std::uint8_t bytes[kBatch * kMaxWideBytes + 64];  // a copy that may be read beyond its end
  std::uint8_t given[kBatch][16], width[kBatch][16];
  std::uint8_t begin[kBatch][16];      // of a tile's bytes, in the block
  std::uint16_t odd[kBatch];           // bit i: tile kTileAt[i] has an odd width
  std::uint16_t lowest[2][kBatch][8];  // the place of a code's lowest bit, of tiles as kTileAt
  float first[kBatch];                 // the first coefficient
  std::uint32_t step[kBatch];
  std::uint64_t low_bits[kBatch];
};

// In each 16 bytes the sums of all up to a place.
HWY_INLINE __m512i running_sums(__m512i v) {
  v = _mm512_add_epi8(v, _mm512_bslli_epi128(v, 1));
  v = _mm512_add_epi8(v, _mm512_bslli_epi128(v, 2));
  v = _mm512_add_epi8(v, _mm512_bslli_epi128(v, 4));
  return _mm512_add_epi8(v, _mm512_bslli_epi128(v, 8));
}

// Widths and places of four blocks from `block` on. Bit i of the result: those of the i-th do not
// fit, and are taken as zero.
template <int kTiles>
HWY_INLINE unsigned read_widths(const Form& form, int block, UnpackBuffers& io) {
  const auto bytes = [](int value)
                         TUCKFOLD_VBMI_ATTR { return _mm512_set1_epi8(static_cast<char>(value)); };
  const auto words = [](int value) TUCKFOLD_VBMI_ATTR {
    return _mm512_set1_epi16(static_cast<short>(value));
  };
  constexpr std::uint64_t kEach = 0x0001000100010001u;
  constexpr __mmask64 kCoded = ((1u << kTiles) - 1) * kEach, kFollowing = kCoded & ~kEach;
  const __m512i zero = _mm512_setzero_si512();
  const __m512i places =
      _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
  // A header's fields to a byte each.
  constexpr auto kFields = [] {
    std::array<std::uint8_t, 16> table{};
    for (int k = 0; k < 16; ++k) table[k] = static_cast<std::uint8_t>(k == 0 ? 10 : 12 + 2 * k);
    return table;
  }();
  __m512i given = zero;
  for (int i = 0; i < 4; ++i) {
    const auto* header = reinterpret_cast<const __m128i*>(io.bytes + (block + i) * form.bytes);
    given = _mm512_mask_broadcastq_epi64(given, static_cast<__mmask8>(3 << (2 * i)),
                                         _mm_loadl_epi64(header));
  }
  given = _mm512_multishift_epi64_epi8(
      _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(kFields.data()))),
      given);
  given = _mm512_and_si512(given, _mm512_mask_mov_epi8(bytes(3), kEach, bytes(15)));
  given = _mm512_mask_sub_epi8(given, kFollowing, given, bytes(2));
  given = _mm512_maskz_mov_epi8(kCoded, running_sums(given));
  // Both halves' sums, in both halves.
  __m512i sum = _mm512_sad_epu8(given, zero);
  sum = _mm512_add_epi64(sum, _mm512_shuffle_epi32(sum, _MM_PERM_BADC));
  const __mmask64 wide = _mm512_cmpgt_epu8_mask(given, bytes(form.max_width));
  const __mmask8 many = _mm512_cmpgt_epi64_mask(sum, _mm512_set1_epi64(form.nibbles));
  const __m512i left =
      _mm512_shuffle_epi8(_mm512_sub_epi8(_mm512_set1_epi64(form.nibbles), sum), zero);
  __mmask64 more = _mm512_cmpgt_epi8_mask(left, places) & _mm512_test_epi8_mask(given, given);
  __m512i width = _mm512_mask_add_epi8(given, more, given, bytes(1));
  unsigned misfits = 0;
  if (HWY_UNLIKELY(wide != 0 || many != 0)) {
    for (int i = 0; i < 4; ++i) {
      if ((wide >> (16 * i) & 0xffff) == 0 && (many >> (2 * i) & 1) == 0) continue;
      const __mmask64 others = ~(__mmask64{0xffff} << (16 * i));
      width = _mm512_maskz_mov_epi8(others, width);
      given = _mm512_maskz_mov_epi8(others, given);
      misfits |= 1u << i;
    }
  }
  const __m512i pairs = _mm512_and_si512(_mm512_srli_epi16(width, 1), bytes(0x7f));
  const __m512i ends = _mm512_add_epi8(running_sums(pairs), bytes(form.header_bits() / 8));
  _mm512_store_si512(io.given[block], given);
  _mm512_store_si512(io.width[block], width);
  _mm512_store_si512(io.begin[block], _mm512_sub_epi8(ends, pairs));
  const __m512i by_columns =
      _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(kTileAt.data())));
  const __m512i ordered = _mm512_shuffle_epi8(width, by_columns);
  for (int h = 0; h < 2; ++h) {
    const __m512i w =
        h == 0 ? _mm512_unpacklo_epi8(ordered, zero) : _mm512_unpackhi_epi8(ordered, zero);
    _mm512_store_si512(io.lowest[h][block],
                       _mm512_sllv_epi16(words(1), _mm512_sub_epi16(words(16), w)));
  }
  const __mmask64 odd = _mm512_test_epi8_mask(ordered, bytes(1));
  std::memcpy(io.odd + block, &odd, 8);
  return misfits;
}

// Low bits and the first coefficient of one block.
template <int kTiles>
HWY_INLINE void read_rest(const Form& form, int block, bool nothing, UnpackBuffers& io) {
  const std::uint8_t* in = io.bytes + block * form.bytes;
  const std::uint64_t header = get64(in);
  const int low_dc = form.header_bits() % 8;
  const std::uint8_t* at = in + io.begin[block][15] + (io.width[block][15] >> 1);
  std::uint64_t tail = get64(at);
  std::uint64_t dc = header >> (12 + 2 * kTiles) & ((std::uint64_t{1} << (form.dc - low_dc)) - 1);
  if (low_dc != 0) {
    dc = dc << 4 | (tail & 15);
    tail = tail >> 4 | static_cast<std::uint64_t>(at[8]) << 60;
  }
  const std::uint64_t low = _pdep_u64(tail, _pdep_u64(io.odd[block], kNibbles) * 15);
  io.low_bits[block] = low;
  const std::uint32_t q = header & 1023;
  const int width = io.width[block][0], odd = width % 2;
  std::uint64_t code = get64(in + io.begin[block][0]) & ((std::uint64_t{1} << (width - odd)) - 1);
  code = odd != 0 ? code << 1 | (low & 1) : code;
  const auto number = static_cast<std::int32_t>(sign_extended(dc << width | code, width + form.dc));
  const float step = step_of(static_cast<int>(q)) * (width > io.given[block][0] ? 0.5f : 1.0f);
  io.step[block] = q << kStepShift;
  io.first[block] = nothing || q < kLeastStep || q >= kNoStep ? float_of(kQuietNan)
                                                              : static_cast<float>(number) * step;
}

// A block's codes at the top of a word, followed by a bit for the half that is added, the sign bit
// turned; by columns of tiles: a vector has two.
HWY_INLINE void read_words(const Form& form, const UnpackBuffers& from, int block, __m512i* words) {
  struct alignas(64) Tables {
    std::uint8_t tile[2][64];  // of a byte
    std::uint8_t word[2][64];  // of a word, in its lower byte
    std::uint8_t next[64];     // bytes of a tile
    std::uint16_t value[32];   // the place of a value in its tile, twice
    std::uint8_t expand[64];   // each word of a tile: the tile's
  };
  alignas(64) static constexpr Tables kTables = [] {
    Tables tables{};
    for (int i = 0; i < 64; ++i) {
      for (int h = 0; h < 2; ++h) {
        tables.tile[h][i] = kTileAt[8 * h + i / 8];
        tables.word[h][i] = i % 2 == 0 ? kTileAt[8 * h + i / 8] : 0x80;
      }
      tables.next[i] = static_cast<std::uint8_t>(i % 8);
      tables.expand[i] = static_cast<std::uint8_t>(i / 8 * 2 + i % 2);
    }
    for (int i = 0; i < 32; ++i) tables.value[i] = static_cast<std::uint16_t>(i % 4 * 0x0101);
    return tables;
  }();
  const auto load = [](const void* table) TUCKFOLD_VBMI_ATTR { return _mm512_load_si512(table); };
  const auto four_times = [](const void* at) TUCKFOLD_VBMI_ATTR {
    return _mm512_broadcast_i32x4(_mm_load_si128(static_cast<const __m128i*>(at)));
  };
  const __m512i bytes = _mm512_loadu_si512(from.bytes + block * form.bytes);
  const __m512i begin = four_times(from.begin[block]);
  const __m512i even = _mm512_and_si512(four_times(from.width[block]), _mm512_set1_epi8(~1));
  for (int h = 0; h < 2; ++h) {
    // A tile's bytes to 64 bits, its values' to 16 each.
    const __m512i at =
        _mm512_add_epi8(_mm512_shuffle_epi8(begin, load(kTables.tile[h])), load(kTables.next));
    const __m512i widths = _mm512_shuffle_epi8(even, load(kTables.word[h]));
    const __m512i bits = _mm512_add_epi16(_mm512_mullo_epi16(widths, load(kTables.value)),
                                          _mm512_set1_epi16(0x0800));
    const __m512i codes = _mm512_multishift_epi64_epi8(bits, _mm512_permutexvar_epi8(at, bytes));
    const __m512i top = _mm512_sllv_epi16(codes, _mm512_sub_epi16(_mm512_set1_epi16(16), widths));
    const __m512i lowest =
        _mm512_shuffle_epi8(four_times(from.lowest[h][block]), load(kTables.expand));
    constexpr int kXor = 0x96;
    const __m512i whole = _mm512_ternarylogic_epi32(top, _mm512_srli_epi16(lowest, 1),
                                                    _mm512_set1_epi16(-0x8000), kXor);
    const auto low = static_cast<__mmask32>(from.low_bits[block] >> (32 * h));
    words[h] = _mm512_mask_add_epi16(whole, low, whole, lowest);
  }
}

// What a code at the top of a word counts, by tiles: step * 2^(given - 16), however wide it is.
HWY_INLINE __m512 scale_of(const UnpackBuffers& from, int block) {
  const __m512i given =
      _mm512_cvtepu8_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(from.given[block])));
  return _mm512_castsi512_ps(
      _mm512_add_epi32(_mm512_slli_epi32(given, 23),
                       _mm512_set1_epi32(static_cast<int>(from.step[block] - (16u << 23)))));
}

// Two blocks back to values.
template <bool kStream, bool kPlain>
HWY_INLINE void restore_two(const Params& p, const UnpackBuffers& from, int block, float* left,
                            float* right, std::int64_t row) {
  // Halves of eight lanes: block 0's rows of a column, block 1's.
  alignas(64) static constexpr auto kTileOfHalves = [] {
    std::array<std::array<std::int32_t, 16>, 4> table{};
    for (int j = 0; j < 4; ++j) {
      for (int i = 0; i < 16; ++i) table[j][i] = kTileAt[j * 4 + i % 8 / 2] + i / 8 * 16;
    }
    return table;
  }();
  alignas(64) static constexpr auto kScaleOfHalves = [] {
    std::array<std::array<float, 16>, 8> table{};
    for (int v = 0; v < 8; ++v) {
      for (int i = 0; i < 16; ++i) table[v][i] = kScale[i % 8 * 8 + v];
    }
    return table;
  }();
  const DF d;
  __m512i a[2], b[2];
  read_words(p.form, from, block, a);
  read_words(p.form, from, block + 1, b);
  const __m512 scale_a = scale_of(from, block), scale_b = scale_of(from, block + 1);
  // 2^23 and a word without sign, as bits of an f32.
  const __m512i upper = _mm512_set1_epi32(0x4b000000), lower = _mm512_set1_epi32(0xffff);
  const __m512 zero_point = _mm512_set1_ps(0x1p23f + 0x1p15f);
  V x[8], y[8];
  for (int j = 0; j < 4; ++j) {
    const __m512i two = j % 2 == 0 ? _mm512_shuffle_i64x2(a[j / 2], b[j / 2], 0x44)
                                   : _mm512_shuffle_i64x2(a[j / 2], b[j / 2], 0xEE);
    const __m512 scale =
        _mm512_permutex2var_ps(scale_a, _mm512_load_si512(kTileOfHalves[j].data()), scale_b);
    const __m512i bits[2] = {
        _mm512_ternarylogic_epi32(two, lower, upper, 0xEA),  // (two & lower) | upper
        _mm512_or_si512(_mm512_srli_epi32(two, 16), upper)};
    for (int i = 0; i < 2; ++i) {
      const __m512 number = _mm512_sub_ps(_mm512_castsi512_ps(bits[i]), zero_point);
      __m512 z = _mm512_mul_ps(number, scale);
      if (j == 0 && i == 0) {
        z = _mm512_mask_mov_ps(z, 0x0001, _mm512_set1_ps(from.first[block]));
        z = _mm512_mask_mov_ps(z, 0x0100, _mm512_set1_ps(from.first[block + 1]));
      }
      y[2 * j + i] = V{_mm512_mul_ps(z, _mm512_load_ps(kScaleOfHalves[2 * j + i].data()))};
    }
  }
  inverse_pass(y, x);
  __m512 t[8];
  transpose_quarters(x, t);
  const __m512i even = _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13);
  const __m512i odd = _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15);
  for (int i = 0; i < 4; ++i) {
    const __m512d low = _mm512_castps_pd(t[i]), high = _mm512_castps_pd(t[i + 4]);
    y[i] = V{_mm512_castpd_ps(_mm512_permutex2var_pd(low, even, high))};
    y[i + 4] = V{_mm512_castpd_ps(_mm512_permutex2var_pd(low, odd, high))};
  }
  inverse_pass(y, x);
  const V shift = hn::Set(d, p.offset);
  for (int r = 0; r < 8; ++r) {
    V value = kPlain ? x[r] : hn::Add(x[r], shift);
    if (!kPlain && p.clamp) value = V{_mm512_max_ps(_mm512_setzero_ps(), value.raw)};  // NaN stays
    if (kStream) {
      hn::Stream(value, d, left + r * row);
    } else if (right == left + 8) {
      hn::StoreU(value, d, left + r * row);
    } else {
      _mm256_storeu_ps(left + r * row, _mm512_castps512_ps256(value.raw));
      if (right != nullptr) _mm256_storeu_ps(right + r * row, _mm512_extractf32x8_ps(value.raw, 1));
    }
  }
}

template <int kTiles>
TUCKFOLD_VBMI_ATTR HWY_NOINLINE void unpack_batch(const Params& p, bool stream,
                                                  const std::uint8_t* in, const Batch<float>& out) {
  const Form& form = p.form;
  UnpackBuffers buffers;
  // The next batch's bytes, most likely.
  for (int i = 0; i < out.count * form.bytes; i += 64) {
    __builtin_prefetch(in + out.count * form.bytes + i, 0, 2);
  }
  std::memcpy(buffers.bytes, in, static_cast<std::size_t>(out.count * form.bytes));
  const int count = (out.count + 3) / 4 * 4;
  std::memset(buffers.bytes + out.count * form.bytes, 0,
              static_cast<std::size_t>((count - out.count) * form.bytes));
  unsigned misfits = 0;
  for (int b = 0; b < count; b += 4) misfits |= read_widths<kTiles>(form, b, buffers) << b;
  for (int b = 0; b < count; ++b) {
    read_rest<kTiles>(form, b, (misfits >> b & 1) != 0, buffers);
  }
  for (int b = 0; b < out.count; b += 2) {
    float* left = out.at[b];
    float* right = b + 1 < out.count ? out.at[b + 1] : nullptr;
    const bool line =
        right == left + 8 && reinterpret_cast<std::uintptr_t>(left) % 64 == 0 && out.row % 16 == 0;
    const bool plain = p.offset == 0 && !p.clamp, whole = stream && line;
    if (plain && whole) {
      restore_two<true, true>(p, buffers, b, left, right, out.row);
    } else if (plain) {
      restore_two<false, true>(p, buffers, b, left, right, out.row);
    } else if (whole) {
      restore_two<true, false>(p, buffers, b, left, right, out.row);
    } else {
      restore_two<false, false>(p, buffers, b, left, right, out.row);
    }
  }
}

}  // namespace tuckfold::dct_quant::HWY_NAMESPACE
HWY_POP_ATTRIBUTES
#undef TUCKFOLD_VBMI
#undef TUCKFOLD_VBMI_ATTR
#endif  // TUCKFOLD_DCT_QUANT_WIDE

#endif  // include guard
