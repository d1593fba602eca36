// bounded on the CPU, codes=bytes: small numbers in bytes, for an entropy coder that follows. Loops
// are plain; the compiler vectorizes them for each target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/bounded/bounded_bytes_cpu.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/stream.h"
#include "base/stream_cpu-inl.h"
#include "codec/bounded/bounded.h"
#include "codec/bounded/bounded_planes_cpu-inl.h"
#include "codec/bounded/bounded_predict_cpu-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tuckfold::bounded::HWY_NAMESPACE {

// ---- tiles in memory ----------------------------------------------------------------------------

struct Tile {
  std::int64_t first;  // of the tensor's elements
  std::int64_t rows, cols;
  std::int64_t elems() const { return rows * cols; }
};

Tile tile_at(const Tiling& tiling, std::int64_t tile) {
  const std::int64_t each = tiling.down * tiling.across, plane = tile / each;
  const std::int64_t y = tile % each / tiling.across, x = tile % tiling.across;
  return {.first = (plane * tiling.rows + tiling.row(y)) * tiling.cols + tiling.col(x),
          .rows = tiling.row(y + 1) - tiling.row(y),
          .cols = tiling.col(x + 1) - tiling.col(x)};
}

// Calls visit(first tile, tiles side by side) for tiles [first, last): those that follow each other
// and are of one size.
template <class Visit>
void for_each_band(const Tiling& tiling, std::int64_t first, std::int64_t last, Visit&& visit) {
  while (first < last) {
    const Tile tile = tile_at(tiling, first);
    std::int64_t end = tiling.down * tiling.across == 1 ? last : first + 1;
    for (; end < last; ++end) {
      const Tile next = tile_at(tiling, end);
      if (next.rows != tile.rows || next.cols != tile.cols) break;
    }
    visit(first, Band{end - first, tile.rows, tile.cols});
    first = end;
  }
}

// Moves the rows of tiles from one after the other to side by side, or back; short rows in whole
// vectors where that fits.
template <bool kSideBySide, class Real>
HWY_ATTR void move_rows(const Band& band, const Real* from, Real* to) {
  const hn::CappedTag<Real, 8> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const bool in_vectors = band.cols % lanes == 0 && band.cols <= 64;
  for (std::int64_t t = 0; t < band.tiles; ++t) {
    for (std::int64_t r = 0; r < band.rows; ++r) {
      const std::int64_t apart = (t * band.rows + r) * band.cols;
      const std::int64_t beside = r * band.width() + t * band.cols;
      const Real* source = from + (kSideBySide ? apart : beside);
      Real* target = to + (kSideBySide ? beside : apart);
      if (in_vectors) {
        for (std::int64_t i = 0; i < band.cols; i += lanes) {
          hn::StoreU(hn::LoadU(d, source + i), d, target + i);
        }
      } else {
        std::memcpy(target, source, static_cast<std::size_t>(band.cols) * sizeof(Real));
      }
    }
  }
}

// A contiguous band has the width of the tensor's planes.
template <class Real>
void load_band(const FlatReader& in, const Tiling& tiling, std::int64_t first, const Band& band,
               PartBuffers<Real>& buffers, Real* values) {
  const std::int64_t begin = tiling.before(first);
  const void* bits = tiling.across == 1 ? in.dense(begin, band.elems()) : nullptr;
  if (bits != nullptr) {
    const Real* reals = as_reals(in.dtype(), bits, band.elems(), buffers.moved);
    if (band.tiles > 1) {
      move_rows<true>(band, reals, values);
    } else {
      std::memcpy(values, reals, static_cast<std::size_t>(band.elems()) * sizeof(Real));
    }
    return;
  }
  alignas(64) std::byte gathered[kTileCols * 8];
  for (std::int64_t t = 0; t < band.tiles; ++t) {
    const Tile tile = tile_at(tiling, first + t);
    for (std::int64_t r = 0; r < tile.rows; ++r) {
      const std::int64_t at = tile.first + r * tiling.cols;
      bits = in.dense(at, tile.cols);
      if (bits == nullptr) {
        in.gather_bytes(at, tile.cols, gathered);
        bits = gathered;
      }
      Real* to = values + r * band.width() + t * band.cols;
      const Real* row = as_reals(in.dtype(), bits, tile.cols, to);
      if (row != to) std::memcpy(to, row, static_cast<std::size_t>(tile.cols) * sizeof(Real));
    }
  }
}

