#include "portable/count.h"

#include <algorithm>
#include <vector>

namespace tuckfold::portable {
namespace {

void count_product(const Graph& graph, const Node& node, Count& result) {
  const Shape& out = graph[node.output].shape;
  const Shape& left = graph[node.inputs[0]].shape;
  const std::int64_t terms = left[left.rank() - 1];
  ++result.products;
  result.flops += out.elems() * (2 * terms - 1);
  for (const Id id : {node.inputs[0], node.inputs[1], node.output}) {
    const Shape& shape = graph[id].shape;
    const std::int64_t rows = shape[shape.rank() - 2], cols = shape[shape.rank() - 1];
    const auto each = static_cast<std::int64_t>(size_bytes(graph[id].dtype));
    result.matrix_bytes = std::max(result.matrix_bytes, rows * cols * each);
    result.matrix_side = std::max({result.matrix_side, rows, cols});
  }
}

// The value whose memory each value uses: a reshape shares the memory of its input.
std::vector<Id> owners(const Graph& graph) {
  std::vector<Id> owner(graph.values().size());
  for (std::size_t i = 0; i < owner.size(); ++i) owner[i] = static_cast<Id>(i);
  for (const Node& node : graph.nodes()) {
    if (node.op == Op::Reshape) {
      owner[static_cast<std::size_t>(node.output)] =
          owner[static_cast<std::size_t>(node.inputs[0])];
    }
  }
  return owner;
}

std::int64_t peak_bytes(const Graph& graph) {
  const std::vector<Id> owner = owners(graph);
  const auto owner_of = [&](Id id) {
    return static_cast<std::size_t>(owner[static_cast<std::size_t>(id)]);
  };
  const std::size_t forever = graph.nodes().size();
  std::vector<std::size_t> last(graph.values().size(), 0);
  for (std::size_t i = 0; i < forever; ++i) {
    for (const Id id : graph.nodes()[i].inputs)
      last[owner_of(id)] = std::max(last[owner_of(id)], i);
  }
  for (const Id id : graph.outputs()) last[owner_of(id)] = forever;
  for (const Id id : graph.inputs()) last[owner_of(id)] = forever;
  std::int64_t live = 0;
  for (std::size_t i = 0; i < graph.values().size(); ++i) {
    const Id id = static_cast<Id>(i);
    if (graph[id].constant >= 0) last[i] = forever;
    if (graph[id].constant >= 0) live += bytes_of(graph[id]);
  }
  for (const Id id : graph.inputs()) live += bytes_of(graph[id]);
  std::int64_t peak = live;
  for (std::size_t i = 0; i < forever; ++i) {
    const Node& node = graph.nodes()[i];
    if (owner_of(node.output) == static_cast<std::size_t>(node.output))
      live += bytes_of(graph[node.output]);
    peak = std::max(peak, live);
    std::vector<std::size_t> done;
    for (const Id id : node.inputs) {
      const std::size_t at = owner_of(id);
      if (last[at] == i && std::find(done.begin(), done.end(), at) == done.end())
        done.push_back(at);
    }
    for (const std::size_t at : done) live -= bytes_of(graph[static_cast<Id>(at)]);
  }
  return peak;
}

}  // namespace

std::int64_t bytes_of(const Value& value) {
  return value.shape.elems() * static_cast<std::int64_t>(size_bytes(value.dtype));
}

Count count(const Graph& graph) {
  Count result;
  for (const Id id : graph.inputs()) result.in_bytes += bytes_of(graph[id]);
  for (const Id id : graph.outputs()) result.out_bytes += bytes_of(graph[id]);
  for (const Value& value : graph.values()) {
    if (value.constant >= 0) result.constant_bytes += bytes_of(value);
  }
  for (const Node& node : graph.nodes()) {
    if (node.op == Op::MatMul) count_product(graph, node, result);
  }
  result.peak_bytes = peak_bytes(graph);
  return result;
}

}  // namespace tuckfold::portable
