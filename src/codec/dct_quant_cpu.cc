// dct_quant on the CPU.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/dct_quant_cpu.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstring>

#include "codec/dct_quant.h"
#include "codec/dct_quant_pack_cpu-inl.h"
#include "codec/dct_quant_unpack_cpu-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tuckfold::dct_quant::HWY_NAMESPACE {

// ---- one strip's part, f32 ----------------------------------------------------------------------

// By the normative functions.
HWY_ATTR void pack_plain(const Params& p, const float* const* rows, std::int64_t blocks,
                         std::uint8_t* out) {
  float x[64];
  for (std::int64_t b = 0; b < blocks; ++b, out += p.form.bytes) {
    for (int i = 0; i < 64; ++i) x[i] = rows[i / 8][b * 8 + i % 8] - p.offset;
    pack_block(p.form, x, out);
  }
}

HWY_ATTR void unpack_plain(const Params& p, const std::uint8_t* in, std::int64_t blocks,
                           float* const* rows) {
  float x[64];
  for (std::int64_t b = 0; b < blocks; ++b, in += p.form.bytes) {
    unpack_block(p.form, in, x);
    for (int i = 0; i < 64; ++i) {
      const float value = p.offset == 0 ? x[i] : x[i] + p.offset;
      rows[i / 8][b * 8 + i % 8] = p.clamp && value < 0 ? 0.0f : value;
    }
  }
}

// ---- strips of a tensor -------------------------------------------------------------------------

// Whether rows lie at equal distances.
template <class Float>
bool evenly_spaced(Float* const* rows) {
  for (int r = 2; r < 8; ++r) {
    if (rows[r] - rows[r - 1] != rows[1] - rows[0]) return false;
  }
  return true;
}

#if TUCKFOLD_DCT_QUANT_WIDE
bool takes_wide(const Form& form) { return form.bytes <= kMaxWideBytes; }

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
      const auto some = static_cast<int>(std::min<std::int64_t>(blocks, kBatch - batch_.count));
      for (int i = 0; i < some; ++i) batch_.at[batch_.count + i] = at + 8 * i;
      at += 8 * some;
      blocks -= some;
      batch_.count += some;
      if (batch_.count == kBatch) flush();
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

// Where strips [begin, end) lie as whole blocks of f32, one behind the other; else null.
template <class Float, class View>
Float* direct_strips(const View& view, const Blocks& b, std::int64_t begin, std::int64_t end) {
  if (view.dtype() != DType::F32 || b.rows % 8 != 0 || b.cols % 8 != 0) return nullptr;
  const std::int64_t each = 8 * b.cols;
  return static_cast<Float*>(view.dense(begin * each, (end - begin) * each));
}

template <int kTiles>
void pack_strips_wide(const PackJob& job, std::int64_t begin, std::int64_t end) {
  const Blocks& b = job.blocks;
  const Params& p = job.params;
  auto* out = reinterpret_cast<std::uint8_t*>(job.out) + begin * b.block_cols * p.form.bytes;
  Packer<kTiles> packer(job, out);
  const auto* all = direct_strips<const float>(*job.in, b, begin, end);
  // What is to be read soon, a strip and some ahead, in the order of addresses.
  constexpr std::int64_t kAheadBytes = 8192;
  const char* ahead =
      all == nullptr ? nullptr : reinterpret_cast<const char*>(all + 8 * b.cols) + kAheadBytes;
  const auto run = [&](const Batch<const float>& batch) {
    packer.add(batch, ahead);
    if (ahead != nullptr) ahead += batch.count * 256;
  };
  Batcher<const float, decltype(run)> batcher(run);
  if (all != nullptr) {
    for (std::int64_t strip = begin; strip < end; ++strip, all += 8 * b.cols) {
      batcher.add(all, b.cols, b.block_cols);
    }
    batcher.flush();
    return packer.finish();
  }
  alignas(64) float gathered[kStripFloats];
  for (std::int64_t strip = begin; strip < end; ++strip) {
    for_each_part(b, strip, [&](const Part& part) {
      const float* rows[8];
      const bool direct = direct_rows(*job.in, b, part, rows) && evenly_spaced(rows);
      if (!direct) gather_rows(*job.in, b, part, gathered, rows);
      batcher.add(rows[0], rows[1] - rows[0], part.cols / 8);
      if (!direct) batcher.flush();
    });
  }
  batcher.flush();
  packer.finish();
}

