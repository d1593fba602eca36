// raw on CUDA: a copy of contiguous elements, else a gather.
#include "base/cuda/runtime.h"
#include "base/cuda/view.cuh"
#include "codec/exact/raw.h"

namespace tuckfold::raw {
namespace {

using cuda::View;

constexpr int kThreads = 256;

template <class Word, bool kPack>
__global__ void copy_kernel(const __grid_constant__ View view, Word* packed) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= view.elems) return;
  Word& element = reinterpret_cast<Word*>(view.data)[view.offset(i)];
  if constexpr (kPack) {
    packed[i] = element;
  } else {
    element = packed[i];
  }
}

template <bool kPack>
void copy_all(const View& view, std::byte* packed, void* stream) {
  if (view.elems == 0) return;
  const std::size_t bytes = static_cast<std::size_t>(view.elems) * size_bytes(view.dtype);
  if (view.dense()) {
    return kPack ? cuda::copy(packed, view.data, bytes, stream)
                 : cuda::copy(view.data, packed, bytes, stream);
  }
  with_word(view.dtype, [&](auto word) {
    using Word = decltype(word);
    cuda::launch(copy_kernel<Word, kPack>,
                 {.blocks = cuda::blocks_for(view.elems, kThreads), .threads = kThreads}, stream,
                 view, reinterpret_cast<Word*>(packed));
  });
}

}  // namespace

std::size_t pack_cuda(const Stage&, const ConstTensorView& in, std::span<std::byte> out,
                      CudaContext run) {
  copy_all<true>(View::of(in), out.data(), run.stream);
  return out.size();
}

void unpack_cuda(const Stage&, std::span<const std::byte> packed, const TensorView& out,
                 CudaContext run) {
  copy_all<false>(View::of(out), const_cast<std::byte*>(packed.data()), run.stream);
}

const CudaCodec kCuda = {.pack = pack_cuda, .unpack = unpack_cuda, .every_dtype = true};

}  // namespace tuckfold::raw
