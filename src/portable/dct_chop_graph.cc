// dct_chop by two products with constant matrices (eq. 4 and 6 of the paper), whatever the shape:
// edges that the library pads by repeating the last row and column are part of the matrices, since
// both padding and cropping are linear.
#include <algorithm>
#include <string>
#include <vector>

#include "base/fail.h"
#include "base/half.h"
#include "codec/dct_chop/dct_chop.h"
#include "portable/codec_graph.h"

namespace tuckfold::portable {
namespace {

using dct_chop::Params;

constexpr std::int64_t kMaxTileSide = std::int64_t{1} << 14;  // a matrix of 1 GiB

struct Geometry {
  Params params;
  Blocks blocks;
  Shape leading;  // axes before the plane's two

  Shape plane(std::int64_t rows, std::int64_t cols) const {
    Shape shape = leading;
    shape.push_back(rows);
    shape.push_back(cols);
    return shape;
  }
  // Coefficients as the paper's matrix.
  Shape matrix() const {
    return plane(blocks.block_rows * params.keep, blocks.block_cols * params.keep);
  }
};

// What to do about tiles that are too large: the least `serialize` that helps, where one does.
std::string smaller_tiles(const Params& p, const Blocks& b) {
  constexpr int kMaxSerialize = 64;
  const std::int64_t longer = std::max(b.block_rows, b.block_cols);
  for (int s = p.serialize + 1; s <= kMaxSerialize; ++s) {
    if (b.block_rows % s != 0 || b.block_cols % s != 0 || longer / s * p.block > kMaxTileSide)
      continue;
    return fmt::format("use {}serialize={}", p.planes ? "order=rows and " : "", s);
  }
  return fmt::format("no serialize cuts {} x {} blocks so small: cut the planes into smaller ones",
                     b.block_rows, b.block_cols);
}

void check_tiles(const Params& p, const Blocks& b) {
  const std::int64_t side = std::max(b.block_rows, b.block_cols) / p.serialize * p.block;
  if (side <= kMaxTileSide) return;
  invalid("[portable] a tile's sides must be at most {}, got {}; {}", kMaxTileSide, side,
          smaller_tiles(p, b));
}

Geometry geometry_of(const Stage& stage, const Shape& shape) {
  Geometry g{.params = Params::of(stage), .blocks = {}, .leading = {}};
  g.blocks = dct_chop::blocks_of(g.params, shape);
  check_tiles(g.params, g.blocks);
  for (std::size_t axis = 0; axis < g.blocks.leading; ++axis) g.leading.push_back(shape[axis]);
  return g;
}

// The four operators of one block.
MatmulForm one_block(const Params& p) {
  std::string text = "dct_chop(block=" + std::to_string(p.block) +
                     ", keep=" + std::to_string(p.keep) +
                     (p.transform == dct_chop::Transform::Zfp ? ", transform=zfp)" : ")");
  return matmul_form(CodecSpec::parse(text), p.block, p.block);
}

// How a block with only `rest` values along one side is transformed: columns of repeated values are
// added in the forward direction, and left out in the inverse one.
enum class Edge : unsigned char { AddCols, AddRows, CutRows, CutCols };

Matrix edge_of(const Matrix& m, std::int64_t rest, Edge edge) {
  const bool cols = edge == Edge::AddCols || edge == Edge::CutCols;
  const bool adds = edge == Edge::AddCols || edge == Edge::AddRows;
  Matrix result{.rows = cols ? m.rows : rest, .cols = cols ? rest : m.cols, .values = {}};
  for (std::int64_t i = 0; i < result.rows; ++i) {
    for (std::int64_t j = 0; j < result.cols; ++j) {
      const bool repeated = adds && (cols ? j : i) == rest - 1;
      double sum = 0;
      for (std::int64_t more = 0; more < (repeated ? (cols ? m.cols : m.rows) - rest + 1 : 1);
           ++more) {
        const std::int64_t row = cols ? i : i + more, col = cols ? j + more : j;
        sum += m.values[static_cast<std::size_t>(row * m.cols + col)];
      }
      result.values.push_back(static_cast<float>(sum));
    }
  }
  return result;
}

// One side of a plane, cut into `serialize` tiles: where each begins among values and among kept
// coefficients, and its matrix. Tiles share a matrix, but for the last where the side has an edge.
struct Side {
  struct Tile {
    std::int64_t begin, end, kept_begin, kept_end;
    Id matrix;
  };
  std::vector<Tile> tiles;
};

Side side_of(Graph& graph, const char* name, const Params& p, std::int64_t length,
             std::int64_t blocks, const Matrix& block, Edge edge) {
  const std::int64_t each = blocks / p.serialize, rest = length - (blocks - 1) * p.block;
  const auto matrix = [&](std::string_view called, std::int64_t copies, Matrix last) {
    const Shape shape{copies * block.rows + last.rows, copies * block.cols + last.cols};
    return graph.constant(called, shape,
                          {.block = block, .last = std::move(last), .copies = copies});
  };
  Side side;
  Id shared = -1;
  for (std::int64_t tile = 0; tile < p.serialize; ++tile) {
    const bool cut = tile + 1 == p.serialize && rest < p.block;
    if (!cut && shared < 0) shared = matrix(name, each, {});
    const Id id = cut ? matrix(p.serialize == 1 ? name : std::string(name) + "_edge", each - 1,
                               edge_of(block, rest, edge))
                      : shared;
    side.tiles.push_back({.begin = tile * each * p.block,
                          .end = cut ? length : (tile + 1) * each * p.block,
                          .kept_begin = tile * each * p.keep,
                          .kept_end = (tile + 1) * each * p.keep,
                          .matrix = id});
  }
  return side;
}

// left · x · right on each tile, one after the other.
Id products(Graph& graph, const char* name, Id x, const Side& rows, const Side& cols, bool packs) {
  const auto part = [&](std::string_view called, Id of, int axis, const Side::Tile& tile) {
    return graph.slice(called, of, axis, packs ? tile.begin : tile.kept_begin,
                       packs ? tile.end : tile.kept_end);
  };
  const bool tiled = rows.tiles.size() > 1;
  if (tiled) graph.note("Tiles one after the other, each with matrices of its own size.");
  std::vector<Id> strips;
  for (std::size_t i = 0; i < rows.tiles.size(); ++i) {
    const std::string row = tiled ? "_" + std::to_string(i) : "";
    const Id strip = part("strip" + row, x, -2, rows.tiles[i]);
    std::vector<Id> done;
    for (std::size_t j = 0; j < cols.tiles.size(); ++j) {
      const std::string at = tiled ? row + "_" + std::to_string(j) : "";
      const Id tile = part("tile" + at, strip, -1, cols.tiles[j]);
      const Id right = graph.matmul("right" + at, tile, cols.tiles[j].matrix);
      done.push_back(graph.matmul(name + at, rows.tiles[i].matrix, right));
    }
    strips.push_back(graph.cat(name + row, std::move(done), -1));
  }
  return graph.cat(name, std::move(strips), -2);
}

// The indices of a triangle's coefficients among keep x keep.
Id triangle(Graph& graph, int keep) {
  std::vector<std::int64_t> places;
  for (int row = 0; row < keep; ++row) {
    for (int col = 0; col < keep - row; ++col) places.push_back(row * keep + col);
  }
  return graph.wholes("triangle", std::move(places));
}

// The matrix of coefficients to blocks beside each other, and back.
Id to_blocks(Graph& graph, const Geometry& g, Id matrix) {
  const auto& [p, b, leading] = g;
  const Id split =
      graph.reshape("split", matrix, {b.planes, b.block_rows, p.keep, b.block_cols, p.keep});
  const Id blocks = graph.permute("blocks", split, {0, 1, 3, 2, 4});
  return graph.reshape("coefs", blocks, {b.planes, b.block_rows, b.block_cols, p.keep * p.keep});
}
Id from_blocks(Graph& graph, const Geometry& g, Id coefs) {
  const auto& [p, b, leading] = g;
  const Id blocks =
      graph.reshape("blocks", coefs, {b.planes, b.block_rows, b.block_cols, p.keep, p.keep});
  const Id split = graph.permute("split", blocks, {0, 1, 3, 2, 4});
  return graph.reshape("matrix", split, g.matrix());
}

// The packed shape, which layout() of the codec gives too.
Shape packed_shape(const Geometry& g) {
  const auto& [p, b, leading] = g;
  if (p.planes) {
    Shape shape{p.values_per_block()};
    for (const std::int64_t axis : g.plane(b.block_rows, b.block_cols)) shape.push_back(axis);
    return shape;
  }
  return p.triangle ? g.plane(b.block_rows * b.block_cols, p.values_per_block()) : g.matrix();
}

// The matrix in the order that is packed: rows, triangles, or frequency by frequency.
Id ordered(Graph& graph, const Geometry& g, Id matrix) {
  const auto& [p, b, leading] = g;
  if (p.triangle) {
    graph.note("Each block's coefficients side by side, of which the triangle stays.");
    Id kept = graph.gather("kept", to_blocks(graph, g, matrix), triangle(graph, p.keep));
    if (p.planes) kept = graph.permute("planes", kept, {3, 0, 1, 2});
    return graph.reshape("ordered", kept, packed_shape(g));
  }
  if (!p.planes) return matrix;
  graph.note("Coefficients of one frequency side by side.");
  const Id split =
      graph.reshape("split", matrix, {b.planes, b.block_rows, p.keep, b.block_cols, p.keep});
  return graph.reshape("ordered", graph.permute("planes", split, {2, 4, 0, 1, 3}), packed_shape(g));
}

Id disordered(Graph& graph, const Geometry& g, Id packed) {
  const auto& [p, b, leading] = g;
  const std::int64_t kept = p.values_per_block();
  if (p.triangle) {
    graph.note("The triangle back to its place among each block's coefficients.");
    Id blocks;
    if (p.planes) {
      const Id planes =
          graph.reshape("planes", packed, {kept, b.planes, b.block_rows, b.block_cols});
      blocks = graph.permute("kept", planes, {1, 2, 3, 0});
    } else {
      blocks = graph.reshape("kept", packed, {b.planes, b.block_rows, b.block_cols, kept});
    }
    return from_blocks(graph, g,
                       graph.scatter("coefs", blocks, triangle(graph, p.keep), p.keep * p.keep));
  }
  if (!p.planes) return packed;
  graph.note("Coefficients of one block together again.");
  const Id planes =
      graph.reshape("planes", packed, {p.keep, p.keep, b.planes, b.block_rows, b.block_cols});
  return graph.reshape("matrix", graph.permute("split", planes, {2, 3, 0, 4, 1}), g.matrix());
}

}  // namespace

Plane plane_of(const Stage& stage, const Shape& shape) {
  const Blocks blocks = dct_chop::blocks_of(Params::of(stage), shape);
  return {blocks.rows, blocks.cols};
}

// What lives while products() computes its last product or, with tiles, joins the strips: then all
// strips and what they become are there. A tensor of another type lives beside its copy in f32.
Count least_count(const CodecSpec& spec, DType dtype, const Shape& shape, bool packs) {
  const Stage& stage = spec.stages().front();
  if (stage.codec->name != "dct_chop") return {};
  const Params p = Params::of(stage);
  const Blocks b = dct_chop::blocks_of(p, shape);
  constexpr std::int64_t kF32 = sizeof(float);
  const std::int64_t blocks = b.planes * b.block_rows * b.block_cols;
  const std::int64_t values = shape.elems() * kF32, coefs = blocks * p.keep * p.keep * kF32;
  const auto each = static_cast<std::int64_t>(size_bytes(dtype));
  const std::int64_t tensor = shape.elems() * each, copy = dtype == DType::F32 ? 0 : values;
  const bool coded = spec.stages().size() > 1;  // to a byte for each coefficient
  const std::int64_t packed =
      blocks * p.values_per_block() * (coded ? 1 : static_cast<std::int64_t>(size_bytes(p.coef)));
  const bool tiled = p.serialize > 1;
  Count least;
  if (packs) {
    const std::int64_t right = b.planes * b.rows * b.block_cols * p.keep * kF32;
    least.peak_bytes = tensor + (tiled ? std::max(copy, 2 * coefs) : right + std::max(copy, coefs));
  } else {
    const std::int64_t right = b.planes * b.block_rows * p.keep * b.cols * kF32;
    least.peak_bytes = packed + values + (tiled ? values : std::max(right, copy == 0 ? 0 : tensor));
  }
  const std::int64_t rows = tiled ? b.block_rows / p.serialize * p.block : b.rows;
  const std::int64_t cols = tiled ? b.block_cols / p.serialize * p.block : b.cols;
  least.matrix_bytes = rows * cols * kF32;
  least.matrix_side = std::max(rows, cols);
  return least;
}

Id stored_coefs(Graph& graph, std::string_view name, Id coefs, DType dtype) {
  if (dtype != DType::F16) return graph.cast(name, coefs, dtype);
  graph.note("Beyond f16's largest number is that number; infinities become NaN, and NaN stays.");
  const Id limited = graph.clamp("limited", coefs, -kMaxF16, kMaxF16);
  const Id zeros = graph.binary("zero_or_nan", Op::Mul, coefs, graph.scalar(0));
  return graph.cast(name, graph.binary("storable", Op::Add, limited, zeros), dtype);
}

Id add_dct_chop(Graph& graph, const Stage& stage, Id x) {
  const Geometry g = geometry_of(stage, graph[x].shape);
  const auto& [p, b, leading] = g;
  const MatmulForm block = one_block(p);
  const Side rows = side_of(graph, "lhs", p, b.rows, b.block_rows, block.lhs, Edge::AddCols);
  const Side cols = side_of(graph, "rhs", p, b.cols, b.block_cols, block.rhs, Edge::AddRows);
  const Id planes = graph.reshape("planes_of_x", x, g.plane(b.rows, b.cols));
  const Id values = graph.cast("values", planes, DType::F32);
  const Id matrix = products(graph, "matrix", values, rows, cols, true);
  return stored_coefs(graph, "coefs_cast", ordered(graph, g, matrix), p.coef);
}

Id add_dct_chop_back(Graph& graph, const Stage& stage, Id packed, DType dtype, const Shape& shape) {
  const Geometry g = geometry_of(stage, shape);
  const auto& [p, b, leading] = g;
  const MatmulForm block = one_block(p);
  const Side rows = side_of(graph, "lhs", p, b.rows, b.block_rows, block.back_lhs, Edge::CutRows);
  const Side cols = side_of(graph, "rhs", p, b.cols, b.block_cols, block.back_rhs, Edge::CutCols);
  const Id coefs = graph.cast("coefs_f32", packed, DType::F32);
  const Id values = products(graph, "values", disordered(graph, g, coefs), rows, cols, false);
  return graph.reshape("x_shaped", graph.cast("x_cast", values, dtype), shape);
}

}  // namespace tuckfold::portable
