#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>

#include "base/in_order.h"

namespace tuckfold {
namespace {

TEST(ParallelInOrder, EverythingIsTakenOnceAndInOrder) {
  for (const int threads : {1, 2, 7}) {
    for (const std::int64_t window : {1, 2, 9}) {
      for (const std::int64_t count : {0, 1, 2, 100}) {
        std::vector<std::int64_t> slots(static_cast<std::size_t>(window), -1), taken;
        in_order(
            count, {threads, 1, window},
            [&](std::int64_t i, std::size_t slot, int worker) {
              EXPECT_GE(worker, 0);
              EXPECT_LT(worker, threads);
              if (i % 5 == 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
              slots[slot] = i;
            },
            [&](std::int64_t i, std::size_t slot) {
              EXPECT_EQ(slots[slot], i);  // nobody has made another one there meanwhile
              taken.push_back(i);
            });
        std::vector<std::int64_t> wanted(static_cast<std::size_t>(count));
        std::iota(wanted.begin(), wanted.end(), 0);
        EXPECT_EQ(taken, wanted) << threads << " threads, window " << window;
      }
    }
  }
}

TEST(ParallelInOrder, NoMoreIsMadeAheadThanTheWindowHolds) {
  std::atomic<std::int64_t> taken = 0;
  in_order(
      200, {4, 1, 6}, [&](std::int64_t i, std::size_t, int) { EXPECT_LT(i, taken + 6); },
      [&](std::int64_t, std::size_t) { ++taken; });
  EXPECT_EQ(taken, 200);
}

TEST(ParallelInOrder, TheFirstErrorInOrderIsThrownAndNothingBehindItIsTaken) {
  for (const int threads : {1, 4}) {
    std::vector<std::int64_t> taken;
    std::string message;
    try {
      in_order(
          100, {threads, 1, 8},
          [&](std::int64_t i, std::size_t, int) {
            if (i == 20) std::this_thread::sleep_for(std::chrono::milliseconds(5));
            if (i >= 20 && i % 2 == 0) throw std::runtime_error(std::to_string(i));
          },
          [&](std::int64_t i, std::size_t) { taken.push_back(i); });
    } catch (const std::runtime_error& error) {
      message = error.what();
    }
    EXPECT_EQ(message, "20");
    EXPECT_EQ(taken.size(), 20u);
  }
}

TEST(ParallelInOrder, LargeThingsAreMadeOneByOneByAllThreads) {
  const Lanes small = lanes_for(1000, 4), medium = lanes_for(8 << 20, 4),
              large = lanes_for(std::size_t{1} << 33, 4);
  EXPECT_EQ(small.workers, 4);
  EXPECT_EQ(small.window, 16);
  EXPECT_EQ(medium.workers, 4);
  EXPECT_EQ(medium.window, 5);
  EXPECT_EQ(large.workers, 1);
  EXPECT_EQ(large.threads_of_each, 4);
  EXPECT_EQ(large.window, 1);
}

TEST(ParallelInOrder, AnErrorOfTakingEndsTheLoop) {
  std::int64_t taken = 0;
  EXPECT_THROW(in_order(
                   50, {3, 1, 4}, [](std::int64_t, std::size_t, int) {},
                   [&](std::int64_t i, std::size_t) {
                     if (i == 7) throw std::runtime_error("full");
                     ++taken;
                   }),
               std::runtime_error);
  EXPECT_EQ(taken, 7);
}

}  // namespace
}  // namespace tuckfold
