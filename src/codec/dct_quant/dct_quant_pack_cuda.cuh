// dct_quant's pack on CUDA for rates up to 8: one thread packs one block, its 64 values in
// registers. The bytes are those of pack_block. What the tiles need is searched for with four
// tiles in a word, a byte each: no width passes 15, no level is more than 59 above the least.
#pragma once

#include "codec/blocks/blocks_cuda.cuh"
#include "codec/dct_quant/dct_quant.h"

namespace tuckfold::dct_quant {

inline constexpr int kMaxFastBytes = 64;  // of a block, in the kernels of registers
inline constexpr std::uint32_t kOnes = 0x01010101u;

// The tensor and the packed bytes of a call.
struct FastArgs {
  cuda::WholeBlocks blocks;
  DType dtype;
  Params params;
  std::uint8_t* packed;
  int slot_bytes;          // of a block in shared memory where it is packed, whole words
  std::uint32_t per_byte;  // 2^20 / params.form.bytes, rounded up

  // Which block of a warp's has packed byte `at`, below 32 * kMaxFastBytes.
  __device__ int block_of(int at) const {
    return static_cast<int>(static_cast<std::uint32_t>(at) * per_byte >> 20);
  }
};

// ---- coefficients -------------------------------------------------------------------------------

// The larger magnitude; a NaN is larger than any number.
__device__ TUCKFOLD_INLINE float larger(float a, float b) {
#ifdef __CUDA_ARCH__
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(fabsf(a)), "f"(fabsf(b)));
  return result;
#else
  const std::uint32_t x = bits_of(a) & ~kSignBit, y = bits_of(b) & ~kSignBit;
  return float_of(x > y ? x : y);
#endif
}

// 255 for each byte whose top bit is set.
__device__ TUCKFOLD_INLINE std::uint32_t top_bits_spread(std::uint32_t bytes) {
#ifdef __CUDA_ARCH__
  std::uint32_t result;
  asm("prmt.b32 %0, %1, 0, 0xba98;" : "=r"(result) : "r"(bytes));
  return result;
#else
  return (bytes >> 7 & kOnes) * 0xffu;
#endif
}

// 2^by. To multiply with: the compiler must not know that it is a shift, since products have a pipe
// of their own, and shifts share one with most of what else is done here.
__device__ TUCKFOLD_INLINE std::uint32_t power_up(std::uint32_t by) {
#ifdef __CUDA_ARCH__
  std::uint32_t result;
  asm("shl.b32 %0, 1, %1;" : "=r"(result) : "r"(by));
  return result;
#else
  return 1u << by;
#endif
}

// The widths of a block's tiles, four to a word.
struct FastWidths {
  std::uint32_t given[4];   // by the header
  std::uint32_t halved[4];  // 1 where the tile has one bit more

  __device__ TUCKFOLD_INLINE std::uint32_t total(int i) const { return given[i] + halved[i]; }
};

// As choose_step and share_out, without a bias. There a width is at least its neighbour's less 2;
// here that follows: needs are settled to differ by 8 at most, whole parts of a fourth by 2 then,
// and a neighbour wider than 2 needs more than 8, so that none of it is cut off at 0.
//
// Needs are kept as the bits of magnitudes until the search, since all that is done with levels
// can be done with what they are rounded from.
template <int kTiles>
__device__ TUCKFOLD_INLINE int choose_step(const Form& form, const float* z, FastWidths& widths) {
  constexpr int kWords = (kTiles + 3) / 4, kLevel = 1 << kStepShift;
  int need[kTiles];
  const int first = static_cast<int>(bits_of(z[0]) & ~kSignBit);
  int most = 0;
#pragma unroll
  for (int k = 0; k < kTiles; ++k) {
    const float left = k == 0 ? z[place(0, 1)] : larger(z[place(k, 0)], z[place(k, 1)]);
    const float largest = larger(left, larger(z[place(k, 2)], z[place(k, 3)]));
    need[k] = static_cast<int>(bits_of(largest));
    most = max(most, need[k]);
  }
  const int highest = max(most, first);
  need[0] = max(need[0], first - 4 * form.dc * kLevel);
  most = max(most, need[0]);
#pragma unroll
  for (int k = kTiles - 1; k > 0; --k) need[k - 1] = max(need[k - 1], need[k] - 4 * kLevel);
#pragma unroll
  for (int k = 1; k < kTiles; ++k) need[k] = max(need[k], need[k - 1] - 8 * kLevel);

  constexpr int kReach = 4 * 14 + 3;  // of steps for the largest width
  const int least = max(kLeastStep, level_of(static_cast<std::uint32_t>(most)) + 8 - kReach);
  const int above_least = (8 - least) * kLevel + 1;
  std::uint32_t over[kWords];
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    std::uint32_t four[4] = {};
#pragma unroll
    for (int k = 4 * i; k < 4 * i + 4 && k < kTiles; ++k) {
      four[k % 4] = static_cast<std::uint32_t>(max(need[k] + above_least, 0)) >> kStepShift;
    }
    over[i] = (four[3] * 0x100u + four[2]) * 0x10000u + (four[1] * 0x100u + four[0]);
  }
  // Four times the widths for the step `at` above the least, and their sum.
  std::uint32_t four_times[kWords];
  const auto sum_at = [&](std::uint32_t at) {
    const std::uint32_t less = (0x80u - at) * kOnes;
    std::uint32_t sum = 0;
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      const std::uint32_t above = over[i] + less;  // a byte's top bit: not below 0
      four_times[i] = above & top_bits_spread(above) & 0x7c7c7c7cu;
      sum += four_times[i];
    }
    return __dp4a(sum, kOnes, 0u);
  };
  const auto room = static_cast<std::uint32_t>(form.nibbles);
  std::uint32_t at = 0;
