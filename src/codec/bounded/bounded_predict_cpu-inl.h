// The predictors of codes=bytes: the values of tiles to small codes and back.
//
//   rows         the code of a value minus that of its left neighbour
//   lorenzo      the same minus that of the row above: what a plane through three neighbours misses
//   interpolate  see bounded_interpolate_cpu-inl.h
//
// Tiles of one size are processed side by side, so that small tiles have long rows too.
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

#include "codec/bounded/bounded_interpolate_cpu-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tuckfold::bounded::HWY_NAMESPACE {

enum Predictor : std::uint8_t {
  kRowsPredictor,
  kLorenzo,
  kInterpolate,
  kLastPredictor = kInterpolate
};

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
    case DType::U16: return narrow_elements<std::uint16_t>(values, count, buffer);
    default: return values;
  }
}
inline const void* as_elements(DType, const double* values, std::int64_t, void*) { return values; }

// ---- whole codes: rows and lorenzo --------------------------------------------------------------

// Predicts rows of tiles side by side, in place. `before` is the first code of the previous tile,
// and on return that of the last tile.
template <bool kLorenzo2d>
void take_differences(const Band& band, std::int32_t& before, std::int32_t* codes,
                      std::int32_t* __restrict row) {
  const std::int64_t width = band.width(), cols = band.cols;
  const std::int32_t last = codes[width - cols];
  for (std::int64_t r = band.rows; r-- > 0;) {
    std::int32_t* to = codes + r * width;
    const std::int32_t* from = to - width;
    std::copy_n(to, width, row);
    if (kLorenzo2d && r > 0) {
      for (std::int64_t i = 1; i < width; ++i) {
        to[i] = less(less(row[i], row[i - 1]), less(from[i], from[i - 1]));
      }
    } else {
      for (std::int64_t i = 1; i < width; ++i) to[i] = less(row[i], row[i - 1]);
    }
    if (r > 0) {
      for (std::int64_t i = 0; i < width; i += cols) to[i] = less(row[i], from[i]);
    } else {
      for (std::int64_t i = cols; i < width; i += cols) to[i] = less(row[i], row[i - cols]);
      to[0] = less(row[0], before);
    }
  }
  before = last;
}

// The inverse; `steps` has the steps of the row above.
template <bool kLorenzo2d>
void sum_differences(const Band& band, std::int32_t& before, std::int32_t* codes,
                     std::int32_t* __restrict steps) {
  const std::int64_t width = band.width(), cols = band.cols;
  for (std::int64_t r = 0; r < band.rows; ++r) {
    std::int32_t* row = codes + r * width;
    if constexpr (kLorenzo2d) {
      if (r == 0) {
        std::copy_n(row, width, steps);
      } else {
        for (std::int64_t i = 0; i < width; ++i) steps[i] = plus(row[i], steps[i]);
        for (std::int64_t i = 0; i < width; i += cols) steps[i] = row[i];
        std::copy_n(steps, width, row);
      }
    }
    for (std::int64_t tile = 0; tile < width; tile += cols) {
      const std::int32_t start = r > 0 ? row[tile - width] : before;
      std::int32_t sum = row[tile] = plus(row[tile], start);
      if (r == 0) before = sum;
      for (std::int64_t i = tile + 1; i < tile + cols; ++i) row[i] = sum = plus(sum, row[i]);
    }
  }
}

// ---- tiles side by side -------------------------------------------------------------------------

// Returns whether some values exceed the bound; they are marked. May change `values`.
template <class Real>
bool predict_band(Predictor predictor, DType dtype, const Grid<Real>& grid, const Band& band,
                  Real* values, std::int32_t& before, std::int32_t* codes, std::uint8_t* kept,
                  PartBuffers<Real>& buffers) {
  if (predictor == kInterpolate) {
    InterpolateEncoder<Real> encoder{dtype, grid, band, codes, kept, buffers};
    return encoder.run(values, before);
  }
  const bool any_kept = whole_codes(dtype, grid, values, band.elems(), before, codes,
                                    [&](std::int64_t i) { kept[band.in_tiles(i)] = 1; });
  (predictor == kLorenzo ? take_differences<true> : take_differences<false>)(band, before, codes,
                                                                             buffers.row);
  return any_kept;
}

