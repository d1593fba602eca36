// dct_quant in vectors of 512 bits, for rates up to 8, where a value's code fits 16 bits. The
// results, bit by bit, are those of dct_quant_block.h.
//
// Blocks are taken 32 at a time. Packing: two blocks at a time are transformed; then the search for
// the step runs on all 32, one in each lane; then each block's codes are squeezed into bytes, four
// at a time, by pext. Unpacking: headers are read four at a time, codes spread by pdep, and two
// blocks at a time transformed back.
#if defined(TUCKFOLD_CODEC_DCT_QUANT_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TUCKFOLD_CODEC_DCT_QUANT_INL_H
#undef TUCKFOLD_CODEC_DCT_QUANT_INL_H
#else
#define TUCKFOLD_CODEC_DCT_QUANT_INL_H
#endif

#include <hwy/highway.h>

#include <array>
#include <cstdint>
#include <cstring>

#include "base/stream_cpu-inl.h"
#include "codec/dct_quant.h"

#undef TUCKFOLD_DCT_QUANT_WIDE
#define TUCKFOLD_DCT_QUANT_WIDE (HWY_TARGET == HWY_AVX3)

#if TUCKFOLD_DCT_QUANT_WIDE
HWY_BEFORE_NAMESPACE();
namespace tuckfold::dct_quant::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int kBatch = 32;         // blocks worked on at a time
constexpr int kMaxWideBytes = 64;  // of a block

// Where the blocks of a batch lie: rows of eight values, `row` apart.
template <class Float>
struct Batch {
  Float* at[kBatch];
  std::int64_t row = 0;
  int count = 0;
};

using DF = hn::CappedTag<float, 16>;
using V = hn::Vec<DF>;

// ---- transform ----------------------------------------------------------------------------------

// As forward_column_8 and inverse_column_8 of dct_chop, on eight vectors.
HWY_INLINE void forward_pass(const V* x, V* y) {
  const DF d;
  V s[4], e[4];
  for (int k = 0; k < 4; ++k) {
    s[k] = hn::Add(x[k], x[7 - k]);
    e[k] = hn::Sub(x[k], x[7 - k]);
  }
  const V e0 = hn::Add(s[0], s[3]), e1 = hn::Add(s[1], s[2]);
  const V o0 = hn::Sub(s[0], s[3]), o1 = hn::Sub(s[1], s[2]);
  const V ratio = hn::Set(d, dct_chop::kRatio);
  y[0] = hn::Add(e0, e1);
  y[2] = hn::MulAdd(ratio, o1, o0);
  y[4] = hn::Sub(e0, e1);
  y[6] = hn::MulSub(ratio, o0, o1);
  for (int u = 1; u < 8; u += 2) {
    V sum = e[0];
    for (int k = 1; k < 4; ++k) sum = hn::MulAdd(hn::Set(d, dct_chop::kOdd[u / 2][k]), e[k], sum);
    y[u] = sum;
  }
}

HWY_INLINE void inverse_pass(const V* y, V* x) {
  const DF d;
  const V ratio = hn::Set(d, dct_chop::kRatio);
  const V p = hn::Add(y[0], y[4]), q = hn::Sub(y[0], y[4]);
  const V a = hn::MulAdd(ratio, y[6], y[2]), b = hn::MulSub(ratio, y[2], y[6]);
  const V even[4] = {hn::Add(p, a), hn::Add(q, b), hn::Sub(q, b), hn::Sub(p, a)};
  for (int j = 0; j < 4; ++j) {
    V odd = j == 0 ? y[1] : hn::Mul(y[1], hn::Set(d, dct_chop::kOdd[0][j]));
    for (int u = 3; u < 8; u += 2) {
      odd =
          j == 0 ? hn::Add(odd, y[u]) : hn::MulAdd(y[u], hn::Set(d, dct_chop::kOdd[u / 2][j]), odd);
    }
    x[j] = hn::Add(even[j], odd);
    x[7 - j] = hn::Sub(even[j], odd);
  }
}

