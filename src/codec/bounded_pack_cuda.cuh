// bounded's pack kernel: values are read once; a block's payloads wait in shared memory until it is
// known where they begin.
#pragma once

#include "codec/bounded_quantize_cuda.cuh"

namespace tuckfold::bounded {

// Chunks of a tile: a block has a warp for each, and one that looks back. Blocks on one SM, each of
// which packs tile after tile. There is room for as many states as tiles of eight chunks.
template <class Element>
inline constexpr int kPackWarps = sizeof(Element) == 8 ? 8 : 15;
template <class Element>
inline constexpr int kPackThreads = (kPackWarps<Element> + 1) * kWarp;
inline constexpr int kPackBlocks = 2;

// What a chunk becomes.
struct Packed {
  std::int32_t base;
  int kind, words;
};

// ---- planes -------------------------------------------------------------------------------------

// The planes of a row, `width` of them; `widest` is the chunk's.
__device__ TUCKFOLD_INLINE void store_row(const std::uint32_t* numbers, int width, int widest,
                                          std::uint16_t* to) {
  // One bit for each plane that there is, from `first` on.
  const auto planes_there = [&](int first, int most) {
    const int some = width - first < most ? width - first : most;
    return (1u << (some > 0 ? some : 0)) - 1;
  };
  std::uint32_t words[8];
  if (widest <= 8) {
    const unsigned there = planes_there(0, 8);
    narrow_planes_of(numbers, words);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      if ((there & 1u << j) != 0) {
        to[j] = static_cast<std::uint16_t>(j < 4 ? words[j] : words[j - 4] >> 16);
      }
    }
    return;
  }
  const auto store = [&](int first) {
    const unsigned there = planes_there(first, 16);
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      if ((there & 1u << j) != 0) {
        to[first + j] = static_cast<std::uint16_t>(j < 8 ? words[j] : words[j - 8] >> 16);
      }
    }
  };
  planes_of<0>(numbers, words);
  store(0);
  if (widest > 16) {
    planes_of<1>(numbers, words);
    store(16);
  }
}

__device__ TUCKFOLD_INLINE int least_width(int widest) { return widest > 15 ? widest - 15 : 0; }

// ---- to global memory, from any even byte on ----------------------------------------------------

__device__ TUCKFOLD_INLINE void copy_payload(const unsigned char* stage, int words, std::byte* to) {
  const int lane = lane_of();
  const auto* halves = reinterpret_cast<const std::uint16_t*>(stage);
  const auto* pairs = reinterpret_cast<const std::uint32_t*>(stage);
  auto* out = reinterpret_cast<std::uint16_t*>(to);
  const int head = static_cast<int>(reinterpret_cast<std::uintptr_t>(to) / 2 % 2);
  const int whole = (words - head) / 2;
  auto* out_pairs = reinterpret_cast<std::uint32_t*>(out + head);
  if (lane == 0 && head != 0) out[0] = halves[0];
  if (lane == 0 && head + 2 * whole < words) out[words - 1] = halves[words - 1];
  constexpr int kAtOnce = 4;
  for (int first = lane; first < whole; first += kAtOnce * kWarp) {
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int i = first + k * kWarp;
      if (i >= whole) continue;
      out_pairs[i] = head == 0 ? pairs[i] : __funnelshift_r(pairs[i], pairs[i + 1], 16);
    }
  }
}

// The first bytes of a chunk's values as they are, and a byte of 0 if they are odd.
template <class Element>
__device__ TUCKFOLD_INLINE void copy_values(const unsigned char* stage, int bytes, std::byte* to) {
  auto* out = reinterpret_cast<std::uint16_t*>(to);
  for (int i = lane_of(); 2 * i < bytes; i += kWarp) {
    const std::uint16_t two =
        *reinterpret_cast<const std::uint16_t*>(stage + Stage16<Element>::byte_place(2 * i));
    out[i] = 2 * i + 1 < bytes ? two : static_cast<std::uint16_t>(two & 0xffu);
  }
}

// ---- chunks -------------------------------------------------------------------------------------

