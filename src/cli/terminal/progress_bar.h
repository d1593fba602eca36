// A progress bar on the terminal for work of a known size, with speed and remaining time. Ctrl-C
// ends the work at its next step.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

#include "cli/terminal/interrupt.h"
#include "cli/terminal/status_line.h"

namespace tuckfold::cli {

class ProgressBar {
 public:
  // If quiet, or not on a terminal, it prints nothing and only measures time.
  ProgressBar(std::string what, std::uint64_t total_bytes, bool quiet)
      : what_(std::move(what)), total_(total_bytes), quiet_(quiet) {}

  // Throws Interrupted after Ctrl-C.
  void add(std::uint64_t bytes) {
    InterruptGuard::check();
    done_ += bytes;
    const double now = seconds();
    if (quiet_ || now - shown_at_ < 0.1) return;
    shown_at_ = now;
    // What fits beside the figures; nothing on a narrow terminal.
    const std::size_t columns = columns_of(STDERR_FILENO), beside = what_.size() + 34;
    const int width = columns == 0 ? kWidth
                      : columns <= beside + 4
                          ? 0
                          : std::min(kWidth, static_cast<int>(columns - beside));
    const double part = total_ == 0 ? 1 : static_cast<double>(done_) / static_cast<double>(total_);
    const int filled = std::clamp(static_cast<int>(part * width), 0, width);
    const double rate = static_cast<double>(done_) / std::max(now, 1e-9);
    const double left = (static_cast<double>(total_) - static_cast<double>(done_)) / rate;
    const std::string bar =
        width == 0 ? "" : fmt::format(" [{:#<{}}{:.<{}}]", "", filled, "", width - filled);
    line_.show(fmt::format("{}{} {:3.0f} %  {:.2f} GB/s  {:.0f} s left", what_, bar, 100 * part,
                           rate / 1e9, std::max(left, 0.0)));
  }
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  static constexpr int kWidth = 24;

  std::string what_;
  std::uint64_t total_, done_ = 0;
  bool quiet_;
  double shown_at_ = 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  InterruptGuard guard_;
  StatusLine line_;
};

}  // namespace tuckfold::cli
