// What block_quant's pack kernels share: ranges, headers and codes; and the kernels that take any
// group of any tensor. Those of whole tiles are in block_quant_tiles_cuda.cuh.
#pragma once

#include <cstdint>

#include "base/cuda/view.cuh"
#include "codec/block_quant/block_quant_cuda.cuh"

namespace tuckfold::block_quant {

inline constexpr int kPackThreads = 256, kPackWarps = kPackThreads / kWarp;
inline constexpr int kPackBlocks = 4;  // on a multiprocessor: up to 64 registers a thread

template <class T>
inline constexpr int kStepValues = kWarp* kVector<T>;  // that a warp loads at once

// ---- ranges and headers -------------------------------------------------------------------------

// Maps a float to an integer so that integers compare as the floats do; the function is its own
// inverse. A NaN maps beyond the infinity of its sign.
__device__ TUCKFOLD_INLINE int image_of(float value) {
  const int bits = __float_as_int(value);
  return bits ^ (bits >> 31 & 0x7fffffff);
}
__device__ TUCKFOLD_INLINE float float_of_image(int image) {
  return __int_as_float(image ^ (image >> 31 & 0x7fffffff));
}

struct Range {
  int low = 0x7fffffff, high = -0x7fffffff - 1;  // images
};
__device__ TUCKFOLD_INLINE Range join(Range a, Range b) {
  return {a.low < b.low ? a.low : b.low, a.high > b.high ? a.high : b.high};
}

// The least and the largest of sixteen bytes of halves, each in one half of the word.
template <class T>
__device__ TUCKFOLD_INLINE std::uint32_t least_of(const uint4& raw) {
  return cuda::least_halves<T>(cuda::least_halves<T>(raw.x, raw.y),
                               cuda::least_halves<T>(raw.z, raw.w));
}
template <class T>
__device__ TUCKFOLD_INLINE std::uint32_t most_of(const uint4& raw) {
  return cuda::most_halves<T>(cuda::most_halves<T>(raw.x, raw.y),
                              cuda::most_halves<T>(raw.z, raw.w));
}

// The range of sixteen bytes of values.
template <class T>
__device__ TUCKFOLD_INLINE Range range_of(const uint4& raw) {
  if constexpr (sizeof(T) == 4) {
    float x[4];
    cuda::floats_of<T>(raw, x);
    return {image_of(cuda::least(cuda::least(x[0], x[1]), cuda::least(x[2], x[3]))),
            image_of(cuda::most(cuda::most(x[0], x[1]), cuda::most(x[2], x[3])))};
  } else {
    const std::uint32_t low = least_of<T>(raw), high = most_of<T>(raw);
    const auto first = [](std::uint32_t both) {
      return image_of(cuda::half_to_float<T>(static_cast<std::uint16_t>(both)));
    };
    return {first(cuda::least_halves<T>(low, __byte_perm(low, 0, 0x1032))),
            first(cuda::most_halves<T>(high, __byte_perm(high, 0, 0x1032)))};
  }
}

// Both are NaN where a value is.
__device__ TUCKFOLD_INLINE Header header_of(float low, float high, const Settings& s) {
  const float infinity = float_of(kInfBits);
  if (!(low > -infinity && high < infinity)) return {kBF16Nan, 0};  // kNotFinite
  return header_of(low, high, s.bits, s.exact_zero);
}
__device__ TUCKFOLD_INLINE Header header_of(Range range, const Settings& s) {
  return header_of(float_of_image(range.low), float_of_image(range.high), s);
}

// Codes may have any number of bytes, so the headers after them may be at any address.
__device__ TUCKFOLD_INLINE void store_header(std::byte* to, Header header) {
  const std::uint32_t word = header.scale | static_cast<std::uint32_t>(header.minimum) << 16;
  const auto address = reinterpret_cast<std::uintptr_t>(to);
  if (address % 4 == 0) {
    *reinterpret_cast<std::uint32_t*>(to) = word;
  } else if (address % 2 == 0) {
    reinterpret_cast<std::uint16_t*>(to)[0] = header.scale;
    reinterpret_cast<std::uint16_t*>(to)[1] = header.minimum;
  } else {
    for (int i = 0; i < 4; ++i) to[i] = static_cast<std::byte>(word >> 8 * i);
  }
}

// ---- codes --------------------------------------------------------------------------------------

// How values of a group become sums with their codes in the low bits. A factor of 0 marks a group
// that is not finite, whose codes are 0.
struct ToSum {
  float subtract, factor, add;
};
template <bool kStochastic>
__device__ TUCKFOLD_INLINE ToSum to_sum(Header header) {
  const Group group = group_of(header);
  if (!(group.scale < float_of(kInfBits))) return {0.0f, 0.0f, 0.0f};
  const Scaling s = scaling_of(group);
  return {s.subtract, s.factor, (kStochastic ? kToFixed : kToInteger) + s.zero};
}

// Codes of four values, a byte each. A sum exceeds `most`, the sum of the last level, only in
// groups around zero of one bit: others need no clamp.
template <bool kStochastic, bool kClamp>
__device__ TUCKFOLD_INLINE std::uint32_t four_codes(const float* x, const ToSum& s, float most,
                                                    std::uint32_t random) {
  std::uint32_t sums[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float sum = (x[i] - s.subtract) * s.factor + s.add;
    sums[i] = __float_as_uint(kClamp ? fminf(sum, most) : sum);
  }
  std::uint32_t codes;
  if constexpr (kStochastic) {
    const std::uint32_t front = __byte_perm(sums[0], sums[1], 0x5410);
    const std::uint32_t back = __byte_perm(sums[2], sums[3], 0x5410);
    codes = __byte_perm(front + __byte_perm(random, 0, 0x4140),
                        back + __byte_perm(random, 0, 0x4342), 0x7531);
  } else {
    codes = __byte_perm(__byte_perm(sums[0], sums[1], 0x0040),
                        __byte_perm(sums[2], sums[3], 0x0040), 0x5410);
  }
  return s.factor == 0.0f ? 0u : codes;
}

// Packs four codes, each in a byte, into the low 4 * kBits bits. Products and sums carry nothing,
// because fields do not overlap.
template <int kBits>
__device__ TUCKFOLD_INLINE std::uint32_t squeeze_bytes(std::uint32_t x) {
  if constexpr (kBits == 1) {
    return x * 0x10204080u >> 28;
  } else if constexpr (kBits == 2) {
    return x * 0x01041040u >> 24;
  } else if constexpr (kBits == 4) {
    return __byte_perm(x + (x >> 4), 0, 0x4420);
  } else if constexpr (kBits == 8) {
    return x;
  } else {
    constexpr std::uint32_t kOne = ((1u << kBits) - 1u) * 0x00010001u;
    constexpr std::uint32_t kTwo = (1u << 2 * kBits) - 1u;
    x = (x & kOne) | (x >> (8 - kBits) & kOne << kBits);
    return (x & kTwo) | (x >> (16 - 2 * kBits) & kTwo << 2 * kBits);
  }
}

// Eight codes, a byte each, as `bits` bytes.
__device__ TUCKFOLD_INLINE std::uint64_t eight_codes(std::uint32_t front, std::uint32_t back,
                                                     int bits) {
  const auto squeezed = [&]<int kBits>() {
    return static_cast<std::uint64_t>(squeeze_bytes<kBits>(back)) << 4 * kBits |
           squeeze_bytes<kBits>(front);
  };
  switch (bits) {
    case 1: return squeezed.template operator()<1>();
    case 2: return squeezed.template operator()<2>();
    case 3: return squeezed.template operator()<3>();
    case 4: return squeezed.template operator()<4>();
    case 5: return squeezed.template operator()<5>();
    case 6: return squeezed.template operator()<6>();
    case 7: return squeezed.template operator()<7>();
    default: return squeezed.template operator()<8>();
  }
}

// ---- any group of any tensor --------------------------------------------------------------------

// The source of values, eight of one group at a time, of which `some` exist.
template <class T>
struct DenseValues {
  const T* data;
  bool aligned;  // to 16 bytes

