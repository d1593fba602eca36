#include "codec/exact/pool_index.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/fail.h"
#include "codec/exact/exact_common.h"

namespace tuckfold::pool_index {
namespace {

constexpr std::array<std::string_view, 2> kChannels = {"first", "last"};

constexpr ParamInfo kParams[] = {
    {.name = "kernel",
     .summary = "side of the window",
     .default_value = 2,
     .min = 1,
     .max = 16,
     .headline = true},
    {.name = "stride",
     .summary = "from one window to the next; left out: as kernel",
     .min = 1,
     .max = 64,
     .optional = true},
    {.name = "padding",
     .summary = "rows and columns before the image that windows may reach; at most half of kernel",
     .default_value = 0,
     .min = 0,
     .max = 8},
    {.name = "width",
     .summary = "columns of the image that was pooled",
     .min = 1,
     .max = 1 << 24,
     .optional = true},
    {.name = "channels",
     .summary = "whether rows and columns are the last two axes, or the two before the last",
     .default_value = 0,
     .words = kChannels},
};

Codec::Complaint check(const Stage& stage) {
  const auto kernel = static_cast<int>(stage["kernel"]),
             padding = static_cast<int>(stage["padding"]);
  if (stage["width"] == 0) return {"width", "width must be given: the columns of the image"};
  if (2 * padding > kernel) {
    return {"padding",
            fmt::format("padding must be at most half of kernel={}, got {}", kernel, padding)};
  }
  return {};
}

Layout layout_of(const Stage& stage, DType dtype, const Shape& shape) {
  const Params p = Params::of(stage);
  if (dtype != DType::I64 && dtype != DType::I32) {
    invalid("[layout] pool_index packs the indices of i64 and i32, got {}; use bits",
            to_string(dtype));
  }
  const std::size_t axes = p.channels_last ? 3 : 2;
  if (shape.rank() < axes) {
    invalid("[layout] pool_index with channels={} needs {} axes or more, got {}",
            p.channels_last ? "last" : "first", axes, to_string(shape));
  }
  const Outputs outputs = Outputs::of(p, shape);
  const auto reach = [&](std::int64_t count) { return (count - 1) * p.stride - p.padding; };
  if (shape.elems() > 0 && reach(outputs.cols) >= p.width) {
    invalid(
        "[layout] {} columns of windows begin at column {} of an image that has width={}; give the "
        "width of the pooling's input",
        outputs.cols, reach(outputs.cols), p.width);
  }
  const std::int64_t most = dtype == DType::I32 ? INT32_MAX : INT64_MAX;
  if (shape.elems() > 0 && reach(outputs.rows) + p.kernel > most / p.width - 1) {
    invalid("[layout] indices of {} rows of windows with width={} pass {}", outputs.rows, p.width,
            to_string(dtype));
  }
  const std::int64_t elems = shape.elems(), bits = p.bits();
  const std::int64_t bytes = elems / 8 * bits + (elems % 8 * bits + 7) / 8;
  return {.max_bytes = static_cast<std::size_t>(bytes),
          .workspace_bytes = kNoteBytes,
          .dtype = DType::U8,
          .shape = {bytes}};
}

// Walks the places of windows along outputs in row-major order.
class Walk {
 public:
  Walk(const Params& p, const Outputs& outputs, std::int64_t output)
      : p_(p),
        outputs_(outputs),
        inner_(output % outputs.inner),
        col_(output / outputs.inner % outputs.cols),
        row_(output / outputs.inner / outputs.cols % outputs.rows) {}
  Window window() const { return window_at(row_, col_, p_.stride, p_.padding); }
  void next() {
    if (++inner_ < outputs_.inner) return;
    inner_ = 0;
    if (++col_ < outputs_.cols) return;
    col_ = 0;
    if (++row_ == outputs_.rows) row_ = 0;
  }

