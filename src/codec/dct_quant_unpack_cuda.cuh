// dct_quant's unpack on CUDA for rates up to 8: a warp brings the bytes of its 32 blocks to shared
// memory, then one thread unpacks one block into registers. The values are those of unpack_block.
// Widths and places of tiles are worked out four to a word, a byte each; a tile's codes two to a
// word, at the top of 16 bits each, where they count the same however wide they are.
#pragma once

#include "codec/dct_quant_pack_cuda.cuh"

namespace tuckfold::dct_quant {

// A block's words in shared memory, `step` bytes apart: 4, or 128 where each lane has a bank of its
// own, so that lanes may look at different words at once.
struct Words {
  const unsigned char* first;
  std::uint32_t step;

  // 64 bits from byte `at` on.
  __device__ TUCKFOLD_INLINE void get64(std::uint32_t at, std::uint32_t& low,
                                        std::uint32_t& high) const {
    const unsigned char* from = first + at / 4 * step;
    const auto word = [&](const unsigned char* p) {
      return *reinterpret_cast<const std::uint32_t*>(p);
    };
    const std::uint32_t middle = word(from + step), shift = at * 8;  // taken modulo 32
    low = __funnelshift_r(word(from), middle, shift);
    high = __funnelshift_r(middle, word(from + 2 * step), shift);
  }
};

inline constexpr int kWindowSlackBytes = 16;  // that get64 may read past the last byte

// The block begins at byte `skip` < 4 of the words.
template <int kTiles>
__device__ TUCKFOLD_INLINE void unpack_fast(const Form& form, const Words& in, std::uint32_t skip,
                                            float* x) {
  constexpr int kWords = (kTiles + 3) / 4;
  std::uint32_t head[2];
  in.get64(skip, head[0], head[1]);
  const int q = static_cast<int>(head[0] & 1023u);
  const std::uint32_t first_given = head[0] >> 10 & 15u;

  // Widths, 64 more each, so that bytes stay positive whatever the header says.
  constexpr std::uint32_t kMore = 0x40;
  const std::uint32_t changes = __funnelshift_r(head[0], head[1], 12);  // two bits a tile, from 1
  std::uint32_t given[4] = {}, before = kMore + first_given, wrong = 0, sum = 0;
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    std::uint32_t change = changes >> (8 * i) & 0xffu;
    change = (change | change << 12) & 0x000f000fu;
    change = (change | change << 6) & (i == 0 ? 0x03030300u : 0x03030303u);
    const std::uint32_t sums = (change + before) * kOnes;
    before = sums >> 24;
    given[i] =
        (sums - 2 * (0x03020100u + 4u * static_cast<std::uint32_t>(i) * kOnes)) ^ (kMore * kOnes);
    if (kTiles % 4 != 0 && i == kWords - 1) given[i] &= (1u << (8 * (kTiles % 4))) - 1;
    wrong |= (given[i] + kOnes) & 0xf0f0f0f0u;  // past 14
    sum = __dp4a(given[i], kOnes, sum);
  }
  const auto room = static_cast<std::uint32_t>(form.nibbles);
  const bool good = wrong == 0 && sum <= room && q >= kLeastStep && q < kNoStep;

  // What is left over, and where tiles begin.
  const std::uint32_t left = room - sum, handed = (0x7fu + (left < 16 ? left : 16u)) * kOnes;
  const int low_dc = form.header_bits() % 8;
  std::uint32_t width[4] = {}, begin[4] = {};
  std::uint32_t takes[4] = {};  // bits of the tail
  std::uint32_t end = static_cast<std::uint32_t>(form.header_bits()) / 8 + skip;
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    const std::uint32_t places = 0x03020100u + 4u * static_cast<std::uint32_t>(i) * kOnes;
    width[i] = given[i] + (((handed - places) & (given[i] + 0x7f7f7f7fu)) >> 7 & kOnes);
    if (!good) width[i] = 0;  // then nothing is read past the block
    takes[i] = (width[i] & kOnes) * 4;
    const std::uint32_t bytes = width[i] >> 1 & 0x07070707u;
    const std::uint32_t ends = (bytes + end) * kOnes;
    begin[i] = ends - bytes;
    end = ends >> 24;
  }
  std::uint32_t tail[2];
  in.get64(end, tail[0], tail[1]);
  std::uint32_t dc = __funnelshift_r(head[0], head[1], 12 + 2 * kTiles);
  if constexpr (12 + 2 * kTiles >= 32) dc = head[1] >> (12 + 2 * kTiles - 32);
  if (low_dc != 0) {
    dc = dc << 4 | (tail[0] & 15u);
    std::uint32_t beyond, unused;  // up to 68 bits
    in.get64(end + 8, beyond, unused);
    tail[0] = __funnelshift_r(tail[0], tail[1], 4);
    tail[1] = __funnelshift_r(tail[1], beyond, 4);
  }

  float z[64];
