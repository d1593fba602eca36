// Throwing an Error with a formatted message: rule, value, remedy.
#pragma once

#include <fmt/format.h>

#include <utility>

#include "tuckfold/error.h"

namespace tuckfold {

template <class... Args>
[[noreturn]] void fail(Errc code, fmt::format_string<Args...> text, Args&&... args) {
  throw Error(code, fmt::format(text, std::forward<Args>(args)...));
}

template <class... Args>
[[noreturn]] void invalid(fmt::format_string<Args...> text, Args&&... args) {
  fail(Errc::InvalidArgument, text, std::forward<Args>(args)...);
}

}  // namespace tuckfold
