// The predictors of codes=bytes: a tile's values to small codes and back.
//
//   rows      the code of a value less that of its left neighbour
//   lorenzo   the same, less that of the row above: what a plane through three neighbours misses
//   between   values on a coarse grid of every 32nd row and column first, then those half way
//             between, again and again; each is predicted from values as they will come back, so
//             that a smooth field has codes of 0
#if defined(TUCKFOLD_CODEC_BOUNDED_PREDICT_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TUCKFOLD_CODEC_BOUNDED_PREDICT_INL_H
#undef TUCKFOLD_CODEC_BOUNDED_PREDICT_INL_H
#else
#define TUCKFOLD_CODEC_BOUNDED_PREDICT_INL_H
#endif

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>

#include "codec/bounded_cpu-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tuckfold::bounded::HWY_NAMESPACE {

enum Predictor : std::uint8_t { kRowsPredictor, kLorenzo, kBetween, kLastPredictor = kBetween };

inline std::uint32_t unsigned_of(std::int32_t code) { return static_cast<std::uint32_t>(code); }
inline std::int32_t less(std::int32_t a, std::int32_t b) {  // wraps, as corrupt bytes may make it
  return static_cast<std::int32_t>(unsigned_of(a) - unsigned_of(b));
}
inline std::int32_t plus(std::int32_t a, std::int32_t b) {
  return static_cast<std::int32_t>(unsigned_of(a) + unsigned_of(b));
}

template <class Real>
HWY_ATTR Real largest_finite(const Real* values, std::int64_t count) {
  const hn::ScalableTag<Real> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto most = hn::Set(d, std::numeric_limits<Real>::max());
  auto largest = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto magnitude = hn::Abs(hn::LoadU(d, values + i));
    largest = hn::Max(largest, hn::IfThenElseZero(hn::Le(magnitude, most), magnitude));
  }
  Real result = hn::GetLane(hn::MaxOfLanes(d, largest));
  for (; i < count; ++i) {
    const Real magnitude = values[i] < 0 ? -values[i] : values[i];
    if (magnitude <= std::numeric_limits<Real>::max()) result = std::max(result, magnitude);
  }
  return result;
}

// Values as the tensor's elements: themselves, or narrowed into `buffer`.
template <class Element>
const void* narrow_elements(const float* values, std::int64_t count, void* buffer) {
  auto* __restrict out = static_cast<Element*>(buffer);
  for (std::int64_t i = 0; i < count; ++i) out[i] = narrowed(values[i], Element{});
  return buffer;
}
inline const void* as_elements(DType dtype, const float* values, std::int64_t count, void* buffer) {
  switch (dtype) {
    case DType::F16: return narrow_elements<F16>(values, count, buffer);
    case DType::BF16: return narrow_elements<BF16>(values, count, buffer);
    case DType::U8: return narrow_elements<std::uint8_t>(values, count, buffer);
    default: return values;
  }
}
inline const void* as_elements(DType, const double* values, std::int64_t, void*) { return values; }

// ---- whole codes: rows and lorenzo --------------------------------------------------------------

// Codes of values; one that does not hold is marked and gets the code before it.
template <class Real>
bool whole_codes(DType dtype, const Grid<Real>& grid, const Real* values, std::int64_t count,
                 std::int32_t before, std::int32_t* codes, std::uint8_t* kept) {
  if (quantize_all(dtype, values, count, grid, codes)) return false;
  for (std::int64_t i = 0; i < count; ++i) {
    codes[i] = code_of(values[i], grid);
    if (!holds(values[i], rounded(dtype, value_of(codes[i], grid)), grid)) {
      codes[i] = i > 0 ? codes[i - 1] : before;
      kept[i] = 1;
    }
  }
  return true;
}

