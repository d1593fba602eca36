#include "base/cuda/fetch.h"
#include "base/cuda/kernel.cuh"
#include "base/cuda/runtime.h"

namespace tuckfold::cuda {
namespace {

cudaStream_t native(Stream stream) { return static_cast<cudaStream_t>(stream); }

}  // namespace

bool built() noexcept { return true; }

int device_count() noexcept {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();
  return 0;
}

DeviceLimits device() {
  thread_local int known = -1;
  thread_local DeviceLimits limits{};
  int number = 0;
  check(cudaGetDevice(&number), "device");
  if (number == known) return limits;
  const auto attribute = [&](cudaDeviceAttr name) {
    int value = 0;
    check(cudaDeviceGetAttribute(&value, name, number), "device");
    return value;
  };
  limits = {
      .sms = attribute(cudaDevAttrMultiProcessorCount),
      .shared_bytes = static_cast<std::size_t>(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin)),
      .starts_early = attribute(cudaDevAttrComputeCapabilityMajor) >= 9};
  known = number;
  return limits;
}

bool is_capturing(Stream stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(native(stream), &status), "stream");
  return status != cudaStreamCaptureStatusNone;
}

void synchronize(Stream stream) { check(cudaStreamSynchronize(native(stream)), "synchronize"); }

void* allocate(std::size_t bytes, Stream stream) {
  void* pointer = nullptr;
  check(cudaMallocAsync(&pointer, bytes, native(stream)), "memory of the device");
  return pointer;
}

void release(void* pointer, Stream stream) noexcept { cudaFreeAsync(pointer, native(stream)); }

void copy(void* to, const void* from, std::size_t bytes, Stream stream) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, native(stream)), "copy");
}

// Memory that is not pinned takes the driver several times as long.
std::uint64_t fetch(const std::uint64_t* from, Stream stream) {
  struct Pinned {
    std::uint64_t* number = nullptr;
    Pinned() {
      if (cudaHostAlloc(&number, sizeof *number, cudaHostAllocPortable) == cudaSuccess) return;
      cudaGetLastError();
      number = nullptr;
    }
    ~Pinned() {
      if (number != nullptr) cudaFreeHost(number);
    }
  };
  thread_local const Pinned pinned;
  std::uint64_t own = 0;
  std::uint64_t* to = pinned.number != nullptr ? pinned.number : &own;
  copy(to, from, sizeof *to, stream);
  synchronize(stream);
  return *to;
}

void fill(void* to, int byte, std::size_t bytes, Stream stream) {
  check(cudaMemsetAsync(to, byte, bytes, native(stream)), "fill");
}

}  // namespace tuckfold::cuda
