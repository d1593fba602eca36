#include "codec/block_quant/block_quant.h"

#include <algorithm>
#include <array>

#include "base/fail.h"
#include "base/parallel.h"
#include "base/stream.h"

namespace tuckfold::block_quant {
namespace {

constexpr std::array<std::string_view, 2> kRounds = {"nearest", "stochastic"};
constexpr std::array<std::string_view, 2> kZeros = {"near", "exact"};

constexpr ParamInfo kParams[] = {
    {.name = "bits",
     .summary = "bits a value",
     .default_value = 8,
     .min = 1,
     .max = 8,
     .headline = true},
    {.name = "group",
     .summary = "values that share a scale and a minimum; a multiple of 8",
     .default_value = 256,
     .min = 8,
     .max = 65536},
    {.name = "round",
     .summary = "to the nearest code, or up or down by chance",
     .default_value = 0,
     .words = kRounds},
    {.name = "zero",
     .summary = "whether 0 comes back near 0 or exactly 0",
     .default_value = 0,
     .words = kZeros},
};

Codec::Complaint check(const Stage& stage) {
  const auto group = static_cast<std::int64_t>(stage["group"]);
  if (group % 8 != 0) return {"group", fmt::format("group must be a multiple of 8, got {}", group)};
  return {};
}

Layout layout_of(const Stage& stage, DType, const Shape& shape) {
  const std::size_t bytes = sizes_of(Params::of(stage), shape.elems()).total_bytes();
  return {.max_bytes = bytes, .dtype = DType::U8, .shape = {static_cast<std::int64_t>(bytes)}};
}

// Threads take whole runs of groups, about 64 KiB of f32 each.
template <class Run>
void for_each_group(std::int64_t groups, std::int64_t group, int threads, Run&& run) {
  const std::int64_t together = std::max<std::int64_t>(16384 / group, 1);
  parallel_for((groups + together - 1) / together, threads,
               [&](std::int64_t begin, std::int64_t end) {
                 run(begin * together, std::min(end * together, groups));
               });
}

std::size_t pack_all(const Stage& stage, const ConstTensorView& in, std::span<std::byte> out,
                     RunContext run) {
  const Params p = Params::of(stage);
  const FlatReader reader(in);
  const Sizes sizes = sizes_of(p, reader.elems());
  const PackJob job{p, run.seed, &reader, out.data(), out.data() + sizes.codes_bytes};
  for_each_group(sizes.groups, p.group, run.threads,
                 [&](std::int64_t begin, std::int64_t end) { pack_groups(job, begin, end); });
  return out.size();
}

void unpack_all(const Stage& stage, std::span<const std::byte> packed, const TensorView& out,
                RunContext run) {
  const Params p = Params::of(stage);
  const FlatWriter writer(out);
  const Sizes sizes = sizes_of(p, writer.elems());
  const std::size_t bytes = static_cast<std::size_t>(writer.elems()) * size_bytes(out.dtype);
  const UnpackJob job{p, packed.data(), packed.data() + sizes.codes_bytes, &writer,
                      bytes > kStreamBytes};
  for_each_group(sizes.groups, p.group, run.threads,
                 [&](std::int64_t begin, std::int64_t end) { unpack_groups(job, begin, end); });
}

}  // namespace

Params Params::of(const Stage& stage) {
  return {.bits = static_cast<int>(stage["bits"]),
          .group = static_cast<std::int64_t>(stage["group"]),
          .stochastic = stage["round"] == 1,
          .exact_zero = stage["zero"] == 1};
}

Sizes sizes_of(const Params& p, std::int64_t elems) {
  const std::int64_t whole = elems / p.group, rest = elems % p.group;
  return {
      .groups = whole + (rest > 0 ? 1 : 0),
      .codes_bytes = static_cast<std::size_t>(whole * p.code_bytes(p.group) + p.code_bytes(rest))};
}

}  // namespace tuckfold::block_quant

namespace tuckfold {

namespace {

constexpr Ladder kLadders[] = {
    {"block_quant(bits={x}, group=64)", Ladder::Setting::Steps, 1, 8},
    {"block_quant(bits={x}, group=256)", Ladder::Setting::Steps, 1, 8},
};

}  // namespace

const Codec kBlockQuant = {
    .info = {.name = "block_quant",
             .summary = "whole numbers with a scale and a minimum per group",
             .params = block_quant::kParams},
    .check = block_quant::check,
    .layout = block_quant::layout_of,
    .pack = block_quant::pack_all,
    .unpack = block_quant::unpack_all,
    .cuda = &block_quant::kCuda,
    .ladders = kLadders,
};

}  // namespace tuckfold
