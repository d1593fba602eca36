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
  int number = 0, sms = 0, shared_bytes = 0;
  check(cudaGetDevice(&number), "device");
  check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, number), "device");
  check(cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, number),
        "device");
  return {sms, static_cast<std::size_t>(shared_bytes)};
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

void fill(void* to, int byte, std::size_t bytes, Stream stream) {
  check(cudaMemsetAsync(to, byte, bytes, native(stream)), "fill");
}

}  // namespace tuckfold::cuda
