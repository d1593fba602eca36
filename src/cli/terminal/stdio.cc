#include "cli/terminal/stdio.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>

#include "base/fail.h"
#include "base/io/destination.h"
#include "base/io/new_file.h"
#include "base/io/temporary.h"
#include "cli/dataset/dataset.h"
#include "cli/terminal/message.h"
#include "cli/terminal/status_line.h"
#include "cli/terminal/table.h"

namespace tuckfold::cli {
namespace {

constexpr const char* kStdin = "/dev/stdin";
constexpr std::size_t kPiece = 1 << 20;

// Reads as much as it can; returns 0 at the end.
std::size_t read_some(const char* verb, int file, const char* name, std::span<std::byte> room) {
  for (;;) {
    const ssize_t got = ::read(file, room.data(), room.size());
    if (got >= 0) return static_cast<std::size_t>(got);
    if (errno != EINTR) {
      fail(Errc::Io, "[{}] cannot read {}: {}", verb, name, std::strerror(errno));
    }
  }
}

// Returns 0, or the reason.
int write_all(int file, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return written == 0 ? EIO : errno;
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return 0;
}

// Whether standard input is a file that its path can open, and nothing of it was read.
bool is_whole_file() {
  struct stat info {};
  if (::fstat(STDIN_FILENO, &info) != 0 || !S_ISREG(info.st_mode)) return false;
  return ::lseek(STDIN_FILENO, 0, SEEK_CUR) == 0 && ::access(kStdin, R_OK) == 0;
}

// Replaces standard input by a file with its bytes.
void spool(const char* verb, bool quiet) {
  std::string path;
  const Descriptor file(open_temporary(verb, path));
  const auto room = std::make_unique_for_overwrite<std::byte[]>(kPiece);
  StatusLine progress;
  std::uint64_t bytes = 0;
  while (const std::size_t got =
             read_some(verb, STDIN_FILENO, "standard input", {room.get(), kPiece})) {
    if (const int reason = write_all(file.get(), {room.get(), got}); reason != 0) {
      fail(Errc::Io,
           "[{}] cannot keep standard input in '{}': {}; set TMPDIR to a folder with more room",
           verb, path, std::strerror(reason));
    }
    bytes += got;
    if (!quiet) progress.show(fmt::format("reading standard input, {}", size_text(bytes)));
  }
  if (::lseek(file.get(), 0, SEEK_SET) != 0 || ::dup2(file.get(), STDIN_FILENO) < 0) {
    fail(Errc::Io, "[{}] cannot read '{}' again: {}", verb, path, std::strerror(errno));
  }
}

}  // namespace

std::string input_path(const char* verb, const std::string& given, bool quiet) {
  if (given != "-") {
    std::error_code unreadable;
    if (std::filesystem::is_fifo(given, unreadable)) {
      fail(Errc::Io, "[{}] '{}' is a pipe; read it as standard input: - < '{}'", verb, given,
           given);
    }
    return given;
  }
  if (::isatty(STDIN_FILENO) == 1) {
    invalid("[{}] - is standard input, and that is a terminal; pipe a file into it, or name one",
            verb);
  }
  // Where it is closed, main() has opened it for writing.
  const int flags = ::fcntl(STDIN_FILENO, F_GETFL);
  if (flags < 0 || (flags & O_ACCMODE) == O_WRONLY) {
    fail(Errc::Io, "[{}] - is standard input, and that is closed; name a file", verb);
  }
  if (!is_whole_file()) spool(verb, quiet);
  return kStdin;
}

void check_stdin_once(const char* verb, std::span<const std::string> files) {
  if (const auto times = std::ranges::count(files, "-"); times > 1) {
    invalid("[{}] - is standard input, which can be read once, and was given {} times", verb,
            times);
  }
}

bool is_stdout(const std::string& out) {
  Destination to;
  try {
    to = find_destination("out", out);
  } catch (const Error&) {
    return false;  // a folder, say
  }
  if (to.descriptor == STDOUT_FILENO) return true;
  struct stat there {
  }, here{};
  const bool known = to.descriptor >= 0 ? ::fstat(to.descriptor, &there) == 0
                                        : ::stat(to.path.c_str(), &there) == 0;
  // What goes to /dev/null or to a terminal by another name does not mix with what is printed. A
  // file is replaced, unless it is written through a descriptor.
  return known && to.stream && !S_ISCHR(there.st_mode) && ::fstat(STDOUT_FILENO, &here) == 0 &&
         same_file(there, here);
}

void print_report(const std::string& out, const std::string& text) {
  is_stdout(out) ? print_err(text) : print_out(text);
}

void check_stdout(const char* verb, bool force) {
  if (!force && ::isatty(STDOUT_FILENO) == 1) {
    invalid(
        "[{}] standard output is a terminal, which cannot show these bytes; send them to a file or "
        "a pipe, or add --force",
        verb);
  }
}

OutPath::OutPath(const char* verb, const std::string& given)
    : verb_(verb), given_(given), path_(given) {
  const Destination destination = find_destination(verb, given);
  check_not_input(verb, destination);
  if (!destination.stream) return;
  folder_ = (std::filesystem::path(temporary_folder(verb)) / "tuckfold_XXXXXX").string();
  if (::mkdtemp(folder_.data()) == nullptr) {
    fail(Errc::Io, "[{}] cannot create '{}': {}; set TMPDIR to a folder that can be written", verb,
         folder_, std::strerror(errno));
  }
  path_ = folder_ + "/out.tuck";
}

OutPath::~OutPath() {
  std::error_code ignored;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
}

void OutPath::finish() {
  if (folder_.empty()) return;
  const Descriptor file(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) {
    fail(Errc::Io, "[{}] cannot open '{}': {}", verb_, path_, std::strerror(errno));
  }
  // If the reader of a pipe closes it early, the next write ends this program.
  std::error_code ignored;
  std::filesystem::remove_all(std::exchange(folder_, ""), ignored);
  const auto room = std::make_unique_for_overwrite<std::byte[]>(kPiece);
  NewFile out(verb_, given_);
  while (const std::size_t got =
             read_some(verb_, file.get(), path_.c_str(), {room.get(), kPiece})) {
    out.write({room.get(), got});
  }
  out.finish();
}

}  // namespace tuckfold::cli
