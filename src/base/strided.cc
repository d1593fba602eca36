#include "base/strided.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/convert.h"
#include "base/half.h"
#include "base/panels.h"
#include "base/stream.h"

namespace tuckfold {
namespace {

template <class T>
constexpr bool kNarrow = std::is_same_v<T, F16> || std::is_same_v<T, BF16>;
template <class T>
constexpr bool kHasRuns = !std::is_same_v<T, float>;  // in base/convert.h
constexpr std::int64_t kVectorRun = 16;               // shorter runs are not worth a call

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

// Calls body with a value of the type that converts to and from f32.
template <class Body>
void with_real(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::F32: return body(float{});
    case DType::F16: return body(F16{});
    case DType::BF16: return body(BF16{});
    case DType::F64: return body(double{});
    case DType::U8: return body(std::uint8_t{});
    case DType::U16: return body(std::uint16_t{});
    default: assert(false && "must_be_exact dtypes do not become f32");
  }
}

// A run of elements to f32, and back.
template <class T>
void widen_run(const T* from, std::int64_t step, std::int64_t length, float* out) {
  if (std::is_same_v<T, float> && step == 1) {
    std::memcpy(out, from, static_cast<std::size_t>(length) * sizeof(float));
    return;
  }
  if constexpr (kHasRuns<T>) {
    if (step == 1 && length >= kVectorRun) return to_floats(from, length, out);
  }
  if (step == 1) {
    for (std::int64_t i = 0; i < length; ++i) out[i] = as_float(from[i]);
  } else {
    for (std::int64_t i = 0; i < length; ++i) out[i] = as_float(from[i * step]);
  }
}

template <class T>
void narrow_run(const float* from, std::int64_t length, T* to, std::int64_t step) {
  if (std::is_same_v<T, float> && step == 1) {
    std::memcpy(to, from, static_cast<std::size_t>(length) * sizeof(float));
    return;
  }
  if constexpr (kHasRuns<T>) {
    if (step == 1 && length >= kVectorRun) return from_floats(from, length, to);
  }
  if (step == 1) {
    for (std::int64_t i = 0; i < length; ++i) to[i] = from_float<T>(from[i]);
  } else {
    for (std::int64_t i = 0; i < length; ++i) to[i * step] = from_float<T>(from[i]);
  }
}

constexpr std::int64_t kStreamRun = 128;  // shorter runs have too few whole cache lines

// Elements of kWidth bytes, of any type and strides; steps count elements.
template <std::size_t kWidth>
void copy_run(const std::byte* from, std::int64_t from_step, std::byte* to, std::int64_t to_step,
              std::int64_t length) {
  constexpr auto kBytes = static_cast<std::int64_t>(kWidth);
  if (from_step == 1 && to_step == 1) {
    std::memcpy(to, from, static_cast<std::size_t>(length) * kWidth);
    return;
  }
  for (std::int64_t i = 0; i < length; ++i) {
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

// Calls body(first element offset, stride, length) for the runs along the innermost axis. Only the
// first place takes divisions: rows may be as short as 7.
template <class Pointer>
template <class Body>
void FlatView<Pointer>::for_each_run(std::int64_t begin, std::int64_t count,
                                     Body&& body) const noexcept {
  const std::size_t inner = axes_.rank() - 1;
  const std::int64_t row = axes_[inner], step = steps_[inner];
  if (count <= 0) return;
  const Place at = place(begin);
  std::int64_t length = std::min(count, row - at.first);
  body(at.offset, step, length);
  count -= length;
  if (count == 0) return;
  Shape index = axes_;  // of the row on the axes before the innermost
  std::int64_t rows = begin / row;
  for (std::size_t axis = inner; axis-- > 0; rows /= axes_[axis]) index[axis] = rows % axes_[axis];
  std::int64_t offset = at.offset - at.first * step;
  for (; count > 0; count -= length) {
    std::size_t axis = inner - 1;
    offset += steps_[axis];
    while (++index[axis] == axes_[axis] && axis > 0) {
      offset += steps_[axis - 1] - axes_[axis] * steps_[axis];
      index[axis--] = 0;
    }
    length = std::min(count, row);
    body(offset, step, length);
  }
}

// Calls body(address, step, length) for runs of elements [begin, begin + count), in the panel if
// there is one.
template <class Body>
void FlatReader::for_each_source(std::int64_t begin, std::int64_t count,
                                 Body&& body) const noexcept {
  const auto width = static_cast<std::int64_t>(size_bytes(dtype_));
  if (grid_.together == 0 || thread_panel().view != this) {
    return for_each_run(begin, count,
                        [&](std::int64_t offset, std::int64_t step, std::int64_t length) {
                          body(static_cast<const std::byte*>(data_) + offset * width, step, length);
                        });
  }
  const Panel& panel = thread_panel();
  while (count > 0) {
    if (begin < panel.begin || begin >= panel.end) load_panel(begin);
    const std::int64_t line = (begin - panel.begin) / grid_.length;
    const std::int64_t at = (begin - panel.begin) % grid_.length;
    const std::int64_t length = std::min(count, grid_.length - at);
    body(panel.bytes + (line * grid_.row + at) * width, std::int64_t{1}, length);
    begin += length;
    count -= length;
  }
}

template <class Body>
void FlatWriter::for_each_target(std::int64_t begin, std::int64_t count,
                                 Body&& body) const noexcept {
  const auto width = static_cast<std::int64_t>(size_bytes(dtype_));
  if (grid_.together == 0 || thread_panel().view != this) {
    return for_each_run(begin, count,
                        [&](std::int64_t offset, std::int64_t step, std::int64_t length) {
                          body(static_cast<std::byte*>(data_) + offset * width, step, length);
                        });
  }
  Panel& panel = thread_panel();
  while (count > 0) {
    if (begin != panel.written_end || begin >= panel.end) {
      if (panel.written_begin < panel.written_end) store_panel();
      const Lines lines = panel_at(begin);
      panel.begin = lines.begin;
      panel.end = lines.end;
      panel.written_begin = panel.written_end = begin;
    }
    const std::int64_t line = (begin - panel.begin) / grid_.length;
    const std::int64_t at = (begin - panel.begin) % grid_.length;
    const std::int64_t length = std::min(count, grid_.length - at);
    body(panel.bytes + (line * grid_.row + at) * width, std::int64_t{1}, length);
    begin += length;
    count -= length;
    panel.written_end = begin;
  }
}

void FlatReader::gather(std::int64_t begin, std::int64_t count, float* out) const noexcept {
  with_real(dtype_, [&](auto element) {
    using T = decltype(element);
    for_each_source(begin, count,
                    [&](const std::byte* from, std::int64_t step, std::int64_t length) {
                      widen_run(reinterpret_cast<const T*>(from), step, length, out);
                      out += length;
                    });
  });
}

void FlatWriter::scatter(std::int64_t begin, std::int64_t count, const float* in,
                         bool stream) const noexcept {
  if (grid_.together > 0) stream = false;  // the panel is read again soon
  with_real(dtype_, [&](auto element) {
    using T = decltype(element);
    for_each_target(begin, count, [&](std::byte* to, std::int64_t step, std::int64_t length) {
      if (std::is_same_v<T, float> && stream && step == 1 && length >= kStreamRun) {
        stream_copy(to, in, static_cast<std::size_t>(length) * sizeof(float));
      } else {
        narrow_run(in, length, reinterpret_cast<T*>(to), step);
      }
      in += length;
    });
  });
}

void FlatReader::gather_bytes(std::int64_t begin, std::int64_t count, void* out) const noexcept {
  auto* to = static_cast<std::byte*>(out);
  with_word(dtype_, [&](auto word) {
    constexpr auto kWidth = static_cast<std::int64_t>(sizeof(word));
    for_each_source(begin, count,
                    [&](const std::byte* from, std::int64_t step, std::int64_t length) {
                      copy_run<sizeof(word)>(from, step, to, 1, length);
                      to += length * kWidth;
                    });
  });
}

void FlatWriter::scatter_bytes(std::int64_t begin, std::int64_t count,
                               const void* in) const noexcept {
  const auto* from = static_cast<const std::byte*>(in);
  with_word(dtype_, [&](auto word) {
    constexpr auto kWidth = static_cast<std::int64_t>(sizeof(word));
    for_each_target(begin, count, [&](std::byte* to, std::int64_t step, std::int64_t length) {
      copy_run<sizeof(word)>(from, 1, to, step, length);
      from += length * kWidth;
    });
  });
}

template class FlatView<const void*>;
template class FlatView<void*>;

}  // namespace tuckfold
