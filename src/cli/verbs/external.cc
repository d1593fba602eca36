// Verbs that are programs of their own, like git's: those that need Python or LibTorch.
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/fail.h"
#include "cli/verbs/verbs.h"

namespace tuckfold::cli {

void run_external(const std::string& verb, char** arguments) {
  if (verb.find('/') != verb.npos) return;
  std::string program = "tuckfold-" + verb;
  arguments[0] = program.data();
  std::error_code unreadable;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", unreadable);
  if (!unreadable) {
    const std::string beside = self.parent_path() / program;
    ::execv(beside.c_str(), arguments);
    if (errno != ENOENT)
      fail(Errc::Io, "[{}] cannot run '{}': {}", verb, beside, std::strerror(errno));
  }
  ::execvp(program.c_str(), arguments);
  if (errno != ENOENT)
    fail(Errc::Io, "[{}] cannot run '{}': {}", verb, program, std::strerror(errno));
}

}  // namespace tuckfold::cli
