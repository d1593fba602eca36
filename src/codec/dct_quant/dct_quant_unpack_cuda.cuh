// dct_quant's unpack on CUDA for rates up to 8: a warp brings the bytes of its 32 blocks to shared
// memory, then one thread unpacks one block into registers. The values are those of unpack_block.
// Widths and places of tiles are worked out four to a word, a byte each; a tile's codes two to a
// word, at the top of 16 bits each, where they count the same however wide they are.
#pragma once

#include "codec/dct_quant/dct_quant_pack_cuda.cuh"

namespace tuckfold::dct_quant {

// A block's words in shared memory: each lane's in a bank of its own, so that lanes may look at
// different words at once.
struct Words {
  const unsigned char* first;
  static constexpr int kStep = 4 * cuda::kWarp;  // bytes from a word to the next

  // 64 bits from byte `at`, a multiple of 4, and `shift` < 32 bits more on.
  __device__ TUCKFOLD_INLINE void get64(std::uint32_t at, std::uint32_t shift, std::uint32_t& low,
                                        std::uint32_t& high) const {
    const unsigned char* from = first + at * (kStep / 4);
    const auto word = [&](int i) {
      return *reinterpret_cast<const std::uint32_t*>(from + i * kStep);
    };
    const std::uint32_t middle = word(1);
    low = __funnelshift_r(word(0), middle, shift);
    high = __funnelshift_r(middle, word(2), shift);
  }
};

inline constexpr int kSlackRows = 4;  // words that get64 may read past those of the last byte

// What follows from the width of a tile alone. Each warp has a table of it in shared memory: to
// look it up takes fewer instructions than to work it out.
struct alignas(16) WidthEntry {
  std::uint32_t top;     // to multiply with: brings a code's even bits to the top of 16
  std::uint32_t turned;  // the sign bit, and the half that is added; of width 0 they are one bit
  std::uint32_t spread;  // times the four lowest bits of an odd width: two of them where they go
  std::uint32_t pick;    // those two places
};
inline constexpr int kWidths = 16, kTableBytes = kWidths * static_cast<int>(sizeof(WidthEntry));

__device__ TUCKFOLD_INLINE void fill_table(unsigned char* table, int lane) {
  if (lane >= kWidths) return;
  const auto wide = static_cast<std::uint32_t>(lane), odd = wide & 1u;
  const std::uint32_t top = 0x10000u >> (wide - odd), lowest = odd * (top >> 1);
  reinterpret_cast<WidthEntry*>(table)[lane] = {.top = top,
                                                .turned = 0x80008000u >> wide | 0x80008000u,
                                                .spread = lowest * 0x8001u,
                                                .pick = lowest * 0x10001u};
}

// A header's widths of tiles, four to a word. All loops over tiles are unrolled: these are registers.
struct Given {
  std::uint32_t width[4] = {};
  std::uint32_t left = 0;  // nibbles that no tile takes
  int q = 0;               // the step's number
  bool good = false;       // the header is one that pack writes

  // The number of a step of which 2^23 are finite: the step itself, or a 2^64th of it.
  __device__ bool huge() const { return q >= kHugeStep; }
  __device__ int small_q() const { return huge() ? q - 4 * 64 : q; }
};

// The tiles 4i to 4i + 3, a byte each.
__device__ TUCKFOLD_INLINE constexpr std::uint32_t numbers_of_tiles(int i) {
  return 0x03020100u + 4u * static_cast<std::uint32_t>(i) * kOnes;
}

template <int kTiles>
__device__ TUCKFOLD_INLINE Given read_header(const Form& form, const std::uint32_t* head) {
  constexpr int kWords = (kTiles + 3) / 4;
  constexpr std::uint32_t kMore = 0x40;  // added, so that bytes stay positive whatever is there
  const std::uint32_t changes = __funnelshift_r(head[0], head[1], 12);  // two bits a tile, from 1
  std::uint32_t before = kMore + (head[0] >> 10 & 15u), wrong = 0, sum = 0;
  Given given{.q = static_cast<int>(head[0] & 1023u)};
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    std::uint32_t change = changes >> (8 * i) & 0xffu;
    change = (change | change << 12) & 0x000f000fu;
    change = (change | change << 6) & (i == 0 ? 0x03030300u : 0x03030303u);
    const std::uint32_t sums = (change + before) * kOnes;
    before = sums >> 24;
    given.width[i] = (sums - 2 * numbers_of_tiles(i)) ^ (kMore * kOnes);
    if (kTiles % 4 != 0 && i == kWords - 1) given.width[i] &= (1u << (8 * (kTiles % 4))) - 1;
    wrong |= (given.width[i] + kOnes) & 0xf0f0f0f0u;  // past 14
    sum = __dp4a(given.width[i], kOnes, sum);
  }
  const auto room = static_cast<std::uint32_t>(form.nibbles);
  given.left = room - sum;
  given.good = wrong == 0 && sum <= room && given.q >= kLeastStep && given.q < kNoStep;
  return given;
}

