// dct_quant on the CPU.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/dct_quant/dct_quant_cpu.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <array>
#include <cstring>

#include "codec/dct_quant/dct_quant.h"
#include "codec/dct_quant/dct_quant_bytes_cpu-inl.h"
#include "codec/dct_quant/dct_quant_lanes_pack_cpu-inl.h"
#include "codec/dct_quant/dct_quant_lanes_unpack_cpu-inl.h"
#include "codec/dct_quant/dct_quant_pack_cpu-inl.h"
#include "codec/dct_quant/dct_quant_rows.h"
#include "codec/dct_quant/dct_quant_unpack_cpu-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tuckfold::dct_quant::HWY_NAMESPACE {

// ---- batches by the normative functions ---------------------------------------------------------

#if !TUCKFOLD_DCT_QUANT_LANES
class PlainPacker {
 public:
  PlainPacker(const PackJob& job, std::uint8_t* out) : p_(job.params), out_(out) {}

  HWY_ATTR void add(const Batch<const float>& in, const char*) {
    float x[64];
    for (int b = 0; b < in.count; ++b, out_ += p_.form.bytes) {
      for (int i = 0; i < 64; ++i) x[i] = in.at[b][i / 8 * in.row + i % 8] - p_.offset;
      pack_block(p_.form, x, out_);
    }
  }
  void finish() {}

 private:
  const Params& p_;
  std::uint8_t* out_;
};

HWY_ATTR void unpack_plain(const Params& p, bool, const std::uint8_t* in, const Batch<float>& out) {
  float x[64];
  for (int b = 0; b < out.count; ++b, in += p.form.bytes) {
    unpack_block(p.form, in, x);
    for (int i = 0; i < 64; ++i) {
      out.at[b][i / 8 * out.row + i % 8] = finished(x[i], p.offset, p.clamp);
    }
  }
}
#endif  // TUCKFOLD_DCT_QUANT_LANES

// ---- block rows of a tensor ---------------------------------------------------------------------

constexpr std::int64_t kBufferFloats = 4096;  // unpacked before they are stored: half a first cache

// Whether rows are at equal distances.
template <class Float>
bool evenly_spaced(Float* const* rows) {
  for (int r = 2; r < 8; ++r) {
    if (rows[r] - rows[r - 1] != rows[1] - rows[0]) return false;
  }
  return true;
}

// Collects blocks until a batch is full, which `run` then takes.
template <class Float, class Run>
class Batcher {
 public:
  explicit Batcher(Run run) : run_(run) {}

  // Blocks side by side from `at` on, of rows that far apart. They must stay in place until the
  // next flush.
  void add(Float* at, std::int64_t row, std::int64_t blocks) {
    if (row != batch_.row) flush();
    batch_.row = row;
    while (blocks > 0) {
      const auto some =
          static_cast<int>(std::min<std::int64_t>(blocks, kBatchBlocks - batch_.count));
      for (int i = 0; i < some; ++i) batch_.at[batch_.count + i] = at + 8 * i;
      at += 8 * some;
      blocks -= some;
      batch_.count += some;
      if (batch_.count == kBatchBlocks) flush();
    }
  }
  void flush() {
    if (batch_.count > 0) run_(batch_);
    batch_.count = 0;
  }

 private:
  Run run_;
  Batch<Float> batch_;
};

// The address of block rows [begin, end) if they are contiguous whole blocks of f32, else null.
template <class Float, class View>
Float* direct_block_rows(const View& view, const Blocks& b, std::int64_t begin, std::int64_t end) {
  if (view.dtype() != DType::F32 || b.rows % 8 != 0 || b.cols % 8 != 0) return nullptr;
  const std::int64_t each = 8 * b.cols;
  return static_cast<Float*>(view.dense(begin * each, (end - begin) * each));
}

