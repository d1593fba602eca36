// A line on the terminal that is erased when the work is done.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <string_view>

namespace tuckfold::cli {

class StatusLine {
 public:
  void show(std::string_view text) {
    if (shown_) fmt::print(stderr, "\r\x1b[K{}", text);
    if (shown_) std::fflush(stderr);
  }
  ~StatusLine() { show(""); }

 private:
  bool shown_ = ::isatty(STDERR_FILENO) == 1;
};

}  // namespace tuckfold::cli
