// Files that nobody else sees, in the temporary folder: $TMPDIR, or /tmp.
#pragma once

#include <string>
#include <string_view>

namespace tuckfold {

// A file descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int file) : file_(file) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor();
  int get() const noexcept { return file_; }

 private:
  int file_;
};

// The temporary folder. Throws Io, as "[verb] …", where there is none.
std::string temporary_folder(std::string_view verb);

// Opens a new file, to read and write, that has no name and so is gone when it is closed. `path` is
// where it was, for messages. Throws Io.
int open_temporary(std::string_view verb, std::string& path);

}  // namespace tuckfold
