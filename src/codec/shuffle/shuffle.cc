#include "codec/shuffle/shuffle.h"

#include <algorithm>

#include "base/parallel.h"

namespace tuckfold::shuffle {
namespace {

constexpr std::string_view kDeltas[] = {"none", "sub", "xor", "rows", "plane"};
constexpr ParamInfo kParams[] = {
    {.name = "delta",
     .summary = "what a value is compared with: nothing, the one before, the one above, or both",
     .words = kDeltas},
};

constexpr std::int64_t kTogether = 1 << 14;  // values of one part of a loop

Delta delta_of(const Stage& stage) { return static_cast<Delta>(stage["delta"]); }

Layout layout_of(const Stage&, DType dtype, const Shape& shape) {
  const std::size_t bytes = static_cast<std::size_t>(shape.elems()) * size_bytes(dtype);
  return {.max_bytes = bytes, .dtype = DType::U8, .shape = {static_cast<std::int64_t>(bytes)}};
}

std::size_t pack_all(const Stage& stage, const ConstTensorView& in, std::span<std::byte> out,
                     RunContext run) {
  const FlatReader reader(in);
  const PackJob job{delta_of(stage), Planes::of(in.shape), &reader, out.data()};
  parallel_for((reader.elems() + kTogether - 1) / kTogether, run.threads,
               [&](std::int64_t begin, std::int64_t end) {
                 pack_values(job, begin * kTogether, std::min(end * kTogether, reader.elems()));
               });
  return out.size();
}

void unpack_all(const Stage& stage, std::span<const std::byte> packed, const TensorView& out,
                RunContext run) {
  const FlatWriter writer(out);
  const FlatReader reader(ConstTensorView(out.data, out.dtype, out.shape, out.strides, out.device));
  const UnpackJob job{delta_of(stage), Planes::of(out.shape), packed.data(), &writer, &reader};
  // Without a delta values do not need each other.
  const std::int64_t part = job.delta == Delta::None ? kTogether : job.planes.elems();
  if (part == 0) return;
  parallel_for((writer.elems() + part - 1) / part, run.threads,
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t i = begin; i < end; ++i) {
                   unpack_values(job, i * part, std::min((i + 1) * part, writer.elems()));
                 }
               });
}

}  // namespace

Planes Planes::of(const Shape& shape) {
  constexpr std::int64_t kShortest = 8;
  Planes planes{1, 1, 1};
  std::size_t axis = shape.rank();
  while (axis > 0 && planes.cols < kShortest) planes.cols *= shape[--axis];
  if (axis > 0) planes.rows = shape[--axis];
  while (axis > 0) planes.count *= shape[--axis];
  return planes;
}

}  // namespace tuckfold::shuffle

namespace tuckfold {

namespace {

// Level 3: higher levels gain little after a shuffle and are slower.
constexpr Ladder kLadders[] = {
    {"shuffle | zstd(level=3)"},
    {"shuffle(delta=sub) | zstd(level=3)"},
    {"shuffle(delta=xor) | zstd(level=3)"},
    {"shuffle(delta=rows) | zstd(level=3)"},
    {"shuffle(delta=plane) | zstd(level=3)"},
};

}  // namespace

const Codec kShuffle = {
    .info = {.name = "shuffle",
             .summary = "bytes of equal significance together, without loss, before zstd",
             .params = shuffle::kParams},
    .exact = true,
    .layout = shuffle::layout_of,
    .pack = shuffle::pack_all,
    .unpack = shuffle::unpack_all,
    .ladders = kLadders,
};

}  // namespace tuckfold
