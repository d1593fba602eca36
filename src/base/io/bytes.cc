// Mappings of files and of scratch space, unmapped when their last holder is destroyed.
#include "base/io/bytes.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <set>
#include <utility>

#include "base/fail.h"
#include "base/io/retry.h"
#include "base/io/temporary.h"

namespace tuckfold {
namespace {

[[noreturn]] void fail_io(std::string_view verb, std::string_view doing, const std::string& path,
                          int reason) {
  fail(Errc::Io, "[{}] cannot {} '{}': {}", verb, doing, path, std::strerror(reason));
}

std::atomic<std::size_t> g_scratch_held = 0;

// Files by device and number; a set only where they are remembered.
struct Mapped {
  std::atomic<bool> remembered = false;
  std::mutex mutex;
  std::set<std::pair<dev_t, ino_t>> files;
};
Mapped& mapped() {
  static Mapped all;
  return all;
}

void remember(const struct stat& file) {
  if (!mapped().remembered) return;
  const std::lock_guard lock(mapped().mutex);
  mapped().files.emplace(file.st_dev, file.st_ino);
}

}  // namespace

void Bytes::remember_mapped(bool remember) { mapped().remembered = remember; }

bool Bytes::was_mapped(const struct stat& file) {
  const std::lock_guard lock(mapped().mutex);
  return mapped().files.contains({file.st_dev, file.st_ino});
}

std::shared_ptr<const Bytes> Bytes::map(const std::string& path, std::string_view verb) {
  // O_NONBLOCK, because opening a pipe without a writer would block.
  constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;
  const Descriptor file(retry([&] { return ::open(path.c_str(), kFlags); }));
  if (file.get() < 0) fail_io(verb, "open", path, errno);
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) fail_io(verb, "read", path, errno);
  if (S_ISDIR(info.st_mode)) {
    fail(Errc::Io, "[{}] '{}' is a folder; name a file in it", verb, path);
  }
  if (!S_ISREG(info.st_mode)) {
    fail(Errc::Io, "[{}] cannot map '{}': not a regular file; copy it to one", verb, path);
  }
  remember(info);
  if (info.st_size == 0) return of({});
  const auto size = static_cast<std::size_t>(info.st_size);
  void* where = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (where == MAP_FAILED) fail_io(verb, "map", path, errno);
  return std::shared_ptr<const Bytes>(
      new Bytes({static_cast<const std::byte*>(where), size}, Kind::File));
}

std::shared_ptr<Bytes> Bytes::scratch(std::size_t size, std::string_view verb) {
  if (size == 0) return std::shared_ptr<Bytes>(new Bytes({}, Kind::Borrowed));
  constexpr int kProtection = PROT_READ | PROT_WRITE;
  void* where = MAP_FAILED;
  if (size <= kScratchMemory) {
    where = ::mmap(nullptr, size, kProtection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (where == MAP_FAILED) fail_io(verb, "reserve", fmt::format("{} bytes", size), errno);
  } else {
    std::string path;
    const Descriptor file(open_temporary(verb, path));
    // Writing to a hole that the disk cannot fill would end the program, so the space is allocated
    // first.
    const int reason = ::posix_fallocate(file.get(), 0, static_cast<off_t>(size));
    if (reason != 0) fail_io(verb, fmt::format("reserve {} bytes in", size), path, reason);
    where = ::mmap(nullptr, size, kProtection, MAP_SHARED, file.get(), 0);
    if (where == MAP_FAILED) fail_io(verb, "map", path, errno);
  }
  return std::shared_ptr<Bytes>(new Bytes({static_cast<const std::byte*>(where), size},
                                          size <= kScratchMemory ? Kind::Memory : Kind::File));
}

std::shared_ptr<const Bytes> Bytes::of(std::span<const std::byte> bytes) {
  return std::shared_ptr<const Bytes>(new Bytes(bytes, Kind::Borrowed));
}

Bytes::Bytes(std::span<const std::byte> bytes, Kind kind) : bytes_(bytes), kind_(kind) {
  if (kind_ == Kind::Memory) g_scratch_held += bytes_.size();
}

Bytes::~Bytes() {
  if (kind_ == Kind::Memory) g_scratch_held -= bytes_.size();
  if (kind_ != Kind::Borrowed) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void Bytes::drop_pages() const noexcept {
  if (kind_ != Kind::File) return;
  ::madvise(const_cast<std::byte*>(bytes_.data()), bytes_.size(), MADV_DONTNEED);
}

void Bytes::note_read(std::uint64_t bytes) const noexcept {
  if (read_bytes_.fetch_add(bytes, std::memory_order_relaxed) + bytes < kDropAfterBytes) return;
  read_bytes_.store(0, std::memory_order_relaxed);
  drop_pages();
}

std::size_t Bytes::scratch_held() noexcept { return g_scratch_held; }

}  // namespace tuckfold
