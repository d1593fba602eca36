// The normative arithmetic of normalize(): that of PyTorch's batch_norm_elemt, layer_norm, add and relu on a GPU.
#pragma once

#include <cmath>

#include "base/device.h"

namespace tuckfold::then {

struct Factors {
  float mean, invstd, weight, bias;
};

TUCKFOLD_HOST_DEVICE inline float normalized(float x, const Factors& of) {
  const float centered = x - of.mean;
  const float scaled = of.weight * centered;
  return fmaf(scaled, of.invstd, of.bias);
}

// The same of a layer normalization, by vectorized_layer_norm_kernel.
TUCKFOLD_HOST_DEVICE inline float normalized_in_row(float x, float mean, float invstd, float weight,
                                                    float bias) {
  const float centered = x - mean;
  const float scaled = invstd * centered;
  return fmaf(weight, scaled, bias);
}

TUCKFOLD_HOST_DEVICE inline float rectified(float y) {
  return y <= 0.0f ? 0.0f : y;  // NaN is not less
}

}  // namespace tuckfold::then
