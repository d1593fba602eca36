// Images for a network: samples are unpacked to a core's cache, some at a time, and from there their
// windows are scaled, converted and written to the output, each pixel once.
#include <algorithm>
#include <mutex>
#include <utility>

#include "base/dtype.h"
#include "base/fail.h"
#include "base/overlap.h"
#include "base/parallel.h"
#include "base/strided.h"
#include "codec/images/image_writer.h"
#include "container/reader_impl.h"

namespace tuckfold {
namespace {

constexpr std::int64_t kPieceBytes = 128 << 10;  // of samples, unpacked

ImageSides sides_of(const ArrayInfo& info, bool channels_last) {
  if (info.shape.rank() != 2 && info.shape.rank() != 3) {
    invalid("[read] images have two or three axes, '{}' is {}; read it without scale and window",
            info.name, to_string(info.shape));
  }
  return ImageSides::of(info.shape, channels_last);
}

void check_images(const ArrayInfo& info, const ImageSides& sides, std::size_t samples,
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
  check_apart("read", out);
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

// What a thread has while it reads.
struct Room {
  std::vector<std::byte> samples;
  ImageWriter::Room image;
};

}  // namespace

void FileReader::gather_images(std::size_t array, std::span<const std::int64_t> samples,
                               std::span<const Window> windows, const ImageOptions& options,
                               const TensorView& out, int threads) const {
  if (array >= arrays().size()) {
    invalid("[read] there are {} arrays, got number {}", arrays().size(), array);
  }
  const ArrayInfo& info = arrays()[array];
  const ImageSides sides = sides_of(info, options.channels_last);
  check_images(info, sides, samples.size(), windows, options, out, threads);
  if (out.shape.elems() == 0) return;
  if (out.data == nullptr) invalid("[read] the output has no data");
  const ImageWriter images(sides, options.scale, options.add, out);
  const std::int64_t count = std::ssize(samples);
  const std::int64_t each =
      std::max<std::int64_t>(1, kPieceBytes / static_cast<std::int64_t>(info.sample_bytes()));
  std::exception_ptr error;  // of the first piece that has one
  std::int64_t error_piece = count;
  std::mutex mutex;
  const auto read = [&](Room& room, std::int64_t first) {
    const std::int64_t some = std::min(each, count - first);
    room.samples.resize(static_cast<std::size_t>(some) * info.sample_bytes());
    const TensorView unpacked(room.samples.data(), info.dtype, with_samples(some, info.shape));
    gather(array, samples.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(some)),
           unpacked, 1);
    const FlatReader in{ConstTensorView(unpacked)};
    for (std::int64_t i = 0; i < some; ++i) {
      const auto at = static_cast<std::size_t>(first + i);
      images.write(in, i, first + i, windows.empty() ? Window{} : windows[at], room.image);
    }
  };
  parallel_for((count + each - 1) / each, thread_count(threads),
               [&](std::int64_t begin, std::int64_t end) {
                 Room room;
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
