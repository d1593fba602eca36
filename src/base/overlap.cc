#include "base/overlap.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <vector>

#include "base/fail.h"

namespace tuckfold {
namespace {

using Address = std::uintptr_t;  // sums wrap around instead of overflowing

struct Range {
  Address begin = 0, end = 0;
  bool meets(const Range& other) const { return begin < other.end && other.begin < end; }
};

Range range_of(std::span<const std::byte> bytes) {
  const auto begin = reinterpret_cast<Address>(bytes.data());
  return {begin, begin + bytes.size()};
}

// From the lowest byte of a tensor to the end of its highest.
template <class Pointer>
Range range_of(const BasicTensorView<Pointer>& view) {
  const auto size = static_cast<Address>(size_bytes(view.dtype));
  const auto data = reinterpret_cast<Address>(view.data);
  Range range{data, data + size};
  for (std::size_t axis = 0; axis < view.shape.rank(); ++axis) {
    if (view.shape[axis] == 0) return {};
    const Address reach = static_cast<Address>(view.shape[axis] - 1) *
                          static_cast<Address>(view.strides[axis]) * size;
    (view.strides[axis] < 0 ? range.begin : range.end) += reach;
  }
  return range;
}

// A tensor's elements as sums of steps, the widest first, all of them upwards.
struct Grid {
  explicit Grid(const ConstTensorView& view)
      : base(range_of(view).begin), size(size_bytes(view.dtype)) {
    for (std::size_t axis = 0; axis < view.shape.rank(); ++axis) {
      const std::int64_t stride = view.strides[axis];
      if (view.shape[axis] == 1 || stride == 0) continue;  // no other place
      axes[rank++] = {static_cast<Address>(view.shape[axis]),
                      static_cast<Address>(stride < 0 ? -stride : stride) * size};
    }
    std::sort(axes, axes + rank, [](const Axis& a, const Axis& b) { return a.step > b.step; });
    extents[rank] = size;
    for (std::size_t k = rank; k-- > 0;) {
      extents[k] = extents[k + 1] + (axes[k].length - 1) * axes[k].step;
    }
  }

  // Whether an element of the part of the grid at `from`, made of the axes from k on, has a byte in
  // the range.
  bool meets(const Range& range, Address from, std::size_t k = 0) const {
    if (!range.meets({from, from + extents[k]})) return false;
    if (k == rank || range.meets({from, from + size})) return true;
    const auto [length, step] = axes[k];
    const Address inner = extents[k + 1];
    Address i = range.begin < from + inner ? 0 : (range.begin - from - inner) / step + 1;
    for (; i < length && from + i * step < range.end; ++i) {
      if (meets(range, from + i * step, k + 1)) return true;
    }
    return false;
  }

  bool has_dense_rows() const { return rank > 0 && axes[rank - 1].step == size; }
  std::size_t row_rank() const { return has_dense_rows() ? rank - 1 : rank; }
  Address row_count() const {
    Address count = 1;
    for (std::size_t k = 0; k < row_rank(); ++k) count *= axes[k].length;
    return count;
  }

  // Whether a row of the part at `from` meets another grid.
  bool rows_meet(const Grid& other, Address from, std::size_t k = 0) const {
    if (k == row_rank()) return other.meets({from, from + extents[k]}, other.base);
    const Range all = {other.base, other.base + other.extents[0]};
    for (Address i = 0; i < axes[k].length; ++i) {
      const Address at = from + i * axes[k].step;
      if (all.meets({at, at + extents[k + 1]}) && rows_meet(other, at, k + 1)) return true;
    }
    return false;
  }

  // Every element is at base plus a multiple of this.
  Address common_step() const {
    Address common = 0;
    for (std::size_t k = 0; k < rank; ++k) common = std::gcd(common, axes[k].step);
    return common;
  }

