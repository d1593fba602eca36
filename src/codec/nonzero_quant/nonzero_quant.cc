#include "codec/nonzero_quant/nonzero_quant.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <limits>

#include "base/fail.h"
#include "base/parallel.h"
#include "base/stream.h"

namespace tuckfold::nonzero_quant {
namespace {

constexpr std::array<std::string_view, 2> kRounds = {"nearest", "stochastic"};

constexpr ParamInfo kParams[] = {
    {.name = "bits",
     .summary = "bits of a value that is not 0, beside the one that says so",
     .default_value = 3,
     .min = 1,
     .max = 8,
     .headline = true},
    {.name = "group",
     .summary =
         "values, of those that are not 0, that share a scale and a minimum; a multiple of 8",
     .default_value = 64,
     .min = 8,
     .max = static_cast<double>(kTile)},
    {.name = "round",
     .summary = "to the nearest code, or up or down by chance",
     .default_value = 0,
     .words = kRounds},
};

Codec::Complaint check(const Stage& stage) {
  const auto group = static_cast<std::int64_t>(stage["group"]);
  if (group % 8 != 0) return {"group", fmt::format("group must be a multiple of 8, got {}", group)};
  return {};
}

Layout layout_of(const Stage& stage, DType, const Shape& shape) {
  const Sizes sizes(shape.elems());
  const std::uint64_t words = sizes.most_words(Params::of(stage));
  if (words > std::numeric_limits<std::uint32_t>::max()) {
    invalid(
        "[layout] nonzero_quant has room for 2^32 - 1 words of 4 bytes, and {} values may take "
        "{}; pack the tensor in parts",
        sizes.elems, words);
  }
  const std::size_t bytes = sizes.front_bytes() + static_cast<std::size_t>(words) * 4;
  return {.max_bytes = bytes,
          .fixed = false,
          .workspace_bytes = cuda_workspace_bytes(sizes),
          .dtype = DType::U8,
          .shape = {static_cast<std::int64_t>(bytes)}};
}

std::uint32_t load_word(const std::byte* from) {
  std::uint32_t word;
  std::memcpy(&word, from, 4);
  return word;
}

// With several threads it is not known in advance where a payload begins: every kTogether tiles
// begin where they would if no value were 0, and are moved to the front in the end.
std::size_t pack_all(const Stage& stage, const ConstTensorView& in, std::span<std::byte> out,
                     RunContext run) {
  const Params p = Params::of(stage);
  const FlatReader reader(in);
  const Sizes sizes(reader.elems());
  if (sizes.tiles == 0) return 0;
  const PackJob job{p, run.seed, &reader, out.data(), out.data() + sizes.mask_at()};
  const std::size_t mask_bytes = static_cast<std::size_t>((sizes.elems + 7) / 8);
  std::memset(job.mask + mask_bytes, 0, sizes.front_bytes() - sizes.mask_at() - mask_bytes);
  std::byte* payloads = out.data() + sizes.front_bytes();
  const auto part_at = [&](std::int64_t part) {
    return payloads + static_cast<std::size_t>(part * kTogether * p.words(kTile)) * 4;
  };
  const std::int64_t parts = (sizes.tiles + kTogether - 1) / kTogether;
  const auto tiles_before = [&](std::int64_t part) {
    return std::min(part * kTogether, sizes.tiles);
  };
  parallel_for(parts, run.threads, [&](std::int64_t begin, std::int64_t end) {
    const ReadPanels panels(reader);
    for (std::int64_t i = begin; i < end; ++i) {
      pack_tiles(job, tiles_before(i), tiles_before(i + 1), part_at(i));
    }
  });
  std::uint32_t ended = 0;
  for (std::int64_t i = 0; i < parts; ++i) {
    const std::uint32_t began = ended;
    for (std::int64_t tile = tiles_before(i); tile < tiles_before(i + 1); ++tile) {
      ended += load_word(job.ends + tile * 4);
      std::memcpy(job.ends + tile * 4, &ended, 4);
    }
    std::memmove(payloads + std::size_t{began} * 4, part_at(i), std::size_t{ended - began} * 4);
  }
  return sizes.front_bytes() + std::size_t{ended} * 4;
}

[[noreturn]] void corrupt(const char* what) {
  fail(Errc::CorruptData, "[unpack] nonzero_quant: {}; the bytes are damaged or of another tensor",
       what);
}

void unpack_all(const Stage& stage, std::span<const std::byte> packed, const TensorView& out,
                RunContext run) {
  const Params p = Params::of(stage);
  const FlatWriter writer(out);
  const Sizes sizes(writer.elems());
  if (packed.size() < sizes.front_bytes()) corrupt("there are fewer bytes than its mask takes");
  std::uint32_t ended = 0;
  for (std::int64_t tile = 0; tile < sizes.tiles; ++tile) {
    const std::uint32_t end = load_word(packed.data() + tile * 4);
    if (end < ended) corrupt("a tile ends before it begins");
    ended = end;
  }
  if (packed.size() - sizes.front_bytes() != std::size_t{ended} * 4) {
    corrupt("its tiles do not end where the bytes do");
  }
  const std::size_t bytes = static_cast<std::size_t>(sizes.elems) * size_bytes(out.dtype);
  const UnpackJob job{p,
                      packed.data(),
                      packed.data() + sizes.mask_at(),
                      packed.data() + sizes.front_bytes(),
                      &writer,
                      bytes > kStreamBytes};
  std::atomic<bool> good{true};
  parallel_for(
      (sizes.tiles + kTogether - 1) / kTogether, run.threads,
      [&](std::int64_t begin, std::int64_t end) {
        const WritePanels panels(writer);
        if (!unpack_tiles(job, begin * kTogether, std::min(end * kTogether, sizes.tiles))) {
          good = false;
        }
      });
  if (!good) corrupt("a tile has not the size that its mask says");
}

}  // namespace

Params Params::of(const Stage& stage) {
  return {.bits = static_cast<int>(stage["bits"]),
          .group = static_cast<std::int64_t>(stage["group"]),
          .stochastic = stage["round"] == 1};
}

std::uint64_t Sizes::most_words(const Params& params) const {
  const std::int64_t whole = elems / kTile, rest = elems % kTile;
  return static_cast<std::uint64_t>(whole) * static_cast<std::uint64_t>(params.words(kTile)) +
         static_cast<std::uint64_t>(params.words(rest));
}

}  // namespace tuckfold::nonzero_quant

namespace tuckfold {

namespace {

constexpr Ladder kLadders[] = {
    {"nonzero_quant(bits={x}, group=64)", Ladder::Setting::Steps, 1, 8},
};

}  // namespace

const Codec kNonzeroQuant = {
    .info = {.name = "nonzero_quant",
             .summary = "a bit for each 0, whole numbers with a scale for the other values",
             .params = nonzero_quant::kParams},
    .check = nonzero_quant::check,
    .layout = nonzero_quant::layout_of,
    .pack = nonzero_quant::pack_all,
    .unpack = nonzero_quant::unpack_all,
    .cuda = &nonzero_quant::kCuda,
    .reports = true,
    .ladders = kLadders,
};

}  // namespace tuckfold
