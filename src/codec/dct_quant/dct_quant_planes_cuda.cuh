// dct_quant on CUDA for rates up to 8 and tensors that are no contiguous rows of whole blocks, or
// many tensors in one launch. Blocks are packed as in the kernels for one of whole blocks; here each
// thread loads or stores its own packed bytes.
#pragma once

#include "base/cuda/tensor_table.cuh"
#include "codec/blocks/planes_move_cuda.cuh"
#include "codec/dct_quant/dct_quant_unpack_cuda.cuh"

namespace tuckfold::dct_quant {

struct PlaneArgs {
  cuda::PlaneBlocks blocks;
  cuda::BlockDeal deal;
  Params params;
  std::uint8_t* packed;
  int slot_bytes;            // of a block in shared memory where it is packed, whole words
  std::uint32_t slots_from;  // bytes of shared memory before the packed ones
  std::uint32_t first_cta;
};
template <int kMost>
using PlaneTable = cuda::TensorTable<PlaneArgs, kMost>;
inline constexpr int kMostPlanes = cuda::kMostTensors<PlaneArgs>;

inline constexpr int kPlaneThreads = 128;

// Kernels of f32 alone, as those of whole blocks have them.
inline constexpr int plane_blocks_per_sm(bool f32) { return f32 ? 5 : 4; }

// The words of a block's packed bytes that a thread moves at once.
template <int kWords>
struct alignas(4 * kWords) PackedPiece {
  std::uint32_t words[kWords];
};

template <int kTiles, bool kF32, cuda::Walks kWalks, int kMost>
__global__ __launch_bounds__(kPlaneThreads, plane_blocks_per_sm(kF32)) void pack_planes_kernel(
    const __grid_constant__ PlaneTable<kMost> table) {
  const PlaneArgs& args = table.of(blockIdx.x);
  const cuda::BlockDeal::Share share = args.deal.share(blockIdx.x - args.first_cta);
  const cuda::BlockSpot spot = args.deal.spot(args.blocks, share, threadIdx.x);
  unsigned char* shared = cuda::shared_memory();
  cuda::wait_for_previous_kernel();
  float x[64];
  cuda::load_planes<kF32, kWalks>(args.blocks, {share.first, share.first + share.run}, spot, shared,
                                  x);
  if (args.params.offset != 0) {
#pragma unroll
    for (int i = 0; i < 64; ++i) x[i] = x[i] - args.params.offset;
  }
  std::uint32_t* slot = reinterpret_cast<std::uint32_t*>(shared + args.slots_from) +
                        static_cast<int>(threadIdx.x) * (args.slot_bytes / 4);
  cuda::allow_next_kernel();
  pack_fast<kTiles>(args.params.form, x, slot);
  if (!spot.exists) return;

  // Blocks are 16 to 64 bytes, so that what a thread stores by itself is whole sectors or nearly.
  const int bytes = args.params.form.bytes;
  std::uint8_t* to = args.packed + static_cast<std::int64_t>(spot.block) * bytes;
  const auto store = [&]<int kWords>() {
    for (int at = 0; at < bytes; at += 4 * kWords) {
      PackedPiece<kWords> piece;
#pragma unroll
      for (int i = 0; i < kWords; ++i) piece.words[i] = slot[at / 4 + i];
      *reinterpret_cast<PackedPiece<kWords>*>(to + at) = piece;
    }
  };
  if (bytes % 16 == 0) {
    store.template operator()<4>();
  } else if (bytes % 8 == 0) {
    store.template operator()<2>();
  } else {
    for (int at = 0; at < bytes; ++at) {
      to[at] = static_cast<std::uint8_t>(slot[at / 4] >> (at % 4 * 8));
    }
  }
}

// Shared memory of a warp: the table of widths, then packed bytes.
TUCKFOLD_HOST_DEVICE inline constexpr int plane_warp_bytes(const Form& form) {
  return kTableBytes + ((form.bytes + 3) / 4 + kSlackRows) * Words::kStep;
}

template <int kTiles, bool kF32, cuda::Walks kWalks, int kMost>
__global__ __launch_bounds__(kPlaneThreads, plane_blocks_per_sm(kF32)) void unpack_planes_kernel(
    const __grid_constant__ PlaneTable<kMost> tensors) {
  const PlaneArgs& args = tensors.of(blockIdx.x);
  const cuda::BlockDeal::Share share = args.deal.share(blockIdx.x - args.first_cta);
  const cuda::BlockSpot spot = args.deal.spot(args.blocks, share, threadIdx.x);
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp;
  const int warp = static_cast<int>(threadIdx.x) / cuda::kWarp;
  const Form& form = args.params.form;
  unsigned char* shared = cuda::shared_memory();
  unsigned char* table = shared + args.slots_from + warp * plane_warp_bytes(form);
  unsigned char* slot = table + kTableBytes + 4 * lane;

  cuda::wait_for_previous_kernel();
  const int bytes = form.bytes;
  const std::uint8_t* from = args.packed + static_cast<std::int64_t>(spot.block) * bytes;
  const auto fetch = [&]<int kWords>() {  // all loads before the first use
    constexpr int kPieces = kMaxFastBytes / (4 * kWords);
    PackedPiece<kWords> pieces[kPieces];
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      if (4 * kWords * i < bytes) {
        pieces[i] = *reinterpret_cast<const PackedPiece<kWords>*>(from + 4 * kWords * i);
      }
    }
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      if (4 * kWords * i >= bytes) continue;
#pragma unroll
      for (int j = 0; j < kWords; ++j) {
        *reinterpret_cast<std::uint32_t*>(slot + (kWords * i + j) * Words::kStep) =
            pieces[i].words[j];
      }
    }
  };
  if (bytes % 16 == 0) {
    fetch.template operator()<4>();
  } else if (bytes % 8 == 0) {
    fetch.template operator()<2>();
  } else {
    for (int at = 0; at < bytes; ++at) slot[at / 4 * Words::kStep + at % 4] = from[at];
  }
  fill_table(table, lane);
  cuda::allow_next_kernel();
  __syncwarp();

  float x[64];
  const bool numbers = unpack_fast<kTiles>(form, {slot}, table, x);
  if (args.params.offset != 0) {
#pragma unroll
    for (int i = 0; i < 64; ++i) x[i] = x[i] + args.params.offset;
  }
  if (args.params.clamp) {
#pragma unroll
    for (int i = 0; i < 64; ++i) x[i] = x[i] < 0 ? 0.0f : x[i];
  }
  if (!numbers) {
#pragma unroll
    for (int i = 0; i < 64; ++i) x[i] = canonical(x[i]);
  }
  cuda::store_planes<kF32, kWalks>(args.blocks, {share.first, share.first + share.run}, spot,
                                   shared, x, are_tame(numbers, args.blocks.dtype));
}

}  // namespace tuckfold::dct_quant
