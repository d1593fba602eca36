// unpack_rows on CUDA: a warp unpacks a tile of 1024 values, as in unpack_tiles_kernel, and normalizes them before
// it stores them.
#include "base/cuda/divide.cuh"
#include "codec/block_quant/block_quant_dense_cuda.cuh"
#include "codec/block_quant/block_quant_then_cuda.cuh"
#include "codec/then/normalize_block.h"
#include "codec/then/unpack_rows.h"

namespace tuckfold::then {
namespace {

using block_quant::DenseTensor;
using block_quant::Settings;
using cuda::View;

struct RowArgs {
  const float *mean, *invstd, *weight, *bias;
  std::int64_t length;
  cuda::Divider by_length;
  bool narrow;  // whether indices have 31 bits

  // The row of a value, and its place there.
  __device__ TUCKFOLD_INLINE std::int64_t row_of(std::int64_t index, std::int64_t& place) const {
    if (narrow) {
      const auto i = static_cast<std::uint32_t>(index);
      const std::uint32_t row = by_length.quotient(i);
      place = i - row * static_cast<std::uint32_t>(length);
      return row;
    }
    place = index % length;
    return index / length;
  }
};

// Values of T as values of U; what normalize_rows stores.
template <class T, class U>
__device__ TUCKFOLD_INLINE U as_stored(float y) {
  static_assert(std::is_same_v<T, U> || sizeof(T) == 4);
  if constexpr (sizeof(U) == 2) {
    return U{static_cast<std::uint16_t>(cuda::floats_to_halves<U>(y, y))};
  } else {
    return y;
  }
}

template <class U, int kV>
__device__ TUCKFOLD_INLINE void store(U* to, const float* y) {
  if constexpr (sizeof(U) == 4) {
    cuda::store_away(reinterpret_cast<uint4*>(to),
                     make_uint4(__float_as_uint(y[0]), __float_as_uint(y[1]), __float_as_uint(y[2]),
                                __float_as_uint(y[3])));
  } else if constexpr (kV == 8) {
    cuda::store_away(
        reinterpret_cast<uint4*>(to),
        make_uint4(cuda::floats_to_halves<U>(y[0], y[1]), cuda::floats_to_halves<U>(y[2], y[3]),
                   cuda::floats_to_halves<U>(y[4], y[5]), cuda::floats_to_halves<U>(y[6], y[7])));
  } else {
    *reinterpret_cast<uint2*>(to) =
        make_uint2(cuda::floats_to_halves<U>(y[0], y[1]), cuda::floats_to_halves<U>(y[2], y[3]));
  }
}

template <int kV>
__device__ TUCKFOLD_INLINE void load_numbers(const float* from, float* numbers) {
#pragma unroll
  for (int i = 0; i < kV; i += 4) {
    const uint4 four = __ldg(reinterpret_cast<const uint4*>(from + i));
    cuda::floats_of<float>(four, numbers + i);
  }
}

template <class T, class U, int kBits>
__global__ void __launch_bounds__(block_quant::kUnpackThreads)
    unpack_rows_kernel(const __grid_constant__ DenseTensor tensor,
                       const __grid_constant__ Settings s, const __grid_constant__ RowArgs rows) {
  using Codes = block_quant::TileCodes<T, kBits>;
  constexpr int kV = Codes::kV;
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp;
  const std::int64_t tile =
      static_cast<std::int64_t>(blockIdx.x) * block_quant::kUnpackWarps + threadIdx.x / cuda::kWarp;
  const std::int64_t begin = tile * block_quant::kTile;
  U* to = reinterpret_cast<U*>(tensor.data);
  cuda::wait_for_previous_kernel();
  if (begin + block_quant::kTile > tensor.elems) {
    for (std::int64_t i = begin + lane; i < tensor.elems; i += cuda::kWarp) {
      std::int64_t place = 0;
      const std::int64_t row = rows.row_of(i, place);
      const float x =
          cuda::as_float(cuda::from_float<T>(block_quant::unpacked_value(tensor, s, i)));
      to[i] =
          as_stored<T, U>(normalized_in_row(x, __ldg(rows.mean + row), __ldg(rows.invstd + row),
                                            __ldg(rows.weight + place), __ldg(rows.bias + place)));
    }
    return;
  }
  block_quant::prefetch_tile<kBits>(tensor, s.group_shift, tile + block_quant::kTilesAhead, lane);
  Codes codes;
  codes.load(tensor, s, tile, lane);
  cuda::allow_next_kernel();
#pragma unroll
  for (int j = 0; j < Codes::kTileSteps; ++j) {
    const std::int64_t index = begin + j * Codes::kStep + lane * kV;
    std::int64_t place = 0;
    const std::int64_t row = rows.row_of(index, place);
    const float mean = __ldg(rows.mean + row), invstd = __ldg(rows.invstd + row);
    float y[kV], weight[kV], bias[kV];
    load_numbers<kV>(rows.weight + place, weight);
    load_numbers<kV>(rows.bias + place, bias);
    cuda::floats_of<T>(codes.values(j), y);
#pragma unroll
    for (int i = 0; i < kV; ++i) y[i] = normalized_in_row(y[i], mean, invstd, weight[i], bias[i]);
    store<U, kV>(to + index, y);
  }
}

template <class T, class U>
void launch(int bits, const DenseTensor& tensor, const Settings& s, const RowArgs& rows,
            void* stream) {
  const std::int64_t tiles = cuda::blocks_for(tensor.elems, block_quant::kTile);
  const cuda::Grid grid{.blocks = cuda::blocks_for(tiles, block_quant::kUnpackWarps),
                        .threads = block_quant::kUnpackThreads,
                        .early = true};
  switch (bits) {
    case 2: return cuda::launch(unpack_rows_kernel<T, U, 2>, grid, stream, tensor, s, rows);
    case 4: return cuda::launch(unpack_rows_kernel<T, U, 4>, grid, stream, tensor, s, rows);
    default: return cuda::launch(unpack_rows_kernel<T, U, 8>, grid, stream, tensor, s, rows);
  }
}

bool unpack(const Stage& stage, std::span<const std::byte> packed, DType dtype,
            const TensorView& out, const RowNormalization& how, void* stream) {
  const block_quant::Params p = block_quant::Params::of(stage);
  const View view = View::of(out);
  const DenseTensor tensor = block_quant::dense_of(p, view, packed.data());
  if (!view.dense(16) || how.length % 8 != 0 || !block_quant::is_aligned(tensor.headers, 4) ||
      !block_quant::is_aligned(how.weight, 16) || !block_quant::is_aligned(how.bias, 16) ||
      (p.bits != 2 && p.bits != 4 && p.bits != 8) || (dtype != DType::F32 && dtype != out.dtype)) {
    return false;
  }
  const Settings s = block_quant::settings_of(p);
  RowArgs rows{.mean = how.mean,
               .invstd = how.invstd,
               .weight = how.weight,
               .bias = how.bias,
               .length = how.length,
               .by_length = {},
               .narrow = view.elems >> 31 == 0};
  if (rows.narrow) rows.by_length = cuda::Divider(static_cast<std::uint32_t>(how.length));
  const bool from_f32 = dtype == DType::F32;
  switch (out.dtype) {
    case DType::F16:
      from_f32 ? launch<float, F16>(p.bits, tensor, s, rows, stream)
               : launch<F16, F16>(p.bits, tensor, s, rows, stream);
      break;
    case DType::BF16:
      from_f32 ? launch<float, BF16>(p.bits, tensor, s, rows, stream)
               : launch<BF16, BF16>(p.bits, tensor, s, rows, stream);
      break;
    default: launch<float, float>(p.bits, tensor, s, rows, stream); break;
  }
  return true;
}

}  // namespace

const CudaUnpackRows kCudaUnpackRows = {.unpack = unpack};

}  // namespace tuckfold::then
