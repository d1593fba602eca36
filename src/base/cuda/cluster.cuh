// Clusters: blocks of one launch, side by side on neighbouring processors, that write to each other's
// shared memory. They follow each other in the grid: the first of a cluster has a number that is a multiple of
// their count.
//
//   launch_clusters(kernel<8>, 8, {.blocks = 80, .threads = 128, .shared_bytes = …}, stream, args);
//
//   // Block `rank` gets values, and knows when all of them are there:
//   if (threadIdx.x == 0) ready.arrive_expecting(bytes);
//   Remote(place, ready, rank).store(0, value);
//   ready.wait(times % 2);
//
// Nothing here waits for memory of the device, as releases and acquires of a cluster's scope do. A block must
// not end while others write to it: cluster_barrier() at the end.
#pragma once

#include "base/cuda/kernel.cuh"

namespace tuckfold::cuda {

#ifdef __CUDACC__

// The current device, and whether it has clusters.
struct ClusterDevice {
  int number = 0, has = 0;
  ClusterDevice() {
    check(cudaGetDevice(&number), "device");
    check(cudaDeviceGetAttribute(&has, cudaDevAttrClusterLaunch, number), "device");
  }
};

struct ClusterLaunch {
  cudaLaunchConfig_t config{};
  cudaLaunchAttribute attributes[2]{};

  template <class... Params>
  ClusterLaunch(void (*kernel)(Params...), int ranks, const Grid& grid, void* stream) {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(grid.shared_bytes)),
          "shared memory");
    config.gridDim = dim3(static_cast<unsigned>(grid.blocks));
    config.blockDim = dim3(static_cast<unsigned>(grid.threads));
    config.dynamicSmemBytes = grid.shared_bytes;
    config.stream = static_cast<cudaStream_t>(stream);
    attributes[0].id = cudaLaunchAttributeClusterDimension;
    attributes[0].val.clusterDim.x = static_cast<unsigned>(ranks);
    attributes[0].val.clusterDim.y = attributes[0].val.clusterDim.z = 1;
    attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[1].val.programmaticStreamSerializationAllowed = 1;
    config.attrs = attributes;
    config.numAttrs = grid.early ? 2 : 1;
  }
  ClusterLaunch(const ClusterLaunch&) = delete;
  ClusterLaunch& operator=(const ClusterLaunch&) = delete;
};

template <class... Params, class... Args>
void launch_clusters(void (*kernel)(Params...), int ranks, const Grid& grid, void* stream,
                     const Args&... args) {
  const ClusterLaunch given(kernel, ranks, grid, stream);
  check(cudaLaunchKernelEx(&given.config, kernel, args...), "launch");
}

// How many clusters of such blocks run at the same time.
template <class... Params>
int clusters_at_once(void (*kernel)(Params...), int ranks, const Grid& grid) {
  const ClusterLaunch given(kernel, ranks, grid, nullptr);
  int count = 0;
  check(cudaOccupancyMaxActiveClusters(&count, kernel, &given.config), "clusters");
  return count;
}

#else

struct ClusterDevice {
  int number = 0, has = 1;
};
template <class... Params, class... Args>
void launch_clusters(void (*kernel)(Params...), int ranks, const Grid& grid, void*,
                     const Args&... args) {
  emulate::run(
      grid.blocks, grid.threads, grid.shared_bytes, [&] { kernel(args...); }, ranks);
}
template <class... Params>
int clusters_at_once(void (*)(Params...), int, const Grid&) {
  return 2;
}

#endif

// Of all threads of the cluster; they see each other's memory as after __syncthreads().
__device__ inline void cluster_barrier() {
#ifndef __CUDACC__
  emulate::block().wait_for_cluster();
#elif __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

// A Signal, see signal.cuh, that also counts bytes that blocks of the cluster store. A phase is complete when
// all have arrived and all bytes that were expected are there. What was stored that way is seen by those who
// wait for the phase; other memory of other blocks is not.
class ClusterSignal {
 public:
#ifdef __CUDACC__
  // Before a cluster_barrier().
  __device__ void init(int threads) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(address()), "r"(threads) : "memory");
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
  }
  // Arrives, and adds to the bytes of this phase. They may already have come.
  __device__ void arrive_expecting(int bytes) {
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address()),
                 "r"(bytes)
                 : "memory");
