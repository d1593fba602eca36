#include "codec/bounded/bounded.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/fail.h"
#include "base/fp_env.h"
#include "base/stream.h"
#include "base/thread_buffers.h"
#include "codec/bounded/bounded_block.h"
#include "codec/bounded/bounded_buffers.h"

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

Codec::Complaint check(const Stage& stage) {
  const bool absolute = stage["abs"] != 0, relative = stage["rel"] != 0;
  if (absolute && relative) return {"rel", "abs and rel cannot both be given; drop one"};
  if (!absolute && !relative) {
    return {"abs", "bounded needs a bound; give abs=0.01 or rel=0.001, say"};
  }
  return {};
}

void resolve(Stage& stage, const Codec& next) {
  if (stage["codes"] == 0 && &next == &kZstd) value_of(stage, "codes") = 2;
}

// How a tensor is cut into the parts that threads take, in the order of their payloads.
struct Parts {
  Params params;
  DType dtype;
  std::int64_t elems;
  Tiling tiling;

  Parts(const Params& p, DType type, const Shape& shape)
      : params(p), dtype(type), elems(shape.elems()), tiling(shape) {}

  std::int64_t count() const {
    return params.bytes ? tiling.parts() : (chunks_of(elems) + kTogether - 1) / kTogether;
  }
  // Values before a part.
  std::int64_t before(std::int64_t part) const {
    return params.bytes ? tiling.before_part(part) : std::min(part * kTogether * kChunk, elems);
  }
  std::size_t bytes_before(std::int64_t part) const {
    return static_cast<std::size_t>(before(part)) * size_bytes(dtype);
  }
  std::size_t tensor_bytes() const { return static_cast<std::size_t>(elems) * size_bytes(dtype); }

  std::size_t bound_bytes() const { return params.relative != 0 ? kBoundBytes : 0; }
  // The bytes before the payloads.
  std::size_t front_bytes() const {
    return bound_bytes() + (params.bytes
                                ? static_cast<std::size_t>(tiling.parts()) * kPartHeaderBytes
                                : static_cast<std::size_t>(chunks_of(elems)) * kHeaderBytes);
  }

  // The size of a slot for any part, and how many parts at the end may need one, because the front
  // takes their place in the output. All parts except the last hold at least half of their
  // capacity.
  std::size_t slot_bytes() const {
    const std::int64_t values = params.bytes ? kPartValues : kTogether * kChunk;
    return static_cast<std::size_t>(std::min(values, elems + 1)) * size_bytes(dtype);
  }
  std::int64_t slots() const {
    if (elems == 0) return 0;
    return std::min(count(), 3 + static_cast<std::int64_t>(2 * front_bytes() / slot_bytes()));
  }
};

// The workspace: sixteen bytes for each part (its range, the address of its payload, its start),
// and slots.
Layout layout_of(const Stage& stage, DType dtype, const Shape& shape) {
  const Parts parts(Params::of(stage), dtype, shape);
  const std::size_t bytes = parts.tensor_bytes();
  const std::size_t on_cpu = static_cast<std::size_t>(parts.count()) * 16 +
                             static_cast<std::size_t>(parts.slots()) * parts.slot_bytes();
  return {.max_bytes = bytes,
          .fixed = false,
          .workspace_bytes =
              std::max(on_cpu, parts.params.bytes ? 0 : cuda_workspace_bytes(dtype, parts.elems)),
          .dtype = DType::U8,
          .shape = {static_cast<std::int64_t>(bytes)}};
}

double absolute_bound(const Parts& parts, const FlatReader& in, RunContext run) {
  if (parts.params.relative == 0) return parts.params.absolute;
  auto* ranges = reinterpret_cast<Range*>(run.workspace.data());
  parallel_for(parts.count(), run.threads, [&](std::int64_t begin, std::int64_t end) {
    const ReadPanels panels(in);
    for (std::int64_t i = begin; i < end; ++i) {
      ranges[i] = range_of(in, parts.before(i), parts.before(i + 1) - parts.before(i));
    }
  });
  Range all = ranges[0];
  for (std::int64_t i = 1; i < parts.count(); ++i) {
    all.low = std::min(all.low, ranges[i].low);
    all.high = std::max(all.high, ranges[i].high);
  }
  return bound_of(parts.params.relative, all.low, all.high);
}

// Calls body(buffers, begin, end) over ranges of parts, in parallel; `buffers` is null but for
// codes=bytes.
template <class Body>
void for_each_range(const Parts& parts, int threads, Body&& body) {
  if (parts.params.bytes) {
    parallel_for_with<AnyPartBuffers>(
        parts.count(), threads, [&](AnyPartBuffers& buffers, std::int64_t begin, std::int64_t end) {
          body(&buffers, begin, end);
        });
  } else {
    parallel_for(parts.count(), threads,
                 [&](std::int64_t begin, std::int64_t end) { body(nullptr, begin, end); });
  }
}

