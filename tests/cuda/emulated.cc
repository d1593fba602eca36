// A device whose memory is the host's, for kernels that run on the emulator.
#include <cstring>
#include <new>

#include "base/cuda/fetch.h"
#include "base/cuda/runtime.h"

namespace tuckfold::cuda {

bool built() noexcept { return true; }
int device_count() noexcept { return 1; }
DeviceLimits device() { return {.sms = 4, .shared_bytes = 227 << 10, .starts_early = false}; }
bool is_capturing(Stream) { return false; }
void synchronize(Stream) {}
void* allocate(std::size_t bytes, Stream) { return ::operator new (bytes, std::align_val_t{256}); }
void release(void* pointer, Stream) noexcept { ::operator delete (pointer, std::align_val_t{256}); }
void copy(void* to, const void* from, std::size_t bytes, Stream) { std::memcpy(to, from, bytes); }
std::uint64_t fetch(const std::uint64_t* from, Stream) { return *from; }
void fill(void* to, int byte, std::size_t bytes, Stream) { std::memset(to, byte, bytes); }

}  // namespace tuckfold::cuda
