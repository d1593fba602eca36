// dct_quant on CUDA for rates up to 8 and tensors that are no dense rows of whole blocks. Blocks are
// packed as in the kernels of those; here a CTA's packed bytes are runs of blocks, one for each
// lane of its BlockDeal.
#pragma once

#include "codec/blocks/planes_move_cuda.cuh"
#include "codec/dct_quant/dct_quant_unpack_cuda.cuh"

namespace tuckfold::dct_quant {

struct PlaneArgs {
  cuda::PlaneBlocks blocks;
  cuda::BlockDeal deal;
  Params params;
  std::uint8_t* packed;
  int slot_bytes;            // of a block in shared memory where it is packed, whole words
  std::uint32_t per_byte;    // 2^20 / params.form.bytes, rounded up
  std::uint32_t slots_from;  // bytes of shared memory before the packed ones
};

inline constexpr int kPlaneThreads = 128;

// Calls visit(a piece's place in memory, the thread that has its block, its first byte there) for
// the kBytes of every piece of the CTA's packed bytes, neighbouring pieces by neighbouring threads.
// Blocks are of whole pieces, at most kMost for a thread.
template <int kBytes, int kMost, class Visit>
__device__ TUCKFOLD_INLINE void for_each_piece(const PlaneArgs& args,
                                               const cuda::BlockDeal::Share& share, Visit&& visit) {
  const auto bytes = static_cast<std::uint32_t>(args.params.form.bytes);
  const std::uint32_t of_run = share.run * bytes / kBytes, total = of_run * share.lanes;
#pragma unroll
  for (int turn = 0; turn < kMost; ++turn) {
    const std::uint32_t i = static_cast<std::uint32_t>(turn) * kPlaneThreads + threadIdx.x;
    if (i < total) {
      const std::uint32_t lane = share.lanes == 1 ? 0 : i / of_run;
      const std::uint32_t at = (i - lane * of_run) * kBytes;
      const std::uint32_t place = at * args.per_byte >> 20;
      const std::int64_t run = static_cast<std::int64_t>(args.deal.block(share, lane, 0)) * bytes;
      visit(turn, args.packed + run + at, (place << args.deal.lane_shift) + lane,
            at - place * bytes);
    }
  }
}

template <int kTiles>
__global__ __launch_bounds__(kPlaneThreads,
                             4) void pack_planes_kernel(const __grid_constant__ PlaneArgs args) {
  const cuda::BlockDeal::Share share = args.deal.share(blockIdx.x);
  const cuda::BlockSpot spot = args.deal.spot(args.blocks, share, threadIdx.x);
  unsigned char* shared = cuda::shared_memory();
  float x[64];
  cuda::load_planes(args.blocks, {share.first, share.first + share.run}, spot, shared, x);
  if (args.params.offset != 0) {
#pragma unroll
    for (int i = 0; i < 64; ++i) x[i] = x[i] - args.params.offset;
  }
  const int slot_words = args.slot_bytes / 4;
  auto* slots = reinterpret_cast<std::uint32_t*>(shared + args.slots_from);
  pack_fast<kTiles>(args.params.form, x, slots + static_cast<int>(threadIdx.x) * slot_words);
  __syncthreads();

  constexpr int kAny = kMaxFastBytes;
  const auto words = [&](std::uint32_t thread, std::uint32_t at) {
    return slots + thread * static_cast<std::uint32_t>(slot_words) + at / 4;
  };
  const int bytes = args.params.form.bytes;
  if (bytes % 16 == 0) {
    for_each_piece<16, kAny / 16>(
        args, share, [&](int, std::uint8_t* to, std::uint32_t thread, std::uint32_t at) {
          const std::uint32_t* from = words(thread, at);
          *reinterpret_cast<uint4*>(to) = make_uint4(from[0], from[1], from[2], from[3]);
        });
  } else if (bytes % 8 == 0) {
    for_each_piece<8, kAny / 8>(args, share,
                                [&](int, std::uint8_t* to, std::uint32_t thread, std::uint32_t at) {
                                  const std::uint32_t* from = words(thread, at);
                                  *reinterpret_cast<uint2*>(to) = make_uint2(from[0], from[1]);
                                });
  } else {
    for_each_piece<1, kAny>(args, share,
                            [&](int, std::uint8_t* to, std::uint32_t thread, std::uint32_t at) {
                              *to = static_cast<std::uint8_t>(*words(thread, at) >> (at % 4 * 8));
                            });
  }
}

// Shared memory of a warp: the table of widths, then packed bytes.
TUCKFOLD_HOST_DEVICE inline constexpr int plane_warp_bytes(const Form& form) {
  return kTableBytes + ((form.bytes + 3) / 4 + kSlackRows) * Words::kStep;
}

template <int kTiles>
__global__ __launch_bounds__(kPlaneThreads,
                             4) void unpack_planes_kernel(const __grid_constant__ PlaneArgs args) {
  const cuda::BlockDeal::Share share = args.deal.share(blockIdx.x);
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp;
  const Form& form = args.params.form;
  unsigned char* shared = cuda::shared_memory();
  unsigned char* packed = shared + args.slots_from;
  // Byte `at` of a thread's block: words of a lane lie in a bank of their own.
  const auto slot = [&](std::uint32_t thread, std::uint32_t at) {
    return packed + thread / cuda::kWarp * static_cast<std::uint32_t>(plane_warp_bytes(form)) +
           kTableBytes + at / 4 * Words::kStep + thread % cuda::kWarp * 4 + at % 4;
  };
  const auto put = [&](unsigned char* to, int word, std::uint32_t value) {
    *reinterpret_cast<std::uint32_t*>(to + word * Words::kStep) = value;
  };
  // All loads before the first use.
  constexpr int kAny = kMaxFastBytes;
  if (form.bytes % 16 == 0) {
    uint4 pieces[kAny / 16];
    for_each_piece<16, kAny / 16>(
        args, share, [&](int turn, const std::uint8_t* from, std::uint32_t, std::uint32_t) {
          pieces[turn] = *reinterpret_cast<const uint4*>(from);
        });
    for_each_piece<16, kAny / 16>(
        args, share, [&](int turn, const std::uint8_t*, std::uint32_t thread, std::uint32_t at) {
          unsigned char* to = slot(thread, at);
          put(to, 0, pieces[turn].x);
          put(to, 1, pieces[turn].y);
          put(to, 2, pieces[turn].z);
          put(to, 3, pieces[turn].w);
        });
  } else if (form.bytes % 8 == 0) {
    uint2 pieces[kAny / 8];
    for_each_piece<8, kAny / 8>(
        args, share, [&](int turn, const std::uint8_t* from, std::uint32_t, std::uint32_t) {
          pieces[turn] = *reinterpret_cast<const uint2*>(from);
        });
    for_each_piece<8, kAny / 8>(
        args, share, [&](int turn, const std::uint8_t*, std::uint32_t thread, std::uint32_t at) {
          unsigned char* to = slot(thread, at);
          put(to, 0, pieces[turn].x);
          put(to, 1, pieces[turn].y);
        });
  } else {
    for_each_piece<1, kAny>(
        args, share, [&](int, const std::uint8_t* from, std::uint32_t thread, std::uint32_t at) {
          *slot(thread, at) = *from;
        });
  }
  unsigned char* own =
      packed + static_cast<int>(threadIdx.x) / cuda::kWarp * plane_warp_bytes(form);
  fill_table(own, lane);
  __syncthreads();

  const cuda::BlockSpot spot = args.deal.spot(args.blocks, share, threadIdx.x);
  float x[64];
  const bool numbers = unpack_fast<kTiles>(form, {own + kTableBytes + 4 * lane}, own, x);
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
  cuda::store_planes(args.blocks, {share.first, share.first + share.run}, spot, shared, x);
}

}  // namespace tuckfold::dct_quant
