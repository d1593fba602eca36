// raw: unchanged bytes, in row-major order.
#include "codec/exact/raw.h"

#include <algorithm>

#include "base/parallel.h"
#include "base/strided.h"

namespace tuckfold {
namespace {

constexpr std::int64_t kRunElems = 1 << 16;  // one part of the loop

Layout raw_layout(const Stage&, DType dtype, const Shape& shape) {
  const std::size_t bytes = static_cast<std::size_t>(shape.elems()) * size_bytes(dtype);
  return {.max_bytes = bytes, .dtype = dtype, .shape = shape};
}

// Calls visit(first element, how many, byte offset in the packed bytes) over ranges, in parallel.
template <class Visit>
void for_each_range(std::int64_t elems, DType dtype, int threads, Visit&& visit) {
  const std::int64_t parts = (elems + kRunElems - 1) / kRunElems;
  parallel_for(parts, threads, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t first = begin * kRunElems;
    visit(first, std::min(end * kRunElems, elems) - first,
          static_cast<std::size_t>(first) * size_bytes(dtype));
  });
}

std::size_t raw_pack(const Stage&, const ConstTensorView& in, std::span<std::byte> out,
                     RunContext run) {
  const FlatReader reader(in);
  for_each_range(reader.elems(), in.dtype, run.threads,
                 [&](std::int64_t first, std::int64_t count, std::size_t at) {
                   const ReadPanels panels(reader);
                   reader.gather_bytes(first, count, out.data() + at);
                 });
  return out.size();
}

void raw_unpack(const Stage&, std::span<const std::byte> packed, const TensorView& out,
                RunContext run) {
  const FlatWriter writer(out);
  for_each_range(writer.elems(), out.dtype, run.threads,
                 [&](std::int64_t first, std::int64_t count, std::size_t at) {
                   const WritePanels panels(writer);
                   writer.scatter_bytes(first, count, packed.data() + at);
                 });
}

}  // namespace

namespace {

constexpr Ladder kLadders[] = {{"raw"}};

}  // namespace

const Codec kRaw = {
    .info = {.name = "raw", .summary = "bytes as they are", .params = {}},
    .exact = true,
    .layout = raw_layout,
    .pack = raw_pack,
    .unpack = raw_unpack,
    .cuda = &raw::kCuda,
    .unpacked_bytes = [](const Stage&, std::span<const std::byte> packed) { return packed.size(); },
    .rows_independent = [](const Stage&, const Shape&) { return true; },
    .ladders = kLadders,
};

}  // namespace tuckfold
