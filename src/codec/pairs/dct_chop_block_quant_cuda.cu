// dct_chop | block_quant on CUDA: which kernel takes which tensor. Others are packed by the two
// codecs one after the other.
#include <algorithm>
#include <array>
#include <utility>

#include "codec/pairs/dct_chop_block_quant_channels_cuda.cuh"
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

template <bool kStaged, int... K>
auto pack_plane_kernel(int keep, std::integer_sequence<int, K...>) {
  using Kernel = void (*)(PlaneBlocks, PairDeal, Quantized);
  constexpr std::array<Kernel, 8> kKernels = {pack_pair_planes<K + 1, kStaged>...};
  return kKernels[static_cast<std::size_t>(keep - 1)];
}
template <bool kStaged, int... K>
auto unpack_plane_kernel(int keep, std::integer_sequence<int, K...>) {
  using Kernel = void (*)(PairPlaneArgs);
  constexpr std::array<Kernel, 8> kKernels = {unpack_pair_planes<K + 1, kStaged>...};
  return kKernels[static_cast<std::size_t>(keep - 1)];
}

template <int... K>
auto unpack_group_kernel(int keep, std::integer_sequence<int, K...>) {
  using Kernel = void (*)(PlaneBlocks, PairDeal, Quantized);
  constexpr std::array<Kernel, 8> kKernels = {unpack_pair_groups<K + 1>...};
  return kKernels[static_cast<std::size_t>(keep - 1)];
}

template <int... K>
auto unpack_row_kernel(int keep, std::integer_sequence<int, K...>) {
  using Kernel = void (*)(PlaneBlocks, Quantized);
  constexpr std::array<Kernel, 8> kKernels = {unpack_pair_rows<K + 1>...};
  return kKernels[static_cast<std::size_t>(keep - 1)];
}

template <class T, int... K>
auto unpack_channel_kernel(int keep, std::integer_sequence<int, K...>) {
  using Kernel = void (*)(PairChannelArgs);
  constexpr std::array<Kernel, sizeof...(K)> kKernels = {unpack_pair_channels<T, K + 1>...};
  return kKernels[static_cast<std::size_t>(keep - 1)];
}

template <class T, bool kCluster, int... K>
auto pack_channel_kernel(int keep, std::integer_sequence<int, K...>) {
  using Kernel = void (*)(PlaneBlocks, ChannelGroups, Quantized);
  constexpr std::array<Kernel, sizeof...(K)> kKernels = {pack_pair_channels<T, K + 1, kCluster>...};
  return kKernels[static_cast<std::size_t>(keep - 1)];
}
constexpr std::make_integer_sequence<int, kMostChannelKeep> kChannelKeeps;

// Blocks of whole rows of blocks among which any group is.
std::uint32_t staged_for_group(const PlaneBlocks& b) {
  if (kGroup % b.block_cols == 0) return kGroup;
  return (kGroup + 2 * b.block_cols - 2) / b.block_cols * b.block_cols;
}

constexpr std::uint32_t kSector = 32;
constexpr std::int64_t kRowsAhead = 4 << 20;  // prefetched, as dct_chop does

// Bytes side by side that the blocks of so many groups are, where these are no rows.
std::uint32_t reach_of(const PlaneBlocks& b, std::uint32_t groups, std::uint32_t apart) {
  const auto side = static_cast<std::uint32_t>(size_bytes(b.dtype)) *
                    (b.walk == cuda::Walk::Columns ? 8 : 1);  // of a block
  return groups * kGroup / apart * side;
}

// How groups are dealt to CTAs that pack, or none of them where loads would use less than whole
// sectors, or many rows would be staged twice: two kernels then do it faster.
PairDeal deal_of(const PlaneBlocks& b, std::size_t group_bytes) {
  constexpr std::uint32_t kMostGroups = 4, kMostStagedCols = 32;
  constexpr std::size_t kRoom = 76 << 10;  // so that two CTAs fit a multiprocessor of any kind
  const PairDeal none{}, one = PairDeal::of(1, 1);
  if (b.walk == cuda::Walk::Rows) return one;
  if (b.walk == cuda::Walk::Staged) {
    return kGroup % b.block_cols == 0 || b.block_cols <= kMostStagedCols ? one : none;
  }
  const cuda::BlockOrder order = cuda::BlockOrder::of(b);
  if (order.lane_length == 1) return none;
  std::uint32_t groups = 1;
  const auto reach = [&] { return reach_of(b, groups, order.run_length); };
  while (reach() < 2 * kSector && groups < kMostGroups && 2 * groups * group_bytes <= kRoom) {
    groups *= 2;
  }
  return reach() < kSector ? none : PairDeal::of(groups, order.run_length);
}

