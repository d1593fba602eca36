// The pool: every part once, whoever calls, also after a fork.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cfenv>
#include <cstdint>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "base/parallel.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace tuckfold {
namespace {

// The sum of all parts, each counted once: parts (parts - 1) / 2.
std::int64_t sum_of(std::int64_t parts, int threads) {
  std::atomic<std::int64_t> sum{0};
  parallel_for(parts, threads, [&](std::int64_t begin, std::int64_t end) {
    std::int64_t mine = 0;
    for (std::int64_t i = begin; i < end; ++i) mine += i;
    sum += mine;
  });
  return sum;
}
bool sums_right(std::int64_t parts, int threads) {
  return sum_of(parts, threads) == parts * (parts - 1) / 2;
}

// ThreadSanitizer dies of a thread that a forked child starts.
#ifdef __SANITIZE_THREAD__
constexpr bool kChildrenHaveThreads = false;
#else
constexpr bool kChildrenHaveThreads = true;
#endif

// Runs `body` in a forked child that must end within 30 seconds; whether it returned true.
template <class Body>
bool holds_in_child(Body&& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);
    _exit(body() ? 0 : 1);
  }
  int status = 0;
  return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
         WEXITSTATUS(status) == 0;
}

TEST(Parallel, EveryPartRunsExactlyOnce) {
  for (const int threads : {1, 2, 3, 8}) {
    for (const std::int64_t parts : {0, 1, 2, 3, 7, 8, 9, 100, 1000}) {
      std::vector<std::atomic<int>> runs(static_cast<std::size_t>(parts));
      parallel_for(parts, threads, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) ++runs[static_cast<std::size_t>(i)];
      });
      for (const auto& count : runs) ASSERT_EQ(count, 1) << threads << ' ' << parts;
    }
  }
}

TEST(Parallel, RangesAreNeverEmptyAndNeverMoreThanThreads) {
  for (const int threads : {1, 2, 5}) {
    for (const std::int64_t parts : {1, 3, 5, 300}) {
      std::atomic<int> ranges{0};
      parallel_for(parts, threads, [&](std::int64_t begin, std::int64_t end) {
        EXPECT_LT(begin, end);
        ++ranges;
      });
      EXPECT_LE(ranges, std::min<std::int64_t>(parts, threads));
    }
  }
}

// In a child, since workers stay for good once they are there.
TEST(Parallel, AsManyThreadsAsThereMayBeAllFinish) {
  if (!kChildrenHaveThreads) GTEST_SKIP() << "ThreadSanitizer cannot follow";
  EXPECT_TRUE(holds_in_child([] {
    return sums_right(100, 255) && sums_right(300, 256) && sums_right(300, thread_count(1 << 30)) &&
           sums_right(7, 2);
  }));
}

TEST(Parallel, NoPartsCallNothing) {
  parallel_for(0, 4, [](std::int64_t, std::int64_t) { ADD_FAILURE(); });
  parallel_for(-3, 4, [](std::int64_t, std::int64_t) { ADD_FAILURE(); });
}

TEST(Parallel, TheCallerTakesPart) {
  const auto caller = std::this_thread::get_id();
  std::mutex mutex;
  std::set<std::thread::id> ids;
  parallel_for(4, 4, [&](std::int64_t, std::int64_t) {
    const std::lock_guard<std::mutex> lock(mutex);
    ids.insert(std::this_thread::get_id());
  });
  EXPECT_EQ(ids.count(caller), 1u);
  EXPECT_LE(ids.size(), 4u);  // a worker that is slow to wake is not waited for
}

TEST(Parallel, ALoopInsideALoopRunsOnItsCaller) {
  std::atomic<int> wrong{0};
  std::atomic<std::int64_t> sum{0};
  parallel_for(8, 4, [&](std::int64_t begin, std::int64_t end) {
    const auto outer = std::this_thread::get_id();
    for (std::int64_t i = begin; i < end; ++i) {
      parallel_for(10, 4, [&](std::int64_t from, std::int64_t to) {
        if (std::this_thread::get_id() != outer) ++wrong;
        sum += to - from;
      });
    }
  });
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(sum, 80);
  EXPECT_TRUE(sums_right(100, 4));
}

