// bounded's unpack kernels: first the offsets of payloads, from headers alone; then chunks, one per
// warp, without communication between warps.
#pragma once

#include "base/cuda/async.cuh"
#include "codec/blocks/vectors_cuda.cuh"
#include "codec/bounded/bounded_masks_cuda.cuh"

namespace tuckfold::bounded {

inline constexpr int kUnpackWarps = 8;    // of a block
inline constexpr int kUnpackBlocks = 4;   // on one SM
inline constexpr int kScanThreads = 128;  // each sums a part's headers

struct UnpackArgs {
  View out;
  std::int64_t chunks;
  const std::byte* packed;
  std::uint64_t packed_bytes, front_bytes, bound_bytes;
  Control* control;
  std::uint64_t* verdict;
  std::uint64_t* before;  // for each part the words in front of it
  std::uint64_t* states;
  bool vectors;  // the tensor is dense, from a multiple of 16 bytes on
};

// Kind and words of a chunk.
__device__ TUCKFOLD_INLINE unsigned kind_and_words(const UnpackArgs& args, std::int64_t chunk) {
  const std::byte* header = args.packed + args.bound_bytes + chunk * static_cast<int>(kHeaderBytes);
  return reinterpret_cast<const std::uint16_t*>(header)[2];
}

__global__ void scan_kernel(const __grid_constant__ UnpackArgs args) {
  constexpr int kScanWarps = kScanThreads / kWarp;
  __shared__ std::int64_t shared_tile;
  __shared__ std::uint64_t shared_before;
  __shared__ int sums[kScanWarps];
  cuda::allow_next_kernel();
  cuda::wait_for_previous_kernel();
  if (threadIdx.x == 0) shared_tile = cuda::take_ticket(&args.control->tickets);
  __syncthreads();
  const int lane = lane_of(), warp = static_cast<int>(threadIdx.x) / kWarp;
  const std::int64_t tile = shared_tile, part = tile * kScanThreads + threadIdx.x;
  int words = 0;
#pragma unroll
  for (int i = 0; i < kTogether; ++i) {
    const std::int64_t chunk = part * kTogether + i;
    if (chunk < args.chunks) words += static_cast<int>(kind_and_words(args, chunk) >> 3);
  }
  const int sum = sum_of_lanes(words);
  if (lane == kWarp - 1) sums[warp] = sum;
  __syncthreads();
  int inside = sum - words, all = 0;
#pragma unroll
  for (int i = 0; i < kScanWarps; ++i) {
    if (i < warp) inside += sums[i];
    all += sums[i];
  }
  if (warp == 0) {
    if (lane == 0) cuda::publish_own(args.states, tile, static_cast<std::uint64_t>(all));
    const std::uint64_t before = cuda::look_back(args.states, tile);
    if (lane == 0) {
      const std::uint64_t with_own = before + static_cast<std::uint64_t>(all);
      cuda::publish_all(args.states, tile, with_own);
      shared_before = before;
      const bool last = (tile + 1) * kScanThreads * kTogether >= args.chunks;
      if (last && args.front_bytes + 2 * with_own != args.packed_bytes) *args.verdict = kRefused;
    }
  }
  __syncthreads();
  if (part * kTogether < args.chunks) {
    args.before[part] = shared_before + static_cast<std::uint64_t>(inside);
  }
}

// ---- a payload ----------------------------------------------------------------------------------

// Starts to copy packed bytes [begin, begin + count) to shared memory, widened to multiples of 16.
// Reads nothing past the end of the packed bytes. They begin at payload_in(stage, begin).
__device__ TUCKFOLD_INLINE void start_payload(const UnpackArgs& args, std::uint64_t begin,
                                              int count, unsigned char* stage) {
  const int ahead = static_cast<int>(begin % 16);
  const std::byte* from = args.packed + (begin - static_cast<unsigned>(ahead));
  const int vectors = (ahead + count + 15) / 16;
  const std::uint64_t room = (args.packed_bytes - (begin - static_cast<unsigned>(ahead))) / 16;
  const int whole = room < static_cast<unsigned>(vectors) ? static_cast<int>(room) : vectors;
  for (int v = lane_of(); v < whole; v += kWarp) {
    cuda::copy_async(stage + 16 * v, from + 16 * v);
  }
  const int half = 8 * whole + lane_of();
  if (whole < vectors && 2 * half < ahead + count) {
    reinterpret_cast<std::uint16_t*>(stage)[half] =
        reinterpret_cast<const std::uint16_t*>(from)[half];
  }
}
__device__ TUCKFOLD_INLINE const unsigned char* payload_in(const unsigned char* stage,
                                                           std::uint64_t begin) {
  return stage + begin % 16;
}

// A row's numbers from its planes. Reads as many planes as the chunk's widest row has, and masks
// those that do not belong to the row.
__device__ TUCKFOLD_INLINE void load_row(const std::uint16_t* from, int width, int widest,
                                         std::uint32_t* numbers) {
  std::uint32_t words[8];
  const std::uint32_t mask = width < 32 ? (1u << width) - 1 : ~0u;
  if (widest <= 8) {
#pragma unroll
    for (int j = 0; j < 4; ++j) words[j] = __byte_perm(from[j], from[j + 4], 0x5410u);
    return narrow_numbers_of(words, mask, numbers);
  }
  const auto load = [&](int first) {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      words[j] = __byte_perm(from[first + j], from[first + j + 8], 0x5410u);
    }
  };
  load(0);
  numbers_of<0>(words, numbers);
  if (widest > 16) {
    load(16);
    numbers_of<1>(words, numbers);
  }
#pragma unroll
  for (int i = 0; i < kRowValues; ++i) numbers[i] &= mask;
}

