// Loops over tiles: transposing, scaling, sums over lanes, Hadamard and Fourier transforms.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "structured/tile/tile_cpu.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>

#include "base/target.h"
#include "structured/tile/vectors_cpu-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tuckfold::structured::HWY_NAMESPACE {

// A square of as many rows as a vector has lanes. A round takes the lowest bit of a register's number to
// the lanes and that of a lane's to the registers; after all rounds each has the other's.
template <class T>
HWY_INLINE void transpose_square(const T* in, std::int64_t in_row, T* out, std::int64_t out_row) {
  const Tag<T> d;
  constexpr int kSide = static_cast<int>(width<T>());
  Vec<T> v[kSide], next[kSide];
  for (int i = 0; i < kSide; ++i) v[i] = hn::LoadU(d, in + i * in_row);
#if HWY_TARGET != HWY_SCALAR
  for (int round = kSide; round > 1; round /= 2) {
    for (int i = 0; i < kSide / 2; ++i) {
      next[i] = hn::ConcatEven(d, v[2 * i + 1], v[2 * i]);
      next[i + kSide / 2] = hn::ConcatOdd(d, v[2 * i + 1], v[2 * i]);
    }
    for (int i = 0; i < kSide; ++i) v[i] = next[i];
  }
#else
  static_cast<void>(next);
#endif
  for (int i = 0; i < kSide; ++i) hn::StoreU(v[i], d, out + i * out_row);
}

template <class T>
void transposed(const T* in, std::int64_t in_row, std::int64_t rows, std::int64_t cols, T* out,
                std::int64_t out_row) {
  constexpr std::int64_t kSide = width<T>();
  const std::int64_t whole_rows = rows / kSide * kSide, whole_cols = cols / kSide * kSide;
  for (std::int64_t r = 0; r < whole_rows; r += kSide) {
    for (std::int64_t c = 0; c < whole_cols; c += kSide) {
      transpose_square(in + r * in_row + c, in_row, out + c * out_row + r, out_row);
    }
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = r < whole_rows ? whole_cols : 0; c < cols; ++c) {
      out[c * out_row + r] = in[r * in_row + c];
    }
  }
}

template <class T>
void scaled_rows(const T* in, const T* scale, std::int64_t rows, std::int64_t lanes, T* out) {
  const Tag<T> d;
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto factor = hn::Set(d, scale[r]);
    for (std::int64_t i = r * lanes; i < (r + 1) * lanes; i += width<T>()) {
      hn::StoreU(hn::Mul(hn::LoadU(d, in + i), factor), d, out + i);
    }
  }
}

template <class T>
void row_dots(const T* a, const T* b, std::int64_t rows, std::int64_t lanes, T* sums) {
  const Tag<T> d;
  for (std::int64_t r = 0; r < rows; ++r) {
    auto sum = hn::Zero(d);
    for (std::int64_t i = r * lanes; i < (r + 1) * lanes; i += width<T>()) {
      const auto left = hn::LoadU(d, a + i);
      sum = b == nullptr ? hn::Add(sum, left) : hn::MulAdd(left, hn::LoadU(d, b + i), sum);
    }
    sums[r] += sum_of<T>(sum);
  }
}

// ---- Hadamard -----------------------------------------------------------------------------------

// Stages of strides s and 2 s at once, then one of stride s where their number is odd.
template <class T>
void hadamard_transform(T* tile, std::int64_t rows, std::int64_t lanes) {
  const Tag<T> d;
  std::int64_t s = 1;
  for (; 4 * s <= rows; s *= 4) {
    for (std::int64_t block = 0; block < rows; block += 4 * s) {
      for (std::int64_t j = block * lanes; j < (block + s) * lanes; j += width<T>()) {
        T *p0 = tile + j, *p1 = p0 + s * lanes, *p2 = p1 + s * lanes, *p3 = p2 + s * lanes;
        const auto x0 = hn::LoadU(d, p0), x1 = hn::LoadU(d, p1);
        const auto x2 = hn::LoadU(d, p2), x3 = hn::LoadU(d, p3);
        const auto a = hn::Add(x0, x1), b = hn::Sub(x0, x1);
        const auto c = hn::Add(x2, x3), e = hn::Sub(x2, x3);
        hn::StoreU(hn::Add(a, c), d, p0);
        hn::StoreU(hn::Add(b, e), d, p1);
        hn::StoreU(hn::Sub(a, c), d, p2);
        hn::StoreU(hn::Sub(b, e), d, p3);
      }
    }
  }
  if (2 * s > rows) return;
  for (std::int64_t j = 0; j < s * lanes; j += width<T>()) {
    const auto x0 = hn::LoadU(d, tile + j), x1 = hn::LoadU(d, tile + j + s * lanes);
    hn::StoreU(hn::Add(x0, x1), d, tile + j);
    hn::StoreU(hn::Sub(x0, x1), d, tile + j + s * lanes);
  }
}

// ---- Fourier ------------------------------------------------------------------------------------

