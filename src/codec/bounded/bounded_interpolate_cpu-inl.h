// The predictor `interpolate` of codes=bytes: first values on a coarse grid of every 32nd row and
// column, then those half way between, repeatedly. Each is predicted from decoded values, so that a
// smooth field has codes of 0.
#if defined(TUCKFOLD_CODEC_BOUNDED_INTERPOLATE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TUCKFOLD_CODEC_BOUNDED_INTERPOLATE_INL_H
#undef TUCKFOLD_CODEC_BOUNDED_INTERPOLATE_INL_H
#else
#define TUCKFOLD_CODEC_BOUNDED_INTERPOLATE_INL_H
#endif

#include <algorithm>
#include <cstdint>

#include "codec/bounded/bounded_buffers.h"
#include "codec/bounded/bounded_cpu-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tuckfold::bounded::HWY_NAMESPACE {

inline std::uint32_t unsigned_of(std::int32_t code) { return static_cast<std::uint32_t>(code); }
inline std::int32_t less(std::int32_t a, std::int32_t b) {  // wraps, as corrupt bytes may make it
  return static_cast<std::int32_t>(unsigned_of(a) - unsigned_of(b));
}
inline std::int32_t plus(std::int32_t a, std::int32_t b) {
  return static_cast<std::int32_t>(unsigned_of(a) + unsigned_of(b));
}

// Tiles of one size side by side: the first row of each, then the second of each, and so on.
struct Band {
  std::int64_t tiles, rows, cols;

  std::int64_t width() const { return tiles * cols; }
  std::int64_t elems() const { return rows * width(); }
  // The index of value i if tiles are contiguous, one after the other.
  std::int64_t in_tiles(std::int64_t i) const {
    const std::int64_t r = i / width(), x = i % width();
    return (x / cols * rows + r) * cols + x % cols;
  }
};

// Codes of values. mark(i) is called for a value whose code would exceed the bound; it gets the
// code before it.
template <class Real, class Mark>
bool whole_codes(DType dtype, const Grid<Real>& grid, const Real* values, std::int64_t count,
                 std::int32_t before, std::int32_t* codes, Mark&& mark) {
  if (quantize_all(dtype, values, count, grid, codes) == count) return false;
  for (std::int64_t i = 0; i < count; ++i) {
    codes[i] = code_of(values[i], grid);
    if (!holds(values[i], rounded(dtype, value_of(codes[i], grid)), grid)) {
      codes[i] = i > 0 ? codes[i - 1] : before;
      mark(i);
    }
  }
  return true;
}

// The same for codes in place; `row` has room for one row of the band.
template <bool kLorenzo2d>
void take_differences(const Band& band, std::int32_t& before, std::int32_t* codes,
                      std::int32_t* row);
template <bool kLorenzo2d>
void sum_differences(const Band& band, std::int32_t& before, std::int32_t* codes,
                     std::int32_t* steps);

constexpr int kLevels = 5;  // from every value to every 32nd

// Every 2^l-th row and column of tiles, for l = 0 … top, where tiles have one value or l is
// kLevels; the first are the tiles themselves.
template <class Real>
struct Pyramid {
  Pyramid(const Band& band, Real* values, PartBuffers<Real>& buffers) : odd(buffers.odd) {
    at[0] = band;
    level[0] = values;
    Real* next = buffers.levels + kSlack;
    for (top = 0; top < kLevels && at[top].rows * at[top].cols > 1; ++top) {
      at[top + 1] = {band.tiles, (at[top].rows + 1) / 2, (at[top].cols + 1) / 2};
      level[top + 1] = next;
      next += at[top + 1].elems();
    }
  }
  Real* row(int l, std::int64_t r) { return level[l] + r * at[l].width(); }

  int top;
  Band at[kLevels + 1];
  Real* level[kLevels + 1];
  Real* odd;  // room for every other value of a row
};

// Which values a coder is given: those at begin, begin + 1 … of a row whose tiles have `cols` of
// them each, at columns first, first + step … of the level.
struct Stretch {
  int level;
  std::int64_t row, begin, cols, first, step;
};

