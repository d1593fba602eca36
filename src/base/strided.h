// A tensor of any dtype and strides as one row-major sequence, read and written in runs: as f32
// values, or as unchanged elements. Every codec takes every tensor this way, without copying it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tuckfold/tensor.h"

namespace tuckfold {

// Calls body with an unsigned number as wide as the dtype.
template <class Body>
auto with_word(DType dtype, Body&& body) {
  switch (size_bytes(dtype)) {
    case 1: return body(std::uint8_t{});
    case 2: return body(std::uint16_t{});
    case 4: return body(std::uint32_t{});
    default: return body(std::uint64_t{});
  }
}

// Axes whose strides allow it are merged, so that common tensors have one or two left.
template <class Pointer>
class FlatView {
 public:
  explicit FlatView(const BasicTensorView<Pointer>& view);

  std::int64_t elems() const noexcept { return elems_; }
  DType dtype() const noexcept { return dtype_; }
  // The axes after merging, innermost last; at least one.
  const Shape& axes() const noexcept { return axes_; }
  const Shape& steps() const noexcept { return steps_; }

  // How many elements from `begin` on, at most `count`, are contiguous; at least one.
  std::int64_t run_length(std::int64_t begin, std::int64_t count) const noexcept;

  // The address of elements [begin, begin + count) if they are contiguous, else null.
  Pointer dense(std::int64_t begin, std::int64_t count) const noexcept;

 protected:
  struct Place {
    std::int64_t offset;  // elements from data_
    std::int64_t first;   // on the innermost axis
  };
  Place place(std::int64_t begin) const noexcept;

  template <class Body>
  void for_each_run(std::int64_t begin, std::int64_t count, Body&& body) const noexcept;

  Pointer data_;
  DType dtype_;
  std::int64_t elems_;
  Shape axes_, steps_;
};

class FlatReader : public FlatView<const void*> {
 public:
  using FlatView::FlatView;
  // Elements [begin, begin + count) converted to f32. f64 rounds to nearest, and finite numbers
  // beyond f32's largest become that. Not for dtypes that must_be_exact.
  void gather(std::int64_t begin, std::int64_t count, float* out) const noexcept;
  // The same elements as they are, to any address.
  void gather_bytes(std::int64_t begin, std::int64_t count, void* out) const noexcept;
};

class FlatWriter : public FlatView<void*> {
 public:
  using FlatView::FlatView;
  // Writes elements [begin, begin + count), rounding to nearest even. Finite numbers beyond the
  // dtype's largest become that. Infinities stay, and NaN becomes the canonical one in f16, bf16
  // and f64; in u8 and u16 infinities saturate, and NaN becomes 0. Not for dtypes that
  // must_be_exact.
  void scatter(std::int64_t begin, std::int64_t count, const float* in) const noexcept;
  // The same from elements as they are, from any address.
  void scatter_bytes(std::int64_t begin, std::int64_t count, const void* in) const noexcept;
};

}  // namespace tuckfold