// Whether the kernel for channels last takes the tensor, which is then under way.
bool pack_channels_pair(const Params& p, const PlaneBlocks& blocks, const Quantized& out,
                        void* stream) {
  // Clusters pay where a CTA alone would load parts of sectors: coefficients that cross to another CTA
  // go one by one. Of 128 x 128 planes four of them are the fastest, of 56 x 56 planes one is.
  constexpr std::uint32_t kMostRanks = 4, kReach = 40;  // bytes side by side
  const cuda::BlockOrder order = cuda::BlockOrder::of(blocks);
  if (p.keep > kMostChannelKeep || blocks.dtype == DType::F16 ||
      !cuda::has_channel_pairs(blocks, order)) {
    return false;
  }
  const auto size = static_cast<std::uint32_t>(size_bytes(blocks.dtype));
  const std::uint32_t groups =
      out.groups >= kMostChannelGroups * cuda::device().sms ? kMostChannelGroups : 1;
  std::uint32_t ranks = 1;
  while (ranks * groups * kGroup / order.run_length * size < kReach && ranks < kMostRanks)
    ranks *= 2;
  if (ranks > 1 && cuda::ClusterDevice().has == 0) return false;
  const ChannelGroups deal = ChannelGroups::of(ranks, groups, order.run_length, 4 / size);
  const auto values = static_cast<std::size_t>(p.values_per_block());
  const cuda::Grid grid{.blocks = cuda::blocks_for(out.groups, ranks * groups) * ranks,
                        .threads = kGroup,
                        .shared_bytes = sizeof(float) * groups * (values * Padded::kPitch + 4),
                        .early = true};
  if (ranks > 1) {
    cuda::launch_clusters(size == 4 ? pack_channel_kernel<float, true>(p.keep, kChannelKeeps)
                                    : pack_channel_kernel<BF16, true>(p.keep, kChannelKeeps),
                          static_cast<int>(ranks), grid, stream, blocks, deal, out);
  } else {
    cuda::launch(size == 4 ? pack_channel_kernel<float, false>(p.keep, kChannelKeeps)
                           : pack_channel_kernel<BF16, false>(p.keep, kChannelKeeps),
                 grid, stream, blocks, deal, out);
  }
  return true;
}

bool pack_planes_pair(const Params& p, PlaneBlocks blocks, const Quantized& out, void* stream) {
  if (pack_channels_pair(p, blocks, out, stream)) return true;
  blocks.ahead = kRowsAhead;
  const std::size_t group_bytes =
      sizeof(float) * Padded::kPitch * static_cast<std::size_t>(p.values_per_block());
  const PairDeal deal = deal_of(blocks, group_bytes);
  const std::size_t shared_bytes =
      std::max(cuda::staged_bytes(blocks, staged_for_group(blocks)), deal.groups * group_bytes);
  if (deal.groups == 0 || shared_bytes > cuda::device().shared_bytes) return false;
  constexpr std::make_integer_sequence<int, 8> kKeeps;
  cuda::launch(blocks.walk == cuda::Walk::Staged ? pack_plane_kernel<true>(p.keep, kKeeps)
                                                 : pack_plane_kernel<false>(p.keep, kKeeps),
               {.blocks = cuda::blocks_for(out.groups, deal.groups),
                .threads = kGroup,
                .shared_bytes = shared_bytes,
                .early = true},
               stream, blocks, deal, out);
  return true;
}

// Whether a CTA with whole groups writes whole sectors. Channels last of 28 x 28, 14 x 14 and 7 x 7
// planes do, and are unpacked in two thirds of the time that other ways take.
bool whole_sectors(const PlaneBlocks& b, const PairDeal& deal) {
  if (b.walk == cuda::Walk::Rows || b.walk == cuda::Walk::Staged || deal.groups == 0) return false;
  const std::uint32_t reach = reach_of(b, deal.groups, deal.apart);
  return (deal.groups * kGroup % deal.apart == 0 && reach % kSector == 0) || reach >= 16 * kSector;
}