// Predictions along a row whose tiles have `cols` known values, of the values half way to the next.
template <class Real>
class Along {
 public:
  explicit Along(std::int64_t cols) : cols_(cols) {
    std::fill_n(kinds_, cols, kFour);
    kinds_[0] = kinds_[std::max<std::int64_t>(cols - 2, 0)] = kTwo;
    kinds_[cols - 1] = kBeyond;
    for (std::int64_t i = cols; i < cols + kSlack; ++i) kinds_[i] = kinds_[i - cols];
  }

  // Makes a coder code `count` values, with predictions requested in rising order.
  template <class Coder>
  HWY_ATTR void run(const Real* known, std::int64_t count, const Stretch& where, Real* values,
                    Coder& coder) const {
    const hn::ScalableTag<Real> d;
    if (cols_ == 1) {
      coder.code(where, count, values,
                 [&](std::int64_t i) HWY_ATTR { return hn::LoadU(d, known + i); });
      return;
    }
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    const std::int64_t advance = lanes % cols_;
    std::int64_t phase = 0;
    coder.code(where, count, values, [&](std::int64_t i) HWY_ATTR {
      const auto far = hn::LoadU(d, known + i - 1), near = hn::LoadU(d, known + i);
      const auto next = hn::LoadU(d, known + i + 1), after = hn::LoadU(d, known + i + 2);
      const std::int64_t at = phase;
      phase += advance;
      if (phase >= cols_) phase -= cols_;
      const auto both = hn::Add(near, next), half = hn::Set(d, Real{0.5});
      const auto four = hn::Mul(hn::Sub(hn::Mul(both, hn::Set(d, Real{9})), hn::Add(far, after)),
                                hn::Set(d, Real{0.0625}));
      if (at > 0 && at + lanes <= cols_ - 2) return four;
      const auto kind = hn::LoadU(d, kinds_ + at);
      const auto beyond = hn::Sub(hn::Mul(near, hn::Set(d, Real{1.5})), hn::Mul(far, half));
      return hn::IfThenElse(
          hn::Eq(kind, hn::Set(d, kFour)), four,
          hn::IfThenElse(hn::Eq(kind, hn::Set(d, kTwo)), hn::Mul(both, half), beyond));
    });
  }

 private:
  static constexpr Real kFour = 0, kTwo = 1, kBeyond = 2;
  std::int64_t cols_;
  alignas(64) Real kinds_[kTileCols / 2 + 1 + kSlack];
};

// Codes row r of a level, which is odd, from the even rows around it.
template <class Real, class Coder>
HWY_ATTR void code_across(Pyramid<Real>& tile, int l, std::int64_t r, Coder& coder) {
  const hn::ScalableTag<Real> d;
  const std::int64_t rows = tile.at[l].rows, width = tile.at[l].width();
  Real* values = tile.row(l, r);
  const auto at = [&](std::int64_t i, std::int64_t down)
                      HWY_ATTR { return hn::LoadU(d, values + i + down * width); };
  const Stretch where{l, r, 0, tile.at[l].cols, 0, 1};
  if (r + 1 == rows && r < 3) {
    coder.code(where, width, values, [&](std::int64_t i) HWY_ATTR { return at(i, -1); });
  } else if (r + 1 == rows) {
    coder.code(where, width, values, [&](std::int64_t i) HWY_ATTR {
      return hn::Sub(hn::Mul(at(i, -1), hn::Set(d, Real{1.5})),
                     hn::Mul(at(i, -3), hn::Set(d, Real{0.5})));
    });
  } else if (r < 3 || r + 3 >= rows) {
    coder.code(where, width, values, [&](std::int64_t i) HWY_ATTR {
      return hn::Mul(hn::Add(at(i, -1), at(i, 1)), hn::Set(d, Real{0.5}));
    });
  } else {
    coder.code(where, width, values, [&](std::int64_t i) HWY_ATTR {
      const auto near = hn::Add(at(i, -1), at(i, 1));
      const auto far = hn::Add(at(i, -3), at(i, 3));
      return hn::Mul(hn::Sub(hn::Mul(near, hn::Set(d, Real{9})), far), hn::Set(d, Real{0.0625}));
    });
  }
}

