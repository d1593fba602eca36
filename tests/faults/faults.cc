// Loaded before libc; makes its calls fail on request: a full disk, a broken one, signals.
#include "faults.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace {

thread_local const char* t_call = nullptr;  // the thread that asked is the one that writes
thread_local int t_nth = 0, t_error = 0, t_seen = 0;
thread_local bool t_forever = false;

bool fails(const char* call) {
  if (t_call == nullptr) return false;
  if (std::strcmp(t_call, call) != 0 && std::strcmp(t_call, "any") != 0) return false;
  ++t_seen;
  if (t_seen != t_nth && !(t_forever && t_seen > t_nth)) return false;
  if (t_error == TUCKFOLD_FAULT_KILLED) ::_exit(TUCKFOLD_FAULT_KILLED);
  errno = t_error;
  return true;
}

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

void tuckfold_fault(const char* call, int nth, int error, int forever) {
  t_call = call;
  t_nth = nth;
  t_error = error;
  t_forever = forever != 0;
  t_seen = 0;
}

int tuckfold_fault_calls(void) { return t_seen; }

int open(const char* path, int flags, ...) {
  static const auto real = next<int(const char*, int, ...)>("open");
  va_list args;
  va_start(args, flags);
  const bool creates = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
  const mode_t mode = creates ? va_arg(args, mode_t) : 0;
  va_end(args);
  return fails("open") ? -1 : real(path, flags, mode);
}

ssize_t pwrite(int file, const void* data, size_t bytes, off_t at) {
  static const auto real = next<ssize_t(int, const void*, size_t, off_t)>("pwrite");
  if (fails("pwrite")) return -1;
  if (t_call != nullptr && std::strcmp(t_call, "short") == 0) {
    ++t_seen;
    bytes = std::min(bytes, static_cast<size_t>(t_nth));
  }
  return real(file, data, bytes, at);
}

int ftruncate(int file, off_t size) noexcept {
  static const auto real = next<int(int, off_t)>("ftruncate");
  return fails("ftruncate") ? -1 : real(file, size);
}

int fsync(int file) {
  static const auto real = next<int(int)>("fsync");
  return fails("fsync") ? -1 : real(file);
}

int rename(const char* from, const char* to) noexcept {
  static const auto real = next<int(const char*, const char*)>("rename");
  return fails("rename") ? -1 : real(from, to);
}

int fstat(int file, struct stat* info) noexcept {
  static const auto real = next<int(int, struct stat*)>("fstat");
  return fails("fstat") ? -1 : real(file, info);
}

void* mmap(void* at, size_t bytes, int protection, int flags, int file, off_t offset) noexcept {
  static const auto real = next<void*(void*, size_t, int, int, int, off_t)>("mmap");
  const bool of_file = (flags & MAP_ANONYMOUS) == 0;
  return of_file && fails("mmap") ? MAP_FAILED : real(at, bytes, protection, flags, file, offset);
}

int flock(int file, int operation) noexcept {
  static const auto real = next<int(int, int)>("flock");
  return fails("flock") ? -1 : real(file, operation);
}

}  // extern "C"
