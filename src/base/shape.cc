// Shape: few axes in the object, many on the heap.
#include <algorithm>
#include <limits>

#include "base/fail.h"
#include "tuckfold/tensor.h"

namespace tuckfold {

Shape::Shape(std::span<const std::int64_t> axes) : rank_(axes.size()) {
  if (axes.size() > kMaxRank) {
    invalid("[shape] rank must be at most {}, got {}; merge axes first", kMaxRank, axes.size());
  }
  if (axes.size() > kInPlace) many_ = std::make_unique_for_overwrite<std::int64_t[]>(kMaxRank);
  std::copy(axes.begin(), axes.end(), data());
}

Shape& Shape::operator=(const Shape& other) {
  if (this == &other) return *this;
  if (other.rank_ > kInPlace && many_ == nullptr) {
    many_ = std::make_unique_for_overwrite<std::int64_t[]>(kMaxRank);
  }
  rank_ = other.rank_;
  std::copy(other.begin(), other.end(), data());
  return *this;
}

void Shape::push_back(std::int64_t length) {
  if (rank_ == kMaxRank) invalid("[shape] rank must be at most {}; merge axes first", kMaxRank);
  if (rank_ == kInPlace && many_ == nullptr) {
    many_ = std::make_unique_for_overwrite<std::int64_t[]>(kMaxRank);
    std::copy(few_, few_ + kInPlace, many_.get());
  }
  data()[rank_++] = length;
}

std::int64_t Shape::elems() const {
  // Lengths multiply to at most 2^62 even when one of them is zero, so that no partial product of
  // axes or strides anywhere can overflow.
  constexpr std::int64_t kMost = std::int64_t{1} << 62;
  std::int64_t product = 1, nonzero = 1;
  for (const std::int64_t length : *this) {
    if (length < 0) {
      invalid("[shape] axis lengths must not be negative, got {}", to_string(*this));
    }
    product *= length == 0 ? 0 : 1;
    if (length > 0 && nonzero > kMost / length) {
      invalid("[shape] a tensor has at most 2^62 elements, got {}", to_string(*this));
    }
    nonzero *= std::max<std::int64_t>(length, 1);
  }
  return product * nonzero;
}

std::string to_string(const Shape& shape) {
  return shape.rank() == 0 ? "scalar" : fmt::format("{}", fmt::join(shape, "x"));
}

Shape row_major_strides(const Shape& shape) {
  Shape strides = shape;
  std::int64_t step = 1;
  for (std::size_t axis = shape.rank(); axis-- > 0;) {
    strides[axis] = step;
    // Views are not validated when made; a hostile shape is refused later, by elems().
    step = static_cast<std::int64_t>(
        static_cast<std::uint64_t>(step) *
        static_cast<std::uint64_t>(std::max<std::int64_t>(shape[axis], 1)));
  }
  return strides;
}

}  // namespace tuckfold