// Codes to differences and back, in place. `before` is the first code of the tile before, and of
// this one afterwards.
template <bool kLorenzo2d>
void take_differences(std::int64_t rows, std::int64_t cols, std::int32_t& before,
                      std::int32_t* codes) {
  std::int32_t row[kTileCols], above[kTileCols] = {};
  const std::int32_t first = codes[0];
  for (std::int64_t r = rows; r-- > 0;) {
    std::int32_t* to = codes + r * cols;
    const std::int32_t* from = r > 0 ? to - cols : above;
    std::copy_n(to, cols, row);
    to[0] = less(row[0], r > 0 ? from[0] : before);
    for (std::int64_t i = 1; i < cols; ++i) {
      to[i] = less(row[i], row[i - 1]);
      if constexpr (kLorenzo2d) to[i] = less(to[i], less(from[i], from[i - 1]));
    }
  }
  before = first;
}

template <bool kLorenzo2d>
void sum_differences(std::int64_t rows, std::int64_t cols, std::int32_t& before,
                     std::int32_t* codes) {
  std::int32_t steps[kTileCols] = {};  // of the row above
  std::int32_t start = before;
  for (std::int64_t r = 0; r < rows; ++r) {
    std::int32_t* row = codes + r * cols;
    if constexpr (kLorenzo2d) {
      for (std::int64_t i = 1; i < cols; ++i) row[i] = steps[i] = plus(row[i], steps[i]);
    }
    std::int32_t sum = start = row[0] = plus(row[0], start);
    for (std::int64_t i = 1; i < cols; ++i) row[i] = sum = plus(sum, row[i]);
    if (r == 0) before = start;
  }
}

// ---- between ------------------------------------------------------------------------------------

constexpr int kLevels = 5;           // from every value to every 32nd
constexpr std::int64_t kSlack = 16;  // elements behind a row that kernels may touch

// Every 2^l-th row and column of a tile, for l = 0 … kLevels; the first are the tile itself.
template <class Real>
struct Pyramid {
  Pyramid(std::int64_t tile_rows, std::int64_t tile_cols, Real* values) {
    rows[0] = tile_rows;
    cols[0] = tile_cols;
    level[0] = values;
    Real* at = storage;
    for (int l = 1; l <= kLevels; ++l) {
      rows[l] = (rows[l - 1] + 1) / 2;
      cols[l] = (cols[l - 1] + 1) / 2;
      level[l] = at;
      at += rows[l] * cols[l];
    }
  }
  Real* row(int l, std::int64_t r) { return level[l] + r * cols[l]; }

  std::int64_t rows[kLevels + 1], cols[kLevels + 1];
  Real* level[kLevels + 1];
  alignas(64) Real storage[kTileRows * kTileCols / 2 + kSlack];
};

// Predictions of `count` values half way between `known` ones, of which there are at least as many.
template <class Real>
void predict_along(const Real* known, std::int64_t known_count, std::int64_t count,
                   Real* __restrict out) {
  const std::int64_t inside = std::min(count, known_count - 1);
  const std::int64_t with_four = std::min(inside, known_count - 2);
  if (inside > 0) out[0] = between(known[0], known[1]);
  for (std::int64_t i = 1; i < with_four; ++i) {
    out[i] = between(known[i - 1], known[i], known[i + 1], known[i + 2]);
  }
  if (inside > 1 && inside == known_count - 1) {
    out[inside - 1] = between(known[inside - 1], known[inside]);
  }
  if (count > inside) {
    out[inside] = inside > 0 ? beyond(known[inside - 1], known[inside]) : known[inside];
  }
}

// Predictions of row r, odd, from the even rows about it.
template <class Real>
void predict_across(Pyramid<Real>& tile, int l, std::int64_t r, Real* __restrict out) {
  const std::int64_t rows = tile.rows[l], cols = tile.cols[l];
  const Real* above = tile.row(l, r - 1);
  const Real* far_above = r >= 3 ? tile.row(l, r - 3) : nullptr;
  const Real* below = r + 1 < rows ? tile.row(l, r + 1) : nullptr;
  const Real* far_below = r + 3 < rows ? tile.row(l, r + 3) : nullptr;
  if (below == nullptr && far_above == nullptr) {
    std::copy_n(above, cols, out);
  } else if (below == nullptr) {
    for (std::int64_t i = 0; i < cols; ++i) out[i] = beyond(far_above[i], above[i]);
  } else if (far_above == nullptr || far_below == nullptr) {
    for (std::int64_t i = 0; i < cols; ++i) out[i] = between(above[i], below[i]);
  } else {
    for (std::int64_t i = 0; i < cols; ++i) {
      out[i] = between(far_above[i], above[i], below[i], far_below[i]);
    }
  }
}

