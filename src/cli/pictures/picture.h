// One picture out of an array, and several side by side with the errors that packing makes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/dataset/array.h"
#include "cli/pictures/canvas.h"

namespace tuckfold::cli {

// The position of a picture in row-major values: H x W, H x W x 3 or 3 x H x W, the last axes of
// any number of others.
struct Frame {
  std::int64_t height, width, channels;
  std::int64_t row_step, col_step, channel_step;
  std::int64_t count;   // pictures in the array
  std::int64_t offset;  // of the chosen one
};
Frame frame_of(const Shape& shape, std::int64_t index);

// H x W x channels values of one picture.
struct Picture {
  std::vector<double> values;
  std::vector<std::uint8_t> missing;  // not 0 where that is a fill value; empty: nowhere
};
// `marks` are of all values, as FillMarks makes them, or null.
Picture picture_of(DType dtype, const void* values, const std::uint8_t* marks, const Frame& frame);

// The least and largest value that is finite and not missing; nothing where there is none.
std::optional<std::pair<double, double>> range_of(const Picture& picture);

// Paints values from black to white. Missing values are blue, those that are not finite red.
Canvas paint_values(const Frame& frame, const Picture& picture, double black, double white);
// Paints differences from the original around grey; a difference of `white` / `gain` is white. Values
// that are missing in both are blue.
Canvas paint_errors(const Frame& frame, const Picture& result, const Picture& original,
                    double white, std::int64_t gain);
// By how much to enlarge errors of this root mean square, if values span `range`: a power of two
// that makes them visible.
std::int64_t error_gain(double root_mean_square, double range);

class SideBySide {
 public:
  SideBySide(const Array& array, const Frame& frame);
  const Frame& frame() const noexcept { return frame_; }
  void add(Picture result);

  // One result: original, result and error in a row. Several: original and results in a row, errors
  // below the results.
  Canvas draw() const;

  // By how much errors are enlarged: a power of two that suits the worst result, the same for all
  // results.
  std::int64_t gain() const;

 private:
  Canvas show(const Picture& picture) const;
  Canvas show_error(const Picture& result) const;

  Frame frame_;
  double low_ = 0, high_ = 255;
  Picture original_;
  std::vector<Picture> results_;
};

}  // namespace tuckfold::cli
