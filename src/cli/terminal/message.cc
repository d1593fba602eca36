#include "cli/terminal/message.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>

namespace tuckfold::cli {

void print_err(std::string_view text) noexcept {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

void guard_streams() noexcept {
  struct Stream {
    int number, flags;
  };
  // Reading what can only be written fails as reading what is closed, and the other way around.
  for (const Stream stream : {Stream{STDIN_FILENO, O_WRONLY}, Stream{STDOUT_FILENO, O_RDONLY},
                              Stream{STDERR_FILENO, O_WRONLY}}) {
    if (::fcntl(stream.number, F_GETFD) >= 0 || errno != EBADF) continue;
    [[maybe_unused]] const int opened = ::open("/dev/null", stream.flags);  // the lowest number
  }
  std::signal(SIGXFSZ, SIG_IGN);  // write() then says EFBIG
}

}  // namespace tuckfold::cli
