// Bytes that stay for as long as someone holds them: a mapped file, scratch space, or a caller's
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

  // Whether files that are mapped from now on are remembered, for programs that must not write over
  // what they read; was_mapped() says whether one was, by whatever name.
  static void remember_mapped(bool remember);
  static bool was_mapped(const struct stat& file);

  // Zeroed space to write into: memory, or beyond kScratchMemory a file without a name in the
  // temporary folder, so that what is larger than memory fits. The disk is asked for all of it
  // first.
  static std::shared_ptr<Bytes> scratch(std::size_t size, std::string_view verb);
  static constexpr std::size_t kScratchMemory = std::size_t{256} << 20;

  // Holds nothing: the caller's bytes must outlive it.
  static std::shared_ptr<const Bytes> of(std::span<const std::byte> bytes);

  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;
  ~Bytes();

  std::span<const std::byte> span() const noexcept { return bytes_; }
  std::byte* scratch_data() noexcept { return const_cast<std::byte*>(bytes_.data()); }

  // Takes the pages of a mapped file out of this process's memory, so that one larger than memory
  // does not fill it; the system keeps them, and whoever reads there again gets them back.
  void drop_pages() const noexcept;
  // Counts bytes that were read; every kDropAfterBytes of them the pages are dropped.
  void note_read(std::uint64_t bytes) const noexcept;
  static constexpr std::uint64_t kDropAfterBytes = 16 << 20;

  // Scratch space of this process that is memory, by now.
  static std::size_t scratch_held() noexcept;

 private:
  enum class Kind : unsigned char { Borrowed, Memory, File };
  Bytes(std::span<const std::byte> bytes, Kind kind);

  std::span<const std::byte> bytes_;
  Kind kind_;
  mutable std::atomic<std::uint64_t> read_bytes_ = 0;
};

}  // namespace tuckfold
