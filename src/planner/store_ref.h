// Every combination of choices, for small problems.
#pragma once

#include <algorithm>
#include <limits>

#include "tuckfold/planner.h"

namespace tuckfold {

struct StoreSums {
  std::int64_t peak = 0;
  double noise = 0, seconds = 0, cost = 0;
};

inline StoreSums sums_ref(const StoreProblem& problem, const std::vector<int>& choice) {
  StoreSums sums;
  std::vector<std::int64_t> live = problem.base;
  for (std::size_t i = 0; i < choice.size(); ++i) {
    const StoreChoice& chosen = problem.items[i].choices[choice[i]];
    for (const LiveSpan& span : chosen.spans) {
      for (int p = span.first; p <= span.last; ++p) live[p] += span.bytes;
    }
    sums.noise += chosen.noise;
    sums.seconds += chosen.seconds;
  }
  for (const std::int64_t bytes : live) sums.peak = std::max(sums.peak, bytes);
  sums.cost = problem.noise_weight * sums.noise + problem.seconds_weight * sums.seconds;
  return sums;
}

// Calls visit(sums) for every combination.
template <class Visit>
void every_plan_ref(const StoreProblem& problem, const Visit& visit) {
  std::vector<int> choice(problem.items.size());
  while (true) {
    visit(sums_ref(problem, choice));
    std::size_t i = 0;
    while (i < choice.size() && ++choice[i] == static_cast<int>(problem.items[i].choices.size())) {
      choice[i++] = 0;
    }
    if (i == choice.size()) return;
  }
}

// The least cost within a budget, infinite if nothing fits.
inline double least_cost_ref(const StoreProblem& problem, std::int64_t budget) {
  double least = std::numeric_limits<double>::infinity();
  every_plan_ref(problem, [&](const StoreSums& sums) {
    if (sums.peak <= budget) least = std::min(least, sums.cost);
  });
  return least;
}

inline std::int64_t least_peak_ref(const StoreProblem& problem, double noise, double seconds) {
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  every_plan_ref(problem, [&](const StoreSums& sums) {
    if (sums.noise <= noise && sums.seconds <= seconds) least = std::min(least, sums.peak);
  });
  return least;
}

}  // namespace tuckfold
