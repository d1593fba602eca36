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

#include "codec/dct_quant/dct_quant_wide_cpu-inl.h"

#if TUCKFOLD_DCT_QUANT_WIDE
#define TUCKFOLD_VBMI HWY_TARGET_STR ",avx512vbmi"
#define TUCKFOLD_VBMI_ATTR __attribute__((target(TUCKFOLD_VBMI)))
HWY_PUSH_ATTRIBUTES(TUCKFOLD_VBMI)
namespace tuckfold::dct_quant::HWY_NAMESPACE {

inline bool can_unpack_wide() { return __builtin_cpu_supports("avx512vbmi") != 0; }

struct alignas(64) UnpackBuffers {
  std::uint8_t bytes[kBatchBlocks * kMaxWideBytes + 64];  // a copy that may be read beyond its end
  std::uint8_t given[kBatchBlocks][16], width[kBatchBlocks][16];
  std::uint8_t begin[kBatchBlocks][16], end[kBatchBlocks][16];  // of a tile's bytes, in the block
  std::uint16_t odd[kBatchBlocks];  // bit i: tile kTileAt[i] has an odd width
  std::uint64_t low_bits[kBatchBlocks];
  std::uint64_t
      header[kBatchBlocks];          // above its fields the first coefficient's bits from the tail
  std::uint32_t code[kBatchBlocks];  // what the first tile's bytes begin with
  std::uint16_t first_width[kBatchBlocks], first_given[kBatchBlocks];  // in the lower byte
  float first[kBatchBlocks];                                           // the first coefficient
  std::uint32_t step[kBatchBlocks];
};

// In each 16 bytes the sums of all up to a place, which must be below 256.
HWY_INLINE __m512i running_sums(__m512i v) {
  const __m512i sums = _mm512_mullo_epi64(v, _mm512_set1_epi64(0x0101010101010101));
  const __m512i first_half = _mm512_broadcast_i32x4(_mm_set_epi64x(0x0707070707070707, -1));
  return _mm512_add_epi8(sums, _mm512_shuffle_epi8(sums, first_half));
}

// Widths and places of four blocks from `block` on. Bit i of the result: those of the i-th do not
// fit, and are taken as zero.
template <int kTiles>
HWY_INLINE unsigned read_widths(const Form& form, int block, UnpackBuffers& io) {
  const auto bytes = [](int value)
                         TUCKFOLD_VBMI_ATTR { return _mm512_set1_epi8(static_cast<char>(value)); };
  constexpr std::uint64_t kEach = 0x0001000100010001u;
  constexpr __mmask64 kCoded = ((1u << kTiles) - 1) * kEach;
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
  given = running_sums(_mm512_maskz_mov_epi8(kCoded, given));
  given = _mm512_maskz_sub_epi8(kCoded, given, _mm512_add_epi8(places, places));
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
  _mm512_store_si512(io.end[block], ends);
  _mm_storel_epi64(reinterpret_cast<__m128i*>(io.first_width + block), _mm512_cvtepi64_epi8(width));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(io.first_given + block), _mm512_cvtepi64_epi8(given));
  const __m512i by_columns =
      _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(kTileAt.data())));
  const __m512i ordered = _mm512_shuffle_epi8(width, by_columns);
  const __mmask64 odd = _mm512_test_epi8_mask(ordered, bytes(1));
  std::memcpy(io.odd + block, &odd, 8);
  return misfits;
}

// Reads the fields of one block that are stored apart from the tiles' bytes.
HWY_INLINE void read_rest(const Form& form, int block, UnpackBuffers& io) {
  const std::uint8_t* in = io.bytes + block * form.bytes;
  const std::uint8_t* at = in + io.end[block][15];
  std::uint64_t header = get64(in), tail = get64(at);
  if (form.header_bits() % 8 != 0) {
    header = header << 4 >> 4 | tail << 60;
    tail = tail >> 4 | static_cast<std::uint64_t>(at[8]) << 60;
  }
  io.header[block] = header;
  std::memcpy(io.code + block, in + form.header_bits() / 8, 4);
  io.low_bits[block] = _pdep_u64(tail, _pdep_u64(io.odd[block], kNibbles) * 15);
}

