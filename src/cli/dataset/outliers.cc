#include "cli/dataset/outliers.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/dtype.h"
#include "base/fail.h"
#include "container/compare.h"

namespace tuckfold::cli {
namespace {

constexpr double kFar = 1000;  // times the span of half of the values
constexpr double kFew = 0.01;  // of all values

std::vector<double> sorted_values(const Array& part) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < part.shape.elems(); ++i) {
    if (!part.marks.empty() && part.marks[static_cast<std::size_t>(i)] != 0) continue;
    const double value = value_at(part.dtype, part.values.data(), i);
    if (std::isfinite(value)) values.push_back(value);
  }
  std::ranges::sort(values);
  return values;
}

struct Span {
  double low, high;
  double size() const { return high - low; }
};

// The shortest span that has half of sorted values.
Span shortest_half(const std::vector<double>& values) {
  const std::size_t half = values.size() / 2;
  Span best{values.front(), values.back()};
  for (std::size_t i = 0; i + half < values.size(); ++i) {
    const Span span{values[i], values[i + half]};
    if (span.size() < best.size()) best = span;
  }
  return best;
}

}  // namespace

std::string note_on_outliers(const Array& part) {
  if (is_whole(part.dtype)) return "";
  std::vector<double> values = sorted_values(part);
  const std::size_t all = values.size();
  if (all < 8) return "";
  Span most = shortest_half(values);
  if (most.size() == 0) {  // one value is the most common: is it far from the rest?
    const double common = most.low;
    std::erase(values, common);
    if (values.size() < 4) return "";
    most = {values.front(), values.back()};
    const double away = common < most.low ? most.low - common : common - most.high;
    if (most.size() == 0 || away < kFar * most.size()) return "";
    return fmt::format(
        "{} of {} values of '{}' that were tried are {:.6g}, far from the others, {:.4g} to "
        "{:.4g}; if "
        "they stand for missing values, --fill {:.6g} keeps them apart",
        all - values.size(), all, part.name, common, most.low, most.high, common);
  }
  if (values.back() - values.front() < kFar * most.size()) return "";
  const double near = kFar / 10 * most.size();
  std::erase_if(
      values, [&](double value) { return value >= most.low - near && value <= most.high + near; });
  if (values.empty()) return "";
  const bool same = values.front() == values.back();
  if (!same && static_cast<double>(values.size()) > kFew * static_cast<double>(all)) return "";
  return fmt::format(
      "{} of {} values of '{}' that were tried lie far from the others ({}), half of which are in "
      "{:.4g} to {:.4g}: these few decide what a PSNR means. {}--max-error bounds every error",
      values.size(), all, part.name,
      same ? fmt::format("{:.6g}", values.front())
           : fmt::format("{:.4g} to {:.4g}", values.front(), values.back()),
      most.low, most.high,
      same ? fmt::format("If they stand for missing values, --fill {:.6g} keeps them apart; ",
                         values.front())
           : "");
}

}  // namespace tuckfold::cli
