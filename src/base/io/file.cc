// POSIX calls, each with its error.
#include "base/io/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "base/fail.h"

namespace tuckfold {
namespace {

[[noreturn]] void fail_io(const char* verb, const char* doing, const std::string& path) {
  const int reason = errno;
  fail(Errc::Io, "[{}] cannot {} '{}': {}", verb, doing, path, std::strerror(reason));
}

// Repeats a call that a signal interrupts.
template <class Call>
auto retry(Call&& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

class Closer {
 public:
  explicit Closer(int file) : file_(file) {}
  ~Closer() { ::close(file_); }
  Closer(const Closer&) = delete;
  Closer& operator=(const Closer&) = delete;

 private:
  int file_;
};

void sync_folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == path.npos ? "." : path.substr(0, slash + 1);
  const int file =
      retry([&] { return ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  if (file < 0) fail_io("write", "open the folder", folder);
  const Closer closer(file);
  // Some file systems have no such call for folders, and need none.
  if (retry([&] { return ::fsync(file); }) != 0 && errno != EINVAL) {
    fail_io("write", "flush the folder", folder);
  }
}

}  // namespace

OutFile::OutFile(const std::string& path, Open how) : path_(path) {
  const int flags = O_RDWR | O_CLOEXEC | (how == Open::Truncate ? O_CREAT : 0);
  file_ = retry([&] { return ::open(path.c_str(), flags, 0666); });
  if (file_ < 0) fail_io("write", how == Open::Truncate ? "create" : "open", path);
  try {
    // Truncated under the lock only: another writer may be at it.
    if (retry([&] { return ::flock(file_, LOCK_EX | LOCK_NB); }) != 0) {
      if (errno == EWOULDBLOCK) {
        fail(Errc::Io, "[write] cannot write '{}': another writer has it open; wait for it", path);
      }
      if (errno != ENOLCK && errno != EOPNOTSUPP && errno != ENOSYS) fail_io("write", "lock", path);
    }
    struct stat info {};
    if (::fstat(file_, &info) != 0) fail_io("write", "read", path);
    size_ = static_cast<std::uint64_t>(info.st_size);
    if (how == Open::Truncate) truncate(0);
  } catch (...) {
    ::close(file_);
    throw;
  }
}

OutFile::~OutFile() { ::close(file_); }

void OutFile::write(ByteSpan bytes) {
  while (!bytes.empty()) {
    const ssize_t written = retry(
        [&] { return ::pwrite(file_, bytes.data(), bytes.size(), static_cast<off_t>(size_)); });
    if (written == 0) errno = EIO;
    if (written <= 0) fail_io("write", "write", path_);
    size_ += static_cast<std::uint64_t>(written);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void OutFile::truncate(std::uint64_t size) {
  if (retry([&] { return ::ftruncate(file_, static_cast<off_t>(size)); }) != 0) {
    fail_io("write", "truncate", path_);
  }
  size_ = size;
}

void OutFile::try_truncate(std::uint64_t size) noexcept {
  if (retry([&] { return ::ftruncate(file_, static_cast<off_t>(size)); }) == 0) size_ = size;
}

void OutFile::sync() {
  if (retry([&] { return ::fsync(file_); }) != 0) fail_io("write", "flush", path_);
}

void OutFile::rename_to(const std::string& path, bool sync) {
  if (retry([&] { return std::rename(path_.c_str(), path.c_str()); }) != 0) {
    fail_io("write", "rename", path_);
  }
  path_ = path;
  if (sync) sync_folder_of(path);
}

}  // namespace tuckfold