#pragma unroll
  for (std::uint32_t bit = 32; bit > 0; bit /= 2) {
    if (sum_at(at + bit - 1) > 4 * room) at += bit;
  }
  const std::uint32_t left = room - sum_at(at) / 4;
  const std::uint32_t handed = (0x7fu + (left < 16 ? left : 16u)) * kOnes;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t given = i < kWords ? four_times[i] >> 2 : 0;
    const std::uint32_t places = 0x03020100u + 4u * static_cast<std::uint32_t>(i) * kOnes;
    widths.given[i] = given;
    widths.halved[i] = ((handed - places) & (given + 0x7f7f7f7fu)) >> 7 & kOnes;
  }
  const int q = least + static_cast<int>(at);
  return level_of(static_cast<std::uint32_t>(highest)) < kNoStep && q < kNoStep ? q : kNotFinite;
}

// The header up to the first coefficient's bits.
template <int kTiles>
__device__ TUCKFOLD_INLINE std::uint64_t header_of(int q, const FastWidths& widths) {
  const std::uint32_t* given = widths.given;
  std::uint32_t changes = 0;
#pragma unroll
  for (int i = 0; i < (kTiles + 3) / 4; ++i) {
    const std::uint32_t before =
        i == 0 ? __byte_perm(given[0], 0, 0x2100) : __byte_perm(given[i - 1], given[i], 0x6543);
    std::uint32_t change = given[i] + 2 * kOnes - before;
    if (kTiles % 4 != 0 && i == kTiles / 4) change &= 0xffffu;
    changes |= (change * 0x01041040u >> 24) << (8 * i);  // two bits of each byte, side by side
  }
  const std::uint32_t front = static_cast<std::uint32_t>(q) | (given[0] & 0xffu) << 10;
  return front | static_cast<std::uint64_t>(changes >> 2) << 14;
}

// ---- bits ---------------------------------------------------------------------------------------

// Fields of a block, one after the other into words of shared memory. What a word already has is
// read back from there: selecting it from what was written would take more instructions.
struct WordWriter {
  std::uint32_t* slot;
  std::uint32_t at;  // bits written

  __device__ TUCKFOLD_INLINE WordWriter(std::uint32_t* to, std::uint64_t header, int bits)
      : slot(to), at(static_cast<std::uint32_t>(bits)) {
    slot[0] = static_cast<std::uint32_t>(header);
    slot[1] = static_cast<std::uint32_t>(header >> 32);
  }
  // At most 64 bits; those above are zero.
  __device__ TUCKFOLD_INLINE void put(std::uint32_t low, std::uint32_t high, std::uint32_t bits) {
    std::uint32_t* to = slot + at / 32;
    to[0] |= __funnelshift_l(0, low, at);  // funnel shifts take it modulo 32
    to[1] = __funnelshift_l(low, high, at);
    to[2] = __funnelshift_l(high, 0, at);
    at += bits;
  }
  // The rest is zero.
  __device__ TUCKFOLD_INLINE void finish(int words) {
    for (int i = static_cast<int>(at / 32) + 1; i < words; ++i) slot[i] = 0;
  }
};

