#include "portable/operators.h"

#include <algorithm>
#include <array>

#include "base/fail.h"

namespace tuckfold::portable {
namespace {

using Names = std::vector<std::string_view>;

constexpr std::array<std::string_view, 23> kAll = {
    "matmul",  "add",     "sub",   "mul",    "div",  "abs",    "floor",  "round",
    "clamp",   "greater", "where", "max",    "min",  "sum",    "cast",   "reshape",
    "permute", "cat",     "slice", "expand", "fill", "gather", "scatter"};

// PyTorch's gather takes an index for every value, which expand makes of one for all; ONNX's Gather
// takes that one.
Names names_of(Op op, bool onnx) {
  switch (op) {
    case Op::MatMul: return {"matmul"};
    case Op::Add: return {"add"};
    case Op::Sub: return {"sub"};
    case Op::Mul: return {"mul"};
    case Op::Div: return {"div"};
    case Op::Abs: return {"abs"};
    case Op::Floor: return {"floor"};
    case Op::Round: return {"round"};
    case Op::Clamp: return {"clamp"};
    case Op::Where: return {"greater", "where"};
    case Op::Max: return {"max"};
    case Op::Min: return {"min"};
    case Op::Sum: return {"sum"};
    case Op::Cast: return {"cast"};
    case Op::Reshape: return {"reshape"};
    case Op::Permute: return {"permute"};
    case Op::Cat: return {"cat"};
    case Op::Slice: return {"slice"};
    case Op::Gather:
    case Op::Lookup: return onnx ? Names{"gather"} : Names{"expand", "gather"};
    case Op::Pick: return {"gather"};
    case Op::Scatter: return {"fill", "expand", "scatter"};
  }
  fail(Errc::Internal, "[export] an operator without a name");
}

}  // namespace

std::span<const std::string_view> all_operators() { return kAll; }

std::vector<std::string_view> operators_of(const Graph& graph, Target target) {
  Names found;
  const auto add = [&](const Names& names) {
    for (const std::string_view name : names) {
      if (std::find(found.begin(), found.end(), name) == found.end()) found.push_back(name);
    }
  };
  const bool onnx = target == Target::Onnx;
  if (onnx && builds_matrices(graph)) {
    for (const Constant& constant : graph.constants()) {
      if (constant.copies > 0) add({"mul", "reshape"});
      if (constant.copies > 0 && !constant.last.values.empty()) add({"cat"});
    }
  }
  for (const Node& node : graph.nodes()) add(names_of(node.op, onnx));
  return found;
}

}  // namespace tuckfold::portable
