#include "planner/store_problem.h"

#include <cmath>

#include "base/fail.h"

namespace tuckfold::planner {
namespace {

// Sums of bytes stay far from the ends of 64 bits.
constexpr std::int64_t kMaxBytes = std::int64_t{1} << 50;

bool is_bytes(std::int64_t bytes) { return bytes >= 0 && bytes <= kMaxBytes; }

bool is_amount(double value) { return std::isfinite(value) && value >= 0; }

void check_choice(const StoreItem& item, const StoreChoice& choice, int positions) {
  if (!is_amount(choice.seconds) || !is_amount(choice.noise)) {
    invalid("[plan] seconds and noise must be finite and at least 0, '{}' of '{}' has {} and {}",
            choice.how, item.name, choice.seconds, choice.noise);
  }
  for (const LiveSpan& span : choice.spans) {
    if (span.first < 0 || span.last < span.first || span.last >= positions) {
      invalid("[plan] a span must lie within the {} positions, '{}' of '{}' has {} to {}",
              positions, choice.how, item.name, span.first, span.last);
    }
    if (!is_bytes(span.bytes)) {
      invalid("[plan] a span must have 0 to 2^50 bytes, '{}' of '{}' has {}", choice.how, item.name,
              span.bytes);
    }
  }
}

}  // namespace

FlatProblem::FlatProblem(const StoreProblem& problem) : base_(problem.base) {
  for (const std::int64_t bytes : base_) {
    if (!is_bytes(bytes)) invalid("[plan] base must have 0 to 2^50 bytes, got {}", bytes);
  }
  first_.reserve(problem.items.size() + 1);
  for (const StoreItem& item : problem.items) {
    if (item.choices.empty()) {
      invalid("[plan] an item needs at least one choice, '{}' has none", item.name);
    }
    first_.push_back(static_cast<int>(choices_.size()));
    for (const StoreChoice& choice : item.choices) {
      check_choice(item, choice, positions());
      const auto begin = static_cast<std::uint32_t>(spans_.size());
      spans_.insert(spans_.end(), choice.spans.begin(), choice.spans.end());
      choices_.push_back({0, choice.noise, choice.seconds, begin,
                          static_cast<std::uint32_t>(spans_.size()), choice.kind});
    }
  }
  first_.push_back(static_cast<int>(choices_.size()));
  weigh(problem.noise_weight, problem.seconds_weight);
}

void FlatProblem::weigh(double noise_weight, double seconds_weight) {
  if (!is_amount(noise_weight) || !is_amount(seconds_weight)) {
    invalid("[plan] weights must be finite and at least 0, got {} and {}", noise_weight,
            seconds_weight);
  }
  for (FlatChoice& choice : choices_) {
    choice.cost = noise_weight * choice.noise + seconds_weight * choice.seconds;
  }
}

std::vector<std::int64_t> FlatProblem::profile(const std::vector<int>& chosen) const {
  std::vector<std::int64_t> steps(base_.size() + 1);
  for (const int at : chosen) {
    for (const LiveSpan* span = spans_begin(at); span != spans_end(at); ++span) {
      steps[span->first] += span->bytes;
      steps[span->last + 1] -= span->bytes;
    }
  }
  std::vector<std::int64_t> live(base_);
  std::int64_t sum = 0;
  for (std::size_t p = 0; p < live.size(); ++p) {
    sum += steps[p];
    live[p] += sum;
  }
  return live;
}

}  // namespace tuckfold::planner
