// Chooses how each saved tensor of a training step is stored, so that the step fits its memory.
//
//   StoreProblem problem;
//   problem.base = {40, 40, 60, 60};                       // bytes that live anyway, by position
//   problem.items = {{"conv1.input",
//                     {{.how = "keep", .spans = {{0, 3, 100}}},
//                      {.kind = StoreKind::Codec, .how = "block_quant(bits=4)",
//                       .spans = {{0, 3, 13}, {3, 3, 100}}, .seconds = 2e-4, .noise = 0.01}}}};
//   const StorePlan plan = plan_within(problem, 150);      // the cheapest plan with this peak
//   problem.items[0].choices[plan.choice[0]].how;          // "keep"
//
// A position is a moment of the step: every operator of the forward and of the backward pass is
// one. The peak is the largest sum of the bytes that are live at one position. A choice says what
// it holds and when, so decoded copies, recomputed inputs and transfers count where they occur.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tuckfold/export.h"

namespace tuckfold {

// Bytes that live from position `first` to position `last`, both included.
struct LiveSpan {
  int first = 0, last = 0;
  std::int64_t bytes = 0;
};

enum class StoreKind : unsigned char { Keep, Exact, Recompute, Codec, Offload };

struct StoreChoice {
  StoreKind kind = StoreKind::Keep;
  std::string how;  // printed, not interpreted
  std::vector<LiveSpan> spans;
  double seconds = 0;  // added to the step
  double noise = 0;    // variance added to the gradient; the noise of all items adds up
};

// A tensor, or several that are decided together, such as a normalization's input and output.
struct StoreItem {
  std::string name;
  std::vector<StoreChoice> choices;
};

// The cost of a plan is noise_weight * noise + seconds_weight * seconds.
struct StoreProblem {
  std::vector<std::int64_t> base;  // bytes that live at each position, whatever is chosen
  std::vector<StoreItem> items;
  double noise_weight = 1, seconds_weight = 1;
};

struct StorePlan {
  bool fits = false;        // within what was asked; if not, this is the nearest plan found
  std::vector<int> choice;  // an index into the choices of each item
  std::int64_t peak = 0;
  int peak_position = 0;
  double noise = 0, seconds = 0, cost = 0;
  std::string why;  // of a plan that does not fit: what holds its peak, largest first
};

// The plan of least cost whose peak is at most `budget` bytes. It is never worse than the plan for
// the same problem with some kinds of choices left out. If no plan is found, the result has the
// smallest peak that was found. Throws InvalidArgument for an item without choices, for spans
// outside of the positions, and for numbers that are negative or not finite.
TUCKFOLD_API StorePlan plan_within(const StoreProblem& problem, std::int64_t budget);

// The plan of least peak whose noise and added seconds are within limits.
TUCKFOLD_API StorePlan plan_smallest(const StoreProblem& problem, double noise,
                                     double seconds = std::numeric_limits<double>::infinity());

}  // namespace tuckfold