template <class Real>
void restore_band(Predictor predictor, const Grid<Real>& grid, const Band& band,
                  std::int32_t* codes, std::int32_t& before, Real* values,
                  PartBuffers<Real>& buffers) {
  if (predictor == kInterpolate) {
    return InterpolateDecoder<Real>{grid, codes, buffers}.run(band, before, values);
  }
  (predictor == kLorenzo ? sum_differences<true> : sum_differences<false>)(band, before, codes,
                                                                           buffers.row);
  for (std::int64_t i = 0; i < band.elems(); ++i) values[i] = value_of(codes[i], grid);
}

// ---- which predictor ----------------------------------------------------------------------------

// Counts the codes that a few rows would have, and estimates the bits that an entropy coder needs
// for them. Uses integers only, so that every target makes the same choice.
class Choice {
 public:
  template <class Real>
  Choice(DType dtype, const Grid<Real>& grid)
      : smooth_(!has_whole_values(dtype) && !grid.exact_zero) {}

  // Values have kSlack readable elements after them.
  template <class Real>
  void look_at(const Real* values, const Band& band, const Grid<Real>& grid) {
    std::int32_t row[kRoom], above[kRoom] = {}, step[kRoom], bend[kRoom], off[kRoom] = {};
    Real missed[kRoom] = {};
    const std::int64_t width = band.width(), count = std::min(width, kColumns);
    const bool flat = band.rows < 3;
    for (std::int64_t r = flat             ? 0
                          : band.rows > 12 ? 9
                                           : 1;
         flat ? r < 1 : r + 1 < band.rows; r += 16) {
      const Real* v = values + r * width;
      codes_in(v, count, grid, row);
      if (!flat) codes_in(v - width, count, grid, above);
      for (std::int64_t i = 1; i < count; ++i) step[i] = less(row[i], row[i - 1]);
      for (std::int64_t i = 1; i < count; ++i) {
        bend[i] = less(step[i], less(above[i], above[i - 1]));
      }
      if (smooth_) {
        miss(v, count, r, band, missed);
        codes_in(missed, count, grid, off);
      }
      // The first value of a tile has no left neighbour, and the last has no right one.
      for (std::int64_t i = 0; i < count; i += band.cols) step[i] = bend[i] = off[i] = 0;
      for (std::int64_t i = count; i < count + kSlack; ++i) step[i] = bend[i] = off[i] = 0;
      count_codes(step, bend, off, count);
    }
  }

  Predictor best() const {
    const std::uint32_t rows = bits(kRowsPredictor), lorenzo = bits(kLorenzo);
    const bool smooth = smooth_ && bits(kInterpolate) < std::min(rows, lorenzo);
    return smooth ? kInterpolate : lorenzo < rows ? kLorenzo : kRowsPredictor;
  }

 private:
  static constexpr std::int64_t kColumns = 256;  // of a row, at most
  static constexpr std::int64_t kRoom = kColumns + kSlack;

  // The distances of values from the middle of their neighbours above and below, or left and right.
  template <class Real>
  static void miss(const Real* v, std::int64_t count, std::int64_t r, const Band& band,
                   Real* __restrict missed) {
    const std::int64_t width = band.width();
    if (band.rows < 3) {
      for (std::int64_t i = 1; i + 1 < count; ++i)
        missed[i] = v[i] - interpolate(v[i - 1], v[i + 1]);
    } else if (r >= 3 && r + 3 < band.rows) {
      for (std::int64_t i = 0; i < count; ++i) {
        missed[i] =
            v[i] - interpolate(v[i - 3 * width], v[i - width], v[i + width], v[i + 3 * width]);
      }
    } else {
      for (std::int64_t i = 0; i < count; ++i) {
        missed[i] = v[i] - interpolate(v[i - width], v[i + width]);
      }
    }
  }