#pragma unroll
  for (int i = 0; i < 64; ++i) z[i] = 0.0f;
  std::uint32_t taken = 0;
  const std::uint32_t step_bits = static_cast<std::uint32_t>(q) << kStepShift;
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    if (i == 8) {  // half of the tiles take 32 bits at most
      const bool all = taken == 32;
      tail[0] = all ? tail[1] : __funnelshift_r(tail[0], tail[1], taken);
      tail[1] = all ? 0 : tail[1] >> taken;
      taken = 0;
    }
    const int k = kTileAt[i];
    if (k >= kTiles) continue;
    const auto byte_of = [k](const std::uint32_t* words) {
      return __byte_perm(words[k / 4], 0, 0x4440u + static_cast<unsigned>(k % 4));
    };
    const std::uint32_t wide = byte_of(width), odd = wide & 1u, even = wide - odd;
    std::uint32_t low, high;
    in.get64(byte_of(begin), low, high);
    const std::uint32_t four = __funnelshift_r(tail[0], tail[1], taken) & 15u;  // if odd
    taken += byte_of(takes);
    // The sign bit turned, a half added; of width 0 the halves' bit is the sign's.
    const std::uint32_t turned = 0x80008000u >> wide | 0x80008000u;
    const std::uint32_t top = power_down(even);  // brings a code to the top of 16 bits
    const std::uint32_t mask = 0x10000u - top * 0x10001u, top_twice = top * top;
    const std::uint32_t lowest = odd * (top >> 1);
    const std::uint32_t codes[2] = {low, __funnelshift_r(low, high, 2 * even)};
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      const std::uint32_t both = __byte_perm(codes[pair] * top, codes[pair] * top_twice, 0x7610);
      const std::uint32_t bits = (four >> (2 * pair)) * 0x8001u & 0x00010001u;
      const std::uint32_t words = (both & mask) ^ turned ^ bits * lowest;
      if (k == 0 && pair == 0) {
        const int total = static_cast<int>(wide) + form.dc, unused = 32 - total;
        const std::uint32_t code = (low & ((1u << even) - 1)) << odd | (four & odd);
        const auto number = static_cast<std::int32_t>((dc << wide | code) << unused) >> unused;
        const float step = wide > (given[0] & 0xffu) ? 0.5f * step_of(q) : step_of(q);
        z[0] = good ? static_cast<float>(number) * step : float_of(kQuietNan);
      }
      const float scale = float_of(step_bits + (byte_of(given) << 23) - (16u << 23));
#pragma unroll
      for (int t = 0; t < 2; ++t) {
        if (k == 0 && pair == 0 && t == 0) continue;
        // 2^23 and a word without sign.
        const float number = float_of(__byte_perm(0x4b000000u, words, t == 0 ? 0x3254 : 0x3276)) -
                             (0x1p23f + 0x1p15f);
        z[place(k, 2 * pair + t)] = number * scale;
      }
    }
  }
  inverse(z, x);
}

// ---- kernel -------------------------------------------------------------------------------------

inline constexpr int kUnpackThreads = 128;
// Whether rows of f32 go through shared memory, so that a store writes 512 bytes side by side, not
// 16 of every 32.
inline constexpr bool kStageRows = true;
inline constexpr int kStagedRows = 2;                                                // at a time
inline constexpr int kStageBytes = kStageRows ? kStagedRows * cuda::kWarp * 32 : 0;  // of a warp

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