// A BatchPacker takes batches one after the other.
template <class BatchPacker>
void pack_batches(const PackJob& job, std::int64_t begin, std::int64_t end) {
  const Blocks& b = job.blocks;
  const Params& p = job.params;
  auto* out = reinterpret_cast<std::uint8_t*>(job.out) + begin * b.block_cols * p.form.bytes;
  BatchPacker packer(job, out);
  const auto* all = direct_block_rows<const float>(*job.in, b, begin, end);
  // The addresses to read soon, one block row and some ahead, in the order of addresses.
  constexpr std::int64_t kAheadBytes = 8192;
  const char* ahead =
      all == nullptr ? nullptr : reinterpret_cast<const char*>(all + 8 * b.cols) + kAheadBytes;
  const auto run = [&](const Batch<const float>& batch) {
    packer.add(batch, ahead);
    if (ahead != nullptr) ahead += batch.count * 256;
  };
  Batcher<const float, decltype(run)> batcher(run);
  if (all != nullptr) {
    for (std::int64_t block_row = begin; block_row < end; ++block_row, all += 8 * b.cols) {
      batcher.add(all, b.cols, b.block_cols);
    }
    batcher.flush();
    return packer.finish();
  }
  alignas(64) float gathered[kBlockRowFloats];  // several parts where they are short
  if (b.rows % 8 == 0 && b.cols % 8 == 0 && 8 * b.cols <= kBufferFloats) {
    const std::int64_t each = 8 * b.cols, together = kBufferFloats / each;
    for (std::int64_t block_row = begin; block_row < end; block_row += together) {
      const std::int64_t count = std::min(together, end - block_row);
      const auto* from = static_cast<const float*>(
          job.in->dtype() == DType::F32 ? job.in->in_thread_panel(block_row * each, count * each)
                                        : nullptr);
      if (from == nullptr) {
        job.in->gather(block_row * each, count * each, gathered);
        from = gathered;
      }
      for (std::int64_t k = 0; k < count; ++k) batcher.add(from + k * each, b.cols, b.block_cols);
      batcher.flush();
    }
    return packer.finish();
  }
  if (const std::int64_t together = tile_block_rows(b); together > 1) {
    alignas(64) float flat[kTileFloats + kCopySlack];
    for (std::int64_t block_row = begin; block_row < end; block_row += together) {
      const std::int64_t count = std::min(together, end - block_row);
      gather_tile(*job.in, b, block_row, count, flat, gathered);
      batcher.add(gathered, count * b.padded_cols(), count * b.block_cols);
      batcher.flush();
    }
    return packer.finish();
  }
  std::int64_t used = 0;
  for (std::int64_t block_row = begin; block_row < end; ++block_row) {
    for_each_part(b, block_row, [&](const BlockRowPart& part) {
      const float* rows[8];
      if (!direct_rows(*job.in, b, part, rows) || !evenly_spaced(rows)) {
        if (used + 8 * part.cols > kBlockRowFloats) {
          batcher.flush();
          used = 0;
        }
        gather_rows(*job.in, b, part, gathered + used, rows);
        used += 8 * part.cols;
      }
      batcher.add(rows[0], rows[1] - rows[0], part.cols / 8);
    });
  }
  batcher.flush();
  packer.finish();
}