// Packs the payloads to `out`, one after the other. With several threads the offsets are not known
// in advance: each range of parts starts where it would if nothing got smaller, and is moved
// forward at the end. The last parts, for which `out` may have no room, go to the workspace.
// Returns the bytes of all payloads; if they exceed the room, `out` is invalid.
std::size_t pack_parts(const Parts& parts, const TensorBound& tensor, const FlatReader& in,
                       std::byte* headers, std::span<std::byte> out, RunContext run) {
  struct Place {
    std::byte* at;
    std::size_t bytes;
  };
  auto* places = reinterpret_cast<Place*>(run.workspace.data());
  std::byte* slots = run.workspace.data() + static_cast<std::size_t>(parts.count()) * sizeof(Place);
  const std::int64_t first_in_slots = parts.count() - parts.slots();
  const auto pack = [&](AnyPartBuffers* buffers, std::int64_t part, std::byte* to) {
    if (!parts.params.bytes) {
      const std::int64_t last = std::min((part + 1) * kTogether, chunks_of(tensor.elems));
      return pack_chunks(tensor, in, part * kTogether, last, headers, to);
    }
    const std::size_t bytes = pack_part(tensor, parts.tiling, in, part, to, *buffers);
    const auto stored = static_cast<std::uint32_t>(bytes);
    std::memcpy(headers + static_cast<std::size_t>(part) * kPartHeaderBytes, &stored, 4);
    return bytes;
  };
  for_each_range(
      parts, run.threads, [&](AnyPartBuffers* buffers, std::int64_t begin, std::int64_t end) {
        const ReadPanels panels(in);
        std::size_t at = parts.bytes_before(begin);
        for (std::int64_t i = begin; i < end; ++i) {
          const std::size_t most = parts.bytes_before(i + 1) - parts.bytes_before(i) + 1;
          const bool fits = at <= out.size() && out.size() - at >= most;
          std::byte* to =
              fits ? out.data() + at
                   : slots + static_cast<std::size_t>(i - first_in_slots) * parts.slot_bytes();
          places[i] = {to, pack(buffers, i, to)};
          at += places[i].bytes;
        }
      });
  std::size_t at = 0;
  for (std::int64_t i = 0; i < parts.count(); ++i) {
    if (places[i].bytes > out.size() - at) return out.size() + 1;
    if (places[i].at != out.data() + at) {
      std::memmove(out.data() + at, places[i].at, places[i].bytes);
    }
    at += places[i].bytes;
  }
  return at;
}

// Runs of elements, in parallel.
template <class Visit>
void for_each_run(const Parts& parts, int threads, Visit&& visit) {
  parallel_for(parts.count(), threads, [&](std::int64_t begin, std::int64_t end) {
    visit(parts.before(begin), parts.before(end) - parts.before(begin), parts.bytes_before(begin));
  });
}

std::size_t pack_all(const Stage& stage, const ConstTensorView& in, std::span<std::byte> out,
                     RunContext run) {
  const FpEnv env;  // the bound is computed here
  const Parts parts(Params::of(stage), in.dtype, in.shape);
  const FlatReader reader(in);
  if (parts.elems == 0) return 0;
  const std::size_t front = parts.front_bytes();
  if (front < out.size()) {
    const TensorBound tensor{in.dtype, absolute_bound(parts, reader, run), parts.params.exact_zero,
                             parts.elems};
    std::memcpy(out.data(), &tensor.bound, parts.bound_bytes());
    std::byte* headers = out.data() + parts.bound_bytes();
    const std::size_t size = pack_parts(parts, tensor, reader, headers, out.subspan(front), run);
    if (front + size < out.size()) return front + size;
  }
  for_each_run(parts, run.threads, [&](std::int64_t first, std::int64_t count, std::size_t at) {
    const ReadPanels panels(reader);
    reader.gather_bytes(first, count, out.data() + at);
  });
  return out.size();
}

[[noreturn]] void corrupt(const char* what) {
  fail(Errc::CorruptData, "[unpack] bounded: {}; the bytes are damaged or of another tensor", what);
}

double stored_bound(const Parts& parts, std::span<const std::byte> packed) {
  if (parts.params.relative == 0) return parts.params.absolute;
  double bound;
  std::memcpy(&bound, packed.data(), kBoundBytes);
  if (!(bound >= 0 && bound <= std::numeric_limits<double>::max())) {
    corrupt("its bound is no number of 0 or more");
  }
  return bound;
}

// Bytes of a part's payload, from its headers.
std::size_t payload_bytes(const Parts& parts, const std::byte* headers, std::int64_t part) {
  if (parts.params.bytes) {
    std::uint32_t bytes;
    std::memcpy(&bytes, headers + static_cast<std::size_t>(part) * kPartHeaderBytes, 4);
    return bytes;
  }
  std::size_t bytes = 0;
  const std::int64_t last = std::min((part + 1) * kTogether, chunks_of(parts.elems));
  for (std::int64_t chunk = part * kTogether; chunk < last; ++chunk) {
    const ChunkHeader header =
        load_header(headers + static_cast<std::size_t>(chunk) * kHeaderBytes);
    if (!well_formed(header, size_bytes(parts.dtype), chunk_elems(parts.elems, chunk))) {
      corrupt("a chunk has a size that it cannot have");
    }
    bytes += 2 * static_cast<std::size_t>(header.words);
  }
  return bytes;
}