// The same where each lane's words go to a bank of its own, for blocks of whole eights of bytes.
__device__ TUCKFOLD_INLINE void fetch_by_banks(const FastArgs& args, const std::uint8_t* from,
                                               int total, int lane, unsigned char* shared) {
  auto* words = reinterpret_cast<std::uint32_t*>(shared);
  const int bytes = args.params.form.bytes;
  for (int at = 16 * lane; at < total; at += 16 * cuda::kWarp) {
    const uint4 four = *reinterpret_cast<const uint4*>(from + at);
    const int left = args.block_of(at), right = args.block_of(at + 8);
    std::uint32_t* to = words + (at - left * bytes) / 4 * cuda::kWarp + left;
    to[0] = four.x;
    to[cuda::kWarp] = four.y;
    to = words + (at + 8 - right * bytes) / 4 * cuda::kWarp + right;
    to[0] = four.z;
    to[cuda::kWarp] = four.w;
  }
}

// The warp's bytes to shared memory, each block's from a multiple of slot_bytes on.
__device__ TUCKFOLD_INLINE void fetch_packed(const FastArgs& args, const std::uint8_t* from,
                                             int total, int lane, unsigned char* shared) {
  const int gap = args.slot_bytes - args.params.form.bytes;  // 0, or 4 where bytes is of eights
  for (int at = 16 * lane; at + 16 <= total; at += 16 * cuda::kWarp) {
    const uint4 words = *reinterpret_cast<const uint4*>(from + at);
    if (gap == 0) {
      *reinterpret_cast<uint4*>(shared + at) = words;
    } else {
      auto* left = reinterpret_cast<std::uint32_t*>(shared + at + gap * args.block_of(at));
      auto* right = reinterpret_cast<std::uint32_t*>(shared + at + 8 + gap * args.block_of(at + 8));
      left[0] = words.x;
      left[1] = words.y;
      right[0] = words.z;
      right[1] = words.w;
    }
  }
  if (const int at = total / 16 * 16 + lane; at < total) {
    shared[at + gap * args.block_of(at)] = from[at];
  }
}

// Whole warps of blocks of whole eights of bytes have banks of their own.
TUCKFOLD_HOST_DEVICE inline constexpr bool by_banks(const Form& form) {
  return form.bytes % 8 == 0;
}

// Shared memory of a warp: rows on their way out, then packed bytes.
TUCKFOLD_HOST_DEVICE inline constexpr int unpack_warp_bytes(const Form& form, int slot_bytes) {
  return kStageBytes +
         cuda::kWarp * (by_banks(form) ? form.bytes + kWindowSlackBytes : slot_bytes) +
         kWindowSlackBytes;
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

  const int bytes = args.params.form.bytes;
  unsigned char* shared =
      cuda::shared_memory() + warp * unpack_warp_bytes(args.params.form, args.slot_bytes);
  unsigned char* slots = shared + kStageBytes;
  const bool banks = by_banks(args.params.form) && here == cuda::kWarp;
  const std::uint8_t* packed = args.packed + first * bytes;
  banks ? fetch_by_banks(args, packed, here * bytes, lane, slots)
        : fetch_packed(args, packed, here * bytes, lane, slots);
  __syncwarp();

  float x[64];
  const auto begin = static_cast<std::uint32_t>(banks ? 4 * own : own * args.slot_bytes);
  const Words words{slots + (begin & ~3u), banks ? 4u * cuda::kWarp : 4u};
  unpack_fast<kTiles>(args.params.form, words, begin & 3u, x);
  if (args.params.offset != 0) {
#pragma unroll
    for (int i = 0; i < 64; ++i) x[i] = x[i] + args.params.offset;
  }
  if (args.params.clamp) {
#pragma unroll
    for (int i = 0; i < 64; ++i) x[i] = x[i] < 0 ? 0.0f : x[i];
  }
  if (kStageRows && (kF32 || args.dtype == DType::F32)) {
    return store_staged(args.blocks, first + own, x, shared);
  }
  if (!mine) return;
  switch (kF32 ? DType::F32 : args.dtype) {
    case DType::F16: return cuda::store_block<F16>(args.blocks, first + own, x);
    case DType::BF16: return cuda::store_block<BF16>(args.blocks, first + own, x);
    default: return cuda::store_block<float>(args.blocks, first + own, x);
  }
}

}  // namespace tuckfold::dct_quant
