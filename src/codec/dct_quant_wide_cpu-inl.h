// What dct_quant's kernels of 512 bits share: batches of blocks, both passes of the transform. The
// results, bit by bit, are those of dct_quant_block.h. They take rates up to 8, where a value's
// code fits 16 bits.
#if defined(TUCKFOLD_CODEC_DCT_QUANT_WIDE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TUCKFOLD_CODEC_DCT_QUANT_WIDE_INL_H
#undef TUCKFOLD_CODEC_DCT_QUANT_WIDE_INL_H
#else
#define TUCKFOLD_CODEC_DCT_QUANT_WIDE_INL_H
#endif

#include <hwy/highway.h>

#include <array>
#include <cstdint>
#include <cstring>

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

constexpr std::uint64_t kNibbles = 0x1111111111111111u;  // the lowest bit of each

HWY_INLINE std::uint64_t get64(const std::uint8_t* from) {
  std::uint64_t value;
  std::memcpy(&value, from, 8);
  return value;
}

HWY_INLINE void put64(std::uint8_t* to, std::uint64_t value) { std::memcpy(to, &value, 8); }

// Where a vector has a column of two blocks: which tile of columns 2j, 2j + 1 a lane belongs to, 16
// more in the second block; and kScale of column v.
alignas(64) constexpr auto kTileOfLane = [] {
  std::array<std::array<std::int32_t, 16>, 4> table{};
  for (int j = 0; j < 4; ++j) {
    for (int i = 0; i < 16; ++i) table[j][i] = kTileAt[j * 4 + i % 8 / 2] + i / 8 * 16;
  }
  return table;
}();
alignas(64) constexpr auto kScaleOfColumn = [] {
  std::array<std::array<float, 16>, 8> table{};
  for (int v = 0; v < 8; ++v) {
    for (int i = 0; i < 16; ++i) table[v][i] = kScale[i % 8 * 8 + v];
  }
  return table;
}();

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

// Eight vectors have a row, or a column, of two blocks; the next pass needs them transposed. Within
// squares of four that is done before they are stored, and the squares change places when they are
// loaded: passes of different blocks can then be under way together.
HWY_INLINE void store_squares(const V* in, float (*squares)[16]) {
  __m512 t[8];
  for (int i = 0; i < 4; ++i) {
    t[2 * i] = _mm512_unpacklo_ps(in[2 * i].raw, in[2 * i + 1].raw);
    t[2 * i + 1] = _mm512_unpackhi_ps(in[2 * i].raw, in[2 * i + 1].raw);
  }
  for (int half = 0; half < 2; ++half) {
    for (int i = 0; i < 2; ++i) {
      const __m512d a = _mm512_castps_pd(t[4 * half + i]),
                    b = _mm512_castps_pd(t[4 * half + 2 + i]);
      _mm512_store_pd(squares[4 * half + 2 * i], _mm512_unpacklo_pd(a, b));
      _mm512_store_pd(squares[4 * half + 2 * i + 1], _mm512_unpackhi_pd(a, b));
    }
  }
}

HWY_INLINE void load_transposed(const float (*squares)[16], V* out) {
  const __m512i upper = _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13);
  const __m512i lower = _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15);
  for (int i = 0; i < 4; ++i) {
    const __m512d above = _mm512_load_pd(squares[i]), below = _mm512_load_pd(squares[i + 4]);
    out[i] = V{_mm512_castpd_ps(_mm512_permutex2var_pd(above, upper, below))};
    out[i + 4] = V{_mm512_castpd_ps(_mm512_permutex2var_pd(above, lower, below))};
  }
}

}  // namespace tuckfold::dct_quant::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // TUCKFOLD_DCT_QUANT_WIDE

#endif  // include guard
