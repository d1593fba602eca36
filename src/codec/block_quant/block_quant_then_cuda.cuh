// The kernels of block_quant_then_cuda.cu.
#pragma once

#include <cstdint>
#include <type_traits>

#include "codec/block_quant/block_quant_unpack_cuda.cuh"
#include "codec/then/then_cuda.cuh"

namespace tuckfold::block_quant {

// What is added to each value: nothing, a tensor, or what is packed as the values are, with numbers
// of its own or none.
enum class Adds { kNothing, kTensor, kPacked, kScaled };
constexpr bool is_packed(Adds adds) { return adds == Adds::kPacked || adds == Adds::kScaled; }

// ---- any order of channels

template <class T>
__device__ TUCKFOLD_INLINE void unpack_rest_then(const DenseTensor& tensor,
                                                 const DenseTensor& other, const Settings& s,
                                                 const then::CudaArgs& after, std::int64_t begin) {
  T* to = reinterpret_cast<T*>(tensor.data);
  for (std::int64_t i = begin + threadIdx.x % kWarp; i < tensor.elems; i += kWarp) {
    const T x = cuda::from_float<T>(unpacked_value(tensor, s, i));
    if (other.codes == nullptr) {
      to[i] = then::element_at(after, x, i, i);
    } else {
      T add = cuda::from_float<T>(unpacked_value(other, s, i));
      if (after.add_scale != nullptr) add = then::element_at(then::of_added(after), add, i, i);
      to[i] = then::element_plus(after, x, add, i);
    }
  }
}

// The codes of a lane's vectors in a tile, and their headers.
template <class T, int kBits>
struct TileCodes {
  static constexpr int kV = kVector<T>, kStep = kWarp * kV, kTileSteps = kTile / kStep;
  std::uint64_t codes[kTileSteps];
  std::uint32_t headers[kTileSteps];

  __device__ TUCKFOLD_INLINE void load(const DenseTensor& tensor, const Settings& s,
                                       std::int64_t tile, int lane) {
    const std::byte* from = tensor.codes + tile * (kTile / 8 * kBits);
    // Separate loops, so that no branch is between two loads.
#pragma unroll
    for (int j = 0; j < kTileSteps; ++j) codes[j] = load_codes<kBits, kV>(from, lane, j);
#pragma unroll
    for (int j = 0; j < kTileSteps; ++j) {
      const std::int64_t index = tile * kTile + j * kStep + lane * kV;
      headers[j] = __ldg(reinterpret_cast<const unsigned*>(tensor.headers) +
                         (s.group_shift >= 0 ? index >> s.group_shift : index / s.group));
    }
  }
  __device__ TUCKFOLD_INLINE uint4 values(int j) const {
    return step_values<T, kBits>(codes[j], headers[j]);
  }
};

template <class T, int kBits, Adds kAdds>
__global__ void __launch_bounds__(kUnpackThreads)
    unpack_then_kernel(const __grid_constant__ DenseTensor tensor,
                       const __grid_constant__ DenseTensor other,
                       const __grid_constant__ Settings s,
                       const __grid_constant__ then::CudaArgs after) {
  using Codes = TileCodes<T, kBits>;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t tile =
      static_cast<std::int64_t>(blockIdx.x) * kUnpackWarps + threadIdx.x / kWarp;
  const std::int64_t begin = tile * kTile;
  cuda::wait_for_previous_kernel();
  if (begin + kTile > tensor.elems) return unpack_rest_then<T>(tensor, other, s, after, begin);
  prefetch_tile<kBits>(tensor, s.group_shift, tile + kTilesAhead, lane);
  Codes codes, others;
  codes.load(tensor, s, tile, lane);
  if constexpr (is_packed(kAdds)) others.load(other, s, tile, lane);
  uint4 added[Codes::kTileSteps];
#pragma unroll
  for (int j = 0; kAdds == Adds::kTensor && j < Codes::kTileSteps; ++j) {
    added[j] = then::added_at<T>(after, begin + j * Codes::kStep + lane * Codes::kV);
  }
  cuda::allow_next_kernel();
#pragma unroll
  for (int j = 0; j < Codes::kTileSteps; ++j) {
    const std::int64_t index = begin + j * Codes::kStep + lane * Codes::kV;
    if constexpr (is_packed(kAdds)) added[j] = others.values(j);
    if constexpr (kAdds == Adds::kScaled) {
      added[j] = then::vector_after<T, false>(then::of_added(after), added[j], index, {});
    }
    cuda::store_away(
        reinterpret_cast<uint4*>(reinterpret_cast<T*>(tensor.data) + index),
        then::vector_after<T, kAdds != Adds::kNothing>(after, codes.values(j), index, added[j]));
  }
}

// ---- channels next to each other

inline constexpr int kChannelThreads = 256;
inline constexpr int kTogether = 4,
                     kRounds = 2;  // vectors that a thread loads at once, and how often
template <class T>
inline constexpr std::int64_t kChannelValues = kChannelThreads* kTogether* kRounds* kVector<T>;

// Pairs of bf16: a * b + c, rounded once.
__device__ TUCKFOLD_INLINE std::uint32_t fma_halves(std::uint32_t a, std::uint32_t b,
                                                    std::uint32_t c) {
#ifdef __CUDA_ARCH__
  std::uint32_t result;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(c));
  return result;
#else
  // Where it is called the sum has no more digits than f32.
  const auto one = [&](int shift) {
    const auto half = [&](std::uint32_t of) {
      return to_float(BF16{static_cast<std::uint16_t>(of >> shift)});
    };
    return static_cast<std::uint32_t>(to_bf16(half(a) * half(b) + half(c)).bits) << shift;
  };
  return one(0) | one(16);
#endif
}

