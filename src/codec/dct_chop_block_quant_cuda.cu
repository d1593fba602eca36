// dct_chop | block_quant on CUDA in one kernel: 256 blocks, a thread each, are one group of every
// frequency, so coefficients never leave the chip.
#include <algorithm>
#include <array>
#include <utility>

#include "codec/block_quant.h"
#include "codec/block_quant_block.h"
#include "codec/cuda_rows.h"
#include "codec/dct_chop.h"
#include "codec/dct_chop_cuda.cuh"

namespace tuckfold::dct_chop {
namespace {

using block_quant::Group;
using block_quant::Header;
using cuda::View;
using cuda::WholeBlocks;

constexpr int kGroup = 256, kWarps = kGroup / cuda::kWarp;

struct Quantized {
  std::uint8_t* codes;
  Header* headers;
  std::int64_t groups;  // of one frequency
  int bits;
  bool stochastic, exact_zero;
  std::uint64_t seed;
};

// A group, ready for use.
struct alignas(16) Use {
  float scale, minimum;  // for pack: 1 / scale
  std::uint32_t key;
  bool about_zero;
};

template <int kValues>
struct Shared {
  alignas(16) std::uint8_t codes[kValues][kGroup];
  Use uses[kValues];
  int lows[kValues][kWarps], highs[kValues][kWarps];
};

// Whole numbers in the order of floats: NaN lies beyond the infinity of its sign.
__device__ TUCKFOLD_INLINE int ordered(float value) {
  const int bits = static_cast<int>(bits_of(value));
  return bits ^ ((bits >> 31) & 0x7fffffff);
}
__device__ TUCKFOLD_INLINE float unordered(int image) {
  return float_of(static_cast<std::uint32_t>(image ^ ((image >> 31) & 0x7fffffff)));
}

// Eight codes of a byte each to eight of `bits` bits, and back.
__device__ TUCKFOLD_INLINE std::uint64_t squeeze(std::uint64_t codes, int bits) {
  std::uint64_t result = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) result |= (codes >> (8 * i) & 0xffu) << (bits * i);
  return result;
}
__device__ TUCKFOLD_INLINE std::uint64_t spread(std::uint64_t squeezed, int bits) {
  const std::uint64_t mask = (1u << bits) - 1;
  std::uint64_t result = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) result |= (squeezed >> (bits * i) & mask) << (8 * i);
  return result;
}

// Calls visit(frequency, eight codes in the tile, their bytes in memory) for the CTA's codes,
// shared out among its threads.
template <int kValues, class Visit>
__device__ TUCKFOLD_INLINE void for_each_eight(Shared<kValues>& shared, const Quantized& q,
                                               std::int64_t group, Visit&& visit) {
  constexpr int kEights = kGroup / 8;
  for (int i = static_cast<int>(threadIdx.x); i < kValues * kEights; i += kGroup) {
    const int frequency = i / kEights, at = i % kEights;
    const std::int64_t index = frequency * q.groups + group;
    visit(reinterpret_cast<std::uint64_t*>(shared.codes[frequency])[at],
          q.codes + (index * kEights + at) * q.bits);
  }
}

