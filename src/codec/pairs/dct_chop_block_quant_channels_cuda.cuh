// dct_chop | block_quant on CUDA, channels last: a thread has a place of two channels. Codes and headers
// of some hundred channels come to shared memory first, as they lie, so that whole lines are read and written.
#pragma once

#include "base/cuda/cluster.cuh"
#include "codec/blocks/channel_pairs_cuda.cuh"
#include "codec/pairs/dct_chop_block_quant_cuda.cuh"

namespace tuckfold::dct_chop {

inline constexpr int kChannelThreads = 256;
inline constexpr int kMostChannelKeep = 4;  // two channels must fit a thread's registers
inline constexpr std::uint32_t kChannelBlocks = 2048, kChannelRun = 64;  // of a CTA

// Where a CTA has the codes of a frequency: segments of `words` words, `pitch` bytes from each other.
// These are channels, or all of them at once if bytes of a channel are no whole words.
struct CodeSegments {
  bool apart;  // by channels: even ones, then odd ones
  std::uint32_t words, pitch;
  std::uint32_t bytes;  // of a frequency
  cuda::Divider by_words;
};

struct PairChannelArgs {
  PlaneBlocks blocks;
  cuda::BlockDeal deal;
  Quantized in;
  CodeSegments codes;
  std::uint32_t entries;  // groups whose headers a CTA has, or 0: two for each channel
  std::uint32_t table_from;

  // Nothing where this kernel does not take the tensor.
  static std::optional<PairChannelArgs> of(const PlaneBlocks& b, const Quantized& in) {
    const auto deal = cuda::channel_deal(b, kChannelBlocks, kChannelRun);
    if (!deal || in.bits != 8 || b.dtype == DType::F16) return std::nullopt;
    const std::uint32_t length = deal->run_length, all = deal->lanes * length;
    const bool whole = deal->run == length;
    if (deal->lane_length * length % 4 != 0 || all % 4 != 0) return std::nullopt;
    if (!whole && length % 4 != 0) return std::nullopt;
    if (reinterpret_cast<std::uintptr_t>(in.codes) % 4 != 0) return std::nullopt;
    PairChannelArgs args{.blocks = b, .deal = *deal, .in = in};
    if (length % 4 == 0) {
      const std::uint32_t words = deal->run / 4, pitch = 4 * (words | 1);
      args.codes = {.apart = true, .words = words, .pitch = pitch, .bytes = deal->lanes * pitch};
    } else {
      args.codes = {.apart = false, .words = all / 4, .pitch = length, .bytes = all};
    }
    args.codes.by_words = cuda::Divider(args.codes.words);
    args.entries = whole ? (all + kGroup - 2) / kGroup + 1 : 0;
    return args;
  }
};

// Distance of the entries of a table, in float2: lanes with different ones meet in no bank.
template <int kKeep>
inline constexpr std::uint32_t kEntryPitch = kKeep* kKeep | 1;

// Four bytes that come while the thread goes on; see copy_async.
__device__ TUCKFOLD_INLINE void copy_word_async(unsigned char* shared, const std::uint8_t* global) {
#ifdef __CUDACC__
  const auto to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(global) : "memory");
#else
  std::memcpy(shared, global, 4);
#endif
}

// The row of a channel among those in shared memory: neighbouring pairs are neighbours.
__device__ TUCKFOLD_INLINE std::uint32_t channel_row(const PairChannelArgs& args,
                                                     std::uint32_t channel) {
  if (!args.codes.apart) return channel;
  return channel / 2 + channel % 2 * (args.deal.lanes / 2);
}

