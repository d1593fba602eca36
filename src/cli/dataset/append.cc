#include "cli/dataset/append.h"

#include <algorithm>
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

// Arrays that differ in nothing but fill values: says how to give the same.
[[noreturn]] void refuse_fill(const std::string& path, const std::vector<ArrayInfo>& has,
                              const std::vector<ArrayInfo>& given) {
  std::string missing, options;
  bool more = false;
  for (std::size_t i = 0; i < has.size(); ++i) {
    for (const FillValue& value : has[i].fill) {
      if (std::ranges::count(given[i].fill, value) > 0) continue;
      const std::string text = to_string(has[i].dtype, value);
      missing += fmt::format("{}{} of '{}'", missing.empty() ? "" : ", ", text, has[i].name);
      options += fmt::format(" --fill {}={}", has[i].name, text);
    }
    more = more || std::ranges::any_of(given[i].fill, [&](const FillValue& value) {
             return std::ranges::count(has[i].fill, value) == 0;
           });
  }
  if (more || missing.empty()) {
    invalid(
        "[pack] '{}' holds {}, to which {} cannot be appended: give the same fill values in the "
        "same order, or pack that to another file",
        path, describe(has), describe(given));
  }
  invalid("[pack] '{}' has the fill values {}, which the samples to append have not; add{}", path,
          missing, options);
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
  bool same = has.size() == given.size(), same_but_fill = same;
  for (std::size_t i = 0; same_but_fill && i < has.size(); ++i) {
    ArrayInfo filled = given[i];
    filled.fill = has[i].fill;
    same = same && equal(has[i], given[i]);
    same_but_fill = equal(has[i], filled);
  }
  if (!same && same_but_fill) refuse_fill(path, has, given);
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
