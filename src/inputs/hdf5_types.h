// Dtypes and the types of HDF5.
#pragma once

#include <hdf5.h>

#include <optional>

#include "inputs/hdf5_session.h"
#include "tuckfold/tensor.h"

namespace tuckfold::hdf5 {

// The dtype that has a type's values, in either byte order; none for what is not read.
std::optional<DType> dtype_by(hid_t type);

// The type of a dtype, little-endian. bf16, which HDF5 lacks, is Unsupported.
Handle type_of(DType dtype);

}  // namespace tuckfold::hdf5
