// The normative arithmetic of dct_chop on one block, forward and inverse. Every kernel, on any
// device, must give these bits: additions, multiplications and fused multiply-adds, each correctly
// rounded, in this order. A resulting NaN, of a coefficient or a value, becomes the canonical NaN,
// because machines differ in the NaN that arithmetic makes.
//
// Rows of both transforms are even or odd about their middle, so with
//   s_k = x_k + x_{N-1-k},  d_k = x_k - x_{N-1-k}                       k < N/2
// coefficient v is the sum over k of table[v][k] * (v even ? s_k : d_k), and back
//   x_j = E_j + O_j,  x_{N-1-j} = E_j - O_j
// where E and O sum table[v][j] * y_v over the even and odd v below keep.
//
// Blocks of 8, which take most of the time, skip multiplications: the columns' coefficients are
// computed without a factor alpha_u, which the rows' tables contain.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include "base/device.h"
#include "base/half.h"

namespace tuckfold::dct_chop {

// table[v][k], v < N, k < N/2.
template <int N>
using Table = std::array<std::array<float, N / 2>, N>;

namespace detail {

// cos(k π / 32), k = 0..16.
inline constexpr double kCos[17] = {1.0,
                                    0.99518472667219688624,
                                    0.98078528040323044913,
                                    0.95694033573220886494,
                                    0.92387953251128675613,
                                    0.88192126434835502971,
                                    0.83146961230254523708,
                                    0.77301045336273696081,
                                    0.70710678118654752440,
                                    0.63439328416364549822,
                                    0.55557023301960222474,
                                    0.47139673682599764856,
                                    0.38268343236508977173,
                                    0.29028467725446236764,
                                    0.19509032201612826785,
                                    0.09801714032956060199,
                                    0.0};

constexpr double cos_32nds(int k) {
  k %= 64;
  if (k > 32) k = 64 - k;
  return k > 16 ? -kCos[32 - k] : kCos[k];
}

// Eq. 2: entry [v][x] of the orthonormal DCT-II matrix of N = 4, 8 or 16 values.
constexpr double dct_entry(int n, int v, int x) {
  const double root = n == 4 ? 0.5 : n == 8 ? 0.5 * kCos[8] : 0.25;  // sqrt(1/N)
  return (v == 0 ? root : 2 * kCos[8] * root) * cos_32nds((2 * x + 1) * v * (16 / n));
}

template <int N>
constexpr Table<N> make_dct() {
  Table<N> table{};
  for (int v = 0; v < N; ++v) {
    for (int k = 0; k < N / 2; ++k) table[v][k] = static_cast<float>(dct_entry(N, v, k));
  }
  return table;
}

// The factor that the columns of 8 leave out. For u = 6 the coefficient is written with that of u =
// 2.
constexpr double alpha(int u) { return dct_entry(8, u == 6 ? 2 : u, 0); }

}  // namespace detail

// The DCT is orthonormal: its inverse is its transpose, the same table.
template <int N>
inline constexpr Table<N> kDct = detail::make_dct<N>();

// zfp's decorrelating transform of four values (Lindstrom 2014), rows of 1/16 (4 4 4 4; 5 1 -1 -5;
// -4 4 4 -4; -2 6 -6 2), and columns of its inverse 1/4 (4 6 -4 -1; 4 2 4 5; 4 -2 4 -5; 4 -6 -4 1).
inline constexpr Table<4> kZfpForward = {
    {{0.25f, 0.25f}, {0.3125f, 0.0625f}, {-0.25f, 0.25f}, {-0.125f, 0.375f}}};
inline constexpr Table<4> kZfpInverse = {
    {{1.0f, 1.0f}, {1.5f, 0.5f}, {-1.0f, 1.0f}, {-0.25f, 1.25f}}};

// ---- any block ----------------------------------------------------------------------------------

// y_v for v < keep from x_0 … x_{N-1}; x and y are walked with strides.
template <int N>
TUCKFOLD_HOST_DEVICE TUCKFOLD_INLINE void forward_line(const Table<N>& table, int keep,
                                                       const float* x, std::int64_t x_step,
                                                       float* y, std::int64_t y_step) {
  float halves[2][N / 2];  // s, d
  for (int k = 0; k < N / 2; ++k) {
    const float a = x[k * x_step], b = x[(N - 1 - k) * x_step];
    halves[0][k] = a + b;
    halves[1][k] = a - b;
  }
  for (int v = 0; v < keep; ++v) {
    float sum = table[v][0] * halves[v % 2][0];
    for (int k = 1; k < N / 2; ++k) sum = std::fma(table[v][k], halves[v % 2][k], sum);
    y[v * y_step] = sum;
  }
}

// x_0 … x_{N-1} from y_v, v < keep.
template <int N>
TUCKFOLD_HOST_DEVICE TUCKFOLD_INLINE void inverse_line(const Table<N>& table, int keep,
                                                       const float* y, std::int64_t y_step,
                                                       float* x, std::int64_t x_step) {
  for (int j = 0; j < N / 2; ++j) {
    float even = table[0][j] * y[0];
    for (int v = 2; v < keep; v += 2) even = std::fma(table[v][j], y[v * y_step], even);
    float odd = -0.0f;  // adds nothing to anything
    for (int v = 1; v < keep; v += 2) odd = std::fma(table[v][j], y[v * y_step], odd);
    x[j * x_step] = even + odd;
    x[(N - 1 - j) * x_step] = even - odd;
  }
}

// ---- blocks of 8 --------------------------------------------------------------------------------

// kRatio = T[2][1] / T[2][0]; kOdd[i][k] = T[u][k] / T[u][0] for u = 2i + 1; and for rows
// kScaled[u][v][k] = alpha_u T[v][k].
inline constexpr float kRatio =
    static_cast<float>(detail::dct_entry(8, 2, 1) / detail::dct_entry(8, 2, 0));
TUCKFOLD_TABLE auto kOdd = [] {
  std::array<std::array<float, 4>, 4> table{};
  for (int i = 0; i < 4; ++i) {
    for (int k = 0; k < 4; ++k) {
      table[i][k] = static_cast<float>(detail::dct_entry(8, 2 * i + 1, k) /
                                       detail::dct_entry(8, 2 * i + 1, 0));
    }
  }
  return table;
}();
TUCKFOLD_TABLE auto kScaled = [] {
  std::array<Table<8>, 8> table{};
  for (int u = 0; u < 8; ++u) {
    for (int v = 0; v < 8; ++v) {
      for (int k = 0; k < 4; ++k) {
        table[u][v][k] = static_cast<float>(detail::alpha(u) * detail::dct_entry(8, v, k));
      }
    }
  }
  return table;
}();

// Coefficients u < keep of a column, over alpha_u.
TUCKFOLD_HOST_DEVICE TUCKFOLD_INLINE void forward_column_8(int keep, const float* x,
                                                           std::int64_t x_step, float* y,
                                                           std::int64_t y_step) {
  float s[4], d[4];
  TUCKFOLD_UNROLL for (int k = 0; k < 4; ++k) {
    const float a = x[k * x_step], b = x[(7 - k) * x_step];
    s[k] = a + b;
    d[k] = a - b;
  }
  const float e0 = s[0] + s[3], e1 = s[1] + s[2], o0 = s[0] - s[3], o1 = s[1] - s[2];
  y[0] = e0 + e1;
  if (keep > 2) y[2 * y_step] = std::fma(kRatio, o1, o0);
  if (keep > 4) y[4 * y_step] = e0 - e1;
  if (keep > 6) y[6 * y_step] = std::fma(kRatio, o0, -o1);
  TUCKFOLD_UNROLL for (int u = 1; u < keep; u += 2) {
    float sum = d[0];
    TUCKFOLD_UNROLL for (int k = 1; k < 4; ++k) sum = std::fma(kOdd[u / 2][k], d[k], sum);
    y[u * y_step] = sum;
  }
}

// Coefficients v < keep of row u, by kScaled[u]; the odd ones sum from the other end.
TUCKFOLD_HOST_DEVICE TUCKFOLD_INLINE void forward_row_8(const Table<8>& scaled, int keep,
                                                        const float* x, float* y) {
  TUCKFOLD_UNROLL for (int v = 0; v < keep; ++v) {
    float sum = 0;
    TUCKFOLD_UNROLL for (int k = 0; k < 4; ++k) {
      const int at = v % 2 == 0 ? k : 3 - k;
      const float half = v % 2 == 0 ? x[at] + x[7 - at] : x[at] - x[7 - at];
      sum = k == 0 ? half * scaled[v][at] : std::fma(half, scaled[v][at], sum);
    }
    y[v] = sum;
  }
}

TUCKFOLD_HOST_DEVICE TUCKFOLD_INLINE void inverse_row_8(const Table<8>& scaled, int keep,
                                                        const float* y, float* x) {
  TUCKFOLD_UNROLL for (int j = 0; j < 4; ++j) {
    float even = y[0] * scaled[0][j];
    TUCKFOLD_UNROLL for (int v = 2; v < keep; v += 2) even = std::fma(y[v], scaled[v][j], even);
    float odd = -0.0f;
    TUCKFOLD_UNROLL for (int v = 1; v < keep; v += 2) {
      odd = v == 1 ? y[v] * scaled[v][j] : std::fma(y[v], scaled[v][j], odd);
    }
    x[j] = even + odd;
    x[7 - j] = even - odd;
  }
}

TUCKFOLD_HOST_DEVICE TUCKFOLD_INLINE void inverse_column_8(int keep, const float* y,
                                                           std::int64_t y_step, float* x,
                                                           std::int64_t x_step) {
  const float p = y[0];
  float even[4] = {p, p, p, p};
  if (keep > 4) {
    const float q = y[4 * y_step];
    even[0] = even[3] = p + q;
    even[1] = even[2] = p - q;
  }
  if (keep > 2) {
    float a = y[2 * y_step], b = kRatio * a;
    if (keep > 6) {
      const float c = y[6 * y_step];
      b = std::fma(kRatio, a, -c);
      a = std::fma(kRatio, c, a);
    }
    even[0] = even[0] + a;
    even[3] = even[3] - a;
    even[1] = even[1] + b;
    even[2] = even[2] - b;
  }
  TUCKFOLD_UNROLL for (int j = 0; j < 4; ++j) {
    float upper = even[j], lower = even[j];
    if (keep > 1) {
      float odd = j == 0 ? y[y_step] : y[y_step] * kOdd[0][j];
      TUCKFOLD_UNROLL for (int u = 3; u < keep; u += 2) {
        odd = j == 0 ? odd + y[u * y_step] : std::fma(y[u * y_step], kOdd[u / 2][j], odd);
      }
      upper = even[j] + odd;
      lower = even[j] - odd;
    }
    x[j * x_step] = upper;
    x[(7 - j) * x_step] = lower;
  }
}

// ---- a whole block ------------------------------------------------------------------------------

// Replaces each NaN of some rows by the canonical one. There is hardly ever one: a sum would be
// NaN, too. There are four sums, so that they need not wait for each other.
TUCKFOLD_HOST_DEVICE TUCKFOLD_INLINE void settle_nans(int rows, int cols, float* values,
                                                      std::int64_t row) {
  float sums[4] = {};
  TUCKFOLD_UNROLL for (int r = 0; r < rows; ++r) {
    TUCKFOLD_UNROLL for (int c = 0; c < cols; ++c) sums[c % 4] = sums[c % 4] + values[r * row + c];
  }
  const float sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  if (sum != sum) {
    TUCKFOLD_UNROLL for (int r = 0; r < rows; ++r) {
      TUCKFOLD_UNROLL for (int c = 0; c < cols; ++c) values[r * row + c] =
          canonical(values[r * row + c]);
    }
  }
}

// Columns first, then rows, and back rows first, then columns. `coefs` is keep x keep; `x_row` is
// the distance of the block's rows.
TUCKFOLD_HOST_DEVICE TUCKFOLD_INLINE void forward_block_8(int keep, const float* x,
                                                          std::int64_t x_row, float* coefs) {
  float half[64];
  TUCKFOLD_UNROLL for (int j = 0; j < 8; ++j) forward_column_8(keep, x + j, x_row, half + j, 8);
  TUCKFOLD_UNROLL for (int u = 0; u < keep; ++u)
      forward_row_8(kScaled[u], keep, half + u * 8, coefs + u * keep);
  settle_nans(keep, keep, coefs, keep);
}

// Where a NaN may be any: for those who convert values to a type of one NaN next.
TUCKFOLD_HOST_DEVICE TUCKFOLD_INLINE void inverse_unsettled_8(int keep, const float* coefs,
                                                              float* x, std::int64_t x_row) {
  float half[64];
  TUCKFOLD_UNROLL for (int u = 0; u < keep; ++u)
      inverse_row_8(kScaled[u], keep, coefs + u * keep, half + u * 8);
  TUCKFOLD_UNROLL for (int j = 0; j < 8; ++j) inverse_column_8(keep, half + j, 8, x + j, x_row);
}

TUCKFOLD_HOST_DEVICE TUCKFOLD_INLINE void inverse_block_8(int keep, const float* coefs, float* x,
                                                          std::int64_t x_row) {
  inverse_unsettled_8(keep, coefs, x, x_row);
  settle_nans(8, 8, x, x_row);
}

// Blocks of 8 are always of the DCT.
template <int N>
TUCKFOLD_HOST_DEVICE TUCKFOLD_INLINE void forward_block(const Table<N>& table, int keep,
                                                        const float* x, std::int64_t x_row,
                                                        float* coefs) {
  if constexpr (N == 8) {
    forward_block_8(keep, x, x_row, coefs);
  } else {
    float half[N * N];
    for (int j = 0; j < N; ++j) forward_line<N>(table, keep, x + j, x_row, half + j, N);
    for (int u = 0; u < keep; ++u) {
      forward_line<N>(table, keep, half + u * N, 1, coefs + u * keep, 1);
    }
    settle_nans(keep, keep, coefs, keep);
  }
}

template <int N>
TUCKFOLD_HOST_DEVICE TUCKFOLD_INLINE void inverse_block(const Table<N>& table, int keep,
                                                        const float* coefs, float* x,
                                                        std::int64_t x_row) {
  if constexpr (N == 8) {
    inverse_block_8(keep, coefs, x, x_row);
  } else {
    float half[N * N];
    for (int u = 0; u < keep; ++u) {
      inverse_line<N>(table, keep, coefs + u * keep, 1, half + u * N, 1);
    }
    for (int j = 0; j < N; ++j) inverse_line<N>(table, keep, half + j, N, x + j, x_row);
    settle_nans(N, N, x, x_row);
  }
}

}  // namespace tuckfold::dct_chop
