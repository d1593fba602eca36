// The normative arithmetic of unpack_images: a pixel is scaled in f32, each operation rounded.
// Kernels give these bits on every device, but for NaN's.
#pragma once

#include "base/device.h"

namespace tuckfold::images {

TUCKFOLD_HOST_DEVICE inline float value_of(float pixel, float scale, float add) {
  const float product = pixel * scale;
  return product + add;
}

}  // namespace tuckfold::images
