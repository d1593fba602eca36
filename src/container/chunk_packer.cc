#include "container/chunk_packer.h"

#include <algorithm>

#include "base/fail.h"
#include "base/strided.h"
#include "container/compare.h"
#include "container/rewrite.h"

namespace tuckfold {
namespace {

constexpr std::size_t kHeads = kRecordHeadBytes + kChunkHeadBytes;
constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15;  // seeds far apart for chunks side by side

const CodecSpec& raw_spec() {
  static const CodecSpec raw = CodecSpec::parse("raw");
  return raw;
}

std::span<std::byte> frame_of(const PackedRecord& record) { return record.bytes.subspan(kHeads); }

}  // namespace

// The samples of a chunk, row-major, and where fill values are.
struct ChunkPacker::Marked {
  ConstTensorView given;                // row-major
  ConstTensorView filled;               // the same, with other values in place of fill values
  const std::uint8_t* marks = nullptr;  // null where the array has no mask
};

ChunkPacker::ChunkPacker(std::span<const ArrayInfo> arrays, std::span<const ArrayCheck> checks,
                         std::uint64_t seed, std::int64_t first)
    : arrays_(arrays.begin(), arrays.end()),
      checks_(checks.begin(), checks.end()),
      seed_(seed + static_cast<std::uint64_t>(first) * kOdd) {
  checks_.resize(arrays_.size());
  for (std::size_t i = 0; i < arrays_.size(); ++i) {
    const ArrayInfo& array = arrays_[i];
    plans_.emplace_back(array.codec, array.dtype,
                        with_samples(array.samples_per_chunk, array.shape));
    exact_.push_back(is_exact(array.codec));
    masks_.push_back(find_mask(arrays_, i));
    fill_.emplace_back(array.dtype, array.fill);
  }
}

FramePlan ChunkPacker::raw_plan(const Samples& samples) const {
  return FramePlan(raw_spec(), samples.view.dtype, samples.view.shape);
}

// Packs a view, leaving room for the heads before it, and returns the bytes of the frame.
std::size_t ChunkPacker::write(const Samples& samples, const FramePlan& plan,
                               const ConstTensorView& view, PackBuffers& room, PackedRecord& out,
                               int threads) const {
  const std::span<std::byte> bytes = out.buffer.of(kHeads + plan.bytes() + kRecordAlign);
  const std::size_t written =
      plan.write(view, bytes.subspan(kHeads, bytes.size() - kHeads - kRecordAlign),
                 {.threads = threads,
                  .seed = seed_ + samples.number * kOdd + samples.array,
                  .workspace = room.workspace.of(plan.workspace_bytes())});
  // Readers refuse a larger ratio, which blank samples may have.
  if (passes_ratio(view.dtype, view.shape, written)) {
    return write(samples, FramePlan(raw_spec(), view.dtype, view.shape), view, room, out, threads);
  }
  put_chunk_head(bytes.data() + kRecordHeadBytes,
                 {.array = samples.array,
                  .samples = static_cast<std::uint32_t>(view.shape[0]),
                  .number = samples.number});
  out.bytes = bytes.first(kHeads + written);
  return written;
}

ChunkPacker::Marked ChunkPacker::mark(const Samples& samples, PackBuffers& room) const {
  const FlatReader reader(samples.view);
  const DType dtype = samples.view.dtype;
  const std::size_t bytes = static_cast<std::size_t>(reader.elems()) * size_bytes(dtype);
  const void* values = reader.dense(0, reader.elems());
  if (values == nullptr) {
    std::byte* dense = room.dense.of(bytes).data();
    reader.gather_bytes(0, reader.elems(), dense);
    values = dense;
  }
  const ConstTensorView given(values, dtype, samples.view.shape);
  Marked marked{.given = given, .filled = given};
  if (!masks_[samples.array]) return marked;
  auto* marks = reinterpret_cast<std::uint8_t*>(
      room.marks.of(static_cast<std::size_t>(reader.elems())).data());
  marked.marks = marks;
  if (fill_[samples.array].mark(values, reader.elems(), marks) == 0) return marked;
  std::byte* filled = room.filled.of(bytes).data();
  std::copy_n(static_cast<const std::byte*>(values), bytes, filled);
  fill_holes(dtype, given.shape, marks, filled);
  marked.filled = ConstTensorView(filled, dtype, given.shape);
  return marked;
}

void ChunkPacker::write_mask(const Samples& samples, const Marked& marked, PackBuffers& room,
                             PackedChunk& out) const {
  out.mask.bytes = {};
  const std::optional<std::size_t> number = masks_[samples.array];
  if (!number) return;
  const ConstTensorView view(marked.marks, DType::U8, marked.given.shape);
  const Samples mask{static_cast<std::uint32_t>(*number), samples.number, view};
  const bool full = view.shape[0] == arrays_[*number].samples_per_chunk;
  const std::optional<FramePlan> few =
      full ? std::nullopt
           : std::optional<FramePlan>(std::in_place, arrays_[*number].codec, DType::U8, view.shape);
  out.found.packed_bytes += write(mask, few ? *few : plans_[*number], view, room, out.mask, 1);
}

// Compares what a frame unpacks to with what was given. Samples that are not close enough are stored
// as they are.
void ChunkPacker::check(const Samples& samples, const Marked& marked, PackBuffers& room,
                        PackedChunk& out, int threads) const {
  const ArrayCheck& asked = checks_[samples.array];
  const ConstTensorView& given = marked.given;
  const std::int64_t elems = given.shape.elems(), rows = given.shape[0];
  const auto measure = [&](const void* result) {
    return compare_values(given.dtype, given.data, given.dtype, result, elems, marked.marks);
  };
  WrittenArray& found = out.found;
  const bool all = asked.measure || asked.max_error;
  const bool exact = exact_[samples.array] || found.too_few > 0;
  if (!all && (exact || !has_extremes(given.dtype, given.data, elems, marked.marks))) return;
  found.measured = rows;
  if (exact) {
    found.sums = measure(given.data);
    return;
  }
  const std::size_t bytes = static_cast<std::size_t>(elems) * size_bytes(given.dtype);
  const TensorView unpacked(room.unpacked.of(bytes).data(), given.dtype, given.shape);
  unpack_frame(frame_of(out.values), unpacked, {.threads = threads});
  if (marked.marks != nullptr) {
    fill_[samples.array].step_aside(unpacked);
    fill_[samples.array].restore(marked.marks, unpacked);
  }
  found.sums = measure(unpacked.data);
  const Sums& sums = found.sums;
  if (!asked.max_error ||
      (sums.max_error <= *asked.max_error && sums.lost == 0 && sums.changed == 0)) {
    return;
  }
  found.packed_bytes = write(samples, raw_plan(samples), given, room, out.values, threads);
  found.past_bound = rows;
  found.sums = measure(given.data);
}

void ChunkPacker::pack(const Samples& samples, PackBuffers& room, PackedChunk& out,
                       int threads) const {
  const ArrayInfo& array = arrays_[samples.array];
  const std::int64_t rows = samples.view.shape[0];
  const ArrayCheck& asked = checks_[samples.array];
  out.found = {};
  // Few samples at the end of a file may be too few for a codec: they are stored as they are.
  std::optional<FramePlan> few;
  if (rows != array.samples_per_chunk) {
    try {
      few.emplace(array.codec, array.dtype, samples.view.shape);
    } catch (const Error& error) {
      if (error.code() != Errc::InvalidArgument) throw;
      few.emplace(raw_plan(samples));
      out.found.too_few = rows;
    }
  }
  // An exact codec takes the samples where they are.
  const bool look = !exact_[samples.array] || asked.measure || asked.max_error;
  const Marked marked = look ? mark(samples, room) : Marked{samples.view, samples.view};
  const bool raw = out.found.too_few > 0;
  out.found.packed_bytes = write(samples, few ? *few : plans_[samples.array],
                                 raw ? marked.given : marked.filled, room, out.values, threads);
  if (look) check(samples, marked, room, out, threads);
  write_mask(samples, marked, room, out);
}

void ChunkPacker::store(const Samples& samples, PackBuffers& room, PackedChunk& out,
                        int threads) const {
  const std::size_t bytes =
      write(samples, raw_plan(samples), samples.view, room, out.values, threads);
  keep(samples, bytes, room, out);
}

void ChunkPacker::keep(const Samples& samples, std::size_t frame_bytes, PackBuffers& room,
                       PackedChunk& out) const {
  out.found = {};
  out.found.packed_bytes = frame_bytes;
  if (!looks_at(samples.array)) return;
  const Marked marked = mark(samples, room);
  const ConstTensorView& given = marked.given;
  if (checks_[samples.array].measure || checks_[samples.array].max_error) {
    out.found.measured = given.shape[0];
    out.found.sums = compare_values(given.dtype, given.data, given.dtype, given.data,
                                    given.shape.elems(), marked.marks);
  }
  write_mask(samples, marked, room, out);
}

}  // namespace tuckfold