template <class T, int kKeep, bool kTriangle>
__global__ void __launch_bounds__(kGroup)
    pack_pair(const __grid_constant__ WholeBlocks in, const __grid_constant__ Quantized out) {
  constexpr int kValues = kTriangle ? kKeep * (kKeep + 1) / 2 : kKeep * kKeep;
  __shared__ Shared<kValues> shared;
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % cuda::kWarp, warp = thread / cuda::kWarp;
  const std::int64_t group = blockIdx.x;
  float coefs[kKeep * kKeep];
  {
    float x[64];
    cuda::load_warp_blocks<T>(in, group * kGroup + warp * cuda::kWarp, x);
    forward_block_8(kKeep, x, 8, coefs);
  }
  for_each_value<kKeep, kTriangle>([&](int i, int number) {
    const int image = ordered(coefs[i]);
    const int low = __reduce_min_sync(cuda::kAllLanes, image);
    const int high = __reduce_max_sync(cuda::kAllLanes, image);
    if (lane == number % cuda::kWarp) {
      shared.lows[number][warp] = low;
      shared.highs[number][warp] = high;
    }
  });
  __syncthreads();
  if (thread < kValues) {
    int low = shared.lows[thread][0], high = shared.highs[thread][0];
#pragma unroll
    for (int i = 1; i < kWarps; ++i) {
      low = std::min(low, shared.lows[thread][i]);
      high = std::max(high, shared.highs[thread][i]);
    }
    const int infinity = ordered(float_of(kInfBits)), minus = ordered(-float_of(kInfBits));
    const Header header =
        low > minus && high < infinity
            ? block_quant::header_of(unordered(low), unordered(high), out.bits, out.exact_zero)
            : block_quant::kNotFinite;
    const std::int64_t index = thread * out.groups + group;
    out.headers[index] = header;
    const Group use = block_quant::group_of(header);
    shared.uses[thread] = {
        .scale = 1.0f / use.scale,
        .minimum = use.minimum,
        .key = block_quant::group_key(out.seed, static_cast<std::uint64_t>(index)),
        .about_zero = use.about_zero};
  }
  __syncthreads();
  const float levels = static_cast<float>((1 << out.bits) - 1);
  for_each_value<kKeep, kTriangle>([&](int i, int number) {
    const Use use = shared.uses[number];
    const float nudge = out.stochastic
                            ? block_quant::random_nudge(use.key, static_cast<std::uint32_t>(thread))
                            : 0.0f;
    const Group as_group{.scale = 0, .minimum = use.minimum, .about_zero = use.about_zero};
    shared.codes[number][thread] = static_cast<std::uint8_t>(
        block_quant::code_of(coefs[i], as_group, use.scale, nudge, levels));
  });
  __syncthreads();
  for_each_eight(shared, out, group, [&](std::uint64_t codes, std::uint8_t* to) {
    const std::uint64_t bytes = out.bits == 8 ? codes : squeeze(codes, out.bits);
    switch (out.bits) {
      case 8: *reinterpret_cast<std::uint64_t*>(to) = bytes; break;
      case 4: *reinterpret_cast<std::uint32_t*>(to) = static_cast<std::uint32_t>(bytes); break;
      case 2: *reinterpret_cast<std::uint16_t*>(to) = static_cast<std::uint16_t>(bytes); break;
      default:
        for (int i = 0; i < out.bits; ++i) to[i] = static_cast<std::uint8_t>(bytes >> (8 * i));
    }
  });
}

template <class T, int kKeep, bool kTriangle>
__global__ void __launch_bounds__(kGroup)
    unpack_pair(const __grid_constant__ WholeBlocks out, const __grid_constant__ Quantized in) {
  constexpr int kValues = kTriangle ? kKeep * (kKeep + 1) / 2 : kKeep * kKeep;
  __shared__ Shared<kValues> shared;
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t group = blockIdx.x;
  for_each_eight(shared, in, group, [&](std::uint64_t& codes, const std::uint8_t* from) {
    std::uint64_t bytes = 0;
    switch (in.bits) {
      case 8: codes = *reinterpret_cast<const std::uint64_t*>(from); return;
      case 4: bytes = *reinterpret_cast<const std::uint32_t*>(from); break;
      case 2: bytes = *reinterpret_cast<const std::uint16_t*>(from); break;
      default:
        for (int i = 0; i < in.bits; ++i) bytes |= static_cast<std::uint64_t>(from[i]) << (8 * i);
    }
    codes = spread(bytes, in.bits);
  });
  if (thread < kValues) {
    const Group use = block_quant::group_of(in.headers[thread * in.groups + group]);
    shared.uses[thread] = {
        .scale = use.scale, .minimum = use.minimum, .key = 0, .about_zero = use.about_zero};
  }
  __syncthreads();
  float x[64], coefs[kKeep * kKeep];
#pragma unroll
  for (int i = 0; i < kKeep * kKeep; ++i) coefs[i] = 0.0f;
  for_each_value<kKeep, kTriangle>([&](int i, int number) {
    const Use use = shared.uses[number];
    coefs[i] = block_quant::value_of(
        shared.codes[number][thread],
        {.scale = use.scale, .minimum = use.minimum, .about_zero = use.about_zero});
  });
  inverse_block_8(kKeep, coefs, x, 8);
  cuda::store_warp_blocks<T>(out, group * kGroup + thread / cuda::kWarp * cuda::kWarp, x);
}

