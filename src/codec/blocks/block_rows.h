// A tensor as matrices cut into square blocks, and its rows of blocks ("block rows") as f32: shared
// by codecs that transform blocks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "base/strided.h"

namespace tuckfold {

// How a shape's trailing axes fold together until both sides of a plane reach a block; the sides
// are shorter where they cannot.
struct Folding {
  std::size_t leading;  // how many axes remain before the plane's two
  std::int64_t rows, cols;

  static Folding of(int block, const Shape& shape);
};

// The tensor as `planes` matrices of rows x cols, cut into blocks; edges are padded to whole
// blocks.
struct Blocks {
  int block;
  std::int64_t planes, rows, cols;
  std::int64_t block_rows, block_cols;
  std::size_t leading;  // how many axes of the shape remain before the plane's two

  // Throws InvalidArgument if the shape does not fold, with what to use instead.
  static Blocks of(std::string_view codec, int block, const Shape& shape, std::string_view remedy);
  std::int64_t all_block_rows() const { return planes * block_rows; }
  std::int64_t padded_cols() const { return block_cols * block; }
  // The first row of a block row among all rows of all planes.
  std::int64_t first_row(std::int64_t block_row) const {
    return block_row / block_rows * rows + block_row % block_rows * block;
  }
};

// The arguments of a kernel, which works on a range of block rows.
template <class Params>
struct PackBlockRows {
  Params params;
  Blocks blocks;
  const FlatReader* in;
  std::byte* out;
  bool stream;  // whether the output is too large to be read from cache soon
};
template <class Params>
struct UnpackBlockRows {
  Params params;
  Blocks blocks;
  const std::byte* in;
  const FlatWriter* out;
  bool stream;
};

inline constexpr std::int64_t kBlockRowFloats = 8192;  // of one block row, worked on at a time

// Part of a block row: `cols` columns from `first` on, padded to whole blocks.
struct BlockRowPart {
  std::int64_t plane_row;   // index of the block row's first row among all rows of all planes
  std::int64_t valid_rows;  // rows that exist, at most block
  std::int64_t first, valid_cols, cols;
};

template <class Visit>
void for_each_part(const Blocks& b, std::int64_t block_row, Visit&& visit) {
  const std::int64_t row = block_row % b.block_rows * b.block;
  const std::int64_t step = kBlockRowFloats / b.block;
  for (std::int64_t first = 0; first < b.cols; first += step) {
    const std::int64_t valid = std::min(step, b.cols - first);
    visit(BlockRowPart{.plane_row = b.first_row(block_row),
                       .valid_rows = std::min<std::int64_t>(b.block, b.rows - row),
                       .first = first,
                       .valid_cols = valid,
                       .cols = (valid + b.block - 1) / b.block * b.block});
  }
}

// The addresses of the part's rows if they are contiguous whole blocks of f32; else false.
template <class View, class Float>
bool direct_rows(const View& view, const Blocks& b, const BlockRowPart& part, Float** rows) {
  if (view.dtype() != DType::F32 || part.valid_rows < b.block || part.valid_cols < part.cols)
    return false;
  const std::int64_t begin = part.plane_row * b.cols + part.first;
  auto* all = static_cast<Float*>(view.dense(begin, (b.block - 1) * b.cols + part.cols));
  for (int r = 0; r < b.block; ++r) {
    rows[r] = all != nullptr ? all + r * b.cols
                             : static_cast<Float*>(view.dense(begin + r * b.cols, part.cols));
    if (rows[r] == nullptr) return false;
  }
  return true;
}

// Rows and columns past the edge repeat the last ones.
inline void gather_rows(const FlatReader& in, const Blocks& b, const BlockRowPart& part,
                        float* buffer, const float** rows) {
  const bool at_once = part.cols == b.cols;  // rows are contiguous
  if (at_once) in.gather(part.plane_row * b.cols, part.valid_rows * b.cols, buffer);
  for (int r = 0; r < b.block; ++r) {
    float* row = buffer + r * part.cols;
    if (r >= part.valid_rows) {
      std::memcpy(row, row - part.cols, static_cast<std::size_t>(part.cols) * sizeof(float));
    } else if (!at_once) {
      in.gather((part.plane_row + r) * b.cols + part.first, part.valid_cols, row);
      std::fill(row + part.valid_cols, row + part.cols, row[part.valid_cols - 1]);
    }
    rows[r] = row;
  }
}

// The reverse of gather_rows; rows and columns past the edge are dropped.
inline void scatter_rows(const FlatWriter& out, const Blocks& b, const BlockRowPart& part,
                         const float* const* rows, bool stream) {
  if (part.cols == b.cols && rows[1] - rows[0] == part.cols) {  // contiguous
    return out.scatter(part.plane_row * b.cols, part.valid_rows * b.cols, rows[0], stream);
  }
  for (int r = 0; r < part.valid_rows; ++r) {
    out.scatter((part.plane_row + r) * b.cols + part.first, part.valid_cols, rows[r]);
  }
}

// ---- narrow planes: several block rows side by side ---------------------------------------------

// Blocks of small planes, as 14 x 14, are too few in a block row to be worth a call. A tile is
// `count` block rows from `first` on, side by side and padded: `block` rows of values.
inline constexpr std::int64_t kTileFloats = 2048;  // at most: a tile and its values stay in cache
inline constexpr std::int64_t kCopyFloats = 4;  // copied at a time, past the end of a row as well
inline constexpr std::int64_t kCopySlack = 16;  // what buffers of values have for that
inline constexpr std::int64_t kLongCopy = 32;   // from here on memcpy is quicker

// How many block rows make a tile; 1: the plane needs none.
inline std::int64_t tile_block_rows(const Blocks& b) {
  return b.padded_cols() == b.cols
             ? 1
             : std::max<std::int64_t>(kTileFloats / (b.block * b.padded_cols()), 1);
}

// Some floats, and up to `slack` more where that is quicker.
inline void copy_floats(const float* from, std::int64_t count, float* to,
                        std::int64_t slack = kCopySlack) {
  if (count >= kLongCopy || slack < kCopyFloats) {
    std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(float));
    return;
  }
  for (std::int64_t i = 0; i < count; i += kCopyFloats) {
    std::memcpy(to + i, from + i, kCopyFloats * sizeof(float));
  }
}

