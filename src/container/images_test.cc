// Images of samples: every window, layout and dtype, against pixels taken one by one.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "base/half.h"
#include "container/dataset_fixture.h"

namespace tuckfold {
namespace {

using ref::code_thrown;
using ref::kQuick;
using ref::TempFolder;

constexpr std::int64_t kSamples = 50, kChannels = 3, kRows = 17, kCols = 21;

struct Dataset {
  DType dtype;
  Shape shape;  // of a sample
  const char* codec;
  bool channels_last;
};

// A file of random pixels; what is read of it, as f32.
std::vector<float> write_pixels(const std::string& path, const Dataset& data) {
  std::mt19937 random(11);
  const auto elems = static_cast<std::size_t>(kSamples * data.shape.elems());
  std::vector<std::uint8_t> bytes(elems);
  std::vector<float> floats(elems);
  for (std::size_t i = 0; i < elems; ++i) {
    bytes[i] = static_cast<std::uint8_t>(random());
    floats[i] = static_cast<float>(bytes[i]) / 255.0f;
  }
  Shape all{kSamples};
  for (const std::int64_t side : data.shape) all.push_back(side);
  const void* values = data.dtype == DType::U8 ? static_cast<void*>(bytes.data()) : floats.data();
  FileWriter writer(path,
                    {{.name = "x",
                      .dtype = data.dtype,
                      .shape = data.shape,
                      .codec = CodecSpec::parse(data.codec),
                      .samples_per_chunk = 4}},
                    kQuick);
  writer.write({ConstTensorView(values, data.dtype, all)});
  writer.finish();
  const FileReader reader(path);
  if (data.dtype == DType::F32) {
    reader.read(0, 0, kSamples, TensorView(floats.data(), DType::F32, all));
    return floats;
  }
  reader.read(0, 0, kSamples, TensorView(bytes.data(), DType::U8, all));
  return {bytes.begin(), bytes.end()};
}

float value_at(const std::byte* at, DType dtype) {
  if (dtype == DType::F32) {
    float value;
    std::memcpy(&value, at, 4);
    return value;
  }
  std::uint16_t bits;
  std::memcpy(&bits, at, 2);
  return dtype == DType::F16 ? to_float(F16{bits}) : to_float(BF16{bits});
}

float rounded(float value, DType dtype) {
  if (dtype == DType::F16) return to_float(to_f16_saturated(value));
  return dtype == DType::BF16 ? to_float(to_bf16_saturated(value)) : value;
}

void expect_images(const Dataset& data) {
  const TempFolder folder;
  const std::vector<float> pixels = write_pixels(folder / "a.tuck", data);
  const FileReader reader(folder / "a.tuck");
  const std::int64_t channels = data.shape.rank() == 2 ? 1 : kChannels;
  ImageOptions options{.channels_last = data.channels_last};
  for (std::int64_t c = 0; c < channels; ++c) {
    options.scale.push_back(0.25f + static_cast<float>(c));
    options.add.push_back(-1.5f * static_cast<float>(c));
  }
  const std::vector<std::int64_t> samples = {7, 49, 7, 0, 23};
  const std::vector<Window> windows = {
      {0, 0, false}, {-3, 5, true}, {9, -40, false}, {-30, 2, false}, {2, 1, true}};
  const auto count = std::ssize(samples);
  for (const auto& [rows, cols] : {std::pair{kRows, kCols}, {12, 33}, {1, 1}}) {
    for (const DType dtype : {DType::F32, DType::F16, DType::BF16}) {
      const Shape shape{count, channels, rows, cols};
      const Shape last{rows * cols * channels, 1, cols * channels, channels};  // N x H x W x C
      const Shape odd{2 * rows * cols * channels, 2, 2 * cols * channels, 2 * channels};
      for (const Shape& strides : {row_major_strides(shape), last, odd}) {
        for (const int threads : {1, 3}) {
          const std::size_t size = size_bytes(dtype);
          std::vector<std::byte> out(static_cast<std::size_t>(2 * shape.elems()) * size);
          reader.gather_images(0, samples, windows, options,
                               TensorView(out.data(), dtype, shape, strides), threads);
          for (std::int64_t i = 0; i < shape.elems(); ++i) {
            const std::int64_t x = i % cols, y = i / cols % rows, c = i / cols / rows % channels;
            const std::int64_t n = i / cols / rows / channels;
            const Window& window = windows[static_cast<std::size_t>(n)];
            const std::int64_t from_x = window.left + (window.mirrored ? cols - 1 - x : x);
            const std::int64_t from_y = window.top + y;
            float pixel = 0;
            if (from_x >= 0 && from_x < kCols && from_y >= 0 && from_y < kRows) {
              const std::int64_t sample = samples[static_cast<std::size_t>(n)];
              const std::int64_t at =
                  data.channels_last ? ((sample * kRows + from_y) * kCols + from_x) * channels + c
                                     : ((sample * channels + c) * kRows + from_y) * kCols + from_x;
              pixel = pixels[static_cast<std::size_t>(at)];
            }
            const auto channel = static_cast<std::size_t>(c);
            const float product = pixel * options.scale[channel];
            const float want = rounded(product + options.add[channel], dtype);
            const std::int64_t to =
                n * strides[0] + c * strides[1] + y * strides[2] + x * strides[3];
            ASSERT_EQ(value_at(out.data() + static_cast<std::size_t>(to) * size, dtype), want)
                << data.codec << ' ' << n << ' ' << c << ' ' << y << ' ' << x;
          }
        }
      }
    }
  }
}

TEST(Images, WindowsAreScaledAndConverted) {
  const Shape planes{kChannels, kRows, kCols}, pixels{kRows, kCols, kChannels};
  expect_images({DType::U8, planes, "raw", false});
  expect_images({DType::U8, planes, "dct_quant(rate=4)", false});
  expect_images({DType::F32, planes, "bytes_of", false});
  expect_images({DType::U8, pixels, "zstd", true});
  expect_images({DType::F32, pixels, "raw", true});
  expect_images({DType::U8, {kRows, kCols}, "raw", false});
}

TEST(Images, WithoutOptionsPixelsAreThemselves) {
  const TempFolder folder;
  const std::vector<float> pixels =
      write_pixels(folder / "a.tuck", {DType::U8, {kChannels, kRows, kCols}, "raw", false});
  const FileReader reader(folder / "a.tuck");
  std::vector<float> out(static_cast<std::size_t>(kChannels * kRows * kCols));
  const std::int64_t sample = 31;
  reader.gather_images(0, {&sample, 1}, {}, {},
                       TensorView(out.data(), DType::F32, {1, kChannels, kRows, kCols}));
  EXPECT_TRUE(std::equal(out.begin(), out.end(), pixels.begin() + 31 * std::ssize(out)));
}

TEST(Images, CallsThatCannotBeSatisfiedAreInvalid) {
  const TempFolder folder;
  write_pixels(folder / "a.tuck", {DType::U8, {kChannels, 8, 8}, "raw", false});
  ref::write_small(folder / "b.tuck", 5, 5);
  const FileReader reader(folder / "a.tuck"), other(folder / "b.tuck");
  std::vector<float> room(4096);
  const TensorView out(room.data(), DType::F32, {2, kChannels, 8, 8});
  const std::vector<std::int64_t> samples = {1, 2};
  const std::vector<Window> one(1);
  const auto code = [&](const FileReader& from, std::size_t array, const TensorView& to,
                        std::span<const Window> windows = {}, const ImageOptions& options = {},
                        int threads = 1) {
    return code_thrown([&] { from.gather_images(array, samples, windows, options, to, threads); });
  };
  EXPECT_EQ(code(reader, 1, out), Errc::InvalidArgument);
  EXPECT_EQ(code(other, 2, out), Errc::InvalidArgument);  // i64
  EXPECT_EQ(code(other, 1, out), Errc::InvalidArgument);  // one axis
  EXPECT_EQ(code(reader, 0, out, one), Errc::InvalidArgument);
  EXPECT_EQ(code(reader, 0, out, {}, {.scale = {1, 2}}), Errc::InvalidArgument);
  EXPECT_EQ(code(reader, 0, out, {}, {.add = {1}}), Errc::InvalidArgument);
  EXPECT_EQ(code(reader, 0, out, {}, {}, -1), Errc::InvalidArgument);
  EXPECT_EQ(code(reader, 0, TensorView(room.data(), DType::F32, {2, 1, 8, 8})),
            Errc::InvalidArgument);
  EXPECT_EQ(code(reader, 0, TensorView(room.data(), DType::F32, {3, kChannels, 8, 8})),
            Errc::InvalidArgument);
  EXPECT_EQ(code(reader, 0, TensorView(room.data(), DType::F64, {2, kChannels, 8, 8})),
            Errc::InvalidArgument);
  EXPECT_EQ(code(reader, 0, TensorView(nullptr, DType::F32, {2, kChannels, 8, 8})),
            Errc::InvalidArgument);
  EXPECT_EQ(
      code(reader, 0, TensorView(room.data(), DType::F32, {2, kChannels, 8, 8}, Device::Cuda)),
      Errc::Unsupported);
}

}  // namespace
}  // namespace tuckfold
