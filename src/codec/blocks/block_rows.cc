#include "codec/blocks/block_rows.h"

#include "base/fail.h"

namespace tuckfold {

Folding Folding::of(int block, const Shape& shape) {
  Folding folding{.leading = shape.rank(), .rows = 1, .cols = 1};
  for (std::int64_t* side : {&folding.cols, &folding.rows}) {
    while (folding.leading > 0 && *side < block) *side *= shape[--folding.leading];
  }
  return folding;
}

Blocks Blocks::of(std::string_view codec, int block, const Shape& shape, std::string_view remedy) {
  const auto [leading, rows, cols] = Folding::of(block, shape);
  if (cols < block || rows < block) {
    invalid("[layout] {} needs two sides of at least {}, got {}; use {}", codec, block,
            to_string(shape), remedy);
  }
  Blocks b{.block = block,
           .planes = 1,
           .rows = rows,
           .cols = cols,
           .block_rows = (rows + block - 1) / block,
           .block_cols = (cols + block - 1) / block,
           .leading = leading};
  for (std::size_t axis = 0; axis < leading; ++axis) b.planes *= shape[axis];
  return b;
}

}  // namespace tuckfold
