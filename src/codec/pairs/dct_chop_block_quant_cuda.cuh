// dct_chop | block_quant on CUDA in one kernel: 256 blocks, a thread each, are one group of every
// frequency, so coefficients never leave the chip.
#pragma once

#include <algorithm>
#include <cmath>

#include "base/cuda/divide.cuh"
#include "codec/block_quant/block_quant.h"
#include "codec/block_quant/block_quant_block.h"
#include "codec/blocks/planes_move_cuda.cuh"
#include "codec/blocks/vectors_cuda.cuh"
#include "codec/dct_chop/dct_chop.h"
#include "codec/dct_chop/dct_chop_cuda.cuh"
#include "codec/dct_chop/dct_chop_planes_cuda.cuh"
#include "codec/pairs/group_codes_cuda.cuh"

namespace tuckfold::dct_chop {

using cuda::least;
using cuda::most;
using cuda::PlaneBlocks;
using cuda::WholeBlocks;

struct Quantized {
  std::uint8_t* codes;
  Header* headers;
  std::int64_t groups;  // of one frequency
  int bits;
  bool stochastic, exact_zero;
  std::uint64_t seed;
  const std::uint64_t* device_seed;  // what is added to it, or null
};

// Coefficients change hands in shared memory: threads have blocks, warps have groups.
template <int kKeep, bool kTriangle>
struct Sizes {
  static constexpr int kValues = kTriangle ? kKeep * (kKeep + 1) / 2 : kKeep * kKeep;
  static constexpr int kTurns = (kValues + kWarps - 1) / kWarps;  // groups of a warp

