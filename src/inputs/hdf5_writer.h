// Writes arrays to an HDF5 file, a dataset each, contiguous and row-major. "group/image" goes to a
// group. Unsupported in a build without libhdf5.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "tuckfold/tensor.h"

namespace tuckfold {

class Hdf5Writer {
 public:
  // Creates the file at `path`, in place of what is there; `name` is for messages.
  Hdf5Writer(const std::string& path, std::string name);
  ~Hdf5Writer();
  Hdf5Writer(const Hdf5Writer&) = delete;
  Hdf5Writer& operator=(const Hdf5Writer&) = delete;

  // bf16, which HDF5 lacks, is Unsupported.
  void begin(const std::string& array, DType dtype, const Shape& shape);
  // Rows of the array begun last, in order.
  void add(std::span<const std::byte> rows);
  void finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tuckfold
