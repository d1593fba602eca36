#include "cli/pictures/picture.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/fail.h"
#include "cli/quality/quality.h"

namespace tuckfold::cli {
namespace {

constexpr std::int64_t kTileSide = 256;  // small pictures are enlarged to about this
constexpr std::int64_t kMargin = 12;
constexpr Rgb kNotFinite = {200, 30, 90}, kMissing = {112, 144, 192};

std::uint8_t shade(double unit) {
  return static_cast<std::uint8_t>(std::lround(255 * std::clamp(unit, 0.0, 1.0)));
}

bool is_missing(const Picture& picture, std::size_t i) {
  return !picture.missing.empty() && picture.missing[i] != 0;
}

// Colours of H x W x channels values; `unit` maps a value to 0..1.
template <class Unit, class Missing>
Canvas paint(const Frame& frame, std::size_t values, Unit&& unit, Missing&& missing) {
  Canvas canvas(frame.width, frame.height);
  const auto channels = static_cast<std::size_t>(frame.channels);
  for (std::size_t i = 0; i < values; i += channels) {
    Rgb colour = kNotFinite;
    const double red = unit(i), green = unit(i + channels / 2), blue = unit(i + channels - 1);
    if (std::isfinite(red + green + blue)) colour = {shade(red), shade(green), shade(blue)};
    for (std::size_t c = 0; c < channels; ++c) {
      if (missing(i + c)) colour = kMissing;
    }
    const auto pixel = static_cast<std::int64_t>(i / channels);
    canvas.at(pixel % frame.width, pixel / frame.width) = colour;
  }
  return canvas;
}

}  // namespace

Frame frame_of(const Shape& shape, std::int64_t index) {
  const std::size_t rank = shape.rank();
  if (rank < 2) {
    invalid("[eval] a picture needs two axes, got {}; leave out --png", to_string(shape));
  }
  const auto from_end = [&](std::size_t axis) { return shape[rank - axis]; };
  Frame frame{};
  if (rank >= 3 && from_end(3) != 3 && (from_end(1) == 3 || from_end(1) == 1)) {  // H x W x C
    frame = {.height = from_end(3),
             .width = from_end(2),
             .channels = from_end(1),
             .row_step = from_end(2) * from_end(1),
             .col_step = from_end(1),
             .channel_step = 1,
             .count = 0,
             .offset = 0};
  } else {
    const bool colour = rank >= 3 && from_end(3) == 3;  // C x H x W
    frame = {.height = from_end(2),
             .width = from_end(1),
             .channels = colour ? 3 : 1,
             .row_step = from_end(1),
             .col_step = 1,
             .channel_step = from_end(2) * from_end(1),
             .count = 0,
             .offset = 0};
  }
  const std::int64_t size = frame.height * frame.width * frame.channels;
  frame.count = shape.elems() / size;
  if (index < 0 || index >= frame.count) {
    invalid("[eval] --index must be 0..{} for {}, got {}", frame.count - 1, to_string(shape),
            index);
  }
  frame.offset = index * size;
  return frame;
}

Picture picture_of(DType dtype, const void* values, const std::uint8_t* marks, const Frame& frame) {
  Picture picture;
  picture.values.reserve(static_cast<std::size_t>(frame.height * frame.width * frame.channels));
  for (std::int64_t y = 0; y < frame.height; ++y) {
    for (std::int64_t x = 0; x < frame.width; ++x) {
      for (std::int64_t c = 0; c < frame.channels; ++c) {
        const std::int64_t at =
            frame.offset + y * frame.row_step + x * frame.col_step + c * frame.channel_step;
        picture.values.push_back(value_at(dtype, values, at));
        if (marks != nullptr) picture.missing.push_back(marks[at]);
      }
    }
  }
  return picture;
}

std::optional<std::pair<double, double>> range_of(const Picture& picture) {
  std::optional<std::pair<double, double>> range;
  for (std::size_t i = 0; i < picture.values.size(); ++i) {
    const double value = picture.values[i];
    if (!std::isfinite(value) || is_missing(picture, i)) continue;
    if (!range) range = {value, value};
    range = {std::min(range->first, value), std::max(range->second, value)};
  }
  return range;
}

Canvas paint_values(const Frame& frame, const Picture& picture, double black, double white) {
  return paint(
      frame, picture.values.size(),
      [&](std::size_t i) { return (picture.values[i] - black) / (white - black); },
      [&](std::size_t i) { return is_missing(picture, i); });
}

Canvas paint_errors(const Frame& frame, const Picture& result, const Picture& original,
                    double white, std::int64_t gain) {
  const auto times = static_cast<double>(gain);
  return paint(
      frame, result.values.size(),
      [&](std::size_t i) { return 0.5 + times * (result.values[i] - original.values[i]) / white; },
      [&](std::size_t i) { return is_missing(result, i) && is_missing(original, i); });
}

std::int64_t error_gain(double root_mean_square, double range) {
  if (!(root_mean_square > 0)) return 1;
  // Three standard deviations reach from grey to black or white.
  const double wish = range / 2 / (3 * root_mean_square);
  return std::int64_t{1} << static_cast<int>(std::clamp(std::floor(std::log2(wish)), 0.0, 20.0));
}

SideBySide::SideBySide(const Array& array, const Frame& frame)
    : frame_(frame),
      original_(picture_of(array.dtype, array.values.data(),
                           array.marks.empty() ? nullptr : array.marks.data(), frame)) {
  if (array.stored == "u8") return;  // black is 0 and white 255
  const auto range = range_of(original_);
  if (!range) return;
  low_ = range->first;
  high_ = range->second > low_ ? range->second : low_ + 1;
}

void SideBySide::add(Picture result) { results_.push_back(std::move(result)); }

std::int64_t SideBySide::gain() const {
  double worst = 0;
  for (const Picture& result : results_) {
    double squares = 0, count = 0;
    for (std::size_t i = 0; i < original_.values.size(); ++i) {
      const double error = result.values[i] - original_.values[i];
      if (!std::isfinite(error) || is_missing(original_, i)) continue;
      squares += error * error;
      ++count;
    }
    worst = std::max(worst, std::sqrt(squares / std::max(count, 1.0)));
  }
  return error_gain(worst, high_ - low_);
}

Canvas SideBySide::show(const Picture& picture) const {
  return paint_values(frame_, picture, low_, high_);
}

Canvas SideBySide::show_error(const Picture& result) const {
  return paint_errors(frame_, result, original_, high_ - low_, gain());
}

Canvas SideBySide::draw() const {
  const bool one = results_.size() == 1;
  const auto columns = one ? 3 : static_cast<std::int64_t>(results_.size()) + 1;
  const std::int64_t rows = one || results_.empty() ? 1 : 2;
  const std::int64_t scale =
      std::max<std::int64_t>(1, kTileSide / std::max(frame_.width, frame_.height));
  const std::int64_t step_x = frame_.width * scale + kMargin;
  const std::int64_t step_y = frame_.height * scale + kMargin;
  Canvas canvas(columns * step_x + kMargin, rows * step_y + kMargin);
  const auto place = [&](const Canvas& picture, std::int64_t column, std::int64_t row) {
    canvas.draw(picture, kMargin + column * step_x, kMargin + row * step_y, scale);
  };
  place(show(original_), 0, 0);
  for (std::int64_t i = 0; i < std::ssize(results_); ++i) {
    const Picture& result = results_[static_cast<std::size_t>(i)];
    place(show(result), i + 1, 0);
    place(show_error(result), one ? 2 : i + 1, rows - 1);
  }
  return canvas;
}

}  // namespace tuckfold::cli