// Codes of values that have predictions; values become what will come back. Returns whether some do
// not hold; they are marked, and come back as predicted. Rows are short, so that their ends are
// worth a vector too: it may read, and write back, kSlack elements behind them.
template <class Real>
HWY_ATTR bool refine(DType dtype, const Grid<Real>& grid, const Real* predicted, std::int64_t count,
                     Real* values, std::int32_t* codes, std::int32_t* missed) {
  const hn::ScalableTag<Real> d;
  const hn::Rebind<std::int32_t, decltype(d)> di;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto inverse = hn::Set(d, grid.inverse), half = hn::Set(d, grid.half);
  const auto bound = hn::Set(d, grid.bound);
  auto any = hn::Zero(di);
  for (std::int64_t i = 0; i < count; i += lanes) {
    const auto wanted = hn::FirstN(d, static_cast<std::size_t>(std::min(lanes, count - i)));
    const auto v = hn::LoadU(d, values + i), p = hn::LoadU(d, predicted + i);
    const auto code = nearest_of(d, hn::Mul(hn::Sub(v, p), inverse));
    const auto back = hn::Add(p, hn::Mul(real_of(d, hn::Add(code, code)), half));
    const auto good = hn::Le(hn::Abs(hn::Sub(v, rounded(dtype, d, back))), bound);
    const auto same = hn::Add(p, hn::Mul(hn::Zero(d), half));
    const auto result = hn::IfThenElse(good, back, same);
    hn::StoreU(hn::IfThenElse(wanted, result, v), d, values + i);
    const auto bad = bits_where(d, hn::AndNot(good, wanted));
    hn::StoreU(hn::And(bits_where(d, good), code), di, codes + i);
    hn::StoreU(bad, di, missed + i);
    any = hn::Or(any, bad);
  }
  return !hn::AllTrue(di, hn::Eq(any, hn::Zero(di)));
}

// Visits a tile's values from coarse to fine: visit(predictions, count, values, level, row, first
// column, step between columns); `values` are read and written.
template <class Real, class Visit>
void for_each_between(Pyramid<Real>& tile, bool encode, Visit&& visit) {
  alignas(64) Real predicted[kTileCols + kSlack] = {}, odd[kTileCols + kSlack] = {};
  for (int l = kLevels - 1; l >= 0; --l) {
    const std::int64_t count = tile.cols[l] / 2, known_count = tile.cols[l + 1];
    for (std::int64_t r = 0; r < tile.rows[l + 1]; ++r) {
      const Real* known = tile.row(l + 1, r);
      Real* row = tile.row(l, 2 * r);
      if (count > 0) {
        predict_along(known, known_count, count, predicted);
        if (encode) {
          for (std::int64_t i = 0; i < count; ++i) odd[i] = row[2 * i + 1];
        }
        visit(predicted, count, odd, l, 2 * r, 1, 2);
      }
      for (std::int64_t i = 0; i < count; ++i) {
        row[2 * i] = known[i];
        row[2 * i + 1] = odd[i];
      }
      if (known_count > count) row[2 * count] = known[count];
    }
    for (std::int64_t r = 1; r < tile.rows[l]; r += 2) {
      predict_across(tile, l, r, predicted);
      visit(predicted, tile.cols[l], tile.row(l, r), l, r, 0, 1);
    }
  }
}

