// The pool. Workers spin for a moment before they sleep: waking one costs more than packing 100 KB.
#include "base/parallel.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>

#include "base/fp_env.h"

namespace tuckfold {
namespace {

using detail::RangeFn;

constexpr int kMaxWorkers = 255;
constexpr auto kSpin = std::chrono::microseconds(50);

// A short loop costs less than handing it over, so a range has at least one part, and there are at
// most as many threads as parts. Each thread gets one contiguous range, because parts cost the
// same.
struct ParallelLoop {
  RangeFn run;
  void* context;
  std::int64_t parts;
  int ranges;

  void run_range(int index) const noexcept {
    const FpEnv env;
    run(context, parts * index / ranges, parts * (index + 1) / ranges);
  }
};

class Pool {
 public:
  // Runs the loop on the caller and up to ranges - 1 workers. False if the pool is in use.
  bool try_run(const ParallelLoop& loop) {
    const std::unique_lock<std::mutex> owner(owner_, std::try_to_lock);
    if (!owner.owns_lock()) return false;
    const int helpers = start_workers(loop.ranges - 1);
    loop_ = loop;
    next_ = 1;
    owner_thread_ = gettid();
    owner_cpu_ = sched_getcpu();
    open_ = true;
    for (int i = 0; i < helpers; ++i) {
      turns_[i].number.fetch_add(1);
      turns_[i].number.notify_one();
    }
    loop_.run_range(0);
    take_ranges();  // of workers that are slow to wake
    open_ = false;
    for (int spins = 0; inside_ > 0; ++spins) {
      if (spins < 100) {
        pause();
      } else {
        sched_yield();  // the worker may be waiting for this very core
      }
    }
    return true;
  }

 private:
  // A worker waits for its own number to change, so that only workers that may get a range wake up.
  struct alignas(64) Turn {
    std::atomic<unsigned> number{0};
  };

  static void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    sched_yield();
#endif
  }

  // Fewer workers than asked for is no error: the caller does the rest.
  int start_workers(int wanted) {
    wanted = std::min(wanted, kMaxWorkers);
    while (workers_ < wanted) {
      try {
        std::thread([this, index = workers_] { work(turns_[index].number); }).detach();
      } catch (const std::system_error&) {
        break;
      }
      ++workers_;
    }
    return std::min(wanted, workers_);
  }

  void take_ranges() noexcept {
    for (int i = next_++; i < loop_.ranges; i = next_++) loop_.run_range(i);
  }

  // A worker may read the loop only while it is counted as inside and has then seen the loop open:
  // the owner closes the loop, and continues when nobody is inside.
  void work(std::atomic<unsigned>& number) noexcept {
    for (unsigned seen = 0;;) {
      wait_for_change(number, seen);
      seen = number;
      if (sched_getcpu() == owner_cpu_) keep_off_owner();
      ++inside_;
      if (open_) take_ranges();
      --inside_;
    }
  }

  // The scheduler may queue a woken thread for milliseconds on the core of the thread that waits
  // for it, though other cores are idle. So workers may run on the owner's cores except the one it
  // is on.
  void keep_off_owner() const noexcept {
    cpu_set_t cpus;
    if (sched_getaffinity(owner_thread_, sizeof cpus, &cpus) != 0 || CPU_COUNT(&cpus) < 2) return;
    CPU_CLR(owner_cpu_, &cpus);
    sched_setaffinity(0, sizeof cpus, &cpus);
  }

  void wait_for_change(std::atomic<unsigned>& number, unsigned seen) {
    const auto deadline = std::chrono::steady_clock::now() + kSpin;
    do {
      for (int i = 0; i < 32; ++i) {
        if (number != seen) return;
        pause();
      }
    } while (std::chrono::steady_clock::now() < deadline);
    keep_off_owner();
    number.wait(seen);
  }

  std::mutex owner_;  // held for the length of one loop
  std::atomic<bool> open_{false};
  std::atomic<int> inside_{0};
  std::atomic<int> next_{0};  // the first range that nobody has taken
  std::atomic<pid_t> owner_thread_{0};
  std::atomic<int> owner_cpu_{0};
  ParallelLoop loop_{};
  int workers_ = 0;
  Turn turns_[kMaxWorkers];
};

// Constant-initialized: if it were made on first use, a fork at that moment would leave the child
// waiting for the thread that makes it. After a fork the child makes a new pool in its place,
// because its threads are gone and its locks may be held.
constinit Pool g_pool;
[[maybe_unused]] const int g_after_fork =
    pthread_atfork(nullptr, nullptr, [] { new (&g_pool) Pool; });
thread_local bool t_inside = false;
thread_local Executor t_executor{};

}  // namespace

int thread_count(int requested) {
  if (requested > 0) return std::min(requested, kMaxWorkers + 1);
  cpu_set_t mask;
  if (sched_getaffinity(0, sizeof mask, &mask) == 0) return std::max(1, CPU_COUNT(&mask));
  return std::max(1U, std::thread::hardware_concurrency());
}

UseExecutor::UseExecutor(const Executor& executor) : before_(t_executor) { t_executor = executor; }
UseExecutor::~UseExecutor() { t_executor = before_; }

void detail::parallel_ranges(std::int64_t parts, int threads, RangeFn run, void* context) {
  const int ranges = static_cast<int>(std::min<std::int64_t>(parts, threads));
  const ParallelLoop loop{run, context, parts, std::max(ranges, 1)};
  if (parts <= 0) return;
  if (ranges > 1 && !t_inside && t_executor.run != nullptr) {
    const auto body = [](void* of, std::int64_t begin, std::int64_t end) {
      const FpEnv env;
      const ParallelLoop& whole = *static_cast<const ParallelLoop*>(of);
      whole.run(whole.context, begin, end);
    };
    t_inside = true;
    ParallelLoop whole = loop;
    t_executor.run(t_executor.data, parts, ranges, body, &whole);
    t_inside = false;
    return;
  }
  if (ranges > 1 && !t_inside) {
    t_inside = true;
    const bool done = g_pool.try_run(loop);
    t_inside = false;
    if (done) return;
  }
  ParallelLoop alone = loop;
  alone.ranges = 1;
  alone.run_range(0);
}

}  // namespace tuckfold
