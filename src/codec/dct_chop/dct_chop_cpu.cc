// dct_chop on the CPU. Block rows are transformed into a buffer in the L1 cache, which is then
// stored in whole cache lines: stores that straddle lines, or fetch them first, would cost more
// than the arithmetic.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/dct_chop/dct_chop_cpu.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/half.h"
#include "base/stream_cpu-inl.h"
#include "codec/dct_chop/dct_chop.h"
#include "codec/dct_chop/dct_chop_block.h"
#include "codec/dct_chop/dct_chop_cpu-inl.h"
#include "codec/dct_chop/dct_chop_stored_cpu-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tuckfold::dct_chop::HWY_NAMESPACE {

// ---- one row of blocks, f32 to f32 --------------------------------------------------------------

// `block` rows, cols wide, to and from `keep` packed rows; the packed rows of `forward` are
// contiguous.
using ForwardFn = void (*)(int keep, const float* const* rows, std::int64_t cols, float* out);
using InverseFn = void (*)(int keep, const float* in, std::int64_t in_row, std::int64_t cols,
                           std::int64_t block_rows, float* const* rows,
                           std::int64_t block_row_step);
// Block rows that are contiguous in memory, straight to a stored f32 output that is aligned to a
// cache line.
using FastFn = void (*)(const float* in, std::int64_t cols, std::int64_t block_rows, float* out,
                        bool stream, PackBuffers& buffers);

template <int N, bool kZfp>
constexpr const Table<N>& forward_table() {
  if constexpr (kZfp) {
    return kZfpForward;
  } else {
    return kDct<N>;
  }
}
template <int N, bool kZfp>
constexpr const Table<N>& inverse_table() {
  if constexpr (kZfp) {
    return kZfpInverse;
  } else {
    return kDct<N>;
  }
}

// Any block, by the normative function.
template <int N, bool kZfp = false>
void forward_plain(int keep, const float* const* rows, std::int64_t cols, float* out) {
  float x[N * N], coefs[N * N];
  for (std::int64_t b = 0; b < cols / N; ++b) {
    for (int r = 0; r < N; ++r) std::memcpy(x + r * N, rows[r] + b * N, N * sizeof(float));
    forward_block<N>(forward_table<N, kZfp>(), keep, x, N, coefs);
    for (int u = 0; u < keep; ++u) {
      std::copy_n(coefs + u * keep, keep, out + (u * (cols / N) + b) * keep);
    }
  }
}

template <int N, bool kZfp = false>
void inverse_plain(int keep, const float* in, std::int64_t in_row, std::int64_t cols,
                   std::int64_t block_rows, float* const* rows, std::int64_t block_row_step) {
  float x[N * N], coefs[N * N];
  for (std::int64_t block_row = 0; block_row < block_rows; ++block_row, in += keep * in_row) {
    for (std::int64_t b = 0; b < cols / N; ++b) {
      for (int u = 0; u < keep; ++u)
        std::copy_n(in + u * in_row + b * keep, keep, coefs + u * keep);
      inverse_block<N>(inverse_table<N, kZfp>(), keep, coefs, x, N);
      for (int r = 0; r < N; ++r) {
        std::memcpy(rows[r] + block_row * block_row_step + b * N, x + r * N, N * sizeof(float));
      }
    }
  }
}

#if TUCKFOLD_DCT_CHOP_VECTORS
// 8 x 8 in vectors, where they hold a block's row.
template <int K>
void forward_8(int, const float* const* rows, std::int64_t cols, float* out) {
  forward_block_row<K>(rows, cols, out);
}
template <int K, bool kStream>
void inverse_8(int, const float* in, std::int64_t in_row, std::int64_t cols,
               std::int64_t block_rows, float* const* rows, std::int64_t block_row_step) {
  inverse_block_rows<K, kStream>(in, in_row, cols, block_rows, rows, block_row_step);
}
#endif

