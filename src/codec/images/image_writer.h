// Windows of unpacked samples on the CPU: scaled, converted and written, each pixel once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/strided.h"
#include "tuckfold/unpack_images.h"

namespace tuckfold {

// Rows, columns and channels of a sample.
struct ImageSides {
  std::int64_t channels, rows, cols;
  bool planes;  // a channel's pixels are together

  // Of a shape of two or three axes.
  static ImageSides of(const Shape& sample, bool channels_last);
};

class ImageWriter {
 public:
  // `scale` and `add` have a number for each channel, or are empty: 1 and 0.
  ImageWriter(const ImageSides& sides, std::span<const float> scale, std::span<const float> add,
              const TensorView& out);

  // What a thread has while it writes.
  struct Room {
    std::vector<float> pixels, row, line;  // as unpacked; of one channel; all channels of a row
  };

  // Image `to` of the output from the sample that is row `from` of `in`.
  void write(const FlatReader& in, std::int64_t from, std::int64_t to, const Window& window,
             Room& room) const;

 private:
  void take(const FlatReader& in, std::int64_t sample, std::int64_t row, std::int64_t channel,
            std::int64_t left, float* to) const;
  void put_line(std::int64_t image, std::int64_t y, const float* values) const;

  ImageSides sides_;
  const TensorView& out_;
  FlatWriter writer_;
  std::int64_t rows_, cols_;
  std::vector<float> scale_, add_;
  bool interleaved_;
};

}  // namespace tuckfold
