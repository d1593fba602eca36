// The graphs of a codec in one direction or both.
#pragma once

#include <vector>

#include "portable/codec_graph.h"
#include "tuckfold/devices.h"

namespace tuckfold {

inline std::vector<portable::Graph> graphs_of(const CodecSpec& spec, DType dtype,
                                              const Shape& shape, Direction direction) {
  std::vector<portable::Graph> graphs;
  if (direction != Direction::Unpack) graphs.push_back(portable::pack_graph(spec, dtype, shape));
  if (direction != Direction::Pack) graphs.push_back(portable::unpack_graph(spec, dtype, shape));
  return graphs;
}

}  // namespace tuckfold
