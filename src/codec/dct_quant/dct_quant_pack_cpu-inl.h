// dct_quant's packing kernel of 512 bits. Blocks are taken 32 at a time: two at a time are
// transformed; then all 32 search for their steps, one in each lane; then each block's codes are
// squeezed into bytes, four at a time, by pext.
#if defined(TUCKFOLD_CODEC_DCT_QUANT_PACK_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TUCKFOLD_CODEC_DCT_QUANT_PACK_INL_H
#undef TUCKFOLD_CODEC_DCT_QUANT_PACK_INL_H
#else
#define TUCKFOLD_CODEC_DCT_QUANT_PACK_INL_H
#endif

#include <hwy/highway.h>

#include <array>
#include <cstdint>
#include <cstring>

#include "codec/dct_quant/dct_quant_wide_cpu-inl.h"

#if TUCKFOLD_DCT_QUANT_WIDE
HWY_BEFORE_NAMESPACE();
namespace tuckfold::dct_quant::HWY_NAMESPACE {

constexpr __mmask16 kFirstLanes = 0x0101;  // of the first coefficients

// Codes of two columns share 32 bits; so a tile's four are 64 bits in the order that they are
// stored in.
constexpr int tile_offset(int k) { return kTileCol[k] * 64 + kTileRow[k] * 8; }

// The results of the first steps for each two blocks of a batch; or by lane, see lane_of.
struct alignas(64) PackBuffers {
  float z[kBatchBlocks / 2][8][16];              // coefficients by columns
  std::uint16_t levels[kBatchBlocks / 2][32];    // of tiles
  std::uint8_t codes[kBatchBlocks / 2][4 * 64];  // see tile_offset
  std::int32_t first[kBatchBlocks / 2][16];      // codes of the first column
  std::uint64_t lowest[kBatchBlocks];            // bits of codes, in the order of the tail
  float first_value[kBatchBlocks];               // coefficients; by lane from here on
  // Two tiles each, k and k + tiles / 2; where their bytes begin, and last the tail.
  std::uint8_t width[8][kBatchBlocks][2];
  std::uint8_t begin[9][kBatchBlocks][2];
  std::uint64_t header[kBatchBlocks];
  std::uint16_t odd[kBatchBlocks];     // bit i: tile kTileAt[i] has an odd width
  std::uint16_t halved[kBatchBlocks];  // bit k: tile k has half the step
  float inverse[kBatchBlocks];
};

// The lane that a block has in the search: what transposing makes of it.
constexpr int lane_of(int block) { return block / 16 * 16 + block % 2 * 8 + block % 16 / 2; }

// The first pass on two blocks.
template <bool kOffset>
HWY_INLINE void transform_down(const float* left, const float* right, std::int64_t row,
                               float offset, float (*half)[16]) {
  const DF d;
  V x[8], y[8];
  const V shift = hn::Set(d, offset);
  for (int r = 0; r < 8; ++r) {
    const __m512 both =
        right == left + 8
            ? _mm512_loadu_ps(left + r * row)
            : _mm512_insertf32x8(_mm512_castps256_ps512(_mm256_loadu_ps(left + r * row)),
                                 _mm256_loadu_ps(right + r * row), 1);
    x[r] = kOffset ? hn::Sub(V{both}, shift) : V{both};
  }
  forward_pass(d, x, y);
  store_squares(y, half);
}

// The second pass: coefficients, in place, and levels.
HWY_INLINE void transform_along(int block, PackBuffers& io) {
  const DF d;
  float(*z)[16] = io.z[block / 2];
  V x[8], y[8];
  load_transposed(z, x);
  forward_pass(d, x, y);
  __m512i magnitude[8];
  for (int v = 0; v < 8; ++v) {
    y[v] = hn::Mul(y[v], hn::Load(d, kScaleOfColumn[v].data()));
    hn::Store(y[v], d, z[v]);
    magnitude[v] = _mm512_and_si512(_mm512_castps_si512(y[v].raw), _mm512_set1_epi32(0x7fffffff));
  }
  _mm_store_ss(io.first_value + lane_of(block), _mm512_castps512_ps128(y[0].raw));
  _mm_store_ss(io.first_value + lane_of(block + 1), _mm512_extractf32x4_ps(y[0].raw, 2));
  // The largest of each tile: of two columns, then of two lanes; the first coefficient apart.
  magnitude[0] = _mm512_maskz_mov_epi32(static_cast<__mmask16>(~kFirstLanes), magnitude[0]);
  __m512i tile[4];
  for (int j = 0; j < 4; ++j) {
    const __m512i two = _mm512_max_epu32(magnitude[2 * j], magnitude[2 * j + 1]);
    const __m512i four = _mm512_max_epu32(two, _mm512_shuffle_epi32(two, _MM_PERM_CDAB));
    tile[j] = _mm512_srli_epi32(_mm512_add_epi32(four, _mm512_set1_epi32(1)), kStepShift);
  }
  const __m512i low = _mm512_mask_mov_epi32(tile[0], 0xAAAA, tile[2]);
  const __m512i high = _mm512_mask_mov_epi32(tile[1], 0xAAAA, tile[3]);
  _mm512_store_si512(io.levels[block / 2], _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
}

// levels[pair] has block 0's tiles by rows, then block 1's. Tile t of all blocks goes to
// by_tile[t].
HWY_INLINE void transpose_levels(const PackBuffers& from, __m512i* by_tile) {
  __m512i groups[2][8];
  for (int g = 0; g < 2; ++g) {
    __m512i a[8], b[8];
    for (int i = 0; i < 8; ++i) a[i] = _mm512_load_si512(from.levels[g * 8 + i]);
    for (int i = 0; i < 4; ++i) {
      b[2 * i] = _mm512_unpacklo_epi16(a[2 * i], a[2 * i + 1]);
      b[2 * i + 1] = _mm512_unpackhi_epi16(a[2 * i], a[2 * i + 1]);
    }
    for (int h = 0; h < 2; ++h) {
      for (int i = 0; i < 2; ++i) {
        a[4 * h + 2 * i] = _mm512_unpacklo_epi32(b[4 * h + i], b[4 * h + 2 + i]);
        a[4 * h + 2 * i + 1] = _mm512_unpackhi_epi32(b[4 * h + i], b[4 * h + 2 + i]);
      }
    }
    for (int i = 0; i < 4; ++i) {
      groups[g][2 * i] = _mm512_unpacklo_epi64(a[i], a[i + 4]);
      groups[g][2 * i + 1] = _mm512_unpackhi_epi64(a[i], a[i + 4]);
    }
  }
  for (int i = 0; i < 8; ++i) {
    by_tile[i] = _mm512_shuffle_i64x2(groups[0][i], groups[1][i], 0x88);
    by_tile[i + 8] = _mm512_shuffle_i64x2(groups[0][i], groups[1][i], 0xDD);
  }
}

HWY_INLINE __m512i words_of(int value) { return _mm512_set1_epi16(static_cast<short>(value)); }
HWY_INLINE __m512i bytes_of(int value) { return _mm512_set1_epi8(static_cast<char>(value)); }
// A quarter of each byte, rounded down.
HWY_INLINE __m512i quarters(__m512i v) {
  return _mm512_and_si512(_mm512_srli_epi16(v, 2), bytes_of(0x3f));
}
// Bytes `low` and `high` of each word.
HWY_INLINE __m512i both_bytes(__m512i low, __m512i high) {
  return _mm512_or_si512(low, _mm512_slli_epi16(high, 8));
}
// The sum of both bytes of each word.
HWY_INLINE __m512i sum_of_bytes(__m512i v) { return _mm512_maddubs_epi16(v, bytes_of(1)); }

// What the tiles of 32 blocks need, a block in each lane. A word has two tiles, k and k + kTiles/2.
template <int kTiles>
struct Needs {
  __m512i base;              // the least step that may fit, less 8
  __m512i pair[kTiles / 2];  // beyond base
  __mmask32 bad;             // lanes that are not finite
};

// Needs lack the 8 that dct_quant_block.h adds; so does base. A tile's need beyond base fits a byte.
template <int kTiles>
HWY_INLINE Needs<kTiles> needs_of(const Form& form, const PackBuffers& io) {
  __m512i levels[16], need[kTiles];
  transpose_levels(io, levels);
  const auto level_of_first = [&](int lane) HWY_ATTR {
    const __m512i magnitude =
        _mm512_and_si512(_mm512_load_si512(io.first_value + lane), _mm512_set1_epi32(0x7fffffff));
    return _mm512_cvtepi32_epi16(
        _mm512_srli_epi32(_mm512_add_epi32(magnitude, _mm512_set1_epi32(1)), kStepShift));
  };
  const __m512i first =
      _mm512_inserti64x4(_mm512_castsi256_si512(level_of_first(0)), level_of_first(16), 1);
  __m512i most = _mm512_setzero_si512();
  for (int k = 0; k < kTiles; ++k) {
    need[k] = levels[kTileRow[k] * 4 + kTileCol[k]];
    most = _mm512_max_epi16(most, need[k]);
  }
  Needs<kTiles> needs;
  needs.bad = _mm512_cmpge_epi16_mask(_mm512_max_epi16(most, first), words_of(kNoStep));
  need[0] = _mm512_max_epi16(need[0], _mm512_sub_epi16(first, words_of(4 * form.dc)));
  most = _mm512_max_epi16(most, need[0]);
  needs.base = _mm512_max_epi16(words_of(kLeastStep - 8),
                                _mm512_sub_epi16(most, words_of(4 * form.max_width + 3)));
  for (int k = 0; k < kTiles; ++k) need[k] = _mm512_subs_epu16(need[k], needs.base);
  for (int k = kTiles - 1; k > 0; --k) {
    need[k - 1] = _mm512_max_epu16(need[k - 1], _mm512_subs_epu16(need[k], words_of(4)));
  }
  for (int k = 1; k < kTiles; ++k) {
    need[k] = _mm512_max_epu16(need[k], _mm512_subs_epu16(need[k - 1], words_of(8)));
  }
  constexpr int kHalf = kTiles / 2;
  for (int k = 0; k < kHalf; ++k) needs.pair[k] = both_bytes(need[k], need[k + kHalf]);
  return needs;
}

// The least step beyond base whose widths fit, in both bytes of each word. The sum of widths,
// (need - q) / 4, needs no shifts for every fourth step q: those are searched first, then the three
// between two of them.
template <int kTiles>
HWY_INLINE __m512i least_step(const Form& form, const Needs<kTiles>& needs) {
  constexpr int kHalf = kTiles / 2;
  const __m512i room = words_of(form.nibbles);
  const auto raise = [&](__m512i below, __m512i middle, __m512i sums) HWY_ATTR {
    return _mm512_mask_mov_epi16(below, _mm512_cmpgt_epi16_mask(sum_of_bytes(sums), room), middle);
  };
  __m512i whole[kHalf];
  for (int k = 0; k < kHalf; ++k) whole[k] = quarters(needs.pair[k]);
  __m512i below = bytes_of(-1);  // the most fours that are known to be too few
  for (int step = 8; step > 0; step /= 2) {
    const __m512i middle = _mm512_add_epi8(below, bytes_of(step));
    __m512i sums = _mm512_subs_epu8(whole[0], middle);
    for (int k = 1; k < kHalf; ++k) {
      sums = _mm512_add_epi8(sums, _mm512_subs_epu8(whole[k], middle));
    }
    below = raise(below, middle, sums);
  }
  below = _mm512_add_epi8(below, below);
  below = _mm512_add_epi8(below, below);  // in ones; -4 if none are too few
  for (int step = 2; step > 0; step /= 2) {
    const __m512i middle = _mm512_add_epi8(below, bytes_of(step));
    __m512i sums = _mm512_setzero_si512();
    for (int k = 0; k < kHalf; ++k) {
      sums = _mm512_add_epi8(sums, quarters(_mm512_subs_epu8(needs.pair[k], middle)));
    }
    below = raise(below, middle, sums);
  }
  return _mm512_max_epi8(_mm512_add_epi8(below, bytes_of(1)), _mm512_setzero_si512());
}

// The fields of headers: the width of tile 0, and the changes of the others, two bits each.
struct HeaderFields {
  __m512i first_width, changes[2];
};

// Stores widths, offsets, odd and halved tiles for a step that is `beyond` base.
template <int kTiles>
HWY_INLINE HeaderFields store_widths(const Form& form, const Needs<kTiles>& needs, __m512i beyond,
                                     PackBuffers& io) {
  constexpr int kHalf = kTiles / 2;
  const __m512i zero = _mm512_setzero_si512(), low_bytes = words_of(0xff);
  __m512i width[kHalf], sums = zero;
  for (int k = 0; k < kHalf; ++k) {
    width[k] = quarters(_mm512_subs_epu8(needs.pair[k], beyond));
    sums = _mm512_add_epi8(sums, width[k]);
  }
  const __m512i left_over = _mm512_sub_epi16(words_of(form.nibbles), sum_of_bytes(sums));
  const __m512i left = both_bytes(left_over, left_over);
  HeaderFields fields{width[0], {zero, zero}};
  __m512i odd = zero, halved = zero;
  __m512i begin[kHalf + 1] = {words_of(form.header_bits() / 8)};
  for (int k = 0; k < kHalf; ++k) {
    const __mmask64 more = _mm512_cmpgt_epi8_mask(left, words_of(k | (k + kHalf) << 8)) &
                           _mm512_test_epi8_mask(width[k], width[k]);
    halved = _mm512_mask_add_epi8(halved, more, halved, bytes_of(1 << k));
    const __m512i total = _mm512_mask_add_epi8(width[k], more, width[k], bytes_of(1));
    // A bit of `odd` for each tile, as kTileAt.
    const auto bit_of = [](int tile) { return kTileCol[tile] * 4 + kTileRow[tile]; };
    const int low = bit_of(k), high = bit_of(k + kHalf);
    constexpr int kOrAnd = 0xf8;
    odd = _mm512_ternarylogic_epi32(odd, _mm512_slli_epi16(total, low), words_of(1 << low), kOrAnd);
    odd = _mm512_ternarylogic_epi32(
        odd, high < 8 ? _mm512_srli_epi16(total, 8 - high) : _mm512_slli_epi16(total, high - 8),
        words_of(1 << high), kOrAnd);
    // The header's field for a width: its difference from the previous one.
    const __m512i before = k > 0 ? width[k - 1] : _mm512_slli_epi16(width[kHalf - 1], 8);
    __m512i change = _mm512_add_epi8(_mm512_sub_epi8(width[k], before), bytes_of(2));
    if (k == 0) change = _mm512_and_si512(change, words_of(0xff00));
    __m512i& changes = fields.changes[k / 4];
    changes = _mm512_or_si512(changes, _mm512_slli_epi16(change, k % 4 * 2));
    _mm512_store_si512(io.width[k], total);
    const __m512i size = _mm512_and_si512(_mm512_srli_epi16(total, 1), bytes_of(0x7f));
    begin[k + 1] = _mm512_add_epi8(begin[k], size);
  }
  const __m512i middle = _mm512_slli_epi16(begin[kHalf], 8);
  for (int k = 0; k <= kHalf; ++k) {
    _mm512_store_si512(io.begin[k], _mm512_add_epi8(begin[k], middle));
  }
  _mm512_store_si512(io.odd, odd);
  _mm512_store_si512(io.halved,
                     _mm512_or_si512(_mm512_and_si512(halved, low_bytes),
                                     _mm512_slli_epi16(_mm512_srli_epi16(halved, 8), kHalf)));
  return fields;
}

template <int kTiles>
HWY_INLINE void store_headers(__m512i step, const HeaderFields& fields, PackBuffers& io) {
  const __m512i low_bytes = words_of(0xff);
  const __m512i front =
      _mm512_or_si512(step, _mm512_slli_epi16(_mm512_and_si512(fields.first_width, low_bytes), 10));
  const __m512i near =
      both_bytes(_mm512_and_si512(fields.changes[0], low_bytes), fields.changes[1]);
  const __m512i far = _mm512_or_si512(_mm512_srli_epi16(fields.changes[0], 8),
                                      _mm512_andnot_si512(low_bytes, fields.changes[1]));
  const auto store_quarter = [&]<int kQuarter>() HWY_ATTR {
    const auto wide = [](__m512i v) HWY_ATTR {
      return _mm512_cvtepu16_epi64(_mm512_extracti32x4_epi32(v, kQuarter));
    };
    _mm512_store_si512(
        io.header + 8 * kQuarter,
        _mm512_or_si512(wide(front), _mm512_or_si512(_mm512_slli_epi64(wide(near), 12),
                                                     _mm512_slli_epi64(wide(far), 12 + kTiles))));
  };
  store_quarter.template operator()<0>();
  store_quarter.template operator()<1>();
  store_quarter.template operator()<2>();
  store_quarter.template operator()<3>();
}

// 1 / step of each lane.
HWY_INLINE void store_inverses(__m512i step, PackBuffers& io) {
  for (int h = 0; h < 2; ++h) {
    const __m512i half = _mm512_cvtepu16_epi32(h == 0 ? _mm512_castsi512_si256(step)
                                                      : _mm512_extracti64x4_epi64(step, 1));
    const __m512 steps = _mm512_castsi512_ps(_mm512_slli_epi32(half, kStepShift));
    _mm512_store_ps(io.inverse + 16 * h, _mm512_div_ps(_mm512_set1_ps(1.0f), steps));
  }
}

// Steps, widths and headers of all blocks. Returns the lanes that are not finite.
template <int kTiles>
HWY_INLINE __mmask32 search(const Form& form, PackBuffers& io) {
  const Needs<kTiles> needs = needs_of<kTiles>(form, io);
  const __m512i beyond = least_step(form, needs);
  const __m512i step = _mm512_add_epi16(_mm512_add_epi16(needs.base, words_of(8)),
                                        _mm512_and_si512(beyond, words_of(0xff)));
  const HeaderFields fields = store_widths(form, needs, beyond, io);
  store_headers<kTiles>(step, fields, io);
  store_inverses(step, io);
  return needs.bad | _mm512_cmpge_epi16_mask(step, words_of(kNoStep));
}

// By width: the bits of four values that go to the bytes, all but the lowest of an odd width.
constexpr std::array<std::uint64_t, 16> kWholePairs = [] {
  std::array<std::uint64_t, 16> table{};
  for (unsigned w = 0; w < 16; ++w) {
    const std::uint64_t bits = ((1u << w) - 1) & ~(w % 2);
    table[w] = bits * 0x0001000100010001u;
  }
  return table;
}();

// The codes of two blocks.
HWY_INLINE void quantize_two(const Form& form, int block, PackBuffers& io) {
  const int lane = lane_of(block), next = lane_of(block + 1);
  const auto factors = [&](int at) HWY_ATTR {
    const __m512 inverse = _mm512_set1_ps(io.inverse[at]);
    return _mm512_mask_add_ps(inverse, static_cast<__mmask16>(io.halved[at]), inverse, inverse);
  };
  const __m512 left = factors(lane), right = factors(next);
  const int pair = block / 2;
  std::uint64_t lowest[2] = {};
  for (int j = 0; j < 4; ++j) {
    const __m512 factor =
        _mm512_permutex2var_ps(left, _mm512_load_si512(kTileOfLane[j].data()), right);
    __m512i codes[2];
    for (int i = 0; i < 2; ++i) {
      const __m512 z = _mm512_load_ps(io.z[pair][2 * j + i]);
      // The first coefficient is rounded to the nearest.
      const __m512 scaled =
          j == 0 && i == 0
              ? _mm512_fmadd_ps(z, factor, _mm512_maskz_mov_ps(kFirstLanes, _mm512_set1_ps(0.5f)))
              : _mm512_mul_ps(z, factor);
      codes[i] = _mm512_cvt_roundps_epi32(scaled, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    }
    if (j == 0) {
      // It may round up to one more than its width holds.
      const int widths[2] = {io.width[0][lane][0] + form.dc - 1,
                             io.width[0][next][0] + form.dc - 1};
      const __m512i largest = _mm512_mask_set1_epi32(_mm512_set1_epi32((1 << widths[0]) - 1),
                                                     0xff00, (1 << widths[1]) - 1);
      codes[0] = _mm512_mask_min_epi32(codes[0], kFirstLanes, codes[0], largest);
      _mm512_store_si512(io.first[pair], codes[0]);
    }
    const __m512i both =
        _mm512_mask_blend_epi16(0xAAAAAAAA, codes[0], _mm512_slli_epi32(codes[1], 16));
    _mm512_store_si512(io.codes[pair] + 64 * j, both);
    const std::uint64_t bits = _mm512_test_epi16_mask(both, _mm512_set1_epi16(1));
    lowest[0] |= (bits & 0xffff) << (16 * j);
    lowest[1] |= (bits >> 16) << (16 * j);
  }
  for (int i = 0; i < 2; ++i) io.lowest[block + i] = lowest[i];
}

// Writes one block over zeros, and zeros up to 8 bytes after it.
template <int kTiles>
HWY_INLINE void write_block(const Form& form, const PackBuffers& from, int block,
                            std::uint8_t* out) {
  const int lane = lane_of(block);
  const std::int32_t first = from.first[block / 2][block % 2 * 8];
  const std::uint64_t dc = static_cast<std::uint64_t>(first >> from.width[0][lane][0]) &
                           ((std::uint64_t{1} << form.dc) - 1);
  const int low_dc = form.header_bits() % 8;
  put64(out, from.header[lane] | dc >> low_dc << (12 + 2 * kTiles));
  const std::uint8_t* codes = from.codes[block / 2] + block % 2 * 32;
  constexpr int kHalf = kTiles / 2;
  for (int k = 0; k < kTiles; ++k) {
    const std::size_t width = from.width[k % kHalf][lane][k / kHalf];
    const std::size_t begin = from.begin[k % kHalf][lane][k / kHalf];
    put64(out + begin, _pext_u64(get64(codes + tile_offset(k)), kWholePairs[width]));
  }
  std::uint8_t* end = out + from.begin[kHalf][lane][1];
  const std::uint64_t tail =
      _pext_u64(from.lowest[block], _pdep_u64(from.odd[lane], kNibbles) * 15);
  if (low_dc != 0) {
    put64(end, tail << 4 | (dc & 15));
    end[8] = static_cast<std::uint8_t>(tail >> 60);
  } else {
    put64(end, tail);
  }
}

// Packs batches one after the other. The bytes of one are written while the next is transformed:
// the former uses the integer units, the latter the vector units.
template <int kTiles>
class Packer {
 public:
  // `out` takes whole blocks in order.
  HWY_INLINE Packer(const PackJob& job, std::uint8_t* out)
      : p_(job.params), stream_(job.stream), out_(out) {}

  // `ahead` is the address that is read next, or null.
  HWY_ATTR HWY_NOINLINE void add(const Batch<const float>& in, const char* ahead) {
    const Form form = p_.form;  // a copy: what is written might else be it
    for (int b = 0; b < kBatchBlocks; b += 2) {
      // Lanes without a block repeat the first.
      const float* left = in.at[b < in.count ? b : 0];
      const float* right = in.at[b + 1 < in.count ? b + 1 : 0];
      if (ahead != nullptr) {
        for (int i = 0; i < 8; ++i) __builtin_prefetch(ahead + (4 * b + i) * 64, 0, 2);
      }
      if (p_.offset == 0) {
        transform_down<false>(left, right, in.row, 0, buffers_.z[b / 2]);
      } else {
        transform_down<true>(left, right, in.row, p_.offset, buffers_.z[b / 2]);
      }
      write(form, b / 2);
    }
    for (int b = 0; b < kBatchBlocks; b += 2) {
      transform_along(b, buffers_);
      write(form, kBatchBlocks / 2 + b / 2);
    }
    release();
    marked_ = search<kTiles>(form, buffers_);
    count_ = in.count;
    for (int b = 0; b < count_; b += 2) quantize_two(form, b, buffers_);
  }

  HWY_ATTR HWY_NOINLINE void finish() {
    for (int b = 0; b < count_; ++b) write(p_.form, b);
    release();
  }

 private:
  // Blocks are written in order: each leaves zeros after itself.
  HWY_INLINE void write(const Form& form, int block) {
    if (block < count_) write_block<kTiles>(form, buffers_, block, bytes_ + block * form.bytes);
  }

  // Stores the written bytes of a batch.
  HWY_INLINE void release() {
    const auto size = static_cast<std::size_t>(p_.form.bytes);
    for (int b = 0; HWY_UNLIKELY(marked_ != 0) && b < count_; ++b) {
      if ((marked_ >> lane_of(b) & 1) != 0) put_mark(p_.form, bytes_ + b * p_.form.bytes);
    }
    put_bytes(out_, bytes_, static_cast<std::size_t>(count_) * size, stream_);
    std::memset(bytes_, 0, kBatchBlocks * size);
    out_ += count_ * p_.form.bytes;
    count_ = 0;
  }

  const Params& p_;
  bool stream_;
  std::uint8_t* out_;
  int count_ = 0;         // blocks whose bytes are still to be written
  __mmask32 marked_ = 0;  // lanes whose block is not finite
  PackBuffers buffers_;
  alignas(64) std::uint8_t bytes_[kBatchBlocks * kMaxWideBytes + 64] = {};
};

}  // namespace tuckfold::dct_quant::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // TUCKFOLD_DCT_QUANT_WIDE

#endif  // include guard
