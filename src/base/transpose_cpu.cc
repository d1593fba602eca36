// Tiles of a vector's rows by 16 bytes: a vector holds 16 bytes of several rows, and rows that are
// half of a square apart are interleaved: each such step moves one bit of the row's number to the
// column's, so that log2 of the square's side are a transpose.
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

template <class T>
struct Matrices {
  const T* from;
  std::int64_t from_step, from_plane;
  std::int64_t rows, cols, planes;
  T* to;
  std::int64_t to_step, to_plane;
};

template <class T>
HWY_INLINE void transpose_words_one_by_one(const T* from, std::int64_t from_step, std::int64_t rows,
                                           std::int64_t cols, T* to, std::int64_t to_step) {
  for (std::int64_t c = 0; c < cols; ++c) {
    for (std::int64_t r = 0; r < rows; ++r) {
      std::memcpy(to + c * to_step + r, from + r * from_step + c, sizeof(T));
    }
  }
}

#if HWY_TARGET == HWY_SCALAR
template <class T>
void transpose_planes(const Transposition&, const Matrices<T>& m) {
  for (std::int64_t p = 0; p < m.planes; ++p) {
    transpose_words_one_by_one(m.from + p * m.from_plane, m.from_step, m.rows, m.cols,
                               m.to + p * m.to_plane, m.to_step);
  }
}
#else
constexpr std::size_t kLineBytes = 64;
template <class T>
constexpr std::int64_t kLine = static_cast<std::int64_t>(kLineBytes / sizeof(T));
// Words of 16 bytes, and how many times 16 bytes a vector has.
template <class T>
constexpr std::int64_t kSide = 16 / static_cast<std::int64_t>(sizeof(T));
#if HWY_HAVE_SCALABLE
constexpr std::size_t kMostBlocks = 1;
#else
constexpr std::size_t kMostBlocks = std::min<std::size_t>(HWY_MAX_BYTES, kLineBytes) / 16;
#endif

template <class T, std::size_t kBlocks>
using Tag = hn::FixedTag<T, kBlocks* static_cast<std::size_t>(kSide<T>)>;

// 16 bytes of rows 0, kSide, 2 * kSide …
template <std::size_t kBlocks, class T>
HWY_INLINE hn::Vec<Tag<T, kBlocks>> load_blocks(const T* from, std::int64_t step) {
  const Tag<T, kBlocks> d;
  if constexpr (kBlocks == 1) {
    return hn::LoadU(d, from);
  } else {
    constexpr std::size_t kHalf = kBlocks / 2;
    const auto upper =
        load_blocks<kHalf>(from + static_cast<std::int64_t>(kHalf) * kSide<T> * step, step);
    return hn::Combine(d, upper, load_blocks<kHalf>(from, step));
  }
}

template <std::size_t kBlocks, class T>
using Tile = hn::Vec<Tag<T, kBlocks>>[static_cast<std::size_t>(kSide<T>)];

template <std::size_t kBlocks, class T>
HWY_INLINE void interleave(Tile<kBlocks, T>& v) {
  constexpr auto kN = static_cast<std::size_t>(kSide<T>);
  const Tag<T, kBlocks> d;
  Tile<kBlocks, T> w;
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
}

// kBlocks * kSide rows of kSide words.
template <std::size_t kBlocks, bool kStream, class T>
HWY_INLINE void transpose_tile(const T* from, std::int64_t from_step, T* to, std::int64_t to_step) {
  constexpr auto kN = static_cast<std::size_t>(kSide<T>);
  const Tag<T, kBlocks> d;
  Tile<kBlocks, T> v;
  HWY_UNROLL(16)
  for (std::size_t i = 0; i < kN; ++i) {
    v[i] = load_blocks<kBlocks>(from + static_cast<std::int64_t>(i) * from_step, from_step);
  }
  interleave<kBlocks, T>(v);
  HWY_UNROLL(16)
  for (std::size_t i = 0; i < kN; ++i) {
    T* at = to + static_cast<std::int64_t>(i) * to_step;
    if constexpr (kStream) {
      hn::Stream(v[i], d, at);
    } else {
      hn::StoreU(v[i], d, at);
    }
  }
}

