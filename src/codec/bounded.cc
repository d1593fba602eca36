#include "codec/bounded.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/fail.h"
#include "base/fp_env.h"
#include "base/parallel.h"
#include "base/stream.h"

namespace tuckfold::bounded {
namespace {

constexpr std::array<std::string_view, 2> kZeros = {"near", "exact"};
constexpr std::array<std::string_view, 3> kCodes = {"auto", "bits", "bytes"};

constexpr ParamInfo kParams[] = {
    {.name = "abs",
     .summary = "the most by which a value may change",
     .min = 1e-300,
     .max = 1e300,
     .step = 0,
     .optional = true},
    {.name = "rel",
     .summary = "the same, as a fraction of the tensor's range",
     .min = 1e-300,
     .max = 1e300,
     .step = 0,
     .optional = true},
    {.name = "zero",
     .summary = "whether 0, and nothing else, comes back exactly 0",
     .default_value = 0,
     .words = kZeros},
    {.name = "codes",
     .summary = "packed to bits, or left in bytes for zstd; auto asks what follows",
     .default_value = 0,
     .words = kCodes},
};

constexpr std::size_t kBoundBytes = 8;  // stored for rel
constexpr std::int64_t kPart = 16;      // chunks that a thread takes at a time
constexpr std::int64_t kPartElems = kPart * kChunk;

Codec::Complaint check(const Stage& stage) {
  const bool absolute = stage["abs"] != 0, relative = stage["rel"] != 0;
  if (absolute && relative) return {"rel", "abs and rel cannot both be given; drop one"};
  if (!absolute && !relative) {
    return {"abs", "bounded needs a bound; give abs=0.01 or rel=0.001, say"};
  }
  return {};
}

void settle(Stage& stage, const Stage& next) {
  for (std::size_t i = 0; i < stage.values.size(); ++i) {
    const bool open = stage.codec->params[i].name == "codes" && stage.values[i] == 0;
    if (open && next.codec->name == "zstd") stage.values[i] = 2;
  }
}

std::int64_t parts_of(std::int64_t elems) { return (elems + kPartElems - 1) / kPartElems; }
std::int64_t chunks_of(std::int64_t elems) { return (elems + kChunk - 1) / kChunk; }

// What comes before the payloads.
std::size_t front_bytes(const Params& p, std::int64_t elems) {
  return (p.relative != 0 ? kBoundBytes : 0) +
         static_cast<std::size_t>(chunks_of(elems)) * kHeaderBytes;
}

std::size_t slot_bytes(DType dtype) {
  return static_cast<std::size_t>(kPartElems) * size_bytes(dtype);
}

// Parts at the end that may have to wait in the workspace, since headers come first.
std::int64_t slots_of(std::int64_t elems, DType dtype) {
  const std::size_t front = kBoundBytes + static_cast<std::size_t>(chunks_of(elems)) * kHeaderBytes;
  return std::min(parts_of(elems), 2 + static_cast<std::int64_t>(front / slot_bytes(dtype)));
}

// Sixteen bytes for each part (its range, where it was packed to, where it starts), and slots.
Layout layout_of(const Stage&, DType dtype, const Shape& shape) {
  const std::int64_t elems = shape.elems();
  const std::size_t bytes = static_cast<std::size_t>(elems) * size_bytes(dtype);
  return {.max_bytes = bytes,
          .fixed = false,
          .workspace_bytes = static_cast<std::size_t>(parts_of(elems)) * 16 +
                             static_cast<std::size_t>(slots_of(elems, dtype)) * slot_bytes(dtype),
          .dtype = DType::U8,
          .shape = {static_cast<std::int64_t>(bytes)}};
}

// rel * (high - low), rounded down: what is stored must not promise less than was asked for.
double bound_of(double relative, Range range) {
  if (!(range.low < range.high)) return 0;
  const double most = std::numeric_limits<double>::max();
  double span = range.high - range.low;
  if (span > most) {
    span = most;
  } else {  // what rounding took from the difference (Knuth's two-sum)
    const double taken = span - range.high, given = span - taken;
    const double lost = (range.high - given) + (-range.low - taken);
    if (lost < 0) span = std::nextafter(span, 0.0);
  }
  double bound = std::min(relative * span, most);
  if (std::fma(relative, span, -bound) < 0) bound = std::nextafter(bound, 0.0);
  return bound;
}

double absolute_bound(const Params& p, const FlatReader& in, RunContext run) {
  if (p.relative == 0) return p.absolute;
  auto* ranges = reinterpret_cast<Range*>(run.workspace.data());
  const std::int64_t parts = parts_of(in.elems());
  parallel_for(parts, run.threads, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t first = i * kPartElems;
      ranges[i] = range_of(in, first, std::min(kPartElems, in.elems() - first));
    }
  });
  Range all = ranges[0];
  for (std::int64_t i = 1; i < parts; ++i) {
    all.low = std::min(all.low, ranges[i].low);
    all.high = std::max(all.high, ranges[i].high);
  }
  return bound_of(p.relative, all);
}

