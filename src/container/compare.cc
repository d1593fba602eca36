#include "container/compare.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/dtype.h"
#include "base/strided.h"

namespace tuckfold {
namespace {

constexpr std::int64_t kBlock = 1024;  // values taken at a time, to stay in the first cache
constexpr double kInfinity = std::numeric_limits<double>::infinity();
// See Sums::large_squares.
constexpr double kLarge = 0x1p500, kSmall = 0x1p-500, kUp = 0x1p600, kDown = 0x1p-600;

template <class T>
void whole_distances(const void* a, const void* b, std::int64_t at, std::int64_t count,
                     double* out) {
  const T* left = static_cast<const T*>(a) + at;
  const T* right = static_cast<const T*>(b) + at;
  for (std::int64_t i = 0; i < count; ++i) out[i] = whole_distance(left[i], right[i]);
}

// What values have beyond the doubles nearest to them: nothing, except 64-bit whole numbers.
void rests_at(DType dtype, const void* values, std::int64_t first, std::int64_t count,
              double* out) {
  const auto fill = [&]<class T>(const T* from) {
    constexpr double kPast = 2 * static_cast<double>(std::numeric_limits<T>::max() / 2 + 1);
    for (std::int64_t i = 0; i < count; ++i) {
      const T value = from[first + i];
      const auto nearest = static_cast<double>(value);
      // The double may be the first number past the type's last, which wraps around to its least.
      const T back = nearest == kPast ? static_cast<T>(std::numeric_limits<T>::max())
                                      : static_cast<T>(nearest);
      const double rest =
          value >= back ? static_cast<double>(value - back) : -static_cast<double>(back - value);
      out[i] = nearest == kPast ? rest - 1 : rest;
    }
  };
  if (dtype == DType::I64) return fill(static_cast<const std::int64_t*>(values));
  if (dtype == DType::U64) return fill(static_cast<const std::uint64_t*>(values));
  std::fill_n(out, count, 0.0);
}

bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

void take_least(Sums& sums, double value, double rest) {
  if (value > sums.low || (value == sums.low && rest >= sums.low_rest)) return;
  sums.low = value;
  sums.low_rest = rest;
}

void take_most(Sums& sums, double value, double rest) {
  if (value < sums.high || (value == sums.high && rest <= sums.high_rest)) return;
  sums.high = value;
  sums.high_rest = rest;
}

// The bits of 2^100, or of infinity where the dtype ends before that.
std::uint64_t extreme_bits(DType dtype) {
  switch (dtype) {
    case DType::F32: return 0x71800000u;
    case DType::BF16: return 0x7180u;
    case DType::F16: return 0x7c00u;
    case DType::F64: return std::uint64_t{0x463} << 52;
    default: return 0;  // whole numbers have none
  }
}

}  // namespace

void Sums::add(const Sums& other) {
  take_least(*this, other.low, other.low_rest);
  take_most(*this, other.high, other.high_rest);
  squares += other.squares;
  large_squares += other.large_squares;
  small_squares += other.small_squares;
  max_error = std::max(max_error, other.max_error);
  finite += other.finite;
  lost += other.lost;
  changed += other.changed;
  filled += other.filled;
}

double Sums::range() const { return finite == 0 ? 0 : (high - low) + (high_rest - low_rest); }

double Sums::mean_square() const {
  if (finite == 0) return 0;
  const double all = squares + large_squares * kUp * kUp + small_squares * kDown * kDown;
  return all / static_cast<double>(finite);
}

double Sums::error_db() const {
  const double up = 20 * std::log10(kUp);
  const auto count = static_cast<double>(finite);
  if (large_squares > 0) {
    return 10 * std::log10((large_squares + squares * kDown * kDown) / count) + up;
  }
  if (squares > 0) return 10 * std::log10((squares + small_squares * kDown * kDown) / count);
  return 10 * std::log10(small_squares / count) - up;
}

double Sums::psnr_db(double peak) const {
  if (lost > 0) return std::numeric_limits<double>::quiet_NaN();
  if (max_error == 0) return kInfinity;
  // The range of values near the largest is none that a double holds.
  const double level =
      std::isinf(peak) ? std::log10(high / 2 - low / 2) + std::log10(2.0) : std::log10(peak);
  return 20 * level - error_db();
}

void WrittenArray::add(const WrittenArray& other) {
  sums.add(other.sums);
  measured += other.measured;
  too_few += other.too_few;
  past_bound += other.past_bound;
  packed_bytes += other.packed_bytes;
}

double value_at(DType dtype, const void* values, std::int64_t index) {
  return with_element(dtype, [&](auto element) {
    return as_double(static_cast<const decltype(element)*>(values)[index]);
  });
}

void values_at(DType dtype, const void* values, std::int64_t first, std::int64_t step,
               std::int64_t count, double* out) {
  with_element(dtype, [&](auto element) {
    const auto* from = static_cast<const decltype(element)*>(values) + first;
    for (std::int64_t i = 0; i < count; ++i) out[i] = as_double(from[i * step]);
  });
}

Sums compare_values(DType original_type, const void* original, DType result_type,
                    const void* result, std::int64_t elems, const std::uint8_t* marks) {
  const bool same_type = original_type == result_type;
  Sums sums;
  double want[kBlock], got[kBlock], apart[kBlock], want_rest[kBlock], got_rest[kBlock];
  for (std::int64_t at = 0; at < elems; at += kBlock) {
    const std::int64_t count = std::min(kBlock, elems - at);
    values_at(original_type, original, at, 1, count, want);
    values_at(result_type, result, at, 1, count, got);
    rests_at(original_type, original, at, count, want_rest);
    rests_at(result_type, result, at, count, got_rest);
    for (std::int64_t i = 0; i < count; ++i) {
      apart[i] = std::abs((want[i] - got[i]) + (want_rest[i] - got_rest[i]));
    }
    if (same_type && original_type == DType::I64) {
      whole_distances<std::int64_t>(original, result, at, count, apart);
    } else if (same_type && original_type == DType::U64) {
      whole_distances<std::uint64_t>(original, result, at, count, apart);
    }
    for (std::int64_t i = 0; i < count; ++i) {
      const bool fill = marks != nullptr && marks[at + i] != 0;
      sums.filled += fill ? 1 : 0;
      if (fill || !std::isfinite(want[i])) {
        sums.changed += same(want[i], got[i]) ? 0 : 1;
        continue;
      }
      ++sums.finite;
      take_least(sums, want[i], want_rest[i]);
      take_most(sums, want[i], want_rest[i]);
      if (!std::isfinite(got[i])) {
        ++sums.lost;
        continue;
      }
      sums.max_error = std::max(sums.max_error, apart[i]);
      if (apart[i] > kLarge) {
        sums.large_squares += (apart[i] * kDown) * (apart[i] * kDown);
      } else if (apart[i] < kSmall) {
        sums.small_squares += (apart[i] * kUp) * (apart[i] * kUp);
      } else {
        sums.squares += apart[i] * apart[i];
      }
    }
  }
  return sums;
}

bool has_extremes(DType dtype, const void* values, std::int64_t elems, const std::uint8_t* marks) {
  if (!is_float(dtype)) return false;
  return with_word(dtype, [&](auto zero) {
    using Word = decltype(zero);
    const auto least = static_cast<Word>(extreme_bits(dtype));
    constexpr Word kMagnitude = std::numeric_limits<Word>::max() >> 1;
    const auto* words = static_cast<const Word*>(values);
    for (std::int64_t at = 0; at < elems; at += kBlock) {
      const std::int64_t count = std::min(kBlock, elems - at);
      unsigned found = 0;
      for (std::int64_t i = at; i < at + count; ++i) {
        const bool extreme = static_cast<Word>(words[i] & kMagnitude) >= least;
        found |= static_cast<unsigned>(extreme && (marks == nullptr || marks[i] == 0));
      }
      if (found != 0) return true;
    }
    return false;
  });
}

}  // namespace tuckfold
