// A tensor in memory: address, dtype, shape and strides. A view owns nothing.
//
//   std::vector<float> images(64 * 3 * 32 * 32);
//   TensorView view(images.data(), DType::F32, {64, 3, 32, 32});
//
// Strides count elements, may be zero or negative, and default to row-major.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "tuckfold/export.h"

namespace tuckfold {

// Files store these numbers. A Bool is a byte of 0 or 1. Lossy codecs take the floats, U8 and U16.
enum class DType : unsigned char {
  F32,
  F16,
  BF16,
  F64,
  U8,
  I32,
  I64,
  U16,
  I16,
  I8,
  U32,
  U64,
  Bool
};
inline constexpr std::array kDTypes = {DType::F32, DType::F16, DType::BF16, DType::F64, DType::U8,
                                       DType::I32, DType::I64, DType::U16,  DType::I16, DType::I8,
                                       DType::U32, DType::U64, DType::Bool};

TUCKFOLD_API std::size_t size_bytes(DType dtype);
TUCKFOLD_API std::string_view to_string(DType dtype);  // "f32", "f16", "bf16" …
TUCKFOLD_API DType parse_dtype(std::string_view text);

enum class Device : unsigned char { Cpu, Cuda };

// Axis lengths, or strides. Up to kInPlace numbers are stored in the object, so that views of usual
// tensors are small and never allocate.
class TUCKFOLD_API Shape {
 public:
  static constexpr std::size_t kMaxRank = 64;  // numpy's and torch's limit
  static constexpr std::size_t kInPlace = 8;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> axes) : Shape(std::span(axes.begin(), axes.size())) {}
  explicit Shape(std::span<const std::int64_t> axes);
  Shape(const Shape& other) : Shape(std::span(other.begin(), other.rank_)) {}
  Shape& operator=(const Shape& other);

  std::size_t rank() const noexcept { return rank_; }
  std::int64_t operator[](std::size_t axis) const noexcept { return begin()[axis]; }
  std::int64_t& operator[](std::size_t axis) noexcept { return data()[axis]; }
  const std::int64_t* begin() const noexcept { return many_ != nullptr ? many_.get() : few_; }
  const std::int64_t* end() const noexcept { return begin() + rank_; }
  void push_back(std::int64_t length);

  // The product of the axes. Throws InvalidArgument for a negative axis or past 2^62 elements.
  std::int64_t elems() const;

  friend bool operator==(const Shape& a, const Shape& b) noexcept {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  std::int64_t* data() noexcept { return many_ != nullptr ? many_.get() : few_; }

  std::size_t rank_ = 0;
  std::int64_t few_[kInPlace];
  std::unique_ptr<std::int64_t[]> many_;  // kMaxRank numbers, where rank is above kInPlace
};

TUCKFOLD_API std::string to_string(const Shape& shape);  // "64x3x32x32"; rank 0 is "scalar"
TUCKFOLD_API Shape row_major_strides(const Shape& shape);

template <class Pointer>
struct BasicTensorView {
  Pointer data = nullptr;
  DType dtype = DType::F32;
  Shape shape;
  Shape strides;
  Device device = Device::Cpu;

  BasicTensorView(Pointer where, DType type, const Shape& axes, Device on = Device::Cpu)
      : BasicTensorView(where, type, axes, row_major_strides(axes), on) {}
  BasicTensorView(Pointer where, DType type, const Shape& axes, const Shape& steps,
                  Device on = Device::Cpu)
      : data(where), dtype(type), shape(axes), strides(steps), device(on) {}

  // A mutable view converts to a read-only one.
  template <std::convertible_to<Pointer> Other>
  BasicTensorView(const BasicTensorView<Other>& other)  // NOLINT(google-explicit-constructor)
      : BasicTensorView(other.data, other.dtype, other.shape, other.strides, other.device) {}
};

using TensorView = BasicTensorView<void*>;
using ConstTensorView = BasicTensorView<const void*>;

}  // namespace tuckfold
