// Mappings of files and of scratch space, undone when their last holder goes.
#include "container/bytes.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/fail.h"

namespace tuckfold {
namespace {

[[noreturn]] void fail_io(std::string_view verb, std::string_view doing, const std::string& path,
                          int reason) {
  fail(Errc::Io, "[{}] cannot {} '{}': {}", verb, doing, path, std::strerror(reason));
}

class Descriptor {
 public:
  explicit Descriptor(int file) : file_(file) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (file_ >= 0) ::close(file_);
  }
  int get() const noexcept { return file_; }

 private:
  int file_;
};

}  // namespace

std::shared_ptr<const Bytes> Bytes::map(const std::string& path, std::string_view verb) {
  // Without O_NONBLOCK a pipe that nobody writes to would hold us here.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) fail_io(verb, "open", path, errno);
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) fail_io(verb, "read", path, errno);
  if (!S_ISREG(info.st_mode)) {
    fail(Errc::Io, "[{}] cannot map '{}': not a regular file; save the array to one", verb, path);
  }
  if (info.st_size == 0) return of({});
  const auto size = static_cast<std::size_t>(info.st_size);
  void* where = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (where == MAP_FAILED) fail_io(verb, "map", path, errno);
  return std::shared_ptr<const Bytes>(
      new Bytes({static_cast<const std::byte*>(where), size}, Kind::File));
}

std::shared_ptr<Bytes> Bytes::scratch(std::size_t size, std::string_view verb) {
  if (size == 0) return std::shared_ptr<Bytes>(new Bytes({}, Kind::Callers));
  constexpr int kProtection = PROT_READ | PROT_WRITE;
  void* where = MAP_FAILED;
  if (size <= kScratchMemory) {
    where = ::mmap(nullptr, size, kProtection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (where == MAP_FAILED) fail_io(verb, "reserve", fmt::format("{} bytes", size), errno);
  } else {
    std::string path = (std::filesystem::temp_directory_path() / "tuckfold_XXXXXX").string();
    const Descriptor file(::mkostemp(path.data(), O_CLOEXEC));
    if (file.get() < 0) fail_io(verb, "create", path, errno);
    ::unlink(path.c_str());
    // A hole that the disk cannot fill later would end the program when it is written to.
    const int reason = ::posix_fallocate(file.get(), 0, static_cast<off_t>(size));
    if (reason != 0) fail_io(verb, fmt::format("reserve {} bytes in", size), path, reason);
    where = ::mmap(nullptr, size, kProtection, MAP_SHARED, file.get(), 0);
    if (where == MAP_FAILED) fail_io(verb, "map", path, errno);
  }
  return std::shared_ptr<Bytes>(new Bytes({static_cast<const std::byte*>(where), size},
                                          size <= kScratchMemory ? Kind::Memory : Kind::File));
}

std::shared_ptr<const Bytes> Bytes::of(std::span<const std::byte> bytes) {
  return std::shared_ptr<const Bytes>(new Bytes(bytes, Kind::Callers));
}

void Bytes::let_go() const noexcept {
  if (kind_ != Kind::File) return;
  ::madvise(const_cast<std::byte*>(bytes_.data()), bytes_.size(), MADV_DONTNEED);
}

Bytes::~Bytes() {
  if (kind_ != Kind::Callers) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace tuckfold