// Values of any group. Apart, so that the usual way is short.
template <class T, int kBits>
__device__ TUCKFOLD_NOINLINE uint4 any_values(std::uint64_t codes, std::uint32_t header) {
  return step_values<T, kBits>(codes, header);
}

// A group's header, once for the eight values of a vector.
template <class T, int kBits>
struct VectorGroup {
  std::uint32_t header;
  float bound;  // the largest magnitude of its values, or more; not finite if some may not be

  __device__ TUCKFOLD_INLINE explicit VectorGroup(std::uint32_t of) : header(of) {
    const float scale = float_of((header & 0x7fffu) << 16);
    constexpr float kCodes = static_cast<float>(1 << kBits);
    bound = (header & 0x8000u) == 0 ? fmaf(scale, kCodes, fabsf(float_of(header & 0xffff0000u)))
                                    : scale * (kCodes + static_cast<float>(header >> 16));
  }

  // Whether pairs of bf16 give its values: if code * scale + minimum has so few digits that f32 holds
  // it, then rounding it to bf16 at once is rounding it to f32 before. Its digits lie between those
  // of the minimum, eight, and of the product, eight and as many as a code has.
  __device__ TUCKFOLD_INLINE bool is_short() const {
    if (!(bound < 0x1p100f)) return false;
    if ((header & 0x8000u) != 0) return (header >> 16) < 128;
    const std::uint32_t apart = (header >> 23 & 0xffu) - (header >> 7 & 0xffu);  // the exponents
    return apart + (15u - kBits) <= 30u - kBits || header < 0x10000u;
  }

  // The values of eight codes, rounded to T.
  __device__ TUCKFOLD_INLINE void values(std::uint64_t codes, float* x) const {
    if constexpr (std::is_same_v<T, BF16> && kBits <= 4) {
      if (is_short()) return halves(static_cast<std::uint32_t>(codes), x);
      cuda::floats_of<T>(any_values<T, kBits>(codes, header), x);
    } else {
      cuda::floats_of<T>(step_values<T, kBits>(codes, header), x);
    }
  }

