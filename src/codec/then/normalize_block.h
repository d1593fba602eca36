// The normative arithmetic of normalize(): that of PyTorch's batch_norm_elemt, add and relu on a GPU.
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

TUCKFOLD_HOST_DEVICE inline float rectified(float y) {
  return y <= 0.0f ? 0.0f : y;  // NaN is not less
}

}  // namespace tuckfold::then
