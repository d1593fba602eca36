#include "base/io/destination.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>

#include "base/fail.h"
#include "base/io/bytes.h"
#include "base/io/retry.h"
#include "base/io/temporary.h"

namespace tuckfold {
namespace {

[[noreturn]] void fail_io(std::string_view verb, std::string_view doing, const std::string& path,
                          int reason) {
  fail(Errc::Io, "[{}] cannot {} '{}': {}", verb, doing, path, std::strerror(reason));
}

// The descriptor that such a path names, or -1. Opening the path would write from the start of the
// file, whatever the shell has written there.
int descriptor_named(std::string_view path) {
  if (path == "-" || path == "/dev/stdout") return STDOUT_FILENO;
  if (path == "/dev/stderr") return STDERR_FILENO;
  for (const std::string_view folder : {"/dev/fd/", "/proc/self/fd/"}) {
    if (!path.starts_with(folder)) continue;
    const std::string_view text = path.substr(folder.size());
    int number = -1;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    return error == std::errc{} && stop == text.data() + text.size() ? number : -1;
  }
  return -1;
}

}  // namespace

Destination find_destination(std::string_view verb, const std::string& path) {
  namespace fs = std::filesystem;
  constexpr int kMostLinks = 40;  // as the system has it
  fs::path at = path;
  for (int i = 0; i < kMostLinks; ++i) {
    if (const int descriptor = descriptor_named(at.native()); descriptor >= 0) {
      return {.path = at, .exists = true, .stream = true, .descriptor = descriptor};
    }
    struct stat info {};
    if (::lstat(at.c_str(), &info) != 0) {
      if (errno != ENOENT) fail_io(verb, "write", path, errno);
      return {.path = at};
    }
    if (S_ISDIR(info.st_mode)) {
      fail(Errc::Io, "[{}] '{}' is a folder; name a file in it", verb, path);
    }
    if (!S_ISLNK(info.st_mode)) {
      return {.path = at, .exists = true, .stream = !S_ISREG(info.st_mode)};
    }
    std::error_code refused;
    const fs::path target = fs::read_symlink(at, refused);
    if (refused) fail_io(verb, "follow the link", at, refused.value());
    at = target.is_absolute() ? target : at.parent_path() / target;
  }
  fail_io(verb, "follow the link", path, ELOOP);
}

void check_not_input(std::string_view verb, const Destination& destination) {
  const int descriptor = destination.descriptor;
  struct stat info {};
  const bool known = descriptor >= 0 ? ::fstat(descriptor, &info) == 0
                                     : ::stat(destination.path.c_str(), &info) == 0;
  if (known && Bytes::was_mapped(info)) {
    invalid("[{}] {} is an input, too; write to another file", verb,
            destination.path == "-" ? "standard output" : fmt::format("'{}'", destination.path));
  }
}

bool same_file(const struct stat& a, const struct stat& b) noexcept {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

void sync_folder_of(std::string_view verb, const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == path.npos ? "." : path.substr(0, slash + 1);
  constexpr int kFlags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
  const Descriptor file(retry([&] { return ::open(folder.c_str(), kFlags); }));
  if (file.get() < 0) fail_io(verb, "open the folder", folder, errno);
  const int done = retry([&] { return ::fsync(file.get()); });
  // Some file systems have no such call for folders, and need none.
  if (done != 0 && errno != EINVAL) fail_io(verb, "flush the folder", folder, errno);
}

}  // namespace tuckfold
