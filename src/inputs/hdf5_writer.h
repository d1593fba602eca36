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

// Attributes as metadata has them: JSON objects, or null. `types` has the dtype of those that are
// numbers, by name.
struct AttributesJson {
  const Json* values = nullptr;
  const Json* types = nullptr;
};

class Hdf5Writer {
 public:
  // Creates the file at `path`, in place of what is there; `name` is for messages.
  Hdf5Writer(const std::string& path, std::string name);
  ~Hdf5Writer();
  Hdf5Writer(const Hdf5Writer&) = delete;
  Hdf5Writer& operator=(const Hdf5Writer&) = delete;

  // Attributes of the file.
  void set_attributes(const AttributesJson& attributes);
  // bf16, which HDF5 lacks, is Unsupported. Fill values become _FillValue and missing_value where the
  // attributes have neither.
  void begin(const std::string& array, DType dtype, const Shape& shape,
             const AttributesJson& attributes = {}, std::span<const FillValue> fill = {});
  // Rows of the array begun last, in order.
  void add(std::span<const std::byte> rows);
  void finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tuckfold
