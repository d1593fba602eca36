// A small pool of threads for loops over independent parts. It starts on first use, and again in
// the child of a fork, so that data-loader workers may pack.
#pragma once

#include <cstdint>
#include <type_traits>

namespace tuckfold {

// The number of threads that `requested` means: itself, or every core for 0.
int thread_count(int requested);

namespace detail {
using RangeFn = void (*)(void* context, std::int64_t begin, std::int64_t end) noexcept;
void parallel_ranges(std::int64_t parts, int threads, RangeFn run, void* context);
}  // namespace detail

// The caller's threads in place of the pool: run(data, parts, threads, body, context) calls body
// over ranges that cover 0..parts once, and returns when all are done.
struct Executor {
  void (*run)(void* data, std::int64_t parts, std::int32_t threads,
              void (*body)(void* context, std::int64_t begin, std::int64_t end), void* context);
  void* data;
};

// Loops that this thread starts during the object's lifetime run on the executor, if it has a run.
class UseExecutor {
 public:
  explicit UseExecutor(const Executor& executor);
  ~UseExecutor();
  UseExecutor(const UseExecutor&) = delete;
  UseExecutor& operator=(const UseExecutor&) = delete;

 private:
  Executor before_;
};

// Calls body(begin, end) over ranges that together cover 0..parts once, on at most `threads`
// threads including the caller's; returns when all are done. Each call runs under FpEnv. A body
// must not throw. A loop that starts inside another loop, or while another thread runs one, runs on
// its caller alone.
template <class Body>
void parallel_for(std::int64_t parts, int threads, Body&& body) {
  detail::parallel_ranges(
      parts, threads,
      [](void* context, std::int64_t begin, std::int64_t end) noexcept {
        (*static_cast<std::remove_reference_t<Body>*>(context))(begin, end);
      },
      &body);
}

}  // namespace tuckfold
