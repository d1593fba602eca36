#include "cli/dataset/append.h"

#include <filesystem>

#include "base/fail.h"
#include "base/fill.h"
#include "cli/dataset/dataset.h"

namespace tuckfold::cli {
namespace {

std::string describe(const std::vector<ArrayInfo>& arrays) {
  std::string text;
  for (const ArrayInfo& array : arrays) {
    text += fmt::format("{}{} {} {} by {}", text.empty() ? "" : ", ", array.name,
                        to_string(array.dtype), to_string(array.shape), array.codec.print());
    for (const FillValue& value : array.fill) {
      text += fmt::format("{}{}", &value == &array.fill.front() ? " with fill values " : " and ",
                          to_string(array.dtype, value));
    }
  }
  return text;
}

bool equal(const ArrayInfo& a, const ArrayInfo& b) {
  return a.name == b.name && a.dtype == b.dtype && a.shape == b.shape && a.codec == b.codec &&
         a.fill == b.fill;
}

}  // namespace

std::vector<ArrayInfo> arrays_of(const std::string& path, bool strict) {
  std::error_code unreadable;
  if (!std::filesystem::exists(path, unreadable)) {
    fail(Errc::Io, "[pack] there is no '{}' to append to; leave out --append to begin it", path);
  }
  const FileReader reader = open_reader(path, strict);
  for (const TrailingData& trailing : reader.trailing_data()) {
    if (!trailing.trailer_broken) continue;
    fail(Errc::CorruptData,
         "[pack] the last trailer of '{}' is broken, and appending would drop the samples that it "
         "lists; save them with `tuckfold repair` first",
         trailing.path);
  }
  return {reader.arrays().begin(), reader.arrays().end()};
}

void check_append(const std::string& path, const std::vector<ArrayInfo>& has,
                  const std::vector<ArrayInfo>& given) {
  bool same = has.size() == given.size();
  for (std::size_t i = 0; same && i < has.size(); ++i) same = equal(has[i], given[i]);
  if (!same) {
    invalid("[pack] '{}' holds {}, to which {} cannot be appended; pack that to another file", path,
            describe(has), describe(given));
  }
  for (std::size_t i = 0; i < has.size(); ++i) {
    const std::int64_t chunk = given[i].samples_per_chunk;
    if (chunk == 0 || chunk == has[i].samples_per_chunk) continue;
    invalid("[pack] '{}' has {} samples of {} in a chunk, got --samples-per-chunk {}; leave it out",
            path, has[i].samples_per_chunk, has[i].name, chunk);
  }
}

}  // namespace tuckfold::cli