template <int kValues>
__device__ TUCKFOLD_INLINE void fetch_channel_codes(const PairChannelArgs& args,
                                                    const cuda::BlockDeal::Share& share,
                                                    unsigned char* to) {
  const CodeSegments& codes = args.codes;
  const std::int64_t step = args.in.groups * kGroup;
  const std::uint32_t words =
      codes.apart ? share.lanes * codes.words : share.lanes * args.deal.run_length / 4;
  for (std::uint32_t i = threadIdx.x; i < words; i += kChannelThreads) {
    const std::uint32_t channel = codes.apart ? codes.by_words.quotient(i) : 0;
    const std::uint32_t within = 4 * (i - channel * codes.words);
    if (within >= share.run && codes.apart) continue;
    unsigned char* place = to + channel_row(args, channel) * codes.pitch + within;
    const std::uint8_t* from =
        args.in.codes + (share.first + channel * args.deal.run_length + within);
#pragma unroll
    for (int f = 0; f < kValues; ++f) copy_word_async(place + f * codes.bytes, from + f * step);
  }
}

// Whether values of a tame group follow by ordinary_value, with a minimum that is added.
__device__ TUCKFOLD_INLINE bool is_plain(const Group& group) {
  return !group.about_zero && is_tame(group);
}

// The entry of a block's group.
__device__ TUCKFOLD_INLINE std::uint32_t entry_of(const PairChannelArgs& args,
                                                  const cuda::BlockDeal::Share& share,
                                                  std::uint32_t channel, std::uint32_t block) {
  const std::uint32_t group = block / kGroup;
  if (args.entries != 0) return group - share.first / kGroup;
  const std::uint32_t first = (share.first + channel * args.deal.run_length) / kGroup;
  return (group - first) * args.deal.lanes + channel_row(args, channel);
}

// Scales and minima by entries, then frequencies. Returns whether all groups are plain; a barrier has
// come then.
template <int kKeep>
__device__ TUCKFOLD_INLINE bool fill_channel_table(const PairChannelArgs& args,
                                                   const cuda::BlockDeal::Share& share,
                                                   float2* table) {
  constexpr std::uint32_t kValues = kKeep * kKeep;
  const std::uint32_t entries = args.entries != 0 ? args.entries : 2 * share.lanes;
  const auto last = static_cast<std::uint32_t>(args.in.groups) - 1;
  bool other = false;
  for (std::uint32_t i = threadIdx.x; i < entries * kValues; i += kChannelThreads) {
    const std::uint32_t number = i / entries, entry = i - number * entries;
    const std::uint32_t channel = entry / 2, which = entry % 2;
    std::uint32_t to = entry, first = share.first / kGroup + entry;
    if (args.entries == 0) {
      to = which * args.deal.lanes + channel_row(args, channel);
      first = (share.first + channel * args.deal.run_length) / kGroup + which;
    }
    const Group use =
        block_quant::group_of(args.in.headers[number * args.in.groups + min(first, last)]);
    other = other || !is_plain(use);
    table[to * kEntryPitch<kKeep> + number] = make_float2(use.scale, use.minimum);
  }
  cuda::wait_for_copies();
  return __syncthreads_or(other ? 1 : 0) == 0;
}

// The rows of a block's values halfway, from its codes.
template <int kKeep, bool kPlain>
__device__ TUCKFOLD_INLINE void channel_rows(const PairChannelArgs& args,
                                             const cuda::BlockDeal::Share& share,
                                             std::uint32_t channel, std::uint32_t place,
                                             const unsigned char* codes, const float2* table,
                                             float* half) {
  const std::uint32_t block = share.first + channel * args.deal.run_length + place;
  const float2* entry = table + entry_of(args, share, channel, block) * kEntryPitch<kKeep>;
  const unsigned char* own = codes + channel_row(args, channel) * args.codes.pitch + place;
  float coefs[kKeep * kKeep];
#pragma unroll
  for (int f = 0; f < kKeep * kKeep; ++f) {
    const std::uint32_t code = own[f * args.codes.bytes];
    if constexpr (kPlain) {
      // The product is exact, so that this is ordinary_value().
      coefs[f] = std::fma(static_cast<float>(static_cast<int>(code)), entry[f].x, entry[f].y);
    } else {
      coefs[f] =
          any_value(static_cast<int>(code), args.in.headers + f * args.in.groups + block / kGroup);
    }
  }
#pragma unroll
  for (int u = 0; u < kKeep; ++u) {
    inverse_row_8(kScaled[u], kKeep, coefs + u * kKeep, half + 8 * u);
  }
}