  struct Axis {
    Address length, step;  // bytes
  };
  Address base, size;
  std::size_t rank = 0;
  Axis axes[Shape::kMaxRank];
  Address extents[Shape::kMaxRank + 1];  // bytes from the first to the last of the axes from k on
};

// Of grids whose ranges meet.
bool grids_overlap(const Grid& a, const Grid& b) {
  // Interleaved ones, such as columns of a matrix, never meet if they are apart in one period.
  const Address period = std::gcd(a.common_step(), b.common_step());
  if (period != 0) {
    const Address apart = a.base <= b.base ? (b.base - a.base) % period
                                           : (period - (a.base - b.base) % period) % period;
    if (apart >= a.size && period - apart >= b.size) return false;
  }
  return a.row_count() <= b.row_count() ? a.rows_meet(b, a.base) : b.rows_meet(a, b.base);
}

}  // namespace

bool overlaps(std::span<const std::byte> bytes, const ConstTensorView& view) {
  const Range range = range_of(bytes);
  return !bytes.empty() && range.meets(range_of(view)) &&
         Grid(view).meets(range, range_of(view).begin);
}

bool overlaps(const ConstTensorView& a, const ConstTensorView& b) {
  return range_of(a).meets(range_of(b)) && grids_overlap(Grid(a), Grid(b));
}

bool repeats(const ConstTensorView& view) {
  if (view.data == nullptr || view.shape.elems() == 0) return false;
  std::array<std::size_t, Shape::kMaxRank> axes{};
  const std::span order = std::span(axes).first(view.shape.rank());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto step = [&](std::size_t axis) { return std::abs(view.strides[axis]); };
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) { return step(a) < step(b); });
  // Two elements first differ along some axis, from the widest on: one is then among those with index
  // 0 there, and the other among the rest, but for a step that both have made.
  Shape inner, inner_strides;
  for (const std::size_t axis : order) {
    const std::int64_t length = view.shape[axis], stride = view.strides[axis];
    if (length == 1) continue;  // its stride leads nowhere
    const auto* second = static_cast<const std::byte*>(view.data) +
                         stride * static_cast<std::int64_t>(size_bytes(view.dtype));
    const ConstTensorView first(view.data, view.dtype, inner, inner_strides);
    inner.push_back(length - 1);
    inner_strides.push_back(stride);
    if (overlaps(first, ConstTensorView(second, view.dtype, inner, inner_strides))) return true;
    inner[inner.rank() - 1] = length;
  }
  return false;
}

void check_apart(const char* verb, const ConstTensorView& out) {
  if (!repeats(out)) return;
  invalid("[{}] the output must not repeat elements, got shape {} with strides {}", verb,
          to_string(out.shape), to_string(out.strides));
}

template <class View>
std::optional<std::pair<std::size_t, std::size_t>> find_overlap(
    std::span<const View> views, std::span<const std::span<const std::byte>> bytes, Writes writes) {
  struct Part {
    Range range;
    std::size_t number;
  };
  const std::size_t first = views.size();  // of the bytes
  std::vector<Part> parts, open;
  parts.reserve(first + bytes.size());
  for (const View& view : views) parts.push_back({range_of(view), parts.size()});
  for (const auto& some : bytes) parts.push_back({range_of(some), parts.size()});
  std::erase_if(parts, [](const Part& part) { return part.range.begin == part.range.end; });
  std::sort(parts.begin(), parts.end(),
            [](const Part& a, const Part& b) { return a.range.begin < b.range.begin; });
  // Of parts whose ranges meet, a before b.
  const auto is_wrong = [&](std::size_t a, std::size_t b) {
    if (b < first) return writes == Writes::Views && overlaps(views[a], views[b]);
    return a < first ? overlaps(bytes[b - first], views[a]) : writes == Writes::Bytes;
  };
  for (const Part& part : parts) {
    std::erase_if(open, [&](const Part& p) { return p.range.end <= part.range.begin; });
    for (const Part& p : open) {
      const auto [a, b] = std::minmax(p.number, part.number);
      if (is_wrong(a, b)) return std::pair{a, b};
    }
    open.push_back(part);
  }
  return std::nullopt;
}

template std::optional<std::pair<std::size_t, std::size_t>> find_overlap(
    std::span<const TensorView>, std::span<const std::span<const std::byte>>, Writes);
template std::optional<std::pair<std::size_t, std::size_t>> find_overlap(
    std::span<const ConstTensorView>, std::span<const std::span<const std::byte>>, Writes);

}  // namespace tuckfold
