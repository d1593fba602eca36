// A codec as a list of plain tensor operators: every export target is printed from it, operations
// are counted on it, and devices are checked against it.
//
//   Graph graph("Pack");
//   const Id x = graph.input("x", DType::F32, {100, 3, 256, 256});
//   graph.output(graph.matmul("packed", lhs, graph.matmul("right", x, rhs)));
//
// Every shape is known, as accelerators want it: the methods infer it, and throw Internal where
// operands do not fit. Names are unique within a graph; a name that is taken gets a number.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tuckfold/portable.h"
#include "tuckfold/tensor.h"

namespace tuckfold::portable {

enum class Op : unsigned char {
  MatMul,
  Add,
  Sub,
  Mul,
  Div,
  Abs,
  Floor,
  Round,  // to the nearest whole number, ties to even
  Clamp,  // between Node::low and Node::high
  Where,  // (a, b, x, y): x where a > b, else y
  Max,    // over the last axis, which stays with length 1
  Min,
  Sum,
  Cast,
  Reshape,
  Permute,  // Node::axes
  Cat,      // along axis Node::axes[0], counted from the end: -1 is the last
  Slice,    // Node::axes: axis counted from the end, begin, end
  Gather,   // of the last axis, by a constant of whole numbers
  Pick,     // of the last axis, by whole numbers that were computed, a row each
  Lookup,   // of a constant of one axis, by whole numbers that were computed
  Scatter,  // to places of the last axis, which gets Node::axes[0] long; zeros elsewhere
};

using Id = int;  // of a value

// A value that is known when the graph is written. Matrices of the codec are block-diagonal:
// `copies` of `block`, followed by `last` if it has values, so that files need not hold the zeros.
struct Constant {
  std::vector<float> floats;         // row-major
  std::vector<std::int64_t> wholes;  // instead of floats
  Matrix block, last;                // instead of both
  std::int64_t copies = 0;
  std::string python;  // an expression for the values where a list of them would be long

  bool scalar = false;  // written where it is used
  std::vector<float> dense() const;
};

struct Value {
  std::string name;
  DType dtype = DType::F32;
  Shape shape;
  int constant = -1;  // index into Graph::constants
};

struct Node {
  Op op;
  std::vector<Id> inputs;
  Id output;
  std::vector<std::int64_t> axes;
  float low = -std::numeric_limits<float>::infinity();
  float high = std::numeric_limits<float>::infinity();
  std::string note;  // a comment before it, where a new part begins
};

class Graph {
 public:
  explicit Graph(std::string name) : name_(std::move(name)) {}

  Id input(std::string_view name, DType dtype, const Shape& shape);
  void output(Id value) { outputs_.push_back(value); }
  void note(std::string text) { note_ = std::move(text); }  // of the next node

  Id constant(std::string_view name, const Shape& shape, Constant values);
  Id scalar(float value);
  Id floats(std::string_view name, const Shape& shape, std::vector<float> values,
            std::string python = "");
  Id wholes(std::string_view name, std::vector<std::int64_t> values);

  Id matmul(std::string_view name, Id a, Id b);
  Id binary(std::string_view name, Op op, Id a, Id b);  // Add, Sub, Mul, Div
  Id unary(std::string_view name, Op op, Id x);         // Abs, Floor, Round, Max, Min, Sum
  Id clamp(std::string_view name, Id x, float low, float high);
  Id where_greater(std::string_view name, Id a, Id b, Id x, Id y);
  Id cast(std::string_view name, Id x, DType dtype);            // x itself where it is that already
  Id reshape(std::string_view name, Id x, const Shape& shape);  // likewise
  Id permute(std::string_view name, Id x, std::vector<std::int64_t> axes);
  Id cat(std::string_view name, std::vector<Id> parts, int axis);  // one part is returned as it is
  Id slice(std::string_view name, Id x, int axis, std::int64_t begin, std::int64_t end);
  Id gather(std::string_view name, Id x, Id wholes);
  Id pick(std::string_view name, Id x, Id places);
  Id lookup(std::string_view name, Id table, Id places);
  Id scatter(std::string_view name, Id x, Id wholes, std::int64_t length);

  const std::string& name() const { return name_; }
  const Value& operator[](Id id) const { return values_[static_cast<std::size_t>(id)]; }
  const std::vector<Value>& values() const { return values_; }
  const std::vector<Constant>& constants() const { return constants_; }
  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<Id>& inputs() const { return inputs_; }
  const std::vector<Id>& outputs() const { return outputs_; }
  const Constant* constant_of(Id id) const;
  // Renames the value that an output has: it must be a node's, and no input.
  void rename(Id id, std::string_view name);

 private:
  Id add(std::string_view name, DType dtype, const Shape& shape);
  Id add_node(std::string_view name, Op op, std::vector<Id> inputs, DType dtype, const Shape& shape,
              std::vector<std::int64_t> axes = {});
  std::string unique(std::string_view name);

  std::string name_, note_;
  std::map<std::string, int> taken_;  // names, and how often each was asked for
  std::vector<Value> values_;
  std::vector<Constant> constants_;
  std::vector<Node> nodes_;
  std::vector<Id> inputs_, outputs_;
};

}  // namespace tuckfold::portable
