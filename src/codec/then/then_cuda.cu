// unpack_then on CUDA where a codec has no kernel for both: a pass over the unpacked tensor.
#include "codec/then/then.h"
#include "codec/then/then_cuda.cuh"

namespace tuckfold::then {
namespace {

using cuda::View;

constexpr int kThreads = 256;

template <class T>
__global__ void dense_kernel(const __grid_constant__ View view,
                             const __grid_constant__ CudaArgs args) {
  constexpr int kV = cuda::kVector<T>;
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const std::int64_t index = thread * kV;
  if (index + kV <= view.elems) {
    auto* vector = reinterpret_cast<uint4*>(view.data) + thread;
    *vector = args.add == nullptr
                  ? vector_after<T, false>(args, *vector, index, {})
                  : vector_after<T, true>(args, *vector, index, added_at<T>(args, index));
    return;
  }
  T* values = reinterpret_cast<T*>(view.data);
  for (std::int64_t i = index; i < view.elems; ++i) values[i] = element_at(args, values[i], i, i);
}

template <class T>
__global__ void any_kernel(const __grid_constant__ View view,
                           const __grid_constant__ CudaArgs args) {
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (index >= view.elems) return;
  const std::int64_t offset = view.offset(index);
  T& value = reinterpret_cast<T*>(view.data)[offset];
  value = element_at(args, value, index, offset);
}

void apply(const TensorView& out, const Then& then, void* stream) {
  const View view = View::of(out);
  const auto run = [&]<class T>(T) {
    const CudaArgs args(then, view.elems, cuda::kVector<T>);
    if (view.dense(16) && reinterpret_cast<std::uintptr_t>(then.add) % 16 == 0) {
      const std::int64_t vectors = cuda::blocks_for(view.elems, cuda::kVector<T>);
      cuda::launch(dense_kernel<T>,
                   {.blocks = cuda::blocks_for(vectors, kThreads), .threads = kThreads}, stream,
                   view, args);
    } else {
      cuda::launch(any_kernel<T>,
                   {.blocks = cuda::blocks_for(view.elems, kThreads), .threads = kThreads}, stream,
                   view, args);
    }
  };
  switch (view.dtype) {
    case DType::F16: return run(F16{});
    case DType::BF16: return run(BF16{});
    default: return run(float{});
  }
}

}  // namespace

const CudaThen kCuda = {.apply = apply};

}  // namespace tuckfold::then