inline constexpr int kSlackWords = 3;  // that WordWriter may write past a block's whole words

// A number plus this has its whole part in its low bits.
inline constexpr float kToWhole = 0x1.8p23f;

// x: the block's values, less the offset. slot: its words in shared memory.
template <int kTiles>
__device__ TUCKFOLD_INLINE void pack_fast(const Form& form, const float* x, std::uint32_t* slot) {
  float z[64];
  forward(x, z);
  FastWidths widths;
  const int q = choose_step<kTiles>(form, z, widths);
  const float inverse = inverse_of(q), twice = 2 * inverse;
  const auto width_of = [&](int k) {
    return __byte_perm(widths.total(k / 4), 0, 0x4440u + static_cast<unsigned>(k % 4));
  };
  const auto finer_of = [&](int k) {
    return (widths.halved[k / 4] >> (8 * (k % 4)) & 1u) != 0 ? twice : inverse;
  };
  const std::uint32_t first_width = width_of(0);
  const int first = q == kNotFinite ? 0
                                    : min(__float2int_rd(std::fma(z[0], finer_of(0), 0.5f)),
                                          (1 << (static_cast<int>(first_width) + form.dc - 1)) - 1);
  const int low_dc = form.header_bits() % 8;
  const std::uint32_t dc = static_cast<std::uint32_t>(first >> first_width) & ((1u << form.dc) - 1);
  WordWriter bits(slot,
                  header_of<kTiles>(q, widths) | static_cast<std::uint64_t>(dc >> low_dc)
                                                     << (12 + 2 * kTiles),
                  form.header_bits() - low_dc);

  std::uint32_t lowest[2] = {};  // bits of all codes, in the order of tiles
#pragma unroll
  for (int k = 0; k < kTiles; ++k) {
    const std::uint32_t width = width_of(k), odd = width & 1u, even = width - odd;
    const float finer = finer_of(k), upper = odd != 0 ? 0.5f : 1.0f;
    const std::uint32_t one = power_up(even), mask = one - 1;
    std::uint32_t codes[4];
#pragma unroll
    for (int t = 0; t < 4; ++t) {
      const float scaled = z[place(k, t)] * finer;
      std::uint32_t code = bits_of(__fadd_rd(scaled, kToWhole));
      codes[t] = bits_of(__fmaf_rd(scaled, upper, kToWhole)) & mask;
      if (k == 0 && t == 0) {
        code = static_cast<std::uint32_t>(first);
        codes[0] = code >> odd & mask;
      }
      lowest[k / 8] = __funnelshift_r(lowest[k / 8], code, 1);
    }
    const std::uint32_t left = codes[1] * one + codes[0], right = codes[3] * one + codes[2];
    const std::uint64_t tile = static_cast<std::uint64_t>(right) * (one * one) + left;
    bits.put(static_cast<std::uint32_t>(tile), static_cast<std::uint32_t>(tile >> 32), 4 * even);
  }
  if (low_dc != 0) bits.put(dc & 15u, 0, 4);

  // Where the last tiles fill no word their bits are not at its lower end.
  if constexpr (kTiles % 8 != 0) lowest[kTiles / 8] >>= 32 - 4 * (kTiles % 8);
  std::uint32_t low = 0, high = 0, count = 0;
#pragma unroll
  for (int i = 0; i < (kTiles + 3) / 4; ++i)
    count = __dp4a(widths.total(i) & kOnes, 4 * kOnes, count);
#pragma unroll
  for (int i = 15; i >= 0; --i) {
    const int k = kTileAt[i];
    if (k >= kTiles || (widths.total(k / 4) >> (8 * (k % 4)) & 1u) == 0) continue;
    const std::uint32_t four = lowest[k / 8] << (28 - 4 * (k % 8));
    high = __funnelshift_l(low, high, 4);
    low = __funnelshift_l(four, low, 4);
  }
  bits.put(low, high, count);
  const int words = form.bytes / 4 + 2;  // two: for packed_word
  bits.finish(words);
  if (q == kNotFinite) {
    slot[0] = kNotFinite;
    for (int i = 1; i < words; ++i) slot[i] = 0;
  }
}

// ---- kernel -------------------------------------------------------------------------------------

