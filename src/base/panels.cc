// Panels of tensors whose elements lie in another order than the sequence's. A thread has one
// panel, of the tensor that it is reading or writing.
#include "base/panels.h"

#include <algorithm>
#include <cstdlib>

#include "base/stream.h"
#include "base/strided.h"
#include "base/thread_buffers.h"
#include "base/transpose.h"

namespace tuckfold {
namespace {

constexpr std::int64_t kLineBytes = 64;
constexpr std::int64_t kVectorBytes = 16;       // what transpose_words moves at least
constexpr std::int64_t kPanelBytes = 3 << 18;   // most of a second cache
constexpr std::int64_t kPlanesBytes = 1 << 14;  // of several planes: half of a first cache

constexpr std::int64_t kLeastCols = 16;    // to put in order at a time
constexpr std::int64_t kLeastElems = 512;  // of a panel: smaller ones cost more than they save

// `ordered`: some of a panel in the order of memory.
struct PanelBuffer {
  alignas(64) std::byte bytes[kPanelBytes + kTransposeSlack];
  alignas(64) std::byte ordered[kPlanesBytes + kTransposeSlack];
};

}  // namespace

Panel& thread_panel() noexcept {
  thread_local Panel t_panel;
  return t_panel;
}

// Rows of the buffer lie side by side, or an odd number of cache lines apart where they would
// compete for a few places of the cache. Threads share a tensor out in ranges that do not end where
// panels do, so panels of small tensors are small.
PanelGrid PanelGrid::of(DType dtype, const Shape& axes, const Shape& steps) {
  const std::size_t inner = axes.rank() - 1;
  PanelGrid grid;
  if (steps[inner] == 1) return grid;
  while (grid.unit < inner && steps[grid.unit] != 1) ++grid.unit;
  if (grid.unit == inner) return grid;
  const auto width = static_cast<std::int64_t>(size_bytes(dtype));
  std::int64_t outer = 1;
  grid.length = 1;
  for (std::size_t axis = 0; axis < grid.unit; ++axis) outer *= axes[axis];
  for (std::size_t axis = grid.unit + 1; axis <= inner; ++axis) grid.length *= axes[axis];
  if (grid.length > kPanelBytes / width) return grid;
  const std::int64_t lines = axes[grid.unit], whole = kLineBytes / width;
  grid.row = grid.length;
  if (rows_compete(grid.row * width, whole)) {
    grid.row = ((grid.length + whole - 1) / whole | 1) * whole;
  }
  const std::int64_t fit = kPanelBytes / (grid.row * width), least = kVectorBytes / width;
  const std::int64_t share = std::max(outer * lines / 16, whole);
  const std::int64_t most = std::min({fit, share, lines});
  if (most < std::min(least, lines)) return grid;
  if (most == lines && grid.unit + 1 == inner) {
    grid.planes = std::min({kPlanesBytes / (lines * grid.row * width), share / lines, outer});
    grid.planes = std::max<std::int64_t>(grid.planes, 1);
  }
  if (most * grid.length * grid.planes < kLeastElems) return grid;
  grid.together = most == lines   ? most
                  : most >= whole ? most / whole * whole
                                  : most / least * least;
  return grid;
}

template <class Pointer>
typename FlatView<Pointer>::Lines FlatView<Pointer>::panel_at(std::int64_t begin) const noexcept {
  const std::int64_t lines = axes_[grid_.unit], line = begin / grid_.length;
  if (grid_.together == lines) {
    const std::int64_t each = lines * grid_.length, plane = line / lines;
    const std::int64_t first = plane - plane % grid_.planes;
    return {first * each, std::min(first + grid_.planes, elems_ / each) * each};
  }
  const std::int64_t whole = kLineBytes / static_cast<std::int64_t>(size_bytes(dtype_));
  const std::int64_t in_outer = line % lines, outer = line - in_outer;
  // From a whole cache line on, if panels have some.
  const std::int64_t first = in_outer - in_outer % std::min(whole, grid_.together);
  const std::int64_t last = std::min(first + grid_.together, lines);
  return {(outer + first) * grid_.length, (outer + last) * grid_.length};
}

template <class Pointer>
template <class Body>
void FlatView<Pointer>::for_each_planes(const Lines& panel, std::int64_t first, std::int64_t last,
                                        Body&& body) const noexcept {
  const std::int64_t each = axes_[grid_.unit] * grid_.length, begin = panel.begin / each;
  const std::size_t before = grid_.unit - 1;  // several planes: there is such an axis
  while (first < last) {
    const std::int64_t index = (begin + first) % axes_[before];
    const std::int64_t some = std::min(last - first, axes_[before] - index);
    body(first, some, place((begin + first) * each).offset, steps_[before]);
    first += some;
  }
}

template <class Pointer>
template <class Body>
void FlatView<Pointer>::for_each_panel_run(const Lines& panel, std::int64_t line,
                                           std::int64_t begin, std::int64_t end,
                                           Body&& body) const noexcept {
  const std::size_t inner = axes_.rank() - 1;
  const std::int64_t lines = axes_[grid_.unit];
  const std::int64_t first =
      place(panel.begin + line / lines * lines * grid_.length).offset + line % lines;
  while (begin < end) {
    std::int64_t index = begin / axes_[inner];
    const std::int64_t on_inner = begin % axes_[inner];
    const std::int64_t length = std::min(end - begin, axes_[inner] - on_inner);
    std::int64_t offset = first + on_inner * steps_[inner];
    for (std::size_t axis = inner; axis-- > grid_.unit + 1; index /= axes_[axis]) {
      offset += index % axes_[axis] * steps_[axis];
    }
    body(line * grid_.row + begin, offset, steps_[inner], length);
    begin += length;
  }
}

template FlatView<const void*>::Lines FlatView<const void*>::panel_at(std::int64_t) const noexcept;
template FlatView<void*>::Lines FlatView<void*>::panel_at(std::int64_t) const noexcept;

void FlatReader::load_panel(std::int64_t begin) const noexcept {
  Panel& panel = thread_panel();
  const auto width = static_cast<std::int64_t>(size_bytes(dtype_));
  const Lines lines = panel_at(begin);
  panel.begin = lines.begin;
  panel.end = lines.end;
  const std::int64_t count = (lines.end - lines.begin) / grid_.length;
  const auto load = [&](std::int64_t at, std::int64_t offset, std::int64_t step,
                        std::int64_t length, std::int64_t planes, std::int64_t plane) {
    const std::int64_t cols = std::min(count, axes_[grid_.unit]);
    transpose_words({.memory = Along::From,
                     .word_bytes = static_cast<std::size_t>(width),
                     .from = static_cast<const std::byte*>(data_) + offset * width,
                     .from_step = step,
                     .from_plane = plane,
                     .rows = length,
                     .cols = cols,
                     .planes = planes,
                     .to = panel.bytes + at * width,
                     .to_step = grid_.row,
                     .to_plane = cols * grid_.row});
  };
  if (grid_.planes == 1) {
    return for_each_panel_run(lines, 0, 0, grid_.length,
                              [&](std::int64_t at, std::int64_t offset, std::int64_t step,
                                  std::int64_t length) { load(at, offset, step, length, 1, 0); });
  }
  const std::int64_t each = axes_[grid_.unit];
  for_each_planes(
      lines, 0, count / each,
      [&](std::int64_t first, std::int64_t planes, std::int64_t offset, std::int64_t plane) {
        load(first * each * grid_.row, offset, steps_[grid_.unit + 1], grid_.length, planes, plane);
      });
}

// What was written is a range of the sequence: whole planes, whole lines of those at both ends, and
// parts of lines.
void FlatWriter::store_panel() const noexcept {
  Panel& panel = thread_panel();
  const auto width = static_cast<std::int64_t>(size_bytes(dtype_));
  const auto transpose = [&](std::byte* to, std::int64_t at, std::int64_t step, std::int64_t rows,
                             std::int64_t cols, std::int64_t planes, std::int64_t plane,
                             bool in_memory) {
    transpose_words({.memory = in_memory ? Along::To : Along::From,
                     .word_bytes = static_cast<std::size_t>(width),
                     .from = panel.bytes + at * width,
                     .from_step = grid_.row,
                     .from_plane = rows * grid_.row,
                     .rows = rows,
                     .cols = cols,
                     .planes = planes,
                     .to = to,
                     .to_step = step,
                     .to_plane = plane,
                     .stream = in_memory && panel.stream});
  };
  const auto store = [&](std::int64_t at, std::int64_t offset, std::int64_t step, std::int64_t rows,
                         std::int64_t cols, std::int64_t planes, std::int64_t plane) {
    std::byte* to = static_cast<std::byte*>(data_) + offset * width;
    const std::int64_t row_bytes = rows * width;
    const bool one_piece = step == rows && (planes == 1 || plane == rows * cols);
    const bool lines =
        row_bytes % kLineBytes == 0 && reinterpret_cast<std::uintptr_t>(to) % 64 == 0;
    const std::int64_t fit = kPlanesBytes / row_bytes / kLeastCols * kLeastCols;
    const std::int64_t some = std::min(fit, planes * cols);
    if (!panel.stream || !one_piece || lines || some < kLeastCols) {
      return transpose(to, at, step, rows, cols, planes, plane, true);
    }
    // What is one piece of memory, but not whole cache lines for each row of it, is put in order
    // first, and streamed then.
    std::byte* ordered = thread_buffers<PanelBuffer>()->ordered;
    const auto stream = [&](std::int64_t first, std::int64_t count) {
      stream_copy(to + first * row_bytes, ordered, static_cast<std::size_t>(count * row_bytes));
    };
    if (planes > 1) {  // all fit
      transpose(ordered, at, step, rows, cols, planes, plane, false);
      return stream(0, planes * cols);
    }
    for (std::int64_t first = 0; first < cols; first += some) {
      const std::int64_t count = std::min(some, cols - first);
      transpose(ordered, at + first, step, rows, count, 1, 0, false);
      stream(first, count);
    }
  };
  // Lines [first, last) of one plane, positions [begin, end) of each.
  const auto store_lines = [&](std::int64_t first, std::int64_t last, std::int64_t begin,
                               std::int64_t end) {
    if (first == last) return;
    for_each_panel_run(
        {panel.begin, panel.end}, first, begin, end,
        [&](std::int64_t at, std::int64_t offset, std::int64_t step, std::int64_t length) {
          store(at, offset, step, last - first, length, 1, 0);
        });
  };
  const std::int64_t length = grid_.length;
  // From place to place of the panel, within a plane.
  const auto store_range = [&](std::int64_t from, std::int64_t to) {
    std::int64_t first = from / length;
    const std::int64_t last = to / length, head = from % length, tail = to % length;
    if (first == last) return store_lines(first, first + 1, head, tail);
    if (head > 0) store_lines(first, first + 1, head, length), ++first;
    store_lines(first, last, 0, length);
    if (tail > 0) store_lines(last, last + 1, 0, tail);
  };
  const std::int64_t from = panel.written_begin - panel.begin, to = panel.written_end - panel.begin;
  panel.written_begin = panel.written_end;
  if (grid_.planes == 1) return store_range(from, to);
  const std::int64_t lines = axes_[grid_.unit], each = lines * length;
  const std::int64_t first = (from + each - 1) / each, last = to / each;
  if (first > last) return store_range(from, to);
  if (from < first * each) store_range(from, first * each);
  for_each_planes(
      {panel.begin, panel.end}, first, last,
      [&](std::int64_t plane, std::int64_t planes, std::int64_t offset, std::int64_t step) {
        store(plane * lines * grid_.row, offset, steps_[grid_.unit + 1], lines, length, planes,
              step);
      });
  if (last * each < to) store_range(last * each, to);
}

namespace {

// Makes the thread's panel one of `view`, if there is memory for its buffer and no other is in use.
void open_panel(const void* view, bool stream) noexcept {
  Panel& panel = thread_panel();
  PanelBuffer* buffer = panel.view == nullptr ? thread_buffers<PanelBuffer>() : nullptr;
  if (buffer == nullptr) return;
  panel = {.view = view, .bytes = buffer->bytes, .stream = stream};
}

}  // namespace

ReadPanels::ReadPanels(const FlatReader& in) noexcept : in_(&in) {
  if (in.grid_.together > 0) open_panel(in_, false);
}
ReadPanels::~ReadPanels() {
  if (thread_panel().view == in_) thread_panel().view = nullptr;
}

WritePanels::WritePanels(const FlatWriter& out) noexcept : out_(&out) {
  if (out.grid_.together == 0) return;
  open_panel(out_, static_cast<std::size_t>(out.elems_) * size_bytes(out.dtype_) > kStreamBytes);
}
WritePanels::~WritePanels() {
  Panel& panel = thread_panel();
  if (panel.view != out_) return;
  if (panel.written_begin < panel.written_end) out_->store_panel();
  if (panel.stream) stream_fence();
  panel.view = nullptr;
}

}  // namespace tuckfold
