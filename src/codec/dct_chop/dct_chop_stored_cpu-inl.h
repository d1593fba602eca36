// How dct_chop's coefficients are stored: widths, triangles, planes of one frequency, and a writer
// of whole cache lines.
#if defined(TUCKFOLD_CODEC_DCT_CHOP_STORED_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TUCKFOLD_CODEC_DCT_CHOP_STORED_INL_H
#undef TUCKFOLD_CODEC_DCT_CHOP_STORED_INL_H
#else
#define TUCKFOLD_CODEC_DCT_CHOP_STORED_INL_H
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "base/half.h"
#include "base/stream_cpu-inl.h"
#include "codec/dct_chop/dct_chop.h"

HWY_BEFORE_NAMESPACE();
namespace tuckfold::dct_chop::HWY_NAMESPACE {

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
inline void square_to_triangle(int keep, const float* square, std::int64_t row, std::int64_t blocks,
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
inline void triangle_to_square(int keep, const float* in, std::int64_t blocks, float* square,
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

// Collects square coefficients of parts of equal width, in their order, and stores all values of a
// frequency that it has at once: parts of narrow planes have few.
class PlanesWriter {
 public:
  PlanesWriter(const PackJob& job, PackBuffers& buffers) : job_(job), buffers_(buffers) {}

  // Where the coefficients of so many blocks go, of which `first` is the first.
  float* room(std::int64_t first, std::int64_t blocks) {
    const std::int64_t have = (parts_ + 1) * blocks;
    if (blocks != blocks_ || first != first_ + parts_ * blocks_ ||
        have * squares() > kBlockRowFloats || have > kLineValues) {
      flush();
      first_ = first;
      blocks_ = blocks;
    }
    return buffers_.square + parts_++ * blocks * squares();
  }
  void flush() {
    if (parts_ == 0) return;
    const Params& p = job_.params;
    const auto width = static_cast<std::int64_t>(size_bytes(p.coef));
    const std::int64_t plane = job_.blocks.all_block_rows() * job_.blocks.block_cols;
    const std::int64_t count = parts_ * blocks_;
    for_each_frequency(p, blocks_ * p.keep, [&](std::int64_t from, int frequency) {
      float* to = buffers_.line;
      for (std::int64_t part = 0; part < parts_; ++part, from += blocks_ * squares()) {
        for (std::int64_t b = 0; b < blocks_; ++b) *to++ = buffers_.square[from + b * p.keep];
      }
      const void* values = buffers_.line;
      if (p.coef != DType::F32) {
        narrow(p.coef, buffers_.line, count, buffers_.narrow_line);
        values = buffers_.narrow_line;
      }
      std::memcpy(job_.out + (frequency * plane + first_) * width, values,
                  static_cast<std::size_t>(count * width));
    });
    parts_ = 0;
  }

 private:
  std::int64_t squares() const { return job_.params.keep * job_.params.keep; }

  const PackJob& job_;
  PackBuffers& buffers_;
  std::int64_t first_ = 0, blocks_ = 0, parts_ = 0;
};

// The reverse; coefficients that are not kept become zero.
class PlanesReader {
 public:
  PlanesReader(const UnpackJob& job, UnpackBuffers& buffers) : job_(job), buffers_(buffers) {}

  // The coefficients of blocks [first, first + blocks) as `keep` rows. Up to `most` such parts,
  // one after the other, are read at once.
  const float* part(std::int64_t first, std::int64_t blocks, std::int64_t most) {
    const std::int64_t at = first - first_;
    if (blocks != blocks_ || at < 0 || at % blocks != 0 || at >= parts_ * blocks) {
      read(first, blocks, most);
      return buffers_.square;
    }
    return buffers_.square + at * squares();
  }

 private:
  std::int64_t squares() const { return job_.params.keep * job_.params.keep; }
  void read(std::int64_t first, std::int64_t blocks, std::int64_t most) {
    const Params& p = job_.params;
    const auto width = static_cast<std::int64_t>(size_bytes(p.coef));
    const std::int64_t plane = job_.blocks.all_block_rows() * job_.blocks.block_cols;
    first_ = first;
    blocks_ = blocks;
    parts_ = std::min(most, std::min(kBlockRowFloats / squares(), kLineValues) / blocks);
    if (p.triangle) std::fill_n(buffers_.square, parts_ * blocks * squares(), 0.0f);
    for_each_frequency(p, blocks * p.keep, [&](std::int64_t to, int frequency) {
      widen(p.coef, job_.in + (frequency * plane + first) * width, parts_ * blocks, buffers_.line);
      const float* from = buffers_.line;
      for (std::int64_t part = 0; part < parts_; ++part, to += blocks * squares()) {
        for (std::int64_t b = 0; b < blocks; ++b) buffers_.square[to + b * p.keep] = *from++;
      }
    });
  }

  const UnpackJob& job_;
  UnpackBuffers& buffers_;
  std::int64_t first_ = 0, blocks_ = 0, parts_ = 0;
};

// ---- tiles: squares of block rows side by side --------------------------------------------------

// `keep` rows of `count` block rows to those of one block row after the other, `values` in each
// row. Writes a few floats past the end.
inline void split_rows(int keep, const float* wide, std::int64_t count, std::int64_t values,
                       float* out) {
  for (std::int64_t k = 0; k < count; ++k) {
    for (int u = 0; u < keep; ++u, out += values) {
      copy_floats(wide + (u * count + k) * values, values, out);
    }
  }
}

}  // namespace tuckfold::dct_chop::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
