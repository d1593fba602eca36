#include "cli/terminal/interrupt.h"

#include <atomic>
#include <csignal>

namespace tuckfold::cli {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM};

std::atomic<int> g_seen = 0;                           // the signal, 0: none
static_assert(std::atomic<int>::is_always_lock_free);  // as a handler needs it
int g_guards = 0;

void note(int signal) { g_seen = signal; }

}  // namespace

InterruptGuard::InterruptGuard() {
  if (g_guards++ > 0) return;
  for (const int signal : kSignals) {
    struct sigaction before {};
    if (::sigaction(signal, nullptr, &before) != 0 || before.sa_handler != SIG_DFL) continue;
    struct sigaction action {};
    action.sa_handler = note;
    // Without SA_RESTART a write could come back half done.
    action.sa_flags = static_cast<int>(SA_RESTART | SA_RESETHAND);
    ::sigaction(signal, &action, nullptr);
  }
}

InterruptGuard::~InterruptGuard() {
  if (--g_guards > 0) return;
  for (const int signal : kSignals) {
    struct sigaction now {};
    if (::sigaction(signal, nullptr, &now) == 0 && now.sa_handler == note) {
      std::signal(signal, SIG_DFL);
    }
  }
}

void InterruptGuard::check() {
  if (const int signal = g_seen; signal != 0) throw Interrupted(signal);
}

}  // namespace tuckfold::cli
