// Writes arrays to an HDF5 file, a dataset each, row-major; large ones in chunks, shuffled and deflated.
// "group/image" goes to a group. Unsupported in a build without libhdf5.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "base/json.h"
#include "tuckfold/fill_value.h"
#include "tuckfold/tensor.h"

namespace tuckfold {

class Hdf5Writer {
 public:
  // Creates the file at `path`, in place of what is there; `name` is for messages.
  Hdf5Writer(const std::string& path, std::string name);
  ~Hdf5Writer();
  Hdf5Writer(const Hdf5Writer&) = delete;
  Hdf5Writer& operator=(const Hdf5Writer&) = delete;

  // Attributes of the file: the members of a JSON object.
  void set_attributes(const Json& members);
  // bf16, which HDF5 lacks, is Unsupported. `attributes` is a JSON object or null. Fill values become
  // _FillValue and missing_value where it has neither.
  void begin(const std::string& array, DType dtype, const Shape& shape,
             const Json* attributes = nullptr, std::span<const FillValue> fill = {});
  // Rows of the array begun last, in order.
  void add(std::span<const std::byte> rows);
  void finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tuckfold
