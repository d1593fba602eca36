#include "base/strided.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/convert.h"
#include "base/copy_rows.h"
#include "base/half.h"
#include "base/panels.h"
#include "base/stream.h"

namespace tuckfold {
namespace {

template <class T>
constexpr bool kNarrow = std::is_same_v<T, F16> || std::is_same_v<T, BF16>;

template <class T>
float as_float(T value) {
  if constexpr (kNarrow<T>) {
    return to_float(value);
  } else if constexpr (std::is_same_v<T, double>) {
    return to_f32_saturated(value);
  } else {
    return static_cast<float>(value);
  }
}

template <class T>
T from_float(float value) {
  if constexpr (std::is_same_v<T, F16>) {
    return to_f16_saturated(value);
  } else if constexpr (std::is_same_v<T, BF16>) {
    return to_bf16_saturated(value);
  } else if constexpr (std::is_same_v<T, double>) {
    return to_f64(value);
  } else if constexpr (std::is_same_v<T, std::uint8_t> || std::is_same_v<T, std::uint16_t>) {
    return to_whole<T>(value);
  } else {
    return static_cast<T>(value);
  }
}

// Calls body with a value of the type that converts to and from f32, and is another.
template <class Body>
void with_narrow_or_wide(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::F16: return body(F16{});
    case DType::BF16: return body(BF16{});
    case DType::F64: return body(double{});
    case DType::U8: return body(std::uint8_t{});
    case DType::U16: return body(std::uint16_t{});
    default: assert(false && "must_be_exact dtypes do not become f32");
  }
}

// Runs of elements to f32, and back: neighbours one after the other, each run `each` elements after
// the last. Short runs are copied side by side first: a call for each costs more.
constexpr std::int64_t kLongRun = 64;
constexpr std::int64_t kSomeElems = 1024;

template <class T>
void widen_runs(const T* from, std::int64_t length, std::int64_t count, std::int64_t each,
                float* out) {
  if (length >= kLongRun || count == 1) {
    for (std::int64_t i = 0; i < count; ++i) to_floats(from + i * each, length, out + i * length);
    return;
  }
  constexpr auto kWidth = static_cast<std::int64_t>(sizeof(T));
  alignas(64) T some[kSomeElems];
  const std::int64_t together = kSomeElems / length;
  for (std::int64_t i = 0; i < count; i += together) {
    const std::int64_t runs = std::min(together, count - i);
    copy_rows(reinterpret_cast<const std::byte*>(from + i * each), each * kWidth,
              reinterpret_cast<std::byte*>(some), length * kWidth, runs, length * kWidth);
    to_floats(some, runs * length, out + i * length);
  }
}

template <class T>
void narrow_runs(const float* from, std::int64_t length, std::int64_t count, T* to,
                 std::int64_t each) {
  if (length >= kLongRun || count == 1) {
    for (std::int64_t i = 0; i < count; ++i) from_floats(from + i * length, length, to + i * each);
    return;
  }
  constexpr auto kWidth = static_cast<std::int64_t>(sizeof(T));
  alignas(64) T some[kSomeElems];
  const std::int64_t together = kSomeElems / length;
  for (std::int64_t i = 0; i < count; i += together) {
    const std::int64_t runs = std::min(together, count - i);
    from_floats(from + i * length, runs * length, some);
    copy_rows(reinterpret_cast<const std::byte*>(some), length * kWidth,
              reinterpret_cast<std::byte*>(to + i * each), each * kWidth, runs, length * kWidth);
  }
}

constexpr std::int64_t kStreamRun = 128;  // shorter runs have too few whole cache lines

template <class T>
void stream_run(const float* from, std::int64_t length, T* to) {
  alignas(64) T some[kSomeElems];
  for (std::int64_t i = 0; i < length; i += kSomeElems) {
    const std::int64_t count = std::min(kSomeElems, length - i);
    from_floats(from + i, count, some);
    stream_copy(to + i, some, static_cast<std::size_t>(count) * sizeof(T));
  }
}

// Elements of kWidth bytes, one by one; steps count elements.
template <std::size_t kWidth>
void copy_elements(const std::byte* from, std::int64_t from_step, std::byte* to,
                   std::int64_t to_step, std::int64_t count) {
  constexpr auto kBytes = static_cast<std::int64_t>(kWidth);
  for (std::int64_t i = 0; i < count; ++i) {
    std::memcpy(to + i * to_step * kBytes, from + i * from_step * kBytes, kWidth);
  }
}

template <class Pointer>
Pointer advance(Pointer base, std::int64_t bytes) {
  using Byte = std::conditional_t<std::is_same_v<Pointer, void*>, char, const char>;
  return static_cast<Byte*>(base) + bytes;
}

}  // namespace

