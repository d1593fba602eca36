// A barrier between warps of a block on which only the readers wait: a Signal completes a phase
// when the requested number of threads have arrived, and is then ready for the next phase.
//
//   __shared__ Signal ready;
//   if (threadIdx.x == 0) ready.init(4);
//   __syncthreads();
//   …; ready.arrive();          // by four threads: waiters see what they wrote before
//   ready.wait(times % 2);      // by any thread, for the phase after `times` others
//
// A thread that waits for a phase must do so before the next phase but one completes: only the
// parity of the phase is stored.
#pragma once

#include <cstdint>

#include "base/cuda/kernel.cuh"

namespace tuckfold::cuda {

class Signal {
 public:
#ifdef __CUDACC__
  __device__ void init(int threads) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(address()), "r"(threads) : "memory");
  }
  __device__ void arrive() {
    asm volatile("{ .reg .b64 t; mbarrier.arrive.shared.b64 t, [%0]; }" ::"r"(address())
                 : "memory");
  }
  __device__ void wait(int odd) {
#if __CUDA_ARCH__ >= 900
#define TUCKFOLD_WAIT "mbarrier.try_wait"  // sleeps for a while
#else
#define TUCKFOLD_WAIT "mbarrier.test_wait"
#endif
    int given;
    do {
      asm volatile("{ .reg .pred p; " TUCKFOLD_WAIT
                   ".parity.shared.b64 p, [%1], %2; selp.s32 %0, 1, 0, p; }"
                   : "=r"(given)
                   : "r"(address()), "r"(odd)
                   : "memory");
    } while (given == 0);
#undef TUCKFOLD_WAIT
  }

 private:
  __device__ unsigned address() { return static_cast<unsigned>(__cvta_generic_to_shared(&word_)); }
  std::uint64_t word_;
#else
  void init(int threads) {
    wanted_ = missing_ = threads;
    times_ = 0;
  }
  void arrive() {
    emulate::block().moved();
    if (--missing_ > 0) return;
    missing_ = wanted_;
    ++times_;
  }
  void wait(int odd) {
    emulate::block().wait_until([&] { return times_ % 2 != odd; });
  }

 private:
  int wanted_, missing_, times_;
#endif
};

}  // namespace tuckfold::cuda
