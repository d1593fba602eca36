// raw: unchanged bytes, in row-major order.
#include "codec/exact/raw.h"

#include <cstring>

#include "base/parallel.h"
#include "base/strided.h"

namespace tuckfold {
namespace {

constexpr std::int64_t kRunElems = 1 << 16;  // one part of the loop

Layout raw_layout(const Stage&, DType dtype, const Shape& shape) {
  const std::size_t bytes = static_cast<std::size_t>(shape.elems()) * size_bytes(dtype);
  return {.max_bytes = bytes, .dtype = dtype, .shape = shape};
}

// Visits the tensor's dense runs in order: visit(address, byte offset in the packed bytes, bytes).
template <class View, class Visit>
void for_each_run(const View& view, int threads, Visit&& visit) {
  const std::int64_t parts = (view.elems() + kRunElems - 1) / kRunElems;
  const auto width = static_cast<std::int64_t>(size_bytes(view.dtype()));
  parallel_for(parts, threads, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t last = std::min(end * kRunElems, view.elems());
    for (std::int64_t i = begin * kRunElems; i < last;) {
      const std::int64_t count = view.run_length(i, last - i);
      visit(view.dense(i, count), i * width, static_cast<std::size_t>(count * width));
      i += count;
    }
  });
}

std::size_t raw_pack(const Stage&, const ConstTensorView& in, std::span<std::byte> out,
                     RunContext run) {
  for_each_run(FlatReader(in), run.threads,
               [&](const void* from, std::int64_t at, std::size_t bytes) {
                 std::memcpy(out.data() + at, from, bytes);
               });
  return out.size();
}

void raw_unpack(const Stage&, std::span<const std::byte> packed, const TensorView& out,
                RunContext run) {
  for_each_run(FlatWriter(out), run.threads, [&](void* to, std::int64_t at, std::size_t bytes) {
    std::memcpy(to, packed.data() + at, bytes);
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