template <class T, int kKeep>
__global__ void __launch_bounds__(kChannelThreads, 2)
    unpack_pair_channels(const __grid_constant__ PairChannelArgs args) {
  const cuda::BlockDeal::Share share = args.deal.share(blockIdx.x);
  unsigned char* codes = cuda::shared_memory();
  auto* table = reinterpret_cast<float2*>(codes + args.table_from);
  cuda::wait_for_previous_kernel();
  fetch_channel_codes<kKeep * kKeep>(args, share, codes);
  const bool plain = fill_channel_table<kKeep>(args, share, table);
  cuda::allow_next_kernel();
  const auto unpack = [&]<bool kPlain>() {
    for (cuda::ChannelWalk at(share); at.more(); at.next()) {
      const bool exists = at.pair() < at.pairs;
      const std::uint32_t channel = 2 * min(at.pair(), at.pairs - 1);
      float first[8 * kKeep], second[8 * kKeep];
      channel_rows<kKeep, kPlain>(args, share, channel, at.place, codes, table, first);
      channel_rows<kKeep, kPlain>(args, share, channel + 1, at.place, codes, table, second);
      if (!exists) continue;
      const cuda::BlockSpot spot =
          args.blocks.spot(share.first + channel * args.deal.run_length + at.place, true);
      cuda::for_each_column<T>(args.blocks, spot, [&](int j, T* column) {
        float a[8], b[8];
        inverse_column_8(kKeep, first + j, 8, a, 1);
        inverse_column_8(kKeep, second + j, 8, b, 1);
#pragma unroll
        for (int r = 0; r < 8; ++r) {
          if (r < spot.rows) cuda::store_two(column + r * args.blocks.row_step, a[r], b[r], kPlain);
        }
      });
    }
  };
  plain ? unpack.template operator()<true>() : unpack.template operator()<false>();
}

// ---- pack ---------------------------------------------------------------------------------------

// Groups of a CTA, and CTAs whose groups follow each other. A place has only so many channels there as
// the groups together: a cluster has them all, and threads write coefficients to the CTA of their group.
inline constexpr int kMostChannelGroups = 4;

// Floats of a group's tile. Tiles begin in different banks.
template <int kKeep>
inline constexpr int kChannelTile = kKeep* kKeep* Padded::kPitch + 4;

struct ChannelGroups {
  std::uint32_t ranks, groups;
  std::uint32_t length;  // blocks of a channel
  std::uint32_t width;   // threads for a place: with kChannelsAtOnce channels each
  cuda::Divider by_length, by_width;

  std::uint32_t blocks() const { return ranks * groups * kGroup; }
  static ChannelGroups of(std::uint32_t ranks, std::uint32_t groups, std::uint32_t length,
                          std::uint32_t at_once) {
    const std::uint32_t blocks = ranks * groups * kGroup, most = (blocks + length - 1) / length;
    // Channels begin at a multiple of at_once for every place, or anywhere.
    const bool even = blocks % (at_once * length) == 0;
    const std::uint32_t width = even ? most / at_once : most / at_once + (at_once > 1 ? 1 : 0);
    return {ranks, groups, length, width, cuda::Divider(length), cuda::Divider(width)};
  }
};

// A float of this CTA's shared memory as that of CTA `rank` of the cluster.
class RemoteFloats {
 public:
#ifdef __CUDACC__
  __device__ TUCKFOLD_INLINE RemoteFloats(const float* shared, std::uint32_t rank) {
    const auto here = static_cast<unsigned>(__cvta_generic_to_shared(shared));
#if __CUDA_ARCH__ >= 900
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at_) : "r"(here), "r"(rank));
#else
    at_ = here + rank;
