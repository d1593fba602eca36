// Plans for a budget and plans of least peak, from runs of the solver.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/fail.h"
#include "planner/store_problem.h"
#include "planner/store_solver.h"
#include "tuckfold/planner.h"

namespace tuckfold {
namespace {

using planner::Attempt;
using planner::FlatProblem;
using planner::kAllKinds;
using planner::Kinds;

std::string bytes_text(std::int64_t bytes) {
  if (bytes >= std::int64_t{1} << 30)
    return fmt::format("{:.2f} GiB", std::ldexp(static_cast<double>(bytes), -30));
  if (bytes >= 1 << 20)
    return fmt::format("{:.1f} MiB", std::ldexp(static_cast<double>(bytes), -20));
  return fmt::format("{} bytes", bytes);
}

// What is live at the position of the peak, the largest parts by name.
std::string holders(const StoreProblem& problem, const StorePlan& plan) {
  constexpr std::size_t kNamed = 3;
  struct Part {
    std::int64_t bytes;
    std::string name;
  };
  std::vector<Part> parts;
  for (std::size_t i = 0; i < problem.items.size(); ++i) {
    const StoreChoice& choice = problem.items[i].choices[plan.choice[i]];
    std::int64_t bytes = 0;
    for (const LiveSpan& span : choice.spans) {
      if (span.first <= plan.peak_position && plan.peak_position <= span.last) bytes += span.bytes;
    }
    if (bytes == 0) continue;
    parts.push_back({bytes, fmt::format("{} ({})", problem.items[i].name, choice.how)});
  }
  if (!problem.base.empty() && problem.base[plan.peak_position] > 0) {
    parts.push_back({problem.base[plan.peak_position], "what is not stored for backward"});
  }
  std::stable_sort(parts.begin(), parts.end(),
                   [](const Part& a, const Part& b) { return a.bytes > b.bytes; });
  std::string text = fmt::format("at position {}: ", plan.peak_position);
  std::int64_t rest = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i >= kNamed) {
      rest += parts[i].bytes;
      continue;
    }
    text += fmt::format("{}{} of {}", i > 0 ? ", " : "", bytes_text(parts[i].bytes), parts[i].name);
  }
  if (rest > 0) text += fmt::format(", {} of {} others", bytes_text(rest), parts.size() - kNamed);
  return text;
}

StorePlan described(const StoreProblem& problem, const FlatProblem& flat,
                    const std::vector<int>& chosen) {
  StorePlan plan;
  for (int item = 0; item < flat.items(); ++item) {
    const planner::FlatChoice& choice = flat.choice(chosen[item]);
    plan.choice.push_back(chosen[item] - flat.first(item));
    plan.noise += choice.noise;
    plan.seconds += choice.seconds;
  }
  plan.cost = problem.noise_weight * plan.noise + problem.seconds_weight * plan.seconds;
  const std::vector<std::int64_t> live = flat.profile(chosen);
  if (!live.empty()) {
    const auto most = std::max_element(live.begin(), live.end());
    plan.peak = *most;
    plan.peak_position = static_cast<int>(most - live.begin());
  }
  return plan;
}

std::int64_t peak_of(const FlatProblem& flat, const std::vector<int>& chosen) {
  const std::vector<std::int64_t> live = flat.profile(chosen);
  return live.empty() ? 0 : *std::max_element(live.begin(), live.end());
}

// The choices of an item that are of these kinds.
std::vector<std::vector<int>> choices_of(const FlatProblem& flat, Kinds kinds) {
  std::vector<std::vector<int>> all(flat.items());
  for (int item = 0; item < flat.items(); ++item) {
    for (int at = flat.first(item); at < flat.end(item); ++at) {
      if ((planner::kind_bit(flat.choice(at).kind) & kinds) != 0) all[item].push_back(at);
    }
  }
  return all;
}

// Calls visit(chosen, peak) for every combination of choices. False: there are too many.
template <class Visit>
bool try_all(const FlatProblem& flat, Kinds kinds, const Visit& visit) {
  constexpr std::size_t kMaxCombinations = 3'000;
  const std::vector<std::vector<int>> choices = choices_of(flat, kinds);
  std::size_t combinations = 1;
  std::vector<int> chosen;
  for (const std::vector<int>& of_item : choices) {
    combinations *= of_item.size();
    if (combinations > kMaxCombinations) return false;
    chosen.push_back(of_item.front());
  }
  for (std::size_t number = 0; number < combinations; ++number) {
    std::size_t rest = number;
    for (std::size_t item = 0; item < choices.size(); ++item) {
      chosen[item] = choices[item][rest % choices[item].size()];
      rest /= choices[item].size();
    }
    visit(chosen, peak_of(flat, chosen));
  }
  return true;
}

// The cheapest of all combinations if there are few, else what the solver finds.
Attempt solve(const FlatProblem& flat, Kinds kinds, std::int64_t budget) {
  Attempt best;
  const bool all = try_all(flat, kinds, [&](const std::vector<int>& chosen, std::int64_t peak) {
    if (peak > budget) return;
    const double cost = planner::cost_of(flat, chosen);
    if (best.outcome == Attempt::Outcome::Fits && cost >= best.cost) return;
    best.outcome = Attempt::Outcome::Fits;
    best.cost = cost;
    best.chosen = chosen;
  });
  if (all) return best;
  best = planner::attempt(flat, kinds, budget);
  if (best.outcome == Attempt::Outcome::Fits) {
    planner::improve(flat, kinds, budget, best.chosen);
    best.cost = planner::cost_of(flat, best.chosen);
  }
  return best;
}

