// Panels of tensors whose elements lie in another order than the sequence's. A thread has one
// panel, of the tensor that it is reading or writing.
#include "base/panels.h"

#include <algorithm>
#include <cstdlib>

#include "base/strided.h"
#include "base/thread_buffers.h"
#include "base/transpose.h"

namespace tuckfold {
namespace {

constexpr std::int64_t kLineBytes = 64;
constexpr std::int64_t kVectorBytes = 16;      // what transpose_words moves at least
constexpr std::int64_t kPanelBytes = 1 << 19;  // half of a second cache

constexpr std::int64_t kLeastElems = 512;  // of a panel: smaller ones cost more than they save

struct PanelBuffer {
  alignas(64) std::byte bytes[kPanelBytes];
};

}  // namespace

Panel& thread_panel() noexcept {
  thread_local Panel t_panel;
  return t_panel;
}

// Rows of the buffer are an odd number of cache lines: a power of two would have all rows compete
// for a few places of the cache. Threads share a tensor out in ranges that do not end where panels
// do, so panels of small tensors are small.
PanelGrid PanelGrid::of(DType dtype, const Shape& axes, const Shape& steps) {
  const std::size_t inner = axes.rank() - 1;
  PanelGrid grid;
  if (steps[inner] == 1) return grid;
  while (grid.unit < inner && steps[grid.unit] != 1) ++grid.unit;
  if (grid.unit == inner) return grid;
  const auto width = static_cast<std::int64_t>(size_bytes(dtype));
  std::int64_t elems = axes[grid.unit];
  grid.length = 1;
  for (std::size_t axis = grid.unit + 1; axis <= inner; ++axis) grid.length *= axes[axis];
  for (std::size_t axis = 0; axis <= inner; ++axis) elems *= axis == grid.unit ? 1 : axes[axis];
  if (grid.length > kPanelBytes) return grid;
  const std::int64_t lines = (grid.length * width + kLineBytes - 1) / kLineBytes | 1;
  grid.row = lines * kLineBytes / width;
  const std::int64_t fit = kPanelBytes / (lines * kLineBytes);
  const std::int64_t whole = kLineBytes / width, least = kVectorBytes / width;
  const std::int64_t share = std::max(elems / grid.length / 16, whole);
  const std::int64_t most = std::min({fit, share, axes[grid.unit]});
  if (most < least || most * grid.length < kLeastElems) return grid;
  grid.together = most == axes[grid.unit] ? most
                  : most >= whole         ? most / whole * whole
                                          : most / least * least;
  return grid;
}

template <class Pointer>
typename FlatView<Pointer>::Lines FlatView<Pointer>::panel_at(std::int64_t begin) const noexcept {
  const std::int64_t lines = axes_[grid_.unit], line = begin / grid_.length;
  const std::int64_t whole = kLineBytes / static_cast<std::int64_t>(size_bytes(dtype_));
  const std::int64_t in_outer = line % lines, outer = line - in_outer;
  // From a whole cache line on, if panels have some.
  const std::int64_t first =
      grid_.together == lines ? 0 : in_outer - in_outer % std::min(whole, grid_.together);
  const std::int64_t last = std::min(first + grid_.together, lines);
  return {(outer + first) * grid_.length, (outer + last) * grid_.length};
}

template <class Pointer>
template <class Body>
void FlatView<Pointer>::for_each_panel_run(const Lines& panel, std::int64_t line,
                                           std::int64_t begin, std::int64_t end,
                                           Body&& body) const noexcept {
  const std::size_t inner = axes_.rank() - 1;
  const std::int64_t first = place(panel.begin).offset + line;
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
  for_each_panel_run(
      lines, 0, 0, grid_.length,
      [&](std::int64_t at, std::int64_t offset, std::int64_t step, std::int64_t length) {
        transpose_words(Along::From, static_cast<std::size_t>(width),
                        static_cast<const std::byte*>(data_) + offset * width, step, length, count,
                        panel.bytes + at * width, grid_.row);
      });
}

// What was written is a range of the sequence: whole lines, and parts of those at both ends.
void FlatWriter::store_panel() const noexcept {
  Panel& panel = thread_panel();
  const auto width = static_cast<std::int64_t>(size_bytes(dtype_));
  const Lines lines{panel.begin, panel.end};
  const auto store = [&](std::int64_t first, std::int64_t last, std::int64_t begin,
                         std::int64_t end) {
    if (first == last) return;
    for_each_panel_run(
        lines, first, begin, end,
        [&](std::int64_t at, std::int64_t offset, std::int64_t step, std::int64_t length) {
          transpose_words(Along::To, static_cast<std::size_t>(width), panel.bytes + at * width,
                          grid_.row, last - first, length,
                          static_cast<std::byte*>(data_) + offset * width, step);
        });
  };
  const std::int64_t length = grid_.length;
  const std::int64_t from = panel.written_begin - panel.begin, to = panel.written_end - panel.begin;
  std::int64_t first = from / length;
  const std::int64_t last = to / length, head = from % length, tail = to % length;
  if (first == last) {
    store(first, first + 1, head, tail);
  } else {
    if (head > 0) store(first, first + 1, head, length), ++first;
    store(first, last, 0, length);
    if (tail > 0) store(last, last + 1, 0, tail);
  }
  panel.written_begin = panel.written_end;
}

namespace {

// Makes the thread's panel one of `view`, if there is memory for its buffer and no other is in use.
void open_panel(const void* view) noexcept {
  Panel& panel = thread_panel();
  PanelBuffer* buffer = panel.view == nullptr ? thread_buffers<PanelBuffer>() : nullptr;
  if (buffer == nullptr) return;
  panel = {.view = view, .bytes = buffer->bytes};
}

}  // namespace

ReadPanels::ReadPanels(const FlatReader& in) noexcept : in_(&in) {
  if (in.grid_.together > 0) open_panel(in_);
}
ReadPanels::~ReadPanels() {
  if (thread_panel().view == in_) thread_panel().view = nullptr;
}

WritePanels::WritePanels(const FlatWriter& out) noexcept : out_(&out) {
  if (out.grid_.together > 0) open_panel(out_);
}
WritePanels::~WritePanels() {
  Panel& panel = thread_panel();
  if (panel.view != out_) return;
  if (panel.written_begin < panel.written_end) out_->store_panel();
  panel.view = nullptr;
}

}  // namespace tuckfold
