// The normative arithmetic of dct_chop: one line of a block, forth and back. Every kernel, on any
// device, must give these bits: only + - ×, in this order, nothing fused.
//
// Rows of both transforms are even or odd about their middle, so with
//   s_k = x_k + x_{N-1-k},  d_k = x_k - x_{N-1-k}                       k < N/2
// coefficient v is the sum over k of table[v][k] * (v even ? s_k : d_k), and back
//   x_j = E_j + O_j,  x_{N-1-j} = E_j - O_j
// where E and O sum table[v][j] * y_v over the even and odd v below keep. Sums of N/2 terms are
// taken pairwise: ((t0 + t1) + (t2 + t3)) + …; terms at or above keep are left out. Columns of 8,
// where most of the time goes, fold the even half once more.
#pragma once

#include <array>
#include <cstdint>

#include "base/device.h"

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

// sqrt(1/N) and sqrt(2/N) for N = 4, 8, 16.
constexpr double inverse_root(int n) { return n == 4 ? 0.5 : n == 8 ? 0.5 * kCos[8] : 0.25; }

// Eq. 2: the orthonormal DCT-II matrix, its left half.
template <int N>
constexpr Table<N> make_dct() {
  Table<N> table{};
  for (int v = 0; v < N; ++v) {
    for (int k = 0; k < N / 2; ++k) {
      const double scale = v == 0 ? inverse_root(N) : 2 * kCos[8] * inverse_root(N);
      table[v][k] = static_cast<float>(scale * cos_32nds((2 * k + 1) * v * (16 / N)));
    }
  }
  return table;
}

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

// The sum of 2, 4 or 8 terms, pairwise.
template <int Count>
TUCKFOLD_HOST_DEVICE constexpr float pairwise(const float* terms) {
  if constexpr (Count == 1) {
    return terms[0];
  } else {
    return pairwise<Count / 2>(terms) + pairwise<Count / 2>(terms + Count / 2);
  }
}

// y_v for v < keep from x_0 … x_{N-1}; x and y are walked with strides.
template <int N>
TUCKFOLD_HOST_DEVICE void forward_line(const Table<N>& table, int keep, const float* x,
                                       std::int64_t x_step, float* y, std::int64_t y_step) {
  float halves[2][N / 2];  // s, d
  for (int k = 0; k < N / 2; ++k) {
    const float a = x[k * x_step], b = x[(N - 1 - k) * x_step];
    halves[0][k] = a + b;
    halves[1][k] = a - b;
  }
  for (int v = 0; v < keep; ++v) {
    float terms[N / 2];
    for (int k = 0; k < N / 2; ++k) terms[k] = table[v][k] * halves[v % 2][k];
    y[v * y_step] = pairwise<N / 2>(terms);
  }
}

// x_0 … x_{N-1} from y_v, v < keep. A term that is left out is -0, which adds nothing to anything.
template <int N>
TUCKFOLD_HOST_DEVICE void inverse_line(const Table<N>& table, int keep, const float* y,
                                       std::int64_t y_step, float* x, std::int64_t x_step) {
  for (int j = 0; j < N / 2; ++j) {
    float even[N / 2], odd[N / 2];
    for (int k = 0; k < N / 2; ++k) {
      even[k] = 2 * k < keep ? table[2 * k][j] * y[2 * k * y_step] : -0.0f;
      odd[k] = 2 * k + 1 < keep ? table[2 * k + 1][j] * y[(2 * k + 1) * y_step] : -0.0f;
    }
    const float e = pairwise<N / 2>(even), o = pairwise<N / 2>(odd);
    x[j * x_step] = e + o;
    x[(N - 1 - j) * x_step] = e - o;
  }
}

// forward_line and inverse_line for columns; for 8 with half the products in the even half.
template <int N>
TUCKFOLD_HOST_DEVICE void forward_column(const Table<N>& table, int keep, const float* x,
                                         std::int64_t x_step, float* y, std::int64_t y_step) {
  forward_line<N>(table, keep, x, x_step, y, y_step);
  if constexpr (N == 8) {
    float s[4];
    for (int k = 0; k < 4; ++k) s[k] = x[k * x_step] + x[(7 - k) * x_step];
    const float e0 = s[0] + s[3], e1 = s[1] + s[2], o0 = s[0] - s[3], o1 = s[1] - s[2];
    y[0] = table[0][0] * (e0 + e1);
    if (keep > 2) y[2 * y_step] = table[2][0] * o0 + table[2][1] * o1;
    if (keep > 4) y[4 * y_step] = table[4][0] * (e0 - e1);
    if (keep > 6) y[6 * y_step] = table[6][0] * o0 + table[6][1] * o1;
  }
}

template <int N>
TUCKFOLD_HOST_DEVICE void inverse_column(const Table<N>& table, int keep, const float* y,
                                         std::int64_t y_step, float* x, std::int64_t x_step) {
  if constexpr (N == 8) {
    const float p = table[0][0] * y[0];
    float even[4] = {p, p, p, p};
    if (keep > 4) {
      const float q = table[4][0] * y[4 * y_step];
      even[0] = even[3] = p + q;
      even[1] = even[2] = p - q;
    }
    if (keep > 2) {
      float a = table[2][0] * y[2 * y_step], b = table[2][1] * y[2 * y_step];
      if (keep > 6) {
        a = a + table[6][0] * y[6 * y_step];
        b = b + table[6][1] * y[6 * y_step];
      }
      even[0] = even[0] + a;
      even[3] = even[3] - a;
      even[1] = even[1] + b;
      even[2] = even[2] - b;
    }
    for (int j = 0; j < 4; ++j) {
      float terms[4];
      for (int k = 0; k < 4; ++k) {
        terms[k] = 2 * k + 1 < keep ? table[2 * k + 1][j] * y[(2 * k + 1) * y_step] : -0.0f;
      }
      const float odd = pairwise<4>(terms);
      x[j * x_step] = keep > 1 ? even[j] + odd : even[j];
      x[(7 - j) * x_step] = keep > 1 ? even[j] - odd : even[j];
    }
  } else {
    inverse_line<N>(table, keep, y, y_step, x, x_step);
  }
}

// A whole block: columns first, then rows, and back rows first, then columns. `coefs` is
// keep x keep. `x_row` is the distance of the block's rows.
template <int N>
TUCKFOLD_HOST_DEVICE void forward_block(const Table<N>& table, int keep, const float* x,
                                        std::int64_t x_row, float* coefs) {
  float half[N * N];
  for (int j = 0; j < N; ++j) forward_column<N>(table, keep, x + j, x_row, half + j, N);
  for (int u = 0; u < keep; ++u) {
    forward_line<N>(table, keep, half + u * N, 1, coefs + u * keep, 1);
  }
}

template <int N>
TUCKFOLD_HOST_DEVICE void inverse_block(const Table<N>& table, int keep, const float* coefs,
                                        float* x, std::int64_t x_row) {
  float half[N * N];
  for (int u = 0; u < keep; ++u) {
    inverse_line<N>(table, keep, coefs + u * keep, 1, half + u * N, 1);
  }
  for (int j = 0; j < N; ++j) inverse_column<N>(table, keep, half + j, N, x + j, x_row);
}

}  // namespace tuckfold::dct_chop
