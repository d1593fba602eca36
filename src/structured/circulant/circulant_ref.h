// C[i][j] = kernel[(i - j) mod n].
#pragma once

#include "structured/matrix_ref.h"

namespace tuckfold::structured {

inline MatrixRef circulant_ref(const std::vector<double>& kernel, std::int64_t in,
                               std::int64_t out) {
  const auto n = static_cast<std::int64_t>(kernel.size());
  MatrixRef m(out, in);
  for (std::int64_t i = 0; i < out; ++i) {
    for (std::int64_t j = 0; j < in; ++j) {
      m(i, j) = kernel[static_cast<std::size_t>((i - j + n) % n)];
    }
  }
  return m;
}

}  // namespace tuckfold::structured
