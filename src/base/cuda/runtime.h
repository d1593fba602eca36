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

// The limits of the current device that launches need.
struct DeviceLimits {
  int sms;
  std::size_t shared_bytes;  // of one block at most
  bool starts_early;         // whether a kernel may start before the one in front of it has ended
};
DeviceLimits device();

// Whether the stream is being captured in a graph, so that nothing can synchronize.
bool is_capturing(Stream stream);
void synchronize(Stream stream);
// These run in stream order. `copy` takes device and host memory in both directions; it may block
// for pageable host memory.
void* allocate(std::size_t bytes, Stream stream);
void release(void* pointer, Stream stream) noexcept;
void copy(void* to, const void* from, std::size_t bytes, Stream stream);
void fill(void* to, int byte, std::size_t bytes, Stream stream);

// For .cu files, which do not include fmt: nvcc cannot compile its checks.
[[noreturn]] void raise(Errc code, const char* what, const char* text);

// Device memory that is freed with the object; none for 0 bytes.
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
