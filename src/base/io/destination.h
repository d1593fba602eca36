// The destination of an output: what its path names now, with symbolic links followed, so that a
// link stays a link, and a pipe or a device stays one.
#pragma once

#include <sys/stat.h>

#include <string>
#include <string_view>

namespace tuckfold {

struct Destination {
  std::string path;     // with the links at its end followed
  bool exists = false;  // something has the name
  bool stream = false;  // a pipe, a device or an open file: written through, never replaced
  int descriptor = -1;  // of the open file that "-", /dev/stdout or /dev/fd/N name
};

// Throws Io, as "[verb] …", where the path is a folder, or its links do not end.
Destination find_destination(std::string_view verb, const std::string& path);

// Throws InvalidArgument where it is a file that this process has mapped to read
// (Bytes::remember_mapped), by whatever name.
void check_not_input(std::string_view verb, const Destination& destination);

// Whether both are of one file.
bool same_file(const struct stat& a, const struct stat& b) noexcept;

// Flushes the folder of the path, so that a name given there survives a loss of power.
void sync_folder_of(std::string_view verb, const std::string& path);

}  // namespace tuckfold
