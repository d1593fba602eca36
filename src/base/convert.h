// Converts runs of f16, bf16 and f64 to and from f32 with SIMD; the bits are those of half.h.
#pragma once

#include <cstdint>

#include "base/half.h"

namespace tuckfold {

void to_floats(const F16* in, std::int64_t count, float* out) noexcept;
void to_floats(const BF16* in, std::int64_t count, float* out) noexcept;
// As to_f32_saturated.
void to_floats(const double* in, std::int64_t count, float* out) noexcept;
// As to_f16_saturated, to_bf16_saturated and to_f64.
void from_floats(const float* in, std::int64_t count, F16* out) noexcept;
void from_floats(const float* in, std::int64_t count, BF16* out) noexcept;
void from_floats(const float* in, std::int64_t count, double* out) noexcept;

}  // namespace tuckfold