// The best run over all kinds and over every set of kinds whose bound does not rule it out.
Attempt solve_all(const FlatProblem& flat, std::int64_t budget) {
  Attempt best = solve(flat, kAllKinds, budget);
  if (best.outcome == Attempt::Outcome::Impossible || best.prices.empty()) return best;
  const std::vector<double> bounds = planner::lower_bounds(flat, best.prices, budget);
  for (Kinds kinds = 1; kinds < kAllKinds; ++kinds) {
    const bool found = best.outcome == Attempt::Outcome::Fits;
    if (std::isinf(bounds[kinds]) || (found && bounds[kinds] >= best.cost)) continue;
    Attempt run = solve(flat, kinds, budget);
    if (run.outcome != Attempt::Outcome::Fits || (found && run.cost >= best.cost)) continue;
    planner::improve(flat, kAllKinds, budget, run.chosen);
    run.cost = planner::cost_of(flat, run.chosen);
    best = std::move(run);
  }
  return best;
}

// The chosen of least peak that `accept` takes, by halving the range of budgets down to a
// four-thousandth; empty if it takes none.
template <class Accept>
std::vector<int> least_peak(const FlatProblem& flat, const Accept& accept) {
  std::vector<int> best;
  std::int64_t low = 0;
  std::int64_t high = std::numeric_limits<std::int64_t>::max();
  const bool all = try_all(flat, kAllKinds, [&](const std::vector<int>& chosen, std::int64_t peak) {
    if (peak >= high || !accept(chosen)) return;
    best = chosen;
    high = peak;
  });
  if (all) return best;
  const auto look = [&](std::int64_t budget) {
    Attempt run = solve(flat, kAllKinds, budget);
    if (run.outcome == Attempt::Outcome::NotFound) run = solve_all(flat, budget);
    if (run.outcome != Attempt::Outcome::Fits || !accept(run.chosen)) return false;
    best = run.chosen;
    high = peak_of(flat, best);
    return true;
  };
  if (!look(std::numeric_limits<std::int64_t>::max() / 4)) return best;
  while (high - low > high / 4096 + 1) {
    const std::int64_t middle = low + (high - low) / 2;
    if (!look(middle)) low = middle;
  }
  return best;
}

double weight_of(double limit, double all) {
  constexpr double kForbidding = 1e30;
  if (limit == 0) return kForbidding;
  const double unit = std::min(limit, all);
  return unit > 0 ? 1 / unit : 0;
}

}  // namespace

StorePlan plan_within(const StoreProblem& problem, std::int64_t budget) {
  const FlatProblem flat(problem);
  const Attempt best = solve_all(flat, budget);
  if (best.outcome == Attempt::Outcome::Fits) {
    StorePlan plan = described(problem, flat, best.chosen);
    plan.fits = true;
    return plan;
  }
  const auto any = [](const std::vector<int>&) { return true; };
  StorePlan plan = described(problem, flat, least_peak(flat, any));
  plan.fits = plan.peak <= budget;
  if (!plan.fits) {
    plan.why = fmt::format("the smallest peak found is {}, {}", bytes_text(plan.peak),
                           holders(problem, plan));
  }
  return plan;
}

StorePlan plan_smallest(const StoreProblem& problem, double noise, double seconds) {
  if (std::isnan(noise) || noise < 0 || std::isnan(seconds) || seconds < 0) {
    invalid("[plan] limits of noise and seconds must be at least 0, got {} and {}", noise, seconds);
  }
  FlatProblem flat(problem);
  const auto within = [&](const std::vector<int>& chosen) {
    double sum_noise = 0;
    double sum_seconds = 0;
    for (const int at : chosen) {
      sum_noise += flat.choice(at).noise;
      sum_seconds += flat.choice(at).seconds;
    }
    return sum_noise <= noise && sum_seconds <= seconds;
  };
  // Each limit in units of itself, and a limit that does not bind in units of all there is. The
  // best of several mixtures is taken.
  double all_noise = 0;
  double all_seconds = 0;
  for (const StoreItem& item : problem.items) {
    for (const StoreChoice& choice : item.choices) {
      all_noise += choice.noise;
      all_seconds += choice.seconds;
    }
  }
  const double per_noise = weight_of(noise, all_noise);
  const double per_second = weight_of(seconds, all_seconds);
  std::vector<int> best;
  for (const double share : std::isinf(seconds) ? std::vector<double>{0.999, 0.5}
                                                : std::vector<double>{0.5, 0.2, 0.8, 0.05, 0.95}) {
    flat.weigh(share * per_noise, (1 - share) * per_second);
    const std::vector<int> found = least_peak(flat, within);
    if (found.empty()) continue;
    if (best.empty() || peak_of(flat, found) < peak_of(flat, best)) best = found;
  }
  if (!best.empty()) {
    StorePlan plan = described(problem, flat, best);
    plan.fits = true;
    return plan;
  }
  flat.weigh(per_noise, per_second);
  const Attempt cheapest =
      planner::attempt(flat, kAllKinds, std::numeric_limits<std::int64_t>::max() / 4);
  StorePlan plan = described(problem, flat, cheapest.chosen);
  plan.why = fmt::format(
      "the least noise and time found are {:.3g} and {:.3g} s, the limits are "
      "{:.3g} and {:.3g} s",
      plan.noise, plan.seconds, noise, seconds);
  return plan;
}

}  // namespace tuckfold
