// Attributes as metadata has them, JSON, back as attributes of HDF5.
#pragma once

#include <hdf5.h>

#include <optional>
#include <span>

#include "inputs/hdf5_writer.h"
#include "tuckfold/fill_value.h"

namespace tuckfold::hdf5 {

// Members of a JSON object: texts, numbers, and lists of either; anything else as its JSON text. Numbers
// have the dtype that `types` notes. Without one, those that netCDF has in the type of their array, such
// as flag_values, have its dtype, and others are i32, i64 or u64, or f64 if one has a point or an
// exponent. A dtype that cannot hold the numbers is passed over. Returns false where the library
// refuses one.
bool write_attributes(hid_t object, const AttributesJson& attributes,
                      std::optional<DType> array = std::nullopt);

// Fill values that no attribute names: _FillValue, and missing_value for all but the first.
bool write_fill(hid_t dataset, std::span<const FillValue> fill, hid_t type);

}  // namespace tuckfold::hdf5
