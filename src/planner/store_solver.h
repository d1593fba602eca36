// One run of the solver for a budget: prices on bytes at the positions that are too full.
//
// A price is a Lagrange multiplier: the cost that a byte at a position may save. For given prices
// each item takes its cheapest choice on its own. Raising the price of the fullest position until
// it fits walks along the convex hulls of all items at once, which is optimal for that position
// but for the last step. So a few positions, usually one, decide the whole plan.
#pragma once

#include <vector>

#include "planner/store_problem.h"

namespace tuckfold::planner {

struct Attempt {
  enum class Outcome : unsigned char {
    Fits,
    NotFound,    // prices did not settle within the limit of rounds
    Impossible,  // at one position even the smallest choices do not fit
  };
  Outcome outcome = Outcome::NotFound;
  double cost = 0;
  std::vector<int> chosen;     // of each item, an index among all choices
  std::vector<double> prices;  // of a byte at each position
};

// Chooses among `kinds` alone; every item must have a choice of these.
Attempt attempt(const FlatProblem& problem, Kinds kinds, std::int64_t budget);

// Moves items to cheaper choices of these kinds while all positions stay within the budget.
void improve(const FlatProblem& problem, Kinds kinds, std::int64_t budget,
             std::vector<int>& chosen);

// For each set of kinds, a cost that no plan of these kinds within the budget can fall below.
// Infinite for sets that leave an item without a choice.
std::vector<double> lower_bounds(const FlatProblem& problem, const std::vector<double>& prices,
                                 std::int64_t budget);

double cost_of(const FlatProblem& problem, const std::vector<int>& chosen);

}  // namespace tuckfold::planner