// ---- which kernel -------------------------------------------------------------------------------

using PairKernel = void (*)(WholeBlocks, Quantized);

template <class T, bool kPack, int... K>
PairKernel pair_kernel(int keep, bool triangle, std::integer_sequence<int, K...>) {
  const auto at = static_cast<std::size_t>(keep - 1);
  if constexpr (kPack) {
    constexpr std::array<PairKernel, 8> kSquare = {pack_pair<T, K + 1, false>...};
    constexpr std::array<PairKernel, 8> kTriangle = {pack_pair<T, K + 1, true>...};
    return triangle ? kTriangle[at] : kSquare[at];
  } else {
    constexpr std::array<PairKernel, 8> kSquare = {unpack_pair<T, K + 1, false>...};
    constexpr std::array<PairKernel, 8> kTriangle = {unpack_pair<T, K + 1, true>...};
    return triangle ? kTriangle[at] : kSquare[at];
  }
}

template <bool kPack>
bool run_pair(const Stage& first, const Stage& second, const View& view, const Shape& shape,
              std::byte* packed, CudaContext run) {
  const Params p = Params::of(first);
  const block_quant::Params q = block_quant::Params::of(second);
  if (view.elems == 0 || p.block != 8 || !p.planes || p.coef != DType::F32 || q.group != kGroup) {
    return false;
  }
  const Blocks b = blocks_of(p, shape);
  const std::int64_t blocks = b.strips() * b.block_cols;
  const bool type = view.dtype == DType::F32 || view.dtype == DType::BF16;
  if (!type || !WholeBlocks::suits(view, b) || blocks % kGroup != 0) return false;
  const std::int64_t groups = blocks / kGroup;
  auto* codes = reinterpret_cast<std::uint8_t*>(packed);
  const Quantized quantized{.codes = codes,
                            .headers = reinterpret_cast<Header*>(
                                codes + p.values_per_block() * groups * q.code_bytes(kGroup)),
                            .groups = groups,
                            .bits = q.bits,
                            .stochastic = q.stochastic,
                            .exact_zero = q.exact_zero,
                            .seed = run.seed};
  constexpr std::make_integer_sequence<int, 8> kKeeps;
  const PairKernel kernel = view.dtype == DType::F32
                                ? pair_kernel<float, kPack>(p.keep, p.triangle, kKeeps)
                                : pair_kernel<BF16, kPack>(p.keep, p.triangle, kKeeps);
  cuda::launch(kernel, {groups, kGroup}, run.stream, WholeBlocks::of(view, b), quantized);
  return true;
}

bool pack_both(const Stage& first, const Stage& second, const ConstTensorView& in,
               std::span<std::byte> out, CudaContext run) {
  return run_pair<true>(first, second, View::of(in), in.shape, out.data(), run);
}

bool unpack_both(const Stage& first, const Stage& second, std::span<const std::byte> packed,
                 const TensorView& out, CudaContext run) {
  return run_pair<false>(first, second, View::of(out), out.shape,
                         const_cast<std::byte*>(packed.data()), run);
}

}  // namespace
}  // namespace tuckfold::dct_chop

namespace tuckfold {

std::span<const CudaPair> cuda_pairs() {
  static const CudaPair kPairs[] = {
      {&kDctChop, &kBlockQuant, dct_chop::pack_both, dct_chop::unpack_both}};
  return kPairs;
}

}  // namespace tuckfold
