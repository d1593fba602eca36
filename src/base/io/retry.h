// System calls that a signal interrupts.
#pragma once

#include <cerrno>

namespace tuckfold {

// Repeats the call while it returns less than 0 with EINTR; returns its last result.
template <class Call>
auto retry(Call&& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

}  // namespace tuckfold