// unpack(params, stream, bytes, batch) does one batch. Those in a buffer, which is read again soon,
// are not streamed.
template <class Unpack>
void unpack_batches(const UnpackJob& job, std::int64_t begin, std::int64_t end, Unpack&& unpack) {
  const Blocks& b = job.blocks;
  const Params& p = job.params;
  const auto* in =
      reinterpret_cast<const std::uint8_t*>(job.in) + begin * b.block_cols * p.form.bytes;
  bool direct = true;
  const auto run = [&](const Batch<float>& batch) {
    unpack(p, job.stream && direct, in, batch);
    in += batch.count * p.form.bytes;
  };
  Batcher<float, decltype(run)> batcher(run);
  if (auto* all = direct_block_rows<float>(*job.out, b, begin, end); all != nullptr) {
    for (std::int64_t block_row = begin; block_row < end; ++block_row, all += 8 * b.cols) {
      batcher.add(all, b.cols, b.block_cols);
    }
    return batcher.flush();
  }
  alignas(64) float buffer[kBlockRowFloats];
  direct = false;
  if (b.rows % 8 == 0 && b.cols % 8 == 0 && 8 * b.cols <= kBufferFloats) {
    const std::int64_t each = 8 * b.cols, together = kBufferFloats / each;
    for (std::int64_t block_row = begin; block_row < end; block_row += together) {
      const std::int64_t count = std::min(together, end - block_row);
      for (std::int64_t k = 0; k < count; ++k) {
        batcher.add(buffer + k * each, b.cols, b.block_cols);
      }
      batcher.flush();
      job.out->scatter(block_row * each, count * each, buffer, job.stream);
    }
    return;
  }
  if (const std::int64_t together = tile_block_rows(b); together > 1) {
    alignas(64) float flat[kTileFloats + kCopySlack];
    for (std::int64_t block_row = begin; block_row < end; block_row += together) {
      const std::int64_t count = std::min(together, end - block_row);
      batcher.add(buffer, count * b.padded_cols(), count * b.block_cols);
      batcher.flush();
      scatter_tile(*job.out, b, block_row, count, buffer, job.stream, flat);
    }
    return;
  }
  std::array<BlockRowPart, kBlockRowFloats / 64> waiting;  // to be scattered, contiguous in buffer
  std::size_t parts = 0;
  std::int64_t used = 0;
  const auto scatter = [&] {
    batcher.flush();
    const float* from = buffer;
    for (std::size_t i = 0; i < parts; from += 8 * waiting[i++].cols) {
      const float* rows[8];
      for (int r = 0; r < 8; ++r) rows[r] = from + r * waiting[i].cols;
      scatter_rows(*job.out, b, waiting[i], rows, job.stream);
    }
    parts = 0;
    used = 0;
  };
  for (std::int64_t block_row = begin; block_row < end; ++block_row) {
    for_each_part(b, block_row, [&](const BlockRowPart& part) {
      float* rows[8];
      const bool in_place = direct_rows(*job.out, b, part, rows) && evenly_spaced(rows);
      if (in_place != direct) batcher.flush();
      direct = in_place;
      if (!in_place) {
        if (used + 8 * part.cols > kBlockRowFloats) scatter();
        for (int r = 0; r < 8; ++r) rows[r] = buffer + used + r * part.cols;
        waiting[parts++] = part;
        used += 8 * part.cols;
      }
      batcher.add(rows[0], rows[1] - rows[0], part.cols / 8);
    });
  }
  scatter();
}

#if TUCKFOLD_DCT_QUANT_WIDE
bool takes_wide(const Form& form) { return form.bytes <= kMaxWideBytes; }

// Calls visit with the number of coded tiles as a template argument.
template <class Visit>
void with_tiles(const Form& form, Visit&& visit) {
  switch (form.tiles) {
    case 6: return visit.template operator()<6>();
    case 8: return visit.template operator()<8>();
    case 10: return visit.template operator()<10>();
    case 12: return visit.template operator()<12>();
    case 14: return visit.template operator()<14>();
    default: return visit.template operator()<16>();
  }
}
#endif  // TUCKFOLD_DCT_QUANT_WIDE

#if TUCKFOLD_DCT_QUANT_WIDE
// The places of batches of blocks, one after the other, in whole block rows that are one after the
// other.
class PlaceFinder {
 public:
  PlaceFinder(std::uint8_t* out, const Blocks& b)
      : out_(out), each_(8 * b.cols), block_cols_(b.block_cols), to_{.row = b.cols} {}

  HWY_INLINE const PixelPlaces& next(int count) {
    to_.count = count;
    to_.fours = block_cols_ % 4 == 0 && count == kTogether;
    const int step = to_.fours ? 4 : 1;
    for (int block = 0; block < count; block += step) {
      to_.at[block] = out_ + 8 * col_;
      if ((col_ += step) < block_cols_) continue;
      col_ = 0;
      out_ += each_;
    }
    return to_;
  }