template <class Element>
__device__ TUCKFOLD_INLINE bool all_same(const unsigned char* stage) {
  const unsigned char* own = stage + lane_of() * Stage16<Element>::kStride;
  bool same = true;
#pragma unroll 1
  for (int i = 0; i < Stage16<Element>::kLaneBytes; i += 2) {
    // Of single bytes two are compared with the first twice.
    const int first = sizeof(Element) == 1 ? 0 : i % static_cast<int>(sizeof(Element));
    const int second = sizeof(Element) == 1 ? 0 : first + 1;
    same = same && own[i] == stage[first] && own[i + 1] == stage[second];
  }
  return __all_sync(kAllLanes, same);
}

__device__ TUCKFOLD_INLINE void store_header(const PackArgs& args, std::int64_t chunk,
                                             const Packed& packed) {
  if (lane_of() >= 3) return;
  const auto base = static_cast<std::uint32_t>(packed.base);
  auto* header = reinterpret_cast<std::uint16_t*>(args.out + args.bound_bytes +
                                                  chunk * static_cast<int>(kHeaderBytes));
  header[lane_of()] =
      static_cast<std::uint16_t>(lane_of() == 0   ? base
                                 : lane_of() == 1 ? base >> 16
                                                  : packed.kind | packed.words << 3);
}

// What becomes of a chunk, and of a lane's two rows of it.
struct Rows {
  Packed chunk;
  int widest;  // of the chunk
  int first_width, second_width, at;
  bool alone;
};

// A chunk's values, staged, to a lane's numbers.
template <class Element, bool kExactZero>
__device__ TUCKFOLD_INLINE Rows rows_of(const PackArgs& args, std::int64_t chunk,
                                        unsigned char* stage, std::uint32_t* numbers) {
  Rows rows{};
  stage_values<Element>(args, chunk, stage);
  rows.chunk.kind = quantize_chunk<Element, kExactZero>(args.control, stage, numbers);
  if (rows.chunk.kind >= 0) {
    std::uint32_t before = __shfl_up_sync(kAllLanes, numbers[kEach - 1], 1);
    if (lane_of() == 0) before = numbers[0];
    rows.alone = number_alone<Element>(numbers, before);
    const auto held = static_cast<std::int32_t>(__shfl_sync(kAllLanes, before, 0));
    rows.chunk.base = rows.alone ? 0 : held >> kHeldShift<Element>;
    std::uint32_t first = 0, second = 0;
#pragma unroll
    for (int i = 0; i < kRowValues; ++i) {
      first |= numbers[i];
      second |= numbers[kRowValues + i];
    }
    rows.widest = width_of(__reduce_or_sync(kAllLanes, first | second));
    const int least = least_width(rows.widest);
    rows.first_width = width_of(first) > least ? width_of(first) : least;
    rows.second_width = width_of(second) > least ? width_of(second) : least;
    const int both = rows.first_width + rows.second_width, sum = sum_of_lanes(both);
    rows.at = kWidthWords + sum - both;
    rows.chunk.words = rows.widest == 0 ? 0 : kWidthWords + __shfl_sync(kAllLanes, sum, kWarp - 1);
  }
  constexpr int kSize = sizeof(Element);
  const int count = static_cast<int>(chunk_elems(args.in.elems, chunk));
  if (rows.chunk.kind < 0 || 2 * rows.chunk.words >= count * kSize) {
    const bool same = all_same<Element>(stage);
    rows.chunk = {
        .base = 0, .kind = same ? kSame : kKept, .words = kept_words(kSize, same ? 1 : count)};
  }
  return rows;
}

// The payload, over the values, which every lane has read.
__device__ TUCKFOLD_INLINE void store_rows(const Rows& rows, const std::uint32_t* numbers,
                                           unsigned char* stage) {
  __syncwarp();
  const int least = least_width(rows.widest);
  auto* halves = reinterpret_cast<std::uint16_t*>(stage);
  if (lane_of() == 0) halves[0] = static_cast<std::uint16_t>(least | (rows.alone ? 0x100 : 0));
  stage[2 + lane_of()] =
      static_cast<unsigned char>((rows.first_width - least) | (rows.second_width - least) << 4);
  store_row(numbers, rows.first_width, rows.widest, halves + rows.at);
  store_row(numbers + kRowValues, rows.second_width, rows.widest,
            halves + rows.at + rows.first_width);
}

