// HOST_DEVICE functions compile for the CPU and, under nvcc, for the GPU: the same text gives the
// same bytes on both. A TABLE of constants can be read by both; under nvcc by the GPU alone.
// UNROLL precedes loops over arrays that must stay in a GPU's registers.
#pragma once

#ifdef __CUDACC__
#define TUCKFOLD_HOST_DEVICE __host__ __device__
#define TUCKFOLD_TABLE static __constant__ constexpr
#define TUCKFOLD_UNROLL _Pragma("unroll")
#else
#define TUCKFOLD_HOST_DEVICE
#define TUCKFOLD_TABLE inline constexpr
#define TUCKFOLD_UNROLL
#endif

// Inlined into its caller always, so that it is compiled for the caller's instruction set.
#define TUCKFOLD_INLINE inline __attribute__((always_inline))
// Never inlined, so that code that rarely runs does not enlarge every kernel that may call it.
#define TUCKFOLD_NOINLINE inline __attribute__((noinline))
