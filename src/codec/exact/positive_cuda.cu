// positive on CUDA. In dense tensors of one or two bytes per value a lane loads sixteen bytes and
// stores their bits itself; other tensors use votes.
#include <type_traits>

#include "base/element.h"
#include "base/fp_env.h"
#include "codec/blocks/vectors_cuda.cuh"
#include "codec/exact/bit_cuda.cuh"
#include "codec/exact/mask.h"
#include "codec/exact/positive.h"

namespace tuckfold::positive {
namespace {

using cuda::kBitThreads;
using cuda::kWarp;
using cuda::View;

constexpr int kSteps = 8;  // 16 bytes each, that a lane has in flight

// The bits of sixteen bytes of values.
template <class T>
__device__ TUCKFOLD_INLINE std::uint32_t bits_of_vector(const uint4& raw) {
  const std::uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
  std::uint32_t bits = 0;
  if constexpr (sizeof(T) == 1) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t x = words[i];
      const std::uint32_t set = (((x & 0x7f7f7f7fu) + 0x7f7f7f7fu) | x) & 0x80808080u;
      bits |= ((set >> 7) * 0x10204080u >> 28) << 4 * i;
    }
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      bits |= cuda::halves_above_zero<T>(words[i]) & (0x00020001u << 2 * i);
    bits = (bits | bits >> 16) & 0xffu;
  }
  return bits;
}

template <class T>
using Word = std::conditional_t<sizeof(T) == 2, std::uint16_t, std::uint8_t>;
// What a vector's bits are stored as.
template <class T>
using Bits = std::conditional_t<sizeof(T) == 1, std::uint16_t, std::uint8_t>;

template <class T>
__global__ void __launch_bounds__(kBitThreads)
    pack_vectors_kernel(const __grid_constant__ View view, unsigned char* out, Test<Word<T>> test) {
  constexpr int kV = 16 / sizeof(T), kTile = kWarp * kV * kSteps;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t begin = cuda::bit_warp() * kTile;
  const auto* from = reinterpret_cast<const Word<T>*>(view.data) + begin;
  cuda::wait_for_previous_kernel();
  if (begin + kTile <= view.elems) {
    uint4 raw[kSteps];
#pragma unroll
    for (int j = 0; j < kSteps; ++j)
      raw[j] = reinterpret_cast<const uint4*>(from)[j * kWarp + lane];
    cuda::allow_next_kernel();
    auto* to = reinterpret_cast<Bits<T>*>(out + begin / 8);
#pragma unroll
    for (int j = 0; j < kSteps; ++j) {
      to[j * kWarp + lane] = static_cast<Bits<T>>(bits_of_vector<T>(raw[j]));
    }
    return;
  }
  for (std::int64_t at = 8 * lane; begin + at < view.elems; at += 8 * kWarp) {
    std::uint32_t bits = 0;
    for (int i = 0; i < 8 && begin + at + i < view.elems; ++i) {
      bits |= (test.passes(from[at + i]) ? 1u : 0u) << i;
    }
    out[(begin + at) / 8] = static_cast<unsigned char>(bits);
  }
}

template <class T, bool kDense>
__global__ void __launch_bounds__(kBitThreads)
    pack_kernel(const __grid_constant__ View view, unsigned char* out, Test<T> test) {
  const std::int64_t tile = cuda::bit_warp();
  cuda::wait_for_previous_kernel();
  if (tile * cuda::kBitTile >= view.elems) return;
  const std::uint32_t mine =
      cuda::vote<kDense>(view, tile, T{0}, [&](T x) { return test.passes(x); });
  cuda::store_bits(out, view.elems, tile, mine);
}

template <class T>
void launch_vectors(const View& view, unsigned char* out, void* stream) {
  constexpr int kTile = kWarp * (16 / sizeof(T)) * kSteps;
  const std::int64_t warps = cuda::blocks_for(view.elems, kTile);
  const cuda::Grid grid{
      .blocks = cuda::blocks_for(warps, cuda::kBitWarps), .threads = kBitThreads, .early = true};
  cuda::launch(pack_vectors_kernel<T>, grid, stream, view, out, test_of<Word<T>>(view.dtype));
}

std::size_t pack_cuda(const Stage&, const ConstTensorView& in, std::span<std::byte> out,
                      CudaContext run) {
  const View view = View::of(in);
  if (view.elems == 0) return out.size();
  auto* bits = reinterpret_cast<unsigned char*>(out.data());
  if (view.dense(16) && size_bytes(view.dtype) <= 2) {
    view.dtype == DType::F16    ? launch_vectors<F16>(view, bits, run.stream)
    : view.dtype == DType::BF16 ? launch_vectors<BF16>(view, bits, run.stream)
                                : launch_vectors<std::uint8_t>(view, bits, run.stream);
    return out.size();
  }
  with_word(view.dtype, [&]<class T>(T) {
    const cuda::Grid grid = cuda::bit_grid(view.elems);
    const Test<T> test = test_of<T>(view.dtype);
    view.dense() ? cuda::launch(pack_kernel<T, true>, grid, run.stream, view, bits, test)
                 : cuda::launch(pack_kernel<T, false>, grid, run.stream, view, bits, test);
  });
  return out.size();
}

void unpack_cuda(const Stage&, std::span<const std::byte> packed, const TensorView& out,
                 CudaContext run) {
  const FpEnv env;
  mask::unpack_pair_cuda({0, element_bits(out.dtype, 1.0)}, packed, out, run.stream);
}

}  // namespace

const CudaCodec kCuda = {.pack = pack_cuda, .unpack = unpack_cuda};

}  // namespace tuckfold::positive