template <class Real>
bool predict_between(DType dtype, const Grid<Real>& grid, std::int64_t rows, std::int64_t cols,
                     Real* values, std::int32_t& before, std::int32_t* codes, std::uint8_t* kept) {
  Pyramid<Real> tile(rows, cols, values);
  for (int l = 1; l <= kLevels; ++l) {
    for (std::int64_t r = 0; r < tile.rows[l]; ++r) {
      const Real* from = tile.row(l - 1, 2 * r);
      Real* to = tile.row(l, r);
      for (std::int64_t i = 0; i < tile.cols[l]; ++i) to[i] = from[2 * i];
    }
  }
  bool any_kept = false;
  const auto mark = [&](const auto* missed, std::int64_t count, int l, std::int64_t r,
                        std::int64_t first, std::int64_t step) {
    any_kept = true;
    for (std::int64_t i = 0; i < count; ++i) {
      if (missed[i] != 0) kept[(r << l) * cols + ((first + i * step) << l)] = 1;
    }
  };
  std::int32_t
      missed[kTileCols + kSlack];  // as wide as a value, so that loops have one vector for each
  const std::int64_t coarse_rows = tile.rows[kLevels], coarse_cols = tile.cols[kLevels];
  const std::int64_t coarse = coarse_rows * coarse_cols;
  std::uint8_t missed_coarse[kTileCols] = {};
  if (whole_codes(dtype, grid, tile.level[kLevels], coarse, before, codes, missed_coarse)) {
    for (std::int64_t r = 0; r < coarse_rows; ++r) {
      mark(missed_coarse + r * coarse_cols, coarse_cols, kLevels, r, 0, 1);
    }
  }
  for (std::int64_t i = 0; i < coarse; ++i) tile.level[kLevels][i] = value_of(codes[i], grid);
  take_differences<false>(coarse_rows, coarse_cols, before, codes);
  codes += coarse;
  for_each_between(tile, true,
                   [&](const Real* predicted, std::int64_t count, Real* some, int l, std::int64_t r,
                       std::int64_t first, std::int64_t step) {
                     if (refine(dtype, grid, predicted, count, some, codes, missed)) {
                       mark(missed, count, l, r, first, step);
                     }
                     codes += count;
                   });
  return any_kept;
}

template <class Real>
void restore_between(const Grid<Real>& grid, std::int64_t rows, std::int64_t cols,
                     std::int32_t* codes, std::int32_t& before, Real* values) {
  Pyramid<Real> tile(rows, cols, values);
  const std::int64_t coarse_rows = tile.rows[kLevels], coarse_cols = tile.cols[kLevels];
  const std::int64_t coarse = coarse_rows * coarse_cols;
  sum_differences<false>(coarse_rows, coarse_cols, before, codes);
  for (std::int64_t i = 0; i < coarse; ++i) tile.level[kLevels][i] = value_of(codes[i], grid);
  codes += coarse;
  for_each_between(tile, false,
                   [&](const Real* predicted, std::int64_t count, Real* some, int, std::int64_t,
                       std::int64_t, std::int64_t) {
                     for (std::int64_t i = 0; i < count; ++i) {
                       some[i] = moved(predicted[i], codes[i], grid);
                     }
                     codes += count;
                   });
}

// ---- a tile -------------------------------------------------------------------------------------

// Returns whether some values do not hold; they are marked. `values` may change.
template <class Real>
bool predict_tile(Predictor predictor, DType dtype, const Grid<Real>& grid, std::int64_t rows,
                  std::int64_t cols, Real* values, std::int32_t& before, std::int32_t* codes,
                  std::uint8_t* kept) {
  if (predictor == kBetween) {
    return predict_between(dtype, grid, rows, cols, values, before, codes, kept);
  }
  const bool any_kept = whole_codes(dtype, grid, values, rows * cols, before, codes, kept);
  (predictor == kLorenzo ? take_differences<true> : take_differences<false>)(rows, cols, before,
                                                                             codes);
  return any_kept;
}

template <class Real>
void restore_tile(Predictor predictor, const Grid<Real>& grid, std::int64_t rows, std::int64_t cols,
                  std::int32_t* codes, std::int32_t& before, Real* values) {
  if (predictor == kBetween) return restore_between(grid, rows, cols, codes, before, values);
  (predictor == kLorenzo ? sum_differences<true> : sum_differences<false>)(rows, cols, before,
                                                                           codes);
  for (std::int64_t i = 0; i < rows * cols; ++i) values[i] = value_of(codes[i], grid);
}

