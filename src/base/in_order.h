// Many threads produce items, one thread at a time consumes them, in order: chunks are packed in
// parallel and written one after the other, and no core waits for the disk while there is work.
//
//   const Lanes lanes = lanes_for(bytes_of_chunk, threads);
//   in_order(chunks, lanes,
//            [&](std::int64_t i, std::size_t slot, int) { pack(i, rooms[slot]); },
//            [&](std::int64_t i, std::size_t slot) { file.write(rooms[slot]); });
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <vector>

#include "base/parallel.h"

namespace tuckfold {

// How many items of so many bytes to make at once, and to hold: enough that a core can continue
// while another one's item is written, and at most a few hundred megabytes.
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

// make(i, slot, worker) is called for 0..count, by several workers at once; slot i mod `window`
// belongs to i until take(i, slot) has returned. take is called in order, by one thread at a time.
// The first exception, in order, ends the loop and is rethrown here.
template <class Make, class Take>
void in_order(std::int64_t count, const Lanes& lanes, Make&& make, Take&& take) {
  struct alignas(64) Slot {
    std::atomic<bool> ready = false;
    std::exception_ptr error;
  };
  std::vector<Slot> slots(static_cast<std::size_t>(lanes.window));
  std::atomic<std::int64_t> claimed = 0, next = 0;  // to be made, and to be taken
  std::atomic<bool> taking = false, stopped = false;
  std::exception_ptr error;

  const auto slot_of = [&](std::int64_t i) { return static_cast<std::size_t>(i % lanes.window); };
  const auto next_is_ready = [&] { return !stopped && slots[slot_of(next)].ready; };
  const auto take_next = [&] {
    Slot& slot = slots[slot_of(next)];
    try {
      if (!slot.error) take(next.load(), slot_of(next));
    } catch (...) {
      slot.error = std::current_exception();
    }
    if (slot.error) {
      error = slot.error;
      stopped = true;
    }
    slot.ready = false;
    ++next;
    next.notify_all();
  };
  // A worker that finds another one taking leaves: the other one checks again when it is done.
  const auto take_ready = [&] {
    while (next_is_ready() && !taking.exchange(true)) {
      while (next_is_ready()) take_next();
      taking = false;
    }
  };
  const auto work = [&](int worker) {
    for (std::int64_t i = claimed++; i < count; i = claimed++) {
      // Another worker is making the next item.
      for (std::int64_t now = next; i >= now + lanes.window && !stopped; now = next) next.wait(now);
      if (stopped) return;
      Slot& slot = slots[slot_of(i)];
      try {
        make(i, slot_of(i), worker);
      } catch (...) {
        slot.error = std::current_exception();
      }
      slot.ready = true;
      take_ready();
    }
  };
  parallel_for(lanes.workers, lanes.workers, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t worker = begin; worker < end; ++worker) work(static_cast<int>(worker));
  });
  if (error) std::rethrow_exception(error);
}

}  // namespace tuckfold