#endif
  }
  __device__ TUCKFOLD_INLINE void store(int number, float value) const {
#if __CUDA_ARCH__ >= 900
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(at_ + 4 * number), "f"(value) : "memory");
#endif
  }

 private:
  unsigned at_;
#else
  RemoteFloats(float* shared, std::uint32_t rank) {
    auto& block = cuda::emulate::block();
    auto* here = reinterpret_cast<unsigned char*>(shared);
    at_ = reinterpret_cast<float*>(block.shared(static_cast<int>(rank)) + (here - block.shared()));
  }
  void store(int number, float value) const { at_[number] = value; }

 private:
  float* at_;
#endif
};

template <class T, int kKeep, bool kCluster>
__global__ void __launch_bounds__(kGroup, 2)
    pack_pair_channels(const __grid_constant__ PlaneBlocks in,
                       const __grid_constant__ ChannelGroups deal,
                       const __grid_constant__ Quantized out) {
  constexpr int kTile = kChannelTile<kKeep>, kAtOnce = static_cast<int>(cuda::kChannelsAtOnce<T>);
  auto* tile = reinterpret_cast<float*>(cuda::shared_memory());
  const std::uint32_t ranks = kCluster ? deal.ranks : 1;
  const std::uint32_t cluster = blockIdx.x / ranks, rank = blockIdx.x - cluster * ranks;
  const std::uint32_t first_group = cluster * ranks * deal.groups, first = first_group * kGroup;
  const std::uint32_t all = static_cast<std::uint32_t>(out.groups);
  const std::uint32_t end = min(first_group + ranks * deal.groups, all) * kGroup;
  if constexpr (kCluster) cuda::cluster_barrier();  // all must have begun
  cuda::wait_for_previous_kernel();
  const std::uint32_t items = deal.length * deal.width;
  for (std::uint32_t i = rank * kGroup + threadIdx.x; i < items; i += ranks * kGroup) {
    const std::uint32_t place = deal.by_width.quotient(i);
    const std::uint32_t lowest = deal.by_length.quotient(first + deal.length - 1 - place);
    const std::uint32_t channel = (lowest & ~(kAtOnce - 1u)) + (i - place * deal.width) * kAtOnce;
    const std::uint32_t block = channel * deal.length + place;
    if (block >= end) continue;
    float half[kAtOnce][8 * kKeep];
    cuda::load_columns<T>(in, in.spot(block, true), [&](int j, const auto& values) {
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        forward_column_8(kKeep, values[k], 1, half[k] + j, 8);
      }
    });
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      float coefs[kKeep * kKeep];
#pragma unroll
      for (int u = 0; u < kKeep; ++u) {
        forward_row_8(kScaled[u], kKeep, half[k] + 8 * u, coefs + u * kKeep);
      }
      settle_nans(kKeep, kKeep, coefs, kKeep);
      const std::uint32_t own = block + k * deal.length;
      if (own < first || own >= end) continue;
      const std::uint32_t group = (own - first) / kGroup;
      const std::uint32_t where = group / deal.groups;  // always 0 where there is no cluster
      float* to = tile + (kCluster ? group - where * deal.groups : group) * kTile +
                  Padded::place(static_cast<int>(own % kGroup));
      if constexpr (kCluster) {
        const RemoteFloats remote(to, where);
#pragma unroll
        for (int f = 0; f < kKeep * kKeep; ++f) remote.store(f * Padded::kPitch, coefs[f]);
      } else {
#pragma unroll
        for (int f = 0; f < kKeep * kKeep; ++f) to[f * Padded::kPitch] = coefs[f];
      }
    }
  }
  cuda::allow_next_kernel();
  if constexpr (kCluster) {
    cuda::cluster_barrier();
  } else {
    __syncthreads();
  }
  const std::uint32_t own_first = first_group + rank * deal.groups;
  const int here = static_cast<int>(min(deal.groups, all - min(own_first, all)));
  quantize_groups<kKeep, false, Padded, kMostChannelGroups>(tile, out, own_first, here, kTile);
}

}  // namespace tuckfold::dct_chop