template <int kTiles>
void unpack_strips_wide(const UnpackJob& job, std::int64_t begin, std::int64_t end) {
  const Blocks& b = job.blocks;
  const Params& p = job.params;
  const auto* in =
      reinterpret_cast<const std::uint8_t*>(job.in) + begin * b.block_cols * p.form.bytes;
  const auto run = [&](const Batch<float>& batch) {
    unpack_batch<kTiles>(p, job.stream, in, batch);
    in += batch.count * p.form.bytes;
  };
  Batcher<float, decltype(run)> batcher(run);
  if (auto* all = direct_strips<float>(*job.out, b, begin, end); all != nullptr) {
    for (std::int64_t strip = begin; strip < end; ++strip, all += 8 * b.cols) {
      batcher.add(all, b.cols, b.block_cols);
    }
    return batcher.flush();
  }
  alignas(64) float buffer[kStripFloats];
  for (std::int64_t strip = begin; strip < end; ++strip) {
    for_each_part(b, strip, [&](const Part& part) {
      float* rows[8];
      const bool direct = direct_rows(*job.out, b, part, rows) && evenly_spaced(rows);
      if (!direct) {
        for (int r = 0; r < 8; ++r) rows[r] = buffer + r * part.cols;
      }
      batcher.add(rows[0], rows[1] - rows[0], part.cols / 8);
      if (!direct) {
        batcher.flush();
        scatter_rows(*job.out, b, part, rows);
      }
    });
  }
  batcher.flush();
}

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

void pack_strips_target(const PackJob& job, std::int64_t begin, std::int64_t end) {
#if TUCKFOLD_DCT_QUANT_WIDE
  if (takes_wide(job.params.form)) {
    return with_tiles(job.params.form,
                      [&]<int kTiles>() { pack_strips_wide<kTiles>(job, begin, end); });
  }
#endif
  const Blocks& b = job.blocks;
  const int bytes = job.params.form.bytes;
  auto* out = reinterpret_cast<std::uint8_t*>(job.out) + begin * b.block_cols * bytes;
  alignas(64) float gathered[kStripFloats];
  for (std::int64_t strip = begin; strip < end; ++strip) {
    for_each_part(b, strip, [&](const Part& part) {
      const float* rows[8];
      if (!direct_rows(*job.in, b, part, rows)) gather_rows(*job.in, b, part, gathered, rows);
      pack_plain(job.params, rows, part.cols / 8, out);
      out += part.cols / 8 * bytes;
    });
  }
}

void unpack_strips_target(const UnpackJob& job, std::int64_t begin, std::int64_t end) {
#if TUCKFOLD_DCT_QUANT_WIDE
  if (takes_wide(job.params.form) && can_unpack_wide()) {
    return with_tiles(job.params.form,
                      [&]<int kTiles>() { unpack_strips_wide<kTiles>(job, begin, end); });
  }
#endif
  const Blocks& b = job.blocks;
  const int bytes = job.params.form.bytes;
  const auto* in = reinterpret_cast<const std::uint8_t*>(job.in) + begin * b.block_cols * bytes;
  alignas(64) float buffer[kStripFloats];
  for (std::int64_t strip = begin; strip < end; ++strip) {
    for_each_part(b, strip, [&](const Part& part) {
      float* rows[8];
      const bool direct = direct_rows(*job.out, b, part, rows);
      if (!direct) {
        for (int r = 0; r < 8; ++r) rows[r] = buffer + r * part.cols;
      }
      unpack_plain(job.params, in, part.cols / 8, rows);
      in += part.cols / 8 * bytes;
      if (!direct) scatter_rows(*job.out, b, part, rows);
    });
  }
}

}  // namespace tuckfold::dct_quant::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "base/stream.h"

namespace tuckfold::dct_quant {

HWY_EXPORT(pack_strips_target);
HWY_EXPORT(unpack_strips_target);

void pack_strips(const PackJob& job, std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(pack_strips_target)(job, begin, end);
  if (job.stream) stream_fence();
}

void unpack_strips(const UnpackJob& job, std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(unpack_strips_target)(job, begin, end);
  if (job.stream) stream_fence();
}

}  // namespace tuckfold::dct_quant
#endif  // HWY_ONCE
