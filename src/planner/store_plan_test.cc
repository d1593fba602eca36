// Plans of storage: within budgets, near the best of all combinations, never worse than with fewer
// kinds of choices, and quick.
#include <gtest/gtest.h>

#include <cmath>
#include <ctime>
#include <random>

#include "planner/store_ref.h"
#include "planner/store_solver.h"
#include "tuckfold/error.h"
#include "tuckfold/planner.h"

namespace tuckfold {
namespace {

// A step of `layers` operators and as many backward ones; each saves a tensor between its two
// positions. Decoded copies live at the backward position alone.
StoreProblem random_step(int layers, std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto uniform = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  StoreProblem problem;
  problem.seconds_weight = 100;
  for (int p = 0; p < 2 * layers; ++p) {
    problem.base.push_back(1000 + static_cast<std::int64_t>(uniform(0, 4000)));
  }
  for (int layer = 0; layer < layers; ++layer) {
    const int forward = layer;
    const int backward = 2 * layers - 1 - layer;
    const auto bytes = static_cast<std::int64_t>(std::exp(uniform(4, 10)));
    const auto size = static_cast<double>(bytes);
    const double sensitivity = std::exp(uniform(-6, 0));
    StoreItem item;
    item.name = "layer" + std::to_string(layer);
    item.choices.push_back({.how = "keep", .spans = {{forward, backward, bytes}}});
    if (uniform(0, 1) < 0.3) {
      item.choices.push_back({.kind = StoreKind::Exact,
                              .how = "1 bit",
                              .spans = {{forward, backward, bytes / 32 + 1}},
                              .seconds = size * 1e-8});
    }
    if (uniform(0, 1) < 0.4) {
      item.choices.push_back({.kind = StoreKind::Recompute,
                              .how = "recompute",
                              .spans = {{backward, backward, 2 * bytes}},
                              .seconds = size * uniform(1e-8, 1e-7)});
    }
    for (const int bits : {8, 4, 3, 2}) {
      const std::int64_t stored = bytes * bits / 32 + 4;
      item.choices.push_back({.kind = StoreKind::Codec,
                              .how = "block_quant(bits=" + std::to_string(bits) + ")",
                              .spans = {{forward, backward, stored}, {backward, backward, bytes}},
                              .seconds = (size + static_cast<double>(stored)) * 1e-8,
                              .noise = sensitivity * std::ldexp(1, -2 * bits)});
    }
    item.choices.push_back({.kind = StoreKind::Offload,
                            .how = "offload",
                            .spans = {{forward, std::min(forward + 2, backward), bytes},
                                      {std::max(forward, backward - 2), backward, bytes}},
                            .seconds = size * 2e-7});
    problem.items.push_back(std::move(item));
  }
  return problem;
}

StoreProblem only(const StoreProblem& problem, unsigned kinds) {
  StoreProblem fewer = problem;
  for (StoreItem& item : fewer.items) {
    std::erase_if(item.choices, [&](const StoreChoice& choice) {
      return (kinds >> static_cast<unsigned>(choice.kind) & 1) == 0;
    });
  }
  return fewer;
}

bool every_item_has_choices(const StoreProblem& problem) {
  return std::all_of(problem.items.begin(), problem.items.end(),
                     [](const StoreItem& item) { return !item.choices.empty(); });
}

void expect_consistent(const StoreProblem& problem, const StorePlan& plan) {
  ASSERT_EQ(plan.choice.size(), problem.items.size());
  const StoreSums sums = sums_ref(problem, plan.choice);
  EXPECT_EQ(plan.peak, sums.peak);
  EXPECT_DOUBLE_EQ(plan.noise, sums.noise);
  EXPECT_DOUBLE_EQ(plan.seconds, sums.seconds);
  EXPECT_DOUBLE_EQ(plan.cost, sums.cost);
}

TEST(StorePlan, ALooseBudgetKeepsAll) {
  const StoreProblem problem = random_step(12, 1);
  const StorePlan plan = plan_within(problem, std::int64_t{1} << 40);
  EXPECT_TRUE(plan.fits);
  EXPECT_EQ(plan.cost, 0);
  EXPECT_EQ(plan.choice, std::vector<int>(12, 0));
}

TEST(StorePlan, FewCombinationsGiveTheBest) {
  for (std::uint32_t seed = 0; seed < 12; ++seed) {
    const StoreProblem problem = random_step(4, seed);
    const std::int64_t most = sums_ref(problem, std::vector<int>(4, 0)).peak;
    const std::int64_t least = least_peak_ref(problem, 1e9, 1e9);
    for (const double share : {0.0, 0.1, 0.3, 0.6, 0.9}) {
      const std::int64_t budget =
          least + static_cast<std::int64_t>(static_cast<double>(most - least) * share);
      const StorePlan plan = plan_within(problem, budget);
      ASSERT_TRUE(plan.fits) << seed << " " << share << " " << plan.why;
      expect_consistent(problem, plan);
      EXPECT_LE(plan.peak, budget);
      EXPECT_DOUBLE_EQ(plan.cost, least_cost_ref(problem, budget));
    }
    for (const double noise : {0.0, 1e-4, 1e-2, 1.0}) {
      EXPECT_EQ(plan_smallest(problem, noise).peak, least_peak_ref(problem, noise, 1e9));
      EXPECT_EQ(plan_smallest(problem, noise, 1e-3).fits,
                least_peak_ref(problem, noise, 1e-3) < std::numeric_limits<std::int64_t>::max());
    }
  }
}

// What the prices prove is a lower bound, and the plan is within 5 % of it.
TEST(StorePlan, ManyTensorsAreNearTheBound) {
  for (std::uint32_t seed = 0; seed < 10; ++seed) {
    const StoreProblem problem = random_step(150, seed);
    const planner::FlatProblem flat(problem);
    const std::int64_t most = sums_ref(problem, std::vector<int>(150, 0)).peak;
    for (const double share : {0.2, 0.4, 0.8}) {
      const auto budget = static_cast<std::int64_t>(static_cast<double>(most) * share);
      const StorePlan plan = plan_within(problem, budget);
      ASSERT_TRUE(plan.fits) << plan.why;
      expect_consistent(problem, plan);
      const planner::Attempt run = planner::attempt(flat, planner::kAllKinds, budget);
      const double bound = planner::lower_bounds(flat, run.prices, budget)[planner::kAllKinds];
      EXPECT_GT(bound, 0);
      EXPECT_GE(plan.cost, bound * (1 - 1e-9));
      EXPECT_LE(plan.cost, bound * 1.05) << seed << " " << share;
    }
  }
}

TEST(StorePlan, BoundsHoldForEveryCombination) {
  for (std::uint32_t seed = 0; seed < 30; ++seed) {
    const StoreProblem problem = random_step(4, seed);
    const planner::FlatProblem flat(problem);
    const auto budget = sums_ref(problem, std::vector<int>(4, 0)).peak / 2;
    const planner::Attempt run = planner::attempt(flat, planner::kAllKinds, budget);
    const std::vector<double> bounds = planner::lower_bounds(flat, run.prices, budget);
    for (unsigned kinds = 1; kinds <= planner::kAllKinds; ++kinds) {
      const StoreProblem fewer = only(problem, kinds);
      if (!every_item_has_choices(fewer)) {
        EXPECT_TRUE(std::isinf(bounds[kinds]));
        continue;
      }
      EXPECT_LE(bounds[kinds], least_cost_ref(fewer, budget) * (1 + 1e-9) + 1e-15) << seed;
    }
  }
}

TEST(StorePlan, NeverWorseThanWithFewerKinds) {
  for (std::uint32_t seed = 0; seed < 16; ++seed) {
    const StoreProblem problem = random_step(4 + static_cast<int>(seed) * 3, seed);
    const std::int64_t most = sums_ref(problem, std::vector<int>(problem.items.size(), 0)).peak;
    for (const double share : {0.25, 0.4, 0.7}) {
      const auto budget = static_cast<std::int64_t>(static_cast<double>(most) * share);
      const StorePlan plan = plan_within(problem, budget);
      for (unsigned kinds = 1; kinds < 31; ++kinds) {
        const StoreProblem fewer = only(problem, kinds);
        if (!every_item_has_choices(fewer)) continue;
        const StorePlan other = plan_within(fewer, budget);
        if (other.fits) {
          ASSERT_TRUE(plan.fits) << seed << " " << kinds;
          EXPECT_LE(plan.cost, other.cost * (1 + 1e-12)) << seed << " " << kinds;
        } else if (!plan.fits) {
          EXPECT_LE(plan.peak, other.peak + other.peak / 50) << seed << " " << kinds;
        }
      }
    }
  }
}

TEST(StorePlan, SmallestPeakKeepsItsLimits) {
  std::int64_t last = 0;
  const StoreProblem problem = random_step(100, 3);
  for (const double noise : {1.0, 1e-1, 1e-2, 1e-3, 0.0}) {
    const StorePlan plan = plan_smallest(problem, noise);
    ASSERT_TRUE(plan.fits);
    expect_consistent(problem, plan);
    EXPECT_LE(plan.noise, noise);
    EXPECT_GE(plan.peak, last);  // less noise, more bytes
    last = plan.peak;
    const StorePlan quick = plan_smallest(problem, noise, plan.seconds / 2);
    ASSERT_TRUE(quick.fits);
    EXPECT_LE(quick.noise, noise);
    EXPECT_LE(quick.seconds, plan.seconds / 2);
    EXPECT_GE(quick.peak, plan.peak - plan.peak / 50);
  }
}

TEST(StorePlan, AnImpossibleBudgetNamesTheSmallestPeakAndWhatHoldsIt) {
  StoreProblem problem;
  problem.base = {10, 5000, 10};
  problem.items = {{"conv", {{.how = "keep", .spans = {{0, 2, 3000}}}}},
                   {"relu",
                    {{.how = "keep", .spans = {{0, 2, 900}}},
                     {.kind = StoreKind::Exact, .how = "1 bit", .spans = {{0, 2, 30}}}}}};
  const StorePlan plan = plan_within(problem, 8000);
  EXPECT_FALSE(plan.fits);
  EXPECT_EQ(plan.peak, 8030);
  EXPECT_EQ(plan.peak_position, 1);
  EXPECT_EQ(
      plan.why,
      "the smallest peak found is 8030 bytes, at position 1: 5000 bytes of what is not stored "
      "for backward, 3000 bytes of conv (keep), 30 bytes of relu (1 bit)");
}

TEST(StorePlan, NothingToStore) {
  EXPECT_TRUE(plan_within({}, 0).fits);
  StoreProblem problem;
  problem.base = {5, 7};
  EXPECT_TRUE(plan_within(problem, 7).fits);
  EXPECT_FALSE(plan_within(problem, 6).fits);
  EXPECT_EQ(plan_smallest(problem, 0).peak, 7);
}

void expect_invalid(const StoreProblem& problem, const std::string& words) {
  try {
    plan_within(problem, 100);
    ADD_FAILURE() << "expected: " << words;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::InvalidArgument);
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
  }
}

TEST(StorePlan, WrongProblemsAreRefused) {
  StoreProblem problem;
  problem.base = {1, 1};
  problem.items = {{"a", {}}};
  expect_invalid(problem, "an item needs at least one choice, 'a' has none");
  problem.items = {{"a", {{.how = "keep", .spans = {{0, 2, 1}}}}}};
  expect_invalid(problem, "a span must lie within the 2 positions, 'keep' of 'a' has 0 to 2");
  problem.items = {{"a", {{.how = "keep", .spans = {{0, 1, -1}}}}}};
  expect_invalid(problem, "a span must have 0 to 2^50 bytes");
  problem.items = {{"a", {{.how = "keep", .spans = {}, .noise = std::nan("")}}}};
  expect_invalid(problem, "seconds and noise must be finite and at least 0");
  problem.items.clear();
  problem.noise_weight = -1;
  expect_invalid(problem, "weights must be finite");
}

// A walk over all choices a few times, not over all pairs of tensors.
TEST(StorePlan, ThousandsOfTensorsTakeMilliseconds) {
  const StoreProblem problem = random_step(2000, 7);
  const std::int64_t most = sums_ref(problem, std::vector<int>(2000, 0)).peak;
  const std::clock_t start = std::clock();
  const StorePlan plan = plan_within(problem, most / 5);
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  EXPECT_TRUE(plan.fits);
  EXPECT_LT(seconds, 0.5);  // about 5 ms in a release build; sanitizers take their share
}

}  // namespace
}  // namespace tuckfold