#if TUCKFOLD_DCT_CHOP_SLOTS
// Two buffers of slots take turns: one fills while the other drains. Slots that make no whole group
// of lines move on to the next turn.
template <int K>
HWY_ATTR void fast_8(const float* in, std::int64_t cols, std::int64_t block_rows, float* out,
                     bool stream, PackBuffers& buffers) {
  using Out = Drain<K>;
  const std::int64_t row_slots = cols / 8 / kSlotBlocks<K>;
  if (row_slots % Out::kSlots == 0) {
    forward_rows<K>(in, cols, block_rows, out, stream);
    return;
  }
  const std::int64_t at_a_time = HWY_MAX(kFlushFloats / 16 / (K * row_slots), 1);
  static_assert(sizeof(buffers.slots[0]) >=
                (kFlushFloats + kBlockRowFloats + Out::kSlots * 16) * 4);
  auto& turns = buffers.slots;
  Out drain{.to = out, .to_step = Out::kLines * 16, .stream = stream};
  std::int64_t waiting = 0;  // slots at the front of the buffer to fill
  for (int turn = 0; block_rows > 0; turn ^= 1) {
    const std::int64_t count = HWY_MIN(at_a_time, block_rows);
    float* buffer = turns[turn];
    forward_slots<K>(in, cols, count, buffer + waiting * 16, drain);
    drain.step(drain.groups);
    const std::int64_t filled = waiting + count * K * row_slots;
    drain.slots = buffer;
    drain.groups = filled / Out::kSlots;
    waiting = filled % Out::kSlots;
    std::memcpy(turns[turn ^ 1], buffer + drain.groups * Out::kSlots * 16,
                static_cast<std::size_t>(waiting) * 64);
    block_rows -= count;
    in += count * 8 * cols;
    if (block_rows == 0) {
      drain.step(drain.groups);
      for (std::int64_t i = 0; i < waiting; ++i, drain.to += Out::kValues) {
        const float* slot = turns[turn ^ 1] + i * 16;
        for (int j = 0; j < Out::kValues; ++j) drain.to[j] = slot[slot_lane<K>(j)];
      }
    }
  }
}
#endif

// Columns of a block row that are worth a call, and a gather row by row.
constexpr std::int64_t kOwnCall = 32, kOwnGather = 48;
constexpr std::int64_t kGatherFloats = 2048;  // packed at a time
constexpr std::int64_t kStreamFloats = 4096;  // unpacked before they are stored: half a first cache

struct Kernels {
  ForwardFn forward;
  InverseFn inverse;
  InverseFn inverse_streaming = nullptr;  // rows start at cache lines and are whole lines
  FastFn fast = nullptr;
  std::int64_t fast_cols = 1;  // whose multiples `fast` takes
};

Kernels kernels_of(const Params& p) {
  if (p.transform == Transform::Zfp) return {forward_plain<4, true>, inverse_plain<4, true>};
  if (p.block == 4) return {forward_plain<4>, inverse_plain<4>};
  if (p.block == 16) return {forward_plain<16>, inverse_plain<16>};
#if TUCKFOLD_DCT_CHOP_SLOTS
  return [&]<int... K>(std::integer_sequence<int, K...>) {
    constexpr std::array kTable = {Kernels{forward_8<K + 1>, inverse_8<K + 1, false>,
                                           inverse_8<K + 1, true>, fast_8<K + 1>,
                                           8 * kSlotBlocks<K + 1>}...};
    return kTable[static_cast<std::size_t>(p.keep - 1)];
  }
  (std::make_integer_sequence<int, 8>());
#elif TUCKFOLD_DCT_CHOP_VECTORS
  return [&]<int... K>(std::integer_sequence<int, K...>) {
    constexpr std::array kTable = {
        Kernels{forward_8<K + 1>, inverse_8<K + 1, false>, inverse_8<K + 1, true>}...};
    return kTable[static_cast<std::size_t>(p.keep - 1)];
  }
  (std::make_integer_sequence<int, 8>());
#else
  return {forward_plain<8>, inverse_plain<8>};
#endif
}

// ---- block rows of a tensor ---------------------------------------------------------------------

