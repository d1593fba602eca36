// Squares of 16 bytes a side, by interleaving rows that are half of them apart: each such step
// moves one bit of the row's number to the column's, so that log2 of the side are a transpose.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "base/transpose_cpu.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "base/transpose.h"

HWY_BEFORE_NAMESPACE();
namespace tuckfold::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR
template <class T>
constexpr std::int64_t kSide = 1;

template <class T>
HWY_INLINE void transpose_tile(const T* from, std::int64_t, T* to, std::int64_t) {
  std::memcpy(to, from, sizeof(T));
}
#else
template <class T>
constexpr std::int64_t kSide = 16 / static_cast<std::int64_t>(sizeof(T));

template <class T>
HWY_INLINE void transpose_tile(const T* from, std::int64_t from_step, T* to, std::int64_t to_step) {
  constexpr auto kN = static_cast<std::size_t>(kSide<T>);
  const hn::Full128<T> d;
  hn::Vec<decltype(d)> v[kN], w[kN];
  HWY_UNROLL(16)
  for (std::size_t i = 0; i < kN; ++i) {
    v[i] = hn::LoadU(d, from + static_cast<std::int64_t>(i) * from_step);
  }
  HWY_UNROLL(4)
  for (std::size_t bit = 1; bit < kN; bit *= 2) {
    HWY_UNROLL(8)
    for (std::size_t i = 0; i < kN / 2; ++i) {
      w[2 * i] = hn::InterleaveLower(d, v[i], v[i + kN / 2]);
      w[2 * i + 1] = hn::InterleaveUpper(d, v[i], v[i + kN / 2]);
    }
    HWY_UNROLL(16)
    for (std::size_t i = 0; i < kN; ++i) v[i] = w[i];
  }
  HWY_UNROLL(16)
  for (std::size_t i = 0; i < kN; ++i) {
    hn::StoreU(v[i], d, to + static_cast<std::int64_t>(i) * to_step);
  }
}
#endif

template <class T>
constexpr std::int64_t kLine = 64 / static_cast<std::int64_t>(sizeof(T));
constexpr std::int64_t kAheadBytes = 4096;

// Tiles at the ends overlap their neighbours; matrices narrower than a tile go word by word.
template <class T>
HWY_ATTR void transpose(Along order, const T* from, std::int64_t from_step, std::int64_t rows,
                        std::int64_t cols, T* to, std::int64_t to_step) {
  constexpr std::int64_t kN = kSide<T>;
  if (rows < kN || cols < kN) {
    for (std::int64_t c = 0; c < cols; ++c) {
      for (std::int64_t r = 0; r < rows; ++r) {
        std::memcpy(to + c * to_step + r, from + r * from_step + c, sizeof(T));
      }
    }
    return;
  }
  const auto tile = [&](std::int64_t r, std::int64_t c) HWY_ATTR {
    const std::int64_t row = std::min(r, rows - kN), col = std::min(c, cols - kN);
    transpose_tile(from + row * from_step + col, from_step, to + col * to_step + row, to_step);
  };
  // Squares of cache lines, so that both matrices are touched a line at a time: rows may be pages
  // apart. Those of the matrix in memory come in the order of its rows.
  const bool along_from = order == Along::From;
  const std::int64_t outer = along_from ? rows : cols, inner = along_from ? cols : rows;
  const T* memory = along_from ? from : to;
  const std::int64_t step = along_from ? from_step : to_step;
  const std::int64_t row_bytes = inner * static_cast<std::int64_t>(sizeof(T));
  const std::int64_t later = (kAheadBytes / row_bytes / kLine<T> + 1) * kLine<T>;
  for (std::int64_t i = 0; i < outer; i += kLine<T>) {
    const std::int64_t end = std::min(i + kLine<T>, outer);
    for (std::int64_t j = 0; j < inner; j += kLine<T>) {
      const std::int64_t last = std::min(j + kLine<T>, inner);
      for (std::int64_t k = i + later; k < std::min(end + later, outer); ++k) {
        __builtin_prefetch(memory + k * step + j, 0, 3);
      }
      for (std::int64_t y = j; y < last; y += kN) {
        for (std::int64_t x = i; x < end; x += kN) along_from ? tile(x, y) : tile(y, x);
      }
    }
  }
}

void transpose_words_target(Along order, std::size_t word_bytes, const void* from,
                            std::int64_t from_step, std::int64_t rows, std::int64_t cols, void* to,
                            std::int64_t to_step) {
  const auto as = [&](auto word) {
    using T = decltype(word);
    transpose(order, static_cast<const T*>(from), from_step, rows, cols, static_cast<T*>(to),
              to_step);
  };
  switch (word_bytes) {
    case 1: return as(std::uint8_t{});
    case 2: return as(std::uint16_t{});
    case 4: return as(std::uint32_t{});
    default: return as(std::uint64_t{});
  }
}

}  // namespace tuckfold::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tuckfold {

HWY_EXPORT(transpose_words_target);

void transpose_words(Along order, std::size_t word_bytes, const void* from, std::int64_t from_step,
                     std::int64_t rows, std::int64_t cols, void* to,
                     std::int64_t to_step) noexcept {
  HWY_DYNAMIC_DISPATCH(transpose_words_target)
  (order, word_bytes, from, from_step, rows, cols, to, to_step);
}

}  // namespace tuckfold
#endif  // HWY_ONCE