// A lane's numbers from a payload with widths; false if it contradicts itself.
__device__ TUCKFOLD_INLINE bool load_wide_rows(const unsigned char* payload, int words,
                                               std::uint32_t* numbers) {
  if (words < kWidthWords) return false;
  const int least = payload[0], beyond = payload[2 + lane_of()];
  const int first = least + (beyond & 15), second = least + (beyond >> 4);
  const int sum = sum_of_lanes(first + second);
  const int widest = __reduce_max_sync(kAllLanes, first > second ? first : second);
  if (widest > 32 || __shfl_sync(kAllLanes, sum, kWarp - 1) != words - kWidthWords) return false;
  const auto* rows = reinterpret_cast<const std::uint16_t*>(payload) + kWidthWords + sum - second;
  load_row(rows - first, first, widest, numbers);
  load_row(rows, second, widest, numbers + kRowValues);
  return true;
}

// A lane's codes from a payload, times 2 if kTwice; false if it contradicts itself.
template <bool kTwice>
__device__ TUCKFOLD_INLINE bool load_codes(const unsigned char* payload, int words,
                                           std::uint32_t base, std::uint32_t* codes) {
  const int front = payload[1];
  if (!is_front(front)) return false;
  if (!(form_in(front) == kWidths ? load_wide_rows(payload, words, codes)
                                  : load_masked_rows(payload, words, codes))) {
    return false;
  }
  constexpr std::uint32_t kTimes = kTwice ? 2 : 1;
  if (numbers_in(front) == kCodes) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) codes[i] = (codes[i] + base) * kTimes;
    return true;
  }
  if (numbers_in(front) == kEvenSteps) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) codes[i] -= 2 * (codes[i] & 1u);
  }
  // Twice a difference is its number where that is even, else the number's complement.
  const auto difference = [](std::uint32_t number) {
    return kTwice ? number ^ (0u - (number & 1u)) : unzigzag(number);
  };
  codes[0] = difference(codes[0]);
#pragma unroll
  for (int i = 1; i < kEach; ++i) codes[i] = codes[i - 1] + difference(codes[i]);
  const std::uint32_t own = codes[kEach - 1];
  const std::uint32_t before =
      base * kTimes + static_cast<std::uint32_t>(sum_of_lanes(static_cast<int>(own))) - own;
#pragma unroll
  for (int i = 0; i < kEach; ++i) codes[i] += before;
  return true;
}

// ---- values -------------------------------------------------------------------------------------

// Writes a chunk's values from their bits, which bits_at(i) gives.
template <class Element, class BitsAt>
__device__ TUCKFOLD_INLINE void scatter(const UnpackArgs& args, std::int64_t chunk, int count,
                                        BitsAt&& bits_at) {
  auto* data = reinterpret_cast<Element*>(args.out.data);
  for (int i = lane_of(); i < count; i += kWarp) {
    data[args.out.offset(chunk * kChunk + i)] = bits_at(i);
  }
}

