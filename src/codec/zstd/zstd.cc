// zstd: the tensor's bytes through libzstd, in chunks that are packed and unpacked separately, so
// that threads share the work and the bytes do not depend on their number.
//
//   number of bytes, u64 | size of each chunk's frame, u32 | the frames
#define ZSTD_STATIC_LINKING_ONLY  // contexts in memory that we give; exported by the shared library
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <memory>
#include <new>

#include "base/fail.h"
#include "base/parallel.h"
#include "base/strided.h"
#include "codec/registry.h"

namespace tuckfold::zstd {
namespace {

constexpr ParamInfo kParams[] = {
    {.name = "level",
     .summary = "from -5, fast, to 19, small; 0 is zstd's own default, 3",
     .default_value = 1,
     .min = -5,
     .max = 19,
     .headline = true},
};

constexpr std::size_t kChunkBytes = std::size_t{1} << 20;  // whole elements of every dtype
constexpr std::uint32_t kStored = 1U << 31;  // in a size: the chunk's bytes follow as they are
constexpr int kMaxLanes = 16;

// Zstd's own level. Its levels -1 to -5 differ little; in powers of 4 each skips noticeably more
// matches.
int zstd_level(const Stage& stage) {
  const auto level = static_cast<int>(stage["level"]);
  return level < 0 ? -(1 << -2 * level) : level;
}

// ---- sizes --------------------------------------------------------------------------------------

// How bytes are cut into chunks; the last may be shorter.
struct Chunks {
  std::size_t total_bytes;

  std::size_t count() const { return total_bytes / kChunkBytes + (total_bytes % kChunkBytes != 0); }
  std::size_t bytes(std::size_t index) const {
    return std::min(kChunkBytes, total_bytes - index * kChunkBytes);
  }
  std::size_t table_bytes() const { return total_bytes == 0 ? 0 : 8 + 4 * count(); }
};

template <class View>
Chunks chunks_of(const View& view) {
  return {static_cast<std::size_t>(view.elems()) * size_bytes(view.dtype())};
}

// Constant for the life of the process, because the workspace depends on it.
int max_lanes() {
  static const int kLanes = std::min(thread_count(0), kMaxLanes);
  return kLanes;
}

// Whether threads keep the context that packs from call to call. Contexts of higher levels are
// large, and zstd does not promise that a used one of theirs gives the bytes of a new one.
bool keeps_context(int level) { return level <= 2; }

// The buffers of one thread: a context, unless the thread keeps one, and a buffer for a chunk that
// is not contiguous.
struct LaneSizes {
  std::size_t context_bytes, chunk_bytes;
  std::size_t total_bytes() const { return context_bytes + chunk_bytes; }
};

LaneSizes lane_sizes(int level, const Chunks& chunks) {
  constexpr auto kAligned = [](std::size_t bytes) { return (bytes + 63) / 64 * 64; };
  const std::size_t largest = std::min(chunks.total_bytes, kChunkBytes);
  std::size_t context = 0;
  if (!keeps_context(level)) {
    // zstd's tables follow the power of two above the chunk's size, but may shrink as it grows. A
    // workspace must not shrink, because a chain plans for more bytes than there will be.
    for (std::size_t size = 1; size <= std::bit_ceil(largest); size *= 2) {
      const ZSTD_compressionParameters fit = ZSTD_getCParams(level, size, 0);
      context = std::max(context, ZSTD_estimateCCtxSize_usingCParams(fit));
    }
  }
  return {kAligned(context), kAligned(largest)};
}

Layout layout_of(const Stage& stage, DType dtype, const Shape& shape) {
  const Chunks chunks{static_cast<std::size_t>(shape.elems()) * size_bytes(dtype)};
  Layout result{.fixed = false};
  if (chunks.total_bytes > 0) {
    const std::size_t lanes = std::min(chunks.count(), static_cast<std::size_t>(max_lanes()));
    result.max_bytes = chunks.table_bytes() + chunks.total_bytes;
    result.workspace_bytes = lanes * lane_sizes(zstd_level(stage), chunks).total_bytes();
  }
  result.shape = {static_cast<std::int64_t>(result.max_bytes)};
  return result;
}

// ---- threads ------------------------------------------------------------------------------------

// Calls body(workspace of the thread, next) on each thread; next() gives it chunks one by one, in
// rising order, until there are none.
template <class Body>
void for_each_lane(const Chunks& chunks, const LaneSizes& sizes, const RunContext& run,
                   Body&& body) {
  const auto threads = static_cast<std::size_t>(std::min(run.threads, max_lanes()));
  const auto lanes = static_cast<int>(
      std::min({run.workspace.size() / sizes.total_bytes(), chunks.count(), threads}));
  std::atomic<std::size_t> taken{0};
  parallel_for(lanes, lanes, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t lane = begin; lane < end; ++lane) {
      body(run.workspace.data() + static_cast<std::size_t>(lane) * sizes.total_bytes(),
           [&] { return taken.fetch_add(1, std::memory_order_relaxed); });
    }
  });
}