 private:
  // A code is what follows 128 in bf16, so it is at hand in the low bits.
  __device__ TUCKFOLD_INLINE void halves(std::uint32_t word, float* x) const {
    const bool about_zero = (header & 0x8000u) != 0;
    const std::uint32_t scale = __byte_perm(header & 0x7fffu, 0, 0x1010);
    const std::uint32_t add = about_zero ? 0x80008000u : __byte_perm(header, 0, 0x3232);
    // -128 - zero
    const std::uint32_t subtract = 0xc300c300u + (about_zero ? (header >> 16) * 0x10001u : 0u);
    // Four codes in each half of the word.
    if constexpr (kBits == 2) word = (word & 0xffu) | (word & 0xff00u) << 8;
    constexpr std::uint32_t kCode = ((1u << kBits) - 1u) * 0x10001u, kOne = 0x3f803f80u;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t code = (word >> i * kBits & kCode) | 0x43004300u;
      const std::uint32_t two = fma_halves(fma_halves(code, kOne, subtract), scale, add);
      x[i] = __uint_as_float(two << 16);
      x[i + 4] = __uint_as_float(two & 0xffff0000u);
    }
  }
};

// All ones for each half whose bit is set, of eight bits for four words.
__device__ TUCKFOLD_INLINE void halves_of_bits(std::uint32_t bits, std::uint32_t* masks) {
  // Bit i of four goes to the top of byte i, from where it fills both bytes of a half.
  constexpr std::uint32_t kSpread = 0x10204080u;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const std::uint32_t tops = (bits >> 2 * i & 15u) * kSpread;
#ifdef __CUDA_ARCH__
    // __byte_perm does not fill bytes with their top bit; the instruction does.
    asm("prmt.b32 %0, %1, 0, 0x9988;" : "=r"(masks[i]) : "r"(tops));
    asm("prmt.b32 %0, %1, 0, 0xbbaa;" : "=r"(masks[i + 1]) : "r"(tops));
#else
    const auto all = [&](int byte) { return (tops >> (8 * byte + 7) & 1u) * 0xffffu; };
    masks[i] = all(0) | all(1) << 16;
    masks[i + 1] = all(2) | all(3) << 16;
#endif
  }
}

// In registers, for a call.
template <int kCount>
struct Floats {
  float x[kCount];
  __device__ TUCKFOLD_INLINE explicit Floats(const float* from) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) x[i] = from[i];
  }
};

// What is stored of a vector's values, which may be NaN or too large; open: the bits of a gate.
template <class T>
__device__ TUCKFOLD_NOINLINE uint4 any_result(const then::CudaArgs& after, Floats<kVector<T>> from,
                                              std::uint32_t open) {
  float y[kVector<T>];
#pragma unroll
  for (int i = 0; i < kVector<T>; ++i) {
    y[i] = after.relu && from.x[i] <= 0.0f ? 0.0f : from.x[i];
    if (after.gate != nullptr) y[i] = then::gated(y[i], (open >> i & 1) != 0, then::kAboveZero<T>);
    y[i] = then::without_payload(y[i]);
  }
  return cuda::vector_of<T>(y);
}

// The same of values that are neither.
template <class T>
__device__ TUCKFOLD_INLINE uint4 tame_result(const then::CudaArgs& after, float* x,
                                             std::uint32_t open) {
  constexpr int kV = kVector<T>;
  const bool gated = after.gate != nullptr;
  if constexpr (sizeof(T) == 4) {
#pragma unroll
    for (int i = 0; i < kV; ++i) {
      if (gated) {
        x[i] = (open >> i & 1) != 0 ? cuda::most(x[i], then::kAboveZero<T>) : 0.0f;
      } else if (after.relu) {
        x[i] = cuda::most(x[i], 0.0f);
      }
    }
    return cuda::vector_of<T>(x);
  } else {
    uint4 result = cuda::halves_of<T>(x, true);
    std::uint32_t* words = &result.x;
    // Rounding keeps the order, so that zeros and the least number may follow it.
    if (gated || after.relu) {
      constexpr std::uint32_t kLeast = std::is_same_v<T, F16> ? 0x00010001u : 0x00800080u;
      const std::uint32_t least = gated ? kLeast : 0u;
#pragma unroll
      for (int i = 0; i < 4; ++i) words[i] = cuda::most_halves<T>(words[i], least);
    }
    if (gated) {
      std::uint32_t masks[4];
      halves_of_bits(open, masks);
#pragma unroll
      for (int i = 0; i < 4; ++i) words[i] &= masks[i];
    }
    return result;
  }
}

