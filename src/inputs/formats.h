// The table of input formats: one row each. Adding a format adds one row here and in source.cc, and
// one glob of files, source_NAME*.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/io/bytes.h"
#include "inputs/source.h"

namespace tuckfold {

// One of the paths given. A folder has no bytes.
struct SourceInput {
  std::string path;
  std::shared_ptr<const Bytes> file;

  std::span<const std::byte> bytes() const {
    return file ? file->span() : std::span<const std::byte>();
  }
  std::string_view text() const {
    return {reinterpret_cast<const char*>(bytes().data()), bytes().size()};
  }
};

struct SourceFormat {
  std::string_view name;
  std::string_view summary;
  std::string_view extensions;  // ".idx .gz": asked where no row knows the contents
  // Whether the contents speak for this format; never throws, and reads little.
  bool (*looks_like)(const SourceInput&);
  std::unique_ptr<Source> (*open)(std::span<const SourceInput>, const SourceOptions&);
};

extern const SourceFormat kNpySource, kNpzSource, kIdxSource, kCifarSource, kCifarPickleSource,
    kRawSource, kSafetensorsSource, kTarSource, kImagesSource, kHdf5Source;

// Whether an array of this name is asked for.
bool wanted(const SourceOptions& options, std::string_view name);

// A file name's part before its first dot, for messages and names.
std::string stem_of(const std::string& path);

}  // namespace tuckfold
