// Bytes that stay valid as long as someone holds them: a mapped file, scratch space, or a caller's
// own.
//
//   const auto file = Bytes::map("images.npy", "npy");   // throws Io, as "[npy] cannot open …"
//   parse(file->span());
//
// A mapped file must not shrink meanwhile.
#pragma once

#include <sys/stat.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace tuckfold {

class Bytes {
 public:
  static std::shared_ptr<const Bytes> map(const std::string& path, std::string_view verb);

  // Whether files that are mapped from now on are remembered, for programs that must not overwrite
  // their inputs; was_mapped() says whether a file was, under any name.
  static void remember_mapped(bool remember);
  static bool was_mapped(const struct stat& file);

  // Zeroed space to write into: memory, or above kScratchMemory an unnamed file in the temporary
  // folder, so that more than memory fits. All of its disk space is allocated first.
  static std::shared_ptr<Bytes> scratch(std::size_t size, std::string_view verb);
  static constexpr std::size_t kScratchMemory = std::size_t{256} << 20;

  // Holds nothing: the caller's bytes must outlive it.
  static std::shared_ptr<const Bytes> of(std::span<const std::byte> bytes);

  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;
  ~Bytes();

  std::span<const std::byte> span() const noexcept { return bytes_; }
  std::byte* scratch_data() noexcept { return const_cast<std::byte*>(bytes_.data()); }

  // Unmaps the pages of a mapped file from this process's memory, so that a file larger than memory
  // does not fill it. The system caches them, and reading there again maps them again.
  void drop_pages() const noexcept;
  // Counts bytes that were read; every kDropAfterBytes of them the pages are dropped.
  void note_read(std::uint64_t bytes) const noexcept;
  static constexpr std::uint64_t kDropAfterBytes = 16 << 20;

  // Bytes of this process's scratch space that are in memory now.
  static std::size_t scratch_held() noexcept;

 private:
  enum class Kind : unsigned char { Borrowed, Memory, File };
  Bytes(std::span<const std::byte> bytes, Kind kind);

  std::span<const std::byte> bytes_;
  Kind kind_;
  mutable std::atomic<std::uint64_t> read_bytes_ = 0;
};

}  // namespace tuckfold