template <class Real>
void store_band(const FlatWriter& out, const Tiling& tiling, std::int64_t first, const Band& band,
                bool stream, PartBuffers<Real>& buffers, const Real* values) {
  void* bits = tiling.across == 1 ? out.dense(tiling.before(first), band.elems()) : nullptr;
  if (bits != nullptr) {
    if (band.tiles > 1) {
      move_rows<false>(band, values, buffers.moved);
      values = buffers.moved;
    }
    const auto* from =
        static_cast<const char*>(as_elements(out.dtype(), values, band.elems(), buffers.narrowed));
    const std::size_t bytes = static_cast<std::size_t>(band.elems()) * size_bytes(out.dtype());
    if (stream) {
      tuckfold::HWY_NAMESPACE::stream_lines(static_cast<char*>(bits), from, bytes);
    } else {
      std::memcpy(bits, from, bytes);
    }
    return;
  }
  for (std::int64_t t = 0; t < band.tiles; ++t) {
    const Tile tile = tile_at(tiling, first + t);
    for (std::int64_t r = 0; r < tile.rows; ++r) {
      const Real* row = values + r * band.width() + t * band.cols;
      out.scatter_bytes(tile.first + r * tiling.cols, tile.cols,
                        as_elements(out.dtype(), row, tile.cols, buffers.narrowed));
    }
  }
}

// Memory would be idle while a part is packed: prefetches the next part if it is contiguous, a
// little at every step, because prefetches that are issued all at once wait in a queue.
class Ahead {
 public:
  Ahead(const FlatReader& in, const Tiling& tiling, std::int64_t part) {
    const std::int64_t begin = tiling.before_part(part);
    const std::int64_t count = tiling.before_part(part + 1) - begin;
    if (count > 0) next_ = static_cast<const char*>(in.dense(begin, count));
    lines_ = count * static_cast<std::int64_t>(size_bytes(in.dtype())) / (64 * kSteps);
  }
  void step() {
    if (next_ == nullptr) return;
    for (std::int64_t i = 0; i < lines_; ++i, next_ += 64) __builtin_prefetch(next_, 0, 2);
  }

 private:
  static constexpr std::int64_t kSteps = 4;
  const char* next_ = nullptr;
  std::int64_t lines_;
};

// ---- payloads -----------------------------------------------------------------------------------

// A part's payload starts with this, 12 bytes.
struct PartFront {
  std::uint8_t predictor;
  std::uint8_t grid;
  std::uint8_t width;       // of codes: 4, 8 or 16 bits
  std::uint8_t unused;      // 0
  std::uint32_t escapes;    // codes stored as they are, i32 each
  std::uint32_t kept_runs;  // runs of values stored as they are, 8 bytes each and the values
};
static_assert(sizeof(PartFront) == 12);

// ---- parts --------------------------------------------------------------------------------------

struct Run {
  std::uint32_t skip, count;
};

// Calls visit(run) for the runs of values that exceed the bound.
template <class Visit>
void for_each_kept(const std::uint8_t* kept, std::int64_t count, Visit&& visit) {
  std::int64_t end = 0;
  for (std::int64_t i = 0; i < count;) {
    if (kept[i] == 0) {
      ++i;
      continue;
    }
    const std::int64_t begin = i;
    while (i < count && kept[i] != 0) ++i;
    visit(Run{static_cast<std::uint32_t>(begin - end), static_cast<std::uint32_t>(i - begin)});
    end = i;
  }
}

