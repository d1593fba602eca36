#include "codec/images/image_writer.h"

#include <algorithm>

#include "base/scale_add.h"

namespace tuckfold {

ImageSides ImageSides::of(const Shape& sample, bool channels_last) {
  if (sample.rank() == 2) return {1, sample[0], sample[1], true};
  if (channels_last) return {sample[2], sample[0], sample[1], sample[2] == 1};
  return {sample[0], sample[1], sample[2], true};
}

ImageWriter::ImageWriter(const ImageSides& sides, std::span<const float> scale,
                         std::span<const float> add, const TensorView& out)
    : sides_(sides), out_(out), writer_(out), rows_(out.shape[2]), cols_(out.shape[3]) {
  const auto channels = static_cast<std::size_t>(sides.channels);
  scale_.assign(scale.begin(), scale.end());
  add_.assign(add.begin(), add.end());
  if (scale.empty()) scale_.assign(channels, 1.0f);
  if (add.empty()) add_.assign(channels, 0.0f);
  interleaved_ = out.strides[1] == 1 && out.strides[3] == sides.channels && sides.channels > 1;
}

void ImageWriter::write(const FlatReader& in, std::int64_t from, std::int64_t to,
                        const Window& window, Room& room) const {
  const auto width = static_cast<std::size_t>(cols_ * sides_.channels);
  room.pixels.resize(width);
  room.row.resize(static_cast<std::size_t>(cols_));
  room.line.resize(width);
  for (std::int64_t y = 0; y < rows_; ++y) {
    const std::int64_t row = window.top + y;
    if (!sides_.planes) take(in, from, row, 0, window.left, room.pixels.data());
    for (std::int64_t c = 0; c < sides_.channels; ++c) {
      float* values = room.row.data();
      if (sides_.planes) {
        take(in, from, row, c, window.left, values);
      } else {
        for (std::int64_t x = 0; x < cols_; ++x) {
          values[x] = room.pixels[static_cast<std::size_t>(x * sides_.channels + c)];
        }
      }
      const auto channel = static_cast<std::size_t>(c);
      scale_add(values, cols_, scale_[channel], add_[channel], values);
      if (window.mirrored != 0) std::reverse(values, values + cols_);
      if (interleaved_) {
        for (std::int64_t x = 0; x < cols_; ++x) {
          room.line[static_cast<std::size_t>(x * sides_.channels + c)] = values[x];
        }
      } else {
        writer_.scatter(((to * sides_.channels + c) * rows_ + y) * cols_, cols_, values);
      }
    }
    if (interleaved_) put_line(to, y, room.line.data());
  }
}

// Pixels of a row from `left` on; 0 where there are none.
void ImageWriter::take(const FlatReader& in, std::int64_t sample, std::int64_t row,
                       std::int64_t channel, std::int64_t left, float* to) const {
  const std::int64_t each = sides_.planes ? 1 : sides_.channels;
  const std::int64_t first = std::clamp<std::int64_t>(-left, 0, cols_);
  const std::int64_t end = std::clamp<std::int64_t>(sides_.cols - left, first, cols_);
  if (row < 0 || row >= sides_.rows || first == end) {
    std::fill(to, to + cols_ * each, 0.0f);
    return;
  }
  const std::int64_t plane = sides_.planes ? sample * sides_.channels + channel : sample;
  in.gather(((plane * sides_.rows + row) * sides_.cols + left + first) * each, (end - first) * each,
            to + first * each);
  std::fill(to, to + first * each, 0.0f);
  std::fill(to + end * each, to + cols_ * each, 0.0f);
}

// A row whose channels are side by side in the output.
void ImageWriter::put_line(std::int64_t image, std::int64_t y, const float* values) const {
  const std::int64_t at = image * out_.strides[0] + y * out_.strides[2];
  const auto bytes = static_cast<std::int64_t>(size_bytes(out_.dtype));
  const FlatWriter line(TensorView(static_cast<std::byte*>(out_.data) + at * bytes, out_.dtype,
                                   Shape{cols_ * sides_.channels}));
  line.scatter(0, line.elems(), values);
}

}  // namespace tuckfold