// Whether the kernel for channels last takes the tensor, which is then under way.
bool unpack_channels_pair(const Params& p, const PlaneBlocks& blocks, const Quantized& in,
                          void* stream) {
  auto args = PairChannelArgs::of(blocks, in);
  if (!args || p.keep > kMostChannelKeep) return false;
  const auto values = static_cast<std::uint32_t>(p.values_per_block());
  args->table_from = (args->codes.bytes * values + 15) / 16 * 16;
  const std::uint32_t entries = args->entries != 0 ? args->entries : 2 * args->deal.lanes;
  const std::size_t shared_bytes = args->table_from + sizeof(float2) * entries * (values | 1);
  if (shared_bytes > cuda::device().shared_bytes) return false;
  cuda::launch(blocks.dtype == DType::F32 ? unpack_channel_kernel<float>(p.keep, kChannelKeeps)
                                          : unpack_channel_kernel<BF16>(p.keep, kChannelKeeps),
               {.blocks = args->deal.ctas(),
                .threads = kChannelThreads,
                .shared_bytes = shared_bytes,
                .early = true},
               stream, *args);
  return true;
}

bool unpack_planes_pair(const Params& p, const PlaneBlocks& blocks, const Quantized& in,
                        void* stream) {
  if (unpack_channels_pair(p, blocks, in, stream)) return true;
  constexpr std::make_integer_sequence<int, 8> kKeeps;
  const std::size_t group_bytes =
      sizeof(float) * Padded::kPitch * static_cast<std::size_t>(p.values_per_block());
  const PairDeal groups = deal_of(blocks, group_bytes);
  if (whole_sectors(blocks, groups) && groups.groups * group_bytes <= cuda::device().shared_bytes) {
    cuda::launch(unpack_group_kernel(p.keep, kKeeps),
                 {.blocks = cuda::blocks_for(in.groups, groups.groups),
                  .threads = kGroup,
                  .shared_bytes = groups.groups * group_bytes,
                  .early = true},
                 stream, blocks, groups, in);
    return true;
  }
  const bool staged = blocks.walk == cuda::Walk::Staged;
  const std::size_t group_rows = std::max(cuda::staged_bytes(blocks, kGroup), group_bytes);
  if (staged && kGroup % blocks.block_cols == 0 && group_rows <= cuda::device().shared_bytes) {
    cuda::launch(
        unpack_row_kernel(p.keep, kKeeps),
        {.blocks = in.groups, .threads = kGroup, .shared_bytes = group_rows, .early = true}, stream,
        blocks, in);
    return true;
  }
  const auto size = static_cast<std::uint32_t>(size_bytes(blocks.dtype));
  const cuda::BlockDeal deal = cuda::BlockDeal::of(blocks, kPlaneThreads, 32 / size);
  const auto values = static_cast<std::size_t>(p.values_per_block());
  const std::size_t rows = cuda::staged_bytes(blocks, deal.run);
  const std::size_t table = sizeof(float2) * kPairHeaders * deal.lanes * values;
  const std::size_t tile = deal.lanes == 1 ? 0 : sizeof(float) * deal.slots() * (values | 1);
  const std::size_t shared_bytes = rows + table + tile;
  if (shared_bytes > cuda::device().shared_bytes) return false;
  cuda::launch(staged ? unpack_plane_kernel<true>(p.keep, kKeeps)
                      : unpack_plane_kernel<false>(p.keep, kKeeps),
               {.blocks = deal.ctas(),
                .threads = kPlaneThreads,
                .shared_bytes = shared_bytes,
                .early = true},
               stream,
               PairPlaneArgs{.blocks = blocks,
                             .deal = deal,
                             .in = in,
                             .table_from = static_cast<std::uint32_t>(rows),
                             .tile_from = static_cast<std::uint32_t>(rows + table)});
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
    if (!planes || p.triangle) return false;
    return kPack ? pack_planes_pair(p, *planes, quantized, run.stream)
                 : unpack_planes_pair(p, *planes, quantized, run.stream);
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
