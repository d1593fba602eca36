#include "portable/codec_graph.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/fail.h"
#include "codec/registry.h"

namespace tuckfold::portable {
namespace {

// Why a codec stays out, for those that do.
constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kReasons = {{
    {"nonzero_quant",
     "its size depends on the values, and accelerators fix all sizes when they compile"},
    {"bounded", "its size depends on the values, and accelerators fix all sizes when they compile"},
    {"zstd", "its size depends on the values, and accelerators fix all sizes when they compile"},
    {"zfp", "it codes bit planes, which takes shifts of bits"},
    {"bits", "it packs codes side by side in bytes, which takes shifts of bits"},
    {"mask", "it packs bits side by side in bytes, which takes shifts of bits"},
    {"positive", "it packs bits side by side in bytes, which takes shifts of bits"},
    {"pool_index", "it packs codes side by side in bytes, which takes shifts of bits"},
    {"bytes_of", "it refuses values that are no multiples, and a graph refuses nothing"},
    {"shuffle", "it takes values apart into bytes, which takes shifts of bits"},
    {"raw", "it changes nothing, so there is nothing to write"},
}};

// With kMaxTileSide, so that counts of operations and bytes stay far below 2^63.
constexpr std::int64_t kMaxValues = std::int64_t{1} << 40;

[[noreturn]] void refuse(const Stage& stage, std::string_view why) {
  fail(Errc::Unsupported, "[portable] {} cannot be written in plain operators: {}",
       stage.codec->name, why);
}

bool is(const Stage& stage, std::string_view name) { return stage.codec->name == name; }

void check_block_quant(const Stage& stage, bool packs) {
  const auto bits = static_cast<int>(stage["bits"]);
  if (bits != 8) {
    refuse(stage, fmt::format("codes of {} bits share bytes, which takes shifts of bits, and no "
                              "accelerator here has them; use bits=8",
                              bits));
  }
  if (stage["zero"] != 0) {
    refuse(stage, "zero=exact marks groups in a bit of their scale; use zero=near");
  }
  if (packs && stage["round"] != 0) {
    refuse(stage,
           "round=stochastic draws numbers by shifts and exclusive-or; use round=nearest, or "
           "--only unpack");
  }
}

void check(const CodecSpec& spec, DType dtype, bool packs) {
  const auto stages = spec.stages();
  for (const Stage& stage : stages) {
    if (!is(stage, "dct_chop") && !is(stage, "block_quant") && !is(stage, "dct_quant")) {
      const auto reason = std::find_if(kReasons.begin(), kReasons.end(),
                                       [&](const auto& row) { return is(stage, row.first); });
      refuse(stage, reason == kReasons.end() ? "it has no such form yet" : reason->second);
    }
    if (is(stage, "block_quant")) check_block_quant(stage, packs);
    if (is(stage, "dct_quant") && packs) {
      refuse(stage,
             "packing searches the widths of each block and joins codes of many widths, which "
             "takes shifts of bits; use --only unpack to export its decoder");
    }
  }
  const bool chain =
      stages.size() == 2 && is(stages[0], "dct_chop") && is(stages[1], "block_quant");
  if (stages.size() > 1 && !chain) {
    fail(Errc::Unsupported,
         "[portable] of chains only dct_chop(..) | block_quant(bits=8) can be written, got {}",
         spec.print());
  }
  if (dtype != DType::F32 && dtype != DType::F16 && dtype != DType::BF16) {
    invalid("[portable] the dtype must be f32, f16 or bf16, got {}; convert before packing",
            to_string(dtype));
  }
}

Shape checked(const CodecSpec& spec, DType dtype, const Shape& shape, bool packs) {
  check(spec, dtype, packs);
  if (shape.elems() == 0) invalid("[portable] the shape {} has no values", to_string(shape));
  if (shape.elems() > kMaxValues) {
    invalid("[portable] a tensor must have at most 2^40 values, got {}; use a smaller batch",
            to_string(shape));
  }
  static_cast<void>(layout(spec, dtype, shape));  // throws where the tensor does not fit
  return shape;
}

}  // namespace

Graph pack_graph(const CodecSpec& spec, DType dtype, const Shape& shape) {
  Graph graph("Pack");
  Id value = graph.input("x", dtype, checked(spec, dtype, shape, true));
  for (const Stage& stage : spec.stages()) {
    if (is(stage, "dct_chop")) {
      value = add_dct_chop(graph, stage, value);
    } else {
      const Quantized quantized = add_block_quant(graph, stage, value);
      graph.rename(quantized.codes, "codes");
      graph.rename(quantized.headers, "headers");
      graph.output(quantized.codes);
      graph.output(quantized.headers);
      return graph;
    }
  }
  graph.rename(value, "packed");
  graph.output(value);
  return graph;
}

Graph unpack_graph(const CodecSpec& spec, DType dtype, const Shape& shape) {
  checked(spec, dtype, shape, false);
  Graph graph("Unpack");
  const Stage &first = spec.stages().front(), &last = spec.stages().back();
  const Layout middle = row_of(first).layout(first, dtype, shape);  // the tensor between two stages
  const Shape coded = is(first, "block_quant") ? shape : middle.shape;
  Id value;
  if (is(last, "block_quant")) {
    const QuantizedShape shapes = quantized_shape(last, coded.elems());
    const Id codes = graph.input("codes", DType::U8, shapes.codes);
    const Id headers = graph.input("headers", DType::F32, shapes.headers);
    value = add_block_quant_back(graph, last, {codes, headers}, coded);
    if (is(first, "block_quant")) value = graph.cast("x_cast", value, dtype);
    // As the library stores coefficients between the two.
    if (is(first, "dct_chop")) value = stored_coefs(graph, "coefs", value, middle.dtype);
  } else {
    value = graph.input("packed", middle.dtype, middle.shape);
  }
  if (is(first, "dct_chop")) value = add_dct_chop_back(graph, first, value, dtype, shape);
  if (is(first, "dct_quant")) value = add_dct_quant_back(graph, first, value, dtype, shape);
  graph.rename(value, "x");
  graph.output(value);
  return graph;
}

}  // namespace tuckfold::portable