// Steps and first coefficients of 16 blocks; NaN if the header is invalid. Returns the blocks that
// may contain a NaN.
template <int kTiles>
HWY_INLINE __mmask16 read_first(const Form& form, int block, __mmask16 nothing, UnpackBuffers& io) {
  const auto ints = [](int value) TUCKFOLD_VBMI_ATTR { return _mm512_set1_epi32(value); };
  const auto joined = [](__m512i low, __m512i high) TUCKFOLD_VBMI_ATTR {
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi64_epi32(low)),
                              _mm512_cvtepi64_epi32(high), 1);
  };
  const auto low_bytes = [](const std::uint16_t* from) TUCKFOLD_VBMI_ATTR {
    return _mm512_cvtepu8_epi32(
        _mm256_cvtepi16_epi8(_mm256_load_si256(reinterpret_cast<const __m256i*>(from))));
  };
  const __m512i header[2] = {_mm512_load_si512(io.header + block),
                             _mm512_load_si512(io.header + block + 8)};
  const __m512i q = _mm512_and_si512(joined(header[0], header[1]), ints(1023));
  const int low_dc = form.header_bits() % 8;
  __m512i dc = _mm512_and_si512(joined(_mm512_srli_epi64(header[0], 12 + 2 * kTiles),
                                       _mm512_srli_epi64(header[1], 12 + 2 * kTiles)),
                                ints((1 << (form.dc - low_dc)) - 1));
  if (low_dc != 0) {
    dc = _mm512_or_si512(_mm512_slli_epi32(dc, 4), joined(_mm512_srli_epi64(header[0], 60),
                                                          _mm512_srli_epi64(header[1], 60)));
  }
  const __m512i width = low_bytes(io.first_width + block);
  const __m512i odd = _mm512_and_si512(width, ints(1));
  const __m512i even_bits = _mm512_sllv_epi32(ints(-1), _mm512_sub_epi32(width, odd));
  const __m512i low =
      joined(_mm512_load_si512(io.low_bits + block), _mm512_load_si512(io.low_bits + block + 8));
  const __m512i code = _mm512_or_si512(
      _mm512_sllv_epi32(_mm512_andnot_si512(even_bits, _mm512_load_si512(io.code + block)), odd),
      _mm512_and_si512(low, odd));
  const __m512i shift = _mm512_sub_epi32(ints(32 - form.dc), width);
  const __m512i number = _mm512_srav_epi32(
      _mm512_sllv_epi32(_mm512_or_si512(_mm512_sllv_epi32(dc, width), code), shift), shift);
  const __m512i step_bits = _mm512_slli_epi32(q, kStepShift);
  const __m512 step = _mm512_castsi512_ps(step_bits);
  const __mmask16 halved = _mm512_cmpgt_epi32_mask(width, low_bytes(io.first_given + block));
  const __mmask16 none = nothing | _mm512_cmplt_epi32_mask(q, ints(kLeastStep)) |
                         _mm512_cmpge_epi32_mask(q, ints(kNoStep));
  const __m512 first = _mm512_mul_ps(_mm512_cvtepi32_ps(number),
                                     _mm512_mask_mul_ps(step, halved, step, _mm512_set1_ps(0.5f)));
  _mm512_store_ps(io.first + block,
                  _mm512_mask_mov_ps(first, none, _mm512_set1_ps(float_of(kNanBits))));
  _mm512_store_si512(io.step + block, step_bits);
  return none | _mm512_cmpge_epi32_mask(q, ints(kHugeStep));
}