// Packs the payloads to `out`, one after the other. Several threads do not know where theirs will
// begin: each range of parts starts where it would if nothing got smaller, and moves forward in the
// end. The last parts, which `room` might not hold there, go to the workspace. Returns the bytes of
// all payloads; where that is more than `room`, `out` is of no use.
std::size_t pack_parts(const Job& job, const FlatReader& in, std::byte* headers,
                       std::span<std::byte> out, RunContext run) {
  struct Place {
    std::byte* at;
    std::size_t bytes;
  };
  const std::int64_t parts = parts_of(job.elems), chunks = chunks_of(job.elems);
  const std::size_t slot = slot_bytes(job.dtype);
  auto* places = reinterpret_cast<Place*>(run.workspace.data());
  std::byte* slots = run.workspace.data() + static_cast<std::size_t>(parts) * sizeof(Place);
  const std::int64_t first_in_slots = parts - slots_of(job.elems, job.dtype);
  parallel_for(parts, run.threads, [&](std::int64_t begin, std::int64_t end) {
    std::size_t at = static_cast<std::size_t>(begin) * slot;
    for (std::int64_t i = begin; i < end; ++i) {
      const bool fits = at <= out.size() && out.size() - at >= slot;
      std::byte* to =
          fits ? out.data() + at : slots + static_cast<std::size_t>(i - first_in_slots) * slot;
      const std::int64_t last = std::min((i + 1) * kPart, chunks);
      places[i] = {to, pack_chunks(job, in, i * kPart, last, headers, to)};
      at += places[i].bytes;
    }
  });
  std::size_t at = 0;
  for (std::int64_t i = 0; i < parts; ++i) {
    if (places[i].bytes > out.size() - at) return out.size() + 1;
    if (places[i].at != out.data() + at) {
      std::memmove(out.data() + at, places[i].at, places[i].bytes);
    }
    at += places[i].bytes;
  }
  return at;
}

// Runs of elements as they are, in parallel.
template <class Visit>
void for_each_run(std::int64_t elems, int threads, Visit&& visit) {
  parallel_for(parts_of(elems), threads, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t first = begin * kPartElems;
    visit(first, std::min(end * kPartElems, elems) - first);
  });
}

std::size_t pack_all(const Stage& stage, const ConstTensorView& in, std::span<std::byte> out,
                     RunContext run) {
  const FpEnv env;  // the bound is computed here
  const Params p = Params::of(stage);
  const FlatReader reader(in);
  const std::size_t front = front_bytes(p, reader.elems());
  if (reader.elems() == 0) return 0;
  if (front < out.size()) {
    const Job job{in.dtype, absolute_bound(p, reader, run), p.exact_zero, reader.elems()};
    std::byte* headers = out.data();
    if (p.relative != 0) {
      std::memcpy(headers, &job.bound, kBoundBytes);
      headers += kBoundBytes;
    }
    const std::size_t size = pack_parts(job, reader, headers, out.subspan(front), run);
    if (front + size < out.size()) return front + size;
  }
  for_each_run(reader.elems(), run.threads, [&](std::int64_t first, std::int64_t count) {
    const std::size_t at = static_cast<std::size_t>(first) * size_bytes(in.dtype);
    reader.gather_bits(first, count, out.data() + at);
  });
  return out.size();
}

