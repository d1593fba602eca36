// A tensor of any dtype and strides as one row-major sequence, read and written in runs: as f32
// values, or as unchanged elements. Every codec takes every tensor this way, without copying it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tuckfold/tensor.h"

namespace tuckfold {

// Calls body with an unsigned number as wide as the dtype.
template <class Body>
auto with_word(DType dtype, Body&& body) {
  switch (size_bytes(dtype)) {
    case 1: return body(std::uint8_t{});
    case 2: return body(std::uint16_t{});
    case 4: return body(std::uint32_t{});
    default: return body(std::uint64_t{});
  }
}

// Where neighbours in memory are not neighbours in the sequence, as in channels_last: a panel is
// some lines of the sequence, those that lie side by side in memory, as rows of a small buffer. It
// has several planes, one after the other, where they are small.
struct PanelGrid {
  std::size_t unit = 0;       // the axis whose step is 1
  std::int64_t length = 0;    // elements of a line: all axes after that one
  std::int64_t together = 0;  // lines of a panel, of one plane; 0: no panels
  std::int64_t planes = 1;    // more than one: of all their lines
  std::int64_t row = 0;       // elements from one line to the next in the buffer

  static PanelGrid of(DType dtype, const Shape& axes, const Shape& steps);
};

// Axes whose strides allow it are merged, so that common tensors have one or two left.
template <class Pointer>
class FlatView {
 public:
  explicit FlatView(const BasicTensorView<Pointer>& view);

  std::int64_t elems() const noexcept { return elems_; }
  DType dtype() const noexcept { return dtype_; }
  // The axes after merging, innermost last; at least one.
  const Shape& axes() const noexcept { return axes_; }
  const Shape& steps() const noexcept { return steps_; }

  // How many elements from `begin` on, at most `count`, are contiguous; at least one.
  std::int64_t run_length(std::int64_t begin, std::int64_t count) const noexcept;

  // The address of elements [begin, begin + count) if they are contiguous, else null.
  Pointer dense(std::int64_t begin, std::int64_t count) const noexcept;

 protected:
  struct Place {
    std::int64_t offset;  // elements from data_
    std::int64_t first;   // on the innermost axis
  };
  Place place(std::int64_t begin) const noexcept;

  // Elements that lie as equal runs.
  struct Runs {
    std::int64_t offset;       // of the first element, from data_
    std::int64_t step;         // from one element of a run to the next
    std::int64_t length;       // elements of a run
    std::int64_t count, each;  // runs, and from one to the next
  };
  template <class Body>
  void for_each_runs(std::int64_t begin, std::int64_t count, Body&& body) const noexcept;

  struct Lines {
    std::int64_t begin, end;  // elements of the sequence
  };
  // The lines of the panel that element `begin` is in.
  Lines panel_at(std::int64_t begin) const noexcept;
  // Calls body(place in the buffer, place in memory, step, length) for runs along the innermost
  // axis, positions [begin, end) of a line of the panel; all in elements.
  template <class Body>
  void for_each_panel_run(const Lines& panel, std::int64_t line, std::int64_t begin,
                          std::int64_t end, Body&& body) const noexcept;
  // Calls body(first plane, planes, place in memory, from one plane to the next) for planes
  // [first, last) of a panel of several.
  template <class Body>
  void for_each_planes(const Lines& panel, std::int64_t first, std::int64_t last,
                       Body&& body) const noexcept;
  // Of elements from `begin` on, in the panel that has them: the place in its buffer, and how many
  // of `count` lie side by side there.
  struct InPanel {
    std::int64_t at, length;
  };
  InPanel in_panel(const Lines& panel, std::int64_t begin, std::int64_t count) const noexcept;

  Pointer data_;
  DType dtype_;
  std::int64_t elems_;
  Shape axes_, steps_;
  PanelGrid grid_;
};

class FlatReader : public FlatView<const void*> {
 public:
  using FlatView::FlatView;
  // Elements [begin, begin + count) converted to f32. f64 rounds to nearest, and finite numbers
  // beyond f32's largest become that. Not for dtypes that must_be_exact.
  void gather(std::int64_t begin, std::int64_t count, float* out) const noexcept;
  // The same elements as they are, to any address.
  void gather_bytes(std::int64_t begin, std::int64_t count, void* out) const noexcept;
  // Their address in the thread's panel if they are contiguous there, until it reads other
  // elements; else null.
  const void* in_thread_panel(std::int64_t begin, std::int64_t count) const noexcept;

 private:
  friend class ReadPanels;
  template <class Body>
  void for_each_source(std::int64_t begin, std::int64_t count, Body&& body) const noexcept;
  void load_panel(std::int64_t begin) const noexcept;
};

class FlatWriter : public FlatView<void*> {
 public:
  using FlatView::FlatView;
  // Writes elements [begin, begin + count), rounding to nearest even. Finite numbers beyond the
  // dtype's largest become that. Infinities stay, and NaN becomes the canonical one in f16, bf16
  // and f64; in u8 and u16 infinities saturate, and NaN becomes 0. Not for dtypes that
  // must_be_exact. With `stream`, long rows go to memory by non-temporal stores, which the caller
  // ends with stream_fence().
  void scatter(std::int64_t begin, std::int64_t count, const float* in,
               bool stream = false) const noexcept;
  // The same from elements as they are, from any address.
  void scatter_bytes(std::int64_t begin, std::int64_t count, const void* in) const noexcept;
  // Their address in the thread's panel if they are contiguous there, for the caller to write all
  // of them before anything else is written; else null.
  void* in_thread_panel(std::int64_t begin, std::int64_t count) const noexcept;

 private:
  friend class WritePanels;
  void turn_to(std::int64_t begin) const noexcept;
  template <class Body>
  void for_each_target(std::int64_t begin, std::int64_t count, Body&& body) const noexcept;
  void store_panel() const noexcept;
};

// During its lifetime this thread's gathers from the tensor go through panels where it has some:
// each cache line is read once, not once for each of its elements. For those who read a range in
// order, whose elements do not change meanwhile.
class ReadPanels {
 public:
  explicit ReadPanels(const FlatReader& in) noexcept;
  ~ReadPanels();
  ReadPanels(const ReadPanels&) = delete;
  ReadPanels& operator=(const ReadPanels&) = delete;

 private:
  const FlatReader* in_;
};

// The same for scatters, which reach the tensor at the end of the lifetime at the latest.
class WritePanels {
 public:
  explicit WritePanels(const FlatWriter& out) noexcept;
  ~WritePanels();
  WritePanels(const WritePanels&) = delete;
  WritePanels& operator=(const WritePanels&) = delete;

 private:
  const FlatWriter* out_;
};

}  // namespace tuckfold
