// The normative arithmetic of unpack_gelu: x times the normal distribution's share below x, as PyTorch's
// GELU without approximation has it. Each operation is rounded to f32, so that every device gives these bits.
#pragma once

#include "base/device.h"
#include "codec/then/then_block.h"

namespace tuckfold::then {

// From here on erf is 1 in f32, up to the last bit.
inline constexpr float kErfEnd = 3.9f;

// erf(u) for |u| below kErfEnd: u times a quotient of polynomials of u * u, which is off by 2e-8 at most.
TUCKFOLD_HOST_DEVICE inline float erf_within(float u) {
  const float z = u * u;
  float above = 0x1.1560fap-19f;
  above = above * z + 0x1.2ae5a6p-12f;
  above = above * z + 0x1.e9e7b2p-9f;
  above = above * z + 0x1.af70a2p-5f;
  above = above * z + 0x1.8467a6p-3f;
  above = above * z + 0x1.20dd74p+0f;
  float below = 0x1.410a84p-15f;
  below = below * z + 0x1.2f5bcap-10f;
  below = below * z + 0x1.e8aabap-7f;
  below = below * z + 0x1.d22cfp-4f;
  below = below * z + 0x1.00b858p-1f;
  below = below * z + 1.0f;
  return u * above / below;
}

TUCKFOLD_HOST_DEVICE inline float gelu(float x) {
  const float u = x * 0x1.6a09e6p-1f;  // x / sqrt(2)
  float share = u > 0.0f ? 1.0f : -1.0f;
  if (u > -kErfEnd && u < kErfEnd) share = erf_within(u);
  return without_payload(0.5f * x * (1.0f + share));
}

}  // namespace tuckfold::then