#endif
  }
  // Arrives on this signal of block `rank`: what this thread has read may be overwritten.
  __device__ void arrive_in(int rank) {
#if __CUDA_ARCH__ >= 900
    asm volatile(
        "{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1; "
        "mbarrier.arrive.shared::cluster.b64 _, [there]; }" ::"r"(address()),
        "r"(rank)
        : "memory");
#endif
  }
  __device__ void wait(int odd) {
#if __CUDA_ARCH__ >= 900
    int given;
    do {
      asm volatile(
          "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; "
          "selp.s32 %0, 1, 0, p; }"
          : "=r"(given)
          : "r"(address()), "r"(odd)
          : "memory");
    } while (given == 0);
#endif
  }
  __device__ unsigned address() const {
    return static_cast<unsigned>(__cvta_generic_to_shared(&word_));
  }

 private:
  std::uint64_t word_;
#else
  void init(int threads) {
    wanted_ = missing_ = threads;
    times_ = bytes_ = 0;
  }
  void arrive_expecting(int bytes) {
    bytes_ += bytes;
    count(1, 0);
  }
  void arrive_in(int rank) { in(rank).count(1, 0); }
  void wait(int odd) {
    emulate::block().wait_until([&] { return times_ % 2 != odd; });
  }
  void count(int arrived, int bytes) {
    emulate::block().moved();
    missing_ -= arrived;
    bytes_ -= bytes;
    if (missing_ < 0) emulate::give_up("too many threads arrive");
    if (missing_ > 0 || bytes_ != 0) return;
    missing_ = wanted_;
    ++times_;
  }
  ClusterSignal& in(int rank) {
    auto& block = emulate::block();
    auto* here = reinterpret_cast<unsigned char*>(this);
    return *reinterpret_cast<ClusterSignal*>(block.shared(rank) + (here - block.shared()));
  }

 private:
  int wanted_, missing_, bytes_, times_;
#endif
};

// Copies `bytes`, a multiple of 16, from this block's shared memory to that of block `rank`, where `to` and the
// signal are as here; the signal counts them. One copy costs the signal what sixteen stored bytes cost it, so
// copies should be long. Threads that wrote the bytes call before_send() first, and are waited for. Nothing
// says when the bytes may be overwritten, but what the receiver says.
__device__ TUCKFOLD_INLINE void before_send() {
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
__device__ TUCKFOLD_INLINE void send(void* to, const void* from, int bytes, ClusterSignal& signal,
                                     int rank) {
#ifndef __CUDACC__
  auto& block = emulate::block();
  auto* here = static_cast<unsigned char*>(to);
  std::memcpy(block.shared(rank) + (here - block.shared()), from, static_cast<std::size_t>(bytes));
  signal.in(rank).count(0, bytes);
#elif __CUDA_ARCH__ >= 900
  asm volatile(
      "{ .reg .b32 there, heard; mapa.shared::cluster.u32 there, %0, %4; "
      "mapa.shared::cluster.u32 heard, %3, %4; "
      "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [there], [%1], %2, "
      "[heard]; }" ::"r"(static_cast<unsigned>(__cvta_generic_to_shared(to))),
      "r"(static_cast<unsigned>(__cvta_generic_to_shared(from))), "r"(bytes), "r"(signal.address()),
      "r"(rank)
      : "memory");
#endif
}

// A place of this block's shared memory, and a signal, as those of block `rank`.
class Remote {
 public:
#ifdef __CUDACC__
  __device__ Remote(const float4* shared, const ClusterSignal& signal, int rank) {
#if __CUDA_ARCH__ >= 900
    const auto here = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at_) : "r"(here), "r"(rank));
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(signal_) : "r"(signal.address()), "r"(rank));
#endif
  }
  // Stores to the place with this number from there on.
  __device__ TUCKFOLD_INLINE void store(int number, float4 value) const {
#if __CUDA_ARCH__ >= 900
    asm volatile(
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 "
        "[%0], {%1, %2, %3, %4}, [%5];" ::"r"(at_ + 16 * number),
        "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w), "r"(signal_)
        : "memory");
#endif
  }

 private:
  unsigned at_ = 0, signal_ = 0;
#else
  Remote(float4* shared, ClusterSignal& signal, int rank) : signal_(&signal.in(rank)) {
    auto& block = emulate::block();
    auto* here = reinterpret_cast<unsigned char*>(shared);
    at_ = reinterpret_cast<float4*>(block.shared(rank) + (here - block.shared()));
  }
  void store(int number, float4 value) const {
    at_[number] = value;
    signal_->count(0, static_cast<int>(sizeof value));
  }

 private:
  float4* at_;
  ClusterSignal* signal_;
#endif
};

}  // namespace tuckfold::cuda
