// Fill values: where they are in a tensor, what is packed in their places, and how they come back.
//
//   const FillMarks fill(DType::F32, {{1e20}, {NAN}});
//   fill.mark(values, elems, marks);                       // 0, or 1 for 1e20 and 2 for NaN
//   fill_holes(DType::F32, shape, marks, values);          // smooth: codecs lose nothing to them
//   fill.step_aside(TensorView(unpacked, …));              // no valid value equals 1e20
//   fill.restore(marks, TensorView(unpacked, …));          // the same bits as before
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tuckfold/fill_value.h"
#include "tuckfold/tensor.h"

namespace tuckfold {

inline constexpr std::size_t kMostFillValues = 255;  // a mark is a byte

// Whether a whole number is one of those that doubles have.
template <class T>
bool is_double(T whole) {
  const auto nearest = static_cast<double>(whole);
  // The first number past the type's last.
  constexpr double kPast = 2 * static_cast<double>(std::numeric_limits<T>::max() / 2 + 1);
  return nearest != kPast && static_cast<T>(nearest) == whole;
}

// The value as the dtype has it, rounded once. Nothing where the dtype has no such number.
std::optional<FillValue> fill_value_in(DType dtype, double value);
// The shortest text that reads back as the same fill value: "1e+20", "nan".
std::string to_string(DType dtype, FillValue value);

class FillMarks {
 public:
  // The values are such as fill_value_in returns.
  FillMarks(DType dtype, std::span<const FillValue> fill);

  bool empty() const noexcept { return words_.empty(); }
  // A byte for each of row-major values: k + 1 where it has the bits of fill value k, or is NaN
  // where that is, and 0 elsewhere. Returns the number of bytes that are not 0.
  std::int64_t mark(const void* values, std::int64_t elems, std::uint8_t* marks) const noexcept;
  // Writes the fill values to the marked places of a tensor. Returns false, and writes no more,
  // where a mark is that of no fill value.
  bool restore(const std::uint8_t* marks, const TensorView& out) const noexcept;
  // Of values that a lossy codec has unpacked, before restore(): one that equals a fill value, which
  // it was not if it has no mark, becomes the next one that does not: closer to zero, or where there
  // is none, farther from it.
  void step_aside(const TensorView& out) const noexcept;

 private:
  DType dtype_;
  std::vector<std::uint64_t> words_;  // bits of each, in the low bytes
  struct Step {
    std::uint64_t from, to;
  };
  std::vector<Step>
      steps_;            // from each fill value; from zeros of both signs where one is a fill value
  std::size_t nan_ = 0;  // the mark of NaN; 0: none
};

// Replaces marked values by others that continue those around them, plane by plane of the last two
// axes. The bits depend on the arguments alone.
void fill_holes(DType dtype, const Shape& shape, const std::uint8_t* marks, void* values);

}  // namespace tuckfold