// Eight vectors, each two rows of four lanes' quarters, transposed within quarters: what remains is
// to bring the quarters of `out[i]` and `out[i + 4]` together.
HWY_INLINE void transpose_quarters(const V* in, __m512* out) {
  __m512 t[8];
  for (int i = 0; i < 4; ++i) {
    t[2 * i] = _mm512_unpacklo_ps(in[2 * i].raw, in[2 * i + 1].raw);
    t[2 * i + 1] = _mm512_unpackhi_ps(in[2 * i].raw, in[2 * i + 1].raw);
  }
  for (int half = 0; half < 2; ++half) {
    for (int i = 0; i < 2; ++i) {
      const __m512d a = _mm512_castps_pd(t[4 * half + i]),
                    b = _mm512_castps_pd(t[4 * half + 2 + i]);
      out[4 * half + 2 * i] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
      out[4 * half + 2 * i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
    }
  }
}

// A vector of quarters: which tile of columns 2j, 2j + 1 a lane belongs to, 16 more in block 1; the
// lanes of the first coefficients; and kScale of column v.
constexpr __mmask16 kFirstLanes = 0x0011;
constexpr int row_of_lane(int lane) { return lane / 8 * 4 + lane % 4; }
alignas(64) constexpr auto kTileOfLane = [] {
  std::array<std::array<std::int32_t, 16>, 4> table{};
  for (int j = 0; j < 4; ++j) {
    for (int i = 0; i < 16; ++i) {
      table[j][i] = kTileAt[j * 4 + row_of_lane(i) / 2] + i / 4 % 2 * 16;
    }
  }
  return table;
}();
alignas(64) constexpr auto kScaleOfQuarters = [] {
  std::array<std::array<float, 16>, 8> table{};
  for (int v = 0; v < 8; ++v) {
    for (int i = 0; i < 16; ++i) table[v][i] = kScale[row_of_lane(i) * 8 + v];
  }
  return table;
}();

// ---- pack ---------------------------------------------------------------------------------------

// Two blocks lie in a vector by quarters: block 0's rows u = 0..3 of a column, block 1's, block 0's
// rows 4..7, block 1's. Codes of two columns share 32 bits; so a tile's four are 64 bits in the
// order that they are stored in.
constexpr int tile_offset(int k, int block) {
  return kTileCol[k] * 64 + kTileRow[k] / 2 * 32 + block % 2 * 16 + kTileRow[k] % 2 * 8;
}

// What packing leaves for each two blocks of a batch; or by lane, see lane_of.
struct alignas(64) PackBuffers {
  float z[kBatch / 2][8][16];              // coefficients by columns
  std::uint16_t levels[kBatch / 2][32];    // of tiles
  std::uint8_t codes[kBatch / 2][4 * 64];  // see tile_offset
  std::int32_t first[kBatch / 2][16];      // codes of the first column
  std::uint64_t lowest[kBatch];            // bits of codes, in the order of the tail
  std::uint16_t first_level[kBatch];       // by lane from here on
  std::uint8_t width[16][kBatch];
  std::uint8_t begin[18][kBatch];  // of a tile's bytes in the block; [16]: of the tail
  std::uint64_t header[kBatch];
  std::uint16_t odd[kBatch];     // bit i: tile kTileAt[i] has an odd width
  std::uint16_t halved[kBatch];  // bit k: tile k has half the step
  float inverse[kBatch];
};

// The lane that a block has in the search: what transposing makes of it.
constexpr int lane_of(int block) { return block / 16 * 16 + block % 2 * 8 + block % 16 / 2; }

// Coefficients and levels of two blocks.
template <bool kOffset>
HWY_INLINE void transform_two(const float* left, const float* right, std::int64_t row, float offset,
                              int block, PackBuffers& to) {
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
  forward_pass(x, y);
  __m512 t[8];
  transpose_quarters(y, t);
  for (int i = 0; i < 4; ++i) {
    x[i] = V{_mm512_shuffle_f32x4(t[i], t[i + 4], 0x88)};
    x[i + 4] = V{_mm512_shuffle_f32x4(t[i], t[i + 4], 0xDD)};
  }
  forward_pass(x, y);
  __m512i magnitude[8];
  for (int v = 0; v < 8; ++v) {
    y[v] = hn::Mul(y[v], hn::Load(d, kScaleOfQuarters[v].data()));
    hn::Store(y[v], d, to.z[block / 2][v]);
    magnitude[v] = _mm512_and_si512(_mm512_castps_si512(y[v].raw), _mm512_set1_epi32(0x7fffffff));
  }
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
  _mm512_store_si512(to.levels[block / 2], _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
}

// levels[pair] has in its quarters eight words each: the upper half of block 0's tiles by rows,
// then block 1's, and their lower halves. Tile t of all blocks goes to by_tile[t].
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
    by_tile[i] = _mm512_shuffle_i64x2(groups[0][i], groups[1][i], 0x44);
    by_tile[i + 8] = _mm512_shuffle_i64x2(groups[0][i], groups[1][i], 0xEE);
  }
}

