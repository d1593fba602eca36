// dct_chop on CUDA for blocks of 8 of tensors that are no contiguous rows of whole blocks, or of many
// tensors in one launch. Each thread has a block. Coefficients that are neighbours in the packed tensor, but belong to threads of
// different warps, go through shared memory, so that they are stored together.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/cuda/tensor_table.cuh"
#include "codec/blocks/planes_move_cuda.cuh"
#include "codec/dct_chop/dct_chop_cuda.cuh"

namespace tuckfold::dct_chop {

struct PlaneArgs {
  cuda::PlaneBlocks blocks;
  cuda::BlockDeal deal;
  StoredCoefs stored;
  DType coef;
  std::uint32_t first_cta;
};
template <int kMost>
using PlaneTable = cuda::TensorTable<PlaneArgs, kMost>;
inline constexpr int kMostPlanes = cuda::kMostTensors<PlaneArgs>;

inline constexpr int kPlaneThreads = 128;
// All threads of a CTA wait for staged rows at the same time, so other CTAs must have work meanwhile.
inline constexpr int kPlanePackBlocksPerSm = 5;
inline constexpr int plane_unpack_blocks_per_sm(cuda::Walks walks, int keep) {
  return walks == cuda::Walks::Staged && keep <= 5 ? 6 : 5;
}

// Whether the CTA's rows are staged, which all its threads know.
template <cuda::Walks kWalks>
__device__ TUCKFOLD_INLINE bool stages(const PlaneArgs& args) {
  return kWalks == cuda::Walks::Staged ||
         (kWalks == cuda::Walks::Any && args.blocks.walk == cuda::Walk::Staged);
}

// Distance of the threads' coefficients in shared memory, odd to avoid bank conflicts.
template <int kKeep>
inline constexpr int kPlanePitch = kKeep* kKeep | 1;

// kCount coefficients side by side, as they are stored.
template <class Coef, int kCount>
struct alignas(kCount * sizeof(Coef)) CoefPiece {
  Coef values[kCount];
};
// So many of a row that one access moves them.
template <class Coef, int kKeep>
inline constexpr int kCoefPiece = (kKeep & (kKeep - 1)) != 0  ? 1
                                  : kKeep * sizeof(Coef) > 16 ? 16 / static_cast<int>(sizeof(Coef))
                                                              : kKeep;

// The CTA's coefficients are moved so many a thread at a time.
inline constexpr int kCoefTurns = 8;

// Calls visit(turn, place in the packed tensor, the thread that has the block, number in it) for the
// first of kCount coefficients side by side, kCoefTurns times from turn `first_turn` on, where
// those of a block are together. Neighbouring threads are given neighbouring places. kCount is 1 but
// for rows of squares.
template <int kKeep, int kCount, class Visit>
__device__ TUCKFOLD_INLINE void for_some_coefs(const PlaneArgs& args,
                                               const cuda::BlockDeal::Share& share, int first_turn,
                                               Visit&& visit) {
  constexpr std::uint32_t kTriangle = kKeep * (kKeep + 1) / 2, kSquare = kKeep * kKeep;
  const StoredCoefs& s = args.stored;
  const cuda::BlockDeal& deal = args.deal;
  const std::uint32_t run = deal.run, blocks = run * share.lanes;
  const std::uint32_t total = (s.triangle ? kTriangle : kSquare / kCount) * blocks;
#pragma unroll
  for (int turn = 0; turn < kCoefTurns; ++turn) {
    const std::uint32_t i =
        static_cast<std::uint32_t>(first_turn + turn) * kPlaneThreads + threadIdx.x;
    std::uint32_t lane, place, number;
    if (s.triangle) {  // by lanes, places, numbers
      const std::uint32_t above = i / kTriangle;
      number = i - above * kTriangle;
      lane = deal.by_run.quotient(above);
      place = above - lane * run;
    } else {  // by lanes, rows of squares, places, columns
      constexpr std::uint32_t kPieces = kKeep / kCount;
      const std::uint32_t first = i / kPieces, second = deal.by_run.quotient(first);
      place = first - second * run;
      lane = second / kKeep;
      number = (second - lane * kKeep) * kKeep + (i - first * kPieces) * kCount;
    }
    if (i >= total || place >= share.run) continue;
    const std::uint32_t block = deal.block(share, lane, place);
    std::int64_t at;
    if (s.triangle) {
      at = static_cast<std::int64_t>(block) * kTriangle + number;
    } else {
      const std::uint32_t block_row = args.blocks.by_block_cols.quotient(block);
      const std::uint32_t col = block - block_row * args.blocks.block_cols, u = number / kKeep;
      at = (static_cast<std::int64_t>(block_row) * kKeep + u) * s.row_values + col * kKeep +
           (number - u * kKeep);
    }
    visit(turn, at, (place << deal.lane_shift) + lane, number);
  }
}

template <class Visit>
__device__ TUCKFOLD_INLINE void with_coef(DType coef, Visit&& visit) {
  switch (coef) {
    case DType::F16: return visit(F16{});
    case DType::BF16: return visit(BF16{});
    default: return visit(float{});
  }
}

// Whether threads move coefficients by themselves: whole rows of a square, or where all threads of a
// warp have neighbours of one frequency. To store half a sector each takes longer than to put them
// together; to load it does not.
template <class Coef, int kKeep, bool kPack>
__device__ TUCKFOLD_INLINE bool moves_alone(const PlaneArgs& args) {
  if (args.stored.planes) return args.deal.lanes == 1;
  return !args.stored.triangle && kLoadsRow<Coef, kKeep> && (!kPack || args.deal.lanes == 1);
}

// Calls visit(place in the packed tensor, number of the first coefficient) for every kCount of a
// block's square that lie side by side.
template <int kKeep, int kCount, class Visit>
__device__ TUCKFOLD_INLINE void for_each_own(const PlaneArgs& args, std::uint32_t block,
                                             Visit&& visit) {
  const std::uint32_t block_row = args.blocks.by_block_cols.quotient(block);
  const std::uint32_t col = block - block_row * args.blocks.block_cols;
  const std::int64_t first =
      static_cast<std::int64_t>(block_row) * kKeep * args.stored.row_values + col * kKeep;
#pragma unroll
  for (int i = 0; i < kKeep * kKeep; i += kCount) {
    visit(first + i / kKeep * args.stored.row_values + i % kKeep, i);
  }
}

template <int kKeep, cuda::Walks kWalks, int kMost>
__global__ void __launch_bounds__(kPlaneThreads, kPlanePackBlocksPerSm)
    pack_planes(const __grid_constant__ PlaneTable<kMost> table) {
  const PlaneArgs& args = table.of(blockIdx.x);
  const cuda::BlockDeal::Share share = args.deal.share(blockIdx.x - args.first_cta);
  const cuda::BlockSpot spot = args.deal.spot(args.blocks, share, threadIdx.x);
  unsigned char* shared = cuda::shared_memory();
  auto* tile = reinterpret_cast<float*>(shared);
  cuda::wait_for_previous_kernel();
  float x[64], coefs[kKeep * kKeep];
  cuda::load_planes<false, kWalks>(args.blocks, {share.first, share.first + share.run}, spot,
                                   shared, x);
  forward_block_8(kKeep, x, 8, coefs);
  cuda::allow_next_kernel();
  with_coef(args.coef, [&](auto coef) {
    using Coef = decltype(coef);
    constexpr int kCount = kCoefPiece<Coef, kKeep>;
    Coef* to = static_cast<Coef*>(args.stored.data);
    if (moves_alone<Coef, kKeep, true>(args)) {
      if (!spot.exists) return;
      if (args.stored.planes) {
        const auto put = [&](int i, int number) {
          to[number * args.stored.blocks + spot.block] = cuda::from_float<Coef>(coefs[i]);
        };
        args.stored.triangle ? for_each_value<kKeep, true>(put) : for_each_value<kKeep, false>(put);
      } else {
        for_each_own<kKeep, kCount>(args, spot.block, [&](std::int64_t place, int first) {
          CoefPiece<Coef, kCount> piece;
#pragma unroll
          for (int i = 0; i < kCount; ++i) {
            piece.values[i] = cuda::from_float<Coef>(coefs[first + i]);
          }
          *reinterpret_cast<CoefPiece<Coef, kCount>*>(to + place) = piece;
        });
      }
      return;
    }
    if (stages<kWalks>(args)) __syncthreads();  // rows were where the tile is
    if (args.stored.planes) {
      float* mine = tile + args.deal.own_slot(share, threadIdx.x) * kPlanePitch<kKeep>;
      const auto put = [&](int i, int number) {
        if (spot.exists) mine[number] = coefs[i];
      };
      args.stored.triangle ? for_each_value<kKeep, true>(put) : for_each_value<kKeep, false>(put);
      __syncthreads();
      const auto turned = args.deal.in_packed_order(share, threadIdx.x);
      if (!turned.exists) return;
      const float* theirs = tile + turned.slot * kPlanePitch<kKeep>;
      const auto store = [&](int, int number) {
        to[number * args.stored.blocks + turned.block] = cuda::from_float<Coef>(theirs[number]);
      };
      args.stored.triangle ? for_each_value<kKeep, true>(store)
                           : for_each_value<kKeep, false>(store);
      return;
    }
    float* mine = tile + static_cast<int>(threadIdx.x) * kPlanePitch<kKeep>;
    const auto put = [&](int i, int number) { mine[number] = coefs[i]; };
    args.stored.triangle ? for_each_value<kKeep, true>(put) : for_each_value<kKeep, false>(put);
    __syncthreads();
    const auto store = [&]<int kMany>() {
#pragma unroll 1
      for (int turn = 0; turn < kKeep * kKeep / kMany; turn += kCoefTurns) {
        for_some_coefs<kKeep, kMany>(
            args, share, turn,
            [&](int, std::int64_t place, std::uint32_t thread, std::uint32_t number) {
              CoefPiece<Coef, kMany> piece;
#pragma unroll
              for (int i = 0; i < kMany; ++i) {
                piece.values[i] =
                    cuda::from_float<Coef>(tile[thread * kPlanePitch<kKeep> + number + i]);
              }
              *reinterpret_cast<CoefPiece<Coef, kMany>*>(to + place) = piece;
            });
      }
    };
    if (kCount == 1 || args.stored.triangle) {
      store.template operator()<1>();
    } else {
      store.template operator()<kCount>();
    }
  });
}

template <int kKeep, cuda::Walks kWalks, int kMost>
__global__ void __launch_bounds__(kPlaneThreads, plane_unpack_blocks_per_sm(kWalks, kKeep))
    unpack_planes(const __grid_constant__ PlaneTable<kMost> table) {
  const PlaneArgs& args = table.of(blockIdx.x);
  const cuda::BlockDeal::Share share = args.deal.share(blockIdx.x - args.first_cta);
  const cuda::BlockSpot spot = args.deal.spot(args.blocks, share, threadIdx.x);
  unsigned char* shared = cuda::shared_memory();
  auto* tile = reinterpret_cast<float*>(shared);
  cuda::wait_for_previous_kernel();
  float x[64], coefs[kKeep * kKeep];
#pragma unroll
  for (int i = 0; i < kKeep * kKeep; ++i) coefs[i] = 0.0f;
  with_coef(args.coef, [&](auto coef) {
    using Coef = decltype(coef);
    constexpr int kCount = kCoefPiece<Coef, kKeep>;
    const Coef* from = static_cast<const Coef*>(args.stored.data);
    if (moves_alone<Coef, kKeep, false>(args)) {
      if (args.stored.planes) {
        const auto take = [&](int i, int number) {
          coefs[i] = cuda::as_float(from[number * args.stored.blocks + spot.block]);
        };
        args.stored.triangle ? for_each_value<kKeep, true>(take)
                             : for_each_value<kKeep, false>(take);
      } else {
        for_each_own<kKeep, kCount>(args, spot.block, [&](std::int64_t place, int first) {
          const auto piece = *reinterpret_cast<const CoefPiece<Coef, kCount>*>(from + place);
#pragma unroll
          for (int i = 0; i < kCount; ++i) coefs[first + i] = cuda::as_float(piece.values[i]);
        });
      }
      return;
    }
    if (args.stored.planes) {
      const auto turned = args.deal.in_packed_order(share, threadIdx.x);
      Coef values[kKeep * kKeep];  // all loads before the first use
      const auto load = [&](int i, int number) {
        values[i] = from[number * args.stored.blocks + turned.block];
      };
      args.stored.triangle ? for_each_value<kKeep, true>(load) : for_each_value<kKeep, false>(load);
      float* theirs = tile + turned.slot * kPlanePitch<kKeep>;
      const auto put = [&](int i, int number) {
        if (turned.exists) theirs[number] = cuda::as_float(values[i]);
      };
      args.stored.triangle ? for_each_value<kKeep, true>(put) : for_each_value<kKeep, false>(put);
      __syncthreads();
      const float* mine = tile + args.deal.own_slot(share, threadIdx.x) * kPlanePitch<kKeep>;
      const auto take = [&](int i, int number) { coefs[i] = mine[number]; };
      args.stored.triangle ? for_each_value<kKeep, true>(take) : for_each_value<kKeep, false>(take);
      return;  // there are lanes, so rows are not staged
    }
#pragma unroll 1
    for (int turn = 0; turn < kKeep * kKeep; turn += kCoefTurns) {
      Coef values[kCoefTurns];  // all loads before the first use
      for_some_coefs<kKeep, 1>(args, share, turn,
                               [&](int i, std::int64_t place, std::uint32_t, std::uint32_t) {
                                 values[i] = from[place];
                               });
      for_some_coefs<kKeep, 1>(
          args, share, turn, [&](int i, std::int64_t, std::uint32_t thread, std::uint32_t number) {
            tile[thread * kPlanePitch<kKeep> + number] = cuda::as_float(values[i]);
          });
    }
    __syncthreads();
    const float* mine = tile + static_cast<int>(threadIdx.x) * kPlanePitch<kKeep>;
    const auto take = [&](int i, int number) { coefs[i] = mine[number]; };
    args.stored.triangle ? for_each_value<kKeep, true>(take) : for_each_value<kKeep, false>(take);
    if (stages<kWalks>(args)) __syncthreads();  // rows go where the tile was
  });
  cuda::allow_next_kernel();
  inverse_unsettled_8(kKeep, coefs, x, 8);
  if (args.blocks.dtype == DType::F32) settle_nans(8, 8, x, 8);
  cuda::store_planes<false, kWalks>(args.blocks, {share.first, share.first + share.run}, spot,
                                    shared, x);
}

}  // namespace tuckfold::dct_chop