// Where the codes of each tile are. Like the widths, a byte for each tile.
struct Tiles {
  std::uint32_t width[4] = {};                            // with what is left over handed out
  std::uint32_t begin_words[4] = {}, begin_bits[4] = {};  // whole words of bytes, and bits more
  std::uint32_t tail_bits[4] = {};
  std::uint32_t two_codes[4] = {};  // bits of two codes but for the tail's
  std::uint32_t entries[4] = {};    // where the table has them
  std::uint32_t end = 0;            // the first byte of the tail
};

template <int kTiles>
__device__ TUCKFOLD_INLINE Tiles find_tiles(const Form& form, const Given& given) {
  const std::uint32_t handed = (0x7fu + (given.left < 16 ? given.left : 16u)) * kOnes;
  Tiles tiles{.end = static_cast<std::uint32_t>(form.header_bits()) / 8};
#pragma unroll
  for (int i = 0; i < (kTiles + 3) / 4; ++i) {
    const std::uint32_t asked = given.width[i];
    std::uint32_t width =
        asked + (((handed - numbers_of_tiles(i)) & (asked + 0x7f7f7f7fu)) >> 7 & kOnes);
    if (!given.good) width = 0;  // then nothing is read past the block
    tiles.width[i] = width;
    tiles.tail_bits[i] = (width & kOnes) * 4;
    tiles.two_codes[i] = (width & 0x0e0e0e0eu) * 2;
    tiles.entries[i] = width * static_cast<std::uint32_t>(sizeof(WidthEntry));
    const std::uint32_t bytes = width >> 1 & 0x07070707u;
    const std::uint32_t ends = (bytes + tiles.end) * kOnes, begin = ends - bytes;
    tiles.begin_words[i] = begin & 0xfcfcfcfcu;
    tiles.begin_bits[i] = (begin & 0x03030303u) * 8;
    tiles.end = ends >> 24;
  }
  return tiles;
}

// The lowest bits of odd widths, four a tile, by columns (kTileAt).
struct Tail {
  std::uint32_t words[2];
  std::uint32_t taken = 0;

  __device__ TUCKFOLD_INLINE std::uint32_t next_four() const {
    return __funnelshift_r(words[0], words[1], taken) & 15u;
  }
  // After half of the tiles, which take 32 bits at most.
  __device__ TUCKFOLD_INLINE void drop_taken() {
    const bool all = taken == 32;
    words[0] = all ? words[1] : __funnelshift_r(words[0], words[1], taken);
    words[1] = all ? 0 : words[1] >> taken;
    taken = 0;
  }
};

// Reads the tail, and the upper bits of the first coefficient, which have four there if the header
// does not end with a byte.
template <int kTiles>
__device__ TUCKFOLD_INLINE Tail read_tail(const Form& form, const Words& in,
                                          const std::uint32_t* head, std::uint32_t end,
                                          std::uint32_t& dc) {
  Tail tail{};
  in.get64(end & ~3u, end % 4 * 8, tail.words[0], tail.words[1]);
  dc = __funnelshift_r(head[0], head[1], 12 + 2 * kTiles);
  if constexpr (12 + 2 * kTiles >= 32) dc = head[1] >> (12 + 2 * kTiles - 32);
  if (form.header_bits() % 8 != 0) {
    dc = dc << 4 | (tail.words[0] & 15u);
    std::uint32_t beyond, unused;  // up to 68 bits
    in.get64((end & ~3u) + 8, end % 4 * 8, beyond, unused);
    tail.words[0] = __funnelshift_r(tail.words[0], tail.words[1], 4);
    tail.words[1] = __funnelshift_r(tail.words[1], beyond, 4);
  }
  return tail;
}

