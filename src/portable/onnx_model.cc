// ONNX models. Field numbers are those of onnx.proto, which also names the types.
#include <algorithm>
#include <cstring>
#include <set>

#include "base/fail.h"
#include "portable/count.h"
#include "portable/protobuf.h"
#include "portable/targets.h"
#include "tuckfold/version.h"

namespace tuckfold::portable {
namespace {

// With so many bytes of matrices beside its operators a model stays below 1 MB.
constexpr std::int64_t kDenseBytes = 900'000, kLeastDenseBytes = 100'000, kNodeBytes = 60;
constexpr int kAxesAreInputs = 18;  // opset from which ReduceMax and ReduceMin are so

int type_of(DType dtype) {
  switch (dtype) {
    case DType::F32: return 1;
    case DType::U8: return 2;
    case DType::I64: return 7;
    case DType::F16: return 10;
    case DType::BF16: return 16;
    default: break;
  }
  fail(Errc::Internal, "[export] {} has no type here", to_string(dtype));
}

template <class T>
std::string raw(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

class Model {
 public:
  Model(const Graph& graph, int opset)
      : graph_(graph), opset_(opset), dense_(!builds_matrices(graph)) {}

  Message build() {
    for (std::size_t i = 0; i < graph_.values().size(); ++i) {
      if (graph_.values()[i].constant >= 0) add_constant(graph_.values()[i]);
    }
    for (const Node& node : graph_.nodes()) add(node);
    for (const Message& node : nodes_) message_.message(1, node);
    message_.text(2, graph_.name());
    for (const Message& one : initializers_) message_.message(5, one);
    for (const Id id : graph_.inputs()) message_.message(11, info(graph_[id]));
    for (const Id id : graph_.outputs()) message_.message(12, info(graph_[id]));
    return message_;
  }

 private:
  static Message info(const Value& value) {
    Message shape, tensor, type, result;
    for (const std::int64_t axis : value.shape) {
      Message dim;
      dim.number(1, static_cast<std::uint64_t>(axis));
      shape.message(1, dim);
    }
    tensor.number(1, static_cast<std::uint64_t>(type_of(value.dtype)));
    tensor.message(2, shape);
    type.message(1, tensor);
    result.text(1, value.name);
    result.message(2, type);
    return result;
  }

  std::string tensor(const std::string& name, DType dtype, const Shape& shape,
                     std::string_view data) {
    Message result;
    for (const std::int64_t axis : shape) result.number(1, static_cast<std::uint64_t>(axis));
    result.number(2, static_cast<std::uint64_t>(type_of(dtype)));
    result.text(8, name);
    result.text(9, data);
    initializers_.push_back(std::move(result));
    return name;
  }
  void wholes(const std::string& name, const std::vector<std::int64_t>& values) {
    tensor(name, DType::I64, {static_cast<std::int64_t>(values.size())}, raw(values));
  }
  // Shapes, axes and ends of slices: each value once, however many operators take it.
  std::string shared(const std::vector<std::int64_t>& values) {
    const std::string name = fmt::format("int.{}", fmt::join(values, "_"));
    if (shared_.insert(name).second) wholes(name, values);
    return name;
  }
  std::string floats(const std::string& name, const Shape& shape,
                     const std::vector<float>& values) {
    return tensor(name, DType::F32, shape, raw(values));
  }

  // Attributes are whole numbers, one or several.
  struct Attribute {
    const char* name;
    std::vector<std::int64_t> values;
    bool list = false;
  };
  std::string node(const char* op, const std::vector<std::string>& inputs,
                   const std::string& output, const std::vector<Attribute>& attributes = {}) {
    Message result;
    for (const std::string& input : inputs) result.text(1, input);
    result.text(2, output);  // which is unique, so that the node needs no name
    result.text(4, op);
    for (const Attribute& attribute : attributes) {
      Message one;
      one.text(1, attribute.name);
      for (const std::int64_t value : attribute.values) {
        one.number(attribute.list ? 8 : 3, static_cast<std::uint64_t>(value));
      }
      one.number(20, attribute.list ? 7 : 2);
      result.message(5, one);
    }
    nodes_.push_back(std::move(result));
    return output;
  }

  // Block-diagonal matrices: the products of an identity's entries with a block's.
  std::string diagonal(const std::string& name, const Matrix& block, std::int64_t copies) {
    std::vector<float> identity(static_cast<std::size_t>(copies * copies));
    for (std::int64_t i = 0; i < copies; ++i)
      identity[static_cast<std::size_t>(i * (copies + 1))] = 1;
    const std::string ones = floats(name + ".identity", {copies, 1, copies, 1}, identity);
    const std::string values =
        floats(name + ".block", {1, block.rows, 1, block.cols}, block.values);
    const std::string spread = node("Mul", {ones, values}, name + ".spread");
    return node("Reshape", {spread, shared({copies * block.rows, copies * block.cols})}, name);
  }

  void add_constant(const Value& value) {
    const Constant& constant = graph_.constants()[static_cast<std::size_t>(value.constant)];
    const std::string& name = value.name;
    if (!constant.wholes.empty()) {
      wholes(name, constant.wholes);
    } else if (dense_ || constant.copies == 0) {
      floats(name, value.shape, constant.dense());
    } else if (constant.last.values.empty()) {
      diagonal(name, constant.block, constant.copies);
    } else {
      const Matrix& last = constant.last;
      const std::int64_t rows = constant.copies * constant.block.rows;
      const std::int64_t cols = constant.copies * constant.block.cols;
      const std::string whole = diagonal(name + ".whole", constant.block, constant.copies);
      const auto zeros = [&](const char* where, std::int64_t r, std::int64_t c) {
        return floats(name + where, {r, c}, std::vector<float>(static_cast<std::size_t>(r * c)));
      };
      const Attribute along{"axis", {1}};
      const std::string above =
          node("Concat", {whole, zeros(".right", rows, last.cols)}, name + ".above", {along});
      const std::string edge = floats(name + ".edge", {last.rows, last.cols}, last.values);
      const std::string below =
          node("Concat", {zeros(".left", last.rows, cols), edge}, name + ".below", {along});
      node("Concat", {above, below}, name, {{"axis", {0}}});
    }
  }

  std::string name(Id id) const { return graph_[id].name; }
  std::vector<std::string> names(const Node& node) const {
    std::vector<std::string> result;
    for (const Id id : node.inputs) result.push_back(name(id));
    return result;
  }

  void reduce(const char* op, const Node& n, bool as_input) {
    const std::string& out = name(n.output);
    if (as_input) {
      node(op, {name(n.inputs[0]), shared({-1})}, out, {{"keepdims", {1}}});
    } else {
      node(op, names(n), out, {{"axes", {-1}, true}, {"keepdims", {1}}});
    }
  }

  void clamp(const Node& n) {
    const std::string& out = name(n.output);
    const auto bound = [&](const char* which, float value) {
      return std::isinf(value) ? std::string() : floats(out + which, {}, {value});
    };
    std::vector<std::string> inputs = {name(n.inputs[0]), bound(".low", n.low),
                                       bound(".high", n.high)};
    while (inputs.back().empty()) inputs.pop_back();
    node("Clip", inputs, out);
  }

  void scatter(const Node& n) {
    const std::string& out = name(n.output);
    const Shape &from = graph_[n.inputs[0]].shape, &to = graph_[n.output].shape;
    const std::string zeros =
        node("ConstantOfShape", {shared({to.begin(), to.end()})}, out + ".zeros");
    const std::string places =
        node("Expand", {name(n.inputs[1]), shared({from.begin(), from.end()})}, out + ".places");
    node("ScatterElements", {zeros, places, name(n.inputs[0])}, out,
         {{"axis", {static_cast<std::int64_t>(to.rank()) - 1}}});
  }

  void add(const Node& n) {
    const std::string& out = name(n.output);
    const auto last = static_cast<std::int64_t>(graph_[n.inputs[0]].shape.rank()) - 1;
    switch (n.op) {
      case Op::MatMul: node("MatMul", names(n), out); return;
      case Op::Add: node("Add", names(n), out); return;
      case Op::Sub: node("Sub", names(n), out); return;
      case Op::Mul: node("Mul", names(n), out); return;
      case Op::Div: node("Div", names(n), out); return;
      case Op::Abs: node("Abs", names(n), out); return;
      case Op::Floor: node("Floor", names(n), out); return;
      case Op::Round: node("Round", names(n), out); return;
      case Op::Clamp: clamp(n); return;
      case Op::Where: {
        const std::string greater =
            node("Greater", {name(n.inputs[0]), name(n.inputs[1])}, out + ".greater");
        node("Where", {greater, name(n.inputs[2]), name(n.inputs[3])}, out);
        return;
      }
      case Op::Max: reduce("ReduceMax", n, opset_ >= kAxesAreInputs); return;
      case Op::Min: reduce("ReduceMin", n, opset_ >= kAxesAreInputs); return;
      case Op::Sum: reduce("ReduceSum", n, true); return;
      case Op::Cast:
        node("Cast", names(n), out, {{"to", {type_of(graph_[n.output].dtype)}}});
        return;
      case Op::Reshape: node("Reshape", {name(n.inputs[0]), shared(n.axes)}, out); return;
      case Op::Permute: node("Transpose", names(n), out, {{"perm", n.axes, true}}); return;
      case Op::Cat: node("Concat", names(n), out, {{"axis", n.axes}}); return;
      case Op::Slice:
        node("Slice",
             {name(n.inputs[0]), shared({n.axes[1]}), shared({n.axes[2]}), shared({n.axes[0]})},
             out);
        return;
      case Op::Gather: node("Gather", names(n), out, {{"axis", {last}}}); return;
      case Op::Pick: node("GatherElements", names(n), out, {{"axis", {last}}}); return;
      case Op::Lookup: node("Gather", names(n), out, {{"axis", {0}}}); return;
      case Op::Scatter: scatter(n); return;
    }
  }

  const Graph& graph_;
  int opset_;
  bool dense_;
  Message message_;
  std::vector<Message> nodes_, initializers_;
  std::set<std::string> shared_;
};

Message property(const std::string& key, const std::string& value) {
  Message pair;
  pair.text(1, key);
  pair.text(2, value);
  return pair;
}

}  // namespace

bool builds_matrices(const Graph& graph) {
  std::int64_t dense = 0;
  for (const Value& value : graph.values()) {
    if (value.constant >= 0) dense += bytes_of(value);
  }
  const auto nodes = static_cast<std::int64_t>(graph.nodes().size());
  return dense > std::max(kLeastDenseBytes, kDenseBytes - kNodeBytes * nodes);
}

std::string onnx_model(const Export& codec, const Graph& graph, int opset) {
  if (opset < kMinOpset || opset > kMaxOpset) {
    invalid("[export] --opset must be {}..{}, got {}", kMinOpset, kMaxOpset, opset);
  }
  Message model, imported;
  model.number(1,
               opset < 21 ? 7 : 10);  // the IR version of that time; old runtimes refuse newer ones
  model.text(2, "tuckfold");
  model.text(3, version());
  model.message(7, Model(graph, opset).build());
  imported.text(1, "");
  imported.number(2, static_cast<std::uint64_t>(opset));
  model.message(8, imported);
  model.message(14, property("tuckfold.spec", codec.spec.print()));
  model.message(14, property("tuckfold.dtype", std::string(to_string(codec.dtype))));
  model.message(14, property("tuckfold.shape", to_string(codec.shape)));
  return model.bytes();
}

}  // namespace tuckfold::portable