[[noreturn]] void corrupt(const char* what) {
  fail(Errc::CorruptData, "[unpack] bounded: {}; the bytes are damaged or of another tensor", what);
}

double stored_bound(const Params& p, std::span<const std::byte> packed) {
  if (p.relative == 0) return p.absolute;
  double bound;
  std::memcpy(&bound, packed.data(), kBoundBytes);
  if (!(bound >= 0 && bound <= std::numeric_limits<double>::max())) {
    corrupt("its bound is no number of 0 or more");
  }
  return bound;
}

bool well_formed(const ChunkHeader& header, DType dtype, std::int64_t count) {
  const int kept = kept_words(dtype, count);
  if (header.kind == kKept) return header.words == kept;
  if (header.kind == kSame) return header.words == kept_words(dtype, 1);
  return header.words == 0 || (header.words >= kWidthWords && header.words < kept);
}

void unpack_all(const Stage& stage, std::span<const std::byte> packed, const TensorView& out,
                RunContext run) {
  const FpEnv env;
  const Params p = Params::of(stage);
  const FlatWriter writer(out);
  const std::int64_t elems = writer.elems();
  const std::size_t width = size_bytes(out.dtype), bytes = static_cast<std::size_t>(elems) * width;
  if (elems == 0) return;
  if (packed.size() == bytes) {
    for_each_run(elems, run.threads, [&](std::int64_t first, std::int64_t count) {
      writer.scatter_bits(first, count, packed.data() + static_cast<std::size_t>(first) * width);
    });
    return;
  }
  const std::size_t front = front_bytes(p, elems);
  if (packed.size() < front) corrupt("there are fewer bytes than its headers take");
  const Job job{out.dtype, stored_bound(p, packed), p.exact_zero, elems};
  const std::byte* headers = packed.data() + (p.relative != 0 ? kBoundBytes : 0);
  auto* starts = reinterpret_cast<std::size_t*>(run.workspace.data());
  std::size_t at = front;
  for (std::int64_t chunk = 0; chunk < chunks_of(elems); ++chunk) {
    if (chunk % kPart == 0) starts[chunk / kPart] = at;
    const ChunkHeader header =
        load_header(headers + static_cast<std::size_t>(chunk) * kHeaderBytes);
    if (!well_formed(header, out.dtype, chunk_elems(elems, chunk))) {
      corrupt("a chunk has a size that it cannot have");
    }
    at += 2 * static_cast<std::size_t>(header.words);
    if (at > packed.size()) break;
  }
  if (at != packed.size()) corrupt("its chunks have another size than their headers say");
  std::atomic<bool> good{true};
  parallel_for(parts_of(elems), run.threads, [&](std::int64_t begin, std::int64_t end) {
    const bool fine =
        unpack_chunks(job, headers, packed.data() + starts[begin], writer, begin * kPart,
                      std::min(end * kPart, chunks_of(elems)), bytes > kStreamBytes);
    if (!fine) good = false;
  });
  if (!good) corrupt("a chunk's rows have another size than the chunk");
}

}  // namespace

Params Params::of(const Stage& stage) {
  return {.absolute = stage["abs"],
          .relative = stage["rel"],
          .exact_zero = stage["zero"] == 1,
          .bytes = stage["codes"] == 2};
}

}  // namespace tuckfold::bounded

namespace tuckfold {

const Codec kBounded = {
    .info = {.name = "bounded",
             .summary = "every value within a bound; the size follows from the values",
             .params = bounded::kParams},
    .check = bounded::check,
    .settle = bounded::settle,
    .layout = bounded::layout_of,
    .pack = bounded::pack_all,
    .unpack = bounded::unpack_all,
};

}  // namespace tuckfold
