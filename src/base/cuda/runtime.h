// The functions of the CUDA runtime that the library uses. Without CUDA, no_cuda.cc replaces
// runtime.cu: then there are no devices, and the other functions throw Unsupported.
#pragma once

#include <cstddef>

#include "tuckfold/error.h"

namespace tuckfold::cuda {

using Stream = void*;  // a cudaStream_t; null is the default one

// Whether this build has kernels.
bool built() noexcept;
// Devices that they can run on; 0 where there is no driver.
int device_count() noexcept;

// What launches need to know of the current device.
struct DeviceLimits {
  int sms;
  std::size_t shared_bytes;  // of one block at most
  bool starts_early;         // whether a kernel may start before the one in front of it has ended
};
DeviceLimits device();

// Whether the stream records a graph, so that nothing can be waited for.
bool is_capturing(Stream stream);
void synchronize(Stream stream);
// In the order of the stream. `copy` takes memory of the device and of the host, both ways; from
// and to pageable memory of the host it may wait.
void* allocate(std::size_t bytes, Stream stream);
void release(void* pointer, Stream stream) noexcept;
void copy(void* to, const void* from, std::size_t bytes, Stream stream);
void fill(void* to, int byte, std::size_t bytes, Stream stream);

// For .cu files, which leave fmt to others: nvcc does not compile its checks.
[[noreturn]] void raise(Errc code, const char* what, const char* text);

// Memory of the device for as long as this lives, or none for 0 bytes.
class Memory {
 public:
  Memory(std::size_t bytes, Stream stream)
      : pointer_(bytes == 0 ? nullptr : allocate(bytes, stream)), stream_(stream) {}
  ~Memory() {
    if (pointer_ != nullptr) release(pointer_, stream_);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(pointer_); }

 private:
  void* pointer_;
  Stream stream_;
};

}  // namespace tuckfold::cuda
