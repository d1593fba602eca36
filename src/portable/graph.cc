#include "portable/graph.h"

#include <algorithm>

#include "base/fail.h"

namespace tuckfold::portable {
namespace {

void need(bool fits, std::string_view what, const Graph& graph) {
  if (!fits) fail(Errc::Internal, "[graph] operands of {} do not fit in {}", what, graph.name());
}

// As numpy broadcasts: axes from the last on are equal, or one of them is 1.
Shape broadcast(const Graph& graph, const Shape& a, const Shape& b) {
  const std::size_t rank = std::max(a.rank(), b.rank());
  Shape result;
  for (std::size_t i = 0; i < rank; ++i) {
    const std::size_t from_end = rank - i;
    const std::int64_t x = from_end > a.rank() ? 1 : a[a.rank() - from_end];
    const std::int64_t y = from_end > b.rank() ? 1 : b[b.rank() - from_end];
    need(x == y || x == 1 || y == 1, "a broadcast", graph);
    result.push_back(x == 1 ? y : x);
  }
  return result;
}

Shape with_last(Shape shape, std::int64_t length) {
  shape[shape.rank() - 1] = length;
  return shape;
}

void put(std::vector<float>& dense, std::int64_t width, const Matrix& block, std::int64_t row,
         std::int64_t col) {
  for (std::int64_t i = 0; i < block.rows; ++i) {
    std::copy_n(block.values.begin() + i * block.cols, block.cols,
                dense.begin() + (row + i) * width + col);
  }
}

}  // namespace

std::vector<float> Constant::dense() const {
  if (copies == 0 && last.values.empty()) return floats;
  const std::int64_t width = copies * block.cols + last.cols;
  std::vector<float> values(static_cast<std::size_t>((copies * block.rows + last.rows) * width));
  for (std::int64_t i = 0; i < copies; ++i)
    put(values, width, block, i * block.rows, i * block.cols);
  put(values, width, last, copies * block.rows, copies * block.cols);
  return values;
}

std::string Graph::unique(std::string_view name) {
  std::string text(name);
  while (true) {
    const int number = ++taken_[text];
    if (number == 1) return text;
    text = fmt::format("{}_{}", name, number);
  }
}

Id Graph::add(std::string_view name, DType dtype, const Shape& shape) {
  values_.push_back({.name = unique(name), .dtype = dtype, .shape = shape});
  return static_cast<Id>(values_.size()) - 1;
}

Id Graph::add_node(std::string_view name, Op op, std::vector<Id> inputs, DType dtype,
                   const Shape& shape, std::vector<std::int64_t> axes) {
  const Id id = add(name, dtype, shape);
  nodes_.push_back({.op = op,
                    .inputs = std::move(inputs),
                    .output = id,
                    .axes = std::move(axes),
                    .note = std::exchange(note_, "")});
  return id;
}

const Constant* Graph::constant_of(Id id) const {
  const int index = (*this)[id].constant;
  return index < 0 ? nullptr : &constants_[static_cast<std::size_t>(index)];
}

void Graph::rename(Id id, std::string_view name) {
  values_[static_cast<std::size_t>(id)].name = unique(name);
}

Id Graph::input(std::string_view name, DType dtype, const Shape& shape) {
  inputs_.push_back(add(name, dtype, shape));
  return inputs_.back();
}

Id Graph::constant(std::string_view name, const Shape& shape, Constant values) {
  const Id id = add(name, values.wholes.empty() ? DType::F32 : DType::I64, shape);
  values_.back().constant = static_cast<int>(constants_.size());
  constants_.push_back(std::move(values));
  return id;
}

Id Graph::scalar(float value) {
  Constant one{.floats = {value}};
  one.scalar = true;
  return constant("scalar", {}, std::move(one));
}

Id Graph::floats(std::string_view name, const Shape& shape, std::vector<float> values,
                 std::string python) {
  need(static_cast<std::size_t>(shape.elems()) == values.size(), name, *this);
  return constant(name, shape, {.floats = std::move(values), .python = std::move(python)});
}

Id Graph::wholes(std::string_view name, std::vector<std::int64_t> values) {
  const Shape shape{static_cast<std::int64_t>(values.size())};
  return constant(name, shape, {.wholes = std::move(values)});
}

// Leading axes broadcast; either operand may be a plain matrix.
Id Graph::matmul(std::string_view name, Id a, Id b) {
  const Shape &left = (*this)[a].shape, &right = (*this)[b].shape;
  need(left.rank() >= 2 && right.rank() >= 2 && left[left.rank() - 1] == right[right.rank() - 2],
       "matmul", *this);
  Shape rows = left, cols = right;
  rows[rows.rank() - 1] = 1;
  cols[cols.rank() - 2] = 1;
  return add_node(name, Op::MatMul, {a, b}, DType::F32, broadcast(*this, rows, cols));
}

Id Graph::binary(std::string_view name, Op op, Id a, Id b) {
  return add_node(name, op, {a, b}, (*this)[a].dtype,
                  broadcast(*this, (*this)[a].shape, (*this)[b].shape));
}

Id Graph::unary(std::string_view name, Op op, Id x) {
  const Value& value = (*this)[x];
  const bool reduces = op == Op::Max || op == Op::Min || op == Op::Sum;
  return add_node(name, op, {x}, value.dtype, reduces ? with_last(value.shape, 1) : value.shape);
}

Id Graph::clamp(std::string_view name, Id x, float low, float high) {
  const Value value = (*this)[x];
  const Id id = add_node(name, Op::Clamp, {x}, value.dtype, value.shape);
  nodes_.back().low = low;
  nodes_.back().high = high;
  return id;
}

Id Graph::where_greater(std::string_view name, Id a, Id b, Id x, Id y) {
  const Shape condition = broadcast(*this, (*this)[a].shape, (*this)[b].shape);
  const Shape chosen = broadcast(*this, (*this)[x].shape, (*this)[y].shape);
  return add_node(name, Op::Where, {a, b, x, y}, DType::F32, broadcast(*this, condition, chosen));
}

Id Graph::cast(std::string_view name, Id x, DType dtype) {
  const Value value = (*this)[x];
  return value.dtype == dtype ? x : add_node(name, Op::Cast, {x}, dtype, value.shape);
}

Id Graph::reshape(std::string_view name, Id x, const Shape& shape) {
  const Value value = (*this)[x];
  if (value.shape == shape) return x;
  need(value.shape.elems() == shape.elems(), "reshape", *this);
  return add_node(name, Op::Reshape, {x}, value.dtype, shape, {shape.begin(), shape.end()});
}

Id Graph::permute(std::string_view name, Id x, std::vector<std::int64_t> axes) {
  const Value value = (*this)[x];
  need(axes.size() == value.shape.rank(), "permute", *this);
  Shape shape;
  for (const std::int64_t axis : axes) shape.push_back(value.shape[static_cast<std::size_t>(axis)]);
  return add_node(name, Op::Permute, {x}, value.dtype, shape, std::move(axes));
}

Id Graph::cat(std::string_view name, std::vector<Id> parts, int axis) {
  if (parts.size() == 1) return parts.front();
  const Value first = (*this)[parts.front()];
  Shape shape = first.shape;
  const std::size_t at = shape.rank() - static_cast<std::size_t>(-axis);
  shape[at] = 0;
  for (const Id part : parts) {
    need((*this)[part].shape.rank() == shape.rank(), "cat", *this);
    shape[at] += (*this)[part].shape[at];
  }
  return add_node(name, Op::Cat, std::move(parts), first.dtype, shape, {axis});
}

Id Graph::slice(std::string_view name, Id x, int axis, std::int64_t begin, std::int64_t end) {
  const Value value = (*this)[x];
  Shape shape = value.shape;
  const std::size_t at = shape.rank() - static_cast<std::size_t>(-axis);
  if (begin == 0 && end == shape[at]) return x;
  need(0 <= begin && begin < end && end <= shape[at], "slice", *this);
  shape[at] = end - begin;
  return add_node(name, Op::Slice, {x}, value.dtype, shape, {axis, begin, end});
}

Id Graph::gather(std::string_view name, Id x, Id wholes) {
  const Value value = (*this)[x];
  return add_node(name, Op::Gather, {x, wholes}, value.dtype,
                  with_last(value.shape, (*this)[wholes].shape[0]));
}

Id Graph::pick(std::string_view name, Id x, Id places) {
  const Value value = (*this)[x];
  const Shape shape = (*this)[places].shape;
  need(value.shape.rank() == 2 && shape.rank() == 2 && value.shape[0] == shape[0], "pick", *this);
  return add_node(name, Op::Pick, {x, places}, value.dtype, shape);
}

Id Graph::lookup(std::string_view name, Id table, Id places) {
  need((*this)[table].shape.rank() == 1, "lookup", *this);
  return add_node(name, Op::Lookup, {table, places}, (*this)[table].dtype, (*this)[places].shape);
}

Id Graph::scatter(std::string_view name, Id x, Id wholes, std::int64_t length) {
  const Value value = (*this)[x];
  return add_node(name, Op::Scatter, {x, wholes}, value.dtype, with_last(value.shape, length),
                  {length});
}

}  // namespace tuckfold::portable
