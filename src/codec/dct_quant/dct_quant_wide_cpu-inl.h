// Shared by dct_quant's kernels of 512 bits. They take rates up to 8, where a code fits 16 bits.
#if defined(TUCKFOLD_CODEC_DCT_QUANT_WIDE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TUCKFOLD_CODEC_DCT_QUANT_WIDE_INL_H
#undef TUCKFOLD_CODEC_DCT_QUANT_WIDE_INL_H
#else
#define TUCKFOLD_CODEC_DCT_QUANT_WIDE_INL_H
#endif

#include <hwy/highway.h>

#include <array>
#include <cstdint>

#include "codec/dct_quant/dct_quant_batch_cpu-inl.h"

#undef TUCKFOLD_DCT_QUANT_WIDE
#define TUCKFOLD_DCT_QUANT_WIDE (HWY_TARGET == HWY_AVX3)

#if TUCKFOLD_DCT_QUANT_WIDE
HWY_BEFORE_NAMESPACE();
namespace tuckfold::dct_quant::HWY_NAMESPACE {

constexpr int kMaxWideBytes = 64;  // of a block

using DF = hn::CappedTag<float, 16>;
using V = hn::Vec<DF>;

constexpr std::uint64_t kNibbles = 0x1111111111111111u;  // the lowest bit of each

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

// Eight vectors have a row, or a column, of two blocks; the next pass needs them transposed.
// Squares of four are transposed before they are stored, and the squares are exchanged when they
// are loaded: passes of different blocks can then be in flight together.
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
