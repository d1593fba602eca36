// dct_chop packs bf16 in channels last on CUDA: a thread has a place of two channels, a warp four places of
// sixteen. So it loads whole sectors of values, and stores those of coefficients, of which four places are
// 64 bytes side by side.
#pragma once

#include <optional>

#include "codec/blocks/channel_pairs_cuda.cuh"
#include "codec/dct_chop/dct_chop_cuda.cuh"

namespace tuckfold::dct_chop {

inline constexpr int kChopChannelThreads = 256;
inline constexpr std::uint32_t kWarpPairs = 8, kWarpPlaces = cuda::kWarp / kWarpPairs;

// Squares of f32 whose rows are one access each.
inline constexpr bool takes_channels(int keep) { return keep == 2 || keep == 4; }
// With fewer blocks a channel, sectors of coefficients are those of few places anyway.
inline constexpr std::uint32_t kLeastPlaces = 16;

struct ChopChannels {
  cuda::PlaneBlocks blocks;
  float* coefs;
  std::int64_t row_values;                  // of coefficients, in one row of a row of blocks
  std::uint32_t pairs, places;              // of channels, and blocks of a channel
  std::uint32_t pair_chunks, place_chunks;  // of a warp
  std::uint32_t warps;
  cuda::Divider by_pair_chunks, by_place_chunks;

  // Nothing where the kernel does not take the tensor.
  static std::optional<ChopChannels> of(const cuda::PlaneBlocks& b, const StoredCoefs& stored) {
    const cuda::BlockOrder order = cuda::BlockOrder::of(b);
    if (b.dtype != DType::BF16 || stored.triangle || stored.planes ||
        !cuda::has_channel_pairs(b, order) || order.run_length < kLeastPlaces) {
      return std::nullopt;
    }
    ChopChannels c{.blocks = b,
                   .coefs = static_cast<float*>(stored.data),
                   .row_values = stored.row_values,
                   .pairs = order.lane_length / 2,
                   .places = order.run_length};
    c.pair_chunks = (c.pairs + kWarpPairs - 1) / kWarpPairs;
    c.place_chunks = (c.places + kWarpPlaces - 1) / kWarpPlaces;
    const std::int64_t warps =
        static_cast<std::int64_t>(c.pair_chunks) * c.place_chunks * order.outer;
    if (warps >= std::int64_t{1} << 31) return std::nullopt;
    c.warps = static_cast<std::uint32_t>(warps);
    c.by_pair_chunks = cuda::Divider(c.pair_chunks);
    c.by_place_chunks = cuda::Divider(c.place_chunks);
    return c;
  }
  // The block of the thread's first channel.
  struct Own {
    std::uint32_t block;
    bool exists;
  };
  __device__ Own own() const {
    const std::uint32_t warp = (blockIdx.x * kChopChannelThreads + threadIdx.x) / cuda::kWarp;
    const std::uint32_t lane = threadIdx.x % cuda::kWarp;
    const std::uint32_t above = by_pair_chunks.quotient(warp);
    const std::uint32_t outer = by_place_chunks.quotient(above);
    const std::uint32_t pair = (warp - above * pair_chunks) * kWarpPairs + lane % kWarpPairs;
    const std::uint32_t place = (above - outer * place_chunks) * kWarpPlaces + lane / kWarpPairs;
    return {.block = (outer * pairs + pair) * 2 * places + place,
            .exists = warp < warps && pair < pairs && place < places};
  }
  // The first of a block's coefficients.
  template <int kKeep>
  __device__ float* first(std::uint32_t block) const {
    const std::uint32_t block_row = blocks.by_block_cols.quotient(block);
    return coefs + static_cast<std::int64_t>(block_row) * kKeep * row_values +
           (block - block_row * blocks.block_cols) * kKeep;
  }
};

template <int kKeep>
__global__ void __launch_bounds__(kChopChannelThreads, 2)
    pack_channels(const __grid_constant__ ChopChannels args) {
  const ChopChannels::Own own = args.own();
  cuda::wait_for_previous_kernel();
  if (!own.exists) return;
  float half[2][8 * kKeep];
  cuda::load_columns<BF16>(args.blocks, args.blocks.spot(own.block, true),
                           [&](int j, const auto& values) {
#pragma unroll
                             for (int k = 0; k < 2; ++k)
                               forward_column_8(kKeep, values[k], 1, half[k] + j, 8);
                           });
  cuda::allow_next_kernel();
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    float coefs[kKeep * kKeep];
#pragma unroll
    for (int u = 0; u < kKeep; ++u) {
      forward_row_8(kScaled[u], kKeep, half[k] + 8 * u, coefs + u * kKeep);
    }
    settle_nans(kKeep, kKeep, coefs, kKeep);
    float* to = args.first<kKeep>(own.block + static_cast<std::uint32_t>(k) * args.places);
#pragma unroll
    for (int u = 0; u < kKeep; ++u) {
      Row<float, kKeep> row;
#pragma unroll
      for (int v = 0; v < kKeep; ++v) row.values[v] = coefs[u * kKeep + v];
      *reinterpret_cast<Row<float, kKeep>*>(to + u * args.row_values) = row;
    }
  }
}

}  // namespace tuckfold::dct_chop
