// Codecs as graphs of plain operators: dct_chop, block_quant(bits=8), chains of the two, and the
// decoder of dct_quant.
//
//   const Graph pack = pack_graph(spec, DType::F32, {100, 3, 256, 256});
//
// A graph packs what the library packs, to rounding: for dct_chop the packed tensor itself.
// block_quant has two tensors, `codes` (u8) and `headers` (f32, a scale and a minimum for each
// group, both exact in bf16): the library's bytes are the codes followed by the upper halves of the
// headers.
#pragma once

#include "portable/count.h"
#include "portable/graph.h"
#include "tuckfold/codec.h"

namespace tuckfold::portable {

// Both throw Unsupported where a stage cannot be written in plain operators, naming it and why, and
// InvalidArgument where the tensor does not fit the codec or has no f32, f16 or bf16.
Graph pack_graph(const CodecSpec& spec, DType dtype, const Shape& shape);
Graph unpack_graph(const CodecSpec& spec, DType dtype, const Shape& shape);

// The plane that dct_chop sees of a shape: trailing axes folded until both sides reach a block.
struct Plane {
  std::int64_t rows, cols;
};
Plane plane_of(const Stage& stage, const Shape& shape);

// Bounds from below of a graph's peak_bytes, matrix_bytes and matrix_side, without the graph, which
// takes long to make where there are many tiles. Zeros for a codec that does not begin with dct_chop.
Count least_count(const CodecSpec& spec, DType dtype, const Shape& shape, bool packs);

// ---- what the codecs add to a graph; each file has one ------------------------------------------

// Coefficients of x, of Stage `dct_chop`, in the shape and dtype of its Layout; and back.
Id add_dct_chop(Graph& graph, const Stage& stage, Id x);
Id add_dct_chop_back(Graph& graph, const Stage& stage, Id packed, DType dtype, const Shape& shape);

// f32 as the library stores coefficients: those that f16 cannot hold become its largest number.
Id stored_coefs(Graph& graph, std::string_view name, Id coefs, DType dtype);

// Codes and headers of all values of x; and back to `shape`, in f32.
struct Quantized {
  Id codes, headers;
};
Quantized add_block_quant(Graph& graph, const Stage& stage, Id x);
Id add_block_quant_back(Graph& graph, const Stage& stage, Quantized packed, const Shape& shape);
// The shapes of both for so many values.
struct QuantizedShape {
  Shape codes, headers;
};
QuantizedShape quantized_shape(const Stage& stage, std::int64_t elems);

Id add_dct_quant_back(Graph& graph, const Stage& stage, Id packed, DType dtype, const Shape& shape);

}  // namespace tuckfold::portable
