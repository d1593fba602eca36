// dct_chop on CUDA: which kernel takes which tensor, and the one that takes any.
#include <array>
#include <utility>

#include "codec/cuda_rows.h"
#include "codec/dct_chop.h"
#include "codec/dct_chop_cuda.cuh"

namespace tuckfold::dct_chop {
namespace {

constexpr int kAnyThreads = 128;  // of the kernels that take any tensor

using cuda::AnyBlocks;
using cuda::View;
using cuda::WholeBlocks;

Stored stored_of(const Params& p, const Blocks& b, const void* data) {
  return {.data = const_cast<void*>(data),
          .triangle = p.triangle,
          .planes = p.planes,
          .blocks = b.strips() * b.block_cols,
          .row_values = b.block_cols * p.keep};
}

// ---- any block, dtype, strides and edges, by the normative functions ----------------------------

// The place of coefficient (u, v) of a block.
__device__ std::int64_t place_of(const Stored& s, const AnyBlocks& b, int keep, std::int64_t block,
                                 int u, int v) {
  const int number = s.triangle ? u * keep - u * (u - 1) / 2 + v : u * keep + v;
  if (s.planes) return number * s.blocks + block;
  if (s.triangle) return block * (keep * (keep + 1) / 2) + number;
  const std::int64_t strip = block / b.block_cols, col = block % b.block_cols;
  return (strip * keep + u) * s.row_values + col * keep + v;
}

__device__ float stored_value(const Stored& s, DType coef, std::int64_t place) {
  switch (coef) {
    case DType::F16: return to_float(static_cast<const F16*>(s.data)[place]);
    case DType::BF16: return to_float(static_cast<const BF16*>(s.data)[place]);
    default: return static_cast<const float*>(s.data)[place];
  }
}
__device__ void store_value(const Stored& s, DType coef, std::int64_t place, float value) {
  switch (coef) {
    case DType::F16: static_cast<F16*>(s.data)[place] = to_f16(value); break;
    case DType::BF16: static_cast<BF16*>(s.data)[place] = to_bf16(value); break;
    default: static_cast<float*>(s.data)[place] = value;
  }
}

template <class T, int N>
__global__ void pack_any(const __grid_constant__ AnyBlocks in, const __grid_constant__ Stored out,
                         const __grid_constant__ Table<N> table, int keep, DType coef) {
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * kAnyThreads + threadIdx.x;
  if (thread >= in.count) return;
  const std::int64_t block = in.block_of(thread);
  float x[N * N], coefs[N * N];
  cuda::load_block<T, N>(in, block, x);
  forward_block<N>(table, keep, x, N, coefs);
  for (int u = 0; u < keep; ++u) {
    for (int v = 0; v < (out.triangle ? keep - u : keep); ++v) {
      store_value(out, coef, place_of(out, in, keep, block, u, v), coefs[u * keep + v]);
    }
  }
}

template <class T, int N>
__global__ void unpack_any(const __grid_constant__ AnyBlocks out, const __grid_constant__ Stored in,
                           const __grid_constant__ Table<N> table, int keep, DType coef) {
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * kAnyThreads + threadIdx.x;
  if (thread >= out.count) return;
  const std::int64_t block = out.block_of(thread);
  float x[N * N], coefs[N * N];
  for (int u = 0; u < keep; ++u) {
    for (int v = 0; v < keep; ++v) {
      const bool kept = !in.triangle || u + v < keep;
      coefs[u * keep + v] =
          kept ? stored_value(in, coef, place_of(in, out, keep, block, u, v)) : 0.0f;
    }
  }
  inverse_block<N>(table, keep, coefs, x, N);
  cuda::store_block<T, N>(out, block, x);
}

// ---- which kernel -------------------------------------------------------------------------------

using WholeKernel = void (*)(WholeBlocks, Stored, Deal);

template <class T, class Coef, int... K>
WholeKernel pack_kernel(int keep, std::integer_sequence<int, K...>) {
  constexpr std::array<WholeKernel, 8> kKernels = {pack_whole<T, Coef, K + 1>...};
  return kKernels[static_cast<std::size_t>(keep - 1)];
}
template <class T, class Coef, Order kOrder, int... K>
WholeKernel unpack_kernel(int keep, std::integer_sequence<int, K...>) {
  constexpr std::array<WholeKernel, 8> kKernels = {unpack_whole<T, Coef, K + 1, kOrder>...};
  return kKernels[static_cast<std::size_t>(keep - 1)];
}

// The kernel for a pair of types, null where there is none. Orders other than rows have fewer.
template <bool kPack>
WholeKernel whole_kernel(DType dtype, const Params& p) {
  constexpr std::make_integer_sequence<int, 8> kKeeps;
  const Order order = p.planes ? Order::Planes : p.triangle ? Order::Triangles : Order::Rows;
  const auto of = [&]<class T, class Coef, bool kAllOrders>() -> WholeKernel {
    if constexpr (kPack) {
      return pack_kernel<T, Coef>(p.keep, kKeeps);
    } else if constexpr (kAllOrders) {
      return order == Order::Rows        ? unpack_kernel<T, Coef, Order::Rows>(p.keep, kKeeps)
             : order == Order::Triangles ? unpack_kernel<T, Coef, Order::Triangles>(p.keep, kKeeps)
                                         : unpack_kernel<T, Coef, Order::Planes>(p.keep, kKeeps);
    } else {
      return order == Order::Rows ? unpack_kernel<T, Coef, Order::Rows>(p.keep, kKeeps) : nullptr;
    }
  };
  const auto is = [&](DType a, DType b) { return dtype == a && p.coef == b; };
  if (is(DType::F32, DType::F32)) return of.template operator()<float, float, true>();
  if (is(DType::F32, DType::F16)) return of.template operator()<float, F16, false>();
  if (is(DType::F32, DType::BF16)) return of.template operator()<float, BF16, false>();
  if (is(DType::F16, DType::F16)) return of.template operator()<F16, F16, false>();
  if (is(DType::BF16, DType::BF16)) return of.template operator()<BF16, BF16, true>();
  if (is(DType::F16, DType::F32)) return of.template operator()<F16, float, false>();
  if (is(DType::BF16, DType::F32)) return of.template operator()<BF16, float, false>();
  return nullptr;
}

template <bool kPack, int N>
void run_any(const Params& p, const Table<N>& table, const AnyBlocks& blocks, const Stored& stored,
             void* stream) {
  cuda::with_element(blocks.view.dtype, [&](auto element) {
    using T = decltype(element);
    const cuda::Grid grid{cuda::blocks_for(blocks.count, kAnyThreads), kAnyThreads};
    if constexpr (kPack) {
      cuda::launch(pack_any<T, N>, grid, stream, blocks, stored, table, p.keep, p.coef);
    } else {
      cuda::launch(unpack_any<T, N>, grid, stream, blocks, stored, table, p.keep, p.coef);
    }
  });
}

template <bool kPack>
void run_all(const Params& p, const Shape& shape, const View& view, const void* packed,
             void* stream) {
  const Blocks b = blocks_of(p, shape);
  const Stored stored = stored_of(p, b, packed);
  const WholeKernel kernel =
      WholeBlocks::suits(view, b) ? whole_kernel<kPack>(view.dtype, p) : nullptr;
  if (kernel != nullptr) {
    const WholeBlocks blocks = WholeBlocks::of(view, b);
    constexpr int kThreads = kPack ? kPackThreads : kUnpackThreads;
    const std::size_t row_bytes = static_cast<std::size_t>(p.keep) * size_bytes(p.coef);
    const bool at_once =
        row_bytes == 4 || row_bytes == 8 || row_bytes == 16 || (!kPack && row_bytes == 32);
    const bool staged = !p.planes && !p.triangle && !at_once;
    const Deal deal = staged ? Deal::of(blocks.block_cols, kThreads) : Deal{kThreads, false};
    cuda::launch(
        kernel,
        {.blocks = cuda::blocks_for(blocks.count, deal.each),
         .threads = kThreads,
         .shared_bytes = kPack ? 0 : unpack_ballast(size_bytes(view.dtype), staged, p.keep)},
        stream, blocks, stored, deal);
    return;
  }
  const AnyBlocks blocks = AnyBlocks::of(view, b);
  if (p.transform == Transform::Zfp) {
    run_any<kPack, 4>(p, kPack ? kZfpForward : kZfpInverse, blocks, stored, stream);
  } else if (p.block == 4) {
    run_any<kPack, 4>(p, kDct<4>, blocks, stored, stream);
  } else if (p.block == 8) {
    run_any<kPack, 8>(p, kDct<8>, blocks, stored, stream);
  } else {
    run_any<kPack, 16>(p, kDct<16>, blocks, stored, stream);
  }
}

}  // namespace

std::size_t pack_cuda(const Stage& stage, const ConstTensorView& in, std::span<std::byte> out,
                      CudaContext run) {
  if (!out.empty()) {
    run_all<true>(Params::of(stage), in.shape, View::of(in), out.data(), run.stream);
  }
  return out.size();
}

void unpack_cuda(const Stage& stage, std::span<const std::byte> packed, const TensorView& out,
                 CudaContext run) {
  if (!packed.empty()) {
    run_all<false>(Params::of(stage), out.shape, View::of(out), packed.data(), run.stream);
  }
}

}  // namespace tuckfold::dct_chop