  // Whether there is a group for the warp in this turn. Where there is one for every warp the
  // compiler must know: turns without a branch between them overlap.
  __device__ static TUCKFOLD_INLINE bool exists(int turn, int warp) {
    return (turn + 1) * kWarps <= kValues || turn * kWarps + warp < kValues;
  }
};

// The shared-memory index of value i of a group, and the distance of groups. Every eight chunks of
// four values swap neighbours, so that neither threads nor lanes of eight values conflict in a bank.
struct Swapped {
  static constexpr int kPitch = kGroup;
  __device__ static TUCKFOLD_INLINE int place(int i) {
    const int chunk = i / 4;
    return (chunk ^ (chunk >> 3 & 1)) * 4 + i % 4;
  }
  __device__ static TUCKFOLD_INLINE int other_four(int at) { return at ^ 4; }
};
// The same for threads whose values are further apart: four words of padding after every 32.
struct Padded {
  static constexpr int kPitch = kGroup / 32 * 36;
  __device__ static TUCKFOLD_INLINE int place(int i) { return i + i / 32 * 4; }
  __device__ static TUCKFOLD_INLINE int other_four(int at) { return at + 4; }
};
template <class Order>
__device__ TUCKFOLD_INLINE void read_eight(const float* group, int lane, float* values) {
  const int at = Order::place(kEach * lane);
  const float4 a = *reinterpret_cast<const float4*>(group + at);
  const float4 b = *reinterpret_cast<const float4*>(group + Order::other_four(at));
  values[0] = a.x, values[1] = a.y, values[2] = a.z, values[3] = a.w;
  values[4] = b.x, values[5] = b.y, values[6] = b.z, values[7] = b.w;
}

// Groups of every frequency, `count` of kMost, from tiles that are `pitch` floats from each other to
// their codes and headers. A warp has every eighth frequency. Headers are made at once, one by each lane:
// there are hardly more instructions for those of several groups than of one.
template <int kKeep, bool kTriangle, class Order, int kMost = 1>
__device__ TUCKFOLD_INLINE void quantize_groups(const float* tile, const Quantized& out,
                                                std::int64_t first_group, int count = 1,
                                                int pitch = 0) {
  using S = Sizes<kKeep, kTriangle>;
  static_assert(kMost * S::kTurns <= cuda::kWarp);
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % cuda::kWarp, warp = thread / cuda::kWarp;
  // The ranges of all groups of the warp, one left with each lane, so that their headers are made
  // at once.
  int low = 0, high = 0;
  const auto tile_of = [&](int i) {
    return tile + i / S::kTurns * pitch + (i % S::kTurns * kWarps + warp) * Order::kPitch;
  };
  const auto exists = [&](int i) {
    return (kMost == 1 || i / S::kTurns < count) && S::exists(i % S::kTurns, warp);
  };
#pragma unroll
  for (int turn = 0; turn < kMost * S::kTurns; ++turn) {
    if (exists(turn)) {
      float v[kEach];
      read_eight<Order>(tile_of(turn), lane, v);
      const float small = least(least(least(v[0], v[1]), least(v[2], v[3])),
                                least(least(v[4], v[5]), least(v[6], v[7])));
      const float large =
          most(most(most(v[0], v[1]), most(v[2], v[3])), most(most(v[4], v[5]), most(v[6], v[7])));
      const int group_low = __reduce_min_sync(cuda::kAllLanes, ordered(small));
      const int group_high = __reduce_max_sync(cuda::kAllLanes, ordered(large));
      low = lane == turn ? group_low : low;
      high = lane == turn ? group_high : high;
    }
  }
  // A group's header, and what codes need of it.
  const auto use_of = [&](int least_value, int most_value, int number, std::int64_t group) {
    const int infinity = ordered(float_of(kInfBits)), minus = ordered(-float_of(kInfBits));
    const Header header =
        least_value > minus && most_value < infinity
            ? block_quant::header_of(unordered(least_value), unordered(most_value), out.bits,
                                     out.exact_zero)
            : block_quant::kNotFinite;
    const std::int64_t index = number * out.groups + group;
    if (number < S::kValues && group < first_group + count) out.headers[index] = header;
    const ToCode use(header);
    std::uint32_t key = 0;
    if (out.stochastic) {
      key = block_quant::group_key(out.seed + (out.device_seed != nullptr ? *out.device_seed : 0),
                                   static_cast<std::uint64_t>(index));
    }
    return make_float4(use.subtract, use.factor, use.zero, float_of(key));
  };
  float4 own_use{};
  if constexpr (kMost == 1) {  // two warps make those of all
    __shared__ int2 ranges[S::kValues];
    __shared__ float4 uses[S::kValues];
    if (const int number = lane * kWarps + warp; lane < S::kTurns && number < S::kValues) {
      ranges[number] = make_int2(low, high);
    }
    __syncthreads();
    if (thread < S::kValues) {
      uses[thread] = use_of(ranges[thread].x, ranges[thread].y, thread, first_group);
    }
    __syncthreads();
    if (const int number = lane * kWarps + warp; lane < S::kTurns && number < S::kValues) {
      own_use = uses[number];
    }
  } else {
    own_use = use_of(low, high, lane % S::kTurns * kWarps + warp, first_group + lane / S::kTurns);
  }

  const float levels = static_cast<float>((1 << out.bits) - 1);
  // Bytes of the nearest code are the common case, and much shorter without conditions.
  const auto quantize = [&]<bool kPlain>() {
#pragma unroll(kPlain ? kMost* S::kTurns : 1)
    for (int turn = 0; turn < kMost * S::kTurns; ++turn) {
      if (exists(turn)) {
        const auto of_turn = [&](auto value) { return __shfl_sync(cuda::kAllLanes, value, turn); };
        ToCode use{of_turn(own_use.x), of_turn(own_use.y), 0.0f};
        if (!kPlain) use.zero = of_turn(own_use.z);
        const std::uint32_t group_key = kPlain ? 0 : bits_of(of_turn(own_use.w));
        float v[kEach];
        read_eight<Order>(tile_of(turn), lane, v);
        std::uint32_t codes[kEach];
#pragma unroll
        for (int k = 0; k < kEach; ++k) {
          if constexpr (kPlain) {
            codes[k] = use.nearest(v[k]);
          } else {
            const auto quad = static_cast<std::uint32_t>((kEach * lane + k) / 4);
            const std::uint32_t random =
                out.stochastic ? block_quant::random_bytes(group_key, quad) >> 8 * (k % 4) & 0xffu
                               : 0u;
            codes[k] = use.code(v[k], levels, out.stochastic, random);
          }
        }
        const int number = turn % S::kTurns * kWarps + warp;
        const std::int64_t group = first_group + turn / S::kTurns;
        const std::int64_t first = (number * out.groups + group) * cuda::kWarp + lane;
        const int bits = kPlain ? 8 : out.bits;
        store_codes(codes, bits, out.codes + first * bits);
      }
    }
  };
  if (out.bits == 8 && !out.stochastic && !out.exact_zero) {
    quantize.template operator()<true>();
  } else {
    quantize.template operator()<false>();
  }
}

// Whether sums of some values of the group are numbers far below f32's largest one.
__device__ TUCKFOLD_INLINE bool is_tame(const Group& group) {
  return group.scale < 0x1p100f && (bits_of(group.minimum) & ~kSignBit) < bits_of(0x1p100f);
}

// The same back. Returns whether the thread saw tame groups only.
template <int kKeep, bool kTriangle, class Order>
__device__ TUCKFOLD_INLINE bool dequantize_group(const Quantized& in, std::int64_t group,
                                                 float* tile) {
  using S = Sizes<kKeep, kTriangle>;
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % cuda::kWarp, warp = thread / cuda::kWarp;
  bool tame = true;
  const auto values_of = [&]<int kBits>() {
    const int bits = kBits != 0 ? kBits : in.bits;
    const std::uint32_t mask = (1u << bits) - 1;
    // All loads before the first use.
    std::uint64_t codes[S::kTurns];
    Header headers[S::kTurns];
#pragma unroll
    for (int turn = 0; turn < S::kTurns; ++turn) {
      const int number = std::min(turn * kWarps + warp, S::kValues - 1);
      const std::int64_t index = number * in.groups + group;
      codes[turn] = load_codes(in.codes + (index * cuda::kWarp + lane) * bits, bits);
      headers[turn] = in.headers[index];
    }
#pragma unroll
    for (int turn = 0; turn < S::kTurns; ++turn) {
      const int number = turn * kWarps + warp;
      if (number < S::kValues) {
        const Group use = block_quant::group_of(headers[turn]);
        tame = tame && is_tame(use);
        float v[kEach];
#pragma unroll
        for (int k = 0; k < kEach; ++k) {
          const auto code = static_cast<std::uint32_t>(codes[turn] >> (bits * k)) & mask;
          v[k] = block_quant::ordinary_value(static_cast<int>(code), use);
        }
        if (block_quant::is_extreme(use)) {
#pragma unroll
          for (int k = 0; k < kEach; ++k) {
            const auto code = static_cast<std::uint32_t>(codes[turn] >> (bits * k)) & mask;
            v[k] = block_quant::extreme_value(static_cast<int>(code), use);
          }
        }
        float* to = tile + number * Order::kPitch;
        const int at = Order::place(kEach * lane);
        *reinterpret_cast<float4*>(to + at) = make_float4(v[0], v[1], v[2], v[3]);
        *reinterpret_cast<float4*>(to + Order::other_four(at)) =
            make_float4(v[4], v[5], v[6], v[7]);
      }
    }
  };
  if (in.bits == 8) {
    values_of.template operator()<8>();
  } else {
    values_of.template operator()<0>();
  }
  return tame;
}

// ---- dense tensors of whole blocks --------------------------------------------------------------

template <class T, int kKeep, bool kTriangle>
__global__ void __launch_bounds__(kGroup, 3)
    pack_pair(const __grid_constant__ WholeBlocks in, const __grid_constant__ Quantized out) {
  auto* tile = reinterpret_cast<float*>(cuda::shared_memory());
  const int thread = static_cast<int>(threadIdx.x), warp = thread / cuda::kWarp;
  const std::int64_t group = blockIdx.x;
  {
    float x[64], coefs[kKeep * kKeep];
    cuda::load_warp_blocks<T>(in, group * kGroup + warp * cuda::kWarp, x);
    forward_block_8(kKeep, x, 8, coefs);
    float* mine = tile + Swapped::place(thread);
    for_each_value<kKeep, kTriangle>([&](int i, int number) { mine[number * kGroup] = coefs[i]; });
  }
  __syncthreads();
  quantize_groups<kKeep, kTriangle, Swapped>(tile, out, group);
}

template <class T, int kKeep, bool kTriangle>
__global__ void __launch_bounds__(kGroup, 3)
    unpack_pair(const __grid_constant__ WholeBlocks out, const __grid_constant__ Quantized in) {
  auto* tile = reinterpret_cast<float*>(cuda::shared_memory());
  const int thread = static_cast<int>(threadIdx.x), warp = thread / cuda::kWarp;
  const std::int64_t group = blockIdx.x;
  const bool unsure = !dequantize_group<kKeep, kTriangle, Swapped>(in, group, tile);
  const bool tame = __syncthreads_or(unsure ? 1 : 0) == 0;
  float x[64], coefs[kKeep * kKeep];
  if constexpr (kTriangle) {
#pragma unroll
    for (int i = 0; i < kKeep * kKeep; ++i) coefs[i] = 0.0f;
  }
  const float* mine = tile + Swapped::place(thread);
  for_each_value<kKeep, kTriangle>([&](int i, int number) { coefs[i] = mine[number * kGroup]; });
  inverse_unsettled_8(kKeep, coefs, x, 8);
  if constexpr (sizeof(T) == 4) {
    if (!tame) settle_nans(8, 8, x, 8);
    cuda::store_warp_blocks<T>(out, group * kGroup + warp * cuda::kWarp, x);
  } else {
    cuda::store_block<T>(out, group * kGroup + thread, x, tame);
  }
}

// ---- tensors that are no dense rows of whole blocks; squares alone ------------------------------

// A CTA that packs has `groups` groups, and so 256 times as many blocks in the order of packed ones.
// Those that are `apart` blocks from each other are neighbours in memory, and neighbouring threads
// take them: `each` threads or one more.
struct PairDeal {
  std::uint32_t groups, apart, each;
  cuda::Divider by_each, by_one_more;