template <class Pointer>
FlatView<Pointer>::FlatView(const BasicTensorView<Pointer>& view)
    : data_(view.data), dtype_(view.dtype), elems_(view.shape.elems()) {
  Shape axes, steps;  // innermost first while merging
  if (elems_ > 0) {
    for (std::size_t axis = view.shape.rank(); axis-- > 0;) {
      if (view.shape[axis] == 1) continue;
      const std::size_t last = axes.rank() - 1;
      if (axes.rank() > 0 && view.strides[axis] == axes[last] * steps[last]) {
        axes[last] *= view.shape[axis];
      } else {
        axes.push_back(view.shape[axis]);
        steps.push_back(view.strides[axis]);
      }
    }
  }
  if (axes.rank() == 0) {
    axes.push_back(elems_);
    steps.push_back(1);
  }
  axes_ = axes;
  steps_ = steps;
  std::reverse_copy(axes.begin(), axes.end(), &axes_[0]);
  std::reverse_copy(steps.begin(), steps.end(), &steps_[0]);
  grid_ = PanelGrid::of(dtype_, axes_, steps_);
}

template <class Pointer>
std::int64_t FlatView<Pointer>::run_length(std::int64_t begin, std::int64_t count) const noexcept {
  const std::size_t inner = axes_.rank() - 1;
  if (steps_[inner] != 1) return 1;
  // Most tensors have one axis left; a division here would cost more than a short row.
  return std::min(count, axes_[inner] - (inner == 0 ? begin : begin % axes_[inner]));
}

// The offset of element `begin` from the data pointer, in elements, and its index on the innermost
// axis.
template <class Pointer>
typename FlatView<Pointer>::Place FlatView<Pointer>::place(std::int64_t begin) const noexcept {
  const std::size_t inner = axes_.rank() - 1;
  if (inner == 0) return {begin * steps_[0], begin};
  std::int64_t index = begin / axes_[inner];
  const std::int64_t first = begin % axes_[inner];
  std::int64_t offset = first * steps_[inner];
  for (std::size_t axis = inner; axis-- > 0; index /= axes_[axis]) {
    offset += index % axes_[axis] * steps_[axis];
  }
  return {offset, first};
}

template <class Pointer>
Pointer FlatView<Pointer>::dense(std::int64_t begin, std::int64_t count) const noexcept {
  if (run_length(begin, count) < count) return nullptr;
  return advance(data_, place(begin).offset * static_cast<std::int64_t>(size_bytes(dtype_)));
}

// Calls body(runs) along the innermost axis; runs on the axis before that are given at once. Only
// the first place takes divisions: rows may be as short as 7.
template <class Pointer>
template <class Body>
void FlatView<Pointer>::for_each_runs(std::int64_t begin, std::int64_t count,
                                      Body&& body) const noexcept {
  const std::size_t inner = axes_.rank() - 1;
  const std::int64_t row = axes_[inner], step = steps_[inner];
  if (count <= 0) return;
  const Place at = place(begin);
  const std::int64_t head = std::min(count, row - at.first);
  if (head == count || head < row) body(Runs{at.offset, step, head, 1, 0});
  if (head == count) return;
  Shape index = axes_;  // of the row on the axes before the innermost
  std::int64_t rows = begin / row, offset = at.offset - at.first * step;
  for (std::size_t axis = inner; axis-- > 0; rows /= axes_[axis]) index[axis] = rows % axes_[axis];
  // To the row `some` after the present one, which may be one past the axis' end.
  const std::size_t last = inner - 1;
  const auto skip = [&](std::int64_t some) {
    offset += some * steps_[last];
    index[last] += some;
    for (std::size_t axis = last; index[axis] == axes_[axis] && axis > 0; --axis) {
      offset += steps_[axis - 1] - axes_[axis] * steps_[axis];
      index[axis] = 0;
      ++index[axis - 1];
    }
  };
  if (head < row) {
    count -= head;
    skip(1);
  }
  while (count > 0) {
    const std::int64_t some = std::min(count / row, axes_[last] - index[last]);
    if (some == 0) return body(Runs{offset, step, count, 1, 0});
    body(Runs{offset, step, row, some, steps_[last]});
    count -= some * row;
    if (count > 0) skip(some);
  }
}

