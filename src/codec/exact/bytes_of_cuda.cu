// bytes_of on CUDA: as on the CPU a multiplication guesses a byte, and the value it represents is
// compared with the input. That value is computed if the formula gives all 256 values, else looked
// up.
#include <type_traits>

#include "base/cuda/runtime.h"
#include "codec/blocks/vectors_cuda.cuh"
#include "codec/exact/bytes_of.h"
#include "codec/exact/exact_cuda.cuh"
#include "codec/registry.h"

namespace tuckfold::bytes_of {
namespace {

using cuda::kVector;
using cuda::kWarp;
using cuda::Refusals;
using cuda::View;

constexpr int kThreads = 256, kWarps = kThreads / kWarp;
constexpr int kSteps = 8;  // 16 bytes each, that a lane has under way

template <class T>
using Word = std::conditional_t<sizeof(T) == 2, std::uint16_t,
                                std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>;

template <class T>
struct Args {
  View view;
  Refusals refusals;
  unsigned char* codes;
  Guess guess;
  Factors factors;
  Word<T> words[256];
};

template <class T>
__device__ TUCKFOLD_INLINE float float_of_word(Word<T> word) {
  if constexpr (sizeof(T) == 2) {
    return cuda::half_to_float<T>(word);
  } else if constexpr (sizeof(T) == 4) {
    return __uint_as_float(word);
  } else {
    return static_cast<float>(std::bit_cast<double>(word));
  }
}

// The block's copy of the table: lanes look up 32 different words at once.
template <class T>
__device__ TUCKFOLD_INLINE const Word<T>* table_of(const Args<T>& a) {
  __shared__ Word<T> table[256];
  for (int i = static_cast<int>(threadIdx.x); i < 256; i += kThreads) table[i] = a.words[i];
  __syncthreads();
  return table;
}

template <class T, bool kComputed>
__device__ TUCKFOLD_INLINE Word<T> word_of(const Args<T>& a, const Word<T>* table, int k) {
  if constexpr (kComputed) {
    return bits_of(
        compute_f32(a.factors, float_of(0x4b000000u | static_cast<unsigned>(k)) - kToInteger));
  } else {
    return table[k];
  }
}

// The byte of a value. If the guess is wrong, the smallest byte that represents the value, or none.
template <class T, bool kComputed>
__device__ TUCKFOLD_INLINE std::uint32_t code_of(const Args<T>& a, const Word<T>* table,
                                                 Word<T> word, std::int64_t index) {
  const int guess = guess_of(float_of_word<T>(word), a.guess);
  if (word_of<T, kComputed>(a, table, guess) == word) return static_cast<std::uint32_t>(guess);
#pragma unroll 1
  for (int k = 0; k < 256; ++k) {
    if (word_of<T, kComputed>(a, table, k) == word) return static_cast<std::uint32_t>(k);
  }
  refuse(a.refusals, index);
  return 0;
}

template <class T, bool kPack, bool kComputed>
__device__ TUCKFOLD_INLINE void one_value(const Args<T>& a, const Word<T>* table,
                                          std::int64_t index) {
  Word<T>& element = reinterpret_cast<Word<T>*>(a.view.data)[a.view.offset(index)];
  if constexpr (kPack) {
    a.codes[index] = static_cast<unsigned char>(code_of<T, kComputed>(a, table, element, index));
  } else {
    element = word_of<T, kComputed>(a, table, a.codes[index]);
  }
}

// Any tensor.
template <class T, bool kPack>
__global__ void __launch_bounds__(kThreads) any_kernel(const __grid_constant__ Args<T> a) {
  const Word<T>* table = table_of(a);
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  cuda::wait_for_previous_kernel();
  if (index < a.view.elems) one_value<T, kPack, false>(a, table, index);
}

// Element i of sixteen bytes.
template <class T>
__device__ TUCKFOLD_INLINE Word<T> part(const uint4& raw, int i) {
  const std::uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
  if constexpr (sizeof(T) == 8) {
    return static_cast<std::uint64_t>(words[2 * i + 1]) << 32 | words[2 * i];
  } else if constexpr (sizeof(T) == 4) {
    return words[i];
  } else {
    return static_cast<std::uint16_t>(words[i / 2] >> 16 * (i % 2));
  }
}

// A dense tensor: sixteen bytes of values a lane and step, side by side.
template <class T, bool kPack, bool kComputed>
__global__ void __launch_bounds__(kThreads) dense_kernel(const __grid_constant__ Args<T> a) {
  constexpr int kV = kVector<T>, kStep = kWarp * kV, kTile = kStep * kSteps;
  using Codes =
      std::conditional_t<kV == 8, uint2, std::conditional_t<kV == 4, std::uint32_t, std::uint16_t>>;
  const Word<T>* table = nullptr;
  if constexpr (!kComputed) table = table_of(a);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t tile = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  const std::int64_t begin = tile * kTile + lane * kV;
  cuda::wait_for_previous_kernel();
  if ((tile + 1) * kTile > a.view.elems) {
    for (std::int64_t i = tile * kTile + lane; i < a.view.elems; i += kWarp) {
      one_value<T, kPack, kComputed>(a, table, i);
    }
    return;
  }
  auto* values = reinterpret_cast<uint4*>(reinterpret_cast<Word<T>*>(a.view.data) + begin);
  auto* codes = reinterpret_cast<Codes*>(a.codes + begin);
  if constexpr (kPack) {
    uint4 raw[kSteps];
#pragma unroll
    for (int j = 0; j < kSteps; ++j) raw[j] = values[j * kWarp];
    cuda::allow_next_kernel();
    std::uint32_t wrong = 0;  // steps with a wrong guess
#pragma unroll
    for (int j = 0; j < kSteps; ++j) {
      std::uint32_t words[2] = {};
      bool right = true;
#pragma unroll
      for (int i = 0; i < kV; ++i) {
        const Word<T> word = part<T>(raw[j], i);
        const int guess = guess_of(float_of_word<T>(word), a.guess);
        right = right && word_of<T, kComputed>(a, table, guess) == word;
        words[i / 4] |= static_cast<std::uint32_t>(guess) << 8 * (i % 4);
      }
      if (!right) wrong |= 1u << j;
      if constexpr (kV == 8) {
        codes[j * kWarp] = make_uint2(words[0], words[1]);
      } else {
        codes[j * kWarp] = static_cast<Codes>(words[0]);
      }
    }
#pragma unroll 1
    for (; wrong != 0; wrong &= wrong - 1) {
      const std::int64_t at = begin + (__ffs(static_cast<int>(wrong)) - 1) * kStep;
#pragma unroll 1
      for (int i = 0; i < kV; ++i) one_value<T, true, kComputed>(a, table, at + i);
    }
  } else {
    std::uint32_t words[kSteps][2];
#pragma unroll
    for (int j = 0; j < kSteps; ++j) {
      const Codes some = __ldg(codes + j * kWarp);
      if constexpr (kV == 8) {
        words[j][0] = some.x, words[j][1] = some.y;
      } else {
        words[j][0] = some, words[j][1] = 0;
      }
    }
    cuda::allow_next_kernel();
#pragma unroll
    for (int j = 0; j < kSteps; ++j) {
      std::uint32_t out[4] = {};
#pragma unroll
      for (int i = 0; i < kV; ++i) {
        const Word<T> word = word_of<T, kComputed>(
            a, table, static_cast<int>(words[j][i / 4] >> 8 * (i % 4) & 0xffu));
        if constexpr (sizeof(T) == 8) {
          out[2 * i] = static_cast<std::uint32_t>(word);
          out[2 * i + 1] = static_cast<std::uint32_t>(word >> 32);
        } else if constexpr (sizeof(T) == 4) {
          out[i] = word;
        } else {
          out[i / 2] |= static_cast<std::uint32_t>(word) << 16 * (i % 2);
        }
      }
      cuda::store_away(values + j * kWarp, make_uint4(out[0], out[1], out[2], out[3]));
    }
  }
}

template <bool kPack>
void run_all(const View& view, const Table& table, std::byte* codes, const Refusals& refusals,
             void* stream) {
  const auto launch = [&]<class T>(T) {
    Args<T> args{view,        refusals,      reinterpret_cast<unsigned char*>(codes),
                 table.guess, table.factors, {}};
    for (int k = 0; k < 256; ++k) args.words[k] = static_cast<Word<T>>(table.words[k]);
    if (!view.dense(16)) {
      return cuda::launch(
          any_kernel<T, kPack>,
          {.blocks = cuda::blocks_for(view.elems, kThreads), .threads = kThreads, .early = true},
          stream, args);
    }
    const cuda::Grid grid{.blocks = cuda::blocks_for(view.elems, kThreads * kVector<T> * kSteps),
                          .threads = kThreads,
                          .early = true};
    if constexpr (sizeof(T) == 4) {
      if (table.computed) {
        return cuda::launch(dense_kernel<T, kPack, true>, grid, stream, args);
      }
    }
    cuda::launch(dense_kernel<T, kPack, false>, grid, stream, args);
  };
  switch (view.dtype) {
    case DType::F16: return launch(F16{});
    case DType::BF16: return launch(BF16{});
    case DType::F64: return launch(double{});
    default: return launch(float{});
  }
}

}  // namespace

std::size_t pack_cuda(const Stage& stage, const ConstTensorView& in, std::span<std::byte> out,
                      CudaContext run) {
  const View view = View::of(in);
  const Refusals refusals = cuda::begin_pack(run, out.size());
  if (view.elems == 0) return out.size();
  const Table table = table_of(stage, in.dtype);
  run_all<true>(view, table, out.data(), refusals, run.stream);
  cuda::check_refused(refusals, view, run.stream, [&](std::uint64_t bits, std::int64_t index) {
    refuse(table, in.dtype, bits, index);
  });
  return out.size();
}

void unpack_cuda(const Stage& stage, std::span<const std::byte> packed, const TensorView& out,
                 CudaContext run) {
  cuda::set_device_result(run, 0);
  const View view = View::of(out);
  if (view.elems == 0) return;
  run_all<false>(view, table_of(stage, out.dtype), const_cast<std::byte*>(packed.data()), {},
                 run.stream);
}

const CudaCodec kCuda = {.pack = pack_cuda, .unpack = unpack_cuda};

}  // namespace tuckfold::bytes_of