// Steps, widths and headers of all blocks. The result: lanes that are not finite.
template <int kTiles>
HWY_INLINE __mmask32 search(const Form& form, PackBuffers& io) {
  __m512i levels[16], need[kTiles];
  transpose_levels(io, levels);
  const __m512i first = _mm512_load_si512(io.first_level);
  __m512i most = first;
  for (int k = 0; k < kTiles; ++k) {
    need[k] = levels[kTileRow[k] * 4 + kTileCol[k]];
    most = _mm512_max_epi16(most, need[k]);
  }
  __mmask32 bad = _mm512_cmpge_epi16_mask(most, _mm512_set1_epi16(kNoStep));
  const auto words = [](int value)
                         HWY_ATTR { return _mm512_set1_epi16(static_cast<short>(value)); };
  need[0] = _mm512_max_epi16(need[0], _mm512_sub_epi16(first, words(4 * form.dc)));
  for (int k = kTiles - 1; k > 0; --k) {
    need[k - 1] = _mm512_max_epi16(need[k - 1], _mm512_sub_epi16(need[k], words(4)));
  }
  most = need[0];
  for (int k = 1; k < kTiles; ++k) {
    need[k] = _mm512_max_epi16(need[k], _mm512_sub_epi16(need[k - 1], words(8)));
    most = _mm512_max_epi16(most, need[k]);
  }
  // need and most lack the 8 that dct_quant_block.h adds; so does the step here, until the end.
  const __m512i least = words(kLeastStep - 8);
  __m512i low = _mm512_sub_epi16(
      _mm512_max_epi16(least, _mm512_sub_epi16(most, words(4 * form.max_width + 3))), words(1));
  // 2^6 steps from `low` reach past the largest that can be needed; count down from there.
  const __m512i room = words(form.nibbles);
  const auto sum_at = [&](__m512i q) HWY_ATTR {
    __m512i sum = _mm512_setzero_si512();
    for (int k = 0; k < kTiles; ++k) {
      sum = _mm512_add_epi16(sum, _mm512_srli_epi16(_mm512_subs_epu16(need[k], q), 2));
    }
    return sum;
  };
  for (int step = 32; step > 0; step /= 2) {
    const __m512i middle = _mm512_add_epi16(low, words(step));
    const __mmask32 too_small = _mm512_cmpgt_epi16_mask(sum_at(middle), room);
    low = _mm512_mask_mov_epi16(low, too_small, middle);
  }
  const __m512i q = _mm512_add_epi16(low, words(1));
  const __m512i step = _mm512_add_epi16(q, words(8));
  bad |= _mm512_cmpge_epi16_mask(step, words(kNoStep));
  // Widths, what is left over, and the header's words.
  __m512i width[kTiles], left = room;
  for (int k = 0; k < kTiles; ++k) {
    width[k] = _mm512_srli_epi16(_mm512_subs_epu16(need[k], q), 2);
    left = _mm512_sub_epi16(left, width[k]);
  }
  __m512i header[4] = {step, _mm512_setzero_si512(), _mm512_setzero_si512(),
                       _mm512_setzero_si512()};
  header[0] = _mm512_or_si512(step, _mm512_slli_epi16(width[0], 10));
  __m512i odd = _mm512_setzero_si512(), halved = odd, begin = words(form.header_bits() / 8);
  for (int k = 0; k < kTiles; ++k) {
    if (k > 0) {
      const __m512i change = _mm512_add_epi16(_mm512_sub_epi16(width[k], width[k - 1]), words(2));
      const int at = 12 + 2 * k;
      header[at / 16] = _mm512_or_si512(header[at / 16], _mm512_slli_epi16(change, at % 16));
    }
    const __mmask32 more =
        _mm512_cmpgt_epi16_mask(left, words(k)) & _mm512_test_epi16_mask(width[k], width[k]);
    halved = _mm512_mask_add_epi16(halved, more, halved, words(1 << k));
    const __m512i total = _mm512_mask_add_epi16(width[k], more, width[k], words(1));
    odd = _mm512_or_si512(
        odd, _mm512_slli_epi16(_mm512_and_si512(total, words(1)), kTileCol[k] * 4 + kTileRow[k]));
    const auto store = [](std::uint8_t* to, __m512i v) HWY_ATTR {
      _mm256_store_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi16_epi8(v));
    };
    store(io.width[k], total);
    store(io.begin[k], begin);
    begin = _mm512_add_epi16(begin, _mm512_srli_epi16(total, 1));
    if (k + 1 == kTiles) store(io.begin[16], begin);
  }
  _mm512_store_si512(io.odd, odd);
  _mm512_store_si512(io.halved, halved);
  for (int h = 0; h < 2; ++h) {
    const auto half = [&](__m512i v) HWY_ATTR {
      return _mm512_cvtepu16_epi32(h == 0 ? _mm512_castsi512_si256(v)
                                          : _mm512_extracti64x4_epi64(v, 1));
    };
    const __m512 steps = _mm512_castsi512_ps(_mm512_slli_epi32(half(step), kStepShift));
    _mm512_store_ps(io.inverse + 16 * h, _mm512_div_ps(_mm512_set1_ps(1.0f), steps));
    const __m512i below = _mm512_or_si512(half(header[0]), _mm512_slli_epi32(half(header[1]), 16));
    const __m512i above = half(header[2]);
    const __m512i index = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    _mm512_store_si512(io.header + 16 * h, _mm512_permutex2var_epi32(below, index, above));
    _mm512_store_si512(
        io.header + 16 * h + 8,
        _mm512_permutex2var_epi32(below, _mm512_add_epi32(index, _mm512_set1_epi32(8)), above));
  }
  return bad;
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

