// What every kernel includes: CUDA's names, from nvcc or from the emulator, and launch().
//
//   template <int kKeep>
//   __global__ void pack_kernel(const __grid_constant__ Args args) { … }
//
//   launch(pack_kernel<4>, {.blocks = 100, .threads = 128}, stream, args);
//
// Kernels keep to what emulate.h has, so that they run, and are tested, where there is no GPU. All
// lanes of a warp take part in its shuffles and votes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/cuda/runtime.h"
#include "base/device.h"

#ifdef __CUDACC__
#include <cuda_runtime.h>
#else
#include "base/cuda/emulate.h"
#endif

namespace tuckfold::cuda {

inline constexpr unsigned kAllLanes = 0xffffffffu;
inline constexpr int kWarp = 32;

struct Grid {
  std::int64_t blocks;
  int threads;
  std::size_t shared_bytes = 0;  // of shared_memory()
  bool early = false;  // whether the kernel awaits its turn by itself: wait_for_previous_kernel()
};

#ifdef __CUDACC__

// Throws the error of a runtime call.
inline void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // or the next call would report it again
  const bool elsewhere = status == cudaErrorNoKernelImageForDevice || status == cudaErrorNoDevice ||
                         status == cudaErrorInsufficientDriver;
  raise(elsewhere                             ? Errc::Unsupported
        : status == cudaErrorMemoryAllocation ? Errc::Io
                                              : Errc::Internal,
        what, cudaGetErrorString(status));
}

template <class... Params, class... Args>
void launch(void (*kernel)(Params...), const Grid& grid, void* stream, const Args&... args) {
  if (grid.shared_bytes > 0) {  // with what the kernel has by itself it may pass the usual 48 KB
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(grid.shared_bytes)),
          "shared memory");
  }
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(grid.blocks));
  config.blockDim = dim3(static_cast<unsigned>(grid.threads));
  config.dynamicSmemBytes = grid.shared_bytes;
  config.stream = static_cast<cudaStream_t>(stream);
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &early;
  config.numAttrs = grid.early && device().starts_early ? 1 : 0;
  check(cudaLaunchKernelEx(&config, kernel, args...), "launch");
}

// The block's Grid::shared_bytes, aligned to 128 bytes.
__device__ inline unsigned char* shared_memory() {
  extern __shared__ __align__(128) unsigned char bytes[];
  return bytes;
}

#else

template <class... Params, class... Args>
void launch(void (*kernel)(Params...), const Grid& grid, void*, const Args&... args) {
  emulate::run(grid.blocks, grid.threads, grid.shared_bytes, [&] { kernel(args...); });
}
inline unsigned char* shared_memory() { return emulate::shared_memory(); }

#endif

// A kernel launched `early` may start before the previous kernel of the stream has ended, which
// hides its launch. Every thread must call wait_for_previous_kernel() before it touches memory that
// others write; it calls allow_next_kernel() when the next kernel may start beside it.
__device__ TUCKFOLD_INLINE void wait_for_previous_kernel() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ TUCKFOLD_INLINE void allow_next_kernel() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// Stores sixteen bytes that will not be read again soon. Stores that bypass the first-level cache
// are a few per cent faster, above all when mixed with reads.
template <class Vector>
__device__ inline void store_away(Vector* to, Vector value) {
  static_assert(sizeof(Vector) == 16);
#ifdef __CUDA_ARCH__
  const uint4 words = *reinterpret_cast<const uint4*>(&value);
  asm volatile("st.global.L1::no_allocate.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(words.x),
               "r"(words.y), "r"(words.z), "r"(words.w)
               : "memory");
#else
  *to = value;
#endif
}

inline constexpr int kLine = 128;  // bytes that prefetch() brings

// Prefetches a line, which must exist, into the second-level cache without waiting. A kernel may do
// so before wait_for_previous_kernel(): what others still write to the line goes to that cache,
// too.
__device__ TUCKFOLD_INLINE void prefetch(const void* from) {
#ifdef __CUDA_ARCH__
  asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
#else
  static_cast<void>(*static_cast<const volatile char*>(from));
#endif
}

// The number of blocks for `work` threads.
inline std::int64_t blocks_for(std::int64_t work, std::int64_t each) {
  return (work + each - 1) / each;
}

}  // namespace tuckfold::cuda
