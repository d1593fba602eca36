// block_quant's unpack kernels. In the fast one a warp writes a tile of 1024 values of a dense
// tensor, with contiguous stores of 16 bytes per lane, so that every store is whole cache lines. It
// loads all codes and headers of the tile before it uses the first. Groups may have any size. If
// the tensor is not aligned to 16 bytes, another kernel exchanges values between lanes in shared
// memory.
#pragma once

#include <cstdint>

#include "base/cuda/view.cuh"
#include "codec/block_quant/block_quant_cuda.cuh"

namespace tuckfold::block_quant {

inline constexpr int kUnpackThreads = 128, kUnpackWarps = kUnpackThreads / kWarp;
inline constexpr int kTile = 1024;
// How many tiles ahead a warp prefetches packed bytes: 16 MB of f32. With fewer tiles they may
// arrive too late; with twice as many they leave the cache before they are read.
inline constexpr int kTilesAhead = 4096;

// ---- what both ways share -----------------------------------------------------------------------

// Four bytes at any address.
__device__ TUCKFOLD_INLINE std::uint32_t load_bytes(const std::byte* from) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(from);
  std::uint32_t word = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) word |= static_cast<std::uint32_t>(__ldg(bytes + i)) << 8 * i;
  return word;
}

// The group of a header that was loaded as a word.
__device__ TUCKFOLD_INLINE Group group_at(std::uint32_t header) {
  return group_of({static_cast<std::uint16_t>(header), static_cast<std::uint16_t>(header >> 16)});
}

// How codes become values, for both kinds of groups: ordinary_value without its branches. The code
// is the low bits of a float of 2^23 and more; adding -0 changes nothing.
inline constexpr std::uint32_t kCodeBits = 0x4b000000u;  // of 2^23
struct Spread {
  float subtract, scale, add;
  __device__ explicit Spread(std::uint32_t header) {
    const bool about_zero = (header & 0x8000u) != 0;
    subtract = float_of(kCodeBits | (about_zero ? header >> 16 : 0u));
    scale = float_of((header & 0x7fffu) << 16);
    add = about_zero ? -0.0f : float_of(header & 0xffff0000u);
  }
  __device__ float value(std::uint32_t code_bits) const {
    return (float_of(code_bits) - subtract) * scale + add;
  }
};

__device__ TUCKFOLD_INLINE std::uint32_t code_at(const std::byte* codes, std::int64_t index,
                                                 int bits) {
  const auto* from = reinterpret_cast<const unsigned char*>(codes) + index / 8 * bits;
  const int bit = static_cast<int>(index % 8) * bits;
  std::uint32_t word = from[bit / 8];
  if (bit % 8 + bits > 8) word |= static_cast<std::uint32_t>(from[bit / 8 + 1]) << 8;
  return word >> bit % 8 & ((1u << bits) - 1u);
}

__device__ TUCKFOLD_INLINE float unpacked_value(const DenseTensor& tensor, const Settings& s,
                                                std::int64_t index) {
  const Group group = group_at(load_bytes(tensor.headers + index / s.group * 4));
  return value_of(static_cast<int>(code_at(tensor.codes, index, s.bits)), group);
}

// ---- any tensor ---------------------------------------------------------------------------------

template <class T>
__global__ void __launch_bounds__(kUnpackThreads)
    unpack_any_kernel(const __grid_constant__ cuda::View view,
                      const __grid_constant__ DenseTensor tensor,
                      const __grid_constant__ Settings settings) {
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kUnpackThreads + threadIdx.x;
  cuda::wait_for_previous_kernel();
  if (index >= view.elems) return;
  const float value = unpacked_value(tensor, settings, index);
  reinterpret_cast<T*>(view.data)[view.offset(index)] = cuda::from_float<T>(value);
}

// ---- dense tensors ------------------------------------------------------------------------------

// The codes of a lane's kCount values in step `step` of the tile whose codes begin at `tile`, in
// the low bits. Words past the last code's are not read.
template <int kBits, int kCount>
__device__ TUCKFOLD_INLINE std::uint64_t load_codes(const std::byte* tile, int lane, int step) {
  constexpr int kSize = kBits * kCount;
  const std::byte* from = tile + step * (kWarp * kSize / 8);
  if constexpr (kSize == 4) {
    return __ldg(reinterpret_cast<const unsigned char*>(from) + lane / 2) >> lane % 2 * 4;
  } else if constexpr (kSize == 8) {
    return __ldg(reinterpret_cast<const unsigned char*>(from) + lane);
  } else if constexpr (kSize == 16) {
    return __ldg(reinterpret_cast<const unsigned short*>(from) + lane);
  } else if constexpr (kSize == 32) {
    return __ldg(reinterpret_cast<const unsigned*>(from) + lane);
  } else if constexpr (kSize == 64) {
    const uint2 both = __ldg(reinterpret_cast<const uint2*>(from) + lane);
    return static_cast<std::uint64_t>(both.y) << 32 | both.x;
  } else {
    const int bit = lane * kSize, shift = bit % 32;
    const auto* words = reinterpret_cast<const unsigned*>(from) + bit / 32;
    std::uint64_t both = __ldg(words);
    if (shift + kSize > 32) both |= static_cast<std::uint64_t>(__ldg(words + 1)) << 32;
    both >>= shift;
    if constexpr (kSize > 40) {
      if (shift + kSize > 64) both |= static_cast<std::uint64_t>(__ldg(words + 2)) << (64 - shift);
    }
    return both;
  }
}

