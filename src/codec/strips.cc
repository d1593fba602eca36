#include "codec/strips.h"

#include "base/fail.h"

namespace tuckfold {

Blocks Blocks::of(std::string_view codec, int block, const Shape& shape, std::string_view remedy) {
  Blocks b{.block = block,
           .planes = 1,
           .rows = 1,
           .cols = 1,
           .block_rows = 0,
           .block_cols = 0,
           .leading = shape.rank()};
  while (b.leading > 0 && b.cols < block) b.cols *= shape[--b.leading];
  while (b.leading > 0 && b.rows < block) b.rows *= shape[--b.leading];
  if (b.cols < block || b.rows < block) {
    invalid("[layout] {} needs two sides of at least {}, got {}; use {}", codec, block,
            to_string(shape), remedy);
  }
  for (std::size_t axis = 0; axis < b.leading; ++axis) b.planes *= shape[axis];
  b.block_rows = (b.rows + block - 1) / block;
  b.block_cols = (b.cols + block - 1) / block;
  return b;
}

}  // namespace tuckfold