// A block packs tile after tile. Its last warp finds out where the tile's payloads begin while the
// others pack bits, and takes the next ticket, so that nobody waits for one. That keeps
// look_back.cuh's proof: the block that holds the first tile without an own sum waits at most for
// tiles in front of that, all of which have theirs.
template <class Element, bool kExactZero>
__global__ void __launch_bounds__(kPackThreads<Element>, kPackBlocks)
    pack_kernel(const __grid_constant__ PackArgs args) {
  using S = Stage16<Element>;
  constexpr int kWarps = kPackWarps<Element>;
  // Of two tiles in turn: the next is told between this one's barriers, when no warp reads what
  // was told before. Sizes are read between the barriers, words_before behind the second; both are
  // written again when all warps have come to the barrier after that.
  __shared__ std::int64_t tiles[2];
  __shared__ std::uint64_t words_before;
  __shared__ int sizes[kWarps];
  const int lane = lane_of(), warp = static_cast<int>(threadIdx.x) / kWarp;
  if (threadIdx.x == 0) tiles[0] = cuda::take_ticket(&args.control->tickets);
  __syncthreads();
  if (warp == kWarps) {
    for (int turn = 0; tiles[turn] < args.tiles; turn ^= 1) {
      __syncthreads();
      const std::int64_t tile = tiles[turn];
      const int size = lane < kWarps ? sizes[lane] : 0;
      const auto all = static_cast<unsigned>(__reduce_add_sync(kAllLanes, size));
      std::int64_t next = 0;
      if (lane == 0) {
        cuda::publish_own(args.states, tile, all);
        next = cuda::take_ticket(&args.control->tickets);
      }
      const std::uint64_t before = cuda::look_back(args.states, tile);
      if (lane == 0) {
        cuda::publish_all(args.states, tile, before + all);
        words_before = before;
        tiles[turn ^ 1] = next;
        if (tile + 1 == args.tiles) {
          const std::uint64_t bytes = args.front_bytes + 2 * (before + all);
          args.control->size = bytes < args.out_bytes ? bytes : args.out_bytes;
        }
      }
      __syncthreads();
    }
    return;
  }
  unsigned char* stage = cuda::shared_memory() + warp * S::kBytes;
  for (int turn = 0; tiles[turn] < args.tiles; turn ^= 1) {
    std::uint32_t numbers[kEach];
    Rows rows{};
    rows.chunk.kind = kKept;
    if (const std::int64_t chunk = tiles[turn] * kWarps + warp; chunk < args.chunks) {
      rows = rows_of<Element, kExactZero>(args, chunk, stage, numbers);
      store_header(args, tiles[turn] * kWarps + warp, rows.chunk);
    }
    if (lane == 0) sizes[warp] = rows.chunk.words;
    __syncthreads();

    const int inside = __reduce_add_sync(kAllLanes, lane < warp ? sizes[lane] : 0);
    const bool coded = rows.chunk.kind < kSame && rows.chunk.words > 0;
    if (coded) store_rows(rows, numbers, stage);
    __syncthreads();

    const std::uint64_t at =
        args.front_bytes + 2 * (words_before + static_cast<std::uint64_t>(inside));
    // What does not fit is dropped: then all is, and the tensor stored as it is.
    const bool fits = at + 2 * static_cast<std::uint64_t>(rows.chunk.words) <= args.out_bytes;
    if (coded && fits) {
      copy_payload(stage, rows.chunk.words, args.out + at);
    } else if (rows.chunk.words > 0 && fits) {
      // The next tile may be in tiles[turn ^ 1] by now, this one still is where it was.
      const std::int64_t chunk = tiles[turn] * kWarps + warp;
      const int count = static_cast<int>(chunk_elems(args.in.elems, chunk));
      copy_values<Element>(stage, (rows.chunk.kind == kSame ? 1 : count) * S::kSize, args.out + at);
    }
    __syncwarp();  // before the next chunk is staged
  }
}

}  // namespace tuckfold::bounded
