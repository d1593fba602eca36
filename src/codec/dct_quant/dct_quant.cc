#include "codec/dct_quant/dct_quant.h"

#include <array>

#include "base/parallel.h"
#include "base/stream.h"

namespace tuckfold::dct_quant {
namespace {

constexpr std::array<std::string_view, 2> kClamps = {"none", "zero"};

constexpr ParamInfo kParams[] = {
    {.name = "rate",
     .summary = "bits a value",
     .default_value = 4,
     .min = 1,
     .max = 16,
     .step = 0.125,
     .headline = true},
    {.name = "dc",
     .summary = "extra bits of a block's mean: 4, or 8 or 12 for values far from 0",
     .default_value = 8,
     .min = 4,
     .max = 12,
     .step = 4},
    {.name = "offset",
     .summary = "subtracted first, for values far from 0",
     .default_value = 0,
     .min = -1e30,
     .max = 1e30,
     .step = 0},
    {.name = "clamp",
     .summary = "zero: nothing negative comes back, as after ReLU",
     .default_value = 0,
     .words = kClamps},
};

constexpr int kSide = 8;  // of a block

Blocks blocks_of(const Shape& shape) {
  return Blocks::of("dct_quant", kSide, shape, "block_quant");
}

Layout layout_of(const Stage& stage, DType, const Shape& shape) {
  const Params p = Params::of(stage);
  Layout result{.dtype = DType::U8};
  Blocks b{};
  if (shape.elems() > 0) {
    b = blocks_of(shape);
    for (std::size_t axis = 0; axis < b.leading; ++axis) result.shape.push_back(shape[axis]);
  }
  result.shape.push_back(b.block_rows);
  result.shape.push_back(b.block_cols);
  result.shape.push_back(p.form.bytes);
  result.max_bytes = static_cast<std::size_t>(result.shape.elems());
  return result;
}

std::size_t pack_all(const Stage& stage, const ConstTensorView& in, std::span<std::byte> out,
                     RunContext run) {
  if (out.empty()) return 0;
  const FlatReader reader(in);
  const PackJob job{Params::of(stage), blocks_of(in.shape), &reader, out.data(),
                    out.size() > kStreamBytes};
  parallel_for(job.blocks.all_block_rows(), run.threads,
               [&](std::int64_t begin, std::int64_t end) { pack_block_rows(job, begin, end); });
  return out.size();
}

void unpack_all(const Stage& stage, std::span<const std::byte> packed, const TensorView& out,
                RunContext run) {
  if (packed.empty()) return;
  const FlatWriter writer(out);
  const std::size_t bytes = static_cast<std::size_t>(writer.elems()) * size_bytes(out.dtype);
  const UnpackJob job{Params::of(stage), blocks_of(out.shape), packed.data(), &writer,
                      bytes > kStreamBytes};
  parallel_for(job.blocks.all_block_rows(), run.threads,
               [&](std::int64_t begin, std::int64_t end) { unpack_block_rows(job, begin, end); });
}

}  // namespace

Params Params::of(const Stage& stage) {
  return {.form = Form::of(static_cast<int>(stage["rate"] * 8), static_cast<int>(stage["dc"])),
          .offset = static_cast<float>(stage["offset"]),
          .clamp = stage["clamp"] == 1};
}

}  // namespace tuckfold::dct_quant

namespace tuckfold {

namespace {

constexpr Ladder kLadders[] = {
    {"dct_quant(rate={x}, dc=4{mean})", Ladder::Setting::Steps, 1, 16, 0.125},
    {"dct_quant(rate={x}, dc=8{mean})", Ladder::Setting::Steps, 1, 16, 0.125},
    {"dct_quant(rate={x}, dc=12{mean})", Ladder::Setting::Steps, 1, 16, 0.125},
};

}  // namespace

const Codec kDctQuant = {
    .info = {.name = "dct_quant",
             .summary = "a fixed number of bits a block, spent on the frequencies that need them",
             .params = dct_quant::kParams},
    .layout = dct_quant::layout_of,
    .pack = dct_quant::pack_all,
    .unpack = dct_quant::unpack_all,
    .cuda = &dct_quant::kCuda,
    .rows_independent =
        [](const Stage&, const Shape& shape) {
          return Folding::of(dct_quant::kSide, shape).leading > 0;
        },
    .ladders = kLadders,
};

}  // namespace tuckfold