// Passes all values except the coarsest to a coder, from coarse to fine.
template <class Real, class Coder>
void code_levels(Pyramid<Real>& tile, Coder& coder) {
  Real* __restrict odd = tile.odd;
  for (int l = tile.top; l-- > 0;) {
    const Band &fine = tile.at[l], &coarse = tile.at[l + 1];
    // Tiles of odd width have one known value more than values between, and are processed one by
    // one.
    const std::int64_t count = fine.cols / 2, pieces = fine.cols % 2 == 0 ? 1 : fine.tiles;
    const std::int64_t between = fine.tiles / pieces * count;
    const Along<Real> along(coarse.cols);
    for (std::int64_t r = 0; r < coarse.rows; ++r) {
      for (std::int64_t piece = 0; piece < pieces; ++piece) {
        const Real* known = tile.row(l + 1, r) + piece * coarse.cols;
        Real* __restrict row = tile.row(l, 2 * r) + piece * fine.cols;
        if (between > 0) {
          if (Coder::kEncodes) {
            for (std::int64_t i = 0; i < between; ++i) odd[i] = row[2 * i + 1];
          }
          along.run(known, between, {l, 2 * r, piece * count, count, 1, 2}, odd, coder);
        }
        for (std::int64_t i = 0; i < between; ++i) {
          row[2 * i] = known[i];
          row[2 * i + 1] = odd[i];
        }
        if (fine.cols % 2 != 0) row[2 * between] = known[between];
      }
    }
    for (std::int64_t r = 1; r < fine.rows; r += 2) code_across(tile, l, r, coder);
  }
}

// Replaces values by their decoded values. Values that exceed the bound are marked, and become
// their predictions.
template <class Real>
struct InterpolateEncoder {
  static constexpr bool kEncodes = true;

  DType dtype;
  const Grid<Real>& grid;
  const Band& band;
  std::int32_t* codes;
  std::uint8_t* kept;
  PartBuffers<Real>& buffers;
  bool any_kept = false;

  bool run(Real* values, std::int32_t& before) {
    Pyramid<Real> tile(band, values, buffers);
    for (int l = 1; l <= tile.top; ++l) {
      for (std::int64_t r = 0; r < tile.at[l].rows; ++r) halve(tile, l, r);
    }
    const Band& coarse = tile.at[tile.top];
    Real* coarsest = tile.level[tile.top];
    any_kept =
        whole_codes(dtype, grid, coarsest, coarse.elems(), before, codes, [&](std::int64_t i) {
          mark({tile.top, i / coarse.width(), 0, coarse.cols, 0, 1}, i % coarse.width());
        });
    for (std::int64_t i = 0; i < coarse.elems(); ++i) coarsest[i] = value_of(codes[i], grid);
    take_differences<false>(coarse, before, codes, buffers.row);
    codes += coarse.elems();
    code_levels(tile, *this);
    return any_kept;
  }

  // Rows may be short, so their ends are also coded by vectors, which may read and write back
  // kSlack elements after the row.
  template <class Predict>
  HWY_ATTR void code(const Stretch& where, std::int64_t count, Real* values, Predict&& predict) {
    if (dtype == DType::F16 || dtype == DType::BF16) {
      code_as<true>(where, count, values, predict);
    } else {
      code_as<false>(where, count, values, predict);
    }
  }

