// unpack_then's arithmetic on sixteen bytes of a dense tensor.
#pragma once

#include <cstdint>

#include "base/cuda/divide.cuh"
#include "codec/blocks/vectors_cuda.cuh"
#include "codec/then/then_block.h"
#include "tuckfold/unpack_then.h"

namespace tuckfold::then {

// How channels change within a vector: not at all; once at most; with every value, from a multiple
// of 16 bytes on; or in any way.
enum class Channels { kOne, kTwo, kEach, kAny };

struct CudaArgs {
  const float* scale;
  const float* shift;
  const void* add;            // null: none
  const unsigned char* gate;  // null: none
  const float* add_scale;     // of what is added packed; null: none
  const float* add_shift;
  std::int64_t channels, inner;  // of 31 bits each if indices are narrow
  cuda::Divider by_inner, by_channels;
  bool narrow;  // whether indices have 31 bits
  bool relu;
  Channels way;

  CudaArgs(const Then& then, std::int64_t elems, int vector)
      : scale(then.scale),
        shift(then.shift),
        add(then.add),
        gate(reinterpret_cast<const unsigned char*>(then.gate)),
        add_scale(then.add_scale),
        add_shift(then.add_shift),
        channels(then.channels),
        inner(then.inner),
        narrow(elems >> 31 == 0),
        relu(then.relu),
        way(Channels::kAny) {
    if (narrow) {
      by_inner = cuda::Divider(static_cast<std::uint32_t>(inner));
      by_channels = cuda::Divider(static_cast<std::uint32_t>(channels));
    }
    const auto aligned = [](const float* from) {
      return reinterpret_cast<std::uintptr_t>(from) % 16 == 0;
    };
    if (inner % vector == 0) {
      way = Channels::kOne;
    } else if (inner >= vector) {
      way = Channels::kTwo;
    } else if (inner == 1 && channels % vector == 0 && aligned(scale) && aligned(shift) &&
               aligned(add_scale) && aligned(add_shift)) {
      way = Channels::kEach;
    }
  }
};

// For what is added packed.
__device__ TUCKFOLD_INLINE CudaArgs of_added(CudaArgs args) {
  args.scale = args.add_scale;
  args.shift = args.add_shift;
  args.add = nullptr;
  args.gate = nullptr;
  args.relu = false;
  return args;
}

// The channel of a value, and how many of the channel's values are before it.
struct Position {
  std::int64_t channel, past;

