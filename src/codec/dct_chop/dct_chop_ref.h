// dct_chop in double, straight from the paper: dense matrices, no symmetry, no care for speed.
//
//   Dense y = product(product(lhs(p, n), a), rhs(p, m));                 // eq. 4
//   Dense a = product(product(back_lhs(p, n), y), back_rhs(p, m));       // eq. 6
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

#include "codec/dct_chop/dct_chop.h"

namespace tuckfold::ref {

using dct_chop::Params;
using dct_chop::Transform;

struct Dense {
  std::int64_t rows, cols;
  std::vector<double> values;

  Dense(std::int64_t r, std::int64_t c)
      : rows(r), cols(c), values(static_cast<std::size_t>(r * c)) {}
  double& at(std::int64_t i, std::int64_t j) {
    return values[static_cast<std::size_t>(i * cols + j)];
  }
  double at(std::int64_t i, std::int64_t j) const {
    return values[static_cast<std::size_t>(i * cols + j)];
  }
};

inline Dense product(const Dense& a, const Dense& b) {
  Dense c(a.rows, b.cols);
  for (std::int64_t i = 0; i < a.rows; ++i) {
    for (std::int64_t k = 0; k < a.cols; ++k) {
      for (std::int64_t j = 0; j < b.cols; ++j) c.at(i, j) += a.at(i, k) * b.at(k, j);
    }
  }
  return c;
}

inline Dense transposed(const Dense& a) {
  Dense t(a.cols, a.rows);
  for (std::int64_t i = 0; i < a.rows; ++i) {
    for (std::int64_t j = 0; j < a.cols; ++j) t.at(j, i) = a.at(i, j);
  }
  return t;
}

// Eq. 2.
inline Dense dct_matrix(int n) {
  Dense t(n, n);
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < n; ++j) {
      t.at(i, j) =
          i == 0 ? 1 / std::sqrt(n)
                 : std::sqrt(2.0 / n) * std::cos((2 * j + 1) * i * std::numbers::pi / (2 * n));
    }
  }
  return t;
}

// zfp's transform of four values and its inverse (Lindstrom 2014, section 3.1).
inline Dense zfp_matrix() {
  Dense t(4, 4);
  t.values = {4, 4, 4, 4, 5, 1, -1, -5, -4, 4, 4, -4, -2, 6, -6, 2};
  for (double& value : t.values) value /= 16;
  return t;
}
inline Dense zfp_inverse() {
  Dense t(4, 4);
  t.values = {4, 6, -4, -1, 4, 2, 4, 5, 4, -2, 4, -5, 4, -6, -4, 1};
  for (double& value : t.values) value /= 4;
  return t;
}

inline Dense forward_matrix(const Params& p) {
  return p.transform == Transform::Zfp ? zfp_matrix() : dct_matrix(p.block);
}
inline Dense inverse_matrix(const Params& p) {
  return p.transform == Transform::Zfp ? zfp_inverse() : transposed(dct_matrix(p.block));
}

// T_L: the transform along the diagonal, n a multiple of its side.
inline Dense along_diagonal(const Dense& t, std::int64_t n) {
  Dense large(n, n);
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j < t.cols; ++j) {
      large.at(i, i / t.rows * t.cols + j) = t.at(i % t.rows, j);
    }
  }
  return large;
}

// M: a keep x keep identity every `block` columns, keep * n / block rows.
inline Dense mask(int block, int keep, std::int64_t n) {
  Dense m(n / block * keep, n);
  for (std::int64_t i = 0; i < m.rows; ++i) m.at(i, i / keep * block + i % keep) = 1;
  return m;
}

// Eq. 4: Y = (M T_L) A (T_L^T M^T), and eq. 6 back; for the DCT the second pair is the first
// transposed.
inline Dense lhs(const Params& p, std::int64_t n) {
  return product(mask(p.block, p.keep, n), along_diagonal(forward_matrix(p), n));
}
inline Dense rhs(const Params& p, std::int64_t n) { return transposed(lhs(p, n)); }
inline Dense back_lhs(const Params& p, std::int64_t n) {
  return product(along_diagonal(inverse_matrix(p), n), transposed(mask(p.block, p.keep, n)));
}
inline Dense back_rhs(const Params& p, std::int64_t n) { return transposed(back_lhs(p, n)); }

// ---- any plane, block by block ------------------------------------------------------------------

// Whole blocks; what is past an edge repeats the edge.
inline Dense padded(const Dense& a, int block) {
  Dense whole((a.rows + block - 1) / block * block, (a.cols + block - 1) / block * block);
  for (std::int64_t i = 0; i < whole.rows; ++i) {
    for (std::int64_t j = 0; j < whole.cols; ++j) {
      whole.at(i, j) = a.at(std::min(i, a.rows - 1), std::min(j, a.cols - 1));
    }
  }
  return whole;
}

