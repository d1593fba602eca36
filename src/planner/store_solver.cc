#include "planner/store_solver.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace tuckfold::planner {
namespace {

constexpr int kMaxWalks = 2;     // of all positions together; repairs do the rest
constexpr int kMaxRepairs = 64;  // after these
// A plan within this share of the bound that its prices prove is good enough; improve() follows.
constexpr double kGap = 1e-3;

// From one choice of an item to the next smaller one on its hull: cost for each byte saved.
struct Step {
  double slope;
  int item, to;
  std::int64_t saved;
};

struct Point {
  std::int64_t bytes;
  double price;
  int at;
};

class Prices {
 public:
  Prices(const FlatProblem& problem, Kinds kinds, std::int64_t budget)
      : problem_(problem), kinds_(kinds), budget_(budget), prices_(problem.positions()) {
    add_up();
  }

  Attempt settle() {
    Attempt result;
    std::vector<int> walked(prices_.size(), -1);  // the number of the last walk at a position
    std::vector<int> chosen = cheapest();
    int moved = 0;  // the last walk that changed a price
    for (int number = 0; number < kMaxWalks; ++number) {
      const std::vector<std::int64_t> live = problem_.profile(chosen);
      int at = fullest(live);
      if (at < 0 || live[at] <= budget_) {
        keep_best(chosen, result);
        at = stale(walked, moved);
        if (at < 0 || near_bound(result.cost)) break;
      }
      const double before = prices_[at];
      if (!walk(at, chosen)) {
        result.outcome = Attempt::Outcome::Impossible;
        break;
      }
      walked[at] = number;
      if (prices_[at] != before) moved = number;
    }
    if (result.outcome == Attempt::Outcome::NotFound && repair(chosen)) keep_best(chosen, result);
    result.prices = prices_;
    return result;
  }

 private:
  bool allowed(int at) const { return (kind_bit(problem_.choice(at).kind) & kinds_) != 0; }

  void add_up() {
    sums_.assign(prices_.size() + 1, 0);
    std::partial_sum(prices_.begin(), prices_.end(), sums_.begin() + 1);
  }

  std::vector<int> cheapest() const {
    std::vector<int> chosen(problem_.items());
    for (int item = 0; item < problem_.items(); ++item) {
      double least = std::numeric_limits<double>::infinity();
      for (int at = problem_.first(item); at < problem_.end(item); ++at) {
        if (!allowed(at)) continue;
        const double price = problem_.priced(at, sums_);
        if (price < least) {
          least = price;
          chosen[item] = at;
        }
      }
    }
    return chosen;
  }

  static int fullest(const std::vector<std::int64_t>& live) {
    if (live.empty()) return -1;
    return static_cast<int>(std::max_element(live.begin(), live.end()) - live.begin());
  }

  // A position with a price that was set before the last change of another, or -1.
  int stale(const std::vector<int>& walked, int moved) const {
    for (std::size_t p = 0; p < prices_.size(); ++p) {
      if (prices_[p] > 0 && walked[p] < moved) return static_cast<int>(p);
    }
    return -1;
  }

  void keep_best(const std::vector<int>& chosen, Attempt& result) const {
    const double cost = cost_of(problem_, chosen);
    if (result.outcome == Attempt::Outcome::Fits && result.cost <= cost) return;
    result.outcome = Attempt::Outcome::Fits;
    result.cost = cost;
    result.chosen = chosen;
  }

  // Whether a plan of this cost is near what the prices prove to be least.
  bool near_bound(double cost) const {
    double bound = 0;
    for (std::size_t p = 0; p < prices_.size(); ++p) {
      bound -= prices_[p] * static_cast<double>(budget_ - problem_.base()[p]);
    }
    for (const int at : cheapest()) bound += problem_.priced(at, sums_);
    return cost - bound <= kGap * cost;
  }

