#include "base/io/new_file.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <random>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "base/io/retry.h"

namespace tuckfold {
namespace {

constexpr mode_t kMode = 0666;  // less the umask

std::string open_path(int file) { return fmt::format("/proc/self/fd/{}", file); }

// A file without a name in the folder of the path: it is gone with its writer, even a killed one.
// -1 with EOPNOTSUPP where the file system has none, or with another reason.
int open_nameless(const std::string& path) {
#ifdef O_TMPFILE
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == path.npos ? "." : path.substr(0, slash + 1);
  const int file =
      retry([&] { return ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, kMode); });
  // EISDIR and EINVAL come from systems that do not know the flag.
  if (file < 0 && (errno == EISDIR || errno == EINVAL)) errno = EOPNOTSUPP;
  if (file < 0) return -1;
  if (::access(open_path(file).c_str(), F_OK) == 0) return file;  // how it will get a name
  ::close(file);
#endif
  errno = EOPNOTSUPP;
  return -1;
}

}  // namespace

std::string unused_name_beside(const std::string& path) {
  static constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789";
  const std::size_t slash = path.rfind('/');
  const std::size_t name = slash == path.npos ? 0 : slash + 1;
  std::random_device random;
  for (;;) {
    std::string letters;
    for (int i = 0; i < 8; ++i) letters += kLetters[random() % kLetters.size()];
    // Names have at most 255 bytes.
    std::string found =
        fmt::format("{}.{}.{}.tmp", path.substr(0, name), path.substr(name, 200), letters);
    struct stat info {};
    if (::lstat(found.c_str(), &info) != 0) return found;
  }
}

int rename_file(const std::string& from, const std::string& to, bool replace) {
  if (replace) return std::rename(from.c_str(), to.c_str()) == 0 ? 0 : errno;
  constexpr unsigned kNoReplace = 1;
  if (::syscall(SYS_renameat2, AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), kNoReplace) == 0) {
    return 0;
  }
  if (errno != EINVAL && errno != ENOSYS) return errno;
  // A file system without that has links, mostly.
  if (::link(from.c_str(), to.c_str()) != 0) return errno;
  ::unlink(from.c_str());
  return 0;
}

NewFile::NewFile(std::string_view verb, const std::string& path, Replace replace)
    : verb_(verb), to_(find_destination(verb, path)), replace_(replace) {
  check_not_input(verb, to_);
  if (to_.descriptor >= 0) {
    file_ = ::fcntl(to_.descriptor, F_DUPFD_CLOEXEC, 0);
  } else if (to_.stream) {
    file_ = retry([&] { return ::open(to_.path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY); });
  } else {
    open_beside();
  }
  if (file_ < 0) refuse(to_.stream ? "open" : "create");
}

void NewFile::open_beside() {
  file_ = open_nameless(to_.path);
  if (file_ < 0 && errno != EOPNOTSUPP) return;
  while (file_ < 0) {
    name_meanwhile_ = unused_name_beside(to_.path);
    constexpr int kFlags = O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC;
    file_ = retry([&] { return ::open(name_meanwhile_.c_str(), kFlags, kMode); });
    if (file_ < 0 && errno != EEXIST) return;
  }
  struct stat old {};
  if (to_.exists && ::stat(to_.path.c_str(), &old) == 0) {
    ::fchmod(file_, old.st_mode & 0777);  // what few may read, few may read then
  }
}

NewFile::~NewFile() {
  if (file_ >= 0) ::close(file_);
  if (!name_meanwhile_.empty()) ::unlink(name_meanwhile_.c_str());
}

void NewFile::refuse(std::string_view doing) const {
  const int reason = errno;
  const std::string place = to_.path != "-"    ? fmt::format("'{}'", to_.path)
                            : doing == "write" ? "to standard output"
                                               : "standard output";
  fail(Errc::Io, "[{}] cannot {} {}: {}", verb_, doing, place, std::strerror(reason));
}

void NewFile::write(ByteSpan bytes) {
  while (!bytes.empty()) {
    const ssize_t written = retry([&] {
      return to_.stream ? ::write(file_, bytes.data(), bytes.size())
                        : ::pwrite(file_, bytes.data(), bytes.size(), static_cast<off_t>(size_));
    });
    if (written == 0) errno = EIO;
    if (written <= 0) refuse("write");
    size_ += static_cast<std::uint64_t>(written);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

const std::string& NewFile::name_meanwhile() {
  while (name_meanwhile_.empty()) {
    const std::string name = unused_name_beside(to_.path);
    if (::linkat(AT_FDCWD, open_path(file_).c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) ==
        0) {
      name_meanwhile_ = name;
    } else if (errno != EEXIST) {
      refuse("name");
    }
  }
  return name_meanwhile_;
}

void NewFile::flush() {
  if (!to_.stream && retry([&] { return ::fsync(file_); }) != 0) refuse("flush");
}

// Another name for what has the path now; empty where nothing has.
std::string NewFile::keep_old() const {
  struct stat old {};
  if (to_.stream || replace_ == Replace::No || ::lstat(to_.path.c_str(), &old) != 0) return "";
  std::string name = unused_name_beside(to_.path);
  if (::link(to_.path.c_str(), name.c_str()) == 0) return name;
  std::error_code failed;  // not every file system has links
  std::filesystem::copy_file(to_.path, name, failed);
  if (failed) {
    ::unlink(name.c_str());
    errno = failed.value();
    refuse("keep a copy of");
  }
  return name;
}

void finish_all(std::list<NewFile>& files) {
  for (NewFile& file : files) file.flush();
  std::vector<std::string> old;
  try {
    // Nothing but the renames comes between two names.
    for (NewFile& file : files) {
      if (!file.to_.stream) static_cast<void>(file.name_meanwhile());
      old.push_back(file.keep_old());
    }
    for (NewFile& file : files) file.rename();
    for (NewFile& file : files) {
      if (!file.to_.stream) sync_folder_of(file.verb_, file.to_.path);
      file.close();
    }
  } catch (...) {
    auto kept = old.begin();
    for (const NewFile& file : files) {
      if (kept == old.end()) break;
      if (!kept->empty()) {
        // Where both are one file both names stay.
        if (std::rename(kept->c_str(), file.to_.path.c_str()) == 0) ::unlink(kept->c_str());
      } else if (file.named_) {
        ::unlink(file.to_.path.c_str());
      }
      ++kept;
    }
    throw;
  }
  for (const std::string& name : old) {
    if (!name.empty()) ::unlink(name.c_str());
  }
}

void NewFile::rename() {
  if (to_.stream) return;
  const int reason = rename_file(name_meanwhile(), to_.path, replace_ == Replace::Yes);
  if (reason == EEXIST) {
    invalid("[{}] '{}' exists since a moment; add --force to replace it, or name another file",
            verb_, to_.path);
  }
  errno = reason;
  if (reason != 0) refuse("rename a file to");
  name_meanwhile_.clear();
  named_ = true;
}

void NewFile::close() {
  if (::close(std::exchange(file_, -1)) != 0 && errno != EINTR) refuse("close");
}

void NewFile::finish(bool sync) {
  if (sync) flush();
  rename();
  if (sync && !to_.stream) sync_folder_of(verb_, to_.path);
  close();
}

}  // namespace tuckfold
