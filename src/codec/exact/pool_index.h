// pool_index: the indices of a two-dimensional max pooling, each as its position within its window.
//
// An index y * width + x of output (row, col) becomes the code (y - y0) * kernel + (x - x0), where
// the window begins at y0 = row * stride - padding, x0 = col * stride - padding. Packed: code i in
// bits i*b … of b bits, the fewest that hold kernel^2 codes, lowest first; bits past the last are
// 0.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/device.h"
#include "base/strided.h"
#include "codec/registry.h"

namespace tuckfold::pool_index {

struct Params {
  int kernel, stride, padding;
  std::int64_t width;
  bool channels_last;

  static Params of(const Stage& stage);
  int bits() const {
    return kernel == 1 ? 1 : static_cast<int>(std::bit_width(unsigned(kernel * kernel - 1)));
  }
};

// Outputs in row-major order: `inner` of them share a window's place, then columns, then rows.
struct Outputs {
  std::int64_t rows, cols, inner;
  static Outputs of(const Params& params, const Shape& shape);
};

// Where a window begins.
struct Window {
  std::int64_t y, x;
};
TUCKFOLD_HOST_DEVICE inline Window window_at(std::int64_t row, std::int64_t col, int stride,
                                             int padding) {
  return {row * stride - padding, col * stride - padding};
}

// The code of an index, or -1 where it is not in the window.
TUCKFOLD_HOST_DEVICE inline int code_of(std::int64_t index, std::int64_t width, Window window,
                                        int kernel) {
  if (index < 0) return -1;
  const std::int64_t y = index / width;
  const std::int64_t dy = y - window.y, dx = index - y * width - window.x;
  if (dy < 0 || dy >= kernel || dx < 0 || dx >= kernel) return -1;
  return static_cast<int>(dy) * kernel + static_cast<int>(dx);
}

// The index of a code. Codes that pack does not write are taken as the last one, and positions
// outside of the image as the nearest inside, so that any bytes decode to indices that can be
// packed again.
TUCKFOLD_HOST_DEVICE inline std::int64_t index_of(int code, std::int64_t width, Window window,
                                                  int kernel) {
  if (code >= kernel * kernel) code = kernel * kernel - 1;
  std::int64_t y = window.y + code / kernel, x = window.x + code % kernel;
  if (y < 0) y = 0;
  if (x < 0) x = 0;
  if (x >= width) x = width - 1;
  return y * width + x;
}

// Throws pack's error for an index outside of its window.
[[noreturn]] void refuse(const Params& params, const Outputs& outputs, std::int64_t index,
                         std::int64_t output);

TUCKFOLD_WEAK extern const CudaCodec kCuda;

}  // namespace tuckfold::pool_index
