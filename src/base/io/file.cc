// POSIX calls, each with its error.
#include "base/io/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/fail.h"
#include "base/io/destination.h"
#include "base/io/new_file.h"
#include "base/io/retry.h"

namespace tuckfold {
namespace {

[[noreturn]] void fail_io(const char* verb, const char* doing, const std::string& path) {
  const int reason = errno;
  fail(Errc::Io, "[{}] cannot {} '{}': {}", verb, doing, path, std::strerror(reason));
}

// Whether the path names that file.
bool names(const std::string& path, const struct stat& file) {
  struct stat named {};
  return ::lstat(path.c_str(), &named) == 0 && same_file(file, named);
}

}  // namespace

OutFile::OutFile(const std::string& path, Open how) : path_(path) {
  // A writer that finishes between our open() and our lock gives the file another name: then there
  // is another file to open.
  while (!open_and_lock(how)) ::close(std::exchange(file_, -1));
}

bool OutFile::open_and_lock(Open how) {
  const int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | (how == Open::Keep ? 0 : O_CREAT);
  file_ = retry([&] { return ::open(path_.c_str(), flags, 0666); });
  if (file_ < 0) fail_io("write", how == Open::Keep ? "open" : "create", path_);
  try {
    // Truncated under the lock only: another writer may be at it.
    if (retry([&] { return ::flock(file_, LOCK_EX | LOCK_NB); }) != 0) {
      if (errno == EWOULDBLOCK) {
        fail(Errc::Io, "[write] cannot write '{}': another writer has it open; wait for it", path_);
      }
      if (errno != ENOLCK && errno != EOPNOTSUPP && errno != ENOSYS) {
        fail_io("write", "lock", path_);
      }
    }
    struct stat info {};
    if (::fstat(file_, &info) != 0) fail_io("write", "read", path_);
    if (!S_ISREG(info.st_mode)) {
      fail(Errc::Io, "[write] cannot write '{}': not a regular file; remove it", path_);
    }
    if (Bytes::was_mapped(info)) {
      invalid("[write] '{}' is an input, too; write to another file", path_);
    }
    size_ = static_cast<std::uint64_t>(info.st_size);
    if (!names(path_, info)) return false;
    if (how == Open::Truncate) truncate(0);
    return true;
  } catch (...) {
    ::close(std::exchange(file_, -1));
    throw;
  }
}

bool OutFile::is_there() const {
  struct stat ours {};
  return ::fstat(file_, &ours) == 0 && names(path_, ours);
}

OutFile::~OutFile() {
  if (file_ >= 0) ::close(file_);
}

void OutFile::write(ByteSpan bytes) {
  overwrite(size_, bytes);
  size_ += bytes.size();
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

void OutFile::overwrite(std::uint64_t at, ByteSpan bytes) {
  while (!bytes.empty()) {
    const ssize_t written =
        retry([&] { return ::pwrite(file_, bytes.data(), bytes.size(), static_cast<off_t>(at)); });
    if (written == 0) errno = EIO;
    if (written <= 0) fail_io("write", "write", path_);
    at += static_cast<std::uint64_t>(written);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void OutFile::rename_to(const std::string& path, bool sync) {
  if (const int reason = rename_file(path_, path, true); reason != 0) {
    errno = reason;
    fail_io("write", "rename", path_);
  }
  path_ = path;
  if (sync) sync_folder_of("write", path);
}

}  // namespace tuckfold