  static PairDeal of(std::uint32_t groups, std::uint32_t apart) {
    const std::uint32_t each = groups * kGroup / apart;
    return {groups, apart, each, cuda::Divider(each > 0 ? each : 1), cuda::Divider(each + 1)};
  }
  // The block, counted from the CTA's first, of thread number `i` of `total`.
  __device__ TUCKFOLD_INLINE std::uint32_t block(std::uint32_t i, std::uint32_t total) const {
    const bool usual = total == groups * kGroup;  // the last CTA may have fewer
    const std::uint32_t count = usual ? each : total / apart;
    const std::uint32_t first = total - count * apart, longer = first * (count + 1);
    const auto quotient = [&](std::uint32_t n, std::uint32_t by, const cuda::Divider& usually) {
      return usual ? usually.quotient(n) : n / by;
    };
    if (i < longer) {
      const std::uint32_t place = quotient(i, count + 1, by_one_more);
      return (i - place * (count + 1)) * apart + place;
    }
    const std::uint32_t place = quotient(i - longer, count, by_each);
    return (i - longer - place * count) * apart + first + place;
  }
};

template <int kKeep, bool kStaged>
__global__ void __launch_bounds__(kGroup, kStaged ? 3 : 2)
    pack_pair_planes(const __grid_constant__ PlaneBlocks in, const __grid_constant__ PairDeal deal,
                     const __grid_constant__ Quantized out) {
  constexpr int kTile = Sizes<kKeep, false>::kValues * Padded::kPitch;
  auto* tile = reinterpret_cast<float*>(cuda::shared_memory());
  const std::uint32_t first = blockIdx.x * deal.groups;
  const std::uint32_t here = min(deal.groups, static_cast<std::uint32_t>(out.groups) - first);
  cuda::wait_for_previous_kernel();
  for (std::uint32_t round = 0; round < here; ++round) {
    const std::uint32_t own = deal.block(round * kGroup + threadIdx.x, here * kGroup);
    const cuda::BlockSpot spot = in.spot(first * kGroup + own, true);
    float x[64], coefs[kKeep * kKeep];
    cuda::load_planes<false, cuda::walks_of(kStaged)>(in, {first * kGroup, first * kGroup + kGroup},
                                                      spot, cuda::shared_memory(), x);
    forward_block_8(kKeep, x, 8, coefs);
    if (kStaged) __syncthreads();  // rows were where the tile is
    float* mine = tile + own / kGroup * kTile + Padded::place(static_cast<int>(own % kGroup));
    for_each_value<kKeep, false>(
        [&](int i, int number) { mine[number * Padded::kPitch] = coefs[i]; });
  }
  cuda::allow_next_kernel();
  __syncthreads();
  for (std::uint32_t i = 0; i < here; ++i) {
    quantize_groups<kKeep, false, Padded>(tile + i * kTile, out, first + i);
  }
}

// Unpacks groups as pack_pair_planes deals them, for layouts where neighbouring threads then write
// whole sectors: a group's codes are read once, 16 bytes at a time.
template <int kKeep>
__global__ void __launch_bounds__(kGroup, 3)
    unpack_pair_groups(const __grid_constant__ PlaneBlocks out,
                       const __grid_constant__ PairDeal deal,
                       const __grid_constant__ Quantized in) {
  constexpr int kTile = Sizes<kKeep, false>::kValues * Padded::kPitch;
  auto* tile = reinterpret_cast<float*>(cuda::shared_memory());
  const std::uint32_t first = blockIdx.x * deal.groups;
  const std::uint32_t here = min(deal.groups, static_cast<std::uint32_t>(in.groups) - first);
  cuda::wait_for_previous_kernel();
  bool unsure = false;
  for (std::uint32_t i = 0; i < here; ++i) {
    unsure = !dequantize_group<kKeep, false, Padded>(in, first + i, tile + i * kTile) || unsure;
  }
  cuda::allow_next_kernel();
  const bool tame = __syncthreads_or(unsure ? 1 : 0) == 0;
  for (std::uint32_t round = 0; round < here; ++round) {
    const std::uint32_t own = deal.block(round * kGroup + threadIdx.x, here * kGroup);
    const cuda::BlockSpot spot = out.spot(first * kGroup + own, true);
    float x[64], coefs[kKeep * kKeep];
    const float* mine = tile + own / kGroup * kTile + Padded::place(static_cast<int>(own % kGroup));
    for_each_value<kKeep, false>(
        [&](int i, int number) { coefs[i] = mine[number * Padded::kPitch]; });
    inverse_unsettled_8(kKeep, coefs, x, 8);
    if (out.dtype == DType::F32 && !tame) settle_nans(8, 8, x, 8);
    cuda::store_planes<false, cuda::walks_of(false)>(out, {first * kGroup, first * kGroup + kGroup},
                                                     spot, cuda::shared_memory(), x,
                                                     tame && out.dtype == DType::BF16);
  }
}

// Unpacks a group of a tensor whose rows are staged, where groups are whole rows of blocks.
template <int kKeep>
__global__ void __launch_bounds__(kGroup, 3)
    unpack_pair_rows(const __grid_constant__ PlaneBlocks out,
                     const __grid_constant__ Quantized in) {
  unsigned char* shared = cuda::shared_memory();
  auto* tile = reinterpret_cast<float*>(shared);
  const std::uint32_t first = blockIdx.x * kGroup;
  cuda::wait_for_previous_kernel();
  const bool unsure = !dequantize_group<kKeep, false, Padded>(in, blockIdx.x, tile);
  cuda::allow_next_kernel();
  const bool tame = __syncthreads_or(unsure ? 1 : 0) == 0;
  float x[64], coefs[kKeep * kKeep];
  const float* mine = tile + Padded::place(static_cast<int>(threadIdx.x));
  for_each_value<kKeep, false>(
      [&](int i, int number) { coefs[i] = mine[number * Padded::kPitch]; });
  __syncthreads();  // rows go where the tile was
  inverse_unsettled_8(kKeep, coefs, x, 8);
  if (out.dtype == DType::F32 && !tame) settle_nans(8, 8, x, 8);
  cuda::store_planes<false, cuda::Walks::Staged>(out, {first, first + kGroup},
                                                 out.spot(first + threadIdx.x, true), shared, x,
                                                 tame && out.dtype == DType::BF16);
}

// Elsewhere no group need be whole to be unpacked: a thread fetches the codes of one block, in the order in which
// they are packed, and looks up the headers that it needs in shared memory.
struct PairPlaneArgs {
  PlaneBlocks blocks;
  cuda::BlockDeal deal;
  Quantized in;
  std::uint32_t table_from, tile_from;  // bytes of shared memory before them
};

inline constexpr int kPairHeaders = 2;  // of a frequency that a lane's blocks in a CTA may have

// The group of a lane's first block.
__device__ TUCKFOLD_INLINE std::uint32_t first_group(const PairPlaneArgs& args,
                                                     const cuda::BlockDeal::Share& share,
                                                     std::uint32_t lane) {
  return args.deal.block(share, lane, 0) / kGroup;
}

// Scales and minima of the CTA's groups by frequencies, then lanes, then groups. Returns whether
// all values follow by ordinary_value from a group that is not about zero; a barrier has come then.
template <int kValues>
__device__ TUCKFOLD_INLINE bool fill_pair_table(const PairPlaneArgs& args,
                                                const cuda::BlockDeal::Share& share,
                                                float2* table) {
  static_assert(kPairHeaders == 2);
  bool other = false;
  const std::uint32_t shift = args.deal.lane_shift + 1, total = static_cast<std::uint32_t>(kValues)
                                                                << shift;
  for (std::uint32_t i = threadIdx.x; i < total; i += kPlaneThreads) {
    const std::uint32_t lane = (i >> 1) & (args.deal.lanes - 1), number = i >> shift;
    if (lane >= share.lanes) continue;
    const std::uint32_t group =
        min(first_group(args, share, lane) + i % 2, static_cast<std::uint32_t>(args.in.groups) - 1);
    const Group use = block_quant::group_of(args.in.headers[number * args.in.groups + group]);
    other = other || use.about_zero || block_quant::is_extreme(use);
    table[i] = make_float2(use.scale, use.minimum);
  }
  return __syncthreads_or(other ? 1 : 0) == 0;
}

// A value of any group. Rarely called, so not inlined.
__device__ TUCKFOLD_NOINLINE float any_value(int code, const Header* header) {
  return block_quant::value_of(code, block_quant::group_of(*header));
}

// The coefficients of a block, from codes of kBits, or of in.bits where that is 0.
template <int kKeep, int kBits>
__device__ TUCKFOLD_INLINE void dequantize_block(const PairPlaneArgs& args, std::uint32_t block,
                                                 std::uint32_t lane, std::uint32_t lane_group,
                                                 bool plain, const float2* table, float* coefs) {
  constexpr int kValues = kKeep * kKeep;
  const Quantized& in = args.in;
  const int bits = kBits != 0 ? kBits : in.bits;
  const std::uint64_t at = std::uint64_t{block} * static_cast<std::uint32_t>(bits);
  const std::uint8_t* from = in.codes + at / 8;
  const std::int64_t step = in.groups * (kGroup / 8) * bits;
  std::uint32_t codes[kValues];  // all loads before the first use
#pragma unroll
  for (int i = 0; i < kValues; ++i) {
    codes[i] = from[i * step];
    if constexpr (kBits != 8) {  // headers follow the last codes, so there is another byte
      codes[i] |= static_cast<std::uint32_t>(from[i * step + 1]) << 8;
      codes[i] = codes[i] >> (at % 8) & ((1u << bits) - 1);
    }
  }
  const std::uint32_t group = block / kGroup;
  const float2* entries = table + lane * 2 + (group - lane_group);
  if (plain) {
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      const float2 use = entries[i << (args.deal.lane_shift + 1)];
      coefs[i] = block_quant::ordinary_value(
          static_cast<int>(codes[i]), {.scale = use.x, .minimum = use.y, .about_zero = false});
    }
  } else {
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      coefs[i] = any_value(static_cast<int>(codes[i]), in.headers + i * in.groups + group);
    }
  }
}

