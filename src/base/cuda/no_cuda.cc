// Replaces runtime.cu where the build has no CUDA: there are no devices. Rows of codecs then have
// no kernels, and plan.cc refuses tensors on devices.
#include "base/cuda/fetch.h"
#include "base/cuda/runtime.h"
#include "base/fail.h"

namespace tuckfold {
namespace {

[[noreturn]] void left_out() { fail(Errc::Internal, "[cuda] was left out of this build"); }

}  // namespace

namespace cuda {

bool built() noexcept { return false; }
int device_count() noexcept { return 0; }
DeviceLimits device() { left_out(); }
bool is_capturing(Stream) { left_out(); }
void synchronize(Stream) { left_out(); }
void* allocate(std::size_t, Stream) { left_out(); }
void release(void*, Stream) noexcept {}
void copy(void*, const void*, std::size_t, Stream) { left_out(); }
std::uint64_t fetch(const std::uint64_t*, Stream) { left_out(); }
void fill(void*, int, std::size_t, Stream) { left_out(); }

}  // namespace cuda

}  // namespace tuckfold