// A chunk's elements in a tensor.
struct Elements {
  std::int64_t begin, count;
};

template <class View>
Elements elements_of(const View& view, std::size_t chunk) {
  const auto most = static_cast<std::int64_t>(kChunkBytes / size_bytes(view.dtype()));
  const std::int64_t begin = static_cast<std::int64_t>(chunk) * most;
  return {begin, std::min(most, view.elems() - begin)};
}

// ---- packing ------------------------------------------------------------------------------------

void set_size(std::byte* table, std::size_t chunk, std::uint32_t size) {
  std::memcpy(table + 8 + 4 * chunk, &size, 4);
}

std::uint32_t get_size(const std::byte* table, std::size_t chunk) {
  std::uint32_t size;
  std::memcpy(&size, table + 8 + 4 * chunk, 4);
  return size;
}

// The bytes of a chunk in the table: a frame, or the chunk unchanged.
std::size_t body_bytes(std::uint32_t size) { return size & ~kStored; }

// Making a context takes longer than packing or unpacking a small chunk: zstd queries the
// processor's features, and a virtual machine traps to its host for that.
struct KeptContexts {
  struct Free {
    void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
    void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
  };
  std::unique_ptr<ZSTD_CCtx, Free> packing;
  std::unique_ptr<ZSTD_DCtx, Free> unpacking;
};
thread_local KeptContexts t_contexts;

// Null where there is no memory.
ZSTD_CCtx* compressor(int level, std::byte* memory, std::size_t bytes) {
  ZSTD_CCtx* context = nullptr;
  if (keeps_context(level)) {
    if (t_contexts.packing == nullptr) t_contexts.packing.reset(ZSTD_createCCtx());
    context = t_contexts.packing.get();
    if (context == nullptr) return nullptr;
  } else {
    context = ZSTD_initStaticCCtx(memory, bytes);
  }
  // Unlike one from the heap, a static context begins with parameters that are all 0.
  ZSTD_CCtx_reset(context, ZSTD_reset_session_and_parameters);
  ZSTD_CCtx_setParameter(context, ZSTD_c_compressionLevel, level);
  // Below level 0 zstd would not compress literals; quantized values have few matches, and nearly
  // all that can be saved is in their literals.
  ZSTD_CCtx_setParameter(context, ZSTD_c_literalCompressionMode, ZSTD_ps_enable);
  return context;
}

ZSTD_DCtx* decompressor() {
  if (t_contexts.unpacking == nullptr) t_contexts.unpacking.reset(ZSTD_createDCtx());
  return t_contexts.unpacking.get();
}

constexpr std::size_t kNoMemory = std::size_t{0} - ZSTD_error_memory_allocation;

std::size_t pack_all(const Stage& stage, const ConstTensorView& in, std::span<std::byte> out,
                     RunContext run) {
  const FlatReader reader(in);
  const Chunks chunks = chunks_of(reader);
  if (chunks.total_bytes == 0) return 0;
  const int level = zstd_level(stage);
  const LaneSizes sizes = lane_sizes(level, chunks);
  std::byte* table = out.data();
  std::byte* frames = table + chunks.table_bytes();
  const std::uint64_t total = chunks.total_bytes;
  std::memcpy(table, &total, 8);

  // Each frame is first written where its chunk would begin; afterwards they are moved together.
  std::atomic<std::size_t> broken{0};  // a code of zstd's that must not be
  for_each_lane(chunks, sizes, run, [&](std::byte* workspace, auto&& next) {
    ZSTD_CCtx* context = compressor(level, workspace, sizes.context_bytes);
    if (context == nullptr) {
      broken = kNoMemory;
      return;
    }
    std::byte* scratch = workspace + sizes.context_bytes;
    for (std::size_t i = next(); i < chunks.count(); i = next()) {
      const std::size_t bytes = chunks.bytes(i);
      std::byte* to = frames + i * kChunkBytes;
      const Elements part = elements_of(reader, i);
      const void* from = reader.dense(part.begin, part.count);
      if (from == nullptr) {
        reader.gather_bytes(part.begin, part.count, scratch);
        from = scratch;
      }
      const std::size_t size = ZSTD_compress2(context, to, bytes - 1, from, bytes);
      if (ZSTD_isError(size) == 0) {
        set_size(table, i, static_cast<std::uint32_t>(size));
      } else {
        if (ZSTD_getErrorCode(size) != ZSTD_error_dstSize_tooSmall) broken = size;
        std::memcpy(to, from, bytes);
        set_size(table, i, static_cast<std::uint32_t>(bytes) | kStored);
      }
    }
  });
  if (broken == kNoMemory) throw std::bad_alloc();
  if (broken != 0) {
    fail(Errc::Internal, "[pack] libzstd {} failed: {}", ZSTD_versionString(),
         ZSTD_getErrorName(broken));
  }
  std::byte* end = frames;
  for (std::size_t i = 0; i < chunks.count(); ++i) {
    const std::size_t bytes = body_bytes(get_size(table, i));
    if (i > 0) std::memmove(end, frames + i * kChunkBytes, bytes);
    end += bytes;
  }
  return static_cast<std::size_t>(end - out.data());
}

