// The range of a tensor, for rel: one pass over it before it is packed.
#pragma once

#include <limits>

#include "codec/bounded/bounded_cuda.cuh"

namespace tuckfold::bounded {

// Numbers whose order is that of doubles; none is 0.
__device__ inline unsigned long long key_of(double value) {
  const auto bits = std::bit_cast<unsigned long long>(value);
  return bits >> 63 != 0 ? ~bits : bits | 1ull << 63;
}
__device__ inline double of_key(unsigned long long key) {
  return std::bit_cast<double>(key >> 63 != 0 ? key & ~(1ull << 63) : ~key);
}

inline constexpr int kRangeThreads = 256, kRangeVectors = 4, kRangeBlocks = 6;

// Leaves the range as keys, the lowest inverted, so that both only grow.
template <class Element>
__global__ void __launch_bounds__(kRangeThreads, kRangeBlocks)
    range_kernel(const __grid_constant__ PackArgs args) {
  using Real = RealOf<Element>;
  constexpr Real kInf = std::numeric_limits<Real>::infinity();
  constexpr int kValues = Stage16<Element>::kTogetherValues;
  Real low = kInf, high = -kInf;
  const auto widen = [&](Real value) {
    if (!(std::fabs(value) <= std::numeric_limits<Real>::max())) return;
    low = value < low ? value : low;
    high = value > high ? value : high;
  };
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * kRangeThreads;
  const std::int64_t self = static_cast<std::int64_t>(blockIdx.x) * kRangeThreads + threadIdx.x;
  std::int64_t done = 0;
  if (args.vectors) {
    const auto* from = reinterpret_cast<const uint4*>(args.in.data);
    const std::int64_t vectors = args.in.elems / kValues;
    for (std::int64_t v = self; v < vectors; v += kRangeVectors * threads) {
      uint4 some[kRangeVectors];
#pragma unroll
      for (int k = 0; k < kRangeVectors; ++k) {
        some[k] = from[v + k * threads < vectors ? v + k * threads : v];
      }
#pragma unroll
      for (int k = 0; k < kRangeVectors; ++k) {
        const auto values = std::bit_cast<Sixteen<Element>>(some[k]);
#pragma unroll
        for (int i = 0; i < kValues; ++i) widen(real_of(values.elements[i]));
      }
    }
    done = vectors * kValues;
  }
  for (std::int64_t i = done + self; i < args.in.elems; i += threads) {
    widen(real_of(reinterpret_cast<const Element*>(args.in.data)[args.in.offset(i)]));
  }
#pragma unroll
  for (int by = kWarp / 2; by > 0; by /= 2) {
    const Real other_low = __shfl_xor_sync(kAllLanes, low, by);
    const Real other_high = __shfl_xor_sync(kAllLanes, high, by);
    low = other_low < low ? other_low : low;
    high = other_high > high ? other_high : high;
  }
  __shared__ Real lows[kRangeThreads / kWarp], highs[kRangeThreads / kWarp];
  if (lane_of() == 0) {
    lows[threadIdx.x / kWarp] = low;
    highs[threadIdx.x / kWarp] = high;
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int i = 1; i < kRangeThreads / kWarp; ++i) {
    low = lows[i] < low ? lows[i] : low;
    high = highs[i] > high ? highs[i] : high;
  }
  if (low > high) return;
  atomicMax(&args.control->lowest, ~key_of(low));
  atomicMax(&args.control->highest, key_of(high));
}

}  // namespace tuckfold::bounded
