// Copies of any multiple of 16 bytes between global and shared memory by the copy engine, of which one
// thread asks for all. Addresses are multiples of 16. From compute capability 9.0 on: others do without,
// and so does the emulator.
//
//   __shared__ BulkSignal signal;                  // for one use
//   if (threadIdx.x == 0) signal.init();
//   __syncthreads();
//   if (threadIdx.x == 0) signal.expect(bytes), signal.fetch(shared, global, bytes);
//   signal.wait();
//
//   before_bulk_store();                           // by all who wrote
//   __syncthreads();
//   if (threadIdx.x == 0) store_bulk(global, shared, bytes), wait_for_bulk_stores();
#pragma once

#include "base/cuda/kernel.cuh"

namespace tuckfold::cuda {

__device__ TUCKFOLD_INLINE void before_bulk_store() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

__device__ TUCKFOLD_INLINE unsigned shared_address(const void* shared) {
  return static_cast<unsigned>(__cvta_generic_to_shared(shared));
}

struct BulkSignal {
  std::uint64_t word;

  __device__ void init() {
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(shared_address(&word)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __device__ void expect(int bytes) {
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&word)),
        "r"(bytes)
        : "memory");
  }
  __device__ void fetch(void* shared, const void* global, int bytes) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(shared_address(shared)),
        "l"(global), "r"(bytes), "r"(shared_address(&word))
        : "memory");
  }
  __device__ void wait() {
    int given;
    do {
      asm volatile(
          "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.s32 %0, 1, 0, "
          "p; }"
          : "=r"(given)
          : "r"(shared_address(&word))
          : "memory");
    } while (given == 0);
  }
};

__device__ TUCKFOLD_INLINE void prefetch_bulk(const void* global, int bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(global), "r"(bytes) : "memory");
}
__device__ TUCKFOLD_INLINE void store_bulk(void* global, const void* shared, int bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global),
               "r"(shared_address(shared)), "r"(bytes)
               : "memory");
}
// Until the calling thread's bytes have been read.
__device__ TUCKFOLD_INLINE void wait_for_bulk_stores() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

#endif

}  // namespace tuckfold::cuda