  // Makes the fullest positions fit one after the other, by the moves of least cost for a byte.
  bool repair(std::vector<int>& chosen) {
    for (int number = 0; number < kMaxRepairs; ++number) {
      const std::vector<std::int64_t> live = problem_.profile(chosen);
      const int position = fullest(live);
      std::int64_t excess = position < 0 ? 0 : live[position] - budget_;
      if (excess <= 0) return true;
      steps_.clear();
      for (int item = 0; item < problem_.items(); ++item) add_repair(item, position, chosen[item]);
      const auto later = [](const Step& a, const Step& b) { return by_slope(b, a); };
      std::make_heap(steps_.begin(), steps_.end(), later);
      double price = 0;
      for (; excess > 0 && !steps_.empty(); steps_.pop_back()) {
        std::pop_heap(steps_.begin(), steps_.end(), later);
        chosen[steps_.back().item] = steps_.back().to;
        excess -= steps_.back().saved;
        price = steps_.back().slope;
      }
      if (excess > 0) return false;
      // The price makes the moves of later repairs spare this position.
      prices_[position] += std::max(price, prices_[position] / 4);
      add_up();
    }
    return false;
  }

  // The best move of an item from its choice to a smaller one at the position, if there is one.
  void add_repair(int item, int position, int from) {
    const std::int64_t bytes = problem_.bytes_at(from, position);
    if (bytes == 0) return;
    const double price = problem_.priced(from, sums_);
    Step best{std::numeric_limits<double>::infinity(), item, from, 0};
    for (int at = problem_.first(item); at < problem_.end(item); ++at) {
      const std::int64_t saved = bytes - problem_.bytes_at(at, position);
      if (!allowed(at) || saved <= 0) continue;
      const double slope = (problem_.priced(at, sums_) - price) / static_cast<double>(saved);
      if (slope < best.slope) best = {slope, item, at, saved};
    }
    if (best.saved > 0) steps_.push_back(best);
  }

  static bool by_slope(const Step& a, const Step& b) {
    return a.slope != b.slope ? a.slope < b.slope : a.item < b.item;
  }

  // The lower hull of an item's (bytes at the position, price), from the cheapest point to the
  // smallest; its edges are steps.
  void add_steps(int item, int position, std::vector<int>& chosen, std::int64_t& bytes) {
    points_.clear();
    for (int at = problem_.first(item); at < problem_.end(item); ++at) {
      if (!allowed(at)) continue;
      points_.push_back({problem_.bytes_at(at, position), problem_.priced(at, sums_), at});
    }
    hull_.clear();
    hull_.push_back(*std::min_element(points_.begin(), points_.end(), cheaper));
    while (true) {
      const Point& from = hull_.back();
      const Point* next = nullptr;
      double least = std::numeric_limits<double>::infinity();
      for (const Point& point : points_) {
        if (point.bytes >= from.bytes) continue;
        const double edge = slope(from, point);
        if (edge < least || (edge == least && point.bytes < next->bytes)) {
          least = edge;
          next = &point;
        }
      }
      if (next == nullptr) break;
      hull_.push_back(*next);
    }
    chosen[item] = hull_.front().at;
    bytes += hull_.front().bytes;
    for (std::size_t i = 1; i < hull_.size(); ++i) {
      steps_.push_back(
          {slope(hull_[i - 1], hull_[i]), item, hull_[i].at, hull_[i - 1].bytes - hull_[i].bytes});
    }
  }

  static bool cheaper(const Point& a, const Point& b) {
    return a.price != b.price ? a.price < b.price : a.bytes < b.bytes;
  }

  static double slope(const Point& from, const Point& to) {
    return (to.price - from.price) / static_cast<double>(from.bytes - to.bytes);
  }

  // Sets the price at one position to the least that makes it fit. False: no price does.
  bool walk(int position, std::vector<int>& chosen) {
    prices_[position] = 0;
    add_up();
    steps_.clear();
    std::int64_t bytes = problem_.base()[position];
    for (int item = 0; item < problem_.items(); ++item) {
      add_steps(item, position, chosen, bytes);
    }
    if (bytes <= budget_) return true;
    std::sort(steps_.begin(), steps_.end(), by_slope);
    double price = 0;
    for (const Step& step : steps_) {
      chosen[step.item] = step.to;
      bytes -= step.saved;
      price = step.slope;
      if (bytes <= budget_) break;
    }
    // A little above the last step's slope, so that the step stays the cheaper side of a tie.
    prices_[position] = price * (1 + 1e-9) + std::numeric_limits<double>::min();
    add_up();
    return bytes <= budget_;
  }

