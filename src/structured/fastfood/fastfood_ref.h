// S H G P H B, each written out; H by the recursion of its definition.
#pragma once

#include "structured/matrix_ref.h"

namespace tuckfold::structured {

inline MatrixRef hadamard_ref(std::int64_t n) {
  if (n == 1) return MatrixRef::identity(1);
  const MatrixRef half = hadamard_ref(n / 2);
  MatrixRef m(n, n);
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      const double sign = i >= n / 2 && j >= n / 2 ? -1 : 1;
      m(i, j) = sign * half(i % (n / 2), j % (n / 2));
    }
  }
  return m;
}

inline MatrixRef fastfood_ref(const WeightsRef& w, bool normalize, std::int64_t in,
                              std::int64_t out) {
  const auto n = static_cast<std::int64_t>(w[0].size());
  const auto diagonal = [&](const std::vector<double>& values) {
    MatrixRef m(n, n);
    for (std::int64_t i = 0; i < n; ++i) m(i, i) = values[static_cast<std::size_t>(i)];
    return m;
  };
  MatrixRef p(n, n);
  for (std::int64_t i = 0; i < n; ++i) {
    p(i, static_cast<std::int64_t>(w[3][static_cast<std::size_t>(i)])) = 1;
  }
  const MatrixRef h = hadamard_ref(n);
  MatrixRef m = diagonal(w[0]) * h * diagonal(w[1]) * p * h * diagonal(w[2]);
  for (double& value : m.values) value /= normalize ? static_cast<double>(n) : 1;
  return m.cut(out, in);
}

}  // namespace tuckfold::structured