// Packs all block rows at once if everything suits the fast kernel; some at a time if they are not
// f32 or not contiguous.
bool pack_fast(const PackJob& job, const Kernels& kernels, std::int64_t begin, std::int64_t end,
               PackBuffers& buffers) {
  const Params& p = job.params;
  const Blocks& b = job.blocks;
  const std::int64_t block_row_elems = p.block * b.cols;
  std::byte* out = job.out + begin * b.block_cols * p.values_per_block() * 4;
  const bool suits = kernels.fast != nullptr && !p.triangle && !p.planes && p.coef == DType::F32 &&
                     b.rows % p.block == 0 && b.cols % kernels.fast_cols == 0 &&
                     block_row_elems <= kBlockRowFloats &&
                     reinterpret_cast<std::uintptr_t>(out) % 64 == 0;
  if (!suits) return false;
  const bool is_f32 = job.in->dtype() == DType::F32;
  const void* in =
      is_f32 ? job.in->dense(begin * block_row_elems, (end - begin) * block_row_elems) : nullptr;
  if (in != nullptr) {
    kernels.fast(static_cast<const float*>(in), b.cols, end - begin, reinterpret_cast<float*>(out),
                 job.stream, buffers);
    return true;
  }
  const std::int64_t block_row_bytes = b.block_cols * p.values_per_block() * 4;
  if (block_row_bytes % 64 != 0) return false;
  const std::int64_t together = std::max<std::int64_t>(kGatherFloats / block_row_elems, 1);
  for (std::int64_t row = begin; row < end; row += together) {
    const std::int64_t count = std::min(together, end - row);
    const std::int64_t first = row * block_row_elems, elems = count * block_row_elems;
    const auto* from =
        static_cast<const float*>(is_f32 ? job.in->in_thread_panel(first, elems) : nullptr);
    if (from == nullptr) {
      job.in->gather(first, elems, buffers.gathered);
      from = buffers.gathered;
    }
    kernels.fast(from, b.cols, count, reinterpret_cast<float*>(out), job.stream, buffers);
    out += count * block_row_bytes;
  }
  return true;
}

void pack_block_rows_target(const PackJob& job, std::int64_t begin, std::int64_t end,
                            PackBuffers& buffers) {
  const Params& p = job.params;
  const Blocks& b = job.blocks;
  const Kernels kernels = kernels_of(p);
  if (pack_fast(job, kernels, begin, end, buffers)) return;
  const auto width = static_cast<std::int64_t>(size_bytes(p.coef));
  const std::int64_t block_row_values = b.block_cols * p.values_per_block();
  const bool whole_rows = b.padded_cols() <= kBlockRowFloats / p.block;
  const bool wide = b.padded_cols() >= (job.in->dtype() == DType::F32 ? kOwnCall : kOwnGather);
  const std::int64_t together = wide && !p.planes && !p.triangle ? 1 : tile_block_rows(b);
  float* square = buffers.square;
  PackedWriter writer(p.coef, job.out + begin * block_row_values * width, job.stream, buffers);
  PlanesWriter planes(job, buffers);
  // Where the order of blocks is all, a tile is a block row like others.
  const auto pack_rows = [&](const float* const* rows, std::int64_t cols, std::int64_t first) {
    const std::int64_t blocks = cols / p.block;
    if (p.planes) {
      kernels.forward(p.keep, rows, cols, planes.room(first, blocks));
      return true;
    }
    if (!p.triangle) return false;
    kernels.forward(p.keep, rows, cols, square);
    square_to_triangle(p.keep, square, blocks * p.keep, blocks, writer.room());
    writer.commit(blocks * p.values_per_block());
    return true;
  };
  const float* rows[kMaxBlock];
  for (std::int64_t block_row = begin; together > 1 && block_row < end; block_row += together) {
    const std::int64_t count = std::min(together, end - block_row);
    const std::int64_t cols = count * b.padded_cols();
    gather_tile(*job.in, b, block_row, count, buffers.flat, buffers.gathered);
    for (int r = 0; r < p.block; ++r) rows[r] = buffers.gathered + r * cols;
    if (pack_rows(rows, cols, block_row * b.block_cols)) continue;
    if (b.padded_cols() < kOwnCall) {
      kernels.forward(p.keep, rows, cols, square);
      split_rows(p.keep, square, count, b.block_cols * p.keep, writer.room());
      writer.commit(count * block_row_values);
      continue;
    }
    for (std::int64_t k = 0; k < count; ++k) {
      kernels.forward(p.keep, rows, b.padded_cols(), writer.room());
      writer.commit(block_row_values);
      for (int r = 0; r < p.block; ++r) rows[r] += b.padded_cols();
    }
  }
  for (std::int64_t block_row = begin; together == 1 && block_row < end; ++block_row) {
    for_each_part(b, block_row, [&](const BlockRowPart& part) {
      if (!direct_rows(*job.in, b, part, rows))
        gather_rows(*job.in, b, part, buffers.gathered, rows);
      const std::int64_t first_block = part.first / p.block;
      if (pack_rows(rows, part.cols, block_row * b.block_cols + first_block)) return;
      const std::int64_t row = part.cols / p.block * p.keep;
      if (whole_rows) {
        kernels.forward(p.keep, rows, part.cols, writer.room());
        writer.commit(row * p.keep);
        return;
      }
      // Squares of a block row that is too wide for one part: their rows are stored one by one, not
      // by `writer`.
      kernels.forward(p.keep, rows, part.cols, square);
      for (int u = 0; u < p.keep; ++u) {
        const std::int64_t at =
            block_row * block_row_values + u * b.block_cols * p.keep + first_block * p.keep;
        PackedWriter piece(p.coef, job.out + at * width, job.stream, buffers);
        std::memcpy(piece.room(), square + u * row, static_cast<std::size_t>(row) * sizeof(float));
        piece.commit(row);
        piece.finish();
      }
    });
  }
  planes.flush();
  writer.finish();
}

