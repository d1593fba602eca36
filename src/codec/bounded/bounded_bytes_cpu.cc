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

template <class Real>
std::size_t pack_part_as(const TensorBound& tensor, const Tiling& tiling, const FlatReader& in,
                         std::int64_t part, std::byte* out, PartBuffers<Real>& buffers) {
  Real* values = buffers.values;
  std::int32_t* codes = buffers.codes;
  std::uint8_t* kept = buffers.kept;
  Planes& planes = buffers.planes;
  const std::size_t width = size_bytes(tensor.dtype);
  const std::int64_t first = tiling.first_tile(part), last = tiling.first_tile(part + 1);
  const std::int64_t count = tiling.before(last) - tiling.before(first);
  const auto keep = [&] { return keep_part(tiling, in, first, count, out); };

  std::int64_t at = 0;
  for_each_band(tiling, first, last, [&](std::int64_t tile, const Band& band) {
    load_band(in, tiling, tile, band, buffers, values + at);
    at += band.elems();
  });
  const Real largest = largest_finite(values, count);
  Grid<Real> grid = grid_of<Real>(tensor.dtype, tensor.bound, tensor.exact_zero, 0);
  PartFront front{};
  front.grid = static_cast<std::uint8_t>(likely_grid(tensor.dtype, largest, grid));
  grid = grid_of<Real>(tensor.dtype, tensor.bound, tensor.exact_zero, front.grid);
  if (!usable(grid) || !(largest * grid.inverse <= kMaxCode<Real>)) return keep();

  // A few rows decide which predictor suits the part.
  Ahead ahead(in, tiling, part + 1);
  ahead.step();
  Choice choice(tensor.dtype, grid);
  const std::int64_t step = std::max<std::int64_t>((last - first + 3) / 4, 1);
  at = 0;
  for_each_band(tiling, first, last, [&](std::int64_t tile, const Band& band) {
    if (band.tiles > 1 || (tile - first) % step == 0) choice.look_at(values + at, band, grid);
    at += band.elems();
  });
  front.predictor = static_cast<std::uint8_t>(choice.best());

  ahead.step();
  std::memset(kept, 0, static_cast<std::size_t>(count));
  std::int32_t before = 0;
  at = 0;
  bool any_kept = false;
  for_each_band(tiling, first, last, [&](std::int64_t, const Band& band) {
    any_kept |= predict_band(static_cast<Predictor>(front.predictor), tensor.dtype, grid, band,
                             values + at, before, codes + at, kept + at, buffers);
    at += band.elems();
  });

  // Escapes are expensive, but a few are worth codes of half the width.
  ahead.step();
  auto* narrow = reinterpret_cast<std::uint8_t*>(values);
  const auto [past_half, past_byte] = narrow_codes(codes, count, narrow);
  const Width width_of_codes = past_half * 8 <= count    ? kHalf
                               : past_byte * 64 <= count ? kByte
                                                         : kTwoBytes;
  const std::int64_t plane = plane_bytes(width_of_codes, count);
  front.width = width_of_codes;
  const std::uint32_t least = width_of_codes == kHalf ? kPastMore : kEscapes[width_of_codes];
  if (past_byte > 0) {
    front.escapes = static_cast<std::uint32_t>(count_from(codes, count, least));
  }
  split_codes(codes, count, width_of_codes, narrow, planes);
  if (width_of_codes == kHalf && past_half > 0) split_more(codes, count, planes.more);
  std::size_t size =
      sizeof(PartFront) + stored_bytes(planes.low, plane) + 4 * std::size_t{front.escapes};
  if (width_of_codes == kHalf) size += static_cast<std::size_t>(past_half);
  if (width_of_codes == kTwoBytes) size += stored_bytes(planes.high, plane);
  if (any_kept) {
    for_each_kept(kept, count, [&](Run run) {
      ++front.kept_runs;
      size += sizeof(Run) + run.count * width;
    });
  }
  ahead.step();
  if (size + kTrailing > static_cast<std::size_t>(count) * width) return keep();

  std::memcpy(out, &front, sizeof(front));
  std::byte* to = store_plane(planes.low, plane, out + sizeof(front));
  if (width_of_codes == kTwoBytes) to = store_plane(planes.high, plane, to);
  if (width_of_codes == kHalf) {
    std::memcpy(to, planes.more, static_cast<std::size_t>(past_half));
    to += past_half;
  }
  if (front.escapes > 0) to = store_escapes(codes, count, least, to);
  if (any_kept) {
    for_each_kept(kept, count, [&](Run run) {
      std::memcpy(to, &run, sizeof(run));
      to += sizeof(run);
    });
    std::int64_t place = 0;
    for_each_kept(kept, count, [&](Run run) {
      place += run.skip;
      for_each_place(tiling, first, place, run.count, [&](std::int64_t element, std::int64_t some) {
        in.gather_bytes(element, some, to);
        to += static_cast<std::size_t>(some) * width;
      });
      place += run.count;
    });
  }
  return size;
}

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
  return tensor.dtype == DType::F64 ? pack_part_as(tensor, tiling, in, part, out, buffers.f64)
                                    : pack_part_as(tensor, tiling, in, part, out, buffers.f32);
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