// Prefetches a tile's codes, and its headers if they begin a line.
template <int kBits>
__device__ TUCKFOLD_INLINE void prefetch_tile(const DenseTensor& tensor, int group_shift,
                                              std::int64_t tile, int lane) {
  if ((tile + 1) * kTile > tensor.elems) return;
  static_assert(kTile / 8 == cuda::kLine);  // so that a tile has as many lines as codes have bits
  if (lane < kBits) cuda::prefetch(tensor.codes + (tile * kBits + lane) * cuda::kLine);
  if (lane == kBits && group_shift >= 0) {
    const std::byte* headers = tensor.headers + (tile * kTile >> group_shift) * 4;
    const int bytes = 4 * kTile >> group_shift;
    if (static_cast<int>(reinterpret_cast<std::uintptr_t>(headers) % cuda::kLine) < bytes) {
      cuda::prefetch(headers);
    }
  }
}

// The values of a lane's codes in one step.
template <class T, int kBits>
__device__ TUCKFOLD_INLINE uint4 step_values(std::uint64_t codes, std::uint32_t header) {
  const Spread spread(header);
  float x[kVector<T>];
#pragma unroll
  for (int i = 0; i < kVector<T>; ++i) {
    const auto code = static_cast<std::uint32_t>(codes >> i * kBits) & ((1u << kBits) - 1u);
    x[i] = spread.value(kCodeBits | code);
  }
  if (const Group group = group_at(header); is_extreme(group)) {
#pragma unroll
    for (int i = 0; i < kVector<T>; ++i) {
      const auto code = static_cast<std::uint32_t>(codes >> i * kBits) & ((1u << kBits) - 1u);
      x[i] = extreme_value(static_cast<int>(code), group);
    }
  }
  return cuda::vector_of<T>(x);
}

// The values of a tensor after its whole tiles.
template <class T>
__device__ TUCKFOLD_INLINE void unpack_rest(const DenseTensor& tensor, const Settings& s,
                                            std::int64_t begin) {
  T* to = reinterpret_cast<T*>(tensor.data);
  for (std::int64_t i = begin + threadIdx.x % kWarp; i < tensor.elems; i += kWarp) {
    to[i] = cuda::from_float<T>(unpacked_value(tensor, s, i));
  }
}

template <class T, int kBits, int kMost>
__global__ void __launch_bounds__(kUnpackThreads)
    unpack_tiles_kernel(const __grid_constant__ Tensors<kMost> tensors) {
  constexpr int kV = kVector<T>, kStep = kWarp * kV, kTileSteps = kTile / kStep;
  const DenseTensor& tensor = tensors.of(blockIdx.x);
  const Settings& s = tensors.settings;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t tile =
      static_cast<std::int64_t>(blockIdx.x - tensor.first_cta) * kUnpackWarps + threadIdx.x / kWarp;
  const std::int64_t begin = tile * kTile;
  T* to = reinterpret_cast<T*>(tensor.data) + begin;
  cuda::wait_for_previous_kernel();
  if (begin + kTile > tensor.elems) return unpack_rest<T>(tensor, s, begin);
  prefetch_tile<kBits>(tensor, s.group_shift, tile + kTilesAhead, lane);
  // Separate loops, so that no branch is between two loads.
  std::uint64_t codes[kTileSteps];
  const std::byte* tile_codes = tensor.codes + tile * (kTile / 8 * kBits);
#pragma unroll
  for (int j = 0; j < kTileSteps; ++j) codes[j] = load_codes<kBits, kV>(tile_codes, lane, j);
  std::uint32_t groups[kTileSteps];  // from the tile's first on
  const std::int64_t first_group = s.group_shift >= 0 ? begin >> s.group_shift : begin / s.group;
  const auto past = static_cast<std::uint32_t>(begin - first_group * s.group + lane * kV);
  if (s.group_shift >= 0) {
#pragma unroll
    for (int j = 0; j < kTileSteps; ++j) groups[j] = (past + j * kStep) >> s.group_shift;
  } else {
#pragma unroll
    for (int j = 0; j < kTileSteps; ++j) {
      groups[j] = (past + j * kStep) / static_cast<std::uint32_t>(s.group);
    }
  }
  std::uint32_t headers[kTileSteps];
  const std::byte* from = tensor.headers + first_group * 4;
  if (reinterpret_cast<std::uintptr_t>(tensor.headers) % 4 == 0) {
#pragma unroll
    for (int j = 0; j < kTileSteps; ++j) {
      headers[j] = __ldg(reinterpret_cast<const unsigned*>(from) + groups[j]);
    }
  } else {
#pragma unroll
    for (int j = 0; j < kTileSteps; ++j) {
      headers[j] = load_bytes(from + std::int64_t{4} * groups[j]);
    }
  }
  cuda::allow_next_kernel();
#pragma unroll
  for (int j = 0; j < kTileSteps; ++j) {
    cuda::store_away(reinterpret_cast<uint4*>(to + j * kStep) + lane,
                     step_values<T, kBits>(codes[j], headers[j]));
  }
}