// The first coefficient: `dc` above the code that its tile has for it.
__device__ TUCKFOLD_INLINE float first_coefficient(const Form& form, const Given& given,
                                                   std::uint32_t wide, std::uint32_t dc,
                                                   std::uint32_t low, std::uint32_t four) {
  const std::uint32_t odd = wide & 1u, even = wide - odd;
  const int total = static_cast<int>(wide) + form.dc, unused = 32 - total;
  const std::uint32_t code = (low & ((1u << even) - 1)) << odd | (four & odd);
  const auto number = static_cast<std::int32_t>((dc << wide | code) << unused) >> unused;
  const float step = wide > (given.width[0] & 0xffu) ? 0.5f * step_of(given.q) : step_of(given.q);
  return given.good ? static_cast<float>(number) * step : float_of(kNanBits);
}

// Tile k's four coefficients.
__device__ TUCKFOLD_INLINE void read_tile(int k, const Form& form, const Words& in,
                                          const unsigned char* table, const Given& given,
                                          const Tiles& tiles, Tail& tail, std::uint32_t dc,
                                          float* z) {
  const auto byte_of = [k](const std::uint32_t* words) {
    return __byte_perm(words[k / 4], 0, 0x4440u + static_cast<unsigned>(k % 4));
  };
  const auto entry = *reinterpret_cast<const WidthEntry*>(table + byte_of(tiles.entries));
  std::uint32_t low, high;
  in.get64(byte_of(tiles.begin_words), byte_of(tiles.begin_bits), low, high);
  const std::uint32_t four = tail.next_four();  // if the width is odd
  tail.taken += byte_of(tiles.tail_bits);
  const std::uint32_t mask = 0x10000u - entry.top * 0x10001u, top_twice = entry.top * entry.top;
  const std::uint32_t codes[2] = {low, __funnelshift_r(low, high, byte_of(tiles.two_codes))};
  const std::uint32_t step_bits = static_cast<std::uint32_t>(given.small_q()) << kStepShift;
  const float scale = float_of(step_bits + (byte_of(given.width) << 23) - (16u << 23));
  const float less = (0x1p23f + 0x1p15f) * -scale;  // exact, and so is what is added to it
#pragma unroll
  for (int pair = 0; pair < 2; ++pair) {
    const std::uint32_t both =
        __byte_perm(codes[pair] * entry.top, codes[pair] * top_twice, 0x7610);
    const std::uint32_t lowest = (four >> (2 * pair)) * entry.spread & entry.pick;
    const std::uint32_t words = (both & mask) ^ entry.turned ^ lowest;
#pragma unroll
    for (int t = 0; t < 2; ++t) {
      // 2^23 and a word without sign.
      const float number = float_of(__byte_perm(0x4b000000u, words, t == 0 ? 0x3254 : 0x3276));
      z[place(k, 2 * pair + t)] = std::fma(number, scale, less);
    }
  }
  if (k == 0) z[0] = first_coefficient(form, given, tiles.width[0] & 0xffu, dc, low, four);
}

// Returns whether all values are sure to be numbers, below 2^120 in magnitude.
template <int kTiles>
__device__ TUCKFOLD_INLINE bool unpack_fast(const Form& form, const Words& in,
                                            const unsigned char* table, float* x) {
  std::uint32_t head[2];
  in.get64(0, 0, head[0], head[1]);
  const Given given = read_header<kTiles>(form, head);
  const Tiles tiles = find_tiles<kTiles>(form, given);
  std::uint32_t dc;
  Tail tail = read_tail<kTiles>(form, in, head, tiles.end, dc);

  float z[64];
#pragma unroll
  for (int i = 0; i < 64; ++i) z[i] = 0.0f;
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    if (i == 8) tail.drop_taken();
    if (kTileAt[i] < kTiles) read_tile(kTileAt[i], form, in, table, given, tiles, tail, dc, z);
  }
  if (given.huge()) {
#pragma unroll
    for (int i = 1; i < 64; ++i) z[i] = z[i] * 0x1p64f;
  }
  inverse(z, x);
  return given.good && !given.huge();
}

// Whether all values of such a block are numbers that the dtype holds; offsets are 1e30 at most.
__device__ TUCKFOLD_INLINE bool are_tame(bool numbers, DType dtype) {
  return numbers && dtype == DType::BF16;
}

// ---- kernel -------------------------------------------------------------------------------------

