// The sparse part of a pixelfly, by its mask: i and j are connected where their cells are the same or
// differ in one bit.
#pragma once

#include <algorithm>

#include "structured/matrix_ref.h"

namespace tuckfold::structured {

inline MatrixRef pixelfly_sparse_ref(const std::vector<double>& w, std::int64_t block,
                                     std::int64_t butterfly, std::int64_t in, std::int64_t out) {
  const std::int64_t rows = (out + block - 1) / block, cols = (in + block - 1) / block;
  std::int64_t cells = butterfly;
  while (cells > std::min(rows, cols)) cells /= 2;
  MatrixRef m(rows * block, cols * block);
  std::size_t at = 0;
  for (std::int64_t c = 0; c < cols; ++c) {
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t a = r * cells / rows, b = c * cells / cols;
      std::int64_t bits = 0;
      for (std::int64_t x = a ^ b; x > 0; x /= 2) bits += x % 2;
      if (bits > 1) continue;
      for (std::int64_t i = 0; i < block * block; ++i) {
        m(r * block + i / block, c * block + i % block) = w[at++];
      }
    }
  }
  return m.cut(out, in);
}

}  // namespace tuckfold::structured