  __device__ TUCKFOLD_INLINE void eight(std::int64_t index, int some, float* x) const {
    const T* from = data + index;
    if (aligned && some == 8) {
      if constexpr (sizeof(T) == 2) {
        cuda::floats_of<T>(*reinterpret_cast<const uint4*>(from), x);
        return;
      } else if constexpr (sizeof(T) == 4) {
        cuda::floats_of<T>(reinterpret_cast<const uint4*>(from)[0], x);
        cuda::floats_of<T>(reinterpret_cast<const uint4*>(from)[1], x + 4);
        return;
      }
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = cuda::as_float(from[i < some ? i : 0]);
  }
};

template <class T>
__device__ TUCKFOLD_INLINE DenseValues<T> dense_values(const DenseTensor& tensor) {
  return {reinterpret_cast<const T*>(tensor.data),
          reinterpret_cast<std::uintptr_t>(tensor.data) % 16 == 0};
}

template <class T>
struct StridedValues {
  const cuda::View* view;

  __device__ TUCKFOLD_INLINE void eight(std::int64_t index, int some, float* x) const {
    const T* data = reinterpret_cast<const T*>(view->data);
    // One position on the inner axis is enough for all eight values, unless they cross its end.
    const std::int64_t first = view->offset(index), last = view->offset(index + some - 1);
    const std::int64_t step = view->steps[0];
    const bool even = last - first == (some - 1) * step;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int at = i < some ? i : 0;
      x[i] = cuda::as_float(data[even ? first + at * step : view->offset(index + at)]);
    }
  }
};

// One warp packs a group, eight values of a lane at a time. It reads them twice.
template <bool kStochastic, class Values>
__device__ TUCKFOLD_NOINLINE void pack_group(const Values& values, const Settings& settings,
                                             const DenseTensor& tensor, std::int64_t group) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t first = group * settings.group, left = tensor.elems - first;
  const int count = static_cast<int>(left < settings.group ? left : settings.group);
  Range range;
  for (int at = 8 * lane; at < count; at += 8 * kWarp) {
    float x[8];
    values.eight(first + at, count - at < 8 ? count - at : 8, x);
    float low = x[0], high = x[0];
#pragma unroll
    for (int i = 1; i < 8; ++i) {
      low = cuda::least(low, x[i]);
      high = cuda::most(high, x[i]);
    }
    range = join(range, {image_of(low), image_of(high)});
  }
  range.low = __reduce_min_sync(kAllLanes, range.low);
  range.high = __reduce_max_sync(kAllLanes, range.high);
  const Header header = header_of(range, settings);
  if (lane == 0) store_header(tensor.headers + group * 4, header);
  const ToSum s = to_sum<kStochastic>(header);
  const float most =
      (kStochastic ? kToFixed : kToInteger) + static_cast<float>((1 << settings.bits) - 1);
  const std::uint32_t key =
      kStochastic
          ? first_step(group_key(settings.seed_of(tensor), static_cast<std::uint64_t>(group)))
          : 0u;
  auto* codes =
      reinterpret_cast<unsigned char*>(tensor.codes) + group * (settings.group / 8 * settings.bits);
  for (int at = 8 * lane; at < count; at += 8 * kWarp) {
    const int some = count - at < 8 ? count - at : 8;
    float x[8];
    values.eight(first + at, some, x);
    std::uint32_t words[2];
#pragma unroll
    for (int w = 0; w < 2; ++w) {
      std::uint32_t random = 0;
      if constexpr (kStochastic) {
        random = later_steps(key ^ first_step(static_cast<std::uint32_t>(at / 4 + w) * kQuad));
      }
      words[w] = four_codes<kStochastic, true>(x + 4 * w, s, most, random);
    }
    std::uint64_t bits = eight_codes(words[0], words[1], settings.bits);
    unsigned char* to = codes + at / 8 * settings.bits;
    if (some == 8 && settings.bits == 8) {
      *reinterpret_cast<std::uint64_t*>(to) = bits;
    } else if (some == 8 && settings.bits == 4) {
      *reinterpret_cast<std::uint32_t*>(to) = static_cast<std::uint32_t>(bits);
    } else if (some == 8 && settings.bits == 2) {
      *reinterpret_cast<std::uint16_t*>(to) = static_cast<std::uint16_t>(bits);
    } else {
      bits &= ~std::uint64_t{0} >> (64 - some * settings.bits);
      const int bytes = (some * settings.bits + 7) / 8;
      for (int i = 0; i < bytes; ++i) to[i] = static_cast<unsigned char>(bits >> 8 * i);
    }
  }
}

