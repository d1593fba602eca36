#include "base/io/temporary.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/fail.h"

namespace tuckfold {

Descriptor::~Descriptor() {
  if (file_ >= 0) ::close(file_);
}

std::string temporary_folder(std::string_view verb) {
  std::error_code refused;
  const std::filesystem::path folder = std::filesystem::temp_directory_path(refused);
  if (!refused) return folder.string();
  const char* given = std::getenv("TMPDIR");
  fail(Errc::Io, "[{}] TMPDIR must name a folder, got '{}': {}", verb,
       given == nullptr ? "/tmp" : given, refused.message());
}

int open_temporary(std::string_view verb, std::string& path) {
  path = (std::filesystem::path(temporary_folder(verb)) / "tuckfold_XXXXXX").string();
  const int file = ::mkostemp(path.data(), O_CLOEXEC);
  if (file < 0) {
    fail(Errc::Io, "[{}] cannot create '{}': {}; set TMPDIR to a folder that can be written", verb,
         path, std::strerror(errno));
  }
  ::unlink(path.c_str());
  return file;
}

}  // namespace tuckfold
