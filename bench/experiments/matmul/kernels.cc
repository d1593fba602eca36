// Products of matrices as they are first written, and blocked for caches and registers; sparse ones; and a loop that
// shows the processor's peak. One thread, row-major f32. bench/experiments/matmul/__main__.py calls them.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

// One version for each set of instructions; the processor's own is taken when the library is loaded.
#define FOR_EACH_PROCESSOR \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))

namespace {

constexpr std::int64_t kRows = 6, kColumns = 64;                   // of c that stay in registers
constexpr std::int64_t kDepth = 256, kHeight = 96, kWidth = 1024;  // of b and a that stay in caches

}  // namespace

extern "C" {

// c = a b; a is m x n, b is n x k.
void study_naive(const float* a, const float* b, float* c, std::int64_t m, std::int64_t n,
                 std::int64_t k) {
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < k; ++j) {
      float sum = 0;
      for (std::int64_t l = 0; l < n; ++l) sum += a[i * n + l] * b[l * k + j];
      c[i * k + j] = sum;
    }
  }
}

// Panels of b, and of a, are copied so that the innermost loop reads memory in order.
FOR_EACH_PROCESSOR
void study_blocked(const float* a, const float* b, float* c, std::int64_t m, std::int64_t n,
                   std::int64_t k) {
  std::vector<float> b_panel(kDepth * kWidth), a_panel(kDepth * kHeight);
  std::memset(c, 0, static_cast<std::size_t>(m * k) * sizeof(float));
  for (std::int64_t j0 = 0; j0 < k; j0 += kWidth) {
    const std::int64_t width = std::min(kWidth, k - j0);
    for (std::int64_t l0 = 0; l0 < n; l0 += kDepth) {
      const std::int64_t depth = std::min(kDepth, n - l0);
      for (std::int64_t j = 0; j < width; j += kColumns) {
        float* to = b_panel.data() + j * depth;
        for (std::int64_t l = 0; l < depth; ++l, to += kColumns) {
          const float* from = b + (l0 + l) * k + j0 + j;
          for (std::int64_t w = 0; w < kColumns; ++w) to[w] = j + w < width ? from[w] : 0;
        }
      }
      for (std::int64_t i0 = 0; i0 < m; i0 += kHeight) {
        const std::int64_t height = std::min(kHeight, m - i0);
        for (std::int64_t i = 0; i < height; i += kRows) {
          float* to = a_panel.data() + i * depth;
          for (std::int64_t l = 0; l < depth; ++l, to += kRows) {
            for (std::int64_t r = 0; r < kRows; ++r) {
              to[r] = i + r < height ? a[(i0 + i + r) * n + l0 + l] : 0;
            }
          }
        }
        for (std::int64_t j = 0; j < width; j += kColumns) {
          for (std::int64_t i = 0; i < height; i += kRows) {
            float sums[kRows][kColumns] = {};
            const float *left = a_panel.data() + i * depth, *right = b_panel.data() + j * depth;
            for (std::int64_t l = 0; l < depth; ++l, left += kRows, right += kColumns) {
#pragma GCC unroll 6
              for (std::int64_t r = 0; r < kRows; ++r) {
#pragma GCC ivdep
                for (std::int64_t w = 0; w < kColumns; ++w) sums[r][w] += left[r] * right[w];
              }
            }
            for (std::int64_t r = 0; r < std::min(kRows, height - i); ++r) {
              float* row = c + (i0 + i + r) * k + j0 + j;
              for (std::int64_t w = 0; w < std::min(kColumns, width - j); ++w) row[w] += sums[r][w];
            }
          }
        }
      }
    }
  }
}

// a in rows: columns and values of row i are those from starts[i] to starts[i + 1].
FOR_EACH_PROCESSOR
void study_csr(const std::int64_t* starts, const std::int64_t* columns, const float* values,
               const float* b, float* c, std::int64_t m, std::int64_t k) {
  for (std::int64_t i = 0; i < m; ++i) {
    float* row = c + i * k;
    std::memset(row, 0, static_cast<std::size_t>(k) * sizeof(float));
    for (std::int64_t at = starts[i]; at < starts[i + 1]; ++at) {
      const float value = values[at];
      const float* from = b + columns[at] * k;
#pragma GCC ivdep
      for (std::int64_t j = 0; j < k; ++j) row[j] += value * from[j];
    }
  }
}

// a as places and values.
FOR_EACH_PROCESSOR
void study_coo(const std::int64_t* rows, const std::int64_t* columns, const float* values,
               std::int64_t count, const float* b, float* c, std::int64_t m, std::int64_t k) {
  std::memset(c, 0, static_cast<std::size_t>(m * k) * sizeof(float));
  for (std::int64_t at = 0; at < count; ++at) {
    float* row = c + rows[at] * k;
    const float value = values[at];
    const float* from = b + columns[at] * k;
#pragma GCC ivdep
    for (std::int64_t j = 0; j < k; ++j) row[j] += value * from[j];
  }
}

// Multiplications and additions in registers alone; returns how many operations they were.
FOR_EACH_PROCESSOR
double study_peak(std::int64_t rounds, float* sink) {
  constexpr std::int64_t kChains = 16, kLanes = 16;
  float sums[kChains][kLanes];
  for (std::int64_t i = 0; i < kChains * kLanes; ++i) sums[i / kLanes][i % kLanes] = sink[i];
  const float factor = sink[0], more = sink[1];
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 16
    for (std::int64_t i = 0; i < kChains; ++i) {
#pragma GCC ivdep
      for (std::int64_t w = 0; w < kLanes; ++w) sums[i][w] = sums[i][w] * factor + more;
    }
  }
  for (std::int64_t i = 0; i < kChains * kLanes; ++i) sink[i] = sums[i / kLanes][i % kLanes];
  return 2.0 * static_cast<double>(rounds * kChains * kLanes);
}

}  // extern "C"