// Applies left · block · right to every rows x cols block.
inline Dense every_block(const Dense& left, const Dense& a, const Dense& right) {
  const std::int64_t down = a.rows / left.cols, across = a.cols / right.rows;
  Dense result(down * left.rows, across * right.cols);
  Dense part(left.cols, right.rows);
  for (std::int64_t b = 0; b < down * across; ++b) {
    const std::int64_t r = b / across, c = b % across;
    for (std::int64_t i = 0; i < part.rows; ++i) {
      for (std::int64_t j = 0; j < part.cols; ++j) {
        part.at(i, j) = a.at(r * part.rows + i, c * part.cols + j);
      }
    }
    const Dense done = product(product(left, part), right);
    for (std::int64_t i = 0; i < done.rows; ++i) {
      for (std::int64_t j = 0; j < done.cols; ++j) {
        result.at(r * done.rows + i, c * done.cols + j) = done.at(i, j);
      }
    }
  }
  return result;
}

inline Dense pack_plane(const Params& p, const Dense& a) {
  const Dense left = lhs(p, p.block);
  return every_block(left, padded(a, p.block), transposed(left));
}
inline Dense unpack_plane(const Params& p, const Dense& y, std::int64_t rows, std::int64_t cols) {
  const Dense left = back_lhs(p, p.block);
  const Dense whole = every_block(left, y, transposed(left));
  Dense a(rows, cols);
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < cols; ++j) a.at(i, j) = whole.at(i, j);
  }
  return a;
}

// ---- triangles ----------------------------------------------------------------------------------

// Visits (row of y, column of y) in packed order: blocks row-major, row k with keep - k values.
template <class Visit>
void for_each_in_triangles(int keep, std::int64_t rows, std::int64_t cols, Visit&& visit) {
  for (std::int64_t r = 0; r < rows; r += keep) {
    for (std::int64_t c = 0; c < cols; c += keep) {
      for (int i = 0; i < keep; ++i) {
        for (int j = 0; i + j < keep; ++j) visit(r + i, c + j);
      }
    }
  }
}

inline std::vector<double> gather_triangles(const Dense& y, int keep) {
  std::vector<double> values;
  for_each_in_triangles(keep, y.rows, y.cols,
                        [&](std::int64_t i, std::int64_t j) { values.push_back(y.at(i, j)); });
  return values;
}
inline Dense scatter_triangles(const std::vector<double>& values, int keep, std::int64_t rows,
                               std::int64_t cols) {
  Dense y(rows, cols);
  std::size_t next = 0;
  for_each_in_triangles(keep, rows, cols,
                        [&](std::int64_t i, std::int64_t j) { y.at(i, j) = values[next++]; });
  return y;
}

// ---- a whole tensor of `planes` matrices --------------------------------------------------------

inline std::vector<double> pack_planes(const Params& p, const std::vector<double>& values,
                                       std::int64_t rows, std::int64_t cols) {
  std::vector<double> packed;
  for (std::size_t begin = 0; begin < values.size();
       begin += static_cast<std::size_t>(rows * cols)) {
    Dense a(rows, cols);
    std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(begin), rows * cols, a.values.begin());
    const Dense y = pack_plane(p, a);
    const std::vector<double> kept = p.triangle ? gather_triangles(y, p.keep) : y.values;
    packed.insert(packed.end(), kept.begin(), kept.end());
  }
  return packed;
}

inline std::vector<double> unpack_planes(const Params& p, const std::vector<double>& packed,
                                         std::int64_t rows, std::int64_t cols) {
  const std::int64_t y_rows = (rows + p.block - 1) / p.block * p.keep;
  const std::int64_t y_cols = (cols + p.block - 1) / p.block * p.keep;
  const std::int64_t plane =
      p.triangle ? y_rows * y_cols * (p.keep + 1) / (2 * p.keep) : y_rows * y_cols;
  std::vector<double> values;
  for (auto at = packed.begin(); at != packed.end(); at += plane) {
    const std::vector<double> kept(at, at + plane);
    Dense y(y_rows, y_cols);
    if (p.triangle) {
      y = scatter_triangles(kept, p.keep, y_rows, y_cols);
    } else {
      y.values = kept;
    }
    const Dense a = unpack_plane(p, y, rows, cols);
    values.insert(values.end(), a.values.begin(), a.values.end());
  }
  return values;
}

}  // namespace tuckfold::ref
