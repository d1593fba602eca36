// Products of small matrices: blocks of kRows x kVectors vectors in registers, a panel of b in cache.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "structured/tile/product_cpu.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>

#include "base/target.h"
#include "structured/tile/vectors_cpu-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tuckfold::structured::HWY_NAMESPACE {

constexpr int kRows = 6;
constexpr int kVectors = HWY_TARGET <= HWY_AVX3 ? 4 : 2;  // 32 registers, or 16
constexpr std::int64_t kDepth = 256;                      // rows of a panel

// Fewer columns than a vector has lanes, by way of a copy: masked loads read past the end on some
// targets.
template <class T>
HWY_INLINE Vec<T> load_some(const T* at, std::int64_t count) {
  alignas(64) T copy[kLanes] = {};
  std::copy_n(at, count, copy);
  return hn::Load(Tag<T>(), copy);
}
template <class T>
HWY_INLINE void store_some(Vec<T> v, T* at, std::int64_t count) {
  alignas(64) T copy[kLanes];
  hn::Store(v, Tag<T>(), copy);
  std::copy_n(copy, count, at);
}

// kM rows and kN vectors of c; where kN is 0, its last `tail` columns, and rows of b are padded.
template <class T, int kM, int kN>
HWY_INLINE void block(std::int64_t k, Strided<T> a, const T* b, std::int64_t b_row, T* c,
                      std::int64_t c_row, bool add, std::int64_t tail) {
  const Tag<T> d;
  constexpr int kCols = kN == 0 ? 1 : kN;
  Vec<T> sums[kM][kCols];
  for (int i = 0; i < kM; ++i) {
    for (int j = 0; j < kCols; ++j) {
      const T* at = c + i * c_row + j * width<T>();
      if (!add) {
        sums[i][j] = hn::Zero(d);
      } else {
        sums[i][j] = kN == 0 ? load_some(at, tail) : hn::LoadU(d, at);
      }
    }
  }
  for (std::int64_t p = 0; p < k; ++p) {
    Vec<T> right[kCols];
    for (int j = 0; j < kCols; ++j) right[j] = hn::LoadU(d, b + p * b_row + j * width<T>());
    for (int i = 0; i < kM; ++i) {
      const auto left = hn::Set(d, a.at[i * a.row + p * a.col]);
      for (int j = 0; j < kCols; ++j) sums[i][j] = hn::MulAdd(left, right[j], sums[i][j]);
    }
  }
  for (int i = 0; i < kM; ++i) {
    for (int j = 0; j < kCols; ++j) {
      T* at = c + i * c_row + j * width<T>();
      if (kN == 0) {
        store_some<T>(sums[i][j], at, tail);
      } else {
        hn::StoreU(sums[i][j], d, at);
      }
    }
  }
}

// All rows of kN vectors of c.
template <class T, int kN>
void column(std::int64_t m, std::int64_t k, Strided<T> a, const T* b, std::int64_t b_row, T* c,
            std::int64_t c_row, bool add, std::int64_t tail = 0) {
  std::int64_t left = m;
  const auto next = [&](std::int64_t rows) {
    a.at += rows * a.row;
    c += rows * c_row;
  };
  for (; left >= kRows; left -= kRows) {
    block<T, kRows, kN>(k, a, b, b_row, c, c_row, add, tail);
    next(kRows);
  }
  for (; left >= 2; left -= 2) {
    block<T, 2, kN>(k, a, b, b_row, c, c_row, add, tail);
    next(2);
  }
  if (left > 0) block<T, 1, kN>(k, a, b, b_row, c, c_row, add, tail);
}

template <class T>
void product(const Product<T>& job) {
  if (job.k == 0 && !job.add) {
    for (std::int64_t i = 0; i < job.m; ++i) std::fill_n(job.c + i * job.c_row, job.n, T{0});
  }
  constexpr std::int64_t kPanel = kVectors * width<T>();
  alignas(64) T panel[kDepth * kPanel];
  // Rows of b that are far apart share few places of the cache; copied, each panel has its own.
  const bool copies = job.m >= 4 * kRows && job.b_row > kPanel;
  for (std::int64_t p = 0; p < job.k; p += kDepth) {
    const std::int64_t depth = std::min(kDepth, job.k - p);
    const Strided<T> a{job.a.at + p * job.a.col, job.a.row, job.a.col};
    const T* b = job.b + p * job.b_row;
    const bool add = job.add || p > 0;
    std::int64_t j = 0;
    for (; j + kPanel <= job.n; j += kPanel) {
      if (copies) {
        for (std::int64_t r = 0; r < depth; ++r) {
          std::copy_n(b + r * job.b_row + j, kPanel, panel + r * kPanel);
        }
        column<T, kVectors>(job.m, depth, a, panel, kPanel, job.c + j, job.c_row, add);
      } else {
        column<T, kVectors>(job.m, depth, a, b + j, job.b_row, job.c + j, job.c_row, add);
      }
    }
    for (; j + width<T>() <= job.n; j += width<T>()) {
      column<T, 1>(job.m, depth, a, b + j, job.b_row, job.c + j, job.c_row, add);
    }
    if (const std::int64_t tail = job.n - j; tail > 0) {
      std::fill_n(panel, depth * width<T>(), T{0});
      for (std::int64_t r = 0; r < depth; ++r) {
        std::copy_n(b + r * job.b_row + j, tail, panel + r * width<T>());
      }
      column<T, 0>(job.m, depth, a, panel, width<T>(), job.c + j, job.c_row, add, tail);
    }
  }
}

void product_f32(const Product<float>& job) { product(job); }
void product_f64(const Product<double>& job) { product(job); }

}  // namespace tuckfold::structured::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tuckfold::structured {

HWY_EXPORT(product_f32);
HWY_EXPORT(product_f64);

void multiply(const Product<float>& job) noexcept {
  choose_cpu_target();
  HWY_DYNAMIC_DISPATCH(product_f32)(job);
}
void multiply(const Product<double>& job) noexcept {
  choose_cpu_target();
  HWY_DYNAMIC_DISPATCH(product_f64)(job);
}

}  // namespace tuckfold::structured
#endif