  // Codes of values; those that are not finite get a code that is expensive for every coder.
  template <class Real>
  HWY_ATTR static void codes_in(const Real* values, std::int64_t count, const Grid<Real>& grid,
                                std::int32_t* codes) {
    const hn::ScalableTag<Real> d;
    const hn::Rebind<std::int32_t, decltype(d)> di;
    const auto inverse = hn::Set(d, grid.inverse), most = hn::Set(d, kMaxCode<Real>);
    const auto bad = hn::Set(di, 1 << 30);
    for (std::int64_t i = 0; i < count; i += static_cast<std::int64_t>(hn::Lanes(d))) {
      const auto scaled = hn::Mul(hn::LoadU(d, values + i), inverse);
      const auto good = bits_where(d, hn::Le(hn::Abs(scaled), most));
      const auto code = hn::And(good, nearest_of(d, scaled));
      hn::StoreU(hn::Or(code, hn::AndNot(good, bad)), di, codes + i);
    }
  }

  // 256 * log2, linear between powers of two, as the bits of a float give it.
  template <class D, class V>
  HWY_ATTR static V log2_of(D d, V number) {
    const hn::RebindToFloat<D> df;
    const hn::RebindToSigned<D> di;
    const auto bits = hn::BitCast(d, hn::ConvertTo(df, hn::BitCast(di, number)));
    return hn::Sub(hn::ShiftRight<15>(bits), hn::Set(d, 127u << 8));
  }
  // Zigzag numbers, at most 255, and the additional cost of escapes.
  HWY_ATTR static std::uint32_t to_bytes(const std::int32_t* codes, std::int64_t count,
                                         std::uint8_t* bytes) {
    const hn::ScalableTag<std::uint32_t> d;
    const hn::RebindToSigned<decltype(d)> di;
    const hn::Rebind<std::uint8_t, decltype(d)> d8;
    const auto escape = hn::Set(d, 255u), most = hn::Set(d, 1u << 20);
    auto extra = hn::Zero(d);
    for (std::int64_t i = 0; i < count; i += static_cast<std::int64_t>(hn::Lanes(d))) {
      const auto code = hn::LoadU(di, codes + i);
      const auto coded = hn::Xor(hn::BitCast(d, hn::ShiftLeft<1>(code)),
                                 hn::BitCast(d, hn::BroadcastSignBit(code)));
      const auto byte = hn::Min(coded, escape);
      hn::StoreU(hn::TruncateTo(d8, byte), d8, bytes + i);
      const auto cost = log2_of(d, hn::Min(coded, most));
      extra = hn::Add(extra, hn::IfThenElseZero(hn::Eq(byte, escape), cost));
    }
    return hn::GetLane(hn::SumOfLanes(d, extra));
  }
  // Equal codes follow each other, and a counter that was just written is slow to read again: there
  // are two of each.
  void count_codes(const std::int32_t* rows, const std::int32_t* lorenzo,
                   const std::int32_t* between, std::int64_t count) {
    std::uint8_t bytes[3][kRoom];
    extra_[kRowsPredictor] += to_bytes(rows, count, bytes[kRowsPredictor]);
    extra_[kLorenzo] += to_bytes(lorenzo, count, bytes[kLorenzo]);
    extra_[kInterpolate] += to_bytes(between, count, bytes[kInterpolate]);
    for (std::int64_t i = 0; i + 1 < count; i += 2) {
      for (int p = 0; p < 3; ++p) {
        ++counts_[p][0][bytes[p][i]];
        ++counts_[p][1][bytes[p][i + 1]];
      }
    }
  }
  HWY_ATTR std::uint32_t bits(Predictor predictor) const {
    const hn::ScalableTag<std::uint32_t> d;
    auto spent = hn::Zero(d), total = hn::Zero(d);
    for (std::size_t i = 0; i < 256; i += hn::Lanes(d)) {
      const auto number =
          hn::Add(hn::LoadU(d, counts_[predictor][0] + i), hn::LoadU(d, counts_[predictor][1] + i));
      total = hn::Add(total, number);
      spent = hn::Add(spent, hn::Mul(number, log2_of(d, hn::Max(number, hn::Set(d, 1u)))));
    }
    const auto all = hn::SumOfLanes(d, total);
    const auto at_most = hn::Mul(all, log2_of(d, hn::Max(all, hn::Set(d, 1u))));
    return extra_[predictor] + hn::GetLane(hn::Sub(at_most, hn::SumOfLanes(d, spent)));
  }

  bool smooth_;
  std::uint32_t counts_[3][2][256] = {}, extra_[3] = {};
};

}  // namespace tuckfold::bounded::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
