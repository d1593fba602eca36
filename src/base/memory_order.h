// A tensor's elements in the order of memory, for what does not depend on their order.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/strided.h"

namespace tuckfold {

// The address of all elements if they lie side by side, in whatever order; else null.
inline const void* all_in_memory_order(const FlatReader& in) noexcept {
  Shape axes = in.axes(), steps = in.steps();
  std::int64_t together = 1;
  for (std::size_t found = 0; found < axes.rank(); ++found) {
    // The axis whose step is the number of elements that are known to lie together.
    std::size_t next = found;
    while (next < axes.rank() && steps[next] != together) ++next;
    if (next == axes.rank()) return nullptr;
    together *= axes[next];
    std::swap(axes[next], axes[found]);
    std::swap(steps[next], steps[found]);
  }
  return in.dense(0, 1);
}

}  // namespace tuckfold
