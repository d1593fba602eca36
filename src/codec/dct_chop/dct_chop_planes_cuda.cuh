// dct_chop on CUDA for blocks of 8 of tensors that are no dense rows of whole blocks. A thread has a
// block; its coefficients go by way of shared memory, so that whichever way blocks are dealt out
// those that are neighbours in the packed tensor are stored together.
#pragma once

#include <cstdint>
#include <type_traits>

#include "codec/blocks/planes_move_cuda.cuh"
#include "codec/dct_chop/dct_chop_cuda.cuh"

namespace tuckfold::dct_chop {

struct PlaneArgs {
  cuda::PlaneBlocks blocks;
  cuda::BlockDeal deal;
  StoredCoefs stored;
  DType coef;
};

inline constexpr int kPlaneThreads = 128;

// Coefficients of a thread in shared memory, in a bank of their own.
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

// Calls visit(place in the packed tensor, the thread that has the block, value's number in it) for
// the first of every kCount coefficients of the CTA that lie side by side. Neighbouring
// threads are given neighbouring places.
template <int kKeep, int kCount, class Visit>
__device__ TUCKFOLD_INLINE void for_each_coef(const PlaneArgs& args,
                                              const cuda::BlockDeal::Share& share, Visit&& visit) {
  const StoredCoefs& s = args.stored;
  const cuda::BlockDeal& deal = args.deal;
  const auto thread_of = [&](std::uint32_t lane, std::uint32_t place) {
    return (place << deal.lane_shift) + lane;
  };
  const std::uint32_t run = deal.run;
  const auto loop = [&](std::uint32_t total, auto&& body) {
#pragma unroll 4
    for (std::uint32_t i = threadIdx.x; i < total; i += kPlaneThreads) body(i);
  };
  if (s.planes) {
    const std::uint32_t values = s.triangle ? kKeep * (kKeep + 1) / 2 : kKeep * kKeep;
    const std::uint32_t of_value = run * share.lanes;
    loop(values * of_value, [&](std::uint32_t i) {
      const std::uint32_t above = deal.by_run.quotient(i), place = i - above * run;
      const std::uint32_t value = share.lanes == 1 ? above : above / share.lanes;
      const std::uint32_t lane = above - value * share.lanes;
      if (place >= share.run) return;
      visit(value * s.blocks + deal.block(share, lane, place), thread_of(lane, place), value);
    });
  } else if (s.triangle) {
    constexpr std::uint32_t kValues = kKeep * (kKeep + 1) / 2;
    loop(kValues * run * share.lanes, [&](std::uint32_t i) {
      const std::uint32_t above = i / kValues, value = i - above * kValues;
      const std::uint32_t lane = deal.by_run.quotient(above), place = above - lane * run;
      if (place >= share.run) return;
      visit(static_cast<std::int64_t>(deal.block(share, lane, place)) * kValues + value,
            thread_of(lane, place), value);
    });
  } else {
    constexpr std::uint32_t kPieces = kKeep / kCount;  // of a row
    loop(kPieces * kKeep * run * share.lanes, [&](std::uint32_t i) {
      const std::uint32_t first = i / kPieces, v = (i - first * kPieces) * kCount;
      const std::uint32_t second = deal.by_run.quotient(first), place = first - second * run;
      const std::uint32_t lane = second / kKeep, u = second - lane * kKeep;
      if (place >= share.run) return;
      const std::uint32_t block = deal.block(share, lane, place);
      const std::uint32_t block_row = args.blocks.by_block_cols.quotient(block);
      const std::uint32_t col = block - block_row * args.blocks.block_cols;
      visit((static_cast<std::int64_t>(block_row) * kKeep + u) * s.row_values + col * kKeep + v,
            thread_of(lane, place), u * kKeep + v);
    });
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

// Calls visit.operator()<Coef, kCount>(): how many coefficients move together.
template <int kKeep, class Visit>
__device__ TUCKFOLD_INLINE void with_pieces(const PlaneArgs& args, Visit&& visit) {
  with_coef(args.coef, [&](auto coef) {
    using Coef = decltype(coef);
    if (args.stored.planes || args.stored.triangle) {
      visit.template operator()<Coef, 1>();
    } else {
      visit.template operator()<Coef, kCoefPiece<Coef, kKeep>>();
    }
  });
}

template <int kKeep>
__global__ void __launch_bounds__(kPlaneThreads, 4)
    pack_planes(const __grid_constant__ PlaneArgs args) {
  const cuda::BlockDeal::Share share = args.deal.share(blockIdx.x);
  const cuda::BlockSpot spot = args.deal.spot(args.blocks, share, threadIdx.x);
  unsigned char* shared = cuda::shared_memory();
  auto* tile = reinterpret_cast<float*>(shared);
  cuda::wait_for_previous_kernel();
  float x[64], coefs[kKeep * kKeep];
  cuda::load_planes(args.blocks, {share.first, share.first + share.run}, spot, shared, x);
  forward_block_8(kKeep, x, 8, coefs);
  if (args.blocks.walk == cuda::Walk::Staged) __syncthreads();  // rows were where the tile is
  cuda::allow_next_kernel();
  float* mine = tile + static_cast<int>(threadIdx.x) * kPlanePitch<kKeep>;
  const auto put = [&](int i, int number) { mine[number] = coefs[i]; };
  args.stored.triangle ? for_each_value<kKeep, true>(put) : for_each_value<kKeep, false>(put);
  __syncthreads();
  with_pieces<kKeep>(args, [&]<class Coef, int kCount>() {
    Coef* to = static_cast<Coef*>(args.stored.data);
    for_each_coef<kKeep, kCount>(args, share,
                                 [&](std::int64_t place, std::uint32_t thread, std::uint32_t at) {
                                   const float* from = tile + thread * kPlanePitch<kKeep> + at;
                                   CoefPiece<Coef, kCount> piece;
#pragma unroll
                                   for (int i = 0; i < kCount; ++i)
                                     piece.values[i] = cuda::from_float<Coef>(from[i]);
                                   *reinterpret_cast<CoefPiece<Coef, kCount>*>(to + place) = piece;
                                 });
  });
}

template <int kKeep>
__global__ void __launch_bounds__(kPlaneThreads, 4)
    unpack_planes(const __grid_constant__ PlaneArgs args) {
  const cuda::BlockDeal::Share share = args.deal.share(blockIdx.x);
  const cuda::BlockSpot spot = args.deal.spot(args.blocks, share, threadIdx.x);
  unsigned char* shared = cuda::shared_memory();
  auto* tile = reinterpret_cast<float*>(shared);
  cuda::wait_for_previous_kernel();
  with_pieces<kKeep>(args, [&]<class Coef, int kCount>() {
    const Coef* from = static_cast<const Coef*>(args.stored.data);
    for_each_coef<kKeep, kCount>(
        args, share, [&](std::int64_t place, std::uint32_t thread, std::uint32_t at) {
          const auto piece = *reinterpret_cast<const CoefPiece<Coef, kCount>*>(from + place);
          float* to = tile + thread * kPlanePitch<kKeep> + at;
#pragma unroll
          for (int i = 0; i < kCount; ++i) to[i] = cuda::as_float(piece.values[i]);
        });
  });
  __syncthreads();
  cuda::allow_next_kernel();
  float x[64], coefs[kKeep * kKeep];
#pragma unroll
  for (int i = 0; i < kKeep * kKeep; ++i) coefs[i] = 0.0f;
  const float* mine = tile + static_cast<int>(threadIdx.x) * kPlanePitch<kKeep>;
  const auto take = [&](int i, int number) { coefs[i] = mine[number]; };
  args.stored.triangle ? for_each_value<kKeep, true>(take) : for_each_value<kKeep, false>(take);
  if (args.blocks.walk == cuda::Walk::Staged) __syncthreads();  // rows go where the tile was
  inverse_block_8(kKeep, coefs, x, 8);
  cuda::store_planes(args.blocks, {share.first, share.first + share.run}, spot, shared, x);
}

}  // namespace tuckfold::dct_chop