// What a thread of unpack_channels_kernel has of one tensor: numbers of its channels.
template <int kV>
struct ChannelNumbers {
  float scale[kV], shift[kV], most_scale = 0.0f, most_shift = 0.0f;

  __device__ TUCKFOLD_INLINE void load(const float* scales, const float* shifts, int first,
                                       int step) {
#pragma unroll
    for (int i = 0; i < kV; ++i) {
      scale[i] = __ldg(scales + first + i * step);
      shift[i] = __ldg(shifts + first + i * step);
      most_scale = cuda::most(most_scale, fabsf(scale[i]));
      most_shift = cuda::most(most_shift, fabsf(shift[i]));
    }
  }
  // Applies them, and gives a bound of what they give.
  __device__ TUCKFOLD_INLINE float apply(float* x, float bound) const {
#pragma unroll
    for (int i = 0; i < kV; ++i) x[i] = then::value_of(x[i], scale[i], shift[i], false);
    return fmaf(bound, most_scale, most_shift);
  }
};

// The codes and headers of a block's part of a tensor.
template <class T, int kBits>
struct ChannelCodes {
  static constexpr int kV = kVector<T>, kWarpBytes = kWarp * kV * kBits / 8;
  const std::byte* codes;
  const std::uint32_t* headers;
  std::uint32_t past;  // values of the first group that other blocks have
  int shift, lane;

  __device__ TUCKFOLD_INLINE ChannelCodes(const DenseTensor& tensor, const Settings& s,
                                          std::int64_t first)
      : codes(tensor.codes + first / kWarp * kWarpBytes),
        headers(reinterpret_cast<const std::uint32_t*>(tensor.headers) +
                (first * kV >> s.group_shift)),
        past(static_cast<std::uint32_t>(first * kV) & static_cast<std::uint32_t>(s.group - 1)),
        shift(s.group_shift),
        lane(static_cast<int>(threadIdx.x) % kWarp) {}
  // Of the block's vector `at`.
  __device__ TUCKFOLD_INLINE std::uint64_t code(int at) const {
    return load_codes<kBits, kV>(codes + at / kWarp * kWarpBytes, lane, 0);
  }
  __device__ TUCKFOLD_INLINE std::uint32_t header(int at) const {
    return __ldg(headers + ((past + static_cast<std::uint32_t>(at * kV)) >> shift));
  }
};

