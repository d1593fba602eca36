// dct_quant's unpacking kernel of 512 bits for images of bytes. A vector has the same coefficient of
// 16 blocks, so that neither pass of the transform moves values between lanes: codes are transposed
// before, as words, and pixels after, as bytes. It needs VBMI2, as CPUs since 2019 with these
// vectors have.
#if defined(TUCKFOLD_CODEC_DCT_QUANT_BYTES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TUCKFOLD_CODEC_DCT_QUANT_BYTES_INL_H
#undef TUCKFOLD_CODEC_DCT_QUANT_BYTES_INL_H
#else
#define TUCKFOLD_CODEC_DCT_QUANT_BYTES_INL_H
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "codec/dct_quant/dct_quant_unpack_cpu-inl.h"

#if TUCKFOLD_DCT_QUANT_WIDE
#define TUCKFOLD_VBMI2 HWY_TARGET_STR ",avx512vbmi,avx512vbmi2"
#define TUCKFOLD_VBMI2_ATTR __attribute__((target(TUCKFOLD_VBMI2)))
HWY_PUSH_ATTRIBUTES(TUCKFOLD_VBMI2)
namespace tuckfold::dct_quant::HWY_NAMESPACE {

inline bool can_unpack_bytes() {
  return can_unpack_wide() && __builtin_cpu_supports("avx512vbmi2") != 0;
}

constexpr int kTogether = 16;     // blocks
constexpr int kReadBeyond = 128;  // bytes after the last of them that may be read
constexpr int kFourBytes = 32;    // four blocks of so many bytes are looked up at once, else two

// Block 4 g + i is lane 4 i + g: four blocks side by side, which `g` counts, have 128 bits each
// while their codes are read.
constexpr int lane_of_block(int block) { return block % 4 * 4 + block / 4; }

struct alignas(64) BytesBuffers {
  float scale[16][16];  // of tiles, by rows
  // Of four blocks each: where a tile's bytes begin, and its width without the lowest bit, plus kOdd
  // if that is set.
  std::uint8_t begin[4][64], width[4][64];
  static constexpr int kOdd = 64;
  // Of four blocks and two tiles side by side, bit 8 i + 4 j + t: the first bits after those that an
  // even width has of its values. The lowest bits of an odd width, else ones.
  std::uint32_t masks[4][8];
  // Of the first coefficients, by lanes: bits beyond the tile's width, that width, and the step;
  // NaN if a header is invalid, so that all of the block is.
  std::uint32_t dc[16], first_width[16];
  float first_step[16];
  std::uint64_t all_odd;  // not zero: there is a block of which all widths are odd
  alignas(64) std::uint16_t codes[8][4][32];  // by rows of two tiles
  float half[64][16];                         // after the first pass; then columns of pixels
};

// Where the pixels of 16 blocks, or fewer, are stored: rows of eight, `row` apart.
struct PixelPlaces {
  std::uint8_t* at[kTogether];
  std::int64_t row;
  int count;
  bool fours;  // blocks are side by side in fours, and only the places of their first are given
};

// 4 x 4 values of 32 bits in each 128.
HWY_INLINE void transpose_fours(__m512i* v) {
  const __m512i a = _mm512_unpacklo_epi32(v[0], v[1]), b = _mm512_unpackhi_epi32(v[0], v[1]);
  const __m512i c = _mm512_unpacklo_epi32(v[2], v[3]), d = _mm512_unpackhi_epi32(v[2], v[3]);
  v[0] = _mm512_unpacklo_epi64(a, c);
  v[1] = _mm512_unpackhi_epi64(a, c);
  v[2] = _mm512_unpacklo_epi64(b, d);
  v[3] = _mm512_unpackhi_epi64(b, d);
}

// What all batches of a form share, by lanes: to make a vector of a register's bytes takes as long as
// to permute one, to load it nothing.
struct alignas(64) BytesForm {
  // From the first byte that is looked up: each block's header, twice, its first tile, and eight bytes
  // of a tail, less where the tiles' bytes end in the block.
  std::uint8_t header[64], tile[64], tail[64];
  std::uint64_t nibbles[8];
  std::uint8_t most_width[64];
  std::uint8_t before_odd[64];  // the first coefficient's bits in the tail, less a nibble
  std::int32_t high_dc;         // a mask of the first coefficient's other bits
  std::int32_t most_step;       // pixels of steps below it are below 2^31
  Form form;
  float offset;

