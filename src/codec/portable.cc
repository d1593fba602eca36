// dct_chop as matrix products: operators, ratio, operation counts.
#include "tuckfold/portable.h"

#include "base/fail.h"
#include "codec/dct_chop/dct_chop.h"
#include "codec/dct_chop/dct_chop_block.h"

namespace tuckfold {
namespace {

using dct_chop::Params;
using dct_chop::Table;
using dct_chop::Transform;

Params params_of(const char* what, const CodecSpec& spec) {
  if (spec.stages().size() != 1 || &row_of(spec.stages()[0]) != &kDctChop) {
    invalid("[{}] needs one dct_chop, got {}", what, spec.print());
  }
  const Params p = Params::of(spec.stages()[0]);
  if (p.planes) invalid("[{}] order=planes is no matrix product; use order=rows", what);
  return p;
}

// Sides of one tile of a plane, in values.
struct Tile {
  std::int64_t rows, cols;
};

// Counts of operations stay below 2^63 up to kMaxSide, and an operator below 1 GiB up to
// kMaxOperatorSide.
constexpr std::int64_t kMaxSide = std::int64_t{1} << 19;
constexpr std::int64_t kMaxOperatorSide = std::int64_t{1} << 14;

Tile tile_of(const char* what, const Params& p, std::int64_t rows, std::int64_t cols) {
  const std::int64_t step = std::int64_t{p.block} * p.serialize;
  if (rows > kMaxSide || cols > kMaxSide) {
    invalid("[{}] sides must be at most {}, got {} x {}; cut the plane into smaller ones", what,
            kMaxSide, rows, cols);
  }
  if (rows <= 0 || cols <= 0 || rows % step != 0 || cols % step != 0) {
    invalid("[{}] both sides must be multiples of block * serialize = {}, got {} x {}; pad first",
            what, step, rows, cols);
  }
  return {rows / p.serialize, cols / p.serialize};
}

// Entry [v][x] of the forward transform, or [x][v] of the inverse, from its even or odd half.
template <int N>
float entry(const Table<N>& table, int v, int x) {
  const bool mirrored = x >= N / 2;
  const float value = table[v][mirrored ? N - 1 - x : x];
  return mirrored && v % 2 == 1 ? -value : value;
}

float forward_entry(const Params& p, int v, int x) {
  if (p.transform == Transform::Zfp) return entry<4>(dct_chop::kZfpForward, v, x);
  if (p.block == 4) return entry<4>(dct_chop::kDct<4>, v, x);
  if (p.block == 8) return entry<8>(dct_chop::kDct<8>, v, x);
  return entry<16>(dct_chop::kDct<16>, v, x);
}

float inverse_entry(const Params& p, int v, int x) {
  if (p.transform == Transform::Zfp) return entry<4>(dct_chop::kZfpInverse, v, x);
  return forward_entry(p, v, x);
}

// M T_L for a side of `side` values: keep/block as many rows, one run of `block` entries in each.
template <class Entry>
Matrix operator_of(const Params& p, std::int64_t side, bool transposed, Entry&& value) {
  const std::int64_t kept = side / p.block * p.keep;
  Matrix m{.rows = transposed ? side : kept, .cols = transposed ? kept : side, .values = {}};
  m.values.resize(static_cast<std::size_t>(m.rows * m.cols));
  for (std::int64_t b = 0; b < side / p.block; ++b) {
    for (int v = 0; v < p.keep; ++v) {
      for (int x = 0; x < p.block; ++x) {
        const std::int64_t row = b * p.keep + v, col = b * p.block + x;
        m.values[static_cast<std::size_t>(transposed ? col * m.cols + row : row * m.cols + col)] =
            value(p, v, x);
      }
    }
  }
  return m;
}

// Additions and multiplications of (a x b) · (b x c).
std::int64_t product_flops(std::int64_t a, std::int64_t b, std::int64_t c) {
  return a * c * (2 * b - 1);
}

}  // namespace

MatmulForm matmul_form(const CodecSpec& spec, std::int64_t rows, std::int64_t cols) {
  const Params p = params_of("matmul_form", spec);
  if (p.triangle) {
    invalid(
        "[matmul_form] shape=triangle needs gather and scatter besides; use shape=square, got {}",
        spec.print());
  }
  const Tile tile = tile_of("matmul_form", p, rows, cols);
  if (tile.rows > kMaxOperatorSide || tile.cols > kMaxOperatorSide) {
    invalid(
        "[matmul_form] a tile's sides must be at most {}, got {} x {}; raise serialize, or cut the "
        "plane",
        kMaxOperatorSide, tile.rows, tile.cols);
  }
  MatmulForm form;
  form.tiles = std::int64_t{p.serialize} * p.serialize;
  form.tile_rows = tile.rows;
  form.tile_cols = tile.cols;
  form.lhs = operator_of(p, tile.rows, false, forward_entry);
  form.rhs = operator_of(p, tile.cols, true, forward_entry);
  form.back_lhs = operator_of(p, tile.rows, true, inverse_entry);
  form.back_rhs = operator_of(p, tile.cols, false, inverse_entry);
  form.workspace_bytes = (form.lhs.values.size() + form.rhs.values.size()) * sizeof(float);
  return form;
}

double ratio(const CodecSpec& spec) {
  const Params p = params_of("ratio", spec);
  return static_cast<double>(p.block * p.block) / p.values_per_block();
}

Flops flops(const CodecSpec& spec, std::int64_t rows, std::int64_t cols) {
  const Params p = params_of("flops", spec);
  const Tile tile = tile_of("flops", p, rows, cols);
  const std::int64_t kept_rows = tile.rows / p.block * p.keep,
                     kept_cols = tile.cols / p.block * p.keep;
  const std::int64_t tiles = std::int64_t{p.serialize} * p.serialize;
  // LHS · (A · RHS), and back RHS · (Y · LHS).
  return {.pack = tiles * (product_flops(tile.rows, tile.cols, kept_cols) +
                           product_flops(kept_rows, tile.rows, kept_cols)),
          .unpack = tiles * (product_flops(kept_rows, kept_cols, tile.cols) +
                             product_flops(tile.rows, kept_rows, tile.cols))};
}

}  // namespace tuckfold