// At most kSide rows and columns; reads and writes kSide words of each.
template <class T>
HWY_INLINE void transpose_part(const T* from, std::int64_t from_step, std::int64_t rows,
                               std::int64_t cols, T* to, std::int64_t to_step) {
  constexpr auto kN = static_cast<std::size_t>(kSide<T>);
  const Tag<T, 1> d;
  Tile<1, T> v;
  HWY_UNROLL(16)
  for (std::size_t i = 0; i < kN; ++i) {
    const std::int64_t row = std::min(static_cast<std::int64_t>(i), rows - 1);
    v[i] = hn::LoadU(d, from + row * from_step);
  }
  interleave<1, T>(v);
  HWY_UNROLL(16)
  for (std::size_t i = 0; i < kN; ++i) {
    if (static_cast<std::int64_t>(i) >= cols) break;
    hn::StoreU(v[i], d, to + static_cast<std::int64_t>(i) * to_step);
  }
}

// A square of whole lines, of words that are few enough for as many vectors, or half as many: each
// line is read by one load, and so once where rows compete for the cache.
template <class T>
constexpr bool kWholeSquare = kMostBlocks == 4 && sizeof(T) >= 2;

template <class T>
HWY_INLINE void transpose_whole_square(const T* from, std::int64_t from_step, T* to,
                                       std::int64_t to_step) {
  constexpr auto kN = static_cast<std::size_t>(kSide<T>);
  const Tag<T, 4> d;
  Tile<4, T> v[4];  // of four groups of rows
  HWY_UNROLL(4)
  for (std::size_t group = 0; group < 4; ++group) {
    HWY_UNROLL(4)
    for (std::size_t i = 0; i < kN; ++i) {
      v[group][i] = hn::LoadU(d, from + static_cast<std::int64_t>(group * kN + i) * from_step);
    }
    interleave<4, T>(v[group]);
  }
  // Block b of v[group][i] now has column b * kN + i of the group's rows.
  HWY_UNROLL(4)
  for (std::size_t i = 0; i < kN; ++i) {
    const auto lower = hn::ConcatLowerLower(d, v[2][i], v[0][i]);
    const auto upper = hn::ConcatUpperUpper(d, v[2][i], v[0][i]);
    const auto odd_lower = hn::ConcatLowerLower(d, v[3][i], v[1][i]);
    const auto odd_upper = hn::ConcatUpperUpper(d, v[3][i], v[1][i]);
    T* at = to + static_cast<std::int64_t>(i) * to_step;
    const std::int64_t block = static_cast<std::int64_t>(kN) * to_step;
    hn::StoreU(hn::OddEvenBlocks(hn::SwapAdjacentBlocks(odd_lower), lower), d, at);
    hn::StoreU(hn::OddEvenBlocks(odd_lower, hn::SwapAdjacentBlocks(lower)), d, at + block);
    hn::StoreU(hn::OddEvenBlocks(hn::SwapAdjacentBlocks(odd_upper), upper), d, at + 2 * block);
    hn::StoreU(hn::OddEvenBlocks(odd_upper, hn::SwapAdjacentBlocks(upper)), d, at + 3 * block);
  }
}

// Half of its rows.
template <class T>
HWY_INLINE void transpose_half_square(const T* from, std::int64_t from_step, T* to,
                                      std::int64_t to_step) {
  constexpr auto kN = static_cast<std::size_t>(kSide<T>);
  const Tag<T, 4> d;
  const Tag<T, 2> half;
  Tile<4, T> v[2];
  HWY_UNROLL(2)
  for (std::size_t group = 0; group < 2; ++group) {
    HWY_UNROLL(8)
    for (std::size_t i = 0; i < kN; ++i) {
      v[group][i] = hn::LoadU(d, from + static_cast<std::int64_t>(group * kN + i) * from_step);
    }
    interleave<4, T>(v[group]);
  }
  HWY_UNROLL(8)
  for (std::size_t i = 0; i < kN; ++i) {
    const auto even = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(v[1][i]), v[0][i]);
    const auto odd = hn::OddEvenBlocks(v[1][i], hn::SwapAdjacentBlocks(v[0][i]));
    T* at = to + static_cast<std::int64_t>(i) * to_step;
    const std::int64_t block = static_cast<std::int64_t>(kN) * to_step;
    hn::StoreU(hn::LowerHalf(half, even), half, at);
    hn::StoreU(hn::LowerHalf(half, odd), half, at + block);
    hn::StoreU(hn::UpperHalf(half, even), half, at + 2 * block);
    hn::StoreU(hn::UpperHalf(half, odd), half, at + 3 * block);
  }
}

