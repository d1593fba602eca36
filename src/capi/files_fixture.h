// The dataset of container/dataset_fixture.h through the C API, for its tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "container/dataset_fixture.h"
#include "tuckfold/c.h"

namespace tuckfold::ref {

using ReaderPtr = std::unique_ptr<tuckfold_reader, decltype(&tuckfold_reader_close)>;
inline ReaderPtr open_reader(const std::string& path, std::int32_t strict = 0) {
  tuckfold_reader* reader = nullptr;
  EXPECT_EQ(tuckfold_reader_open(path.c_str(), strict, &reader), TUCKFOLD_OK)
      << tuckfold_last_error();
  return {reader, tuckfold_reader_close};
}

struct Close {
  void operator()(tuckfold_writer* writer) const { tuckfold_writer_close(writer, 1); }
};
using WriterPtr = std::unique_ptr<tuckfold_writer, Close>;

inline constexpr std::int64_t kPlane[] = {8, 8}, kMask[] = {4};
// The arrays of dataset_fixture.h.
inline std::vector<tuckfold_array> small_c_arrays() {
  return {{.name = "plane",
           .codec = "dct_chop(keep=2)",
           .dtype = TUCKFOLD_F32,
           .rank = 2,
           .shape = kPlane,
           .samples_per_chunk = 2},
          {.name = "mask",
           .codec = "zstd",
           .dtype = TUCKFOLD_U8,
           .rank = 1,
           .shape = kMask,
           .samples_per_chunk = 4},
          {.name = "label", .codec = "raw", .dtype = TUCKFOLD_I64, .samples_per_chunk = 4}};
}

inline tuckfold_write_options quick() {
  return {.struct_bytes = sizeof(tuckfold_write_options), .no_sync = 1};
}

inline tuckfold_status open_writer(const std::string& path, const tuckfold_write_options& options,
                                   WriterPtr& writer, bool with_arrays = true) {
  const std::vector<tuckfold_array> arrays = small_c_arrays();
  tuckfold_writer* opened = nullptr;
  const tuckfold_status status = tuckfold_writer_open(
      path.c_str(), arrays.data(), with_arrays ? arrays.size() : 0, &options, &opened);
  writer.reset(opened);
  return status;
}

inline tuckfold_status write(tuckfold_writer* writer, std::int64_t first, std::int64_t count) {
  Batch batch(first, count);
  const std::int64_t shapes[3][3] = {{count, 8, 8}, {count, 4}, {count}};
  const tuckfold_tensor tensors[] = {
      {.data = batch.planes.data(), .dtype = TUCKFOLD_F32, .rank = 3, .shape = shapes[0]},
      {.data = batch.masks.data(), .dtype = TUCKFOLD_U8, .rank = 2, .shape = shapes[1]},
      {.data = batch.labels.data(), .dtype = TUCKFOLD_I64, .rank = 1, .shape = shapes[2]}};
  return tuckfold_writer_write(writer, tensors, 3);
}

// Samples first … end of the fixture, in batches of 3, to a file that is then finished.
inline void write_all(const std::string& path, const tuckfold_write_options& options,
                      std::int64_t first, std::int64_t end) {
  WriterPtr writer;
  ASSERT_EQ(open_writer(path, options, writer), TUCKFOLD_OK) << tuckfold_last_error();
  for (std::int64_t at = first; at < end; at += 3) {
    ASSERT_EQ(write(writer.get(), at, std::min<std::int64_t>(3, end - at)), TUCKFOLD_OK)
        << tuckfold_last_error();
  }
  ASSERT_EQ(tuckfold_writer_finish(writer.get()), TUCKFOLD_OK) << tuckfold_last_error();
}

inline bool holds_first(const std::string& path, std::int64_t samples) {
  return holds(FileReader(path), numbers_to(samples));
}

inline std::int64_t samples_of(tuckfold_writer* writer) {
  const std::string text = tuckfold_writer_json(writer);  // Json points into it
  return Json::parse(text).find("samples")->whole();
}

}  // namespace tuckfold::ref