// ---- which predictor ----------------------------------------------------------------------------

// Counts what codes a few rows would have, and estimates the bits an entropy coder spends on them.
// All in whole numbers, so that every target chooses alike.
class Choice {
 public:
  template <class Real>
  Choice(DType dtype, const Grid<Real>& grid) : smooth_(dtype != DType::U8 && !grid.exact_zero) {}

  template <class Real>
  void look_at(const Real* values, std::int64_t rows, std::int64_t cols, const Grid<Real>& grid) {
    std::int32_t row[kTileCols], above[kTileCols], off[kTileCols];
    if (rows < 3) {
      codes_in(values, cols, grid, row);
      for (std::int64_t i = 2; i + 1 < cols; i += 2) {
        const std::int32_t step = less(row[i], row[i - 1]);
        count(kRowsPredictor, step);
        count(kLorenzo, step);
        const Real middle = between(values[i - 1], values[i + 1]);
        if (smooth_) count(kBetween, code_in(values[i] - middle, grid));
      }
      return;
    }
    for (std::int64_t r = rows > 12 ? 9 : 1; r + 1 < rows; r += 16) {
      const Real* v = values + r * cols;
      codes_in(v, cols, grid, row);
      codes_in(v - cols, cols, grid, above);
      if (smooth_) {
        Real missed[kTileCols];
        const std::int64_t far = r >= 3 && r + 3 < rows ? 3 * cols : 0;
        for (std::int64_t i = 0; i < cols; ++i) {
          missed[i] = v[i] - (far == 0 ? between(v[i - cols], v[i + cols])
                                       : between(v[i - far], v[i - cols], v[i + cols], v[i + far]));
        }
        codes_in(missed, cols, grid, off);
      }
      for (std::int64_t i = 1; i < cols; ++i) {
        const std::int32_t step = less(row[i], row[i - 1]);
        count(kRowsPredictor, step);
        count(kLorenzo, less(step, less(above[i], above[i - 1])));
        if (smooth_) count(kBetween, off[i]);
      }
    }
  }

  Predictor best() const {
    Predictor best = kRowsPredictor;
    std::uint64_t least = cost(best);
    for (const Predictor other : {kLorenzo, kBetween}) {
      if (other == kBetween && !smooth_) continue;
      const std::uint64_t bits = cost(other);
      if (bits < least) best = other;
      least = std::min(least, bits);
    }
    return best;
  }

 private:
  // A code, or one that no coder likes for what is not finite.
  template <class Real>
  static std::int32_t code_in(Real value, const Grid<Real>& grid) {
    const Real scaled = value * grid.inverse;
    return (scaled < 0 ? -scaled : scaled) <= kMaxCode<Real> ? nearest(scaled) : 1 << 30;
  }
  template <class Real>
  static void codes_in(const Real* values, std::int64_t count, const Grid<Real>& grid,
                       std::int32_t* __restrict codes) {
    for (std::int64_t i = 0; i < count; ++i) codes[i] = code_in(values[i], grid);
  }
  void count(Predictor predictor, std::int32_t code) {
    const std::uint32_t coded = zigzag(unsigned_of(code));
    ++counts_[predictor][std::min(coded, 255u)];
    if (coded >= 255) extra_[predictor] += static_cast<unsigned>(std::bit_width(coded)) * 256;
  }
  // 256 * log2, with a line between powers of two.
  static std::uint64_t log2_of(std::uint32_t number) {
    const auto power = static_cast<unsigned>(std::bit_width(number)) - 1;
    return power * 256 + ((std::uint64_t{number} << 8 >> power) & 255);
  }
  std::uint64_t cost(Predictor predictor) const {
    std::uint64_t bits = extra_[predictor];
    std::uint32_t total = 0;
    for (const std::uint32_t number : counts_[predictor]) {
      if (number > 0) bits -= number * log2_of(number);
      total += number;
    }
    return total > 0 ? bits + total * log2_of(total) : 0;
  }

  bool smooth_;
  std::uint32_t counts_[3][256] = {};
  std::uint64_t extra_[3] = {};
};

}  // namespace tuckfold::bounded::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