// At most a line's rows, at most a line's columns, both at least a side: tiles at the ends overlap
// their neighbours.
template <bool kStream, class T>
HWY_INLINE void transpose_square(const T* from, std::int64_t from_step, std::int64_t rows,
                                 std::int64_t cols, T* to, std::int64_t to_step) {
  constexpr std::int64_t kN = kSide<T>;
  if constexpr (kWholeSquare<T> && !kStream) {
    if (rows == kLine<T> && cols == kLine<T>) {
      if constexpr (sizeof(T) >= 4) {
        transpose_whole_square(from, from_step, to, to_step);
      } else {
        constexpr std::int64_t kHalf = kLine<T> / 2;
        transpose_half_square(from, from_step, to, to_step);
        transpose_half_square(from + kHalf * from_step, from_step, to + kHalf, to_step);
      }
      return;
    }
  }
  for (std::int64_t y = 0; y < cols; y += kN) {
    const std::int64_t c = std::min(y, cols - kN);
    const T* at = from + c;
    T* out = to + c * to_step;
    std::int64_t r = 0;
    if constexpr (kMostBlocks == 4) {
      if (rows == 4 * kN) {
        transpose_tile<4, kStream>(at, from_step, out, to_step);
        continue;
      }
    }
    if constexpr (kMostBlocks >= 2) {
      for (; r + 2 * kN <= rows; r += 2 * kN) {
        transpose_tile<2, false>(at + r * from_step, from_step, out + r, to_step);
      }
    }
    for (; r < rows; r += kN) {
      const std::int64_t row = std::min(r, rows - kN);
      transpose_tile<1, false>(at + row * from_step, from_step, out + row, to_step);
    }
  }
}

// Prefetches the lines of matrices in the order of memory, some at a time: caches fetch ahead by
// themselves what is read in order, and tiles are not.
template <class T>
class Ahead {
 public:
  static constexpr std::int64_t kMostLines = 128;

  // Rows of a square that are longer are streams of their own, which caches see by themselves.
  static constexpr std::int64_t kWidest = 16;

  Ahead(const T* memory, std::int64_t step, std::int64_t cols, bool on)
      : row_(memory), step_(step), cols_(cols), on_(on && cols <= kWidest * kLine<T>) {
    fetch(std::min(kMostLines, kLine<T> * ((cols + kLine<T> - 1) / kLine<T>)));
  }
  // Past the end as well, where another call may go on.
  HWY_INLINE void fetch(std::int64_t lines) {
    if (!on_) return;
    for (; lines > 0; --lines) {
      __builtin_prefetch(row_ + col_, 0, 3);
      col_ += kLine<T>;
      if (col_ < cols_) continue;
      col_ = 0;
      row_ += step_;
    }
  }

 private:
  const T* row_;
  std::int64_t step_, cols_, col_ = 0;
  bool on_;
};

// Matrices of at least kSide rows and columns. Squares of cache lines, so that both matrices are
// touched a line at a time: rows may be pages apart. Those of the matrix in memory come in the
// order of its rows.
template <class T>
HWY_INLINE void transpose_large(const Transposition& job, const Matrices<T>& m) {
  constexpr std::int64_t kN = kSide<T>;
  const bool along_from = job.memory == Along::From;
  const bool stream = kMostBlocks == 4 && job.stream &&
                      reinterpret_cast<std::uintptr_t>(m.to) % kLineBytes == 0 &&
                      m.to_step % kLine<T> == 0 && m.to_plane % kLine<T> == 0;
  const bool stage =
      along_from && rows_compete(m.from_step * static_cast<std::int64_t>(sizeof(T)), kLine<T>);
  const auto square = [&](const T* from, T* to, std::int64_t r, std::int64_t c) HWY_ATTR {
    // What is left at an end may be less than a side.
    const std::int64_t row = std::min(r, m.rows - kN), rows = std::min(kLine<T>, m.rows - row);
    const std::int64_t col = std::min(c, m.cols - kN), cols = std::min(kLine<T>, m.cols - col);
    T* out = to + col * m.to_step + row;
    const T* at = from + row * m.from_step + col;
    if (stream && rows == kLine<T>) {
      return transpose_square<true>(at, m.from_step, rows, cols, out, m.to_step);
    }
    const bool whole = kWholeSquare<T> && rows == kLine<T> && cols == kLine<T>;
    if (!stage || whole)
      return transpose_square<false>(at, m.from_step, rows, cols, out, m.to_step);
    HWY_ALIGN T staged[kLine<T> * kLine<T>];
    for (std::int64_t i = 0; i < rows; ++i) {
      std::memcpy(staged + i * kLine<T>, at + i * m.from_step,
                  static_cast<std::size_t>(cols) * sizeof(T));
    }
    transpose_square<false>(staged, kLine<T>, rows, cols, out, m.to_step);
  };
  // Planes one after the other are one matrix to Ahead.
  const bool joined = m.planes == 1 || (along_from ? m.from_plane == m.rows * m.from_step
                                                   : m.to_plane == m.cols * m.to_step);
  Ahead<T> ahead = along_from ? Ahead<T>(m.from, m.from_step, m.cols, joined)
                              : Ahead<T>(m.to, m.to_step, m.rows, joined && !stream);
  for (std::int64_t p = 0; p < m.planes; ++p) {
    const T* from = m.from + p * m.from_plane;
    T* to = m.to + p * m.to_plane;
    const std::int64_t outer = along_from ? m.rows : m.cols, inner = along_from ? m.cols : m.rows;
    for (std::int64_t i = 0; i < outer; i += kLine<T>) {
      for (std::int64_t j = 0; j < inner; j += kLine<T>) {
        ahead.fetch(std::min(kLine<T>, outer - i));
        along_from ? square(from, to, i, j) : square(from, to, j, i);
      }
    }
  }
}

