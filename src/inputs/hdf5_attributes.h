// Attributes of HDF5 files and datasets as JSON: units, names, calendars and so on.
#pragma once

#include <hdf5.h>

#include <string>

#include "inputs/source.h"

namespace tuckfold::hdf5 {

// Gathers texts and numbers, up to kMostValues each. Other types, longer attributes, and those beyond
// kMostBytes of JSON in total are counted and left out. Internal attributes of netCDF are not counted.
// Floating-point numbers have a point or an exponent, and the dtype of every number is noted.
class Attributes {
 public:
  static constexpr std::size_t kMostValues = 256;
  static constexpr std::size_t kMostBytes = std::size_t{64} << 10;

  void add_file(hid_t file);
  void add(const std::string& array, hid_t dataset);

  SourceAbout take() && { return std::move(about_); }

 private:
  SourceAttributes of(hid_t object);

  SourceAbout about_;
  std::size_t bytes_ = 0;
};

}  // namespace tuckfold::hdf5
