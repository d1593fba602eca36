// block_quant(bits=8) in plain operators. A group's minimum is rounded down and its scale up to
// bf16, as in block_quant_block.h, without bf16, since not every accelerator has it: adding 65536 x
// and taking the excess away again leaves the eight leading bits of x. Scales are at least 2^-120.
#include <algorithm>
#include <limits>
#include <vector>

#include "codec/block_quant/block_quant.h"
#include "codec/block_quant/block_quant_block.h"
#include "portable/codec_graph.h"

namespace tuckfold::portable {
namespace {

using block_quant::Params;

// Runs of groups of one length: all whole ones, and the rest.
struct Run {
  std::int64_t begin, end;  // values
  std::int64_t groups, group;
  std::int64_t first_group;
};

std::vector<Run> runs_of(const Params& p, std::int64_t elems) {
  const std::int64_t whole = elems / p.group, rest = elems % p.group;
  std::vector<Run> runs;
  if (whole > 0) runs.push_back({0, whole * p.group, whole, p.group, 0});
  if (rest > 0) runs.push_back({whole * p.group, elems, 1, rest, whole});
  return runs;
}

// The product with 65536 is exact, so that a fused multiplication and addition changes nothing.
Id eight_bits(Graph& graph, Id x) {
  const Id high = graph.binary("high", Op::Mul, x, graph.scalar(65536));
  const Id sum = graph.binary("sum", Op::Add, high, x);
  return graph.binary("eight_bits", Op::Add, sum, graph.binary("excess", Op::Sub, x, sum));
}

// The next number of eight bits: a step is between 1/256 and 1/128 of it, and 5/4 of the smaller
// leads to a place from which the next one is nearest.
Id rounded_to(Graph& graph, std::string_view name, Id x, bool up) {
  const Id near = eight_bits(graph, x);
  const Id step =
      graph.binary("step", Op::Mul, graph.unary("size", Op::Abs, near), graph.scalar(1.25f / 256));
  const Id beyond = eight_bits(graph, graph.binary("beyond", up ? Op::Add : Op::Sub, near, step));
  return up ? graph.where_greater(name, x, near, beyond, near)
            : graph.where_greater(name, near, x, beyond, near);
}

// Below 2^-126 bf16 has steps of 2^-133, whatever the size. A sum with kWhole has those steps, too.
Id rounded_down(Graph& graph, std::string_view name, Id x) {
  constexpr float kLargestTiny = 0x1p-126f - 0x1p-149f, kStep = 0x1p-133f, kWhole = 0x1.8p-110f;
  const Id whole = graph.scalar(kWhole);
  const Id near = graph.binary("tiny", Op::Sub, graph.binary("tiny_sum", Op::Add, x, whole), whole);
  const Id beyond = graph.binary("tiny_beyond", Op::Sub, near, graph.scalar(kStep));
  const Id tiny = graph.where_greater("tiny_rounded", near, x, beyond, near);
  const Id ordinary = rounded_to(graph, "rounded_minimum", x, false);
  return graph.where_greater(name, graph.unary("low_size", Op::Abs, x), graph.scalar(kLargestTiny),
                             ordinary, tiny);
}

struct Part {
  Id codes, headers;
};

Part quantize(Graph& graph, Id x) {
  constexpr float kLevels = 255;
  graph.note("A minimum and a scale for each group, eight bits each; NaN where a value is none.");
  const Id low = graph.unary("low", Op::Min, x), high = graph.unary("high_value", Op::Max, x);
  const Id zeros = graph.binary("zeros", Op::Mul, x, graph.scalar(0));
  const Id spoiled = graph.unary("spoiled", Op::Sum, zeros);
  const Id minimum = rounded_down(graph, "minimum", low);
  const Id span = graph.binary("span", Op::Sub, high, minimum);
  const Id exact = graph.binary("exact_scale", Op::Div, span, graph.scalar(kLevels));
  const Id rounded = rounded_to(graph, "rounded_scale", exact, true);
  const Id finite = graph.clamp("finite_scale", rounded, block_quant::kMinScale,
                                std::numeric_limits<float>::infinity());
  // Not every runtime's clamp keeps NaN.
  const Id overflow = graph.binary("overflow", Op::Mul, rounded, graph.scalar(0));
  const Id scale =
      graph.binary("scale", Op::Add, finite, graph.binary("nothing", Op::Add, spoiled, overflow));
  graph.note("Whole numbers 0 to 255; NaN is not above 0, and its group has one header for all.");
  // Two factors below zero: runtimes turn the product with 1/scale into a quotient, which rounds
  // differently.
  const Id inverse = graph.binary("inverse", Op::Div, graph.scalar(-1), scale);
  const Id below = graph.binary("below", Op::Sub, minimum, x);
  const Id scaled = graph.binary("scaled", Op::Mul, below, inverse);
  const Id levels = graph.unary("levels", Op::Round, graph.clamp("clamped", scaled, 0, kLevels));
  const Id zero = graph.scalar(0), nan = graph.scalar(std::numeric_limits<float>::quiet_NaN());
  const Id whole = graph.where_greater("whole", scale, zero, levels, zero);
  const Id codes = graph.cast("codes_u8", whole, DType::U8);
  return {graph.reshape("codes_flat", codes, {graph[x].shape.elems()}),
          graph.cat("header",
                    {graph.where_greater("scale_or_nan", scale, zero, scale, nan),
                     graph.where_greater("minimum_or_0", scale, zero, minimum, zero)},
                    -1)};
}

}  // namespace

QuantizedShape quantized_shape(const Stage& stage, std::int64_t elems) {
  return {.codes = {elems}, .headers = {block_quant::sizes_of(Params::of(stage), elems).groups, 2}};
}

Quantized add_block_quant(Graph& graph, const Stage& stage, Id x) {
  const std::int64_t elems = graph[x].shape.elems();
  const Id flat = graph.cast("flat_f32", graph.reshape("flat", x, {elems}), DType::F32);
  std::vector<Id> codes, headers;
  for (const Run& run : runs_of(Params::of(stage), elems)) {
    const Id values = graph.slice("values_of_groups", flat, -1, run.begin, run.end);
    const Part part = quantize(graph, graph.reshape("groups", values, {run.groups, run.group}));
    codes.push_back(part.codes);
    headers.push_back(part.headers);
  }
  return {graph.cat("codes_of_all", std::move(codes), -1),
          graph.cat("headers_of_all", std::move(headers), -2)};
}

Id add_block_quant_back(Graph& graph, const Stage& stage, Quantized packed, const Shape& shape) {
  graph.note("minimum + code * scale, group by group.");
  const Id numbers = graph.cast("numbers", packed.codes, DType::F32);
  std::vector<Id> parts;
  for (const Run& run : runs_of(Params::of(stage), shape.elems())) {
    const Id header =
        graph.slice("header", packed.headers, -2, run.first_group, run.first_group + run.groups);
    const Id scale = graph.slice("scale", header, -1, 0, 1);
    const Id minimum = graph.slice("minimum", header, -1, 1, 2);
    const Id some = graph.slice("numbers_of_groups", numbers, -1, run.begin, run.end);
    const Id groups = graph.reshape("groups", some, {run.groups, run.group});
    const Id above = graph.binary("above", Op::Mul, groups, scale);
    const Id values = graph.binary("values_of_groups", Op::Add, minimum, above);
    parts.push_back(graph.reshape("flat", values, {run.end - run.begin}));
  }
  return graph.reshape("values", graph.cat("flat_all", std::move(parts), -1), shape);
}

}  // namespace tuckfold::portable