// Stores of a warp that begin at any element's address. Bytes wait in shared memory until they fill
// a 16-byte vector that is aligned in the tensor; such a vector begins `skew` bytes before the
// warp's own.
template <class T>
class SkewedStores {
 public:
  static constexpr int kBytes = kWarp * 16 + 16;

  __device__ SkewedStores(unsigned char* shared, T* to)
      : shared_(shared),
        skew_(static_cast<int>(reinterpret_cast<std::uintptr_t>(to) % 16)),
        grid_(reinterpret_cast<char*>(to) - skew_) {}

  // The next 16 bytes of every lane.
  __device__ TUCKFOLD_INLINE void put(const uint4& vector) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const std::uint32_t words[4] = {vector.x, vector.y, vector.z, vector.w};
    unsigned char* mine = shared_ + lane * 16 + skew_;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (skew_ % 4 == 0) {
        reinterpret_cast<std::uint32_t*>(mine)[i] = words[i];
      } else {
        reinterpret_cast<std::uint16_t*>(mine)[2 * i] = static_cast<std::uint16_t>(words[i]);
        reinterpret_cast<std::uint16_t*>(mine)[2 * i + 1] =
            static_cast<std::uint16_t>(words[i] >> 16);
      }
    }
    __syncwarp();
    if (lane == 0 && first_) {
      copy(skew_, 16);  // what comes before is another warp's
    } else {
      cuda::store_away(reinterpret_cast<uint4*>(grid_) + lane,
                       reinterpret_cast<const uint4*>(shared_)[lane]);
    }
    first_ = false;
    grid_ += kWarp * 16;
    const uint4 rest = reinterpret_cast<const uint4*>(shared_)[kWarp];
    __syncwarp();
    if (lane == 0) *reinterpret_cast<uint4*>(shared_) = rest;
    __syncwarp();
  }
  // Stores the bytes that no later put will complete.
  __device__ TUCKFOLD_INLINE void finish() {
    if (threadIdx.x % kWarp == 0) copy(0, skew_);
  }

 private:
  __device__ void copy(int begin, int end) {
    for (int at = begin; at < end; at += static_cast<int>(sizeof(T))) {
      *reinterpret_cast<T*>(grid_ + at) = *reinterpret_cast<const T*>(shared_ + at);
    }
  }

  unsigned char* shared_;
  int skew_;
  char* grid_;
  bool first_ = true;
};

// A tensor that begins at any address of an element.
template <class T, int kBits>
__global__ void __launch_bounds__(kUnpackThreads)
    unpack_skewed_kernel(const __grid_constant__ Tensors<1> tensors) {
  constexpr int kV = kVector<T>, kStep = kWarp * kV;
  __shared__ __align__(16) unsigned char shared[kUnpackWarps][SkewedStores<T>::kBytes];
  const DenseTensor& tensor = tensors.of(blockIdx.x);
  const Settings& s = tensors.settings;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t tile =
      static_cast<std::int64_t>(blockIdx.x) * kUnpackWarps + threadIdx.x / kWarp;
  const std::int64_t begin = tile * kTile;
  cuda::wait_for_previous_kernel();
  if (begin + kTile > tensor.elems) return unpack_rest<T>(tensor, s, begin);
  const std::byte* codes = tensor.codes + tile * (kTile / 8 * kBits);
  SkewedStores<T> stores(shared[threadIdx.x / kWarp], reinterpret_cast<T*>(tensor.data) + begin);
#pragma unroll 2
  for (int j = 0; j < kTile / kStep; ++j) {
    const std::int64_t index = begin + j * kStep + lane * kV;
    const std::int64_t group = s.group_shift >= 0 ? index >> s.group_shift : index / s.group;
    const std::uint32_t header = load_bytes(tensor.headers + group * 4);
    stores.put(step_values<T, kBits>(load_codes<kBits, kV>(codes, lane, j), header));
  }
  stores.finish();
}

}  // namespace tuckfold::block_quant
