// Attributes as metadata has them, JSON, back as attributes of HDF5.
#pragma once

#include <hdf5.h>

#include <span>

#include "base/json.h"
#include "tuckfold/fill_value.h"

namespace tuckfold::hdf5 {

// Members of a JSON object: texts, numbers, and lists of either; anything else as its JSON text. Those
// that netCDF has in the type of their array, such as _FillValue, get `type`. Returns false where the
// library refuses one.
bool write_attributes(hid_t object, const Json& members, hid_t type = H5I_INVALID_HID);

// Fill values that no attribute names: _FillValue, and missing_value for all but the first.
bool write_fill(hid_t dataset, std::span<const FillValue> fill, hid_t type);

}  // namespace tuckfold::hdf5
