#include "cli/pictures/canvas.h"

#include <png.h>

#include <algorithm>

#include "base/fail.h"

namespace tuckfold::cli {
namespace {

png_image header_of(const Canvas& canvas) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(canvas.width());
  image.height = static_cast<png_uint_32>(canvas.height());
  image.format = PNG_FORMAT_RGB;
  static_assert(sizeof(Rgb) == 3);
  return image;
}

}  // namespace

Canvas::Canvas(std::int64_t width, std::int64_t height, Rgb paper)
    : width_(width), height_(height) {
  if (width < 1 || height < 1 || height > kMostPixels / width) {
    invalid(
        "[eval] a picture has at most {} pixels, got {} x {}; give fewer codecs or a smaller array",
        kMostPixels, width, height);
  }
  pixels_.assign(static_cast<std::size_t>(width * height), paper);
}

void Canvas::draw(const Canvas& picture, std::int64_t left, std::int64_t top, std::int64_t scale) {
  for (std::int64_t y = 0; y < picture.height() * scale; ++y) {
    for (std::int64_t x = 0; x < picture.width() * scale; ++x) {
      at(left + x, top + y) = picture.at(x / scale, y / scale);
    }
  }
}

Canvas Canvas::reduced(std::int64_t factor) const {
  Canvas small((width_ + factor - 1) / factor, (height_ + factor - 1) / factor);
  for (std::int64_t y = 0; y < small.height(); ++y) {
    for (std::int64_t x = 0; x < small.width(); ++x) {
      const std::int64_t right = std::min((x + 1) * factor, width_);
      const std::int64_t bottom = std::min((y + 1) * factor, height_);
      std::int64_t red = 0, green = 0, blue = 0, count = 0;
      for (std::int64_t v = y * factor; v < bottom; ++v) {
        for (std::int64_t u = x * factor; u < right; ++u, ++count) {
          red += at(u, v).red;
          green += at(u, v).green;
          blue += at(u, v).blue;
        }
      }
      const auto mean = [&](std::int64_t sum) {
        return static_cast<std::uint8_t>((sum + count / 2) / count);
      };
      small.at(x, y) = {mean(red), mean(green), mean(blue)};
    }
  }
  return small;
}

std::string Canvas::png() const {
  png_image image = header_of(*this);
  png_alloc_size_t size = 0;
  std::string bytes;
  // The first call says how many bytes there are.
  while (png_image_write_to_memory(&image, bytes.empty() ? nullptr : bytes.data(), &size, 0,
                                   pixels_.data(), 0, nullptr) != 0) {
    if (!bytes.empty()) return bytes;
    bytes.resize(size);
    image = header_of(*this);
  }
  fail(Errc::Internal, "[png] cannot be made: {}", image.message);
}

}  // namespace tuckfold::cli