inline constexpr int kPackThreads = 128;

// Kernels of f32 alone for the usual numbers of tiles: without the code for other dtypes a fifth
// block of threads fits a multiprocessor.
inline constexpr bool has_f32_kernel(int tiles) { return tiles == 12 || tiles == 16; }
inline constexpr int blocks_per_sm(bool f32) { return f32 ? 5 : 4; }

// Four packed bytes of a warp from the slots of its blocks.
__device__ TUCKFOLD_INLINE std::uint32_t packed_word(const FastArgs& args,
                                                     const std::uint32_t* slots, int at) {
  const int bytes = args.params.form.bytes, block = args.block_of(at), within = at - block * bytes;
  const std::uint32_t* slot = slots + block * (args.slot_bytes / 4);
  if (bytes % 4 == 0) return slot[within / 4];
  const std::uint32_t word = __funnelshift_r(slot[within / 4], slot[within / 4 + 1],
                                             static_cast<std::uint32_t>(within % 4) * 8);
  const int here = bytes - within;  // what follows in the slot is zero
  return here >= 4 ? word : word | slot[args.slot_bytes / 4] << (8 * here);
}

template <int kTiles, bool kF32>
__global__ __launch_bounds__(kPackThreads, blocks_per_sm(kF32)) void pack_fast_kernel(
    const __grid_constant__ FastArgs args) {
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp;
  const int warp = static_cast<int>(threadIdx.x) / cuda::kWarp;
  const std::int64_t first =
      static_cast<std::int64_t>(blockIdx.x) * kPackThreads + warp * cuda::kWarp;
  if (first >= args.blocks.count) return;
  const std::int64_t left = args.blocks.count - first;
  const int here = left < cuda::kWarp ? static_cast<int>(left) : cuda::kWarp;
  const std::int64_t block = first + (lane < here ? lane : here - 1);

  const int slot_words = args.slot_bytes / 4;
  std::uint32_t* slots =
      reinterpret_cast<std::uint32_t*>(cuda::shared_memory()) + warp * cuda::kWarp * slot_words;
  std::uint32_t* slot = slots + lane * slot_words;
  cuda::wait_for_previous_kernel();
  float x[64];
  switch (kF32 ? DType::F32 : args.dtype) {
    case DType::F16: cuda::load_block<F16>(args.blocks, block, x); break;
    case DType::BF16: cuda::load_block<BF16>(args.blocks, block, x); break;
    default: cuda::load_block<float>(args.blocks, block, x);
  }
  if (args.params.offset != 0) {
#pragma unroll
    for (int i = 0; i < 64; ++i) x[i] = x[i] - args.params.offset;
  }
  cuda::allow_next_kernel();
  pack_fast<kTiles>(args.params.form, x, slot);
  __syncwarp();

  const int bytes = args.params.form.bytes, total = here * bytes;
  std::uint8_t* to = args.packed + first * bytes;
  // A loop for each kind of blocks: a condition inside takes back part of what the kinds save.
  const auto store_sixteens = [&](const auto& sixteen_at) {
    for (int at = 16 * lane; at + 16 <= total; at += 16 * cuda::kWarp) {
      *reinterpret_cast<uint4*>(to + at) = sixteen_at(at);
    }
  };
  const auto word_at = [&](int at) {  // for blocks of whole words
    return slots + args.block_of(at) * (slot_words - bytes / 4) + at / 4;
  };
  if (bytes % 16 == 0) {  // then sixteen are of one block
    store_sixteens([&](int at) {
      const std::uint32_t* from = word_at(at);
      return make_uint4(from[0], from[1], from[2], from[3]);
    });
  } else if (bytes % 8 == 0) {
    store_sixteens([&](int at) {
      const std::uint32_t *front = word_at(at), *back = word_at(at + 8);
      return make_uint4(front[0], front[1], back[0], back[1]);
    });
  } else {
    store_sixteens([&](int at) {
      return make_uint4(packed_word(args, slots, at), packed_word(args, slots, at + 4),
                        packed_word(args, slots, at + 8), packed_word(args, slots, at + 12));
    });
  }
  if (const int at = total / 16 * 16 + lane; at < total) {
    const int from = args.block_of(at), within = at - from * bytes;
    to[at] = static_cast<std::uint8_t>(slots[from * slot_words + within / 4] >> (within % 4 * 8));
  }
}

}  // namespace tuckfold::dct_quant
