// values * scale + add with SIMD: a product and a sum, each rounded, on every target.
#pragma once

#include <cstdint>

namespace tuckfold {

void scale_add(const float* in, std::int64_t count, float scale, float add, float* out) noexcept;

}  // namespace tuckfold