constexpr std::uint64_t kNibbles = 0x1111111111111111u;

HWY_INLINE std::uint64_t get64(const std::uint8_t* from) {
  std::uint64_t value;
  std::memcpy(&value, from, 8);
  return value;
}

HWY_INLINE void put64(std::uint8_t* to, std::uint64_t value) { std::memcpy(to, &value, 8); }

// The codes of two blocks.
HWY_INLINE void quantize_two(const Form& form, int block, PackBuffers& io) {
  const int lane = lane_of(block), next = lane_of(block + 1);
  const auto factors = [&](int at) HWY_ATTR {
    const __m512 inverse = _mm512_set1_ps(io.inverse[at]);
    return _mm512_mask_add_ps(inverse, static_cast<__mmask16>(io.halved[at]), inverse, inverse);
  };
  const __m512 left = factors(lane), right = factors(next);
  const int pair = block / 2;
  std::uint64_t lowest[2] = {};  // of both blocks, by two columns of tiles
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
      const int widths[2] = {io.width[0][lane] + form.dc - 1, io.width[0][next] + form.dc - 1};
      const __m512i largest = _mm512_mask_set1_epi32(_mm512_set1_epi32((1 << widths[0]) - 1),
                                                     0xfff0, (1 << widths[1]) - 1);
      codes[0] = _mm512_mask_min_epi32(codes[0], kFirstLanes, codes[0], largest);
      _mm512_store_si512(io.first[pair], codes[0]);
    }
    const __m512i both =
        _mm512_mask_blend_epi16(0xAAAAAAAA, codes[0], _mm512_slli_epi32(codes[1], 16));
    _mm512_store_si512(io.codes[pair] + 64 * j, both);
    lowest[j / 2] |= static_cast<std::uint64_t>(_mm512_test_epi16_mask(both, _mm512_set1_epi16(1)))
                     << (j % 2 * 32);
  }
  for (int i = 0; i < 2; ++i) {
    const std::uint64_t mine = std::uint64_t{0x00ff00ff00ff00ff} << (8 * i);
    io.lowest[block + i] = _pext_u64(lowest[0], mine) | _pext_u64(lowest[1], mine) << 32;
  }
}

