// dct_chop | block_quant on CUDA: which kernel takes which tensor. Others are packed by the two
// codecs one after the other.
#include <algorithm>
#include <array>
#include <utility>

#include "codec/pairs/dct_chop_block_quant_cuda.cuh"
#include "codec/registry.h"

namespace tuckfold::dct_chop {
namespace {

using cuda::View;

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

using PlaneKernel = void (*)(PlaneBlocks, PairDeal, Quantized);

template <bool kPack, bool kStaged, int... K>
PlaneKernel plane_kernel(int keep, std::integer_sequence<int, K...>) {
  if constexpr (kPack) {
    constexpr std::array<PlaneKernel, 8> kKernels = {pack_pair_planes<K + 1, kStaged>...};
    return kKernels[static_cast<std::size_t>(keep - 1)];
  } else {
    constexpr std::array<PlaneKernel, 8> kKernels = {unpack_pair_planes<K + 1, kStaged>...};
    return kKernels[static_cast<std::size_t>(keep - 1)];
  }
}

// How groups are dealt to CTAs, or none of them where loads would use less than whole sectors, or
// many stores would: two kernels then do it faster.
template <bool kPack>
PairDeal deal_of(const PlaneBlocks& b, std::size_t group_bytes) {
  constexpr std::uint32_t kSector = 32, kMostGroups = 4;
  constexpr std::size_t kRoom = 76 << 10;  // so that two CTAs fit a multiprocessor of any kind
  constexpr PairDeal kNone{};
  if (b.walk == cuda::Walk::Rows) return {.groups = 1, .apart = 1};
  if (b.walk == cuda::Walk::Staged) {
    if (kGroup % b.block_cols != 0) return kNone;
    return {.groups = 1,
            .apart = 1,
            .tile_from = static_cast<std::uint32_t>(cuda::staged_bytes(b, kGroup))};
  }
  const cuda::BlockDeal order = cuda::BlockDeal::of(b, kGroup);
  if (order.lane_length == 1) return kNone;
  const auto side = static_cast<std::uint32_t>(size_bytes(b.dtype)) *
                    (b.walk == cuda::Walk::Columns ? 8 : 1);  // bytes of a block side by side
  PairDeal deal{.groups = 1, .apart = order.run_length};
  const auto reach = [&] { return deal.groups * kGroup / deal.apart * side; };
  while (reach() < 2 * kSector && deal.groups < kMostGroups &&
         2 * deal.groups * group_bytes <= kRoom) {
    deal.groups *= 2;
  }
  const bool whole =
      (deal.groups * kGroup % deal.apart == 0 && reach() % kSector == 0) || reach() >= 16 * kSector;
  return reach() < kSector || (!kPack && !whole) ? kNone : deal;
}

template <bool kPack>
bool run_planes(const Params& p, const PlaneBlocks& blocks, const Quantized& quantized,
                void* stream) {
  const std::size_t group_bytes =
      sizeof(float) * Padded::kPitch * static_cast<std::size_t>(p.values_per_block());
  const PairDeal deal = deal_of<kPack>(blocks, group_bytes);
  const std::size_t shared_bytes = deal.tile_from + deal.groups * group_bytes;
  if (deal.groups == 0 || shared_bytes > cuda::device().shared_bytes) return false;
  constexpr std::make_integer_sequence<int, 8> kKeeps;
  cuda::launch(blocks.walk == cuda::Walk::Staged ? plane_kernel<kPack, true>(p.keep, kKeeps)
                                                 : plane_kernel<kPack, false>(p.keep, kKeeps),
               {.blocks = cuda::blocks_for(quantized.groups, deal.groups),
                .threads = kGroup,
                .shared_bytes = shared_bytes},
               stream, blocks, deal, quantized);
  return true;
}

template <bool kPack, class Pointer>
bool run_pair(const Stage& first, const Stage& second, const BasicTensorView<Pointer>& tensor,
              std::byte* packed, CudaContext run) {
  const View view = View::of(tensor);
  const Params p = Params::of(first);
  const block_quant::Params q = block_quant::Params::of(second);
  if (view.elems == 0 || p.block != 8 || !p.planes || p.coef != DType::F32 || q.group != kGroup) {
    return false;
  }
  const Blocks b = blocks_of(p, tensor.shape);
  const std::int64_t blocks = b.all_block_rows() * b.block_cols;
  if (blocks % kGroup != 0) return false;
  const std::int64_t groups = blocks / kGroup;
  auto* codes = reinterpret_cast<std::uint8_t*>(packed);
  const Quantized quantized{.codes = codes,
                            .headers = reinterpret_cast<Header*>(
                                codes + p.values_per_block() * groups * q.code_bytes(kGroup)),
                            .groups = groups,
                            .bits = q.bits,
                            .stochastic = q.stochastic,
                            .exact_zero = q.exact_zero,
                            .seed = run.seed,
                            .device_seed = run.device_seed};
  const bool type = view.dtype == DType::F32 || view.dtype == DType::BF16;
  if (!type || !WholeBlocks::suits(view, b)) {
    const auto planes = PlaneBlocks::of(tensor, b);
    return planes && !p.triangle && run_planes<kPack>(p, *planes, quantized, run.stream);
  }
  constexpr std::make_integer_sequence<int, 8> kKeeps;
  const PairKernel kernel = view.dtype == DType::F32
                                ? pair_kernel<float, kPack>(p.keep, p.triangle, kKeeps)
                                : pair_kernel<BF16, kPack>(p.keep, p.triangle, kKeeps);
  const std::size_t shared_bytes = sizeof(float) * kGroup * p.values_per_block();
  cuda::launch(kernel, {groups, kGroup, shared_bytes}, run.stream, WholeBlocks::of(view, b),
               quantized);
  return true;
}

bool pack_both(const Stage& first, const Stage& second, const ConstTensorView& in,
               std::span<std::byte> out, CudaContext run) {
  return run_pair<true>(first, second, in, out.data(), run);
}

bool unpack_both(const Stage& first, const Stage& second, std::span<const std::byte> packed,
                 const TensorView& out, CudaContext run) {
  return run_pair<false>(first, second, out, const_cast<std::byte*>(packed.data()), run);
}

}  // namespace

TUCKFOLD_WEAK extern const CudaPair kWithBlockQuant;
const CudaPair kWithBlockQuant = {&kDctChop, &kBlockQuant, pack_both, unpack_both};

}  // namespace tuckfold::dct_chop
