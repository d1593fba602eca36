// Shared by dct_quant's vector kernels: batches of blocks, their bytes, and one pass of the
// transform. The results, bit for bit, are those of dct_quant_block.h.
#if defined(TUCKFOLD_CODEC_DCT_QUANT_BATCH_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TUCKFOLD_CODEC_DCT_QUANT_BATCH_INL_H
#undef TUCKFOLD_CODEC_DCT_QUANT_BATCH_INL_H
#else
#define TUCKFOLD_CODEC_DCT_QUANT_BATCH_INL_H
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/stream_cpu-inl.h"
#include "codec/blocks/nan_cpu-inl.h"
#include "codec/dct_quant/dct_quant.h"

HWY_BEFORE_NAMESPACE();
namespace tuckfold::dct_quant::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using tuckfold::HWY_NAMESPACE::canonical;

constexpr int kBatchBlocks = 32;  // blocks worked on at a time

// The addresses of a batch's blocks: rows of eight values, `row` apart.
template <class Float>
struct Batch {
  Float* at[kBatchBlocks];
  std::int64_t row = 0;
  int count = 0;
};

// ---- bytes --------------------------------------------------------------------------------------

HWY_INLINE std::uint64_t get64(const std::uint8_t* from) {
  std::uint64_t value;
  std::memcpy(&value, from, 8);
  return value;
}

HWY_INLINE void put64(std::uint8_t* to, std::uint64_t value) { std::memcpy(to, &value, 8); }

// A block that is not finite.
inline void put_mark(const Form& form, std::uint8_t* to) {
  std::memset(to, 0, static_cast<std::size_t>(form.bytes));
  const std::uint16_t mark = kNotFinite;
  std::memcpy(to, &mark, sizeof(mark));
}

// Copies bytes from cache to the output; with non-temporal stores if `stream`.
HWY_INLINE void put_bytes(std::uint8_t* to, const std::uint8_t* from, std::size_t bytes,
                          bool stream) {
  if (stream) {
    tuckfold::HWY_NAMESPACE::stream_lines(reinterpret_cast<char*>(to),
                                          reinterpret_cast<const char*>(from), bytes);
  } else {
    std::memcpy(to, from, bytes);
  }
}

// ---- transform ----------------------------------------------------------------------------------

// As forward_column_8 and inverse_column_8 of dct_chop, on eight vectors.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void forward_pass(D d, const V* x, V* y) {
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

// The factors of a pass back, for kernels that keep them in registers.
template <class V>
struct Factors {
  V ratio, odd[4][4];
  V one;
};

template <class D, class V = hn::Vec<D>>
HWY_INLINE Factors<V> factors_of(D d) {
  Factors<V> factors;
  factors.ratio = hn::Set(d, dct_chop::kRatio);
  factors.one = hn::Set(d, 1.0f);
  for (int i = 0; i < 4; ++i) {
    for (int j = 1; j < 4; ++j) factors.odd[i][j] = hn::Set(d, dct_chop::kOdd[i][j]);
  }
  return factors;
}

// What a pass back adds up, and subtracts for the values of the other half.
template <class V>
HWY_INLINE void even_parts(V ratio, const V* y, V* even) {
  const V p = hn::Add(y[0], y[4]), q = hn::Sub(y[0], y[4]);
  const V a = hn::MulAdd(ratio, y[6], y[2]), b = hn::MulSub(ratio, y[2], y[6]);
  even[0] = hn::Add(p, a);
  even[1] = hn::Add(q, b);
  even[2] = hn::Sub(q, b);
  even[3] = hn::Sub(p, a);
}
template <class V, class Factor>
HWY_INLINE V odd_part(const Factor& factor, const V* y, int j) {
  V odd = j == 0 ? y[1] : hn::Mul(y[1], factor(0, j));
  for (int u = 3; u < 8; u += 2) {
    odd = j == 0 ? hn::Add(odd, y[u]) : hn::MulAdd(y[u], factor(u / 2, j), odd);
  }
  return odd;
}

// kMultiply: some of the sums are products with one, for units that multiply and wait otherwise.
template <bool kMultiply = false, class V>
HWY_INLINE void inverse_pass(const Factors<V>& factors, const V* y, V* x) {
  V even[4];
  even_parts(factors.ratio, y, even);
  const auto factor = [&](int u, int j) HWY_ATTR { return factors.odd[u][j]; };
  for (int j = 0; j < 4; ++j) {
    const V odd = odd_part(factor, y, j);
    x[j] = kMultiply ? hn::MulAdd(even[j], factors.one, odd) : hn::Add(even[j], odd);
    x[7 - j] = hn::Sub(even[j], odd);
  }
}
template <class D, class V = hn::Vec<D>>
HWY_INLINE void inverse_pass(D d, const V* y, V* x) {
  inverse_pass(factors_of(d), y, x);
}

}  // namespace tuckfold::dct_quant::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