  explicit BytesForm(const Params& p) : form(p.form), offset(p.offset) {
    high_dc = (1 << (form.dc - form.header_bits() % 8)) - 1;
    // A code has 14 bits, the first one dc more, so that a pixel is below 2^18 steps, or 2^(12 + dc).
    most_step = 4 * (127 + 31 - std::max(18, 12 + form.dc));
    const int third = form.bytes <= kFourBytes ? 2 * form.bytes : 0;
    const int first_tile = form.header_bits() / 8;
    for (int i = 0; i < 64; ++i) {
      const int block = i / 32 * third + i / 16 % 2 * form.bytes;
      header[i] = static_cast<std::uint8_t>(block + i % 8);
      tile[i] = static_cast<std::uint8_t>(block + first_tile);
      tail[i] = static_cast<std::uint8_t>(block + first_tile + i % 8);
      most_width[i] = static_cast<std::uint8_t>(form.max_width);
      before_odd[i] = static_cast<std::uint8_t>(form.header_bits() % 8 - 4);
    }
    for (std::uint64_t& each : nibbles) each = static_cast<std::uint64_t>(form.nibbles);
  }
};

// The bytes of four blocks that `at` counts from the first, or of the second two from the third.
template <bool kFour>
HWY_INLINE __m512i look_up(const std::uint8_t* in, int block_bytes, __m512i at) {
  const __m512i found =
      _mm512_permutex2var_epi8(_mm512_loadu_si512(in), at, _mm512_loadu_si512(in + 64));
  if (kFour) return found;
  in += 2 * block_bytes;
  return _mm512_mask_mov_epi64(
      found, 0xf0,
      _mm512_permutex2var_epi8(_mm512_loadu_si512(in), at, _mm512_loadu_si512(in + 64)));
}

// Where all widths of a block are odd the last tile's nibble may be beyond 64 bits of the tail.
HWY_NOINLINE void read_last_nibbles(const Form& form, const std::uint8_t* in, BytesBuffers& io) {
  for (int b = 0; b < kTogether; ++b, in += form.bytes) {
    int end = form.header_bits() / 8, odd = 0;
    for (int k = 0; k < 16; ++k) {
      const int width = io.width[b / 4][16 * (b % 4) + k];
      end += width % 16 / 2;
      odd += width / BytesBuffers::kOdd;
    }
    if (odd < 16) continue;
    std::uint32_t& mask = io.masks[b / 4][7];
    const int at = 8 * (b % 4) + 4;
    mask = (mask & ~(15u << at)) | (in[end + 8] & 15u) << at;
  }
}

// Reads the headers of 16 blocks: scales, first coefficients, and what read_codes needs. Returns
// whether all pixels are below 2^31. Each step is done for all blocks before the next: the results of
// one block depend on each other in a long chain.
template <int kTiles, bool kFour>
HWY_INLINE bool read_headers(const BytesForm& shared, const std::uint8_t* in, BytesBuffers& io) {
  constexpr std::uint64_t kOnes = 0x0101010101010101;
  struct alignas(64) Tables {
    std::uint8_t field[64];    // the bits that a header's fields begin with
    std::uint8_t mask[64];     // of the fields; 0 of tiles that are not coded
    std::uint8_t place[64];    // of a tile
    std::uint8_t doubled[64];  // the same twice; 0 of tiles that are not coded
    std::uint8_t columns[64];  // tiles by columns
    std::uint8_t half[64];     // of running sums: the last of the first half, for the second
    std::uint8_t last[64];     // of running sums: the last
    std::uint8_t pairs[64];    // of nibbles by columns, two side by side in a byte: by masks
    float powers[16];          // 2^(i - 32), of 0 none
    // In every byte the same.
    std::uint64_t one = kOnes, four = 4 * kOnes, low_seven = 127 * kOnes, fifteen = 15 * kOnes;
    std::uint64_t none = ~std::uint64_t{0}, all_odd = 64 * kOnes;
    std::uint64_t odd = BytesBuffers::kOdd * kOnes, width = (BytesBuffers::kOdd | 14) * kOnes;
    std::int32_t low_ten = 1023, low_eight = 255, low_four = 15, least_step = kLeastStep;
    std::int32_t no_step = kNoStep;
  };
  alignas(64) static constexpr Tables kTables = [] {
    Tables tables{};
    for (int i = 0; i < 64; ++i) {
      const int k = i % 16;
      tables.field[i] = static_cast<std::uint8_t>(k == 0 ? 10 : 12 + 2 * k);
      tables.mask[i] = k >= kTiles ? 0 : k == 0 ? 15 : 3;
      tables.place[i] = static_cast<std::uint8_t>(k);
      tables.doubled[i] = static_cast<std::uint8_t>(k >= kTiles ? 0 : 2 * k);
      tables.columns[i] = kTileAt[k];
      tables.half[i] = k < 8 ? 0x80 : 7;
      tables.last[i] = 15;
      tables.pairs[i] = static_cast<std::uint8_t>(i % 4 * 16 + i / 4 % 2 * 8 + i / 8 % 4);
    }
    for (int i = 1; i < 16; ++i) tables.powers[i] = 0x1p-32f * static_cast<float>(1 << i);
    return tables;
  }();
  const Tables* tables = &kTables;
  asm("" : "+r"(tables));  // or a compiler makes vectors of registers' bytes
  const Form& form = shared.form;
  const auto load = [](const void* table) TUCKFOLD_VBMI2_ATTR { return _mm512_load_si512(table); };
  const auto each = [](const std::uint64_t& bytes) TUCKFOLD_VBMI2_ATTR {
    return _mm512_set1_epi64(static_cast<std::int64_t>(bytes));
  };
  const auto ints = [](const std::int32_t& value)
                        TUCKFOLD_VBMI2_ATTR { return _mm512_set1_epi32(value); };
  // In each 16 bytes the sums of all up to a place, which must be below 256, times `one`.
  const auto running = [&](__m512i v, __m512i one) TUCKFOLD_VBMI2_ATTR {
    const __m512i sums = _mm512_mullo_epi64(v, one);
    return _mm512_add_epi8(sums, _mm512_shuffle_epi8(sums, load(tables->half)));
  };
  constexpr __mmask64 kCoded = ((1u << kTiles) - 1) * 0x0001000100010001u;
  constexpr int kSelect = 0xca;  // first ? second : third
  const int bytes = form.bytes;
  __m512i bits[4], given[4], sum[4], widths[4];
  __mmask64 wide[4];
  __mmask8 many[4];
  unsigned misfits = 0;
  HWY_UNROLL(4)
  for (int g = 0; g < 4; ++g) {
    bits[g] = look_up<kFour>(in + 4 * g * bytes, bytes, load(shared.header));
  }
  HWY_UNROLL(4)
  for (int g = 0; g < 4; ++g) {
    const __m512i fields = _mm512_and_si512(
        _mm512_multishift_epi64_epi8(load(tables->field), bits[g]), load(tables->mask));
    given[g] =
        _mm512_maskz_sub_epi8(kCoded, running(fields, each(tables->one)), load(tables->doubled));
  }
  HWY_UNROLL(4)
  for (int g = 0; g < 4; ++g) {  // both halves' sums, in both halves
    const __m512i halves = _mm512_sad_epu8(given[g], _mm512_setzero_si512());
    sum[g] = _mm512_add_epi64(halves, _mm512_shuffle_epi32(halves, _MM_PERM_BADC));
  }
  HWY_UNROLL(4)
  for (int g = 0; g < 4; ++g) {  // what they leave over is given to the first tiles
    const __m512i left =
        _mm512_shuffle_epi8(_mm512_sub_epi64(load(shared.nibbles), sum[g]), _mm512_setzero_si512());
    const __mmask64 more = _mm512_mask_cmpgt_epi8_mask(_mm512_test_epi8_mask(given[g], given[g]),
                                                       left, load(tables->place));
    widths[g] = _mm512_mask_sub_epi8(given[g], more, given[g], each(tables->none));
    wide[g] = _mm512_cmpgt_epu8_mask(given[g], load(shared.most_width));
    many[g] = _mm512_cmpgt_epi64_mask(sum[g], load(shared.nibbles));
  }
  if (HWY_UNLIKELY((wide[0] | wide[1] | wide[2] | wide[3] | many[0] | many[1] | many[2] |
                    many[3]) != 0)) {  // widths that do not fit are taken as zero
    for (int b = 0; b < kTogether; ++b) {
      const int g = b / 4, i = b % 4;
      if ((wide[g] >> (16 * i) & 0xffff) == 0 && (many[g] >> (2 * i) & 1) == 0) continue;
      const __mmask64 others = ~(__mmask64{0xffff} << (16 * i));
      widths[g] = _mm512_maskz_mov_epi8(others, widths[g]);
      given[g] = _mm512_maskz_mov_epi8(others, given[g]);
      misfits |= 1u << lane_of_block(b);
    }
  }
  __m512i tails[4], odd[4], behind[4];  // of tails their first bits, twice
  const int low_dc = form.header_bits() % 8;
  __mmask64 all_odd = 0;
  HWY_UNROLL(4)
  for (int g = 0; g < 4; ++g) {
    const __m512i pairs =
        _mm512_and_si512(_mm512_srli_epi16(widths[g], 1), each(tables->low_seven));
    const __m512i ends = running(pairs, each(tables->one));
    _mm512_store_si512(io.begin[g],
                       _mm512_add_epi8(_mm512_sub_epi8(ends, pairs), load(shared.tile)));
    const __m512i at =
        _mm512_add_epi8(_mm512_shuffle_epi8(ends, load(tables->last)), load(shared.tail));
    tails[g] = look_up<kFour>(in + 4 * g * bytes, bytes, at);
  }
  HWY_UNROLL(4)
  for (int g = 0; g < 4; ++g) {
    const __m512i marked = _mm512_ternarylogic_epi64(
        each(tables->odd), _mm512_slli_epi16(widths[g], 6), widths[g], kSelect);
    _mm512_store_si512(io.width[g], _mm512_and_si512(marked, each(tables->width)));
    // The lowest bits of odd widths: a nibble for each such tile, by columns, in the order of bits.
    odd[g] =
        _mm512_and_si512(_mm512_shuffle_epi8(widths[g], load(tables->columns)), each(tables->one));
    behind[g] = running(odd[g], each(tables->four));
    all_odd |= _mm512_cmpeq_epi8_mask(behind[g], each(tables->all_odd));
  }
  HWY_UNROLL(4)
  for (int g = 0; g < 4; ++g) {
    __m512i nibbles =
        _mm512_multishift_epi64_epi8(_mm512_add_epi8(behind[g], load(shared.before_odd)), tails[g]);
    nibbles = _mm512_or_si512(nibbles, _mm512_add_epi8(odd[g], each(tables->none)));
    const __m512i two = _mm512_ternarylogic_epi64(each(tables->fifteen), nibbles,
                                                  _mm512_srli_epi64(nibbles, 28), kSelect);
    _mm256_store_si256(reinterpret_cast<__m256i*>(io.masks[g]),
                       _mm512_castsi512_si256(_mm512_permutexvar_epi8(load(tables->pairs), two)));
  }
  io.all_odd = all_odd;
  // By lanes: the lower and the upper half of the headers.
  transpose_fours(bits);
  const __m512i q = _mm512_and_si512(bits[0], ints(tables->low_ten));
  constexpr int kDc = 12 + 2 * kTiles;  // where the first coefficient's bits begin
  const __m512i dc = kDc < 32 ? _mm512_shrdi_epi32(bits[0], bits[1], kDc % 32)
                              : _mm512_srli_epi32(bits[1], kDc % 32);
  const __m512i high_dc = _mm512_and_si512(dc, ints(shared.high_dc));
  if (low_dc == 0) {
    _mm512_store_si512(io.dc, high_dc);
  } else {
    const __m512i low = _mm512_unpacklo_epi64(_mm512_unpacklo_epi32(tails[0], tails[1]),
                                              _mm512_unpacklo_epi32(tails[2], tails[3]));
    _mm512_store_si512(io.dc, _mm512_or_si512(_mm512_slli_epi32(high_dc, 4),
                                              _mm512_and_si512(low, ints(tables->low_four))));
  }
  // The value of a code at the top of 32 bits: step * 2^(given - 32); of a tile without bits, 0.
  const __m512 step = _mm512_castsi512_ps(_mm512_slli_epi32(q, kStepShift));
  const __m512 powers = _mm512_load_ps(tables->powers);
  transpose_fours(given);
  for (int k = 0; k < 16; ++k) {
    const __m512i width = _mm512_srli_epi32(given[k / 4], static_cast<unsigned>(k % 4 * 8));
    _mm512_store_ps(io.scale[4 * kTileRow[k] + kTileCol[k]],
                    _mm512_mul_ps(step, _mm512_permutexvar_ps(width, powers)));
  }
  transpose_fours(widths);
  const __m512i width = _mm512_and_si512(widths[0], ints(tables->low_eight));
  const __mmask16 halved =
      _mm512_cmpgt_epi32_mask(width, _mm512_and_si512(given[0], ints(tables->low_eight)));
  _mm512_store_si512(io.first_width, width);
  const __mmask16 none = static_cast<__mmask16>(misfits) |
                         _mm512_cmplt_epi32_mask(q, ints(tables->least_step)) |
                         _mm512_cmpge_epi32_mask(q, ints(tables->no_step));
  const __m512 first_step = _mm512_mask_mul_ps(step, halved, step, _mm512_set1_ps(0.5f));
  _mm512_store_ps(io.first_step,
                  _mm512_mask_mov_ps(first_step, none, _mm512_set1_ps(float_of(kNanBits))));
  return _mm512_cmpge_epi32_mask(q, ints(shared.most_step)) == 0;
}

// Codes of 16 blocks, two tiles side by side in a vector, which has 128 bits of each of four blocks:
// at the top of a word, followed by a bit for the half that is added. kFour: bytes of four blocks
// are looked up at once, else of two.
template <bool kFour>
TUCKFOLD_VBMI2_ATTR HWY_NOINLINE void read_codes(int block_bytes, const std::uint8_t* in,
                                                 BytesBuffers& io) {
  struct alignas(64) Tables {
    std::uint8_t tile[8][64];  // of a byte
    std::uint8_t next[64];     // bytes of a tile
    // Of a width without its lowest bit: where the bits of a tile's values begin, and eight further.
    std::uint8_t places[16][8];
  };
  alignas(64) static constexpr Tables kTables = [] {
    Tables tables{};
    for (int i = 0; i < 64; ++i) {
      for (int h = 0; h < 8; ++h) tables.tile[h][i] = kTileAt[(h % 2 * 2 + i % 16 / 8) * 4 + h / 2];
      tables.next[i] = static_cast<std::uint8_t>(i % 8);
    }
    for (int width = 0; width < 16; ++width) {
      for (int i = 0; i < 8; ++i) {
        tables.places[width][i] = static_cast<std::uint8_t>(i / 2 * width + i % 2 * 8);
      }
    }
    return tables;
  }();
  const __m512i next = _mm512_load_si512(kTables.next);
  const __m512i places_of[2] = {_mm512_load_si512(kTables.places[0]),
                                _mm512_load_si512(kTables.places[8])};
  const __m512i first = _mm512_set1_epi16(-0x8000), second = _mm512_set1_epi16(0x4000);
  HWY_UNROLL(1)
  for (int g = 0; g < 4; ++g, in += 4 * block_bytes) {
    const __m512i begin = _mm512_load_si512(io.begin[g]), widths = _mm512_load_si512(io.width[g]);
    const __m512i bytes[2] = {_mm512_loadu_si512(in), _mm512_loadu_si512(in + 64)};
    const std::uint8_t* others = in + 2 * block_bytes;
    for (int h = 0; h < 8; ++h) {
      // A tile's bytes to 64 bits, its values' to 16 each.
      const __m512i tile = _mm512_load_si512(kTables.tile[h]);
      const __m512i at = _mm512_add_epi8(_mm512_shuffle_epi8(begin, tile), next);
      __m512i tiles = _mm512_permutex2var_epi8(bytes[0], at, bytes[1]);
      if (!kFour) {
        tiles = _mm512_mask_mov_epi64(tiles, 0xf0,
                                      _mm512_permutex2var_epi8(_mm512_loadu_si512(others), at,
                                                               _mm512_loadu_si512(others + 64)));
      }
      // Twice in a word. Of a number in a table, and of a shift, four bits count.
      const __m512i width = _mm512_shuffle_epi8(widths, tile);
      const __m512i places = _mm512_permutex2var_epi64(places_of[0], width, places_of[1]);
      const __m512i codes = _mm512_multishift_epi64_epi8(places, tiles);
      // A one, or the lowest bit and a one.
      __m512i below = _mm512_and_si512(width, second);
      below = _mm512_mask_add_epi16(below, io.masks[g][h], below, first);
      _mm512_store_si512(io.codes[h][g], _mm512_shrdv_epi16(below, codes, width));
    }
  }
}

// The first coefficients of 16 blocks, by lanes, whose codes are in the lower halves of `words`.
HWY_INLINE __m512 read_first(const Form& form, const BytesBuffers& from, __m512i words) {
  const __m512i dc = _mm512_load_si512(from.dc);
  const __m512i width = _mm512_load_si512(from.first_width);
  const __m512i code = _mm512_srlv_epi32(_mm512_slli_epi32(words, 16),
                                         _mm512_sub_epi32(_mm512_set1_epi32(32), width));
  const __m512i shift = _mm512_sub_epi32(_mm512_set1_epi32(32 - form.dc), width);
  const __m512i number = _mm512_srav_epi32(
      _mm512_sllv_epi32(_mm512_or_si512(_mm512_sllv_epi32(dc, width), code), shift), shift);
  return _mm512_mul_ps(_mm512_cvtepi32_ps(number), _mm512_load_ps(from.first_step));
}

// The first pass back of 16 blocks. While a row is transformed the coefficients of the next are
// made, so that an operation seldom waits for the one before it.
TUCKFOLD_VBMI2_ATTR HWY_NOINLINE void restore_rows(const Form& form, BytesBuffers& io) {
  const __m512i upper = _mm512_set1_epi32(-0x10000);
  __m512i words[2][4];  // of a row of tiles; two coefficients each, side by side in the block
  const auto load_words = [&](int r) TUCKFOLD_VBMI2_ATTR {
    for (int c = 0; c < 2; ++c) {
      for (int g = 0; g < 4; ++g) words[c][g] = _mm512_load_si512(io.codes[2 * r + c][g]);
      transpose_fours(words[c]);
    }
  };
  const float* scales = kScale.data();
  // Two coefficients of a row.
  const auto two_of = [&](int row, int c, V* y) TUCKFOLD_VBMI2_ATTR {
    const __m512 scale = _mm512_load_ps(io.scale[row / 2 * 4 + c]);
    const __m512i two = words[c / 2][c % 2 * 2 + row % 2];
    const __m512i numbers[2] = {_mm512_slli_epi32(two, 16), _mm512_and_si512(two, upper)};
    for (int k = 0; k < 2; ++k) {
      const int v = 2 * c + k;
      const __m512 z = _mm512_mul_ps(_mm512_cvtepi32_ps(numbers[k]), scale);
      y[v] = V{_mm512_mul_ps(z, _mm512_set1_ps(scales[row * 8 + v]))};
    }
  };
  V y[8], next[8];
  load_words(0);
  for (int c = 0; c < 4; ++c) two_of(0, c, y);
  y[0] = V{_mm512_mul_ps(read_first(form, io, words[0][0]), _mm512_set1_ps(scales[0]))};
  HWY_UNROLL(8)
  for (int row = 0; row < 8; ++row) {
    const float* factors = dct_chop::kOdd[0].data();
    asm("" : "+r"(factors));  // loaded again for each row: there are not as many registers
    const auto factor = [&](int u, int j) HWY_ATTR { return hn::Set(DF(), factors[4 * u + j]); };
    if (row % 2 == 1 && row < 7) load_words(row / 2 + 1);
    V even[4];
    even_parts(hn::Set(DF(), dct_chop::kRatio), y, even);
    for (int j = 0; j < 4; ++j) {
      const V odd = odd_part(factor, y, j);
      hn::Store(hn::Add(even[j], odd), DF(), io.half[row * 8 + j]);
      hn::Store(hn::Sub(even[j], odd), DF(), io.half[row * 8 + 7 - j]);
      if (row < 7) two_of(row + 1, j, next);
    }
    for (int v = 0; v < 8; ++v) y[v] = next[v];
  }
}

// A column of pixels, as whole numbers, of NaN the least one. kSmall: they are known to be below
// 2^31, and to need no further step.
template <bool kSmall>
HWY_INLINE void restore_column(float offset, const Factors<V>& factors, const BytesBuffers& from,
                               int j, __m512i* out) {
  V y[8], x[8];
  for (int u = 0; u < 8; ++u) y[u] = hn::Load(DF(), from.half[8 * u + j]);
  inverse_pass<true>(factors, y, x);
  for (int r = 0; r < 8; ++r) {
    __m512 value = x[r].raw;
    if (!kSmall) {
      if (offset != 0) value = _mm512_add_ps(value, _mm512_set1_ps(offset));
      value = _mm512_min_ps(_mm512_set1_ps(0x1p30f), value);  // NaN stays
    }
    out[r] = _mm512_cvtps_epi32(value);
  }
}

// The second pass, to columns two by two, in the place of the first of them.
template <bool kSmall>
TUCKFOLD_VBMI2_ATTR HWY_NOINLINE void restore_columns(float offset, BytesBuffers& io) {
  Factors<V> factors = factors_of(DF());
  asm("" : "+v"(factors.one.raw));  // or a compiler sees that sums would do
  HWY_UNROLL(1)
  for (int k = 0; k < 4; ++k) {
    __m512i left[8], right[8];
    restore_column<kSmall>(offset, factors, io, 2 * k, left);
    restore_column<kSmall>(offset, factors, io, 2 * k + 1, right);
    for (int r = 0; r < 8; ++r) {
      _mm512_store_si512(io.half[8 * r + 2 * k], _mm512_packs_epi32(left[r], right[r]));
    }
  }
}

// Stores the pixels of 16 blocks, or what is there of them, negative ones as 0.
HWY_INLINE void store_pixels(const BytesBuffers& from, const PixelPlaces& out) {
  // From a vector of columns 0 to 3 and one of 4 to 7, which have 128 bits of blocks 4 g + i, to
  // rows of eight blocks.
  alignas(64) static constexpr auto kOrder = [] {
    std::array<std::array<std::uint8_t, 64>, 2> table{};
    for (int at = 0; at < 128; ++at) {
      const int g = at / 32, i = at % 32 / 8, j = at % 8;
      table[at / 64][at % 64] = static_cast<std::uint8_t>(j / 4 * 64 + 16 * i + j % 4 * 4 + g);
    }
    return table;
  }();
  const __m512i orders[2] = {_mm512_load_si512(kOrder[0].data()),
                             _mm512_load_si512(kOrder[1].data())};
  const bool fours = out.fours;
  const std::int64_t step = out.row;
  std::uint8_t* rows[4] = {};
  for (int g = 0; g < 4 && fours; ++g) rows[g] = out.at[4 * g];
  HWY_UNROLL(8)
  for (int r = 0; r < 8; ++r) {
    __m512i half[2];
    for (int k = 0; k < 2; ++k) {
      half[k] = _mm512_packus_epi16(_mm512_load_si512(from.half[8 * r + 4 * k]),
                                    _mm512_load_si512(from.half[8 * r + 4 * k + 2]));
    }
    const __m512i pixels[2] = {_mm512_permutex2var_epi8(half[0], orders[0], half[1]),
                               _mm512_permutex2var_epi8(half[0], orders[1], half[1])};
    if (HWY_LIKELY(fours)) {
      for (int g = 0; g < 4; ++g, rows[g - 1] += step) {
        const __m256i four = g % 2 == 0 ? _mm512_castsi512_si256(pixels[g / 2])
                                        : _mm512_extracti64x4_epi64(pixels[g / 2], 1);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(rows[g]), four);
      }
      continue;
    }
    alignas(64) std::uint8_t blocks[kTogether][8];
    _mm512_store_si512(blocks[0], pixels[0]);
    _mm512_store_si512(blocks[8], pixels[1]);
    for (int b = 0; b < out.count; ++b) std::memcpy(out.at[b] + r * step, blocks[b], 8);
  }
}