// Calls visit(element of the tensor, elements that follow it in its row) for values [at, at +
// count) of a part.
template <class Visit>
void for_each_place(const Tiling& tiling, std::int64_t first_tile, std::int64_t at,
                    std::int64_t count, Visit&& visit) {
  std::int64_t tile_begin = 0;
  for (std::int64_t t = first_tile; count > 0; ++t) {
    const Tile tile = tile_at(tiling, t);
    while (count > 0 && at < tile_begin + tile.elems()) {
      const std::int64_t inside = at - tile_begin;
      const std::int64_t some = std::min(count, tile.cols - inside % tile.cols);
      visit(tile.first + inside / tile.cols * tiling.cols + inside % tile.cols, some);
      at += some;
      count -= some;
    }
    tile_begin += tile.elems();
  }
}

// Stores the values' bits: one value if they are all the same, else all of them.
std::size_t keep_part(const Tiling& tiling, const FlatReader& in, std::int64_t first_tile,
                      std::int64_t count, std::byte* out) {
  const std::size_t width = size_bytes(in.dtype()), all = static_cast<std::size_t>(count) * width;
  std::byte* to = out;
  for_each_place(tiling, first_tile, 0, count, [&](std::int64_t element, std::int64_t some) {
    in.gather_bytes(element, some, to);
    to += static_cast<std::size_t>(some) * width;
  });
  return std::memcmp(out, out + width, all - width) == 0 ? width : all;
}

// Packs one part: values to codes, codes to planes, planes to bytes. Between these steps `ahead`
// prefetches the next part.
template <class Real>
class PartPacker {
 public:
  PartPacker(const TensorBound& tensor, const Tiling& tiling, const FlatReader& in,
             std::int64_t part, PartBuffers<Real>& buffers)
      : tensor_(tensor),
        tiling_(tiling),
        in_(in),
        buffers_(buffers),
        first_(tiling.first_tile(part)),
        last_(tiling.first_tile(part + 1)),
        count_(tiling.before(last_) - tiling.before(first_)),
        ahead_(in, tiling, part + 1) {}

  // Returns the bytes of the payload.
  std::size_t pack(std::byte* out) {
    load();
    if (!choose_grid()) return keep_part(tiling_, in_, first_, count_, out);
    ahead_.step();
    choose_predictor();
    ahead_.step();
    predict();
    ahead_.step();
    split();
    const std::size_t size = payload_bytes();
    ahead_.step();
    if (size + kTrailing > static_cast<std::size_t>(count_) * element_bytes_) {
      return keep_part(tiling_, in_, first_, count_, out);
    }
    store(out);
    return size;
  }

 private:
  // Calls visit(first tile, band, number of its first value in the part).
  template <class Visit>
  void for_each_band_of_part(Visit&& visit) {
    std::int64_t at = 0;
    for_each_band(tiling_, first_, last_, [&](std::int64_t tile, const Band& band) {
      visit(tile, band, at);
      at += band.elems();
    });
  }

  void load() {
    for_each_band_of_part([&](std::int64_t tile, const Band& band, std::int64_t at) {
      load_band(in_, tiling_, tile, band, buffers_, buffers_.values + at);
    });
  }

  // False if no grid suits the values: then the part is stored unchanged.
  bool choose_grid() {
    const Real largest = largest_finite(buffers_.values, count_);
    grid_ = grid_of<Real>(tensor_.dtype, tensor_.bound, tensor_.exact_zero, 0);
    front_.grid = static_cast<std::uint8_t>(likely_grid(tensor_.dtype, largest, grid_));
    grid_ = grid_of<Real>(tensor_.dtype, tensor_.bound, tensor_.exact_zero, front_.grid);
    return usable(grid_) && largest * grid_.inverse <= kMaxCode<Real>;
  }

  // A few rows decide which predictor suits the part.
  void choose_predictor() {
    Choice choice(tensor_.dtype, grid_);
    const std::int64_t step = std::max<std::int64_t>((last_ - first_ + 3) / 4, 1);
    for_each_band_of_part([&](std::int64_t tile, const Band& band, std::int64_t at) {
      if (band.tiles > 1 || (tile - first_) % step == 0) {
        choice.look_at(buffers_.values + at, band, grid_);
      }
    });
    front_.predictor = static_cast<std::uint8_t>(choice.best());
  }

