// A file that has its name when it is whole.
//
//   NewFile file("view", "sheet.png");
//   file.write(bytes);
//   file.finish();              // without it nothing is left, and what had the name still has it
//
// Every writer has a file of its own until then, so that two of one path never mix: the last to
// finish has the name. Symbolic links are followed. Pipes and devices are written through, so that
// what a failed writer wrote there stays.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/io/destination.h"
#include "base/io/little_endian.h"

namespace tuckfold {

class NewFile {
 public:
  // May finish() replace a file that exists? Where it may not, it throws InvalidArgument.
  enum class Replace : bool { No, Yes };

  // Throws Io as "[verb] …", InvalidArgument where the path is an input (check_not_input).
  NewFile(std::string_view verb, const std::string& path, Replace replace = Replace::Yes);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write(ByteSpan bytes);
  std::uint64_t size() const noexcept { return size_; }
  bool is_stream() const noexcept { return to_.stream; }
  // A name by which a library can open the file meanwhile, to write it itself. A program that is
  // killed leaves it. Not of a stream.
  const std::string& name_meanwhile();
  // Flushes it to the disk, and gives it its name.
  void finish(bool sync = true);

 private:
  [[noreturn]] void refuse(std::string_view doing) const;
  void open_beside();

  std::string verb_;
  Destination to_;
  Replace replace_;
  int file_ = -1;
  std::string name_meanwhile_;  // empty: it has none
  std::uint64_t size_ = 0;
};

// A name beside the path that nothing has: for a file that will be renamed to it.
std::string unused_name_beside(const std::string& path);

// rename(2); without `replace` it fails with EEXIST where something has the name. Returns 0 or the
// reason.
int rename_file(const std::string& from, const std::string& to, bool replace);

}  // namespace tuckfold