template <class Pointer>
typename FlatView<Pointer>::InPanel FlatView<Pointer>::in_panel(const Lines& panel,
                                                                std::int64_t begin,
                                                                std::int64_t count) const noexcept {
  const std::int64_t from = begin - panel.begin;
  if (grid_.row == grid_.length) return {from, std::min(count, panel.end - begin)};
  const std::int64_t at = from % grid_.length;
  return {from / grid_.length * grid_.row + at, std::min(count, grid_.length - at)};
}

// Calls body(address, runs) for elements [begin, begin + count), in the panel if there is one.
template <class Body>
void FlatReader::for_each_source(std::int64_t begin, std::int64_t count,
                                 Body&& body) const noexcept {
  const auto width = static_cast<std::int64_t>(size_bytes(dtype_));
  if (grid_.together == 0 || thread_panel().view != this) {
    return for_each_runs(begin, count, [&](const Runs& runs) {
      body(static_cast<const std::byte*>(data_) + runs.offset * width, runs);
    });
  }
  const Panel& panel = thread_panel();
  while (count > 0) {
    if (begin < panel.begin || begin >= panel.end) load_panel(begin);
    const InPanel in = in_panel({panel.begin, panel.end}, begin, count);
    body(panel.bytes + in.at * width, Runs{0, 1, in.length, 1, 0});
    begin += in.length;
    count -= in.length;
  }
}

const void* FlatReader::in_thread_panel(std::int64_t begin, std::int64_t count) const noexcept {
  const Panel& panel = thread_panel();
  if (grid_.together == 0 || panel.view != this) return nullptr;
  if (begin < panel.begin || begin >= panel.end) load_panel(begin);
  const InPanel in = in_panel({panel.begin, panel.end}, begin, count);
  if (in.length < count) return nullptr;
  return panel.bytes + in.at * static_cast<std::int64_t>(size_bytes(dtype_));
}

// Makes the thread's panel one that element `begin` may be written to.
void FlatWriter::turn_to(std::int64_t begin) const noexcept {
  Panel& panel = thread_panel();
  if (begin == panel.written_end && begin < panel.end) return;
  if (panel.written_begin < panel.written_end) store_panel();
  const Lines lines = panel_at(begin);
  panel.begin = lines.begin;
  panel.end = lines.end;
  panel.written_begin = panel.written_end = begin;
}

void* FlatWriter::in_thread_panel(std::int64_t begin, std::int64_t count) const noexcept {
  Panel& panel = thread_panel();
  if (grid_.together == 0 || panel.view != this) return nullptr;
  turn_to(begin);
  const InPanel in = in_panel({panel.begin, panel.end}, begin, count);
  if (in.length < count) return nullptr;
  panel.written_end = begin + count;
  return panel.bytes + in.at * static_cast<std::int64_t>(size_bytes(dtype_));
}

template <class Body>
void FlatWriter::for_each_target(std::int64_t begin, std::int64_t count,
                                 Body&& body) const noexcept {
  const auto width = static_cast<std::int64_t>(size_bytes(dtype_));
  if (grid_.together == 0 || thread_panel().view != this) {
    return for_each_runs(begin, count, [&](const Runs& runs) {
      body(static_cast<std::byte*>(data_) + runs.offset * width, runs);
    });
  }
  Panel& panel = thread_panel();
  while (count > 0) {
    turn_to(begin);
    const InPanel in = in_panel({panel.begin, panel.end}, begin, count);
    body(panel.bytes + in.at * width, Runs{0, 1, in.length, 1, 0});
    begin += in.length;
    count -= in.length;
    panel.written_end = begin;
  }
}

void FlatReader::gather(std::int64_t begin, std::int64_t count, float* out) const noexcept {
  if (dtype_ == DType::F32) return gather_bytes(begin, count, out);
  with_narrow_or_wide(dtype_, [&](auto element) {
    using T = decltype(element);
    for_each_source(begin, count, [&](const std::byte* bytes, const Runs& runs) {
      const auto* from = reinterpret_cast<const T*>(bytes);
      if (runs.step == 1) {
        widen_runs(from, runs.length, runs.count, runs.each, out);
        out += runs.length * runs.count;
        return;
      }
      for (std::int64_t i = 0; i < runs.count; ++i) {
        const T* run = from + i * runs.each;
        for (std::int64_t j = 0; j < runs.length; ++j) *out++ = as_float(run[j * runs.step]);
      }
    });
  });
}

