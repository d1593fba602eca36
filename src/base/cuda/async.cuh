// Copies from global to shared memory that use no registers, so that a thread can have many in
// flight.
//
//   for (…) copy_async(shared + …, global + …);
//   wait_for_copies();
//   __syncwarp();  // or __syncthreads(): before it a thread sees only its own copies
#pragma once

#include <cstring>

#include "base/cuda/kernel.cuh"

namespace tuckfold::cuda {

// Sixteen bytes; both addresses are multiples of 16.
__device__ inline void copy_async(void* shared, const void* global) {
#ifdef __CUDACC__
  const auto to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
#else
  std::memcpy(shared, global, 16);
#endif
}

// Waits for all copies that this thread has started.
__device__ inline void wait_for_copies() {
#ifdef __CUDACC__
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

}  // namespace tuckfold::cuda