// A block's codes at the top of a word, followed by a bit for the half that is added, the sign bit
// turned; by columns of tiles: a vector has two.
HWY_INLINE void read_words(const Form& form, const UnpackBuffers& from, int block,
                           std::uint16_t* words) {
  struct alignas(64) Tables {
    std::uint8_t tile[2][64];  // of a byte
    std::uint8_t word[2][64];  // of a word, in its lower byte
    std::uint8_t next[64];     // bytes of a tile
    std::uint16_t value[32];   // the place of a value in its tile, twice
  };
  alignas(64) static constexpr Tables kTables = [] {
    Tables tables{};
    for (int i = 0; i < 64; ++i) {
      for (int h = 0; h < 2; ++h) {
        tables.tile[h][i] = kTileAt[8 * h + i / 8];
        tables.word[h][i] = i % 2 == 0 ? kTileAt[8 * h + i / 8] : 0x80;
      }
      tables.next[i] = static_cast<std::uint8_t>(i % 8);
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
  const __m512i width = four_times(from.width[block]);
  for (int h = 0; h < 2; ++h) {
    // A tile's bytes to 64 bits, its values' to 16 each.
    const __m512i at =
        _mm512_add_epi8(_mm512_shuffle_epi8(begin, load(kTables.tile[h])), load(kTables.next));
    const __m512i widths = _mm512_shuffle_epi8(width, load(kTables.word[h]));
    const __m512i even = _mm512_and_si512(widths, _mm512_set1_epi16(~1));
    const __m512i bits =
        _mm512_add_epi16(_mm512_mullo_epi16(even, load(kTables.value)), _mm512_set1_epi16(0x0800));
    const __m512i codes = _mm512_multishift_epi64_epi8(bits, _mm512_permutexvar_epi8(at, bytes));
    const __m512i top = _mm512_sllv_epi16(codes, _mm512_sub_epi16(_mm512_set1_epi16(16), even));
    const __m512i sign = _mm512_set1_epi16(-0x8000), half = _mm512_srlv_epi16(sign, widths);
    constexpr int kWithSign = 0x1e;  // sign ? ~top : top ^ half; of width 0 nothing is left
    const __m512i whole = _mm512_ternarylogic_epi32(top, half, sign, kWithSign);
    const __m512i lowest = _mm512_add_epi16(half, half);
    const auto low = static_cast<__mmask32>(from.low_bits[block] >> (32 * h));
    _mm512_store_si512(words + 32 * h, _mm512_mask_add_epi16(whole, low, whole, lowest));
  }
}

// The value of a code at the top of a word, by tiles: step * 2^(given - 16), for any width.
HWY_INLINE __m512 scale_of(const UnpackBuffers& from, int block) {
  const __m512i given =
      _mm512_cvtepu8_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(from.given[block])));
  return _mm512_castsi512_ps(
      _mm512_add_epi32(_mm512_slli_epi32(given, 23),
                       _mm512_set1_epi32(static_cast<int>(from.step[block] - (16u << 23)))));
}

// The first pass back of two blocks.
HWY_INLINE void restore_along(const UnpackBuffers& from, const std::uint16_t (*words)[64],
                              int block, float (*half)[16]) {
  const __m512 scale_a = scale_of(from, block), scale_b = scale_of(from, block + 1);
  // 2^23 and a word without sign, as bits of an f32.
  const __m512i upper = _mm512_set1_epi32(0x4b000000), lower = _mm512_set1_epi32(0xffff);
  const __m512 zero_point = _mm512_set1_ps(0x1p23f + 0x1p15f);
  V x[8], y[8];
  for (int j = 0; j < 4; ++j) {
    const __m512i two = _mm512_inserti64x4(
        _mm512_castsi256_si512(
            _mm256_load_si256(reinterpret_cast<const __m256i*>(words[0] + 16 * j))),
        _mm256_load_si256(reinterpret_cast<const __m256i*>(words[1] + 16 * j)), 1);
    const __m512 scale =
        _mm512_permutex2var_ps(scale_a, _mm512_load_si512(kTileOfLane[j].data()), scale_b);
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
      y[2 * j + i] = V{_mm512_mul_ps(z, _mm512_load_ps(kScaleOfColumn[2 * j + i].data()))};
    }
  }
  inverse_pass(DF(), y, x);
  store_squares(x, half);
}

// Stores a row of two blocks; `right` may be null.
HWY_INLINE void store_row(V value, float* left, float* right) {
  if (right == left + 8) return hn::StoreU(value, DF(), left);
  _mm256_storeu_ps(left, _mm512_castps512_ps256(value.raw));
  if (right != nullptr) _mm256_storeu_ps(right, _mm512_extractf32x8_ps(value.raw, 1));
}

