// A picture to draw on, and its PNG.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tuckfold::cli {

struct Rgb {
  std::uint8_t red = 0, green = 0, blue = 0;
};
inline constexpr Rgb kWhite = {255, 255, 255};

class Canvas {
 public:
  static constexpr std::int64_t kMostPixels = std::int64_t{1} << 28;

  Canvas(std::int64_t width, std::int64_t height, Rgb paper = kWhite);

  std::int64_t width() const noexcept { return width_; }
  std::int64_t height() const noexcept { return height_; }
  Rgb& at(std::int64_t x, std::int64_t y) {
    return pixels_[static_cast<std::size_t>(y * width_ + x)];
  }
  const Rgb& at(std::int64_t x, std::int64_t y) const {
    return pixels_[static_cast<std::size_t>(y * width_ + x)];
  }

  // Each pixel of `picture` as a square of `scale` pixels, the first at (left, top).
  void draw(const Canvas& picture, std::int64_t left, std::int64_t top, std::int64_t scale);
  std::string png() const;  // the bytes of such a file

  // Squares of `factor` pixels as one, of their mean colour.
  Canvas reduced(std::int64_t factor) const;

 private:
  std::int64_t width_, height_;
  std::vector<Rgb> pixels_;
};

}  // namespace tuckfold::cli
