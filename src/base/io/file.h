// Files as the container needs them: mapped for reading, and written at the end. What the system
// refuses is an Error of kind Io that names the path; interrupted and short writes go on.
#pragma once

#include <string>

#include "base/io/bytes.h"
#include "base/io/little_endian.h"

namespace tuckfold {

class MappedFile {
 public:
  // `verb` begins messages, as "[open] …".
  explicit MappedFile(const std::string& path, std::string_view verb = "open")
      : path_(path), map_(Bytes::map(path, verb)) {}

  ByteSpan bytes() const { return map_->span(); }
  const std::string& path() const { return path_; }

  // Samples that are unpacked alone are small and in random order, and to map a page again takes
  // longer than to copy what is on it: they count for this part of their bytes.
  static constexpr std::size_t kAloneShare = 64;
  void note_read(std::uint64_t bytes) const noexcept { map_->note_read(bytes); }
  void drop_pages() const noexcept { map_->drop_pages(); }

 private:
  std::string path_;
  std::shared_ptr<const Bytes> map_;
};

// A file that one writer at a time holds, written from `size()` on.
class OutFile {
 public:
  enum class Open {
    Truncate,  // made, or emptied
    Keep,      // there must be one
    Create,    // made where there is none
  };
  OutFile(const std::string& path, Open how);
  ~OutFile();
  OutFile(const OutFile&) = delete;
  OutFile& operator=(const OutFile&) = delete;

  std::uint64_t size() const { return size_; }
  void write(ByteSpan bytes);
  void overwrite(std::uint64_t at, ByteSpan bytes);  // what is there already
  // Whether the path still names this file.
  bool is_there() const;
  void truncate(std::uint64_t size);
  // The same where it may fail: before an error is passed on.
  void try_truncate(std::uint64_t size) noexcept;
  void sync();
  // Gives the file its name, in place of what has it.
  void rename_to(const std::string& path, bool sync);

 private:
  bool open_and_lock(Open how);

  std::string path_;
  int file_ = -1;
  std::uint64_t size_ = 0;
};

}  // namespace tuckfold