// Any tensor; the tensor has what is packed.
template <class T, bool kStochastic>
__global__ void __launch_bounds__(kPackThreads)
    pack_any_kernel(const __grid_constant__ cuda::View view,
                    const __grid_constant__ DenseTensor tensor,
                    const __grid_constant__ Settings settings) {
  const std::int64_t warp =
      static_cast<std::int64_t>(blockIdx.x) * kPackWarps + threadIdx.x / kWarp;
  cuda::wait_for_previous_kernel();
  if (warp * settings.group >= tensor.elems) return;
  pack_group<kStochastic>(StridedValues<T>{&view}, settings, tensor, warp);
}

// Dense tensors whose groups do not suit tiles.
template <class T, bool kStochastic, int kMost>
__global__ void __launch_bounds__(kPackThreads)
    pack_groups_kernel(const __grid_constant__ Tensors<kMost> tensors) {
  const DenseTensor& tensor = tensors.of(blockIdx.x);
  const Settings& settings = tensors.settings;
  const std::int64_t warp =
      static_cast<std::int64_t>(blockIdx.x - tensor.first_cta) * kPackWarps + threadIdx.x / kWarp;
  cuda::wait_for_previous_kernel();
  if (warp * settings.group >= tensor.elems) return;
  pack_group<kStochastic>(dense_values<T>(tensor), settings, tensor, warp);
}

}  // namespace tuckfold::block_quant