// Matrices with fewer rows or columns than a tile has. Tiles reach past them, into what is read but
// not stored, or what the next row or plane overwrites. The matrix in memory has nothing past its
// end, and between its rows and planes lies what is not ours: it must be dense, and what is near
// its end goes word by word.
template <class T>
HWY_INLINE void transpose_small(const Transposition& job, const Matrices<T>& m) {
  constexpr std::int64_t kN = kSide<T>;
  const bool along_from = job.memory == Along::From;
  const std::int64_t elems = m.rows * m.cols;
  // Where rows are short, what a tile stores past one of `to` must be the next one.
  const bool next_rows = m.rows >= kN || m.to_step == m.rows;
  const bool next_planes =
      m.planes == 1 || (along_from ? m.from_plane == elems : m.to_plane == elems);
  const bool dense =
      next_rows && next_planes && (along_from ? m.from_step == m.cols : m.to_step == m.rows);
  for (std::int64_t p = 0; p < m.planes; ++p) {
    const T* from = m.from + p * m.from_plane;
    T* to = m.to + p * m.to_plane;
    const std::int64_t left = (m.planes - p) * elems;  // of dense memory, from here on
    for (std::int64_t y = 0; y < m.cols; y += kN) {
      const std::int64_t c = std::max<std::int64_t>(std::min(y, m.cols - kN), 0);
      for (std::int64_t x = 0; x < m.rows; x += kN) {
        const std::int64_t r = std::max<std::int64_t>(std::min(x, m.rows - kN), 0);
        const std::int64_t rows = std::min(kN, m.rows - r), cols = std::min(kN, m.cols - c);
        const T* at = from + r * m.from_step + c;
        T* out = to + c * m.to_step + r;
        const std::int64_t reach = kN + (along_from ? at - from + (rows - 1) * m.from_step
                                                    : out - to + (cols - 1) * m.to_step);
        if (dense && reach <= left) {  // steps may be negative, and so may be reach
          transpose_part(at, m.from_step, rows, cols, out, m.to_step);
        } else {
          transpose_words_one_by_one(at, m.from_step, rows, cols, out, m.to_step);
        }
      }
    }
  }
}

// 16 bytes of the rows that begin at at[0], at[kSide], at[2 * kSide] …
template <std::size_t kBlocks, class T>
HWY_INLINE hn::Vec<Tag<T, kBlocks>> load_blocks_at(const T* from, const std::int64_t* at) {
  const Tag<T, kBlocks> d;
  if constexpr (kBlocks == 1) {
    return hn::LoadU(d, from + at[0]);
  } else {
    constexpr std::size_t kHalf = kBlocks / 2;
    const auto upper =
        load_blocks_at<kHalf>(from, at + static_cast<std::int64_t>(kHalf) * kSide<T>);
    return hn::Combine(d, upper, load_blocks_at<kHalf>(from, at));
  }
}

