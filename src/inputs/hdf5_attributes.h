// Attributes of HDF5 files and datasets as JSON: units, names, calendars and so on.
#pragma once

#include <hdf5.h>

#include <string>

#include "inputs/source.h"

namespace tuckfold::hdf5 {

// Gathers texts and numbers, up to kMostValues each. Other types, longer attributes, and those beyond
// kMostBytes of JSON in total are counted and left out. Internal attributes of netCDF are not counted.
class Attributes {
 public:
  static constexpr std::size_t kMostValues = 256;
  static constexpr std::size_t kMostBytes = std::size_t{64} << 10;

  void add_file(hid_t file);
  void add(const std::string& array, hid_t dataset);

  SourceAbout take() && { return std::move(about_); }

 private:
  std::string object_of(hid_t object);

  SourceAbout about_;
  std::size_t bytes_ = 0;
};

}  // namespace tuckfold::hdf5
