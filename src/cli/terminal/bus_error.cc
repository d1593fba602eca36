// The handler calls nothing but system calls: it may run inside of any function.
#include "cli/terminal/bus_error.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/fail.h"

namespace tuckfold::cli {
namespace {

constexpr std::size_t kMostPath = 4096;
std::atomic_flag g_said = ATOMIC_FLAG_INIT;
char g_read[4096], g_line[kMostPath + 256], g_text[kMostPath + 512];

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// Reads a hexadecimal number at `at`, and passes it.
std::uintptr_t scan_hex(const char*& at) {
  std::uintptr_t value = 0;
  for (; hex_digit(*at) >= 0; ++at) value = value * 16 + static_cast<unsigned>(hex_digit(*at));
  return value;
}

// Whether this line of /proc/self/maps ("from-to perms offset device inode   path") has the
// address; then g_line begins with the path.
bool take_path(char* line, std::uintptr_t address) {
  const char* at = line;
  const std::uintptr_t from = scan_hex(at);
  if (*at++ != '-') return false;
  const std::uintptr_t to = scan_hex(at);
  if (address < from || address >= to) return false;
  const char* path = std::strchr(at, '/');
  if (path == nullptr) return false;
  std::memmove(line, path, std::strlen(path) + 1);
  return true;
}

// The mapped file that has the address.
bool find_path(std::uintptr_t address) {
  const int maps = ::open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (maps < 0) return false;
  std::size_t filled = 0;
  bool found = false;
  for (ssize_t got; !found && (got = ::read(maps, g_read, sizeof g_read)) > 0;) {
    for (ssize_t i = 0; !found && i < got; ++i) {
      if (g_read[i] != '\n') {
        if (filled + 1 < sizeof g_line) g_line[filled++] = g_read[i];
        continue;
      }
      g_line[filled] = '\0';
      filled = 0;
      found = take_path(g_line, address);
    }
  }
  ::close(maps);
  return found;
}

void append(std::size_t& at, const char* text) {
  for (; *text != '\0' && at < sizeof g_text; ++text) g_text[at++] = *text;
}

void handle(int signal, siginfo_t* info, void*) {
  if (info->si_code != BUS_ADRERR) {  // not of a mapped file: as without a handler
    struct sigaction plain {};
    plain.sa_handler = SIG_DFL;
    ::sigaction(signal, &plain, nullptr);
    ::raise(signal);
    return;
  }
  while (g_said.test_and_set()) ::pause();  // another thread says it, and ends the program
  const bool known = find_path(reinterpret_cast<std::uintptr_t>(info->si_addr));
  std::size_t bytes = 0;
  append(bytes, "tuckfold: [io] ");
  append(bytes, known ? "'" : "a mapped file");
  if (known) append(bytes, g_line);
  append(bytes, known ? "'" : "");
  append(bytes,
         " shrank while it was read, or its disk failed; leave inputs as they are until the "
         "command ends\n");
  if (::write(STDERR_FILENO, g_text, bytes) < 0) bytes = 0;  // nobody is left to tell
  ::_exit(exit_code(Errc::Io));
}

}  // namespace

void install_bus_error_handler() {
  struct sigaction action {};
  action.sa_sigaction = handle;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace tuckfold::cli