// How many block rows from `block_row` on are contiguous, whole and f32, so that one call can
// unpack them. At least one; if it is one, it need not be any of these.
std::int64_t dense_block_rows(const UnpackJob& job, std::int64_t block_row, std::int64_t most) {
  const Blocks& b = job.blocks;
  const Params& p = job.params;
  const std::int64_t block_row_elems = p.block * b.cols;
  const bool whole =
      b.rows % p.block == 0 && b.cols % p.block == 0 && block_row_elems <= kBlockRowFloats;
  if (!whole || p.triangle || p.planes || p.coef != DType::F32 || job.out->dtype() != DType::F32)
    return 1;
  const std::int64_t run = job.out->run_length(block_row * block_row_elems, most * block_row_elems);
  return std::max<std::int64_t>(run / block_row_elems, 1);
}

// Unpacks tiles of narrow planes.
void unpack_tiles(const UnpackJob& job, const Kernels& kernels, std::int64_t begin,
                  std::int64_t end, UnpackBuffers& buffers) {
  const Params& p = job.params;
  const Blocks& b = job.blocks;
  const auto width = static_cast<std::int64_t>(size_bytes(p.coef));
  const std::int64_t block_row_values = b.block_cols * p.values_per_block();
  const std::int64_t together = tile_block_rows(b);
  PlanesReader planes(job, buffers);
  for (std::int64_t block_row = begin; block_row < end; block_row += together) {
    const std::int64_t count = std::min(together, end - block_row);
    const std::int64_t cols = count * b.padded_cols(), blocks = cols / p.block;
    const std::byte* packed = job.in + block_row * block_row_values * width;
    float* rows[kMaxBlock];
    for (int r = 0; r < p.block; ++r) rows[r] = buffers.values + r * cols;
    if (p.planes) {
      const float* coefs = planes.part(block_row * b.block_cols, blocks, 1);
      kernels.inverse(p.keep, coefs, blocks * p.keep, cols, 1, rows, 0);
    } else if (p.triangle) {
      const std::int64_t coef_row = blocks * p.keep + kSlack;
      widen(p.coef, packed, count * block_row_values, buffers.linear);
      triangle_to_square(p.keep, buffers.linear, blocks, buffers.square, coef_row);
      kernels.inverse(p.keep, buffers.square, coef_row, cols, 1, rows, 0);
    } else {
      const auto* coefs = reinterpret_cast<const float*>(packed);
      if (p.coef != DType::F32 || reinterpret_cast<std::uintptr_t>(packed) % alignof(float) != 0) {
        widen(p.coef, packed, count * block_row_values, buffers.linear);
        coefs = buffers.linear;
      }
      kernels.inverse(p.keep, coefs, b.block_cols * p.keep, b.padded_cols(), count, rows,
                      b.padded_cols());
    }
    scatter_tile(*job.out, b, block_row, count, buffers.values, job.stream, buffers.flat);
  }
}