// A batch of 16 blocks or fewer. kReadBeyond bytes after it are read, and those of missing blocks.
template <int kTiles>
TUCKFOLD_VBMI2_ATTR HWY_NOINLINE void unpack_bytes(const BytesForm& shared, const std::uint8_t* in,
                                                   const PixelPlaces& out) {
  const Form form = shared.form;  // a copy: what is written might else be it
  BytesBuffers io;
  const bool four = form.bytes <= kFourBytes;
  const bool small = four ? read_headers<kTiles, true>(shared, in, io)
                          : read_headers<kTiles, false>(shared, in, io);
  if (HWY_UNLIKELY(io.all_odd != 0) && form.header_bits() % 8 != 0) read_last_nibbles(form, in, io);
  if (four) {
    read_codes<true>(form.bytes, in, io);
  } else {
    read_codes<false>(form.bytes, in, io);
  }
  restore_rows(form, io);
  if (small && shared.offset == 0) {
    restore_columns<true>(0, io);
  } else {
    restore_columns<false>(shared.offset, io);
  }
  store_pixels(io, out);
}

}  // namespace tuckfold::dct_quant::HWY_NAMESPACE
HWY_POP_ATTRIBUTES
#undef TUCKFOLD_VBMI2
#undef TUCKFOLD_VBMI2_ATTR
#endif  // TUCKFOLD_DCT_QUANT_WIDE

#endif  // include guard
