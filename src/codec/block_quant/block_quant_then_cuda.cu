// block_quant's unpack fused with what follows, for dense tensors and 2, 4 and 8 bits. A warp
// writes a tile of 1024 values, as in unpack_tiles_kernel.
#include <bit>

#include "codec/block_quant/block_quant.h"
#include "codec/block_quant/block_quant_unpack_cuda.cuh"
#include "codec/then/then.h"
#include "codec/then/then_cuda.cuh"

namespace tuckfold::block_quant {
namespace {

using cuda::View;

template <class T>
__device__ TUCKFOLD_INLINE void unpack_rest_then(const DenseTensor& tensor, const Settings& s,
                                                 const then::CudaArgs& after, std::int64_t begin) {
  T* to = reinterpret_cast<T*>(tensor.data);
  for (std::int64_t i = begin + threadIdx.x % kWarp; i < tensor.elems; i += kWarp) {
    to[i] = then::element_at(after, cuda::from_float<T>(unpacked_value(tensor, s, i)), i, i);
  }
}

template <class T, int kBits, bool kAdd>
__global__ void __launch_bounds__(kUnpackThreads)
    unpack_then_kernel(const __grid_constant__ DenseTensor tensor,
                       const __grid_constant__ Settings s,
                       const __grid_constant__ then::CudaArgs after) {
  constexpr int kV = kVector<T>, kStep = kWarp * kV, kTileSteps = kTile / kStep;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t tile =
      static_cast<std::int64_t>(blockIdx.x) * kUnpackWarps + threadIdx.x / kWarp;
  const std::int64_t begin = tile * kTile;
  cuda::wait_for_previous_kernel();
  if (begin + kTile > tensor.elems) return unpack_rest_then<T>(tensor, s, after, begin);
  prefetch_tile<kBits>(tensor, s.group_shift, tile + kTilesAhead, lane);
  // Separate loops, so that no branch is between two loads.
  std::uint64_t codes[kTileSteps];
  const std::byte* tile_codes = tensor.codes + tile * (kTile / 8 * kBits);
#pragma unroll
  for (int j = 0; j < kTileSteps; ++j) codes[j] = load_codes<kBits, kV>(tile_codes, lane, j);
  std::uint32_t headers[kTileSteps];
#pragma unroll
  for (int j = 0; j < kTileSteps; ++j) {
    const std::int64_t index = begin + j * kStep + lane * kV;
    headers[j] = __ldg(reinterpret_cast<const unsigned*>(tensor.headers) +
                       (s.group_shift >= 0 ? index >> s.group_shift : index / s.group));
  }
  uint4 added[kTileSteps];
#pragma unroll
  for (int j = 0; kAdd && j < kTileSteps; ++j) {
    added[j] = then::added_at<T>(after, begin + j * kStep + lane * kV);
  }
  cuda::allow_next_kernel();
#pragma unroll
  for (int j = 0; j < kTileSteps; ++j) {
    const std::int64_t index = begin + j * kStep + lane * kV;
    const uint4 x = step_values<T, kBits>(codes[j], headers[j]);
    cuda::store_away(reinterpret_cast<uint4*>(reinterpret_cast<T*>(tensor.data) + index),
                     then::vector_after<T, kAdd>(after, x, index, added[j]));
  }
}

bool unpack_then_cuda(const Stage& stage, std::span<const std::byte> packed, const TensorView& out,
                      const Then& then, void* stream) {
  const Params p = Params::of(stage);
  const View view = View::of(out);
  auto* codes = const_cast<std::byte*>(packed.data());
  const DenseTensor tensor{.data = view.data,
                           .codes = codes,
                           .headers = codes + sizes_of(p, view.elems).codes_bytes,
                           .elems = view.elems};
  const bool headers_aligned = reinterpret_cast<std::uintptr_t>(tensor.headers) % 4 == 0;
  const bool add_aligned = reinterpret_cast<std::uintptr_t>(then.add) % 16 == 0;
  if (!view.dense(16) || !headers_aligned || !add_aligned ||
      (p.bits != 2 && p.bits != 4 && p.bits != 8)) {
    return false;
  }
  const auto group = static_cast<std::uint64_t>(p.group);
  const Settings s{.group = p.group,
                   .bits = p.bits,
                   .group_shift = std::has_single_bit(group) ? std::countr_zero(group) : -1,
                   .exact_zero = p.exact_zero};
  const auto run = [&]<class T>(T) {
    const std::int64_t tiles = cuda::blocks_for(view.elems, kTile);
    const cuda::Grid grid{
        .blocks = cuda::blocks_for(tiles, kUnpackWarps), .threads = kUnpackThreads, .early = true};
    const auto launch = [&](auto kernel) {
      cuda::launch(kernel, grid, stream, tensor, s, then::CudaArgs(then, view.elems, kVector<T>));
    };
    const bool adds = then.add != nullptr;
    switch (p.bits) {
      case 2:
        return launch(adds ? unpack_then_kernel<T, 2, true> : unpack_then_kernel<T, 2, false>);
      case 4:
        return launch(adds ? unpack_then_kernel<T, 4, true> : unpack_then_kernel<T, 4, false>);
      default:
        return launch(adds ? unpack_then_kernel<T, 8, true> : unpack_then_kernel<T, 8, false>);
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