 private:
  std::uint8_t* out_;
  std::int64_t each_, block_cols_;
  std::int64_t col_ = 0;  // of the next block, in the block row that `out_` is
  PixelPlaces to_;
};

// Images of bytes, the usual ones: whole blocks, stored side by side.
bool unpack_to_bytes(const UnpackJob& job, std::int64_t begin, std::int64_t end) {
  const Blocks& b = job.blocks;
  if (job.out->dtype() != DType::U8 || b.rows % 8 != 0 || b.cols % 8 != 0) return false;
  const std::int64_t each = 8 * b.cols;
  auto* out = static_cast<std::uint8_t*>(job.out->dense(begin * each, (end - begin) * each));
  if (out == nullptr) return false;
  with_tiles(job.params.form, [&]<int kTiles>() {
    const int bytes = job.params.form.bytes;
    const auto* all = reinterpret_cast<const std::uint8_t*>(job.in);
    const std::uint8_t* end_of_all = all + b.all_block_rows() * b.block_cols * bytes;
    const std::uint8_t* in = all + begin * b.block_cols * bytes;
    std::uint8_t last[kTogether * kMaxWideBytes + kReadBeyond];  // a copy that ends later
    const BytesForm shared(job.params);
    PlaceFinder places(out, b);
    const std::int64_t blocks = (end - begin) * b.block_cols;
    for (std::int64_t first = 0; first < blocks; first += kTogether) {
      const int count = static_cast<int>(std::min<std::int64_t>(kTogether, blocks - first));
      const std::uint8_t* from = in + first * bytes;
      if (end_of_all - from < kTogether * bytes + kReadBeyond) {
        const auto size = static_cast<std::size_t>(count * bytes);
        std::memcpy(last, from, size);
        std::memset(last + size, 0, sizeof(last) - size);
        from = last;
      }
      unpack_bytes<kTiles>(shared, from, places.next(count));
    }
  });
  return true;
}

// Fetches packed rows some bytes before they are needed: they are at random places, and fetched all at
// once they would be waited for. Finding a page takes longer than fetching a line, and several are
// found at once: so some pages are touched together, before the lines. All of it is inlined, since g++
// leaves out calls of functions that do nothing but fetch.
class RowFetcher {
 public:
  HWY_INLINE RowFetcher(std::span<const std::byte* const> rows, std::int64_t bytes)
      : pages_{rows, bytes}, lines_{rows, bytes} {
    go_on<true>(pages_, 2 * kTouched);
    fetch(kAhead);
  }

  HWY_INLINE void fetch(std::int64_t bytes) {
    go_on<false>(lines_, bytes);
    if ((fetched_ += bytes) < kTouched) return;
    fetched_ = 0;
    go_on<true>(pages_, kTouched);
  }

 private:
  static constexpr std::int64_t kLine = 64, kPage = 4096, kAhead = 4096, kTouched = 24576;

  struct Cursor {
    std::span<const std::byte* const> rows;
    std::int64_t bytes;  // of a row
    std::size_t row = 0;
    std::int64_t at = 0;
  };

  template <bool kPages>
  HWY_INLINE static void go_on(Cursor& cursor, std::int64_t bytes) {
    while (bytes > 0 && cursor.row < cursor.rows.size()) {
      const std::byte* from = cursor.rows[cursor.row] + cursor.at;
      const std::int64_t some = std::min(bytes, cursor.bytes - cursor.at);
      std::int64_t i = 0;
      if (kPages) {
        __builtin_prefetch(from);
        i = kPage - static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(from) % kPage);
      }
      for (; i < some; i += kPages ? kPage : kLine) __builtin_prefetch(from + i);
      bytes -= some;
      if ((cursor.at += some) < cursor.bytes) return;
      cursor.at = 0;
      ++cursor.row;
    }
  }

  Cursor pages_, lines_;
  std::int64_t fetched_ = 0;  // since pages were touched
};