  // Values to codes; those that exceed the bound are marked in `kept`.
  void predict() {
    std::memset(buffers_.kept, 0, static_cast<std::size_t>(count_));
    std::int32_t before = 0;
    for_each_band_of_part([&](std::int64_t, const Band& band, std::int64_t at) {
      any_kept_ |= predict_band(static_cast<Predictor>(front_.predictor), tensor_.dtype, grid_,
                                band, buffers_.values + at, before, buffers_.codes + at,
                                buffers_.kept + at, buffers_);
    });
  }

  // Codes to planes. Escapes are expensive, but a few are worth codes of half the width.
  void split() {
    auto* narrow = reinterpret_cast<std::uint8_t*>(buffers_.values);
    const auto [past_half, past_byte] = narrow_codes(buffers_.codes, count_, narrow);
    past_half_ = past_half;
    width_ = past_half * 8 <= count_ ? kHalf : past_byte * 64 <= count_ ? kByte : kTwoBytes;
    plane_bytes_ = plane_bytes(width_, count_);
    least_escape_ = width_ == kHalf ? kPastMore : kEscapes[width_];
    front_.width = width_;
    if (past_byte > 0) {
      front_.escapes =
          static_cast<std::uint32_t>(count_from(buffers_.codes, count_, least_escape_));
    }
    split_codes(buffers_.codes, count_, width_, narrow, buffers_.planes);
    if (width_ == kHalf && past_half > 0) {
      split_more(buffers_.codes, count_, buffers_.planes.more);
    }
  }

  // Also counts the runs of kept values.
  std::size_t payload_bytes() {
    std::size_t size = sizeof(PartFront) + stored_bytes(buffers_.planes.low, plane_bytes_) +
                       4 * std::size_t{front_.escapes};
    if (width_ == kHalf) size += static_cast<std::size_t>(past_half_);
    if (width_ == kTwoBytes) size += stored_bytes(buffers_.planes.high, plane_bytes_);
    if (any_kept_) {
      for_each_kept(buffers_.kept, count_, [&](Run run) {
        ++front_.kept_runs;
        size += sizeof(Run) + run.count * element_bytes_;
      });
    }
    return size;
  }

  void store(std::byte* out) {
    std::memcpy(out, &front_, sizeof(front_));
    std::byte* to = store_plane(buffers_.planes.low, plane_bytes_, out + sizeof(front_));
    if (width_ == kTwoBytes) to = store_plane(buffers_.planes.high, plane_bytes_, to);
    if (width_ == kHalf) {
      std::memcpy(to, buffers_.planes.more, static_cast<std::size_t>(past_half_));
      to += past_half_;
    }
    if (front_.escapes > 0) to = store_escapes(buffers_.codes, count_, least_escape_, to);
    if (any_kept_) store_kept(to);
  }

  // The runs of kept values, then their bits.
  void store_kept(std::byte* to) {
    for_each_kept(buffers_.kept, count_, [&](Run run) {
      std::memcpy(to, &run, sizeof(run));
      to += sizeof(run);
    });
    std::int64_t place = 0;
    for_each_kept(buffers_.kept, count_, [&](Run run) {
      place += run.skip;
      for_each_place(tiling_, first_, place, run.count,
                     [&](std::int64_t element, std::int64_t some) {
                       in_.gather_bytes(element, some, to);
                       to += static_cast<std::size_t>(some) * element_bytes_;
                     });
      place += run.count;
    });
  }

  const TensorBound& tensor_;
  const Tiling& tiling_;
  const FlatReader& in_;
  PartBuffers<Real>& buffers_;
  const std::int64_t first_, last_, count_;  // tiles, and values
  const std::size_t element_bytes_ = size_bytes(tensor_.dtype);
  Ahead ahead_;
  PartFront front_{};
  Grid<Real> grid_{};
  bool any_kept_ = false;
  Width width_ = kHalf;
  std::int64_t past_half_ = 0, plane_bytes_ = 0;
  std::uint32_t least_escape_ = 0;
};