  __device__ TUCKFOLD_INLINE Position(const CudaArgs& args, std::int64_t index) {
    if (args.narrow) {
      const auto i = static_cast<std::uint32_t>(index);
      const std::uint32_t whole = args.by_inner.quotient(i);
      past = i - whole * static_cast<std::uint32_t>(args.inner);
      channel =
          whole - args.by_channels.quotient(whole) * static_cast<std::uint32_t>(args.channels);
    } else {
      past = index % args.inner;
      channel = index / args.inner % args.channels;
    }
  }
};

// What was computed for an index, as stored.
template <class T>
__device__ TUCKFOLD_INLINE T last_of(const CudaArgs& args, float y, std::int64_t index) {
  if (args.gate != nullptr) {
    y = gated(y, (args.gate[index >> 3] >> (index & 7) & 1) != 0, kAboveZero<T>);
  }
  return cuda::from_float<T>(without_payload(y));
}

// A value of a channel, as stored; offset: where it is in memory.
template <class T>
__device__ TUCKFOLD_INLINE T element_at(const CudaArgs& args, T element, std::int64_t index,
                                        std::int64_t offset) {
  const std::int64_t channel = Position(args, index).channel;
  const float x = cuda::as_float(element), scale = __ldg(args.scale + channel),
              shift = __ldg(args.shift + channel);
  const float add =
      args.add == nullptr ? 0.0f : cuda::as_float(static_cast<const T*>(args.add)[offset]);
  return last_of<T>(args,
                    args.add == nullptr ? value_of(x, scale, shift, args.relu)
                                        : value_of(x, scale, shift, add, args.relu),
                    index);
}

// The same with a value that is added to it.
template <class T>
__device__ TUCKFOLD_INLINE T element_plus(const CudaArgs& args, T element, T add,
                                          std::int64_t index) {
  const std::int64_t channel = Position(args, index).channel;
  const float scale = __ldg(args.scale + channel), shift = __ldg(args.shift + channel);
  const float y = value_of(cuda::as_float(element), scale, shift, cuda::as_float(add), args.relu);
  return last_of<T>(args, y, index);
}

// The bits of a gate for the values from `index`, a multiple of their number, on.
template <class T>
__device__ TUCKFOLD_INLINE std::uint32_t gate_at(const CudaArgs& args, std::int64_t index) {
  const std::uint32_t bits = __ldg(args.gate + (index >> 3));
  return sizeof(T) == 4 ? bits >> (index & 4) : bits;
}

// Sixteen bytes of what is added.
template <class T>
__device__ TUCKFOLD_INLINE uint4 added_at(const CudaArgs& args, std::int64_t index) {
  return *reinterpret_cast<const uint4*>(static_cast<const T*>(args.add) + index);
}

// The values from `index`, a multiple of their number, on; added: with kAdd, of added_at().
template <class T, bool kAdd>
__device__ TUCKFOLD_INLINE uint4 vector_after(const CudaArgs& args, const uint4& raw,
                                              std::int64_t index, const uint4& added) {
  constexpr int kV = cuda::kVector<T>;
  const bool relu = args.relu && !kAdd;
  float x[kV];
  cuda::floats_of<T>(raw, x);
  Position at(args, index);
  if (args.way == Channels::kOne) {
    const float scale = __ldg(args.scale + at.channel), shift = __ldg(args.shift + at.channel);
#pragma unroll
    for (int i = 0; i < kV; ++i) x[i] = value_of(x[i], scale, shift, relu);
  } else if (args.way == Channels::kTwo) {
    const std::int64_t next = at.channel + 1 == args.channels ? 0 : at.channel + 1;
    const float scale = __ldg(args.scale + at.channel), next_scale = __ldg(args.scale + next);
    const float shift = __ldg(args.shift + at.channel), next_shift = __ldg(args.shift + next);
#pragma unroll
    for (int i = 0; i < kV; ++i) {
      const bool here = at.past + i < args.inner;
      x[i] = value_of(x[i], here ? scale : next_scale, here ? shift : next_shift, relu);
    }
  } else if (args.way == Channels::kEach) {
#pragma unroll
    for (int i = 0; i < kV; i += 4) {
      const auto four = [&](const float* from) {
        return __ldg(reinterpret_cast<const uint4*>(from + at.channel + i));
      };
      const uint4 scale = four(args.scale), shift = four(args.shift);
      const auto put = [&](int k, std::uint32_t by, std::uint32_t add) {
        x[i + k] = value_of(x[i + k], __uint_as_float(by), __uint_as_float(add), relu);
      };
      put(0, scale.x, shift.x);
      put(1, scale.y, shift.y);
      put(2, scale.z, shift.z);
      put(3, scale.w, shift.w);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kV; ++i) {
      x[i] = value_of(x[i], __ldg(args.scale + at.channel), __ldg(args.shift + at.channel), relu);
      if (++at.past < args.inner) continue;
      at.past = 0;
      at.channel = at.channel + 1 == args.channels ? 0 : at.channel + 1;
    }
  }
  if constexpr (kAdd) {
    float other[kV];
    cuda::floats_of<T>(added, other);
#pragma unroll
    for (int i = 0; i < kV; ++i) {
      x[i] = x[i] + other[i];
      if (args.relu && x[i] <= 0.0f) x[i] = 0.0f;  // NaN is not less
    }
  }
  if (args.gate != nullptr) {
    const std::uint32_t open = gate_at<T>(args, index);
#pragma unroll
    for (int i = 0; i < kV; ++i) x[i] = gated(x[i], (open >> i & 1) != 0, kAboveZero<T>);
  }
  if constexpr (sizeof(T) == 4) {
    bool any_nan = false;
#pragma unroll
    for (int i = 0; i < kV; ++i) any_nan |= x[i] != x[i];
    if (any_nan) {
#pragma unroll
      for (int i = 0; i < kV; ++i) x[i] = without_payload(x[i]);
    }
  }
  return cuda::vector_of<T>(x);
}

}  // namespace tuckfold::then