// `tile` has room for kTileFloats, `flat` for kCopySlack more.
inline void gather_tile(const FlatReader& in, const Blocks& b, std::int64_t first,
                        std::int64_t count, float* flat, float* tile) {
  const std::int64_t cols = b.padded_cols(), row = count * cols;
  const std::int64_t begin = b.first_row(first) * b.cols;
  const std::int64_t elems = b.first_row(first + count) * b.cols - begin;
  const float* from = nullptr;
  if (in.dtype() == DType::F32) {
    from = static_cast<const float*>(in.dense(begin, elems));
    if (from == nullptr) from = static_cast<const float*>(in.in_thread_panel(begin, elems));
  }
  const bool direct = from != nullptr;
  if (!direct) {
    in.gather(begin, elems, flat);
    from = flat;
  }
  const float* end = from + elems + (direct ? 0 : kCopySlack);
  for (std::int64_t k = 0; k < count; ++k, tile += cols) {
    const std::int64_t valid = b.first_row(first + k + 1) - b.first_row(first + k);
    for (std::int64_t r = 0; r < b.block; ++r) {
      float* to = tile + r * row;
      if (r < valid) {
        copy_floats(from, b.cols, to, end - from - b.cols);
        std::fill(to + b.cols, to + cols, from[b.cols - 1]);
        from += b.cols;
      } else {
        copy_floats(to - row, cols, to);  // a multiple of kCopyFloats
      }
    }
  }
}

// The reverse; what lies past the edge is dropped.
inline void scatter_tile(const FlatWriter& out, const Blocks& b, std::int64_t first,
                         std::int64_t count, const float* tile, bool stream, float* flat) {
  const std::int64_t cols = b.padded_cols(), row = count * cols;
  const std::int64_t begin = b.first_row(first) * b.cols;
  const std::int64_t elems = b.first_row(first + count) * b.cols - begin;
  auto* to =
      static_cast<float*>(out.dtype() == DType::F32 && !stream ? out.dense(begin, elems) : nullptr);
  const bool direct = to != nullptr;
  if (!direct) to = flat;
  const float* end = to + elems + (direct ? 0 : kCopySlack);
  for (std::int64_t k = 0; k < count; ++k, tile += cols) {
    const std::int64_t valid = b.first_row(first + k + 1) - b.first_row(first + k);
    for (std::int64_t r = 0; r < valid; ++r, to += b.cols) {
      copy_floats(tile + r * row, b.cols, to, end - to - b.cols);
    }
  }
  if (!direct) out.scatter(begin, elems, flat, stream);
}

}  // namespace tuckfold
