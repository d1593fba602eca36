// Shared by exact codecs: parallel loops over elements, a pack that stops at a value it cannot
// represent, and the message for the first such value.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>

#include "base/element.h"
#include "base/fail.h"
#include "base/parallel.h"
#include "base/strided.h"

namespace tuckfold {

// Calls run(begin, end) over ranges of elements that start at multiples of 8, where bits of any
// width start at a byte.
template <class Run>
void for_each_range(std::int64_t elems, int threads, Run&& run) {
  constexpr std::int64_t kTogether = 1 << 14;
  parallel_for((elems + kTogether - 1) / kTogether, threads,
               [&](std::int64_t begin, std::int64_t end) {
                 run(begin * kTogether, std::min(end * kTogether, elems));
               });
}

// The same for a run that returns the first element that it cannot represent, or `end`. Returns the
// first of all, or `elems`.
template <class Run>
std::int64_t first_refused(std::int64_t elems, int threads, Run&& run) {
  std::atomic<std::int64_t> first{elems};
  for_each_range(elems, threads, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t found = run(begin, end);
    if (found == end) return;
    for (std::int64_t seen = first; found < seen && !first.compare_exchange_weak(seen, found);) {
    }
  });
  return first;
}

inline std::uint64_t refused_bits(const FlatReader& in, std::int64_t index) {
  std::uint64_t bits = 0;
  in.gather_bytes(index, 1, &bits);
  return bits;
}
// "0.3 at element 17"
inline std::string refused_text(DType dtype, std::uint64_t bits, std::int64_t index) {
  return fmt::format("{} at element {}", element_text(dtype, bits), index);
}

}  // namespace tuckfold