// The second pass, to values. kPlain: the values need no further step.
template <bool kStream, bool kPlain>
HWY_INLINE void restore_down(const Params& p, const float (*half)[16], float* left, float* right,
                             std::int64_t row) {
  const DF d;
  V x[8], y[8];
  load_transposed(half, y);
  inverse_pass(d, y, x);
  const V shift = hn::Set(d, p.offset);
  for (int r = 0; r < 8; ++r) {
    V value = kPlain || p.offset == 0 ? x[r] : hn::Add(x[r], shift);
    if (!kPlain && p.clamp) value = V{_mm512_max_ps(_mm512_setzero_ps(), value.raw)};  // NaN stays
    if (!kPlain) value = canonical(d, value);
    if constexpr (kStream) {
      hn::Stream(value, d, left + r * row);
    } else {
      store_row(value, left + r * row, right == nullptr ? nullptr : right + r * row);
    }
  }
}

template <int kTiles>
TUCKFOLD_VBMI_ATTR HWY_NOINLINE void unpack_batch(const Params& p, bool stream,
                                                  const std::uint8_t* in, const Batch<float>& out) {
  const Form form = p.form;  // a copy: what is written might else be it
  UnpackBuffers buffers;
  // The bytes of the batch after the next, most likely.
  const int size = out.count * form.bytes;
  for (int i = 0; i < size; i += 64) __builtin_prefetch(in + 2 * size + i, 0, 2);
  std::memcpy(buffers.bytes, in, static_cast<std::size_t>(size));
  const int count = (out.count + 3) / 4 * 4;
  std::memset(buffers.bytes + size, 0, static_cast<std::size_t>((count - out.count) * form.bytes));
  unsigned misfits = 0;
  for (int b = 0; b < count; b += 4) misfits |= read_widths<kTiles>(form, b, buffers) << b;
  for (int b = 0; b < count; ++b) read_rest(form, b, buffers);
  unsigned nans = 0;
  for (int b = 0; b < count; b += 16) {
    nans |= unsigned{read_first<kTiles>(form, b, static_cast<__mmask16>(misfits >> b), buffers)}
            << b;
  }
  nans &= ~0u >> (kBatchBlocks - out.count);  // there may be fewer blocks than `count`
  // Three steps, each one block later than the one before. The results of one block depend on each
  // other in a long chain, so several blocks must be in flight.
  alignas(64) std::uint16_t words[2][2][64];
  alignas(64) float half[2][8][16];
  const bool plain = p.offset == 0 && !p.clamp && nans == 0;
  const int pairs = (out.count + 1) / 2;
  for (int i = 0; i < pairs + 2; ++i) {
    if (i < pairs) {
      read_words(form, buffers, 2 * i, words[i % 2][0]);
      read_words(form, buffers, 2 * i + 1, words[i % 2][1]);
    }
    if (i > 0 && i <= pairs) {
      restore_along(buffers, words[(i + 1) % 2], 2 * i - 2, half[(i + 1) % 2]);
    }
    if (i < 2) continue;
    const float(*done)[16] = half[i % 2];
    const int b = 2 * i - 4;
    float* left = out.at[b];
    float* right = b + 1 < out.count ? out.at[b + 1] : nullptr;
    const bool whole = stream && right == left + 8 && out.row % 16 == 0 &&
                       reinterpret_cast<std::uintptr_t>(left) % 64 == 0;
    if (whole && plain) restore_down<true, true>(p, done, left, right, out.row);
    if (whole && !plain) restore_down<true, false>(p, done, left, right, out.row);
    if (whole) continue;
    if (plain) {
      restore_down<false, true>(p, done, left, right, out.row);
    } else {
      restore_down<false, false>(p, done, left, right, out.row);
    }
  }
}

}  // namespace tuckfold::dct_quant::HWY_NAMESPACE
HWY_POP_ATTRIBUTES
#undef TUCKFOLD_VBMI
#undef TUCKFOLD_VBMI_ATTR
#endif  // TUCKFOLD_DCT_QUANT_WIDE

#endif  // include guard
