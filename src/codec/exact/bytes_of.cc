#include "codec/exact/bytes_of.h"

#include <array>
#include <cmath>

#include "base/dtype.h"
#include "base/fail.h"
#include "base/fp_env.h"
#include "base/half.h"
#include "base/stream.h"
#include "codec/exact/exact_common.h"

namespace tuckfold::bytes_of {
namespace {

constexpr std::array<std::string_view, 2> kRounds = {"once", "each"};

constexpr ParamInfo kParams[] = {
    {.name = "scale",
     .summary = "the step between values",
     .default_value = 1.0 / 255,
     .min = 1e-30,
     .max = 1e30,
     .step = 0},
    {.name = "add",
     .summary = "what is added to k * scale",
     .default_value = 0,
     .min = -1e6,
     .max = 1e6,
     .step = 0},
    {.name = "round",
     .summary = "to the dtype at the end, or after the product and after the sum",
     .default_value = 0,
     .words = kRounds},
};

// The bits of a value that was computed in f32, in a dtype that is no wider; others have none. And
// whether it is that value.
struct Narrowed {
  std::uint64_t bits;
  bool exact;
};
Narrowed narrowed(DType dtype, float value) {
  if (dtype == DType::F32) return {bits_of(value), true};
  if (dtype == DType::F16) {
    const F16 half = to_f16_saturated(value);
    return {half.bits, bits_of(to_float(half)) == bits_of(value)};
  }
  if (dtype == DType::BF16) {
    const BF16 half = to_bf16_saturated(value);
    return {half.bits, bits_of(to_float(half)) == bits_of(value)};
  }
  return {~std::uint64_t{0}, false};
}

// Under FpEnv.
Rule rule_of(const Stage& stage) {
  return bytes_of::rule_of(stage["scale"], stage["add"], stage["round"] == 1);
}

Layout layout_of(const Stage& stage, DType dtype, const Shape& shape) {
  if (is_whole(dtype)) {
    invalid("[layout] bytes_of packs f32, f16, bf16 and f64, got {}; use bits", to_string(dtype));
  }
  const FpEnv env;
  for (const int k : {0, 255}) {  // values rise from one to the other
    const std::uint64_t bits = value_bits(rule_of(stage), dtype, k);
    if (!std::isfinite(element_value(dtype, bits))) {
      invalid("[layout] {} * scale + add of bytes_of is {} in {}; use a dtype with more range", k,
              element_text(dtype, bits), to_string(dtype));
    }
  }
  return {.max_bytes = static_cast<std::size_t>(shape.elems()),
          .workspace_bytes = kNoteBytes,
          .dtype = DType::U8,
          .shape = shape};
}

std::size_t pack_all(const Stage& stage, const ConstTensorView& in, std::span<std::byte> out,
                     RunContext run) {
  const FlatReader reader(in);
  const Table table = table_of(stage, in.dtype);
  const PackJob job{&table, &reader, reinterpret_cast<std::uint8_t*>(out.data())};
  const std::int64_t refused = first_refused(
      reader.elems(), run.threads,
      [&](std::int64_t begin, std::int64_t end) { return pack_bytes(job, begin, end); });
  if (refused < reader.elems()) {
    refuse(table, in.dtype, refused_bits(reader, refused), refused);
  }
  return out.size();
}

void unpack_all(const Stage& stage, std::span<const std::byte> packed, const TensorView& out,
                RunContext run) {
  const FlatWriter writer(out);
  const Table table = table_of(stage, out.dtype);
  const std::size_t bytes = static_cast<std::size_t>(writer.elems()) * size_bytes(out.dtype);
  const UnpackJob job{&table, reinterpret_cast<const std::uint8_t*>(packed.data()), &writer,
                      bytes > kStreamBytes};
  for_each_range(writer.elems(), run.threads,
                 [&](std::int64_t begin, std::int64_t end) { unpack_bytes(job, begin, end); });
}

}  // namespace

Table table_of(const Stage& stage, DType dtype) {
  const FpEnv env;
  const Rule rule = rule_of(stage);
  Table table;
  table.guess = {static_cast<float>(rule.add), static_cast<float>(1 / rule.scale)};
  table.factors = factors_of(rule);
  table.computed = table.exact = size_bytes(dtype) <= sizeof(float);
  const bool half = dtype == DType::F16 || dtype == DType::BF16;
  const float largest = dtype == DType::F16 ? kMaxF16 : kMaxBF16;
  table.simple = {static_cast<float>(rule.scale), static_cast<float>(rule.add), half, half};
  for (int k = 0; k < 256; ++k) {
    const std::uint64_t word = value_bits(rule, dtype, k);
    table.words[k] = word;
    const Narrowed computed = narrowed(dtype, compute_f32(table.factors, static_cast<float>(k)));
    table.computed = table.computed && word == computed.bits;
    table.exact = table.exact && table.computed && computed.exact;
    const float sum = static_cast<float>(k) * table.simple.scale + table.simple.add;
    const Narrowed simple = narrowed(dtype, sum);
    const bool fits = sum < largest && sum > -largest;
    table.simple.usable = table.simple.usable && word == simple.bits && fits;
    table.simple.exact = table.simple.exact && table.simple.usable && simple.exact;
  }
  return table;
}

void refuse(const Table& table, DType dtype, std::uint64_t bits, std::int64_t index) {
  invalid(
      "[pack] bytes_of holds {}, {}, {} … {}, got {}; give another scale, or use a lossy codec "
      "such as block_quant",
      element_text(dtype, table.words[0]), element_text(dtype, table.words[1]),
      element_text(dtype, table.words[2]), element_text(dtype, table.words[255]),
      refused_text(dtype, bits, index));
}

}  // namespace tuckfold::bytes_of

namespace tuckfold {

namespace {

constexpr Ladder kLadders[] = {
    {"bytes_of"},
    {"bytes_of(scale=1)"},
    {"bytes_of(scale=1/127.5, add=-1, round=each)"},
    {"bytes_of | zstd"},
    {"bytes_of(scale=1) | zstd"},
    {"bytes_of(scale=1/127.5, add=-1, round=each) | zstd"},
};

}  // namespace

const Codec kBytesOf = {
    .info = {.name = "bytes_of",
             .summary = "floats that are 256 evenly spaced values, as bytes, exactly",
             .params = bytes_of::kParams},
    .exact = true,
    .layout = bytes_of::layout_of,
    .pack = bytes_of::pack_all,
    .unpack = bytes_of::unpack_all,
    .cuda = &bytes_of::kCuda,
    .reports = true,
    .rows_independent = [](const Stage&, const Shape&) { return true; },
    .ladders = kLadders,
};

}  // namespace tuckfold