template <int kKeep, bool kStaged>
__global__ void __launch_bounds__(kPlaneThreads,
                                  plane_unpack_blocks_per_sm(cuda::walks_of(kStaged), kKeep))
    unpack_pair_planes(const __grid_constant__ PairPlaneArgs args) {
  constexpr int kValues = kKeep * kKeep;
  const cuda::BlockDeal::Share share = args.deal.share(blockIdx.x);
  const cuda::BlockSpot spot = args.deal.spot(args.blocks, share, threadIdx.x);
  unsigned char* shared = cuda::shared_memory();
  auto* table = reinterpret_cast<float2*>(shared + args.table_from);
  cuda::wait_for_previous_kernel();
  const bool plain = fill_pair_table<kValues>(args, share, table);
  float x[64], coefs[kValues];
  const auto fetch = [&](std::uint32_t block, std::uint32_t lane) {
    const std::uint32_t lane_group = first_group(args, share, lane);
    if (args.in.bits == 8) {
      dequantize_block<kKeep, 8>(args, block, lane, lane_group, plain, table, coefs);
    } else {
      dequantize_block<kKeep, 0>(args, block, lane, lane_group, plain, table, coefs);
    }
  };
  if (kStaged || args.deal.lanes == 1) {
    fetch(spot.block, 0);
  } else {
    auto* tile = reinterpret_cast<float*>(shared + args.tile_from);
    const auto turned = args.deal.in_packed_order(share, threadIdx.x);
    fetch(turned.block, turned.lane);
    float* theirs = tile + turned.slot * kPlanePitch<kKeep>;
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      if (turned.exists) theirs[i] = coefs[i];
    }
    __syncthreads();
    const float* mine = tile + args.deal.own_slot(share, threadIdx.x) * kPlanePitch<kKeep>;
#pragma unroll
    for (int i = 0; i < kValues; ++i) coefs[i] = mine[i];
  }
  cuda::allow_next_kernel();
  inverse_unsettled_8(kKeep, coefs, x, 8);
  if (args.blocks.dtype == DType::F32) settle_nans(8, 8, x, 8);
  cuda::store_planes<false, cuda::walks_of(kStaged)>(
      args.blocks, {share.first, share.first + share.run}, spot, shared, x);
}

}  // namespace tuckfold::dct_chop
