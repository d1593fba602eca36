// bounded's pack kernel: values are read once; a block's payloads wait in shared memory until it is
// known where they begin.
#pragma once

#include <limits>

#include "base/cuda/async.cuh"
#include "codec/bounded_cuda.cuh"

namespace tuckfold::bounded {

// Chunks of a tile: a block has a warp for each, and one that looks back. Blocks on one SM, each of
// which packs tile after tile. There is room for as many states as tiles of eight chunks.
template <class Element>
inline constexpr int kPackWarps = sizeof(Element) == 8 ? 8 : 15;
template <class Element>
inline constexpr int kPackThreads = (kPackWarps<Element> + 1) * kWarp;
inline constexpr int kPackBlocks = 2;

// Codes of f32 are held twofold: it costs nothing to make them so, and a shift less for each
// difference. Those of f64 have no bit to spare.
template <class Element>
inline constexpr int kHeldShift = std::is_same_v<Element, double> ? 0 : 1;

struct PackArgs {
  View in;
  std::int64_t chunks, tiles;
  std::byte* out;
  std::uint64_t out_bytes, front_bytes, bound_bytes;
  Control* control;
  std::uint64_t* states;
  bool vectors;  // the tensor is dense, from a multiple of 16 bytes on
};

// What a chunk becomes.
struct Packed {
  std::int32_t base;
  int kind, words;
};

// ---- values -------------------------------------------------------------------------------------

// Behind the end of the tensor its last value is repeated, and so its code.
template <class Element>
__device__ TUCKFOLD_INLINE void stage_values(const PackArgs& args, std::int64_t chunk,
                                             unsigned char* stage) {
  using S = Stage16<Element>;
  const int count = static_cast<int>(chunk_elems(args.in.elems, chunk));
  if (args.vectors && count == kChunk) {
    const auto* from =
        reinterpret_cast<const uint4*>(args.in.data) + chunk * (S::kVectors * kWarp) + lane_of();
#pragma unroll
    for (int k = 0; k < S::kVectors; ++k) {
      cuda::copy_async(stage + S::place(k), from + k * kWarp);
    }
    cuda::wait_for_copies();
  } else {
    const auto* data = reinterpret_cast<const Element*>(args.in.data);
    for (int i = lane_of(); i < kChunk; i += kWarp) {
      const std::int64_t index = chunk * kChunk + (i < count ? i : count - 1);
      *reinterpret_cast<Element*>(stage + S::value_place(i)) = data[args.in.offset(index)];
    }
  }
  __syncwarp();
}

// Calls visit(i, value) for a lane's values, from its part of the stage.
template <class Element, class Visit>
__device__ TUCKFOLD_INLINE void for_each_value(const unsigned char* stage, Visit&& visit) {
  using S = Stage16<Element>;
  const unsigned char* own = stage + lane_of() * S::kStride;
#pragma unroll
  for (int v = 0; v < S::kVectors; ++v) {
    const auto some =
        std::bit_cast<Sixteen<Element>>(*reinterpret_cast<const uint4*>(own + 16 * v));
#pragma unroll
    for (int i = 0; i < S::kTogetherValues; ++i) {
      visit(v * S::kTogetherValues + i, real_of(some.elements[i]));
    }
  }
}

// The largest magnitude. A NaN is not seen here: it holds on no grid.
template <class Element>
__device__ TUCKFOLD_INLINE RealOf<Element> largest_of(const unsigned char* stage) {
  using Real = RealOf<Element>;
  Real largest = 0;
  for_each_value<Element>(stage,
                          [&](int, Real value) { largest = std::fmax(largest, std::fabs(value)); });
  if constexpr (std::is_same_v<Real,
                               float>) {  // bits of numbers that are not negative are in order
    return __uint_as_float(__reduce_max_sync(kAllLanes, __float_as_uint(largest)));
  } else {
#pragma unroll
    for (int by = kWarp / 2; by > 0; by /= 2) {
      largest = std::fmax(largest, __shfl_xor_sync(kAllLanes, largest, by));
    }
    return largest;
  }
}

// A lane's codes, as they are held, and whether all hold; codes are of no use where not.
template <class Element, bool kExactZero>
__device__ TUCKFOLD_INLINE bool quantize(const unsigned char* stage,
                                         const Grid<RealOf<Element>>& grid, std::uint32_t* codes) {
  using Real = RealOf<Element>;
  bool good[4] = {true, true, true, true};  // so that they need not wait for each other
  for_each_value<Element>(stage, [&](int i, Real value) {
    bool here;
    if constexpr (kExactZero) {
      const std::int32_t code = code_of(value, grid);
      const Real back = real_of(element_of<Element>(value_of(code, grid)));
      codes[i] = static_cast<std::uint32_t>(code) << kHeldShift<Element>;
      here = holds(value, back, grid);
    } else {
      // Codes are at most kMaxCode, so what comes out of the sum is exact, and twice that too.
      const Real sum = value * grid.inverse + kToInteger<Real>;
      const Real twice = std::fma(Real{2}, sum, Real{-2} * kToInteger<Real>);
      const Real back = real_of(element_of<Element>(twice * grid.half));
      constexpr auto kOrigin =
          static_cast<std::uint32_t>(std::bit_cast<Bits<Real>>(kToInteger<Real>));
      constexpr std::uint32_t kTimes = 1u << kHeldShift<Element>;
      codes[i] =
          static_cast<std::uint32_t>(std::bit_cast<Bits<Real>>(sum)) * kTimes - kOrigin * kTimes;
      here = std::fabs(value - back) <= grid.bound;
    }
    good[i % 4] = good[i % 4] & here;
  });
  return good[0] & good[1] & good[2] & good[3];
}

// As first_grid, without a branch: the limits grow from grid to grid.
template <class Element>
__device__ TUCKFOLD_INLINE int grid_for(RealOf<Element> largest, RealOf<Element> inverse) {
  using Real = RealOf<Element>;
  if constexpr (!std::is_same_v<Element, float>) return 0;
  const Real steps = largest * inverse;
  int number = 0;
#pragma unroll
  for (int i = 0; i + 1 < kGrids; ++i) {
    number += steps <= static_cast<Real>(kShrink[i]) * Real{0x1p20} ? 0 : 1;
  }
  return number;
}

// Codes on the first grid on which all values of the chunk hold, and its number; -1: there is none.
template <class Element>
__device__ TUCKFOLD_INLINE int quantize_chunk(const Control* control, const unsigned char* stage,
                                              std::uint32_t* codes) {
  using Real = RealOf<Element>;
  const Real inverse = grid_at<Real>(control, 0).inverse;
  const Real largest = largest_of<Element>(stage);
  if (!(largest <= std::numeric_limits<Real>::max())) return -1;
  for (int number = grid_for<Element>(largest, inverse); number < kGrids; ++number) {
    const Grid<Real> grid = grid_at<Real>(control, number);
    if (!usable(grid) || !(largest * grid.inverse <= kMaxCode<Real>)) return -1;
    const bool good = grid.exact_zero ? quantize<Element, true>(stage, grid, codes)
                                      : quantize<Element, false>(stage, grid, codes);
    if (__all_sync(kAllLanes, good)) return number;
  }
  return -1;
}

// ---- codes --------------------------------------------------------------------------------------

// The zigzag number of a difference of held codes.
template <class Element>
__device__ TUCKFOLD_INLINE std::uint32_t zigzag_of(std::uint32_t held, std::uint32_t before) {
  const std::uint32_t step = held - before;
  if constexpr (kHeldShift<Element> == 0) return zigzag(step);
  return step ^ (0u - (step >> 31));
}

// The difference of held codes back from its zigzag number.
template <class Element>
__device__ TUCKFOLD_INLINE std::uint32_t step_of(std::uint32_t number) {
  if constexpr (kHeldShift<Element> == 0) return unzigzag(number);
  return number ^ (0u - (number & 1u));
}

// Held codes to numbers, in place: codes where they take fewer bits than their differences and none
// is negative, and then true; else differences. The CPU's decision: rows 0, 16 …, then rows 0, 4 …
// tell, which are first rows of lanes. `before` is the code before the lane's first.
template <class Element>
__device__ TUCKFOLD_INLINE bool number_alone(std::uint32_t* held, std::uint32_t before) {
  const int lane = lane_of();
  const std::uint32_t between = held[kRowValues - 1];
  std::uint32_t alone = 0, steps = 0;
#pragma unroll
  for (int i = kRowValues; i-- > 0;) {
    alone |= held[i];
    held[i] = zigzag_of<Element>(held[i], i == 0 ? before : held[i - 1]);
    steps |= held[i];
  }
  // Of a negative one the width is 32, twofold or not.
  const int width = alone >> 31 != 0 ? 32 : width_of(alone >> kHeldShift<Element>);
  const int saved = width_of(steps) - width;
  if (__reduce_add_sync(kAllLanes, lane % 8 == 0 ? saved : 0) > 0 &&
      __reduce_add_sync(kAllLanes, lane % 2 == 0 ? saved : 0) > 0) {
#pragma unroll
    for (int i = kRowValues; i < kEach; ++i) alone |= held[i];
    if (!__any_sync(kAllLanes, alone >> 31 != 0)) {
      // Registers are scarce: the first row's codes were not kept.
#pragma unroll
      for (int i = 0; i < kRowValues; ++i) {
        before += step_of<Element>(held[i]);
        held[i] = before >> kHeldShift<Element>;
        held[kRowValues + i] >>= kHeldShift<Element>;
      }
      return true;
    }
  }
#pragma unroll
  for (int i = kEach; i-- > kRowValues;) {
    held[i] = zigzag_of<Element>(held[i], i == kRowValues ? between : held[i - 1]);
  }
  return false;
}

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
template <class Element>
__device__ TUCKFOLD_INLINE Rows rows_of(const PackArgs& args, std::int64_t chunk,
                                        unsigned char* stage, std::uint32_t* numbers) {
  Rows rows{};
  stage_values<Element>(args, chunk, stage);
  rows.chunk.kind = quantize_chunk<Element>(args.control, stage, numbers);
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
template <class Element>
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
      rows = rows_of<Element>(args, chunk, stage, numbers);
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

// ---- the range of a tensor, for rel -------------------------------------------------------------

// Numbers whose order is that of doubles; none is 0.
__device__ inline unsigned long long key_of(double value) {
  const auto bits = std::bit_cast<unsigned long long>(value);
  return bits >> 63 != 0 ? ~bits : bits | 1ull << 63;
}
__device__ inline double of_key(unsigned long long key) {
  return std::bit_cast<double>(key >> 63 != 0 ? key & ~(1ull << 63) : ~key);
}

inline constexpr int kRangeThreads = 256, kRangeVectors = 4, kRangeBlocks = 6;

// Leaves the range as keys, the lowest inverted, so that both only grow.
template <class Element>
__global__ void __launch_bounds__(kRangeThreads, kRangeBlocks)
    range_kernel(const __grid_constant__ PackArgs args) {
  using Real = RealOf<Element>;
  constexpr Real kInf = std::numeric_limits<Real>::infinity();
  constexpr int kValues = Stage16<Element>::kTogetherValues;
  Real low = kInf, high = -kInf;
  const auto widen = [&](Real value) {
    if (!(std::fabs(value) <= std::numeric_limits<Real>::max())) return;
    low = value < low ? value : low;
    high = value > high ? value : high;
  };
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * kRangeThreads;
  const std::int64_t self = static_cast<std::int64_t>(blockIdx.x) * kRangeThreads + threadIdx.x;
  std::int64_t done = 0;
  if (args.vectors) {
    const auto* from = reinterpret_cast<const uint4*>(args.in.data);
    const std::int64_t vectors = args.in.elems / kValues;
    for (std::int64_t v = self; v < vectors; v += kRangeVectors * threads) {
      uint4 some[kRangeVectors];
#pragma unroll
      for (int k = 0; k < kRangeVectors; ++k) {
        some[k] = from[v + k * threads < vectors ? v + k * threads : v];
      }
#pragma unroll
      for (int k = 0; k < kRangeVectors; ++k) {
        const auto values = std::bit_cast<Sixteen<Element>>(some[k]);
#pragma unroll
        for (int i = 0; i < kValues; ++i) widen(real_of(values.elements[i]));
      }
    }
    done = vectors * kValues;
  }
  for (std::int64_t i = done + self; i < args.in.elems; i += threads) {
    widen(real_of(reinterpret_cast<const Element*>(args.in.data)[args.in.offset(i)]));
  }
#pragma unroll
  for (int by = kWarp / 2; by > 0; by /= 2) {
    const Real other_low = __shfl_xor_sync(kAllLanes, low, by);
    const Real other_high = __shfl_xor_sync(kAllLanes, high, by);
    low = other_low < low ? other_low : low;
    high = other_high > high ? other_high : high;
  }
  __shared__ Real lows[kRangeThreads / kWarp], highs[kRangeThreads / kWarp];
  if (lane_of() == 0) {
    lows[threadIdx.x / kWarp] = low;
    highs[threadIdx.x / kWarp] = high;
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int i = 1; i < kRangeThreads / kWarp; ++i) {
    low = lows[i] < low ? lows[i] : low;
    high = highs[i] > high ? highs[i] : high;
  }
  if (low > high) return;
  atomicMax(&args.control->lowest, ~key_of(low));
  atomicMax(&args.control->highest, key_of(high));
}

}  // namespace tuckfold::bounded