inline constexpr int kUnpackThreads = 128;
// Whether rows of f32 go through shared memory, so that a store writes 512 bytes side by side, not
// 16 of every 32.
inline constexpr bool kStageRows = true;
inline constexpr int kStagedRows = 2;                               // at a time
inline constexpr int kStageBytes = kStagedRows * cuda::kWarp * 32;  // of a warp
static_assert(kStageBytes >= kMaxFastBytes * cuda::kWarp);  // fetch_any has packed bytes there

// Of a warp's blocks; all lanes take part. Lanes past the last block have it too, and store it too.
__device__ TUCKFOLD_INLINE void store_staged(const cuda::WholeBlocks& b, std::int64_t block,
                                             const float* x, unsigned char* stage) {
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp;
  const std::int64_t own = b.first(block);
  float* to[2];  // of the lane's quarters of 16 bytes: number `lane` and 32 more
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    to[i] = static_cast<float*>(b.data) + lane % 2 * 4 +
            __shfl_sync(cuda::kAllLanes, own, lane / 2 + 16 * i);
  }
  // Halves change places in every other group of four lanes: eight lanes then write to all banks.
  auto* rows = reinterpret_cast<float4*>(stage);
  float4* left = rows + 2 * lane + (lane >> 2 & 1);
  float4* right = rows + 2 * lane + (~lane >> 2 & 1);
  const float4* from = rows + (lane ^ (lane >> 3 & 1));
#pragma unroll
  for (int first = 0; first < 8; first += kStagedRows) {
#pragma unroll
    for (int r = 0; r < kStagedRows; ++r) {
      const float* row = x + 8 * (first + r);
      left[64 * r] = make_float4(row[0], row[1], row[2], row[3]);
      right[64 * r] = make_float4(row[4], row[5], row[6], row[7]);
    }
    __syncwarp();
#pragma unroll
    for (int r = 0; r < kStagedRows; ++r) {
      const float4 halves[2] = {from[64 * r], from[64 * r + 32]};
      cuda::store_away(reinterpret_cast<float4*>(to[0] + (first + r) * b.cols), halves[0]);
      cuda::store_away(reinterpret_cast<float4*>(to[1] + (first + r) * b.cols), halves[1]);
    }
    __syncwarp();
  }
}

// Sixteens of packed bytes that a lane fetches, every 32nd of its warp's. All are asked for before
// the first is used, so that memory is waited for once.
inline constexpr int kMostSixteens = kMaxFastBytes / 16;
__device__ TUCKFOLD_INLINE int sixteenth(int i, int lane) { return 16 * (cuda::kWarp * i + lane); }
__device__ TUCKFOLD_INLINE void fetch_sixteens(const std::uint8_t* from, int total, int lane,
                                               uint4* to) {
#pragma unroll
  for (int i = 0; i < kMostSixteens; ++i) {
    const int at = sixteenth(i, lane);
    to[i] = at + 16 <= total ? *reinterpret_cast<const uint4*>(from + at) : make_uint4(0, 0, 0, 0);
  }
}

// The packed bytes of a warp's 32 blocks of whole eights of bytes, each block's to its lane's bank.
__device__ TUCKFOLD_INLINE void fetch_eights(const FastArgs& args, const std::uint8_t* from,
                                             int lane, unsigned char* slots) {
  const int bytes = args.params.form.bytes, total = cuda::kWarp * bytes;
  uint4 four[kMostSixteens];
  fetch_sixteens(from, total, lane, four);
  auto* words = reinterpret_cast<std::uint32_t*>(slots);
#pragma unroll
  for (int i = 0; i < kMostSixteens; ++i) {
    const int at = sixteenth(i, lane), left = args.block_of(at), right = args.block_of(at + 8);
    std::uint32_t* to = words + (at - left * bytes) / 4 * cuda::kWarp + left;
    std::uint32_t* then = words + (at + 8 - right * bytes) / 4 * cuda::kWarp + right;
    if (at < total) {
      to[0] = four[i].x;
      to[cuda::kWarp] = four[i].y;
      then[0] = four[i].z;
      then[cuda::kWarp] = four[i].w;
    }
  }
}

