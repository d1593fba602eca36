// Runs of f16 and bf16 to and from f32: the bits of half.h, by the vectors of this machine.
#pragma once

#include <cstdint>

#include "base/half.h"

namespace tuckfold {

void to_floats(const F16* in, std::int64_t count, float* out) noexcept;
void to_floats(const BF16* in, std::int64_t count, float* out) noexcept;
void from_floats(const float* in, std::int64_t count, F16* out) noexcept;
void from_floats(const float* in, std::int64_t count, BF16* out) noexcept;

}  // namespace tuckfold
