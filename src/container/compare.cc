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

template <class T>
void whole_distances(const void* a, const void* b, std::int64_t at, std::int64_t count,
                     double* out) {
  const T* left = static_cast<const T*>(a) + at;
  const T* right = static_cast<const T*>(b) + at;
  for (std::int64_t i = 0; i < count; ++i) out[i] = whole_distance(left[i], right[i]);
}

bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

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
  low = std::min(low, other.low);
  high = std::max(high, other.high);
  squares += other.squares;
  max_error = std::max(max_error, other.max_error);
  finite += other.finite;
  lost += other.lost;
  changed += other.changed;
  filled += other.filled;
}

double Sums::range() const { return finite == 0 ? 0 : high - low; }

double Sums::mean_square() const { return finite == 0 ? 0 : squares / static_cast<double>(finite); }

double Sums::psnr_db(double peak) const {
  if (lost > 0) return std::numeric_limits<double>::quiet_NaN();
  if (max_error == 0) return kInfinity;
  return 20 * std::log10(peak) - 10 * std::log10(mean_square());
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
  double want[kBlock], got[kBlock], apart[kBlock];
  for (std::int64_t at = 0; at < elems; at += kBlock) {
    const std::int64_t count = std::min(kBlock, elems - at);
    values_at(original_type, original, at, 1, count, want);
    values_at(result_type, result, at, 1, count, got);
    for (std::int64_t i = 0; i < count; ++i) apart[i] = std::abs(want[i] - got[i]);
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
      sums.low = std::min(sums.low, want[i]);
      sums.high = std::max(sums.high, want[i]);
      if (!std::isfinite(got[i])) {
        ++sums.lost;
        continue;
      }
      sums.max_error = std::max(sums.max_error, apart[i]);
      sums.squares += apart[i] * apart[i];
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