// The same of packed images at different places.
bool unpack_rows_to_bytes(const RowsJob& job) {
  static_assert(kBeyondRow >= kReadBeyond);
  const Blocks& b = job.blocks;
  const auto rows = static_cast<std::int64_t>(job.rows.size());
  const std::int64_t blocks = b.all_block_rows() / rows * b.block_cols;  // of a row
  if (b.rows % 8 != 0 || b.cols % 8 != 0 || blocks % kTogether != 0) return false;
  with_tiles(job.params.form, [&]<int kTiles>() {
    const std::int64_t bytes = kTogether * job.params.form.bytes;
    const BytesForm shared(job.params);
    RowFetcher fetcher(job.rows, blocks / kTogether * bytes);
    for (std::int64_t i = 0; i < rows; ++i) {
      const auto* in = reinterpret_cast<const std::uint8_t*>(job.rows[static_cast<std::size_t>(i)]);
      PlaceFinder places(job.out + i * job.step, b);
      for (std::int64_t first = 0; first < blocks; first += kTogether, in += bytes) {
        fetcher.fetch(bytes);
        unpack_bytes<kTiles>(shared, in, places.next(kTogether));
      }
    }
  });
  return true;
}
#endif

void pack_block_rows_target(const PackJob& job, std::int64_t begin, std::int64_t end) {
#if TUCKFOLD_DCT_QUANT_WIDE
  if (takes_wide(job.params.form)) {
    return with_tiles(job.params.form,
                      [&]<int kTiles>() { pack_batches<Packer<kTiles>>(job, begin, end); });
  }
#endif
#if TUCKFOLD_DCT_QUANT_LANES
  pack_batches<LanePacker>(job, begin, end);
#else
  pack_batches<PlainPacker>(job, begin, end);
#endif
}

void unpack_block_rows_target(const UnpackJob& job, std::int64_t begin, std::int64_t end) {
#if TUCKFOLD_DCT_QUANT_WIDE
  if (takes_wide(job.params.form) && can_unpack_wide()) {
    if (can_unpack_bytes() && unpack_to_bytes(job, begin, end)) return;
    return with_tiles(job.params.form,
                      [&]<int kTiles>() { unpack_batches(job, begin, end, unpack_batch<kTiles>); });
  }
#endif
#if TUCKFOLD_DCT_QUANT_LANES
  unpack_batches(job, begin, end, unpack_lanes);
#else
  unpack_batches(job, begin, end, unpack_plain);
#endif
}

bool unpack_byte_rows_target([[maybe_unused]] const RowsJob& job) {
#if TUCKFOLD_DCT_QUANT_WIDE
  return takes_wide(job.params.form) && can_unpack_bytes() && unpack_rows_to_bytes(job);
#else
  return false;
#endif
}

}  // namespace tuckfold::dct_quant::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "base/fp_env.h"
#include "base/stream.h"

namespace tuckfold::dct_quant {

HWY_EXPORT(pack_block_rows_target);
HWY_EXPORT(unpack_block_rows_target);
HWY_EXPORT(unpack_byte_rows_target);

void pack_block_rows(const PackJob& job, std::int64_t begin, std::int64_t end) {
  const ReadPanels panels(*job.in);
  HWY_DYNAMIC_DISPATCH(pack_block_rows_target)(job, begin, end);
  if (job.stream) stream_fence();
}

void unpack_block_rows(const UnpackJob& job, std::int64_t begin, std::int64_t end) {
  const WritePanels panels(*job.out);
  HWY_DYNAMIC_DISPATCH(unpack_block_rows_target)(job, begin, end);
  if (job.stream) stream_fence();
}

bool unpack_byte_rows(const Stage& stage, std::span<const std::byte* const> rows,
                      const Shape& shape, std::uint8_t* out, std::int64_t step) {
  const FpEnv nearest;
  const RowsJob job{Params::of(stage), Blocks::of("dct_quant", 8, shape, "block_quant"), rows, out,
                    step};
  return !rows.empty() && HWY_DYNAMIC_DISPATCH(unpack_byte_rows_target)(job);
}

}  // namespace tuckfold::dct_quant
#endif  // HWY_ONCE
