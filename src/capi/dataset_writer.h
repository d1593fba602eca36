// A file, or a dataset of shards, written batch by batch with the rules of `tuckfold pack`: files
// that exist are replaced only by force, and what a stopped writer left is not lost by accident.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tuckfold/container.h"

namespace tuckfold::capi {

struct DatasetRequest {
  std::string path;
  std::vector<ArrayInfo> arrays;
  WriteOptions options{};
  bool force = false;
  int shards = 0;            // 0: one file
  std::int64_t samples = 0;  // that will be written; 0: not known
};

class DatasetWriter {
 public:
  explicit DatasetWriter(DatasetRequest request);
  // Without finish(), what was packed stays for WriteMode::Resume; a file that was appended to is
  // as it was.
  ~DatasetWriter();
  DatasetWriter(const DatasetWriter&) = delete;
  DatasetWriter& operator=(const DatasetWriter&) = delete;

  std::span<const ArrayInfo> arrays() const;
  std::int64_t samples() const;  // the number of the next one
  void write(std::span<const ConstTensorView> batch);
  void finish();
  // Removes what is not finished.
  void discard() noexcept;
  WrittenArray written(std::size_t array) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tuckfold::capi