template <class Real>
bool unpack_part_as(const TensorBound& tensor, const Tiling& tiling,
                    std::span<const std::byte> from, const FlatWriter& out, std::int64_t part,
                    bool stream, PartBuffers<Real>& buffers) {
  const std::size_t width = size_bytes(tensor.dtype);
  const std::int64_t first = tiling.first_tile(part), last = tiling.first_tile(part + 1);
  const std::int64_t count = tiling.before(last) - tiling.before(first);
  const auto store_bits = [&](std::int64_t place, std::int64_t some) {
    for_each_place(tiling, first, place, some, [&](std::int64_t element, std::int64_t length) {
      out.scatter_bytes(element, length, from.data());
      from = from.subspan(static_cast<std::size_t>(length) * width);
    });
  };
  if (from.size() == static_cast<std::size_t>(count) * width) {
    store_bits(0, count);
    return true;
  }
  if (from.size() == width) {
    const std::span<const std::byte> one = from;
    for (std::int64_t i = 0; i < count; ++i) {
      from = one;
      store_bits(i, 1);
    }
    return true;
  }
  PartFront front;
  if (from.size() < sizeof(front)) return false;
  std::memcpy(&front, from.data(), sizeof(front));
  from = from.subspan(sizeof(front));
  if (front.predictor > kLastPredictor || front.grid >= kGrids || front.width > kLastWidth) {
    return false;
  }
  if (!load_codes(from, static_cast<Width>(front.width), front.escapes, count, buffers))
    return false;
  const Grid<Real> grid = grid_of<Real>(tensor.dtype, tensor.bound, tensor.exact_zero, front.grid);
  std::int32_t before = 0;
  std::int64_t at = 0;
  for_each_band(tiling, first, last, [&](std::int64_t tile, const Band& band) {
    restore_band(static_cast<Predictor>(front.predictor), grid, band, buffers.codes + at, before,
                 buffers.values, buffers);
    store_band(out, tiling, tile, band, stream, buffers, buffers.values);
    at += band.elems();
  });
  if (stream) stream_fence();
  if (from.size() / sizeof(Run) < front.kept_runs) return false;
  std::span<const std::byte> runs = from.first(front.kept_runs * sizeof(Run));
  from = from.subspan(runs.size());
  for (std::int64_t place = 0; !runs.empty(); runs = runs.subspan(sizeof(Run))) {
    Run run;
    std::memcpy(&run, runs.data(), sizeof(run));
    if (run.skip > count - place) return false;
    place += run.skip;
    if (run.count > count - place || from.size() / width < run.count) return false;
    store_bits(place, run.count);
    place += run.count;
  }
  return from.empty();
}

std::size_t pack_part_target(const TensorBound& tensor, const Tiling& tiling, const FlatReader& in,
                             std::int64_t part, std::byte* out, AnyPartBuffers& buffers) {
  return tensor.dtype == DType::F64
             ? PartPacker<double>(tensor, tiling, in, part, buffers.f64).pack(out)
             : PartPacker<float>(tensor, tiling, in, part, buffers.f32).pack(out);
}

bool unpack_part_target(const TensorBound& tensor, const Tiling& tiling,
                        std::span<const std::byte> payload, const FlatWriter& out,
                        std::int64_t part, bool stream, AnyPartBuffers& buffers) {
  return tensor.dtype == DType::F64
             ? unpack_part_as(tensor, tiling, payload, out, part, stream, buffers.f64)
             : unpack_part_as(tensor, tiling, payload, out, part, stream, buffers.f32);
}

}  // namespace tuckfold::bounded::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tuckfold::bounded {

HWY_EXPORT(pack_part_target);
HWY_EXPORT(unpack_part_target);

std::size_t pack_part(const TensorBound& tensor, const Tiling& tiling, const FlatReader& in,
                      std::int64_t part, std::byte* out, AnyPartBuffers& buffers) {
  return HWY_DYNAMIC_DISPATCH(pack_part_target)(tensor, tiling, in, part, out, buffers);
}

bool unpack_part(const TensorBound& tensor, const Tiling& tiling,
                 std::span<const std::byte> payload, const FlatWriter& out, std::int64_t part,
                 bool stream, AnyPartBuffers& buffers) {
  return HWY_DYNAMIC_DISPATCH(unpack_part_target)(tensor, tiling, payload, out, part, stream,
                                                  buffers);
}

}  // namespace tuckfold::bounded
#endif  // HWY_ONCE
