// block_quant's unpack fused with what follows, for dense tensors and 2, 4 and 8 bits. A warp
// writes a tile of 1024 values, as in unpack_tiles_kernel; where channels are next to each other, a
// thread keeps to its channels, with their numbers in registers.
#include "codec/block_quant/block_quant_dense_cuda.cuh"
#include "codec/block_quant/block_quant_then_cuda.cuh"
#include "codec/then/then.h"

namespace tuckfold::block_quant {
namespace {

using cuda::View;

// Whether a thread of unpack_channels_kernel always has the same channels.
template <class T>
bool keeps_channels(const then::CudaArgs& after, const Settings& s, std::int64_t elems) {
  if (s.group_shift < 0 || elems % kVector<T> != 0) return false;
  if (after.channels == 1) return true;
  return after.way == then::Channels::kEach && after.channels / kVector<T> <= kChannelThreads &&
         kChannelThreads % (after.channels / kVector<T>) == 0;
}

template <class T, int kBits, Adds kAdds>
void launch(const DenseTensor& tensor, const DenseTensor& other, const Settings& s,
            const then::CudaArgs& after, void* stream) {
  if (keeps_channels<T>(after, s, tensor.elems)) {
    const cuda::Grid grid{.blocks = cuda::blocks_for(tensor.elems, kChannelValues<T>),
                          .threads = kChannelThreads,
                          .early = true};
    return cuda::launch(unpack_channels_kernel<T, kBits, kAdds>, grid, stream, tensor, other, s,
                        after);
  }
  const std::int64_t tiles = cuda::blocks_for(tensor.elems, kTile);
  const cuda::Grid grid{
      .blocks = cuda::blocks_for(tiles, kUnpackWarps), .threads = kUnpackThreads, .early = true};
  cuda::launch(unpack_then_kernel<T, kBits, kAdds>, grid, stream, tensor, other, s, after);
}

bool unpack_then_cuda(const Stage& stage, std::span<const std::byte> packed, const TensorView& out,
                      const Then& then, void* stream) {
  const Params p = Params::of(stage);
  const View view = View::of(out);
  const DenseTensor tensor = dense_of(p, view, packed.data());
  const DenseTensor other = dense_of(p, view, then.packed_add);
  if (!view.dense(16) || !is_aligned(tensor.headers, 4) || !is_aligned(then.add, 16) ||
      !is_aligned(other.codes, 16) || (p.bits != 2 && p.bits != 4 && p.bits != 8)) {
    return false;
  }
  const Settings s = settings_of(p);
  const auto run = [&]<class T>(T) {
    const then::CudaArgs after(then, view.elems, kVector<T>);
    const auto with_bits = [&]<int kBits>() {
      if (then.packed_add != nullptr && then.add_scale != nullptr) {
        launch<T, kBits, Adds::kScaled>(tensor, other, s, after, stream);
      } else if (then.packed_add != nullptr) {
        launch<T, kBits, Adds::kPacked>(tensor, other, s, after, stream);
      } else if (then.add != nullptr) {
        launch<T, kBits, Adds::kTensor>(tensor, other, s, after, stream);
      } else {
        launch<T, kBits, Adds::kNothing>(tensor, other, s, after, stream);
      }
    };
    switch (p.bits) {
      case 2: return with_bits.template operator()<2>();
      case 4: return with_bits.template operator()<4>();
      default: return with_bits.template operator()<8>();
    }
  };
  switch (view.dtype) {
    case DType::F16: run(F16{}); break;
    case DType::BF16: run(BF16{}); break;
    default: run(float{}); break;
  }
  return true;
}

}  // namespace

const CudaUnpackThen kCudaUnpackThen = {.unpack = unpack_then_cuda};

}  // namespace tuckfold::block_quant