// Sixteen bytes of values.
template <class Element>
__device__ TUCKFOLD_INLINE uint4 elements_of(const RealOf<Element>* values) {
  if constexpr (sizeof(Element) == 2) {
    return cuda::halves_of<Element>(values);
  } else {
    Sixteen<Element> some;
#pragma unroll
    for (int i = 0; i < Stage16<Element>::kTogetherValues; ++i) {
      some.elements[i] = element_of<Element>(values[i]);
    }
    return std::bit_cast<uint4>(some);
  }
}

template <class Element, bool kTwice>
__device__ TUCKFOLD_INLINE void store_values(const UnpackArgs& args, std::int64_t chunk, int count,
                                             const Grid<RealOf<Element>>& grid,
                                             const std::uint32_t* codes, unsigned char* stage) {
  using S = Stage16<Element>;
  __syncwarp();  // every lane has read what it needs of the payload
#pragma unroll
  for (int v = 0; v < S::kVectors; ++v) {
    RealOf<Element> values[S::kTogetherValues];
#pragma unroll
    for (int i = 0; i < S::kTogetherValues; ++i) {
      const auto code = static_cast<std::int32_t>(codes[v * S::kTogetherValues + i]);
      values[i] = kTwice ? static_cast<RealOf<Element>>(code) * grid.half : value_of(code, grid);
    }
    *reinterpret_cast<uint4*>(stage + lane_of() * S::kStride + 16 * v) =
        elements_of<Element>(values);
  }
  __syncwarp();
  if (args.vectors && count == kChunk) {
    auto* to = reinterpret_cast<uint4*>(args.out.data) + chunk * (S::kVectors * kWarp) + lane_of();
#pragma unroll
    for (int k = 0; k < S::kVectors; ++k) {
      cuda::store_away(to + k * kWarp, *reinterpret_cast<const uint4*>(stage + S::place(k)));
    }
  } else {
    scatter<Element>(args, chunk, count, [&](int i) {
      return *reinterpret_cast<const Element*>(stage + S::value_place(i));
    });
  }
}

// An element at any even address, or at any address if it is one byte.
template <class Element>
__device__ TUCKFOLD_INLINE Element element_at(const unsigned char* from) {
  if constexpr (sizeof(Element) == 1) {
    return *from;
  } else {
    using Word =
        std::conditional_t<sizeof(Element) == 8, std::uint64_t,
                           std::conditional_t<sizeof(Element) == 4, std::uint32_t, std::uint16_t>>;
    const auto* halves = reinterpret_cast<const std::uint16_t*>(from);
    Word word = 0;
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(Element)) / 2; ++i) {
      word = static_cast<Word>(word | static_cast<Word>(halves[i]) << (16 * i));
    }
    return std::bit_cast<Element>(word);
  }
}

template <class Element>
__device__ inline Element no_value() {
  if constexpr (std::is_same_v<Element, std::uint8_t>) {
    return 0;
  } else {
    return element_of<Element>(std::numeric_limits<RealOf<Element>>::quiet_NaN());
  }
}

// A chunk of codes. kTwice: codes are stored doubled, which saves two instructions per value, but
// loses the sign that zero=exact needs when bytes are damaged.
template <class Element, bool kTwice>
__device__ TUCKFOLD_INLINE bool unpack_codes(const UnpackArgs& args, std::int64_t chunk, int count,
                                             const ChunkHeader& header,
                                             const Grid<RealOf<Element>>& grid,
                                             const unsigned char* payload, unsigned char* stage) {
  std::uint32_t codes[kEach];
  const auto base = static_cast<std::uint32_t>(header.base);
  if (header.words == 0) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) codes[i] = kTwice ? 2 * base : base;
  } else if (!load_codes<kTwice>(payload, header.words, base, codes)) {
    return false;
  }
  store_values<Element, kTwice>(args, chunk, count, grid, codes, stage);
  return true;
}

