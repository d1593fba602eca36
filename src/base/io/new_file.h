// A file that gets its name only when it is complete.
//
//   NewFile file("view", "sheet.png");
//   file.write(bytes);
//   file.finish();              // without it no file is left, and an older file keeps the name
//
// Until then every writer has a file of its own, so that two writers of one path never mix: the
// last to finish has the name. Symbolic links are followed. Pipes and devices are written directly,
// so what a failed writer wrote there stays.
#pragma once

#include <cstdint>
#include <list>
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
  // A temporary name under which a library can open the file and write it itself. A program that is
  // killed leaves it. Not available for a stream.
  const std::string& name_meanwhile();
  // Flushes the file to the disk and gives it its name.
  void finish(bool sync = true);

 private:
  friend void finish_all(std::list<NewFile>& files);
  [[noreturn]] void refuse(std::string_view doing) const;
  void open_beside();
  void flush();
  void rename();
  void close();
  std::string keep_old() const;

  std::string verb_;
  Destination to_;
  Replace replace_;
  int file_ = -1;
  std::string name_meanwhile_;  // empty: it has none
  std::uint64_t size_ = 0;
  bool named_ = false;
};

// Gives all of them their names, or none: where one fails, what had the others' names has them again.
// Nothing but two renames comes between two names; a program that is killed there leaves one file new
// and one old, and one that is killed shortly before or after leaves a file .NAME.XXXXXXXX.tmp.
void finish_all(std::list<NewFile>& files);

// An unused name beside the path, for a file that will be renamed to the path.
std::string unused_name_beside(const std::string& path);

// rename(2); without `replace` it fails with EEXIST where something has the name. Returns 0 or the
// reason.
int rename_file(const std::string& from, const std::string& to, bool replace);

}  // namespace tuckfold
