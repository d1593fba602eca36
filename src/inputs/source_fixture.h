// What tests of inputs share: folders of files that they write, whole arrays, errors, damage.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <string>
#include <vector>

#include "inputs/formats.h"
#include "tuckfold/error.h"

namespace tuckfold {

class TempFolder {
 public:
  TempFolder() {
    std::string path = testing::TempDir() + "tuckfold_source_XXXXXX";
    EXPECT_NE(::mkdtemp(path.data()), nullptr);
    path_ = path;
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path write(const std::string& name, const std::string& content) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary) << content;
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

template <class T>
std::string bytes_of(std::initializer_list<T> values) {
  return {reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(T)};
}

inline std::string npy_bytes(const std::string& descr, const std::string& shape,
                             const std::string& data, const std::string& order = "False") {
  const std::string header =
      "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }\n";
  std::string text("\x93NUMPY\x01\x00", 8);
  text += static_cast<char>(header.size() & 255);
  text += static_cast<char>(header.size() >> 8);
  return text + header + data;
}

inline std::unique_ptr<Source> open_paths(std::vector<std::filesystem::path> paths,
                                          const SourceOptions& options = {}) {
  return open_source(paths, options);
}

// All samples of an array. Fetching them, each alone and all together, must give the same.
template <class T>
std::vector<T> read_all(const Source& source, std::size_t array) {
  const SourceArray& info = source.arrays()[array];
  std::vector<T> values(info.sample_bytes() / sizeof(T) *
                        static_cast<std::size_t>(source.samples()));
  auto* const bytes = reinterpret_cast<std::byte*>(values.data());
  source.read(array, 0, source.samples(), bytes);
  std::vector<std::byte> room(values.size() * sizeof(T));
  const auto fetch = [&](std::int64_t first, std::int64_t count) {
    const std::byte* found = source.fetch(array, first, count, room.data());
    if (count == 0 || info.sample_bytes() == 0) return;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(found) % size_bytes(info.dtype), 0u);
    EXPECT_EQ(std::memcmp(found, bytes + static_cast<std::size_t>(first) * info.sample_bytes(),
                          static_cast<std::size_t>(count) * info.sample_bytes()),
              0);
  };
  fetch(0, source.samples());
  for (std::int64_t i = 0; i < std::min<std::int64_t>(source.samples(), 20); ++i) fetch(i, 1);
  return values;
}

// The error that opening gives, or reading all of what was opened.
template <class Open>
Error error_from(Open&& open) {
  try {
    const std::unique_ptr<Source> source = open();
    for (std::size_t i = 0; i < source->arrays().size(); ++i) read_all<std::uint8_t>(*source, i);
  } catch (const Error& error) {
    return error;
  }
  return {Errc::Internal, "accepted"};
}
inline Error error_of(const std::vector<std::filesystem::path>& paths,
                      const SourceOptions& options = {}) {
  return error_from([&] { return open_source(paths, options); });
}
inline Error error_of(const SourceFormat& format, const std::string& content) {
  const SourceInput input{
      .path = "a",
      .file = Bytes::of({reinterpret_cast<const std::byte*>(content.data()), content.size()})};
  return error_from([&] { return format.open({&input, 1}, {}); });
}

// Cuts and flips a file in every place, or in many of a long one. Whatever remains is read or
// refused as the reader's own errors; of the cuts, none may be read unless `cuts_may_pass`.
inline void expect_survives_damage(const SourceFormat& format, const std::string& whole,
                                   bool cuts_may_pass = false) {
  EXPECT_STREQ(error_of(format, whole).what(), "accepted");
  const std::size_t step = whole.size() / 2000 + 1;
  for (std::size_t size = 0; size < whole.size(); size += step) {
    const Error error = error_of(format, whole.substr(0, size));
    const bool passed = error.code() == Errc::Internal;
    EXPECT_TRUE(!passed || cuts_may_pass) << "cut to " << size << ": " << error.what();
  }
  for (std::size_t at = 0; at < whole.size(); at += step) {
    for (const int flip : {0x01, 0x80, 0xff}) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ flip);
      const Error error = error_of(format, damaged);
      EXPECT_NE(error.code(), Errc::Io) << error.what();
    }
  }
}

// The folder of real data, or nothing: TUCKFOLD_DATA, else beside the repository.
inline std::filesystem::path real_data(const std::string& name) {
  const char* named = std::getenv("TUCKFOLD_DATA");
  const std::filesystem::path root =
      named != nullptr ? std::filesystem::path(named)
                       : std::filesystem::path(TUCKFOLD_SOURCE_DIR) / "../shared/data";
  return std::filesystem::exists(root / name) ? root / name : std::filesystem::path();
}

}  // namespace tuckfold