void unpack_all(const Stage& stage, std::span<const std::byte> packed, const TensorView& out,
                RunContext run) {
  const FpEnv env;
  const Parts parts(Params::of(stage), out.dtype, out.shape);
  const FlatWriter writer(out);
  if (parts.elems == 0) {
    if (!packed.empty()) corrupt("an empty tensor has no bytes");
    return;
  }
  if (packed.size() == parts.tensor_bytes()) {
    for_each_run(parts, run.threads, [&](std::int64_t first, std::int64_t count, std::size_t at) {
      const WritePanels panels(writer);
      writer.scatter_bytes(first, count, packed.data() + at);
    });
    return;
  }
  if (packed.size() < parts.front_bytes()) corrupt("there are fewer bytes than its headers take");
  const TensorBound tensor{out.dtype, stored_bound(parts, packed), parts.params.exact_zero,
                           parts.elems};
  const std::byte* headers = packed.data() + parts.bound_bytes();
  struct Place {
    std::size_t begin, bytes;
  };
  auto* places = reinterpret_cast<Place*>(run.workspace.data());
  std::size_t at = parts.front_bytes();
  for (std::int64_t i = 0; i < parts.count(); ++i) {
    places[i] = {at, payload_bytes(parts, headers, i)};
    if (places[i].bytes > packed.size() - at) corrupt("there are fewer bytes than headers say");
    at += places[i].bytes;
  }
  if (at != packed.size()) corrupt("there are more bytes than headers say");
  const bool stream = parts.tensor_bytes() > kStreamBytes;
  std::atomic<bool> good{true};
  for_each_range(
      parts, run.threads, [&](AnyPartBuffers* buffers, std::int64_t begin, std::int64_t end) {
        const WritePanels panels(writer);
        bool fine = true;
        if (parts.params.bytes) {
          for (std::int64_t i = begin; i < end; ++i) {
            const auto payload = packed.subspan(places[i].begin, places[i].bytes);
            fine &= unpack_part(tensor, parts.tiling, payload, writer, i, stream, *buffers);
          }
        } else {
          fine = unpack_chunks(tensor, headers, packed.subspan(places[begin].begin), writer,
                               begin * kTogether, std::min(end * kTogether, chunks_of(parts.elems)),
                               stream);
        }
        if (!fine) good = false;
      });
  if (!good) corrupt("a payload contradicts itself");
}

}  // namespace

Params Params::of(const Stage& stage) {
  return {.absolute = stage["abs"],
          .relative = stage["rel"],
          .exact_zero = stage["zero"] == 1,
          .bytes = stage["codes"] == 2};
}

Tiling::Tiling(const Shape& shape) : planes(1), rows(1), cols(1) {
  std::int64_t* lengths[] = {&cols, &rows, &planes};
  std::size_t which = 0;
  for (std::size_t axis = shape.rank(); axis-- > 0;) {
    if (shape[axis] == 1) continue;
    *lengths[which] *= shape[axis];
    which = std::min<std::size_t>(which + 1, 2);
  }
  down = (rows + kTileRows - 1) / kTileRows;
  across = (cols + kTileCols - 1) / kTileCols;
  const std::int64_t largest =
      down * across == 0 ? 1 : ((rows + down - 1) / down) * ((cols + across - 1) / across);
  together = std::max<std::int64_t>(kPartValues / std::max<std::int64_t>(largest, 1), 1);
}

std::int64_t Tiling::before(std::int64_t tile) const {
  const std::int64_t each = down * across;
  if (each == 0) return 0;
  const std::int64_t plane = tile / each, y = tile % each / across, x = tile % across;
  return (plane * rows + row(y)) * cols + (row(y + 1) - row(y)) * col(x);
}

}  // namespace tuckfold::bounded

namespace tuckfold {

namespace {

constexpr Ladder kLadders[] = {
    {"bounded(abs={x})", Ladder::Setting::Bounds},
    {"bounded(abs={x}) | zstd", Ladder::Setting::Bounds},
};

}  // namespace

const Codec kBounded = {
    .info = {.name = "bounded",
             .summary = "every value within a bound; the size follows from the values",
             .params = bounded::kParams},
    .check = bounded::check,
    .resolve = bounded::resolve,
    .layout = bounded::layout_of,
    .pack = bounded::pack_all,
    .unpack = bounded::unpack_all,
    .cuda = &bounded::kCuda,
    .reports = true,
    // A relative bound is known only with the values.
    .error_bound = [](const Stage& stage) -> std::optional<double> {
      const double bound = stage["abs"];
      return bound != 0 ? std::optional(bound) : std::nullopt;
    },
    .ladders = kLadders,
};

}  // namespace tuckfold
