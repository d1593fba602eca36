// A tensor of any dtype and strides on the device, as one row-major sequence: what FlatView is to
// kernels of the CPU.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/cuda/kernel.cuh"
#include "base/half.h"
#include "base/strided.h"

namespace tuckfold::cuda {

// Strides that merge are merged, so that a dense tensor has one axis.
struct View {
  static constexpr int kMaxAxes = 8;

  char* data;
  std::int64_t elems;
  DType dtype;
  int axes;
  std::int64_t lengths[kMaxAxes], steps[kMaxAxes];  // innermost first

  template <class Pointer>
  static View of(const BasicTensorView<Pointer>& tensor) {
    const FlatView<Pointer> flat(tensor);
    View view{static_cast<char*>(const_cast<void*>(static_cast<const void*>(tensor.data))),
              flat.elems(), tensor.dtype, static_cast<int>(flat.axes().rank())};
    if (view.axes > kMaxAxes) {
      raise(Errc::Unsupported, "strides",
            "more than 8 axes that do not merge; make the tensor contiguous");
    }
    for (int i = 0; i < view.axes; ++i) {
      view.lengths[i] = flat.axes()[static_cast<std::size_t>(view.axes - 1 - i)];
      view.steps[i] = flat.steps()[static_cast<std::size_t>(view.axes - 1 - i)];
    }
    return view;
  }

  // Whether elements are contiguous and their address is a multiple of `alignment`.
  bool dense(std::size_t alignment = 1) const {
    return axes == 1 && steps[0] == 1 && reinterpret_cast<std::uintptr_t>(data) % alignment == 0;
  }

  // The offset of element `index`, in elements.
  __host__ __device__ std::int64_t offset(std::int64_t index) const {
    if (axes == 1) return index * steps[0];
    std::int64_t at = 0;
    for (int i = 0; i < axes; ++i) {
      // Division of 64 bits is slow on a GPU, and rarely needed.
      if ((index | lengths[i]) >> 31 == 0) {
        const auto small = static_cast<std::uint32_t>(index);
        const auto length = static_cast<std::uint32_t>(lengths[i]);
        at += small % length * steps[i];
        index = small / length;
      } else {
        at += index % lengths[i] * steps[i];
        index /= lengths[i];
      }
    }
    return at;
  }
};

// ---- elements as f32, as FlatReader::gather and FlatWriter::scatter have them

template <class T>
__host__ __device__ TUCKFOLD_INLINE float as_float(T value) {
  if constexpr (sizeof(T) == 2) {
    return to_float(value);
  } else if constexpr (std::is_same_v<T, double>) {
    return to_f32_saturated(value);
  } else {
    return static_cast<float>(value);
  }
}

template <class T>
__host__ __device__ TUCKFOLD_INLINE T from_float(float value) {
  if constexpr (std::is_same_v<T, F16>) {
    return to_f16_saturated(value);
  } else if constexpr (std::is_same_v<T, BF16>) {
    return to_bf16_saturated(value);
  } else if constexpr (std::is_same_v<T, double>) {
    return to_f64(value);
  } else if constexpr (std::is_same_v<T, std::uint8_t>) {
    return static_cast<T>(rintf(value > 0.0f ? (value < 255.0f ? value : 255.0f) : 0.0f));
  } else {
    return static_cast<T>(value);
  }
}

// Calls body with a value of the type that converts to and from f32; on the host, to pick a kernel.
template <class Body>
void with_element(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::F16: return body(F16{});
    case DType::BF16: return body(BF16{});
    case DType::F64: return body(double{});
    case DType::U8: return body(std::uint8_t{});
    default: return body(float{});
  }
}

}  // namespace tuckfold::cuda