TEST(Parallel, CallersOnSeveralThreadsDoNotDisturbEachOther) {
  std::atomic<int> wrong{0};
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&, i] {
      for (int turn = 0; turn < 200; ++turn) {
        if (!sums_right(20 + i + turn % 13, 1 + (turn + i) % 5)) ++wrong;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Parallel, ManyShortLoopsOfChangingWidthAllComplete) {
  for (int turn = 0; turn < 600; ++turn) ASSERT_TRUE(sums_right(turn % 40, 1 + turn % 4)) << turn;
}

TEST(Parallel, WorkersWakeAfterASleep) {
  for (int turn = 0; turn < 20; ++turn) {
    ASSERT_TRUE(sums_right(16, 3));
    std::this_thread::sleep_for(std::chrono::microseconds(20 * turn));
  }
}

TEST(Parallel, AChildOfAForkHasAPoolOfItsOwn) {
  if (!kChildrenHaveThreads) GTEST_SKIP() << "ThreadSanitizer cannot follow";
  ASSERT_TRUE(sums_right(100, 4));
  EXPECT_TRUE(holds_in_child([] {
    return sums_right(100, 4) && holds_in_child([] { return sums_right(100, 3); }) &&
           sums_right(50, 2);
  }));
  EXPECT_TRUE(sums_right(100, 4));
}

TEST(Parallel, ForksWhileOtherThreadsLoopLeaveParentAndChildWorking) {
  if (!kChildrenHaveThreads) GTEST_SKIP() << "ThreadSanitizer cannot follow";
#ifdef __SANITIZE_ADDRESS__
  // AddressSanitizer's own locks do not survive a fork while a thread is being started.
  ASSERT_TRUE(sums_right(64, 4));
#endif
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::thread other([&] {
    while (!stop) wrong += sums_right(64, 4) ? 0 : 1;
  });
#ifdef __SANITIZE_ADDRESS__
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
#endif
  for (int i = 0; i < 30; ++i) {
    EXPECT_TRUE(holds_in_child([] { return sums_right(100, 4) && sums_right(100, 2); })) << i;
  }
  stop = true;
  other.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_TRUE(sums_right(100, 4));
}

bool rounds_up() {
  volatile float one = 1.0f, little = 1e-20f;
  return one + little > 1.0f;
}

TEST(Parallel, BodiesRoundToNearestWhateverTheCallerDoes) {
  std::fesetround(FE_UPWARD);
  ASSERT_TRUE(rounds_up());
  std::atomic<int> wrong{0};
  for (const int threads : {1, 3}) {
    parallel_for(6, threads, [&](std::int64_t, std::int64_t) { wrong += rounds_up() ? 1 : 0; });
  }
  EXPECT_TRUE(rounds_up());
  EXPECT_EQ(std::fegetround(), FE_UPWARD);
  std::fesetround(FE_TONEAREST);
  EXPECT_EQ(wrong, 0);
}

#if defined(__x86_64__)
bool loses_small() {
  volatile float least = 1e-38f, half = 0.25f;
  return least * half == 0.0f;
}

TEST(Parallel, BodiesKeepSubnormalsWhateverTheCallerDoes) {
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8040);  // flush to zero, take as zero
  ASSERT_TRUE(loses_small());
  std::atomic<int> wrong{0};
  for (const int threads : {1, 3}) {
    parallel_for(6, threads, [&](std::int64_t, std::int64_t) { wrong += loses_small() ? 1 : 0; });
  }
  EXPECT_TRUE(loses_small());
  _mm_setcsr(before);
  EXPECT_EQ(wrong, 0);
}
#endif

TEST(Parallel, ThreadCountIsWhatWasAskedOrEveryCore) {
  EXPECT_EQ(thread_count(1), 1);
  EXPECT_EQ(thread_count(7), 7);
  EXPECT_GE(thread_count(0), 1);
  EXPECT_LE(thread_count(1 << 30), 256);
}

TEST(Parallel, AnExecutorRunsTheLoopsOfItsThreadWhileItIsInUse) {
  std::int64_t calls = 0;
  const Executor counting{[](void* data, std::int64_t parts, std::int32_t threads,
                             void (*body)(void*, std::int64_t, std::int64_t), void* context) {
                            ++*static_cast<std::int64_t*>(data);
                            EXPECT_EQ(threads, 2);
                            body(context, parts / 3, parts);
                            body(context, 0, parts / 3);
                          },
                          &calls};
  {
    const UseExecutor on(counting);
    EXPECT_TRUE(sums_right(1000, 2));
    EXPECT_TRUE(sums_right(1000, 1));  // nothing to share
    EXPECT_EQ(calls, 1);
    const UseExecutor off({});
    EXPECT_TRUE(sums_right(1000, 2));
    EXPECT_EQ(calls, 1);
  }
  EXPECT_TRUE(sums_right(1000, 2));
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace tuckfold
