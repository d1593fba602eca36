// A StoreProblem in flat arrays, and what solvers ask of it: prices, profiles, peaks.
#pragma once

#include <cstdint>
#include <vector>

#include "tuckfold/planner.h"

namespace tuckfold::planner {

// A set of StoreKinds, one bit each.
using Kinds = unsigned;
inline constexpr Kinds kAllKinds = 31;
constexpr Kinds kind_bit(StoreKind kind) { return 1u << static_cast<unsigned>(kind); }

struct FlatChoice {
  double cost, noise, seconds;
  std::uint32_t first_span, end_span;
  StoreKind kind;
};

class FlatProblem {
 public:
  explicit FlatProblem(const StoreProblem& problem);  // checks it

  // The same spans under other weights.
  void weigh(double noise_weight, double seconds_weight);

  int items() const { return static_cast<int>(first_.size()) - 1; }
  int positions() const { return static_cast<int>(base_.size()); }
  int first(int item) const { return first_[item]; }
  int end(int item) const { return first_[item + 1]; }
  const FlatChoice& choice(int at) const { return choices_[at]; }
  const std::vector<std::int64_t>& base() const { return base_; }
  const LiveSpan* spans_begin(int at) const { return spans_.data() + choices_[at].first_span; }
  const LiveSpan* spans_end(int at) const { return spans_.data() + choices_[at].end_span; }

  std::int64_t bytes_at(int at, int position) const {
    std::int64_t bytes = 0;
    for (const LiveSpan* span = spans_begin(at); span != spans_end(at); ++span) {
      if (span->first <= position && position <= span->last) bytes += span->bytes;
    }
    return bytes;
  }

  // Cost and price of the bytes; sums[p] is the price of a byte at all positions before p.
  double priced(int at, const std::vector<double>& sums) const {
    double price = choices_[at].cost;
    for (const LiveSpan* span = spans_begin(at); span != spans_end(at); ++span) {
      price += static_cast<double>(span->bytes) * (sums[span->last + 1] - sums[span->first]);
    }
    return price;
  }

  // Live bytes by position, for one choice (its index among all choices) of each item.
  std::vector<std::int64_t> profile(const std::vector<int>& chosen) const;

 private:
  std::vector<std::int64_t> base_;
  std::vector<int> first_;
  std::vector<FlatChoice> choices_;
  std::vector<LiveSpan> spans_;
};

}  // namespace tuckfold::planner
