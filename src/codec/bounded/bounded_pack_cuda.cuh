// bounded's pack kernel. Values are read once. A payload waits in shared memory until its offset in
// the output is known; meanwhile its warp packs the next chunk.
#pragma once

#include "base/cuda/signal.cuh"
#include "codec/bounded/bounded_quantize_cuda.cuh"

namespace tuckfold::bounded {

// The most chunks of a tile. A block, one on each SM, has a warp for each chunk and one warp that
// looks back. There are fewer chunks where shared memory is smaller, but more than four, for which
// the workspace has room. Fewer blocks with larger tiles look back less far.
template <class Element>
inline constexpr int kPackWarps = sizeof(Element) == 8 ? 12 : 23;
template <class Element>
inline constexpr int kPackThreads = (kPackWarps<Element> + 1) * kWarp;

// A warp's part of shared memory: a chunk's values as they arrive, and payloads of earlier chunks.
// Two payloads fit if neither is larger than half of the values. Up to two bytes after each payload
// are read.
template <class Element>
struct WarpBuffers {
  static constexpr int kValues = Stage16<Element>::kBytes;
  static constexpr int kHalf = static_cast<int>(kChunk) * sizeof(Element) / 2;
  static constexpr int kStride = kHalf + 16;
  static constexpr int kBytes = kValues + 2 * kStride;
};

// The result of packing a chunk.
struct Packed {
  std::int32_t base;
  int kind, words;
};

// ---- planes -------------------------------------------------------------------------------------

// The planes of a row, `width` of them; `widest` is the chunk's.
__device__ TUCKFOLD_INLINE void store_row(const std::uint32_t* numbers, int width, int widest,
                                          std::uint16_t* to) {
  // One bit for each existing plane, from `first` on.
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

// A chunk's values unchanged and contiguous, with a trailing zero byte if their size is odd.
template <class Element>
__device__ TUCKFOLD_INLINE void keep_values(const unsigned char* stage, int bytes,
                                            unsigned char* payload) {
  using S = Stage16<Element>;
#pragma unroll
  for (int k = 0; k < S::kVectors; ++k) {
    if ((k * kWarp + lane_of()) * 16 >= bytes) break;
    reinterpret_cast<uint4*>(payload)[k * kWarp + lane_of()] =
        *reinterpret_cast<const uint4*>(stage + S::place(k));
  }
  __syncwarp();
  if (lane_of() == 0 && bytes % 2 != 0) payload[bytes] = 0;
}

// ---- chunks -------------------------------------------------------------------------------------

template <class Element>
__device__ TUCKFOLD_INLINE bool all_same(const unsigned char* stage) {
  using S = Stage16<Element>;
  const uint4 first = *reinterpret_cast<const uint4*>(stage);
  const auto* own = reinterpret_cast<const uint4*>(stage + lane_of() * S::kStride);
  const auto bytes = std::bit_cast<Sixteen<unsigned char>>(first);
  bool same = true;
#pragma unroll
  for (int i = S::kSize; i < 16; ++i) {
    same = same && bytes.elements[i] == bytes.elements[i % S::kSize];
  }
#pragma unroll 1
  for (int v = 0; v < S::kVectors && __all_sync(kAllLanes, same); ++v) {
    const uint4 some = own[v];
    same = ((some.x ^ first.x) | (some.y ^ first.y) | (some.z ^ first.z) | (some.w ^ first.w)) == 0;
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

// The result of packing a chunk, and of a lane's two rows of it.
struct Rows {
  Packed chunk;
  int widest;  // of the chunk
  int first_width, second_width, at;
  bool alone;
};

// Converts a chunk's staged values to a lane's numbers.
template <class Element, bool kExactZero>
__device__ TUCKFOLD_INLINE Rows rows_of(const PackArgs& args, const Control& control,
                                        std::int64_t chunk, const unsigned char* stage,
                                        std::uint32_t* numbers) {
  Rows rows{};
  rows.chunk.kind = quantize_chunk<Element, kExactZero>(&control, stage, numbers);
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

// Stores a chunk's payload; each lane stores its rows.
__device__ TUCKFOLD_INLINE void store_rows(const Rows& rows, const std::uint32_t* numbers,
                                           unsigned char* payload) {
  const int least = least_width(rows.widest);
  auto* halves = reinterpret_cast<std::uint16_t*>(payload);
  if (lane_of() == 0) halves[0] = static_cast<std::uint16_t>(least | (rows.alone ? 0x100 : 0));
  payload[2 + lane_of()] =
      static_cast<unsigned char>((rows.first_width - least) | (rows.second_width - least) << 4);
  store_row(numbers, rows.first_width, rows.widest, halves + rows.at);
  store_row(numbers + kRowValues, rows.second_width, rows.widest,
            halves + rows.at + rows.first_width);
}

// ---- tiles --------------------------------------------------------------------------------------

// What the warps of a block tell each other about kTurns tiles in turn. `drawn` arrives when the
// number of the block's next tile but one is known, `sized` when all warps have stored how many
// words their chunks take, `placed` when the last warp has computed offsets in the output from
// those.
inline constexpr int kTurns = 8;
inline constexpr int kMostWarps = kWarp - 1;
struct Exchange {
  cuda::Signal drawn[kTurns], sized[kTurns], placed[kTurns];
  std::int64_t tiles[kTurns];
  std::uint64_t places[kTurns][kMostWarps];
  int sizes[kTurns][kMostWarps];
  unsigned sums[kTurns];  // of sizes so far, and how many they are, times kOneSize
  unsigned* tickets;
  Control control;  // as it was in the beginning; shared memory is nearer

  // Of the block's tile number `step`.
  __device__ static int turn(int step) { return step % kTurns; }
  __device__ std::int64_t tile(int step) {
    drawn[turn(step)].wait(step / kTurns % 2);
    return tiles[turn(step)];
  }
  __device__ void draw(int step) {
    tiles[turn(step)] = cuda::take_ticket(tickets);
    drawn[turn(step)].arrive();
  }
  __device__ void wait_sized(int step) { sized[turn(step)].wait(step / kTurns % 2); }
  __device__ void wait_placed(int step) { placed[turn(step)].wait(step / kTurns % 2); }
};
inline constexpr unsigned kOneSize = 1u << 24;

// Called by one thread of each warp. The first to arrive draws a tile; the last publishes the sum
// to other blocks.
__device__ TUCKFOLD_INLINE void put_size(const PackArgs& args, Exchange& exchange, int step,
                                         std::int64_t tile, int warp, int words) {
  const int turn = exchange.turn(step);
  exchange.sizes[turn][warp] = words;
  const unsigned size = static_cast<unsigned>(words) + kOneSize;
  const unsigned before = atomicAdd(&exchange.sums[turn], size), sum = before + size;
  if (sum / kOneSize == static_cast<unsigned>(args.warps)) {
    cuda::publish_own(args.states, tile, sum % kOneSize);
    exchange.sums[turn] = 0;
  }
  exchange.sized[turn].arrive();
  if (before == 0) exchange.draw(step + 2);
}

// The last warp's work: computes where the payloads of the block's tiles begin.
__device__ TUCKFOLD_INLINE void place_tiles(const PackArgs& args, Exchange& exchange) {
  const int lane = lane_of();
  std::int64_t tile = exchange.tile(0);
  for (int step = 0; tile < args.tiles; ++step) {
    const int turn = exchange.turn(step);
    exchange.wait_sized(step);
    const int size = lane < args.warps ? exchange.sizes[turn][lane] : 0;
    const auto all = static_cast<unsigned>(__reduce_add_sync(kAllLanes, size));
    const std::uint64_t before = cuda::look_back<1>(args.states, tile);
    if (lane == 0) cuda::publish_all(args.states, tile, before + all);
    if (lane == 0 && tile + 1 == args.tiles) {
      const std::uint64_t bytes = args.front_bytes + 2 * (before + all);
      args.control->size = bytes < args.out_bytes ? bytes : args.out_bytes;
    }
    const auto inside = static_cast<std::uint64_t>(sum_of_lanes(size) - size);
    if (lane < args.warps) exchange.places[turn][lane] = args.front_bytes + 2 * (before + inside);
    tile = exchange.tile(step + 1);
    if (lane < args.warps) exchange.placed[turn].arrive();
  }
}

// A block packs tile after tile. A warp that knows its chunk's size does not wait for the offset:
// it continues with the next chunk and copies the payload out when it returns with another, or, if
// both are small, with a third. So warps and blocks need not keep step, and looking back may take a
// while.
//
// kTurns is enough: a warp at step i has seen `placed` of i - 3, so every warp is at step i - 3 at
// least and waits for tiles i - 5 and above. A warp at step i writes about tiles up to i + 2.
template <class Element, bool kExactZero>
__global__ void __launch_bounds__(kPackThreads<Element>, 1)
    pack_kernel(const __grid_constant__ PackArgs args) {
  using R = WarpBuffers<Element>;
  __shared__ Exchange exchange;
  const int lane = lane_of(), warp = static_cast<int>(threadIdx.x) / kWarp;
  static_assert(sizeof(Control) % sizeof(unsigned) == 0 && kPackWarps<Element> <= kMostWarps);
  for (unsigned i = threadIdx.x; i < sizeof(Control) / sizeof(unsigned); i += blockDim.x) {
    reinterpret_cast<unsigned*>(&exchange.control)[i] =
        reinterpret_cast<unsigned*>(args.control)[i];
  }
  if (threadIdx.x == 0) exchange.tickets = &args.control->tickets;
  if (threadIdx.x < kTurns) {
    exchange.drawn[threadIdx.x].init(1);
    exchange.sized[threadIdx.x].init(args.warps);
    exchange.placed[threadIdx.x].init(args.warps);
    exchange.sums[threadIdx.x] = 0;
  }
  __syncthreads();
  if (threadIdx.x == 0) exchange.draw(0);
  std::int64_t tile = exchange.tile(0);
  unsigned char* stage = cuda::shared_memory() + warp * R::kBytes;
  bool started = warp < args.warps && start_values<Element>(args, tile * args.warps + warp, stage);
  // The second ticket is drawn when the first values have arrived: by then other blocks have their
  // first ticket, so no first tile waits for another block's second.
  cuda::wait_for_copies();
  __syncthreads();
  if (threadIdx.x == 0) exchange.draw(1);
  if (warp == args.warps) return place_tiles(args, exchange);

  unsigned char* payloads = stage + R::kValues;
  int older = 0, newer = 0;  // words that wait, of the last tile but one and of the last
  const auto small = [](int words) { return 2 * words <= R::kHalf; };
  const auto place_of = [&](int step, int words) {
    return payloads + (small(words) ? step % 2 * R::kStride : 0);
  };
  const auto copy_out = [&](int from, int to) {
#pragma unroll 1
    for (int step = from; step < to; ++step) {
      const int words = step == from ? older : newer;
      if (step < 0) continue;
      exchange.wait_placed(step);
      const std::uint64_t at = exchange.places[exchange.turn(step)][warp];
      // A payload that does not fit is dropped: then all are, and the tensor is stored unchanged.
      if (words > 0 && at + 2 * static_cast<std::uint64_t>(words) <= args.out_bytes) {
        copy_payload(place_of(step, words), words, args.out + at);
      }
    }
    __syncwarp();
  };
  int step = 0;
  for (; tile < args.tiles; ++step) {
    const std::int64_t chunk = tile * args.warps + warp;
    std::uint32_t numbers[kEach];
    Rows rows{};
    if (chunk < args.chunks) {
      if (!started) stage_any<Element>(args, chunk, stage);
      cuda::wait_for_copies();
      __syncwarp();
      rows = rows_of<Element, kExactZero>(args, exchange.control, chunk, stage, numbers);
      store_header(args, chunk, rows.chunk);
    }
    if (lane == 0) put_size(args, exchange, step, tile, warp, rows.chunk.words);
    __syncwarp();
    tile = exchange.tile(step + 1);
    const bool kept = rows.chunk.kind >= kSame;
    if (!kept) started = start_values<Element>(args, tile * args.warps + warp, stage);

    const bool both = small(newer) && small(rows.chunk.words);
    copy_out(step - 2, both ? step - 1 : step);
    older = both ? newer : 0;
    newer = rows.chunk.words;
    unsigned char* payload = place_of(step, newer);
    if (kept) {
      const std::int64_t count = rows.chunk.kind == kSame ? 1 : chunk_elems(args.in.elems, chunk);
      keep_values<Element>(stage, static_cast<int>(count) * Stage16<Element>::kSize, payload);
      __syncwarp();
      started = start_values<Element>(args, tile * args.warps + warp, stage);
    } else if (newer > 0) {
      store_rows(rows, numbers, payload);
    }
    __syncwarp();
  }
  copy_out(step - 2, step);
}

}  // namespace tuckfold::bounded
