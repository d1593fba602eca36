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

}  // namespace tuckfold::dct_quant::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // TUCKFOLD_DCT_QUANT_WIDE

#endif  // include guard