 private:
  template <bool kNarrow, class Predict>
  HWY_ATTR void code_as(const Stretch& where, std::int64_t count, Real* values, Predict& predict) {
    const hn::ScalableTag<Real> d;
    const hn::Rebind<std::int32_t, decltype(d)> di;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    const auto inverse = hn::Set(d, grid.inverse), half = hn::Set(d, grid.half);
    const auto bound = hn::Set(d, grid.bound);
    for (std::int64_t i = 0; i < count; i += lanes) {
      const auto v = hn::LoadU(d, values + i), p = predict(i);
      const auto code = nearest_of(d, hn::Mul(hn::Sub(v, p), inverse));
      const auto back = hn::Add(p, hn::Mul(real_of(d, hn::Add(code, code)), half));
      const auto kept_back = kNarrow ? rounded(dtype, d, back) : back;
      const auto good = hn::Le(hn::Abs(hn::Sub(v, kept_back)), bound);
      if (HWY_LIKELY(i + lanes <= count && hn::AllTrue(d, good))) {
        hn::StoreU(back, d, values + i);
        hn::StoreU(code, di, codes + i);
        continue;
      }
      const auto wanted = hn::FirstN(d, static_cast<std::size_t>(std::min(lanes, count - i)));
      const auto same = hn::Add(p, hn::Mul(hn::Zero(d), half));
      hn::StoreU(hn::IfThenElse(wanted, hn::IfThenElse(good, back, same), v), d, values + i);
      hn::StoreU(hn::And(bits_where(d, good), code), di, codes + i);
      std::int32_t bad[kSlack];
      hn::StoreU(bits_where(d, hn::AndNot(good, wanted)), di, bad);
      for (std::int64_t lane = 0; lane < lanes; ++lane) {
        if (bad[lane] != 0) mark(where, i + lane);
      }
    }
    codes += count;
  }

  void mark(const Stretch& where, std::int64_t i) {
    any_kept = true;
    const std::int64_t at = where.begin + i, c = where.first + at % where.cols * where.step;
    kept[(at / where.cols * band.rows + (where.row << where.level)) * band.cols +
         (c << where.level)] = 1;
  }

  static void halve(Pyramid<Real>& tile, int l, std::int64_t r) {
    const Band &fine = tile.at[l - 1], &coarse = tile.at[l];
    const Real* from = tile.row(l - 1, 2 * r);
    Real* __restrict to = tile.row(l, r);
    if (fine.cols % 2 == 0) {
      for (std::int64_t i = 0; i < coarse.width(); ++i) to[i] = from[2 * i];
      return;
    }
    for (std::int64_t t = 0; t < fine.tiles; ++t, from += fine.cols, to += coarse.cols) {
      for (std::int64_t i = 0; i < coarse.cols; ++i) to[i] = from[2 * i];
    }
  }
};

template <class Real>
struct InterpolateDecoder {
  static constexpr bool kEncodes = false;

  const Grid<Real>& grid;
  std::int32_t* codes;
  PartBuffers<Real>& buffers;

  void run(const Band& band, std::int32_t& before, Real* values) {
    Pyramid<Real> tile(band, values, buffers);
    const Band& coarse = tile.at[tile.top];
    sum_differences<false>(coarse, before, codes, buffers.row);
    Real* coarsest = tile.level[tile.top];
    for (std::int64_t i = 0; i < coarse.elems(); ++i) coarsest[i] = value_of(codes[i], grid);
    codes += coarse.elems();
    code_levels(tile, *this);
  }

  template <class Predict>
  HWY_ATTR void code(const Stretch&, std::int64_t count, Real* values, Predict&& predict) {
    const hn::ScalableTag<Real> d;
    const hn::Rebind<std::int32_t, decltype(d)> di;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    const auto half = hn::Set(d, grid.half);
    for (std::int64_t i = 0; i < count; i += lanes) {
      const auto code = hn::LoadU(di, codes + i);
      const auto back = hn::Add(predict(i), hn::Mul(real_of(d, hn::Add(code, code)), half));
      if (HWY_LIKELY(i + lanes <= count)) {
        hn::StoreU(back, d, values + i);
      } else {
        const auto wanted = hn::FirstN(d, static_cast<std::size_t>(count - i));
        hn::StoreU(hn::IfThenElse(wanted, back, hn::LoadU(d, values + i)), d, values + i);
      }
    }
    codes += count;
  }
};

}  // namespace tuckfold::bounded::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
