// A line on the terminal, of ASCII and cut to its width, that is erased when the work is done.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <string_view>

#include "cli/terminal/help_format.h"
#include "cli/terminal/message.h"

namespace tuckfold::cli {

class StatusLine {
 public:
  void show(std::string_view text) {
    // A line that is wrapped could not be erased.
    const std::size_t columns = shown_ ? columns_of(STDERR_FILENO) : 0;
    if (columns > 1) text = text.substr(0, columns - 1);
    if (shown_) print_err(fmt::format("\r\x1b[K{}", text));
  }
  ~StatusLine() { show(""); }

 private:
  bool shown_ = ::isatty(STDERR_FILENO) == 1;
};

}  // namespace tuckfold::cli
