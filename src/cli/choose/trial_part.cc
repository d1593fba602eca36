#include "cli/choose/trial_part.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "codec/blocks/block_rows.h"

namespace tuckfold::cli {
namespace {

constexpr int kBlock = 8;
constexpr std::int64_t kMostBands = 16;

// Place i of `count` out of `among`, one from each of `count` equal stretches. The golden ratio
// makes the steps uneven: even steps could hit the same colour channel every time.
std::int64_t place(std::int64_t i, std::int64_t count, std::int64_t among) {
  const double stretch = static_cast<double>(among) / static_cast<double>(count);
  const double begin = std::floor(static_cast<double>(i) * stretch);
  const double end = std::floor(static_cast<double>(i + 1) * stretch);
  const double inside = std::fmod(static_cast<double>(i) * 0.6180339887498949, 1.0);
  return std::min(static_cast<std::int64_t>(begin + std::floor(inside * (end - begin))), among - 1);
}

}  // namespace

Array trial_part_of(const Array& array, std::int64_t most) {
  const Shape& shape = array.shape;
  const std::int64_t elems = shape.elems();
  std::size_t leading = Folding::of(kBlock, shape).leading;  // planes stay whole
  std::int64_t units = 1;
  for (std::size_t axis = 0; axis < leading; ++axis) units *= shape[axis];
  const std::int64_t unit_elems = elems / units;

  // What is taken: `count` pieces of `piece` values, `per_unit` of them in each unit.
  std::int64_t count = std::max<std::int64_t>(most / unit_elems, 1), piece = unit_elems,
               per_unit = 1;
  Shape taken;
  if (elems <= most) {
    count = 1;
    piece = elems;
    taken = shape;
  } else if (unit_elems <= most) {
    taken.push_back(count);
    for (std::size_t axis = leading; axis < shape.rank(); ++axis) taken.push_back(shape[axis]);
  } else {
    while (leading + 1 < shape.rank() && shape[leading] == 1) ++leading;
    const std::int64_t rows = shape[leading], row_elems = unit_elems / rows;
    const std::int64_t wanted = most / kMostBands / row_elems / kBlock * kBlock;
    const std::int64_t band = std::min(std::max<std::int64_t>(wanted, kBlock), rows);
    per_unit = rows / band;
    piece = band * row_elems;
    count = std::clamp<std::int64_t>(most / piece, 1, units * per_unit);
    taken.push_back(count * band);
    for (std::size_t axis = leading + 1; axis < shape.rank(); ++axis) taken.push_back(shape[axis]);
  }

  Array part{.name = array.name,
             .stored = array.stored,
             .stored_bytes = 0,
             .dtype = array.dtype,
             .shape = taken,
             .values = {}};
  const std::size_t value_bytes = size_bytes(array.dtype);
  part.values = HugeBuffer(static_cast<std::size_t>(taken.elems()) * value_bytes);
  const double share = static_cast<double>(taken.elems()) / static_cast<double>(elems);
  part.stored_bytes =
      static_cast<std::size_t>(std::llround(share * static_cast<double>(array.stored_bytes)));
  const std::size_t piece_bytes = static_cast<std::size_t>(piece) * value_bytes;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t from = place(i, count, units * per_unit);
    const std::int64_t first = from / per_unit * unit_elems + from % per_unit * piece;
    std::memcpy(part.values.data() + static_cast<std::size_t>(i) * piece_bytes,
                array.values.data() + static_cast<std::size_t>(first) * value_bytes, piece_bytes);
    if (!array.marks.empty()) {
      const auto from_marks = array.marks.begin() + first;
      part.marks.insert(part.marks.end(), from_marks, from_marks + piece);
    }
  }
  return part;
}

}  // namespace tuckfold::cli