void FlatWriter::scatter(std::int64_t begin, std::int64_t count, const float* in,
                         bool stream) const noexcept {
  if (grid_.together > 0) stream = false;  // the panel is read again soon
  if (dtype_ == DType::F32) {
    if (!stream) return scatter_bytes(begin, count, in);
    return for_each_target(begin, count, [&](std::byte* to, const Runs& runs) {
      constexpr auto kWidth = static_cast<std::int64_t>(sizeof(float));
      const std::int64_t bytes = runs.length * kWidth, each = runs.each * kWidth;
      const auto* from = reinterpret_cast<const std::byte*>(in);
      for (std::int64_t i = 0; i < runs.count; ++i) {
        if (runs.step != 1) {
          copy_elements<sizeof(float)>(from + i * bytes, 1, to + i * each, runs.step, runs.length);
        } else if (runs.length >= kStreamRun) {
          stream_copy(to + i * each, from + i * bytes, static_cast<std::size_t>(bytes));
        } else {
          copy_rows(from + i * bytes, bytes, to + i * each, each, 1, bytes);
        }
      }
      in += runs.length * runs.count;
    });
  }
  with_narrow_or_wide(dtype_, [&](auto element) {
    using T = decltype(element);
    for_each_target(begin, count, [&](std::byte* bytes, const Runs& runs) {
      auto* to = reinterpret_cast<T*>(bytes);
      if (stream && runs.step == 1 && runs.length >= kSomeElems) {
        for (std::int64_t i = 0; i < runs.count; ++i, in += runs.length) {
          stream_run(in, runs.length, to + i * runs.each);
        }
        return;
      }
      if (runs.step == 1) {
        narrow_runs(in, runs.length, runs.count, to, runs.each);
        in += runs.length * runs.count;
        return;
      }
      for (std::int64_t i = 0; i < runs.count; ++i) {
        T* run = to + i * runs.each;
        for (std::int64_t j = 0; j < runs.length; ++j) run[j * runs.step] = from_float<T>(*in++);
      }
    });
  });
}

void FlatReader::gather_bytes(std::int64_t begin, std::int64_t count, void* out) const noexcept {
  auto* to = static_cast<std::byte*>(out);
  if (axes_.rank() == 1 && steps_[0] == 1 && count > 0) {  // a few of contiguous ones, often
    const std::size_t width = size_bytes(dtype_);
    std::memcpy(to, static_cast<const std::byte*>(data_) + static_cast<std::size_t>(begin) * width,
                static_cast<std::size_t>(count) * width);
    return;
  }
  with_word(dtype_, [&](auto word) {
    constexpr auto kWidth = static_cast<std::int64_t>(sizeof(word));
    for_each_source(begin, count, [&](const std::byte* from, const Runs& runs) {
      const std::int64_t bytes = runs.length * kWidth, each = runs.each * kWidth;
      if (runs.step == 1) {
        copy_rows(from, each, to, bytes, runs.count, bytes);
      } else {
        for (std::int64_t i = 0; i < runs.count; ++i) {
          copy_elements<sizeof(word)>(from + i * each, runs.step, to + i * bytes, 1, runs.length);
        }
      }
      to += runs.count * bytes;
    });
  });
}

void FlatWriter::scatter_bytes(std::int64_t begin, std::int64_t count,
                               const void* in) const noexcept {
  const auto* from = static_cast<const std::byte*>(in);
  with_word(dtype_, [&](auto word) {
    constexpr auto kWidth = static_cast<std::int64_t>(sizeof(word));
    for_each_target(begin, count, [&](std::byte* to, const Runs& runs) {
      const std::int64_t bytes = runs.length * kWidth, each = runs.each * kWidth;
      if (runs.step == 1) {
        copy_rows(from, bytes, to, each, runs.count, bytes);
      } else {
        for (std::int64_t i = 0; i < runs.count; ++i) {
          copy_elements<sizeof(word)>(from + i * bytes, 1, to + i * each, runs.step, runs.length);
        }
      }
      from += runs.count * bytes;
    });
  });
}

template class FlatView<const void*>;
template class FlatView<void*>;

}  // namespace tuckfold
