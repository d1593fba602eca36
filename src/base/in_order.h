// Work that many threads make and one at a time takes away, in order: chunks are packed side by
// side and written one behind the other, and no core waits for the disk while there is work.
//
//   const Lanes lanes = lanes_for(bytes_of_chunk, threads);
//   in_order(chunks, lanes,
//            [&](std::int64_t i, std::size_t slot, int) { pack(i, rooms[slot]); },
//            [&](std::int64_t i, std::size_t slot) { file.write(rooms[slot]); });
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <vector>

#include "base/parallel.h"

namespace tuckfold {

// How many things of so many bytes to make at once, and to hold: more than a core needs to go on
// while another one's is written, and no more memory than a few hundred megabytes.
struct Lanes {
  int workers;          // side by side
  int threads_of_each;  // that one may use for itself
  std::int64_t window;
};
inline Lanes lanes_for(std::size_t bytes_of_each, int threads) {
  constexpr std::size_t kMostAtOnce = 256 << 20, kSmall = 1 << 20;
  if (bytes_of_each > kMostAtOnce / static_cast<std::size_t>(threads)) return {1, threads, 1};
  return {threads, 1, bytes_of_each <= kSmall ? 4 * threads : threads + 1};
}

// make(i, slot, worker) is called for 0..count, by several workers at once, with the slot i mod
// `window` to itself until take(i, slot) has returned; take is called in order, never twice at
// once. The first of them to throw, in order, ends the loop, and is thrown here.
template <class Make, class Take>
void in_order(std::int64_t count, const Lanes& lanes, Make&& make, Take&& take) {
  const std::int64_t window = lanes.window;
  struct Slot {
    bool ready = false;
    std::exception_ptr error;
  };
  std::vector<Slot> slots(static_cast<std::size_t>(window));
  std::mutex mutex;
  std::condition_variable taken;
  std::int64_t claimed = 0, next = 0;  // to be made, and to be taken
  bool taking = false;
  std::exception_ptr error;

  const auto slot_of = [&](std::int64_t i) { return static_cast<std::size_t>(i % window); };
  // Under the lock, which is given up while something is taken.
  const auto take_ready = [&](std::unique_lock<std::mutex>& lock) {
    if (taking) return;
    taking = true;
    while (!error && next < claimed && slots[slot_of(next)].ready) {
      Slot& slot = slots[slot_of(next)];
      error = slot.error;
      if (!error) {
        lock.unlock();
        try {
          take(next, slot_of(next));
        } catch (...) {
          slot.error = std::current_exception();
        }
        lock.lock();
        error = slot.error;
      }
      slot.ready = false;
      ++next;
      taken.notify_all();
    }
    taking = false;
  };
  // Whoever waits here waits for something that another worker is making.
  const auto work = [&](int worker) {
    std::unique_lock lock(mutex);
    for (;;) {
      taken.wait(lock, [&] { return error || claimed == count || claimed < next + window; });
      if (error || claimed == count) return;
      const std::int64_t i = claimed++;
      Slot& slot = slots[slot_of(i)];
      lock.unlock();
      try {
        make(i, slot_of(i), worker);
      } catch (...) {
        slot.error = std::current_exception();
      }
      lock.lock();
      slot.ready = true;
      take_ready(lock);
    }
  };
  parallel_for(lanes.workers, lanes.workers, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t worker = begin; worker < end; ++worker) work(static_cast<int>(worker));
  });
  if (error) std::rethrow_exception(error);
}

}  // namespace tuckfold
