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
    visit(BlockRowPart{.plane_row = block_row / b.block_rows * b.rows + row,
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
                         const float* const* rows) {
  if (part.cols == b.cols && rows[1] - rows[0] == part.cols) {  // contiguous
    return out.scatter(part.plane_row * b.cols, part.valid_rows * b.cols, rows[0]);
  }
  for (int r = 0; r < part.valid_rows; ++r) {
    out.scatter((part.plane_row + r) * b.cols + part.first, part.valid_cols, rows[r]);
  }
}

}  // namespace tuckfold
