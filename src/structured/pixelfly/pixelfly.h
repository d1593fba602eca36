// Which blocks a flat block butterfly has.
#pragma once

#include <cstdint>
#include <vector>

namespace tuckfold::structured {

struct PixelflyBlock {
  std::int64_t out, in;  // block row, block column
};

// A butterfly of `size` x `size` cells, where row i has columns i and i xor 2^k for k below `factors`
// (all of them for 0), is stretched over the blocks of an out x in matrix. Sizes need be no powers of
// two: the cells take a block more or less, the last blocks are cut. Ordered by column, then by row.
std::vector<PixelflyBlock> pixelfly_blocks(std::int64_t block, std::int64_t size,
                                           std::int64_t factors, std::int64_t in, std::int64_t out);

}  // namespace tuckfold::structured