// Whole block rows through a buffer: those that are not f32, not contiguous, or whose rows do not
// begin at cache lines, which is what streaming needs.
void unpack_buffered(const UnpackJob& job, const Kernels& kernels, const float* coefs,
                     std::int64_t block_row, std::int64_t count, UnpackBuffers& buffers) {
  const Params& p = job.params;
  const Blocks& b = job.blocks;
  const std::int64_t each = p.block * b.cols;
  float* rows[kMaxBlock];
  for (int r = 0; r < p.block; ++r) rows[r] = buffers.values + r * b.cols;
  kernels.inverse(p.keep, coefs, b.block_cols * p.keep, b.cols, count, rows, each);
  job.out->scatter(block_row * each, count * each, buffers.values, job.stream);
}

// How many block rows from `block_row` on go through a buffer at once; 0: they need none.
std::int64_t buffered_block_rows(const UnpackJob& job, std::int64_t block_row, std::int64_t most) {
  const Blocks& b = job.blocks;
  const Params& p = job.params;
  const std::int64_t each = p.block * b.cols;
  const bool whole = b.rows % p.block == 0 && b.cols % p.block == 0 && each <= kBlockRowFloats;
  if (!whole || p.triangle || p.planes || p.coef != DType::F32) return 0;
  if (job.out->dtype() == DType::F32) {
    const void* rows = job.out->dense(block_row * each, each);
    const bool lines = b.cols % 16 == 0 && reinterpret_cast<std::uintptr_t>(rows) % 64 == 0;
    if (rows != nullptr && (lines || !job.stream)) return 0;
  }
  return std::min(most, std::max<std::int64_t>(kStreamFloats / each, 1));
}

void unpack_block_rows_target(const UnpackJob& job, std::int64_t begin, std::int64_t end,
                              UnpackBuffers& buffers) {
  const Params& p = job.params;
  const Blocks& b = job.blocks;
  const Kernels kernels = kernels_of(p);
  if (tile_block_rows(b) > 1) return unpack_tiles(job, kernels, begin, end, buffers);
  const auto width = static_cast<std::int64_t>(size_bytes(p.coef));
  const std::int64_t block_row_values = b.block_cols * p.values_per_block();
  const bool aligned_in = reinterpret_cast<std::uintptr_t>(job.in) % alignof(float) == 0;
  float* square = buffers.square;
  PlanesReader planes(job, buffers);
  std::int64_t block_rows = 1;
  for (std::int64_t block_row = begin; block_row < end; block_row += block_rows) {
    if (aligned_in) {
      block_rows = buffered_block_rows(job, block_row, end - block_row);
      if (block_rows > 0) {
        const auto* coefs =
            reinterpret_cast<const float*>(job.in + block_row * block_row_values * width);
        unpack_buffered(job, kernels, coefs, block_row, block_rows, buffers);
        continue;
      }
    }
    block_rows = aligned_in ? dense_block_rows(job, block_row, end - block_row) : 1;
    for_each_part(b, block_row, [&](const BlockRowPart& part) {
      const std::int64_t blocks = part.cols / p.block, first_block = part.first / p.block;
      const std::byte* block_row_at = job.in + block_row * block_row_values * width;
      // The part's coefficients as `keep` rows of f32.
      const float* coefs = square;
      std::int64_t coef_row = blocks * p.keep;
      if (p.planes) {
        coefs = planes.part(block_row * b.block_cols + first_block, blocks,
                            blocks == b.block_cols ? end - block_row : 1);
      } else if (p.triangle) {
        const std::int64_t count = p.values_per_block();
        coef_row += kSlack;
        widen(p.coef, block_row_at + first_block * count * width, blocks * count, buffers.linear);
        triangle_to_square(p.keep, buffers.linear, blocks, square, coef_row);
      } else {
        const std::byte* at = block_row_at + first_block * p.keep * width;
        const std::int64_t stored_row = b.block_cols * p.keep;
        if (p.coef == DType::F32 && aligned_in) {
          coefs = reinterpret_cast<const float*>(at);
          coef_row = stored_row;
        } else {
          for (int u = 0; u < p.keep; ++u) {
            widen(p.coef, at + u * stored_row * width, coef_row, square + u * coef_row);
          }
        }
      }
      float* rows[kMaxBlock];
      const std::int64_t block_row_step = p.block * b.cols;
      if (direct_rows(*job.out, b, part, rows)) {
        bool lines = job.stream && kernels.inverse_streaming != nullptr && part.cols % 16 == 0;
        for (int r = 0; r < p.block; ++r)
          lines &= reinterpret_cast<std::uintptr_t>(rows[r]) % 64 == 0;
        (lines ? kernels.inverse_streaming : kernels.inverse)(p.keep, coefs, coef_row, part.cols,
                                                              block_rows, rows, block_row_step);
        return;
      }
      for (int r = 0; r < p.block; ++r) rows[r] = buffers.values + r * part.cols;
      kernels.inverse(p.keep, coefs, coef_row, part.cols, 1, rows, 0);
      scatter_rows(*job.out, b, part, rows, job.stream);
    });
  }
}

}  // namespace tuckfold::dct_chop::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "base/fp_env.h"
#include "base/stream.h"