 private:
  const Params& p_;
  const Outputs& outputs_;
  std::int64_t inner_, col_, row_;
};

constexpr std::int64_t kBatch = 1024;  // a multiple of 8

template <class T>
std::int64_t pack_range(const Params& p, const Outputs& outputs, const FlatReader& in,
                        std::byte* out, std::int64_t begin, std::int64_t end) {
  const ReadPanels panels(in);
  const int bits = p.bits();
  Walk walk(p, outputs, begin);
  T indices[kBatch];
  for (std::int64_t at = begin; at < end; at += kBatch) {
    const std::int64_t count = std::min(kBatch, end - at);
    in.gather_bytes(at, count, indices);
    std::byte* to = out + at / 8 * bits;
    std::uint64_t filled = 0;
    int used = 0;
    for (std::int64_t i = 0; i < count; ++i, walk.next()) {
      const int code = code_of(indices[i], p.width, walk.window(), p.kernel);
      if (code < 0) return at + i;
      filled |= static_cast<std::uint64_t>(code) << used;
      for (used += bits; used >= 8; used -= 8, filled >>= 8) *to++ = static_cast<std::byte>(filled);
    }
    if (used > 0) *to = static_cast<std::byte>(filled);
  }
  return end;
}

template <class T>
void unpack_range(const Params& p, const Outputs& outputs, const std::byte* in,
                  const FlatWriter& out, std::int64_t begin, std::int64_t end) {
  const WritePanels panels(out);
  const int bits = p.bits();
  Walk walk(p, outputs, begin);
  T indices[kBatch];
  for (std::int64_t at = begin; at < end; at += kBatch) {
    const std::int64_t count = std::min(kBatch, end - at);
    const std::byte* from = in + at / 8 * bits;
    std::uint64_t filled = 0;
    int left = 0;
    for (std::int64_t i = 0; i < count; ++i, walk.next()) {
      if (left < bits) {
        filled |= static_cast<std::uint64_t>(*from++) << left;
        left += 8;
      }
      const int code = static_cast<int>(filled) & ((1 << bits) - 1);
      filled >>= bits;
      left -= bits;
      indices[i] = static_cast<T>(index_of(code, p.width, walk.window(), p.kernel));
    }
    out.scatter_bytes(at, count, indices);
  }
}

template <class Body>
void with_index(DType dtype, Body&& body) {
  dtype == DType::I32 ? body(std::int32_t{}) : body(std::int64_t{});
}

std::size_t pack_all(const Stage& stage, const ConstTensorView& in, std::span<std::byte> out,
                     RunContext run) {
  const Params p = Params::of(stage);
  const Outputs outputs = Outputs::of(p, in.shape);
  const FlatReader reader(in);
  with_index(in.dtype, [&]<class T>(T) {
    const std::int64_t refused =
        first_refused(reader.elems(), run.threads, [&](std::int64_t begin, std::int64_t end) {
          return pack_range<T>(p, outputs, reader, out.data(), begin, end);
        });
    if (refused == reader.elems()) return;
    T index{};
    reader.gather_bytes(refused, 1, &index);
    refuse(p, outputs, index, refused);
  });
  return out.size();
}

void unpack_all(const Stage& stage, std::span<const std::byte> packed, const TensorView& out,
                RunContext run) {
  const Params p = Params::of(stage);
  const Outputs outputs = Outputs::of(p, out.shape);
  const FlatWriter writer(out);
  with_index(out.dtype, [&]<class T>(T) {
    for_each_range(writer.elems(), run.threads, [&](std::int64_t begin, std::int64_t end) {
      unpack_range<T>(p, outputs, packed.data(), writer, begin, end);
    });
  });
}

}  // namespace

Params Params::of(const Stage& stage) {
  const auto kernel = static_cast<int>(stage["kernel"]);
  return {.kernel = kernel,
          .stride = stage["stride"] == 0 ? kernel : static_cast<int>(stage["stride"]),
          .padding = static_cast<int>(stage["padding"]),
          .width = static_cast<std::int64_t>(stage["width"]),
          .channels_last = stage["channels"] == 1};
}

Outputs Outputs::of(const Params& p, const Shape& shape) {
  const std::size_t col = shape.rank() - (p.channels_last ? 2 : 1);
  return {
      .rows = shape[col - 1], .cols = shape[col], .inner = p.channels_last ? shape[col + 1] : 1};
}

void refuse(const Params& p, const Outputs& outputs, std::int64_t index, std::int64_t output) {
  const std::int64_t col = output / outputs.inner % outputs.cols;
  const std::int64_t row = output / outputs.inner / outputs.cols % outputs.rows;
  const Window window = window_at(row, col, p.stride, p.padding);
  invalid(
      "[pack] pool_index: the window of element {} has rows {}..{} and columns {}..{} of an image "
      "with "
      "width={}, got index {}; give the pooling's kernel, stride, padding and input width, or use "
      "bits",
      output, window.y, window.y + p.kernel - 1, window.x, window.x + p.kernel - 1, p.width, index);
}

}  // namespace tuckfold::pool_index

namespace tuckfold {

const Codec kPoolIndex = {
    .info = {.name = "pool_index",
             .summary = "indices of max pooling as places within their windows, exactly",
             .params = pool_index::kParams},
    .exact = true,
    .check = pool_index::check,
    .layout = pool_index::layout_of,
    .pack = pool_index::pack_all,
    .unpack = pool_index::unpack_all,
    .cuda = &pool_index::kCuda,
    .reports = true,
};

}  // namespace tuckfold