// Decimation in frequency: strides rows / 2 … 1. Backwards it is the inverse: decimation in time, with
// conjugate roots, of strides 1 … rows / 2.
template <class T, bool kInverse>
void fft_stage(T* tile, std::int64_t rows, std::int64_t s, std::int64_t lanes, const T* roots) {
  const Tag<T> d;
  const std::int64_t half = lanes / 2, step = rows / (2 * s);
  for (std::int64_t j = 0; j < s; ++j) {
    const auto re = hn::Set(d, roots[2 * j * step]);
    const auto im = hn::Set(d, kInverse ? -roots[2 * j * step + 1] : roots[2 * j * step + 1]);
    for (std::int64_t block = 0; block < rows; block += 2 * s) {
      T *p = tile + (block + j) * lanes, *q = p + s * lanes;
      for (std::int64_t i = 0; i < half; i += width<T>()) {
        const auto a = hn::LoadU(d, p + i), ai = hn::LoadU(d, p + half + i);
        auto b = hn::LoadU(d, q + i), bi = hn::LoadU(d, q + half + i);
        if constexpr (kInverse) {
          const auto turned = hn::NegMulAdd(im, bi, hn::Mul(re, b));
          bi = hn::MulAdd(im, b, hn::Mul(re, bi));
          b = turned;
          hn::StoreU(hn::Sub(a, b), d, q + i);
          hn::StoreU(hn::Sub(ai, bi), d, q + half + i);
        } else {
          const auto c = hn::Sub(a, b), ci = hn::Sub(ai, bi);
          hn::StoreU(hn::NegMulAdd(im, ci, hn::Mul(re, c)), d, q + i);
          hn::StoreU(hn::MulAdd(im, c, hn::Mul(re, ci)), d, q + half + i);
        }
        hn::StoreU(hn::Add(a, b), d, p + i);
        hn::StoreU(hn::Add(ai, bi), d, p + half + i);
      }
    }
  }
}

template <class T>
void fft_transform(T* tile, std::int64_t rows, std::int64_t lanes, const T* roots) {
  for (std::int64_t s = rows / 2; s >= 1; s /= 2) fft_stage<T, false>(tile, rows, s, lanes, roots);
}
template <class T>
void inverse_fft_transform(T* tile, std::int64_t rows, std::int64_t lanes, const T* roots) {
  for (std::int64_t s = 1; s < rows; s *= 2) fft_stage<T, true>(tile, rows, s, lanes, roots);
}

template <class T>
void scaled_complex(T* tile, const T* spectrum, bool conjugate, std::int64_t rows,
                    std::int64_t lanes) {
  const Tag<T> d;
  const std::int64_t half = lanes / 2;
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto re = hn::Set(d, spectrum[2 * r]);
    const auto im = hn::Set(d, conjugate ? -spectrum[2 * r + 1] : spectrum[2 * r + 1]);
    T* p = tile + r * lanes;
    for (std::int64_t i = 0; i < half; i += width<T>()) {
      const auto a = hn::LoadU(d, p + i), b = hn::LoadU(d, p + half + i);
      hn::StoreU(hn::NegMulAdd(im, b, hn::Mul(re, a)), d, p + i);
      hn::StoreU(hn::MulAdd(im, a, hn::Mul(re, b)), d, p + half + i);
    }
  }
}

template <class T>
void complex_dots(const T* a, const T* b, std::int64_t rows, std::int64_t lanes, T* sums) {
  const Tag<T> d;
  const std::int64_t half = lanes / 2;
  for (std::int64_t r = 0; r < rows; ++r, a += lanes, b += lanes) {
    auto re = hn::Zero(d), im = hn::Zero(d);
    for (std::int64_t i = 0; i < half; i += width<T>()) {
      const auto ar = hn::LoadU(d, a + i), ai = hn::LoadU(d, a + half + i);
      const auto br = hn::LoadU(d, b + i), bi = hn::LoadU(d, b + half + i);
      re = hn::MulAdd(ar, br, hn::MulAdd(ai, bi, re));
      im = hn::MulAdd(ar, bi, hn::NegMulAdd(ai, br, im));
    }
    sums[2 * r] += sum_of<T>(re);
    sums[2 * r + 1] += sum_of<T>(im);
  }
}

template <class T>
constexpr Loops<T> kLoops = {.transpose = &transposed<T>,
                             .scale_rows = &scaled_rows<T>,
                             .add_row_dots = &row_dots<T>,
                             .hadamard = &hadamard_transform<T>,
                             .fft = &fft_transform<T>,
                             .inverse_fft = &inverse_fft_transform<T>,
                             .scale_complex = &scaled_complex<T>,
                             .add_complex_dots = &complex_dots<T>};

const Loops<float>* loops_f32() { return &kLoops<float>; }
const Loops<double>* loops_f64() { return &kLoops<double>; }

}  // namespace tuckfold::structured::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tuckfold::structured {

HWY_EXPORT(loops_f32);
HWY_EXPORT(loops_f64);

template <>
const Loops<float>& loops<float>() noexcept {
  choose_cpu_target();
  return *HWY_DYNAMIC_DISPATCH(loops_f32)();
}
template <>
const Loops<double>& loops<double>() noexcept {
  choose_cpu_target();
  return *HWY_DYNAMIC_DISPATCH(loops_f64)();
}

}  // namespace tuckfold::structured
#endif