namespace tuckfold::dct_chop {
namespace {

// ---- after a NaN --------------------------------------------------------------------------------

// Makes every NaN of f32 values, at any address, the canonical one.
void settle_run(void* values, std::int64_t count) {
  auto* at = static_cast<std::byte*>(values);
  for (std::int64_t i = 0; i < count; ++i, at += sizeof(float)) {
    std::uint32_t bits;
    std::memcpy(&bits, at, sizeof(bits));
    bits = pick((bits & ~kSignBit) > kInfBits, kNanBits, bits);
    std::memcpy(at, &bits, sizeof(bits));
  }
}

// The same for block rows [begin, end). Values narrower than f32 get it when they are rounded.
void settle_packed(const PackJob& job, std::int64_t begin, std::int64_t end) {
  const Params& p = job.params;
  const Blocks& b = job.blocks;
  if (p.coef != DType::F32) return;
  const std::int64_t first = begin * b.block_cols, blocks = (end - begin) * b.block_cols;
  const std::int64_t each = p.values_per_block(), all = b.all_block_rows() * b.block_cols;
  if (!p.planes) return settle_run(job.out + first * each * 4, blocks * each);
  for (std::int64_t i = 0; i < each; ++i) settle_run(job.out + (i * all + first) * 4, blocks);
}

void settle_unpacked(const UnpackJob& job, std::int64_t begin, std::int64_t end) {
  const Blocks& b = job.blocks;
  if (job.out->dtype() != DType::F32) return;
  const auto row_of = [&](std::int64_t block_row) {  // of all planes' rows
    return block_row / b.block_rows * b.rows + block_row % b.block_rows * b.block;
  };
  std::int64_t at = row_of(begin) * b.cols, left = row_of(end) * b.cols - at;
  while (left > 0) {
    const std::int64_t run = job.out->run_length(at, left);
    settle_run(job.out->dense(at, run), run);
    at += run;
    left -= run;
  }
}

}  // namespace

HWY_EXPORT(pack_block_rows_target);
HWY_EXPORT(unpack_block_rows_target);

void pack_block_rows(const PackJob& job, std::int64_t begin, std::int64_t end,
                     PackBuffers& buffers) {
  const NanFlag nan;
  const ReadPanels panels(*job.in);
  HWY_DYNAMIC_DISPATCH(pack_block_rows_target)(job, begin, end, buffers);
  if (job.stream) stream_fence();
  if (nan.raised()) settle_packed(job, begin, end);
}

void unpack_block_rows(const UnpackJob& job, std::int64_t begin, std::int64_t end,
                       UnpackBuffers& buffers) {
  const NanFlag nan;
  {
    const WritePanels panels(*job.out);  // whose end comes before NaNs are searched for
    HWY_DYNAMIC_DISPATCH(unpack_block_rows_target)(job, begin, end, buffers);
  }
  if (job.stream) stream_fence();
  if (nan.raised()) settle_unpacked(job, begin, end);
}

}  // namespace tuckfold::dct_chop
#endif  // HWY_ONCE