// Dense matrices of no more rows than a tile of so many blocks has. As in transpose_small, tiles
// store past a row what the next one overwrites. The last matrix is done with care.
template <std::size_t kBlocks, class T>
HWY_INLINE void transpose_short(const Transposition& job, const Matrices<T>& m) {
  constexpr std::int64_t kN = kSide<T>, kRows = static_cast<std::int64_t>(kBlocks) * kN;
  constexpr std::int64_t kAhead = 4096 / static_cast<std::int64_t>(sizeof(T));
  const bool along_from = job.memory == Along::From;
  const std::int64_t elems = m.rows * m.cols;
  const std::int64_t reach = along_from ? (m.rows - 1) * m.from_step + std::max(m.cols, kN)
                                        : (m.cols - 1) * m.to_step + kRows;
  std::int64_t at[kRows];
  for (std::int64_t i = 0; i < kRows; ++i) at[i] = std::min(i, m.rows - 1) * m.from_step;
  const Tag<T, kBlocks> d;
  for (std::int64_t p = 0; p < m.planes; ++p) {
    const T* from = m.from + p * m.from_plane;
    T* to = m.to + p * m.to_plane;
    if (reach > (m.planes - p) * elems) {
      if (m.rows >= kN && m.cols >= kN) {
        transpose_square<false>(from, m.from_step, m.rows, m.cols, to, m.to_step);
      } else {
        transpose_words_one_by_one(from, m.from_step, m.rows, m.cols, to, m.to_step);
      }
      continue;
    }
    const T* ahead = (along_from ? from : to) + kAhead;
    for (std::int64_t i = 0; i < elems; i += kLine<T>) __builtin_prefetch(ahead + i, 0, 3);
    for (std::int64_t y = 0; y < m.cols; y += kN) {
      const std::int64_t c = std::max<std::int64_t>(std::min(y, m.cols - kN), 0);
      Tile<kBlocks, T> v;
      HWY_UNROLL(16)
      for (std::int64_t i = 0; i < kN; ++i) v[i] = load_blocks_at<kBlocks>(from + c, at + i);
      interleave<kBlocks, T>(v);
      T* out = to + c * m.to_step;
      HWY_UNROLL(16)
      for (std::int64_t i = 0; i < kN; ++i) {
        if (i >= m.cols) break;
        hn::StoreU(v[i], d, out + i * m.to_step);
      }
    }
  }
}

template <class T>
HWY_ATTR void transpose_planes(const Transposition& job, const Matrices<T>& m) {
  constexpr std::int64_t kN = kSide<T>;
  const std::int64_t elems = m.rows * m.cols;
  const bool along_from = job.memory == Along::From;
  const bool dense =
      along_from ? m.from_step == m.cols && m.from_plane == elems : m.to_plane == elems;
  if (m.planes > 1 && dense && m.to_step == m.rows) {
    if (m.rows <= kN) return transpose_short<1>(job, m);
    if constexpr (kMostBlocks >= 2) {
      if (m.rows <= 2 * kN) return transpose_short<2>(job, m);
    }
    if constexpr (kMostBlocks >= 4) {
      if (m.rows <= 4 * kN) return transpose_short<4>(job, m);
    }
  }
  if (m.rows < kN || m.cols < kN) return transpose_small(job, m);
  transpose_large(job, m);
}
#endif

void transpose_words_target(const Transposition& job) {
  const auto as = [&](auto word) {
    using T = decltype(word);
    transpose_planes<T>(
        job, {static_cast<const T*>(job.from), job.from_step, job.from_plane, job.rows, job.cols,
              job.planes, static_cast<T*>(job.to), job.to_step, job.to_plane});
  };
  switch (job.word_bytes) {
    case 1: return as(std::uint8_t{});
    case 2: return as(std::uint16_t{});
    case 4: return as(std::uint32_t{});
    default: return as(std::uint64_t{});
  }
}

}  // namespace tuckfold::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <numeric>

namespace tuckfold {

HWY_EXPORT(transpose_words_target);

void transpose_words(const Transposition& job) noexcept {
  HWY_DYNAMIC_DISPATCH(transpose_words_target)(job);
}

bool rows_compete(std::int64_t step_bytes, std::int64_t rows) noexcept {
  constexpr std::int64_t kLineBytes = 64, kSets = 64, kWays = 4;  // of eight: others need some
  if (step_bytes % kLineBytes != 0) return false;
  return rows * std::gcd(step_bytes / kLineBytes, kSets) > kWays * kSets;
}

}  // namespace tuckfold
#endif  // HWY_ONCE
