// Images for a network: samples are unpacked to a core's cache, some at a time, and from there their
// windows are scaled, converted and written to the output, each pixel once.
#include <algorithm>
#include <mutex>
#include <utility>

#include "base/convert.h"
#include "base/dtype.h"
#include "base/fail.h"
#include "base/parallel.h"
#include "base/scale_add.h"
#include "base/strided.h"
#include "container/reader_impl.h"

namespace tuckfold {
namespace {

constexpr std::int64_t kPieceBytes = 128 << 10;  // of samples, unpacked

// Rows, columns and channels of an array's samples.
struct Sides {
  std::int64_t channels, rows, cols;
  bool planes;  // a channel's pixels are together
};

Sides sides_of(const ArrayInfo& info, bool channels_last) {
  const Shape& shape = info.shape;
  if (shape.rank() == 2) return {1, shape[0], shape[1], true};
  if (shape.rank() != 3) {
    invalid("[read] images have two or three axes, '{}' is {}; read it without scale and window",
            info.name, to_string(shape));
  }
  if (channels_last) return {shape[2], shape[0], shape[1], shape[2] == 1};
  return {shape[0], shape[1], shape[2], true};
}

void check_images(const ArrayInfo& info, const Sides& sides, std::size_t samples,
                  std::span<const Window> windows, const ImageOptions& options,
                  const TensorView& out, int threads) {
  if (threads < 0) invalid("[read] threads must be 0 or more, got {}", threads);
  if (must_be_exact(info.dtype)) {
    invalid("[read] images are u8, u16 or floats, '{}' is {}", info.name, to_string(info.dtype));
  }
  if (out.device != Device::Cpu) {
    fail(Errc::Unsupported, "[read] images are read to the CPU; copy them to the device");
  }
  if (out.dtype != DType::F32 && out.dtype != DType::F16 && out.dtype != DType::BF16) {
    invalid("[read] images become f32, f16 or bf16, got {}", to_string(out.dtype));
  }
  if (out.shape.rank() != 4 || out.strides.rank() != 4 || !std::cmp_equal(out.shape[0], samples) ||
      out.shape[1] != sides.channels) {
    invalid("[read] images of '{}' are {}x{} and a height and width, the output is {}", info.name,
            samples, sides.channels, to_string(out.shape));
  }
  if (!windows.empty() && windows.size() != samples) {
    invalid("[read] every sample needs a window, got {} for {} samples", windows.size(), samples);
  }
  for (const std::vector<float>* factors : {&options.scale, &options.add}) {
    if (!factors->empty() && !std::cmp_equal(factors->size(), sides.channels)) {
      invalid("[read] '{}' has {} channels, got scale or add of {}", info.name, sides.channels,
              factors->size());
    }
  }
}

// Writes the windows of unpacked samples.
class Images {
 public:
  Images(const Sides& sides, const ImageOptions& options, const TensorView& out)
      : sides_(sides), out_(out), writer_(out), rows_(out.shape[2]), cols_(out.shape[3]) {
    const auto channels = static_cast<std::size_t>(sides.channels);
    scale_ = options.scale.empty() ? std::vector<float>(channels, 1.0f) : options.scale;
    add_ = options.add.empty() ? std::vector<float>(channels, 0.0f) : options.add;
    interleaved_ = out.strides[1] == 1 && out.strides[3] == sides.channels && sides.channels > 1;
  }

  struct Room {
    std::vector<std::byte> samples;
    std::vector<float> pixels, row, line;  // as unpacked; of one channel; all channels of a row
  };

  // Image `to` of the output from the sample that is row `from` of `in`.
  void write(const FlatReader& in, std::int64_t from, std::int64_t to, const Window& window,
             Room& room) const {
    const auto width = static_cast<std::size_t>(cols_ * sides_.channels);
    room.pixels.resize(width);
    room.row.resize(static_cast<std::size_t>(cols_));
    room.line.resize(width);
    for (std::int64_t y = 0; y < rows_; ++y) {
      const std::int64_t row = window.top + y;
      if (!sides_.planes) take(in, from, row, 0, window.left, room.pixels.data());
      for (std::int64_t c = 0; c < sides_.channels; ++c) {
        float* values = room.row.data();
        if (sides_.planes) {
          take(in, from, row, c, window.left, values);
        } else {
          for (std::int64_t x = 0; x < cols_; ++x) {
            values[x] = room.pixels[static_cast<std::size_t>(x * sides_.channels + c)];
          }
        }
        const auto channel = static_cast<std::size_t>(c);
        scale_add(values, cols_, scale_[channel], add_[channel], values);
        if (window.mirrored) std::reverse(values, values + cols_);
        if (interleaved_) {
          for (std::int64_t x = 0; x < cols_; ++x) {
            room.line[static_cast<std::size_t>(x * sides_.channels + c)] = values[x];
          }
        } else {
          put(((to * sides_.channels + c) * rows_ + y) * cols_, cols_, values);
        }
      }
      if (interleaved_) put_line(to, y, room.line.data());
    }
  }

