// Division by a number that the host knows, in three instructions.
#pragma once

#include <bit>
#include <cstdint>

#include "base/cuda/kernel.cuh"

namespace tuckfold::cuda {

class Divider {
 public:
  Divider() = default;
  // For divisors 1 … 2^31 and dividends below 2^31 (Granlund and Montgomery, 1994).
  explicit Divider(std::uint32_t divisor)
      : shift_(std::bit_width(divisor - 1)),
        multiplier_(static_cast<std::uint32_t>(
            (((std::uint64_t{1} << shift_) - divisor) << 32) / divisor + 1)) {}

  __device__ TUCKFOLD_INLINE std::uint32_t quotient(std::uint32_t n) const {
    return (__umulhi(n, multiplier_) + n) >> shift_;
  }

 private:
  int shift_ = 0;
  std::uint32_t multiplier_ = 1;
};

}  // namespace tuckfold::cuda
