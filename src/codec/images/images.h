// What unpack_images has on CUDA devices; null in builds without CUDA.
#pragma once

#include "codec/images/image_writer.h"
#include "codec/registry.h"

namespace tuckfold::images {

struct CudaImages {
  // Images of dense, row-major samples. `rounds`: samples are f32 that are rounded to u8 first.
  void (*make)(const ConstTensorView& samples, bool rounds, const ImageSides&, const ImagePass&,
               const TensorView& out, void* stream);
};
TUCKFOLD_WEAK extern const CudaImages kCuda;

}  // namespace tuckfold::images
