// The cost of a graph: operations and memory.
#pragma once

#include <cstdint>

#include "portable/graph.h"

namespace tuckfold::portable {

struct Count {
  std::int64_t products = 0;  // MatMul operators
  std::int64_t flops = 0;     // multiplications and additions of these: eq. 5 and 7 of the paper
  std::int64_t in_bytes = 0, out_bytes = 0;
  std::int64_t constant_bytes = 0;  // matrices as the device holds them
  // The most memory in use at once, with static memory for every value: inputs and constants stay,
  // others until their last use; a reshape is free.
  std::int64_t peak_bytes = 0;
  // The largest matrix that a product takes or gives, in bytes and by its longer side.
  std::int64_t matrix_bytes = 0, matrix_side = 0;
};
Count count(const Graph& graph);

std::int64_t bytes_of(const Value& value);

}  // namespace tuckfold::portable
