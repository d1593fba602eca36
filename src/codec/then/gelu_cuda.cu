// unpack_gelu on CUDA. A group of block_quant has few different values, so a warp computes the output of each
// once, and lanes look theirs up in each other's registers: the kernel is as fast as unpacking alone.
#include "codec/block_quant/block_quant_dense_cuda.cuh"
#include "codec/block_quant/block_quant_then_cuda.cuh"
#include "codec/then/gelu.h"
#include "codec/then/gelu_block.h"

namespace tuckfold::then {
namespace {

using block_quant::DenseTensor;
using block_quant::Settings;
using cuda::View;

constexpr int kThreads = 256;

template <class T>
__device__ TUCKFOLD_INLINE T gelu_of(T x) {
  return cuda::from_float<T>(gelu(cuda::as_float(x)));
}

// ---- both at once

template <class T>
__device__ TUCKFOLD_INLINE std::uint32_t bits_of_element(T x) {
  if constexpr (sizeof(T) == 2) {
    return x.bits;
  } else {
    return __float_as_uint(x);
  }
}

// As unpack_tiles_kernel. All values of a step are of one group.
template <class T, int kBits>
__global__ void __launch_bounds__(block_quant::kUnpackThreads)
    unpack_gelu_kernel(const __grid_constant__ DenseTensor tensor,
                       const __grid_constant__ Settings s) {
  using Codes = block_quant::TileCodes<T, kBits>;
  constexpr std::uint32_t kCodes = 1u << kBits;
  static_assert(kCodes <= cuda::kWarp);
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp;
  const std::int64_t tile =
      static_cast<std::int64_t>(blockIdx.x) * block_quant::kUnpackWarps + threadIdx.x / cuda::kWarp;
  const std::int64_t begin = tile * block_quant::kTile;
  T* to = reinterpret_cast<T*>(tensor.data);
  cuda::wait_for_previous_kernel();
  if (begin + block_quant::kTile > tensor.elems) {
    for (std::int64_t i = begin + lane; i < tensor.elems; i += cuda::kWarp) {
      to[i] = gelu_of(cuda::from_float<T>(block_quant::unpacked_value(tensor, s, i)));
    }
    return;
  }
  block_quant::prefetch_tile<kBits>(tensor, s.group_shift, tile + block_quant::kTilesAhead, lane);
  Codes codes;
  codes.load(tensor, s, tile, lane);
  cuda::allow_next_kernel();
#pragma unroll
  for (int j = 0; j < Codes::kTileSteps; ++j) {
    const float x = block_quant::value_of(static_cast<int>(lane % kCodes),
                                          block_quant::group_at(codes.headers[j]));
    const std::uint32_t mine = bits_of_element(gelu_of(cuda::from_float<T>(x)));
    std::uint32_t found[Codes::kV];
#pragma unroll
    for (int i = 0; i < Codes::kV; ++i) {
      const auto code = static_cast<std::uint32_t>(codes.codes[j] >> i * kBits) & (kCodes - 1u);
      found[i] = __shfl_sync(cuda::kAllLanes, mine, static_cast<int>(code));
    }
    uint4 vector;
    if constexpr (sizeof(T) == 4) {
      vector = make_uint4(found[0], found[1], found[2], found[3]);
    } else {
      vector = make_uint4(found[0] | found[1] << 16, found[2] | found[3] << 16,
                          found[4] | found[5] << 16, found[6] | found[7] << 16);
    }
    cuda::store_away(reinterpret_cast<uint4*>(to + begin + j * Codes::kStep) + lane, vector);
  }
}

template <class T, int kBits>
bool launch(const DenseTensor& tensor, const Settings& s, void* stream) {
  using Codes = block_quant::TileCodes<T, kBits>;
  if (s.group_shift < 0 || s.group < Codes::kStep) return false;
  const std::int64_t tiles = cuda::blocks_for(tensor.elems, block_quant::kTile);
  const cuda::Grid grid{.blocks = cuda::blocks_for(tiles, block_quant::kUnpackWarps),
                        .threads = block_quant::kUnpackThreads,
                        .early = true};
  cuda::launch(unpack_gelu_kernel<T, kBits>, grid, stream, tensor, s);
  return true;
}

bool unpack(const Stage& stage, std::span<const std::byte> packed, const TensorView& out,
            void* stream) {
  const block_quant::Params p = block_quant::Params::of(stage);
  const View view = View::of(out);
  const DenseTensor tensor = block_quant::dense_of(p, view, packed.data());
  if (!view.dense(16) || !block_quant::is_aligned(tensor.headers, 4)) return false;
  const Settings s = block_quant::settings_of(p);
  const auto run = [&]<class T>(T) {
    switch (p.bits) {
      case 2: return launch<T, 2>(tensor, s, stream);
      case 4: return launch<T, 4>(tensor, s, stream);
      default: return false;
    }
  };
  switch (view.dtype) {
    case DType::F16: return run(F16{});
    case DType::BF16: return run(BF16{});
    default: return run(float{});
  }
}

// ---- after others

template <class T>
__global__ void apply_kernel(const __grid_constant__ View view) {
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (index >= view.elems) return;
  T& value = reinterpret_cast<T*>(view.data)[view.offset(index)];
  value = gelu_of(value);
}

void apply(const TensorView& out, void* stream) {
  const View view = View::of(out);
  const auto run = [&]<class T>(T) {
    cuda::launch(apply_kernel<T>,
                 {.blocks = cuda::blocks_for(view.elems, kThreads), .threads = kThreads}, stream,
                 view);
  };
  switch (view.dtype) {
    case DType::F16: return run(F16{});
    case DType::BF16: return run(BF16{});
    default: return run(float{});
  }
}

}  // namespace

const CudaGelu kCudaGelu = {.unpack = unpack, .apply = apply};

}  // namespace tuckfold::then
