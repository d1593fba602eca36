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

// ---- coefficients as they are stored ------------------------------------------------------------

inline void narrow(DType coef, const float* in, std::int64_t count, std::uint16_t* out) {
  if (coef == DType::F16) {
    for (std::int64_t i = 0; i < count; ++i) out[i] = to_f16_saturated(in[i]).bits;
  } else {
    for (std::int64_t i = 0; i < count; ++i) out[i] = to_bf16_saturated(in[i]).bits;
  }
}

// `in` may be at any address.
inline void widen(DType coef, const std::byte* in, std::int64_t count, float* out) {
  if (coef == DType::F32) {
    std::memcpy(out, in, static_cast<std::size_t>(count) * sizeof(float));
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint16_t bits;
    std::memcpy(&bits, in + 2 * i, 2);
    out[i] = coef == DType::F16 ? to_float(F16{bits}) : to_float(BF16{bits});
  }
}

// Collects packed values in order, and stores them in pieces that end at cache lines.
class PackedWriter {
 public:
  PackedWriter(DType coef, std::byte* to, bool stream, PackBuffers& buffers)
      : coef_(coef),
        width_(static_cast<std::int64_t>(size_bytes(coef))),
        to_(to),
        stream_(stream),
        values_(buffers.values),
        narrow_(buffers.narrow) {}

  float* room() { return values_ + count_; }  // for one part of a block row
  void commit(std::int64_t count) {
    count_ += count;
    if (count_ >= kFlushFloats) flush(false);
  }
  void finish() { flush(true); }

 private:
  HWY_ATTR void flush(bool all) {
    const auto end =
        reinterpret_cast<std::uintptr_t>(to_) + static_cast<std::uintptr_t>(count_ * width_);
    const std::int64_t rest = all ? 0 : static_cast<std::int64_t>(end % 64) / width_;
    const std::int64_t count = count_ - rest;
    const void* from = values_;
    if (coef_ != DType::F32) {
      narrow(coef_, values_, count, narrow_);
      from = narrow_;
    }
    const auto bytes = static_cast<std::size_t>(count * width_);
    if (stream_) {
      tuckfold::HWY_NAMESPACE::stream_lines(reinterpret_cast<char*>(to_),
                                            static_cast<const char*>(from), bytes);
    } else {
      std::memcpy(to_, from, bytes);
    }
    to_ += bytes;
    count_ = rest;
    std::memmove(values_, values_ + count, static_cast<std::size_t>(rest) * sizeof(float));
  }

  DType coef_;
  std::int64_t width_;
  std::byte* to_;
  bool stream_;
  float* values_;
  std::uint16_t* narrow_;
  std::int64_t count_ = 0;
};

// Square coefficients of a block row's part to triangles, block by block, and back with zeros. Rows
// of up to eight are copied as eight: the next row overwrites the surplus.
void square_to_triangle(int keep, const float* square, std::int64_t row, std::int64_t blocks,
                        float* out) {
  for (std::int64_t b = 0; b < blocks; ++b) {
    for (int u = 0; u < keep; ++u) {
      const float* from = square + u * row + b * keep;
      if (keep <= 8) {
        std::memcpy(out, from, 8 * sizeof(float));
      } else {
        std::copy_n(from, keep - u, out);
      }
      out += keep - u;
    }
  }
}
void triangle_to_square(int keep, const float* in, std::int64_t blocks, float* square,
                        std::int64_t row) {
  for (std::int64_t b = 0; b < blocks; ++b) {
    for (int u = 0; u < keep; in += keep - u, ++u) {
      float* to = square + u * row + b * keep;
      if (keep <= 8) {
        std::memcpy(to, in, 8 * sizeof(float));
        std::memset(to + keep - u, 0, 8 * sizeof(float));
      } else {
        std::fill(std::copy_n(in, keep - u, to), to + keep, 0.0f);
      }
    }
  }
}

// ---- planes -------------------------------------------------------------------------------------

// Calls visit(place in a square's rows, place in the packed values) for each frequency.
template <class Visit>
void for_each_frequency(const Params& p, std::int64_t square_row, Visit&& visit) {
  int count = 0;
  for (int u = 0; u < p.keep; ++u) {
    for (int v = 0; v < (p.triangle ? p.keep - u : p.keep); ++v) visit(u * square_row + v, count++);
  }
}

// Square coefficients of a part to `blocks` values of each plane, which are plane_values long.
void write_planes(const Params& p, std::int64_t square_row, std::int64_t blocks,
                  PackBuffers& buffers, std::byte* out, std::int64_t plane_values) {
  const auto width = static_cast<std::int64_t>(size_bytes(p.coef));
  for_each_frequency(p, square_row, [&](std::int64_t from, int frequency) {
    for (std::int64_t b = 0; b < blocks; ++b) buffers.line[b] = buffers.square[from + b * p.keep];
    const void* values = buffers.line;
    if (p.coef != DType::F32) {
      narrow(p.coef, buffers.line, blocks, buffers.narrow_line);
      values = buffers.narrow_line;
    }
    std::memcpy(out + frequency * plane_values * width, values,
                static_cast<std::size_t>(blocks * width));
  });
}

