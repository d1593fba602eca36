// Ctrl-C during long work takes effect between two steps, so that files are left in a valid state.
#pragma once

#include <exception>
#include <string>
#include <utility>

namespace tuckfold::cli {

// The work was interrupted. main() prints the text, if any, and ends as the signal would.
class Interrupted : public std::exception {
 public:
  explicit Interrupted(int signal, std::string text = "")
      : signal_(signal), text_(std::move(text)) {}
  const char* what() const noexcept override { return text_.c_str(); }
  int signal() const noexcept { return signal_; }

 private:
  int signal_;
  std::string text_;
};

// During its lifetime SIGINT and SIGTERM wait for check(); a second signal ends the program at
// once, as does any signal without a guard. Signals that the caller ignores stay ignored.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  static void check();  // throws Interrupted; any thread may call it
};

}  // namespace tuckfold::cli
