// Graphs: shapes that follow, names that are unique, and what is counted on them.
#include "portable/graph.h"

#include <gtest/gtest.h>

#include <functional>

#include "portable/count.h"
#include "portable/protobuf.h"
#include "tuckfold/error.h"

namespace tuckfold::portable {
namespace {

TEST(Graph, InfersShapes) {
  Graph graph("Pack");
  const Id x = graph.input("x", DType::F32, {5, 3, 16, 24});
  const Id rhs = graph.floats("rhs", {24, 6}, std::vector<float>(144));
  EXPECT_EQ(graph[graph.matmul("a", x, rhs)].shape, (Shape{5, 3, 16, 6}));
  const Id lhs = graph.floats("lhs", {4, 16}, std::vector<float>(64));
  EXPECT_EQ(graph[graph.matmul("b", lhs, x)].shape, (Shape{5, 3, 4, 24}));
  EXPECT_EQ(graph[graph.unary("c", Op::Max, x)].shape, (Shape{5, 3, 16, 1}));
  EXPECT_EQ(graph[graph.permute("d", x, {3, 0, 1, 2})].shape, (Shape{24, 5, 3, 16}));
  const Id top = graph.slice("e", x, -2, 0, 8), rest = graph.slice("f", x, -2, 8, 16);
  EXPECT_EQ(graph[top].shape, (Shape{5, 3, 8, 24}));
  EXPECT_EQ(graph[graph.cat("g", {top, rest}, -2)].shape, (Shape{5, 3, 16, 24}));
  const Id some = graph.gather("h", x, graph.wholes("places", {0, 5, 7}));
  EXPECT_EQ(graph[some].shape, (Shape{5, 3, 16, 3}));
  EXPECT_EQ(graph[graph.scatter("i", some, graph.wholes("places", {0, 5, 7}), 24)].shape,
            (Shape{5, 3, 16, 24}));
  const Id column = graph.reshape("j", x, {15, 384, 1});
  EXPECT_EQ(
      graph[graph.binary("k", Op::Add, column, graph.floats("row", {8}, std::vector<float>(8)))]
          .shape,
      (Shape{15, 384, 8}));
}

TEST(Graph, LeavesOutWhatChangesNothing) {
  Graph graph("Pack");
  const Id x = graph.input("x", DType::F32, {4, 8});
  EXPECT_EQ(graph.cast("same", x, DType::F32), x);
  EXPECT_EQ(graph.reshape("same", x, {4, 8}), x);
  EXPECT_EQ(graph.slice("same", x, -1, 0, 8), x);
  EXPECT_EQ(graph.cat("same", {x}, -1), x);
  EXPECT_TRUE(graph.nodes().empty());
}

TEST(Graph, NamesAreUnique) {
  Graph graph("Pack");
  const Id x = graph.input("x", DType::F32, {4, 8});
  const Id a = graph.unary("y", Op::Abs, x), b = graph.unary("y", Op::Abs, x);
  EXPECT_EQ(graph[a].name, "y");
  EXPECT_EQ(graph[b].name, "y_2");
  graph.rename(b, "x");
  EXPECT_EQ(graph[b].name, "x_2");
  EXPECT_EQ(graph[graph.unary("x_2", Op::Abs, x)].name, "x_2_2");
}

TEST(Graph, OperandsThatDoNotFitAreABug) {
  Graph graph("Pack");
  const Id x = graph.input("x", DType::F32, {4, 8});
  for (const auto& call : std::vector<std::function<void()>>{
           [&] { graph.matmul("a", x, x); },
           [&] {
             graph.reshape("a", x, {4, 9});
           },
           [&] { graph.slice("a", x, -1, 4, 9); },
           [&] {
             graph.binary("a", Op::Add, x, graph.floats("b", {3}, {1, 2, 3}));
           }}) {
    try {
      call();
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::Internal);
    }
  }
}

TEST(Graph, ABlockDiagonalMatrixHasItsBlocksAndZeros) {
  const Matrix block{.rows = 1, .cols = 2, .values = {1, 2}},
      last{.rows = 1, .cols = 1, .values = {3}};
  EXPECT_EQ((Constant{.block = block, .last = last, .copies = 2}.dense()),
            (std::vector<float>{1, 2, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 3}));
}

TEST(Count, MemoryIsWhatLivesAtOnce) {
  Graph graph("Pack");
  const Id x = graph.input("x", DType::F32, {10, 8});                    // 320 bytes, to the end
  const Id half = graph.floats("half", {8, 4}, std::vector<float>(32));  // 128 bytes, to the end
  const Id a = graph.matmul("a", x, half);                               // 160, until b
  const Id flat = graph.reshape("flat", a, {40});                        // free
  const Id b = graph.unary("b", Op::Abs, flat);                          // 160, until c
  const Id c = graph.cast("c", b, DType::U8);                            // 40
  graph.output(c);
  const Count sizes = count(graph);
  EXPECT_EQ(sizes.peak_bytes, 320 + 128 + 160 + 160);
  EXPECT_EQ(sizes.in_bytes, 320);
  EXPECT_EQ(sizes.out_bytes, 40);
  EXPECT_EQ(sizes.constant_bytes, 128);
  EXPECT_EQ(sizes.products, 1);
  EXPECT_EQ(sizes.flops, 10 * 4 * (2 * 8 - 1));
  EXPECT_EQ(sizes.matrix_bytes, 320);
  EXPECT_EQ(sizes.matrix_side, 10);
}

// 150 takes two bytes: the example of the format's own documentation.
TEST(Protobuf, WritesVarintsAndLengths) {
  Message inner, outer;
  inner.number(1, 150);
  EXPECT_EQ(inner.bytes(), std::string("\x08\x96\x01"));
  outer.text(2, "testing");
  outer.message(3, inner);
  EXPECT_EQ(outer.bytes(), std::string("\x12\x07testing\x1a\x03\x08\x96\x01"));
  Message negative;
  negative.number(1, static_cast<std::uint64_t>(std::int64_t{-1}));
  EXPECT_EQ(negative.bytes(), "\x08" + std::string(9, '\xff') + "\x01");
}

}  // namespace
}  // namespace tuckfold::portable
