// A file that has its name when it is whole; "-" is standard output.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include "base/fail.h"

namespace tuckfold::cli {

class Output {
 public:
  Output(const char* verb, const std::string& path) : verb_(verb), path_(path) {
    if (path == "-") {
      file_ = stdout;
      return;
    }
    file_ = std::fopen(partial().c_str(), "wbe");
    if (file_ == nullptr) refuse("create");
  }
  ~Output() {
    if (file_ == nullptr || file_ == stdout) return;
    std::fclose(file_);
    ::unlink(partial().c_str());
  }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  void write(const void* bytes, std::size_t count) {
    if (std::fwrite(bytes, 1, count, file_) != count) refuse("write");
  }
  void finish() {
    if (std::fflush(file_) != 0) refuse("write");
    if (file_ == stdout) return;
    const bool closed = std::fclose(std::exchange(file_, nullptr)) == 0;
    if (closed && std::rename(partial().c_str(), path_.c_str()) == 0) return;
    const int error = errno;
    ::unlink(partial().c_str());
    errno = error;
    refuse("write");
  }

 private:
  std::string partial() const { return path_ + ".partial"; }
  [[noreturn]] void refuse(const char* what) const {
    const int reason = errno;
    fail(Errc::Io, "[{}] cannot {} {}: {}", verb_, what,
         path_ == "-" ? "to standard output" : fmt::format("'{}'", path_), std::strerror(reason));
  }
  const char* verb_;
  std::string path_;
  std::FILE* file_ = nullptr;
};

}  // namespace tuckfold::cli