// Writes one block where there are zeros, and zeros up to 8 bytes behind it.
template <int kTiles>
HWY_INLINE void write_block(const Form& form, const PackBuffers& from, int block,
                            std::uint8_t* out) {
  const int lane = lane_of(block);
  const std::int32_t first = from.first[block / 2][block % 2 * 4];
  const std::uint64_t dc = static_cast<std::uint64_t>(first >> from.width[0][lane]) &
                           ((std::uint64_t{1} << form.dc) - 1);
  const int low_dc = form.header_bits() % 8;
  put64(out, from.header[lane] | dc >> low_dc << (12 + 2 * kTiles));
  const std::uint8_t* codes = from.codes[block / 2] + block % 2 * 16;
  for (int k = 0; k < kTiles; ++k) {
    const std::size_t width = from.width[k][lane], begin = from.begin[k][lane];
    put64(out + begin, _pext_u64(get64(codes + tile_offset(k, 0)), kWholePairs[width]));
  }
  std::uint8_t* end = out + from.begin[16][lane];
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
// the one is work for the integer units, the other for vectors.
template <int kTiles>
class Packer {
 public:
  // `out` takes whole blocks in order.
  HWY_INLINE Packer(const PackJob& job, std::uint8_t* out)
      : p_(job.params), stream_(job.stream), out_(out) {}

  // `ahead` is where what is read next lies, or null.
  HWY_ATTR HWY_NOINLINE void add(const Batch<const float>& in, const char* ahead) {
    for (int b = 0; b < kBatch; b += 2) {
      // Lanes without a block repeat the first.
      const float* left = in.at[b < in.count ? b : 0];
      const float* right = in.at[b + 1 < in.count ? b + 1 : 0];
      if (ahead != nullptr) {
        for (int i = 0; i < 8; ++i) __builtin_prefetch(ahead + (4 * b + i) * 64, 0, 2);
      }
      if (p_.offset == 0) {
        transform_two<false>(left, right, in.row, 0, b, buffers_);
      } else {
        transform_two<true>(left, right, in.row, p_.offset, b, buffers_);
      }
      if (b < count_) write_block<kTiles>(p_.form, buffers_, b, bytes_ + b * p_.form.bytes);
      if (b + 1 < count_) {
        write_block<kTiles>(p_.form, buffers_, b + 1, bytes_ + (b + 1) * p_.form.bytes);
      }
    }
    release();
    for (int b = 0; b < kBatch; ++b) {
      const float first = buffers_.z[b / 2][0][b % 2 * 4];
      buffers_.first_level[lane_of(b)] =
          static_cast<std::uint16_t>(level_of(bits_of(first) & ~kSignBit));
    }
    rare_ = search<kTiles>(p_.form, buffers_);
    count_ = in.count;
    for (int b = 0; b < count_; b += 2) quantize_two(p_.form, b, buffers_);
    if (HWY_UNLIKELY(rare_ != 0)) pack_rare(in);
  }

  HWY_ATTR HWY_NOINLINE void finish() {
    for (int b = 0; b < count_; ++b) {
      write_block<kTiles>(p_.form, buffers_, b, bytes_ + b * p_.form.bytes);
    }
    release();
  }

 private:
  // Blocks that are not finite.
  HWY_ATTR HWY_NOINLINE void pack_rare(const Batch<const float>& in) {
    for (int b = 0; b < count_; ++b) {
      if ((rare_ >> lane_of(b) & 1) == 0) continue;
      float x[64];
      for (int i = 0; i < 64; ++i) x[i] = in.at[b][i / 8 * in.row + i % 8] - p_.offset;
      pack_block(p_.form, x, rare_bytes_[b]);
    }
  }

  // The written bytes of a batch go out.
  HWY_INLINE void release() {
    const auto size = static_cast<std::size_t>(p_.form.bytes);
    if (HWY_UNLIKELY(rare_ != 0)) {
      for (int b = 0; b < count_; ++b) {
        if ((rare_ >> lane_of(b) & 1) != 0)
          std::memcpy(bytes_ + b * p_.form.bytes, rare_bytes_[b], size);
      }
    }
    if (stream_) {
      tuckfold::HWY_NAMESPACE::stream_lines(reinterpret_cast<char*>(out_),
                                            reinterpret_cast<const char*>(bytes_),
                                            static_cast<std::size_t>(count_) * size);
    } else {
      std::memcpy(out_, bytes_, static_cast<std::size_t>(count_) * size);
    }
    std::memset(bytes_, 0, kBatch * size);
    out_ += count_ * p_.form.bytes;
    count_ = 0;
  }

  const Params& p_;
  bool stream_;
  std::uint8_t* out_;
  int count_ = 0;       // blocks whose bytes are still to be written
  __mmask32 rare_ = 0;  // lanes
  PackBuffers buffers_;
  alignas(64) std::uint8_t bytes_[kBatch * kMaxWideBytes + 64] = {};
  alignas(64) std::uint8_t rare_bytes_[kBatch][kMaxWideBytes];
};

// ---- unpack -------------------------------------------------------------------------------------

// Needs one extension more, which all but the first CPUs with these vectors have.
}  // namespace tuckfold::dct_quant::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
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