  const FlatProblem& problem_;
  Kinds kinds_;
  std::int64_t budget_;
  std::vector<double> prices_, sums_;
  std::vector<Step> steps_;
  std::vector<Point> points_, hull_;
};

void add(const FlatProblem& problem, int at, std::int64_t sign, std::vector<std::int64_t>& live) {
  for (const LiveSpan* span = problem.spans_begin(at); span != problem.spans_end(at); ++span) {
    const std::int64_t bytes = sign * span->bytes;
    for (int p = span->first; p <= span->last; ++p) live[p] += bytes;
  }
}

bool fits(const FlatProblem& problem, int at, std::int64_t budget,
          const std::vector<std::int64_t>& live) {
  for (const LiveSpan* span = problem.spans_begin(at); span != problem.spans_end(at); ++span) {
    const auto* const begin = live.data() + span->first;
    if (*std::max_element(begin, live.data() + span->last + 1) > budget) return false;
  }
  return true;
}

}  // namespace

Attempt attempt(const FlatProblem& problem, Kinds kinds, std::int64_t budget) {
  return Prices(problem, kinds, budget).settle();
}

double cost_of(const FlatProblem& problem, const std::vector<int>& chosen) {
  double cost = 0;
  for (const int at : chosen) cost += problem.choice(at).cost;
  return cost;
}

void improve(const FlatProblem& problem, Kinds kinds, std::int64_t budget,
             std::vector<int>& chosen) {
  std::vector<std::int64_t> live = problem.profile(chosen);
  if (live.empty()) return;
  // Most moves fail at one of the fullest positions, so these are asked first.
  std::vector<int> full(live.size());
  std::iota(full.begin(), full.end(), 0);
  const std::size_t asked = std::min<std::size_t>(full.size(), 24);
  std::partial_sort(full.begin(), full.begin() + static_cast<std::ptrdiff_t>(asked), full.end(),
                    [&](int a, int b) { return live[a] > live[b]; });
  full.resize(asked);
  struct Move {
    double gain;
    int item, to;
  };
  std::vector<Move> moves;
  for (int item = 0; item < problem.items(); ++item) {
    for (int at = problem.first(item); at < problem.end(item); ++at) {
      const double gain = problem.choice(chosen[item]).cost - problem.choice(at).cost;
      const bool allowed = (kind_bit(problem.choice(at).kind) & kinds) != 0;
      if (allowed && gain > 0) moves.push_back({gain, item, at});
    }
  }
  std::stable_sort(moves.begin(), moves.end(),
                   [](const Move& a, const Move& b) { return a.gain > b.gain; });
  for (const Move& move : moves) {
    const int from = chosen[move.item];
    if (problem.choice(move.to).cost >= problem.choice(from).cost) continue;
    const bool too_full = std::any_of(full.begin(), full.end(), [&](int p) {
      return live[p] - problem.bytes_at(from, p) + problem.bytes_at(move.to, p) > budget;
    });
    if (too_full) continue;
    add(problem, from, -1, live);
    add(problem, move.to, 1, live);
    if (fits(problem, move.to, budget, live)) {
      chosen[move.item] = move.to;
    } else {
      add(problem, move.to, -1, live);
      add(problem, from, 1, live);
    }
  }
}

std::vector<double> lower_bounds(const FlatProblem& problem, const std::vector<double>& prices,
                                 std::int64_t budget) {
  std::vector<double> sums(prices.size() + 1);
  std::partial_sum(prices.begin(), prices.end(), sums.begin() + 1);
  double rent = 0;  // what the free bytes at all positions are worth
  for (std::size_t p = 0; p < prices.size(); ++p) {
    rent += prices[p] * static_cast<double>(budget - problem.base()[p]);
  }
  constexpr double kNone = std::numeric_limits<double>::infinity();
  constexpr int kKinds = 5;
  std::vector<double> bounds(kAllKinds + 1, -rent);
  bounds[0] = kNone;
  for (int item = 0; item < problem.items(); ++item) {
    double least[kKinds] = {kNone, kNone, kNone, kNone, kNone};
    for (int at = problem.first(item); at < problem.end(item); ++at) {
      double& best = least[static_cast<unsigned>(problem.choice(at).kind)];
      best = std::min(best, problem.priced(at, sums));
    }
    // The least over a set is the least over the set without its lowest kind, or of that kind.
    double of_set[kAllKinds + 1] = {kNone};
    for (Kinds set = 1; set <= kAllKinds; ++set) {
      const int lowest = __builtin_ctz(set);
      of_set[set] = std::min(of_set[set & (set - 1)], least[lowest]);
      bounds[set] += of_set[set];
    }
  }
  return bounds;
}

}  // namespace tuckfold::planner
