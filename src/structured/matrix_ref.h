// Dense matrices in double precision, row-major, for references.
#pragma once

#include <cstdint>
#include <vector>

namespace tuckfold::structured {

struct MatrixRef {
  std::int64_t rows, cols;
  std::vector<double> values;

  MatrixRef(std::int64_t r, std::int64_t c)
      : rows(r), cols(c), values(static_cast<std::size_t>(r * c)) {}
  static MatrixRef identity(std::int64_t n) {
    MatrixRef m(n, n);
    for (std::int64_t i = 0; i < n; ++i) m(i, i) = 1;
    return m;
  }
  double& operator()(std::int64_t r, std::int64_t c) {
    return values[static_cast<std::size_t>(r * cols + c)];
  }
  double operator()(std::int64_t r, std::int64_t c) const {
    return values[static_cast<std::size_t>(r * cols + c)];
  }
  // The first rows and columns.
  MatrixRef cut(std::int64_t r, std::int64_t c) const {
    MatrixRef m(r, c);
    for (std::int64_t i = 0; i < r; ++i) {
      for (std::int64_t j = 0; j < c; ++j) m(i, j) = (*this)(i, j);
    }
    return m;
  }
};

inline MatrixRef operator*(const MatrixRef& a, const MatrixRef& b) {
  MatrixRef product(a.rows, b.cols);
  for (std::int64_t i = 0; i < a.rows; ++i) {
    for (std::int64_t k = 0; k < a.cols; ++k) {
      if (a(i, k) == 0) continue;
      for (std::int64_t j = 0; j < b.cols; ++j) product(i, j) += a(i, k) * b(k, j);
    }
  }
  return product;
}

// A layer's weights, in the order of its declaration; a permutation as numbers.
using WeightsRef = std::vector<std::vector<double>>;

}  // namespace tuckfold::structured
