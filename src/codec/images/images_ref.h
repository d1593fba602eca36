// unpack_images from its definition, one pixel at a time. For tests only.
#pragma once

#include <cstdint>
#include <vector>

#include "base/tensor_fixture.h"
#include "tuckfold/unpack_images.h"

namespace tuckfold::ref {

// Arrays of an ImagePass, with numbers that need care.
struct Pass {
  std::vector<Window> windows;
  std::vector<std::int32_t> places;  // empty: none are given
  std::vector<float> scale, add;
  bool channels_last = false;

  static Pass of(std::int64_t samples, std::int64_t channels, bool channels_last,
                 bool with_places) {
    constexpr std::int32_t kFar = 0x7fffffff;
    const Window some[] = {{0, 0, 0},     {-3, 5, 1},   {9, -40, 0},  {-30, 2, 1},
                           {2, 1, 1},     {kFar, 0, 0}, {0, kFar, 1}, {-kFar - 1, 1, 0},
                           {1, -kFar, 1}, {1, -1, 0}};
    Pass pass{.channels_last = channels_last};
    for (std::int64_t i = 0; i < samples; ++i) {
      pass.windows.push_back(some[i % 10]);
      if (with_places) pass.places.push_back(static_cast<std::int32_t>(samples - i));
    }
    for (std::int64_t c = 0; c < channels; ++c) {
      pass.scale.push_back(0.0173f * static_cast<float>(c + 1));
      pass.add.push_back(c % 3 == 1 ? -0.0f : 0.7f - 1.9f * static_cast<float>(c));
    }
    return pass;
  }
  // With places, image 0 is left alone.
  std::int64_t images() const { return std::ssize(windows) + (places.empty() ? 0 : 1); }
  ImagePass pass() const {
    return {.windows = windows.data(),
            .places = places.empty() ? nullptr : places.data(),
            .scale = scale.data(),
            .add = add.data(),
            .channels_last = channels_last};
  }
};

// Fills images of `out` from samples that were unpacked, in row-major order as doubles of f32.
inline void images_ref(const Shape& samples, const std::vector<double>& pixels, const Pass& pass,
                       Tensor& out) {
  const bool planes = samples.rank() == 3 || !pass.channels_last;
  const std::int64_t channels = out.shape()[1], height = out.shape()[2], width = out.shape()[3];
  const std::size_t first = samples.rank() == 3 ? 1 : pass.channels_last ? 1 : 2;
  const std::int64_t rows = samples[first], cols = samples[first + 1];
  std::vector<double> values = out.values();
  for (std::int64_t n = 0; n < samples[0]; ++n) {
    const Window& window = pass.windows[static_cast<std::size_t>(n)];
    const std::int64_t image = pass.places.empty() ? n : pass.places[static_cast<std::size_t>(n)];
    for (std::int64_t c = 0; c < channels; ++c) {
      for (std::int64_t y = 0; y < height; ++y) {
        for (std::int64_t x = 0; x < width; ++x) {
          const std::int64_t row = window.top + y;
          const std::int64_t col = window.left + (window.mirrored != 0 ? width - 1 - x : x);
          double pixel = 0;
          if (row >= 0 && row < rows && col >= 0 && col < cols) {
            const std::int64_t at = planes ? ((n * channels + c) * rows + row) * cols + col
                                           : ((n * rows + row) * cols + col) * channels + c;
            pixel = pixels[static_cast<std::size_t>(at)];
          }
          const auto channel = static_cast<std::size_t>(c);
          // Exact in double, then rounded to f32.
          const auto product = static_cast<float>(pixel * pass.scale[channel]);
          const auto sum = static_cast<float>(double{product} + pass.add[channel]);
          values[static_cast<std::size_t>(((image * channels + c) * height + y) * width + x)] = sum;
        }
      }
    }
  }
  out.fill(values);
}

}  // namespace tuckfold::ref
