#include "codec/dct_chop/dct_chop.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/fail.h"
#include "base/stream.h"
#include "base/thread_buffers.h"

namespace tuckfold::dct_chop {
namespace {

constexpr std::array<std::string_view, 2> kShapes = {"square", "triangle"};
constexpr std::array<std::string_view, 3> kCoefs = {"f32", "f16", "bf16"};
constexpr std::array kCoefTypes = {DType::F32, DType::F16, DType::BF16};
constexpr std::array<std::string_view, 2> kTransforms = {"dct", "zfp"};
constexpr std::array<std::string_view, 3> kOrders = {"auto", "rows", "planes"};
constexpr int kMaxSerialize = 64;

constexpr ParamInfo kParams[] = {
    {.name = "block",
     .summary = "side of a block: 4, 8 or 16",
     .default_value = 8,
     .min = 4,
     .max = 16},
    {.name = "keep",
     .summary = "frequencies kept along each side, at most block (the paper's CF)",
     .default_value = 4,
     .min = 1,
     .max = 16,
     .headline = true},
    {.name = "shape",
     .summary = "which coefficients stay: i, j < keep, or i + j < keep",
     .default_value = 0,
     .words = kShapes},
    {.name = "coef",
     .summary = "type that coefficients are stored in",
     .default_value = 0,
     .words = kCoefs},
    {.name = "transform",
     .summary = "dct, or zfp's transform of 4 values (block=4)",
     .default_value = 0,
     .words = kTransforms},
    {.name = "serialize",
     .summary = "s: matrix form in s x s tiles; the bytes stay the same",
     .default_value = 1,
     .min = 1,
     .max = kMaxSerialize},
    {.name = "order",
     .summary =
         "rows: the paper's matrix; planes: by frequency, as block_quant wants it; auto: that",
     .default_value = 0,
     .words = kOrders},
};

Codec::Complaint check(const Stage& stage) {
  const Params p = Params::of(stage);
  if (p.block != 4 && p.block != 8 && p.block != 16) {
    return {"block", fmt::format("block must be 4, 8 or 16, got {}", p.block)};
  }
  if (p.transform == Transform::Zfp && p.block != 4) {
    return {"transform", fmt::format("transform=zfp needs block=4, got block={}", p.block)};
  }
  if (p.planes && p.serialize != 1) {
    return {"serialize", "serialize is of the matrix form, which order=planes has not"};
  }
  if (p.keep > p.block) {
    return {"keep",
            fmt::format("keep must be 1..{} for block={}, got {}", p.block, p.block, p.keep)};
  }
  return {};
}

// Coefficients of one frequency are of one size, so they should share block_quant's scales.
void resolve(Stage& stage, const Codec& next) {
  const bool open = stage["order"] == 0 && stage["serialize"] == 1;
  if (open && &next == &kBlockQuant) value_of(stage, "order") = 2;
}

Layout layout_of(const Stage& stage, DType, const Shape& shape) {
  const Params p = Params::of(stage);
  Layout result{.dtype = p.coef};
  const std::int64_t elems = shape.elems();
  Blocks b{};
  if (elems > 0) {
    b = blocks_of(p, shape);
    for (std::size_t axis = 0; axis < b.leading; ++axis) result.shape.push_back(shape[axis]);
  }
  if (p.planes) {
    Shape planes{p.values_per_block()};
    for (const std::int64_t axis : result.shape) planes.push_back(axis);
    planes.push_back(b.block_rows);
    planes.push_back(b.block_cols);
    result.shape = planes;
  } else if (p.triangle) {
    result.shape.push_back(b.block_rows * b.block_cols);
    result.shape.push_back(p.values_per_block());
  } else {
    result.shape.push_back(b.block_rows * p.keep);
    result.shape.push_back(b.block_cols * p.keep);
  }
  result.max_bytes = static_cast<std::size_t>(result.shape.elems()) * size_bytes(p.coef);
  return result;
}

// Threads split the work at multiples of 16 block rows, so that each starts its packed rows at a
// cache line.
template <class Job, class Buffers>
void for_each_block_row(const Job& job,
                        void (*run)(const Job&, std::int64_t, std::int64_t, Buffers&),
                        int threads) {
  constexpr std::int64_t kTogether = 16;
  const std::int64_t block_rows = job.blocks.all_block_rows();
  parallel_for_with<Buffers>((block_rows + kTogether - 1) / kTogether, threads,
                             [&](Buffers& buffers, std::int64_t begin, std::int64_t end) {
                               run(job, begin * kTogether, std::min(end * kTogether, block_rows),
                                   buffers);
                             });
}

std::size_t pack_all(const Stage& stage, const ConstTensorView& in, std::span<std::byte> out,
                     RunContext run) {
  if (out.empty()) return 0;
  const Params p = Params::of(stage);
  const FlatReader reader(in);
  const PackJob job{p, blocks_of(p, in.shape), &reader, out.data(), out.size() > kStreamBytes};
  for_each_block_row(job, pack_block_rows, run.threads);
  return out.size();
}

void unpack_all(const Stage& stage, std::span<const std::byte> packed, const TensorView& out,
                RunContext run) {
  if (packed.empty()) return;
  const Params p = Params::of(stage);
  const FlatWriter writer(out);
  const std::size_t bytes = static_cast<std::size_t>(writer.elems()) * size_bytes(out.dtype);
  const UnpackJob job{p, blocks_of(p, out.shape), packed.data(), &writer, bytes > kStreamBytes};
  for_each_block_row(job, unpack_block_rows, run.threads);
}

}  // namespace

Params Params::of(const Stage& stage) {
  return {.block = static_cast<int>(stage["block"]),
          .keep = static_cast<int>(stage["keep"]),
          .triangle = stage["shape"] == 1,
          .coef = kCoefTypes[static_cast<std::size_t>(stage["coef"])],
          .transform = stage["transform"] == 1 ? Transform::Zfp : Transform::Dct,
          .serialize = static_cast<int>(stage["serialize"]),
          .planes = stage["order"] == 2};
}

Blocks blocks_of(const Params& params, const Shape& shape) {
  const Blocks b = Blocks::of("dct_chop", params.block, shape, "a smaller block, or block_quant");
  if (b.block_rows % params.serialize != 0 || b.block_cols % params.serialize != 0) {
    std::vector<int> divisors;
    for (int s = 1; s <= kMaxSerialize; ++s) {
      if (b.block_rows % s == 0 && b.block_cols % s == 0) divisors.push_back(s);
    }
    invalid("[layout] serialize={} must divide the {} x {} blocks of {}; use {}", params.serialize,
            b.block_rows, b.block_cols, to_string(shape), fmt::join(divisors, ", "));
  }
  return b;
}

}  // namespace tuckfold::dct_chop

namespace tuckfold {

namespace {

constexpr Ladder kLadders[] = {
    {"dct_chop(keep={x})", Ladder::Setting::Steps, 1, 8},
    {"dct_chop(keep={x}, coef=f16)", Ladder::Setting::Steps, 1, 8},
    {"dct_chop(keep={x}) | block_quant(bits=8)", Ladder::Setting::Steps, 1, 8},
};

}  // namespace

const Codec kDctChop = {
    .info = {.name = "dct_chop",
             .summary = "keep the low frequencies of every block; the paper's DCT+Chop",
             .params = dct_chop::kParams},
    .check = dct_chop::check,
    .resolve = dct_chop::resolve,
    .layout = dct_chop::layout_of,
    .pack = dct_chop::pack_all,
    .unpack = dct_chop::unpack_all,
    .cuda = &dct_chop::kCuda,
    .rows_independent =
        [](const Stage& stage, const Shape& shape) {
          const auto p = dct_chop::Params::of(stage);
          return !p.planes && Folding::of(p.block, shape).leading > 0;
        },
    .ladders = kLadders,
};

}  // namespace tuckfold