// With kWhole all vectors of the block exist.
template <class T, int kBits, Adds kAdds, bool kWhole>
__device__ TUCKFOLD_INLINE void unpack_channels(const DenseTensor& tensor, const DenseTensor& other,
                                                const Settings& s, const then::CudaArgs& after,
                                                std::int64_t first, int vectors) {
  constexpr int kV = kVector<T>;
  constexpr float kLargest = std::is_same_v<T, F16> ? 60000.0f : 0x1p127f;
  const int thread = static_cast<int>(threadIdx.x), step = after.channels == 1 ? 0 : 1;
  const int channel = step == 0 ? 0 : thread % static_cast<int>(after.channels / kV) * kV;
  ChannelNumbers<kV> numbers, other_numbers;
  numbers.load(after.scale, after.shift, channel, step);
  if constexpr (kAdds == Adds::kScaled) {
    other_numbers.load(after.add_scale, after.add_shift, channel, step);
  }
  const ChannelCodes<T, kBits> mine(tensor, s, first);
  const ChannelCodes<T, kBits> theirs(is_packed(kAdds) ? other : tensor, s, first);
  const auto* add = reinterpret_cast<const uint4*>(after.add) + first;
  const unsigned char* gate = after.gate + (first * kV >> 3);
  auto* out = reinterpret_cast<uint4*>(tensor.data) + first;
#pragma unroll 1
  for (int round = 0; round < kRounds; ++round) {
    const int begin = round * (kChannelThreads * kTogether) + thread;
    std::uint64_t codes[kTogether], other_codes[kTogether];
    std::uint32_t headers[kTogether], other_headers[kTogether], open[kTogether];
    uint4 added[kTogether];
    const auto each = [&](auto&& body) {
#pragma unroll
      for (int k = 0; k < kTogether; ++k) {
        const int at = begin + k * kChannelThreads;
        if (kWhole || at < vectors) body(k, at);
      }
    };
    each([&](int k, int at) { codes[k] = mine.code(at); });
    each([&](int k, int at) { headers[k] = mine.header(at); });
    if constexpr (is_packed(kAdds)) {
      each([&](int k, int at) { other_codes[k] = theirs.code(at); });
      each([&](int k, int at) { other_headers[k] = theirs.header(at); });
    }
    if constexpr (kAdds == Adds::kTensor) each([&](int k, int at) { added[k] = add[at]; });
    if (after.gate != nullptr) {
      each([&](int k, int at) {
        open[k] = sizeof(T) == 4 ? __ldg(gate + at / 2) >> at % 2 * 4 : __ldg(gate + at);
      });
    }
    if (round + 1 == kRounds) cuda::allow_next_kernel();
    each([&](int k, int at) {
      float x[kV];
      const VectorGroup<T, kBits> group(headers[k]);
      group.values(codes[k], x);
      float bound = numbers.apply(x, group.bound);
      if constexpr (kAdds != Adds::kNothing) {
        float y[kV];
        if constexpr (is_packed(kAdds)) {
          const VectorGroup<T, kBits> of_other(other_headers[k]);
          of_other.values(other_codes[k], y);
          float other_bound = of_other.bound;
          if constexpr (kAdds == Adds::kScaled) {
            other_bound = other_numbers.apply(y, other_bound);
            if constexpr (sizeof(T) == 2) {
              cuda::floats_of<T>(cuda::halves_of<T>(y, other_bound < kLargest), y);
            }
          }
          bound += other_bound;
        } else {
          cuda::floats_of<T>(added[k], y);
#pragma unroll
          for (int i = 0; i < kV; ++i) bound += fabsf(y[i]);
        }
#pragma unroll
        for (int i = 0; i < kV; ++i) x[i] = x[i] + y[i];
      }
      cuda::store_away(out + at, bound < kLargest ? tame_result<T>(after, x, open[k])
                                                  : any_result<T>(after, Floats<kV>(x), open[k]));
    });
  }
}

template <class T, int kBits, Adds kAdds>
__global__ void __launch_bounds__(kChannelThreads)
    unpack_channels_kernel(const __grid_constant__ DenseTensor tensor,
                           const __grid_constant__ DenseTensor other,
                           const __grid_constant__ Settings s,
                           const __grid_constant__ then::CudaArgs after) {
  constexpr int kVectors = kChannelThreads * kTogether * kRounds;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kVectors;
  const std::int64_t left = tensor.elems / kVector<T> - first;
  cuda::wait_for_previous_kernel();
  if (left >= kVectors) {
    unpack_channels<T, kBits, kAdds, true>(tensor, other, s, after, first, kVectors);
  } else {
    unpack_channels<T, kBits, kAdds, false>(tensor, other, s, after, first, static_cast<int>(left));
  }
}

}  // namespace tuckfold::block_quant