 private:
  // Pixels of a row from `left` on; 0 where there are none.
  void take(const FlatReader& in, std::int64_t sample, std::int64_t row, std::int64_t channel,
            std::int64_t left, float* to) const {
    const std::int64_t each = sides_.planes ? 1 : sides_.channels;
    const std::int64_t first = std::clamp<std::int64_t>(-left, 0, cols_);
    const std::int64_t end = std::clamp<std::int64_t>(sides_.cols - left, first, cols_);
    if (row < 0 || row >= sides_.rows || first == end) {
      std::fill(to, to + cols_ * each, 0.0f);
      return;
    }
    const std::int64_t plane = sides_.planes ? sample * sides_.channels + channel : sample;
    in.gather(((plane * sides_.rows + row) * sides_.cols + left + first) * each,
              (end - first) * each, to + first * each);
    std::fill(to, to + first * each, 0.0f);
    std::fill(to + end * each, to + cols_ * each, 0.0f);
  }

  void put(std::int64_t at, std::int64_t count, const float* values) const {
    writer_.scatter(at, count, values);
  }

  // A row whose channels are side by side in the output.
  void put_line(std::int64_t image, std::int64_t y, const float* values) const {
    const std::int64_t at = image * out_.strides[0] + y * out_.strides[2];
    const auto bytes = static_cast<std::int64_t>(size_bytes(out_.dtype));
    const FlatWriter line(TensorView(static_cast<std::byte*>(out_.data) + at * bytes, out_.dtype,
                                     Shape{cols_ * sides_.channels}));
    line.scatter(0, line.elems(), values);
  }

  Sides sides_;
  const TensorView& out_;
  FlatWriter writer_;
  std::int64_t rows_, cols_;
  std::vector<float> scale_, add_;
  bool interleaved_;
};

}  // namespace

void FileReader::gather_images(std::size_t array, std::span<const std::int64_t> samples,
                               std::span<const Window> windows, const ImageOptions& options,
                               const TensorView& out, int threads) const {
  if (array >= arrays().size()) {
    invalid("[read] there are {} arrays, got number {}", arrays().size(), array);
  }
  const ArrayInfo& info = arrays()[array];
  const Sides sides = sides_of(info, options.channels_last);
  check_images(info, sides, samples.size(), windows, options, out, threads);
  if (out.shape.elems() == 0) return;
  if (out.data == nullptr) invalid("[read] the output has no data");
  const Images images(sides, options, out);
  const std::int64_t count = std::ssize(samples);
  const std::int64_t each =
      std::max<std::int64_t>(1, kPieceBytes / static_cast<std::int64_t>(info.sample_bytes()));
  std::exception_ptr error;  // of the first piece that has one
  std::int64_t error_piece = count;
  std::mutex mutex;
  const auto read = [&](Images::Room& room, std::int64_t first) {
    const std::int64_t some = std::min(each, count - first);
    room.samples.resize(static_cast<std::size_t>(some) * info.sample_bytes());
    const TensorView unpacked(room.samples.data(), info.dtype, with_samples(some, info.shape));
    gather(array, samples.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(some)),
           unpacked, 1);
    const FlatReader in{ConstTensorView(unpacked)};
    for (std::int64_t i = 0; i < some; ++i) {
      const auto at = static_cast<std::size_t>(first + i);
      images.write(in, i, first + i, windows.empty() ? Window{} : windows[at], room);
    }
  };
  parallel_for((count + each - 1) / each, thread_count(threads),
               [&](std::int64_t begin, std::int64_t end) {
                 Images::Room room;
                 for (std::int64_t i = begin; i < end; ++i) {
                   try {
                     read(room, i * each);
                   } catch (...) {
                     const std::lock_guard lock(mutex);
                     if (i < error_piece) error = std::current_exception();
                     error_piece = std::min(error_piece, i);
                   }
                 }
               });
  if (error) std::rethrow_exception(error);
}

}  // namespace tuckfold