// The same of any blocks, by way of `stage`, which has the bytes as they come.
__device__ TUCKFOLD_INLINE void fetch_any(const FastArgs& args, const std::uint8_t* from, int here,
                                          int lane, unsigned char* stage, unsigned char* slots) {
  const int bytes = args.params.form.bytes, total = here * bytes;
  uint4 four[kMostSixteens];
  fetch_sixteens(from, total, lane, four);
#pragma unroll
  for (int i = 0; i < kMostSixteens; ++i) {
    const int at = sixteenth(i, lane);
    if (at + 16 <= total) *reinterpret_cast<uint4*>(stage + at) = four[i];
  }
  if (const int at = total / 16 * 16 + lane; at < total) stage[at] = from[at];
  __syncwarp();
  const int first = (lane < here ? lane : here - 1) * bytes;
  const auto* words = reinterpret_cast<const std::uint32_t*>(stage) + first / 4;
  auto* to = reinterpret_cast<std::uint32_t*>(slots) + lane;
  for (int i = 0; 4 * i < bytes; i += 4) {  // past the last there are kSlackRows
    std::uint32_t some[5];
#pragma unroll
    for (int j = 0; j < 5; ++j) some[j] = words[i + j];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      to[(i + j) * cuda::kWarp] =
          __funnelshift_r(some[j], some[j + 1], static_cast<std::uint32_t>(first) * 8);
    }
  }
}

// How many warps ahead a warp asks for packed bytes: 16 MB of f32, which the second cache has room
// for.
inline constexpr int kWarpsAhead = 2048;
__device__ TUCKFOLD_INLINE void prefetch_packed(const FastArgs& args, std::int64_t first,
                                                int lane) {
  const int bytes = args.params.form.bytes;
  if (first + cuda::kWarp > args.blocks.count || lane * cuda::kLine >= cuda::kWarp * bytes) return;
  cuda::prefetch(args.packed + first * bytes + lane * cuda::kLine);
}

// Shared memory of a warp: rows on their way out, the table of widths, then packed bytes.
TUCKFOLD_HOST_DEVICE inline constexpr int unpack_warp_bytes(const Form& form) {
  return kStageBytes + kTableBytes + ((form.bytes + 3) / 4 + kSlackRows) * Words::kStep;
}

template <int kTiles, bool kF32>
__global__ __launch_bounds__(kUnpackThreads, blocks_per_sm(kF32)) void unpack_fast_kernel(
    const __grid_constant__ FastArgs args) {
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp;
  const int warp = static_cast<int>(threadIdx.x) / cuda::kWarp;
  const std::int64_t first =
      static_cast<std::int64_t>(blockIdx.x) * kUnpackThreads + warp * cuda::kWarp;
  if (first >= args.blocks.count) return;
  const std::int64_t left = args.blocks.count - first;
  const int here = left < cuda::kWarp ? static_cast<int>(left) : cuda::kWarp;
  const bool mine = lane < here;
  const int own = mine ? lane : here - 1;

  const Form& form = args.params.form;
  unsigned char* shared = cuda::shared_memory() + warp * unpack_warp_bytes(form);
  unsigned char* table = shared + kStageBytes;
  unsigned char* slots = table + kTableBytes;
  const std::uint8_t* packed = args.packed + first * form.bytes;
  prefetch_packed(args, first + kWarpsAhead * cuda::kWarp, lane);
  cuda::wait_for_previous_kernel();
  if (form.bytes % 8 == 0 && here == cuda::kWarp) {
    fetch_eights(args, packed, lane, slots);
  } else {
    fetch_any(args, packed, here, lane, shared, slots);
  }
  fill_table(table, lane);
  cuda::allow_next_kernel();
  __syncwarp();

  float x[64];
  const bool numbers = unpack_fast<kTiles>(form, {slots + 4 * lane}, table, x);
  if (args.params.offset != 0) {
#pragma unroll
    for (int i = 0; i < 64; ++i) x[i] = x[i] + args.params.offset;
  }
  if (args.params.clamp) {
#pragma unroll
    for (int i = 0; i < 64; ++i) x[i] = x[i] < 0 ? 0.0f : x[i];
  }
  if (!numbers) {
#pragma unroll
    for (int i = 0; i < 64; ++i) x[i] = canonical(x[i]);
  }
  if (kStageRows && (kF32 || args.dtype == DType::F32)) {
    return store_staged(args.blocks, first + own, x, shared);
  }
  if (!mine) return;
  switch (kF32 ? DType::F32 : args.dtype) {
    case DType::F16: return cuda::store_block<F16>(args.blocks, first + own, x);
    case DType::BF16:
      return cuda::store_block<BF16>(args.blocks, first + own, x, are_tame(numbers, DType::BF16));
    default: return cuda::store_block<float>(args.blocks, first + own, x);
  }
}

}  // namespace tuckfold::dct_quant
