// Buffers that a thread keeps from call to call, because they are too large for a small stack.
//
//   parallel_for_with<Buffers>(parts, threads, [&](Buffers& buffers, std::int64_t begin,
//                                                  std::int64_t end) { … });
#pragma once

#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>
#include <type_traits>

#include "base/parallel.h"

namespace tuckfold {

// The calling thread's buffers, with the contents of the last call; null if there is no memory.
template <class Buffers>
Buffers* thread_buffers() noexcept {
  static_assert(std::is_trivially_default_constructible_v<Buffers> &&
                std::is_trivially_destructible_v<Buffers>);
  struct Free {
    void operator()(Buffers* buffers) const { std::free(buffers); }
  };
  thread_local std::unique_ptr<Buffers, Free> t_buffers;
  if (t_buffers == nullptr) {
    t_buffers.reset(static_cast<Buffers*>(std::aligned_alloc(alignof(Buffers), sizeof(Buffers))));
  }
  return t_buffers.get();
}

// Like parallel_for; the body gets the buffers of its thread. Throws std::bad_alloc if a thread has
// none, after all others are done.
template <class Buffers, class Body>
void parallel_for_with(std::int64_t parts, int threads, Body&& body) {
  std::atomic<bool> no_memory{false};
  parallel_for(parts, threads, [&](std::int64_t begin, std::int64_t end) {
    Buffers* buffers = thread_buffers<Buffers>();
    if (buffers == nullptr) {
      no_memory = true;
    } else {
      body(*buffers, begin, end);
    }
  });
  if (no_memory) throw std::bad_alloc();
}

}  // namespace tuckfold
