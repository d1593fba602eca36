// dct_chop as the matrix products of the paper, for accelerators that have nothing but MatMul.
//
//   MatmulForm form = matmul_form(CodecSpec::parse("dct_chop(keep=4, serialize=2)"), 256, 256);
//   // for each of form.tiles tiles A (tile_rows x tile_cols):
//   //   Y = lhs · A · rhs                  (eq. 4)
//   //   A' = back_lhs · Y · back_rhs       (eq. 6)
//
// "A Portable, Fast, DCT-based Compressor for AI Accelerators", HPDC 2024; equation
// numbers are its.
#pragma once

#include <cstdint>
#include <vector>

#include "tuckfold/codec.h"
#include "tuckfold/export.h"

namespace tuckfold {

// A dense row-major matrix.
struct Matrix {
  std::int64_t rows = 0, cols = 0;
  std::vector<float> values;
};

// The operators of one tile. With `serialize=s` a plane is cut into s x s tiles on block boundaries
// that are multiplied one after another, so that each operator is s*s times smaller
// (section 3.5.1).
struct MatmulForm {
  std::int64_t tiles = 1;                     // s*s
  std::int64_t tile_rows = 0, tile_cols = 0;  // of the plane's part that one product packs
  Matrix lhs, rhs;                            // pack
  Matrix back_lhs, back_rhs;                  // unpack
  std::size_t workspace_bytes = 0;            // lhs and rhs, the most that one direction holds
};

// Throws InvalidArgument unless spec is one square dct_chop and both sides are whole tiles.
TUCKFOLD_API MatmulForm matmul_form(const CodecSpec& spec, std::int64_t rows, std::int64_t cols);

// Values in per value out: block²/keep² (eq. 3), for the triangle block²/(keep(keep+1)/2).
TUCKFOLD_API double ratio(const CodecSpec& spec);

// Additions and multiplications of the dense products over one plane: eq. 5 and eq. 7 for
// rows = cols = n, and their exact counterparts for other planes and for serialize.
struct Flops {
  std::int64_t pack = 0, unpack = 0;
};
TUCKFOLD_API Flops flops(const CodecSpec& spec, std::int64_t rows, std::int64_t cols);

}  // namespace tuckfold