// ---- unpacking ----------------------------------------------------------------------------------

// Reads the number of bytes, and checks that the table, the frames' own headers and the number of
// packed bytes all agree with it.
Chunks read_table(std::span<const std::byte> packed) {
  if (packed.empty()) return {0};
  constexpr auto kCorrupt = [](const char* rule, std::size_t want, std::size_t got) {
    fail(Errc::CorruptData, "[unpack] zstd: {} {} bytes, got {}; the packed bytes are damaged",
         rule, want, got);
  };
  if (packed.size() < 8) kCorrupt("the packed bytes begin with a number of", 8, packed.size());
  std::uint64_t total;
  std::memcpy(&total, packed.data(), 8);
  const Chunks chunks{total};
  if (total == 0 || chunks.count() > (packed.size() - 8) / 4) {
    kCorrupt("the packed bytes end before the table of", total, packed.size());
  }
  std::size_t at = chunks.table_bytes();
  for (std::size_t i = 0; i < chunks.count(); ++i) {
    const std::uint32_t size = get_size(packed.data(), i);
    const std::size_t bytes = body_bytes(size), left = packed.size() - at;
    if (bytes > left) kCorrupt("a chunk needs", bytes, left);
    const bool stored = (size & kStored) != 0;
    const unsigned long long holds =
        stored ? bytes : ZSTD_getFrameContentSize(packed.data() + at, bytes);
    if (holds != chunks.bytes(i)) kCorrupt("a chunk must hold", chunks.bytes(i), holds);
    at += bytes;
  }
  if (at != packed.size()) kCorrupt("the chunks end after", at, packed.size());
  return chunks;
}

void unpack_all(const Stage& stage, std::span<const std::byte> packed, const TensorView& out,
                RunContext run) {
  const FlatWriter writer(out);
  const Chunks chunks = read_table(packed);
  if (const std::size_t wanted = chunks_of(writer).total_bytes; chunks.total_bytes != wanted) {
    fail(Errc::CorruptData, "[unpack] zstd: {} {} has {} bytes, but {} were packed",
         to_string(out.dtype), to_string(out.shape), wanted, chunks.total_bytes);
  }
  if (chunks.total_bytes == 0) return;
  const LaneSizes sizes = lane_sizes(zstd_level(stage), chunks);
  std::atomic<std::size_t> first_bad{chunks.count()};
  std::atomic<bool> no_memory{false};
  for_each_lane(chunks, sizes, run, [&](std::byte* workspace, auto&& next) {
    ZSTD_DCtx* context = decompressor();
    if (context == nullptr) {
      no_memory = true;
      return;
    }
    std::byte* scratch = workspace + sizes.context_bytes;
    std::size_t reached = 0;
    const std::byte* from = packed.data() + chunks.table_bytes();  // where that chunk begins
    for (std::size_t i = next(); i < chunks.count(); i = next()) {
      for (; reached < i; ++reached) from += body_bytes(get_size(packed.data(), reached));
      const std::uint32_t size = get_size(packed.data(), i);
      const std::size_t bytes = chunks.bytes(i);
      const bool stored = (size & kStored) != 0;
      const Elements part = elements_of(writer, i);
      void* dense = writer.dense(part.begin, part.count);
      void* to = dense == nullptr ? scratch : dense;
      if (stored) {
        std::memcpy(to, from, bytes);
      } else if (ZSTD_decompressDCtx(context, to, bytes, from, size) != bytes) {
        std::size_t seen = first_bad;
        while (i < seen && !first_bad.compare_exchange_weak(seen, i)) {
        }
        continue;
      }
      if (dense == nullptr) writer.scatter_bytes(part.begin, part.count, scratch);
    }
  });
  if (no_memory) throw std::bad_alloc();
  if (first_bad < chunks.count()) {
    fail(Errc::CorruptData, "[unpack] zstd: chunk {} of {} does not decode; it is damaged",
         first_bad.load(), chunks.count());
  }
}

}  // namespace
}  // namespace tuckfold::zstd

namespace tuckfold {

namespace {

constexpr Ladder kLadders[] = {{"zstd(level=3)"}};

}  // namespace

const Codec kZstd = {
    .info = {.name = "zstd",
             .summary = "bytes without loss, by libzstd; the last of a chain",
             .params = zstd::kParams},
    .exact = true,
    .layout = zstd::layout_of,
    .pack = zstd::pack_all,
    .unpack = zstd::unpack_all,
    .unpacked_bytes =
        [](const Stage&, std::span<const std::byte> packed) {
          return zstd::read_table(packed).total_bytes;
        },
    .chunk_elems = 16 << 10,  // what a core unpacks in some tens of microseconds
    .ladders = kLadders,
};

}  // namespace tuckfold
