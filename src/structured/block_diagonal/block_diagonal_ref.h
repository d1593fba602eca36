// Blocks of ceil(out / k) x ceil(in / k) along the diagonal, cut to out x in.
#pragma once

#include "structured/matrix_ref.h"

namespace tuckfold::structured {

inline MatrixRef block_diagonal_ref(const std::vector<double>& w, std::int64_t k, std::int64_t in,
                                    std::int64_t out) {
  const std::int64_t i = (in + k - 1) / k, o = (out + k - 1) / k;
  MatrixRef m(k * o, k * i);
  for (std::int64_t b = 0; b < k; ++b) {
    for (std::int64_t r = 0; r < o; ++r) {
      for (std::int64_t c = 0; c < i; ++c) {
        m(b * o + r, b * i + c) = w[static_cast<std::size_t>((b * o + r) * i + c)];
      }
    }
  }
  return m.cut(out, in);
}

}  // namespace tuckfold::structured
