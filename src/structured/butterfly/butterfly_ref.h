// A butterfly as a product of factors, each written out as a matrix.
#pragma once

#include <algorithm>
#include <cmath>

#include "structured/matrix_ref.h"

namespace tuckfold::structured {

struct ButterflyRef {
  bool tied = false, increasing = true, orthogonal = false;
  std::int64_t blocks = 1;

  MatrixRef dense(const WeightsRef& w, std::int64_t in, std::int64_t out) const {
    std::int64_t n = 2, levels = 1;
    while (n < in) n *= 2, ++levels;
    const std::int64_t pairs = tied ? n - 1 : levels * n / 2;
    MatrixRef all(out, in);
    for (std::int64_t k = 0; k * n < out; ++k) {
      MatrixRef m = MatrixRef::identity(n);
      for (std::int64_t block = 0; block < blocks; ++block) {
        for (std::int64_t level = 0; level < levels; ++level) {
          const bool grows = increasing == (block % 2 == 0);
          const std::int64_t s = std::int64_t{1} << (grows ? level : levels - 1 - level);
          MatrixRef factor(n, n);
          for (std::int64_t i = 0; i < n / 2; ++i) {
            const std::int64_t p = 2 * (i - i % s) + i % s;
            std::int64_t number = (k * blocks + block) * pairs;
            number += tied ? s - 1 + i % s : level * (n / 2) + i;
            double t[4];
            entries(w[0], number, t);
            factor(p, p) = t[0], factor(p, p + s) = t[1];
            factor(p + s, p) = t[2], factor(p + s, p + s) = t[3];
          }
          m = factor * m;
        }
      }
      for (std::int64_t i = 0; i < std::min(n, out - k * n); ++i) {
        for (std::int64_t j = 0; j < in; ++j) all(k * n + i, j) = m(i, j);
      }
    }
    return all;
  }

 private:
  void entries(const std::vector<double>& w, std::int64_t number, double* t) const {
    if (!orthogonal) {
      for (int i = 0; i < 4; ++i) t[i] = w[static_cast<std::size_t>(4 * number + i)];
      return;
    }
    const double angle = w[static_cast<std::size_t>(number)];
    t[0] = t[3] = std::cos(angle);
    t[2] = std::sin(angle);
    t[1] = -t[2];
  }
};

}  // namespace tuckfold::structured
