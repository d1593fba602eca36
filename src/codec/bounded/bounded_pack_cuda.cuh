// bounded's pack kernel. Values are read once. A payload waits in shared memory until its offset in
// the output is known; meanwhile its warp packs the next chunk.
#pragma once

#include "base/cuda/signal.cuh"
#include "codec/bounded/bounded_masks_cuda.cuh"
#include "codec/bounded/bounded_quantize_cuda.cuh"

namespace tuckfold::bounded {

// The most chunks of a tile. A block, one on each SM, has a warp for each chunk and one warp that
// looks back. There are fewer chunks where shared memory is smaller, but more than four, for which
// the workspace has room. Fewer blocks with larger tiles look back less far.
template <class Element>
inline constexpr int kPackWarps = sizeof(Element) == 8 ? 12 : 19;
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

// Bytes of shared memory after all warps' parts: grids_that_hold of every magnitude.
template <class Element>
inline constexpr int kHoldingBytes = sizeof(Element) == 2 ? kMagnitudes : 0;

// ---- planes -------------------------------------------------------------------------------------

// The planes of a row, `width` of them; `widest` is the chunk's, more than kMaskedBits.
__device__ TUCKFOLD_INLINE void store_row(const std::uint32_t* numbers, int width, int widest,
                                          std::uint16_t* to) {
  std::uint32_t words[8];
  const auto store = [&](int first) {
    const int some = width - first < 16 ? width - first : 16;
    const unsigned there = (1u << (some > 0 ? some : 0)) - 1;  // a bit for each existing plane
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
                                             std::int32_t base, int kind, int words) {
  if (lane_of() >= 3) return;
  const auto code = static_cast<std::uint32_t>(base);
  auto* header = reinterpret_cast<std::uint16_t*>(args.out + args.bound_bytes +
                                                  chunk * static_cast<int>(kHeaderBytes));
  header[lane_of()] = static_cast<std::uint16_t>(lane_of() == 0   ? code
                                                 : lane_of() == 1 ? code >> 16
                                                                  : kind | words << 3);
}

// Where a chunk's rows go, and a lane's two of them.
struct Placed {
  int words, widest;  // of the chunk
  Form form;
  // Where the lane's planes begin, in words, or in bytes with masks; there, its group's masks.
  int at, masks_at;
  RowMasks masks;  // widths instead if the widest exceeds kMaskedBits and they are stored
};

// The same in few registers, with what else is needed when the payload is stored.
struct Rows {
  std::uint32_t what = 0, at = 0;
  RowMasks masks{};

  __device__ static Rows of(const Placed& placed, int kind, Numbers numbers) {
    return {static_cast<std::uint32_t>(placed.words | kind << 13 | placed.widest << 16 |
                                       front_byte(placed.form, numbers) << 22),
            static_cast<std::uint32_t>(placed.at | placed.masks_at << 16), placed.masks};
  }
  __device__ int words() const { return static_cast<int>(what & 0x1fffu); }
  __device__ int kind() const { return static_cast<int>(what >> 13 & 7u); }
  __device__ int widest() const { return static_cast<int>(what >> 16 & 63u); }
  __device__ int front() const { return static_cast<int>(what >> 22); }
  __device__ Form form() const { return form_in(front()); }
  __device__ int planes_at() const { return static_cast<int>(at & 0xffffu); }
  __device__ int masks_at() const { return static_cast<int>(at >> 16); }
  // The width of a lane's first or second row.
  __device__ int width(int row) const {
    const std::uint32_t own = masks.rows[row];
    return widest() > kMaskedBits ? static_cast<int>(own) : width_of((own | own >> 16) & 0xffffu);
  }
};
static_assert(4 * kChunk < 1 << 13);  // words of f64

// What the rows of a lane take, by the OR of every eight numbers.
__device__ TUCKFOLD_INLINE Placed place_rows(const std::uint32_t* halves, int widest,
                                             int most_grouped) {
  const std::uint32_t first = halves[0] | halves[1], second = halves[2] | halves[3];
  if (widest > most_grouped) {
    const int least = least_width(widest);
    const int first_width = width_of(first) > least ? width_of(first) : least;
    const int second_width = width_of(second) > least ? width_of(second) : least;
    const int both = first_width + second_width;
    const int sum = sum_of_lanes(both);
    return {.words = kWidthWords + __shfl_sync(kAllLanes, sum, kWarp - 1),
            .widest = widest,
            .form = kWidths,
            .at = kWidthWords + sum - both,
            .masks_at = 0,
            .masks = {static_cast<std::uint32_t>(first_width),
                      static_cast<std::uint32_t>(second_width)}};
  }
  // Planes of 128 halves, widths of 64 rows and mask bytes are counted in 11, 10 and 10 bits.
  constexpr int kWidthsAt = 11, kBytesAt = 21;
  const RowMasks masks{halves[0] | halves[1] << 16, halves[2] | halves[3] << 16};
  const int own = masks.planes() | (width_of(first) + width_of(second)) << kWidthsAt |
                  Group::of(masks).mask_bytes() << kBytesAt;
  const int sum = sum_of_lanes(own), all = __shfl_sync(kAllLanes, sum, kWarp - 1);
  const PlaneCounts counts{all & 0x7ff, all >> kWidthsAt & 0x3ff, all >> kBytesAt};
  const Form form = form_of(widest, counts);
  const int front = front_words(form, mask_bits(widest)), before = sum - own;
  const int planes = 2 * front + (before & 0x7ff);
  return {.words = widest == 0 ? 0 : words_of(form, widest, counts),
          .widest = widest,
          .form = form,
          .at = form == kWidths      ? front + (before >> kWidthsAt & 0x3ff)
                : form == kHalfMasks ? planes
                                     : planes + counts.mask_bytes,
          .masks_at = 2 * front + (before >> kBytesAt),
          .masks = form == kWidths && widest > kMaskedBits
                       ? RowMasks{static_cast<std::uint32_t>(width_of(first)),
                                  static_cast<std::uint32_t>(width_of(second))}
                       : masks};
}

// The OR of every eight numbers of a lane.
__device__ TUCKFOLD_INLINE int or_halves(const std::uint32_t* numbers, std::uint32_t* halves) {
#pragma unroll
  for (int i = 0; i < kEach; ++i)
    halves[i / 8] = i % 8 == 0 ? numbers[i] : halves[i / 8] | numbers[i];
  return width_of(__reduce_or_sync(kAllLanes, halves[0] | halves[1] | halves[2] | halves[3]));
}

// Converts a chunk's staged values to a lane's numbers, and stores the chunk's header.
template <class Element, bool kExactZero>
__device__ TUCKFOLD_INLINE Rows rows_of(const PackArgs& args, const Control& control,
                                        std::int64_t chunk, const unsigned char* stage,
                                        const unsigned char* holding, std::uint32_t* numbers) {
  Placed placed{};
  int kind;
  std::int32_t base = 0;
  Numbers what = kSteps;
  if constexpr (sizeof(Element) == 2) {
    kind = quantize_halves<Element, kExactZero>(&control, stage, holding, numbers);
  } else {
    kind = quantize_chunk<Element, kExactZero>(&control, stage, numbers);
  }
  if (kind >= 0) {
    std::uint32_t before = __shfl_up_sync(kAllLanes, numbers[kEach - 1], 1);
    if (lane_of() == 0) before = numbers[0];
    what = number_codes<Element>(numbers, before);
    const auto held = static_cast<std::int32_t>(__shfl_sync(kAllLanes, before, 0));
    base = what == kCodes ? 0 : held >> kHeldShift<Element>;
    std::uint32_t halves[4];
    int widest = or_halves(numbers, halves);
    const int most_grouped = grouped_bits(sizeof(Element), what != kCodes);
    if (what == kEvenSteps) {
      if (widest < most_grouped) {
#pragma unroll
        for (int i = 0; i < kEach; ++i) numbers[i] += 2 * (numbers[i] & 1u);
        widest = or_halves(numbers, halves);
      } else {
        what = kSteps;
      }
    }
    placed = place_rows(halves, widest, most_grouped);
  }
  constexpr int kSize = sizeof(Element);
  const int count = static_cast<int>(chunk_elems(args.in.elems, chunk));
  if (kind < 0 || 2 * placed.words >= count * kSize) {
    const bool same = all_same<Element>(stage);
    base = 0;
    kind = same ? kSame : kKept;
    placed.words = kept_words(kSize, same ? 1 : count);
  }
  store_header(args, chunk, base, kind, placed.words);
  return Rows::of(placed, kind, what);
}

// Stores a chunk's payload; each lane stores its rows.
__device__ TUCKFOLD_INLINE void store_wide_rows(const Rows& rows, const std::uint32_t* numbers,
                                                unsigned char* payload) {
  const int widest = rows.widest(), least = least_width(widest);
  const int first = rows.width(0), second = rows.width(1);
  auto* halves = reinterpret_cast<std::uint16_t*>(payload);
  if (lane_of() == 0) halves[0] = static_cast<std::uint16_t>(least | rows.front() << 8);
  payload[2 + lane_of()] = static_cast<unsigned char>((first - least) | (second - least) << 4);
  store_row(numbers, first, widest, halves + rows.planes_at());
  store_row(numbers + kRowValues, second, widest, halves + rows.planes_at() + first);
}

__device__ TUCKFOLD_INLINE void store_narrow_rows(const Rows& rows, const std::uint32_t* numbers,
                                                  unsigned char* payload) {
  const int first = rows.width(0), second = rows.width(1);
  const bool wide = rows.widest() > 4;
  auto* halves = reinterpret_cast<std::uint16_t*>(payload);
  if (lane_of() == 0) halves[0] = static_cast<std::uint16_t>(rows.front() << 8);
  payload[2 + lane_of()] = static_cast<unsigned char>(first | second << 4);
  std::uint16_t* to = store_by_row(numbers, (1u << first) - 1, wide, halves + rows.planes_at());
  store_by_row(numbers + kRowValues, (1u << second) - 1, wide, to);
}

__device__ TUCKFOLD_INLINE void store_masked_rows(const Rows& rows, const std::uint32_t* numbers,
                                                  unsigned char* payload) {
  const int widest = rows.widest();
  unsigned char* to = payload + rows.planes_at();
  to = store_by_half(numbers, rows.masks.rows[0], widest, to);
  to = store_by_half(numbers + kRowValues, rows.masks.rows[1], widest, to);
  if (lane_of() == kWarp - 1 && to < payload + 2 * rows.words()) *to = 0;
  // Now that the numbers' registers are free.
  const bool groups = rows.form() == kGroups;
  const int bits = groups ? 0 : mask_bits(widest);
  if (lane_of() == 0) {
    *reinterpret_cast<std::uint16_t*>(payload) =
        static_cast<std::uint16_t>(bits | rows.front() << 8);
  }
  if (groups) {
    const Group group = Group::of(rows.masks);
    payload[2 + lane_of()] = static_cast<unsigned char>(group.width | group.full << 4);
    store_group_masks(rows.masks, payload + rows.masks_at());
  } else {
    store_lane_masks(rows.masks, bits, payload + 2);
  }
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
  cuda::wait_for_previous_kernel();
  for (unsigned i = threadIdx.x; i < sizeof(Control) / sizeof(unsigned); i += blockDim.x) {
    reinterpret_cast<unsigned*>(&exchange.control)[i] =
        reinterpret_cast<unsigned*>(args.control)[i];
  }
  unsigned char* holding = cuda::shared_memory() + args.warps * R::kBytes;
  if constexpr (kHoldingBytes < Element >> 0) {
    for (unsigned i = threadIdx.x; i < kHoldingBytes<Element> / 16; i += blockDim.x) {
      reinterpret_cast<uint4*>(holding)[i] = reinterpret_cast<const uint4*>(args.holding)[i];
    }
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
      rows = rows_of<Element, kExactZero>(args, exchange.control, chunk, stage, holding, numbers);
    }
    const int words = rows.words();
    if (lane == 0) put_size(args, exchange, step, tile, warp, words);
    __syncwarp();
    tile = exchange.tile(step + 1);
    const bool kept = rows.kind() >= kSame;
    if (!kept) started = start_values<Element>(args, tile * args.warps + warp, stage);

    const bool both = small(newer) && small(words);
    copy_out(step - 2, both ? step - 1 : step);
    older = both ? newer : 0;
    newer = words;
    unsigned char* payload = place_of(step, newer);
    if (kept) {
      const std::int64_t count = rows.kind() == kSame ? 1 : chunk_elems(args.in.elems, chunk);
      keep_values<Element>(stage, static_cast<int>(count) * Stage16<Element>::kSize, payload);
      __syncwarp();
      started = start_values<Element>(args, tile * args.warps + warp, stage);
    } else if (newer > 0) {
      if (rows.form() != kWidths) {
        store_masked_rows(rows, numbers, payload);
      } else if (rows.widest() > kMaskedBits) {
        store_wide_rows(rows, numbers, payload);
      } else {
        store_narrow_rows(rows, numbers, payload);
      }
    }
    __syncwarp();
  }
  copy_out(step - 2, step);
}

}  // namespace tuckfold::bounded
