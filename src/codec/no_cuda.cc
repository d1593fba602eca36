// Stands in for every .cu file where the build has no CUDA: there are no devices, and codec.cc
// turns tensors on them away before a row is asked.
#include "base/cuda/runtime.h"
#include "base/fail.h"
#include "codec/cuda_rows.h"

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
void fill(void*, int, std::size_t, Stream) { left_out(); }

}  // namespace cuda

#define TUCKFOLD_LEFT_OUT(codec)                                                           \
  std::size_t codec::pack_cuda(const Stage&, const ConstTensorView&, std::span<std::byte>, \
                               CudaContext) {                                              \
    left_out();                                                                            \
  }                                                                                        \
  void codec::unpack_cuda(const Stage&, std::span<const std::byte>, const TensorView&,     \
                          CudaContext) {                                                   \
    left_out();                                                                            \
  }
TUCKFOLD_CUDA_ROWS(TUCKFOLD_LEFT_OUT)
#undef TUCKFOLD_LEFT_OUT

void dct_chop::pack_cuda_many(const Stage&, std::span<const ConstTensorView>,
                              std::span<const std::span<std::byte>>, CudaContext) {
  left_out();
}
void dct_chop::unpack_cuda_many(const Stage&, std::span<const std::span<const std::byte>>,
                                std::span<const TensorView>, CudaContext) {
  left_out();
}

std::span<const CudaPair> cuda_pairs() { return {}; }

}  // namespace tuckfold