// A chunk, and where its payload is.
struct Found {
  ChunkHeader header;
  std::uint64_t begin;
  bool good;
};
template <class Element>
__device__ TUCKFOLD_INLINE Found find_chunk(const UnpackArgs& args, std::int64_t chunk) {
  // Headers of the part up to this chunk, a lane each.
  const int lane = lane_of(), in_part = static_cast<int>(chunk % kTogether);
  const std::int64_t part = chunk / kTogether;
  const auto* header = reinterpret_cast<const std::uint16_t*>(
      args.packed + args.bound_bytes + chunk * static_cast<int>(kHeaderBytes));
  const unsigned mine = lane <= in_part ? kind_and_words(args, part * kTogether + lane) : 0;
  const std::uint32_t base = header[0] | static_cast<std::uint32_t>(header[1]) << 16;
  const std::uint64_t before = args.before[part];
  const unsigned both = __shfl_sync(kAllLanes, mine, in_part);
  const int inside = __reduce_add_sync(kAllLanes, lane < in_part ? static_cast<int>(mine >> 3) : 0);
  Found found;
  found.header = {.base = static_cast<std::int32_t>(base),
                  .kind = static_cast<int>(both & 7u),
                  .words = static_cast<int>(both >> 3)};
  found.begin = args.front_bytes + 2 * (before + static_cast<unsigned>(inside));
  found.good = !args.control->hopeless &&
               well_formed(found.header, sizeof(Element), chunk_elems(args.out.elems, chunk)) &&
               found.begin + 2 * static_cast<unsigned>(found.header.words) <= args.packed_bytes;
  return found;
}

// A chunk whose payload is in the stage, which values then pass through.
template <class Element>
__device__ TUCKFOLD_INLINE void unpack_chunk(const UnpackArgs& args, std::int64_t chunk,
                                             const Found& found, unsigned char* stage) {
  const ChunkHeader& of = found.header;
  const int count = static_cast<int>(chunk_elems(args.out.elems, chunk));
  if (found.good) {
    const auto grid = grid_at<RealOf<Element>>(args.control, of.kind < kGrids ? of.kind : 0);
    const unsigned char* payload = payload_in(stage, found.begin);
    if (of.kind >= kSame) {
      const int step = of.kind == kSame ? 0 : Stage16<Element>::kSize;
      return scatter<Element>(args, chunk, count,
                              [&](int i) { return element_at<Element>(payload + i * step); });
    }
    if (grid.exact_zero
            ? unpack_codes<Element, false>(args, chunk, count, of, grid, payload, stage)
            : unpack_codes<Element, true>(args, chunk, count, of, grid, payload, stage)) {
      return;
    }
  }
  if (lane_of() == 0) *args.verdict = kRefused;
  scatter<Element>(args, chunk, count, [](int) { return no_value<Element>(); });
}

// Chunks of a warp. Two of them wait for memory together where shared memory has room for both.
template <class Element>
inline constexpr int kUnpackChunks = sizeof(Element) == 2 ? 2 : 1;
template <class Element>
inline constexpr int kUnpackSharedBytes =
    kUnpackWarps* kUnpackChunks<Element>* Stage16<Element>::kBytes;

template <class Element>
__global__ void __launch_bounds__(kUnpackWarps* kWarp, sizeof(Element) == 8 ? 1 : kUnpackBlocks)
    unpack_kernel(const __grid_constant__ UnpackArgs args) {
  using S = Stage16<Element>;
  constexpr int kMany = kUnpackChunks<Element>;
  static_assert(kTogether % kMany == 0);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const std::int64_t first = (static_cast<std::int64_t>(blockIdx.x) * kUnpackWarps + warp) * kMany;
  if (first >= args.chunks) return;
  cuda::wait_for_previous_kernel();
  unsigned char* stages = cuda::shared_memory() + warp * kMany * S::kBytes;
  Found found[kMany];
#pragma unroll
  for (int k = 0; k < kMany; ++k) {
    if (first + k < args.chunks) found[k] = find_chunk<Element>(args, first + k);
  }
#pragma unroll
  for (int k = 0; k < kMany; ++k) {
    if (first + k < args.chunks && found[k].good && found[k].header.words > 0) {
      start_payload(args, found[k].begin, 2 * found[k].header.words, stages + k * S::kBytes);
    }
  }
  cuda::wait_for_copies();
  __syncwarp();
  Found mine = found[0];
#pragma unroll 1
  for (int k = 0;;) {  // one text for all
    unpack_chunk<Element>(args, first + k, mine, stages + k * S::kBytes);
    if (++k == kMany || first + k == args.chunks) break;
    mine = found[kMany - 1];
  }
  static_assert(kMany <= 2);
}

}  // namespace tuckfold::bounded