// The inverse; coefficients that are not kept become zero.
void read_planes(const Params& p, const std::byte* in, std::int64_t plane_values,
                 std::int64_t blocks, std::int64_t square_row, UnpackBuffers& buffers) {
  const auto width = static_cast<std::int64_t>(size_bytes(p.coef));
  if (p.triangle) std::fill_n(buffers.square, p.keep * square_row, 0.0f);
  for_each_frequency(p, square_row, [&](std::int64_t to, int frequency) {
    widen(p.coef, in + frequency * plane_values * width, blocks, buffers.line);
    for (std::int64_t b = 0; b < blocks; ++b) buffers.square[to + b * p.keep] = buffers.line[b];
  });
}

// ---- block rows of a tensor ---------------------------------------------------------------------

// Packs all block rows at once if everything suits the fast kernel.
bool pack_fast(const PackJob& job, const Kernels& kernels, std::int64_t begin, std::int64_t end,
               PackBuffers& buffers) {
  const Params& p = job.params;
  const Blocks& b = job.blocks;
  const std::int64_t block_row_elems = p.block * b.cols;
  std::byte* out = job.out + begin * b.block_cols * p.values_per_block() * 4;
  const bool suits = kernels.fast != nullptr && !p.triangle && !p.planes && p.coef == DType::F32 &&
                     job.in->dtype() == DType::F32 && b.rows % p.block == 0 &&
                     b.cols % kernels.fast_cols == 0 && block_row_elems <= kBlockRowFloats &&
                     reinterpret_cast<std::uintptr_t>(out) % 64 == 0;
  if (!suits) return false;
  const void* in = job.in->dense(begin * block_row_elems, (end - begin) * block_row_elems);
  if (in == nullptr) return false;
  kernels.fast(static_cast<const float*>(in), b.cols, end - begin, reinterpret_cast<float*>(out),
               job.stream, buffers);
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
  const bool whole_rows = b.block_cols * p.block <= kBlockRowFloats / p.block;
  float* square = buffers.square;
  PackedWriter writer(p.coef, job.out + begin * block_row_values * width, job.stream, buffers);
  for (std::int64_t block_row = begin; block_row < end; ++block_row) {
    for_each_part(b, block_row, [&](const BlockRowPart& part) {
      const float* rows[kMaxBlock];
      if (!direct_rows(*job.in, b, part, rows))
        gather_rows(*job.in, b, part, buffers.gathered, rows);
      const std::int64_t blocks = part.cols / p.block, row = blocks * p.keep;
      if (p.planes) {
        kernels.forward(p.keep, rows, part.cols, square);
        const std::int64_t first = block_row * b.block_cols + part.first / p.block;
        write_planes(p, row, blocks, buffers, job.out + first * width,
                     b.all_block_rows() * b.block_cols);
        return;
      }
      if (whole_rows && !p.triangle) {
        kernels.forward(p.keep, rows, part.cols, writer.room());
        writer.commit(row * p.keep);
        return;
      }
      kernels.forward(p.keep, rows, part.cols, square);
      if (p.triangle) {
        square_to_triangle(p.keep, square, row, blocks, writer.room());
        writer.commit(blocks * p.values_per_block());
        return;
      }
      // Squares of a block row that is too wide for one part: their rows are stored one by one, not
      // by `writer`.
      for (int u = 0; u < p.keep; ++u) {
        const std::int64_t at = block_row * block_row_values + u * b.block_cols * p.keep +
                                part.first / p.block * p.keep;
        PackedWriter piece(p.coef, job.out + at * width, job.stream, buffers);
        std::memcpy(piece.room(), square + u * row, static_cast<std::size_t>(row) * sizeof(float));
        piece.commit(row);
        piece.finish();
      }
    });
  }
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

void unpack_block_rows_target(const UnpackJob& job, std::int64_t begin, std::int64_t end,
                              UnpackBuffers& buffers) {
  const Params& p = job.params;
  const Blocks& b = job.blocks;
  const Kernels kernels = kernels_of(p);
  const auto width = static_cast<std::int64_t>(size_bytes(p.coef));
  const std::int64_t block_row_values = b.block_cols * p.values_per_block();
  const bool aligned_in = reinterpret_cast<std::uintptr_t>(job.in) % alignof(float) == 0;
  float* square = buffers.square;
  std::int64_t block_rows = 1;
  for (std::int64_t block_row = begin; block_row < end; block_row += block_rows) {
    block_rows = aligned_in ? dense_block_rows(job, block_row, end - block_row) : 1;
    for_each_part(b, block_row, [&](const BlockRowPart& part) {
      const std::int64_t blocks = part.cols / p.block, first_block = part.first / p.block;
      const std::byte* block_row_at = job.in + block_row * block_row_values * width;
      // The part's coefficients as `keep` rows of f32.
      const float* coefs = square;
      std::int64_t coef_row = blocks * p.keep;
      if (p.planes) {
        const std::int64_t first = block_row * b.block_cols + first_block;
        read_planes(p, job.in + first * width, b.all_block_rows() * b.block_cols, blocks, coef_row,
                    buffers);
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
      scatter_rows(*job.out, b, part, rows);
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
  HWY_DYNAMIC_DISPATCH(pack_block_rows_target)(job, begin, end, buffers);
  if (job.stream) stream_fence();
  if (nan.raised()) settle_packed(job, begin, end);
}

void unpack_block_rows(const UnpackJob& job, std::int64_t begin, std::int64_t end,
                       UnpackBuffers& buffers) {
  const NanFlag nan;
  HWY_DYNAMIC_DISPATCH(unpack_block_rows_target)(job, begin, end, buffers);
  if (job.stream) stream_fence();
  if (nan.raised()) settle_unpacked(job, begin, end);
}

}  // namespace tuckfold::dct_chop
#endif  // HWY_ONCE
