// Q * blocks * P * blocks, each written out.
#pragma once

#include <algorithm>

#include "structured/block_diagonal/block_diagonal_ref.h"

namespace tuckfold::structured {

inline MatrixRef monarch_ref(const WeightsRef& w, std::int64_t k, std::int64_t in,
                             std::int64_t out) {
  const std::int64_t i = (in + k - 1) / k, o = (out + k - 1) / k, mid = std::min(i, o);
  const MatrixRef first = block_diagonal_ref(w[0], k, k * i, k * mid);
  const MatrixRef second = block_diagonal_ref(w[1], k, k * mid, k * o);
  MatrixRef p(k * mid, k * mid), q(k * o, k * o);
  for (std::int64_t m = 0; m < k * mid; ++m) p(m % k * mid + m / k, m) = 1;
  for (std::int64_t l = 0; l < k; ++l) {
    for (std::int64_t s = 0; s < o; ++s) q(s * k + l, l * o + s) = 1;
  }
  return (q * second * p * first).cut(out, in);
}

}  // namespace tuckfold::structured
