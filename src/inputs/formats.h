// The table of input formats: one row each. Adding a format adds one row here and in source.cc.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/fail.h"
#include "base/io/bytes.h"
#include "inputs/source.h"

namespace tuckfold {

// One of the paths given. A folder has no bytes.
struct SourceInput {
  std::string path;
  std::shared_ptr<const Bytes> file;
  bool inflated = false;  // the bytes are not those at the path, which is gzipped

  std::span<const std::byte> bytes() const {
    return file ? file->span() : std::span<const std::byte>();
  }
  std::string_view text() const {
    return {reinterpret_cast<const char*>(bytes().data()), bytes().size()};
  }
  // ".npy" of "a.npy", and of "a.npy.gz" that was inflated.
  std::string extension() const;
};

struct SourceFormat {
  std::string_view name;
  std::string_view summary;
  std::string_view extensions;  // ".idx .gz": asked where no row knows the contents
  // Whether the contents indicate this format; never throws, and reads little.
  bool (*looks_like)(const SourceInput&);
  std::unique_ptr<Source> (*open)(std::span<const SourceInput>, const SourceOptions&);
  // Every array of one file, whatever its type and length; null where open() has the same.
  std::vector<InputArray> (*list)(const SourceInput&, const SourceOptions&) = nullptr;
};

extern const SourceFormat kNpySource, kNpzSource, kIdxSource, kCifarSource, kCifarPickleSource,
    kRawSource, kSafetensorsSource, kTarSource, kImagesSource, kHdf5Source;

// Whether an array of this name is asked for.
bool wanted(const SourceOptions& options, std::string_view name);

// Maps a file, and inflates it if it is gzipped and no idx file, which inflates itself. `is_raw`: any
// bytes may be values, so only a file called .gz is inflated. A folder is opened as it is.
SourceInput open_input(const std::filesystem::path& path, bool is_raw);

// Whether options say that files are bare values.
bool is_raw(const SourceOptions& options);

// The format that the contents or the extension indicate, or null.
const SourceFormat* find_format(const SourceInput& input);

// Throws Unsupported, with the name of the format, for files of well-known formats that are not read.
void refuse_other_formats(const SourceInput& input);

// An error that another choice of arrays avoids: open_source() adds which arrays there are.
class ArraysError : public Error {
 public:
  ArraysError(Errc code, std::string path, const std::string& message)
      : Error(code, message), path_(std::move(path)) {}
  const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};

template <class... Args>
[[noreturn]] void fail_over_arrays(Errc code, std::string_view path,
                                   fmt::format_string<Args...> text, Args&&... args) {
  throw ArraysError(code, std::string(path), fmt::format(text, std::forward<Args>(args)...));
}

// A file name's part before its first dot, for messages and names.
std::string stem_of(const std::string& path);

}  // namespace tuckfold
