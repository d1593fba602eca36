// Samples in any order, of codecs that unpack them alone: what reading them one by one gives.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "container/dataset_fixture.h"

namespace tuckfold {
namespace {

using ref::kQuick;
using ref::TempFolder;

constexpr std::int64_t kSamples = 90, kElems = 3 * 32 * 32;
const Shape kSample{3, 32, 32};

// Images of bytes, of which every seventh is noise that max_error refuses.
void write_images(const std::string& path, const char* codec, std::optional<double> max_error) {
  std::vector<std::uint8_t> pixels(kSamples * kElems);
  std::mt19937 random(5);
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    const std::size_t sample = i / kElems;
    pixels[i] = static_cast<std::uint8_t>(sample % 7 == 3 ? random() : sample + i % 32 + i / 97);
  }
  WriteOptions options = kQuick;
  options.checks = {{.max_error = max_error}};
  FileWriter writer(path,
                    {{.name = "image",
                      .dtype = DType::U8,
                      .shape = kSample,
                      .codec = CodecSpec::parse(codec),
                      .samples_per_chunk = 1}},
                    options);
  writer.write({ConstTensorView(pixels.data(), DType::U8, {kSamples, 3, 32, 32})});
  writer.finish();
}

void expect_gathered(const FileReader& reader) {
  const std::int64_t all = reader.samples();
  std::vector<std::int64_t> samples;  // the last ones are at the end of a file
  for (std::int64_t i = 0; i < 2 * all; ++i) samples.push_back((i * 37 + i / 11) % all);
  samples.push_back(all - 1);
  const std::int64_t count = std::ssize(samples);
  std::vector<std::uint8_t> one(kElems);
  for (const std::int64_t step : {kElems, kElems + 40}) {
    const Shape strides{step, 1024, 32, 1};
    for (const int threads : {1, 3}) {
      std::vector<std::uint8_t> out(static_cast<std::size_t>(count * step), 77);
      reader.gather(0, samples, TensorView(out.data(), DType::U8, {count, 3, 32, 32}, strides),
                    threads);
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t sample = samples[static_cast<std::size_t>(i)];
        reader.read(0, sample, 1, TensorView(one.data(), DType::U8, {1, 3, 32, 32}), 1);
        const auto at = out.begin() + i * step;
        ASSERT_TRUE(std::equal(one.begin(), one.end(), at)) << "sample " << sample;
        ASSERT_TRUE(std::all_of(at + kElems, at + step, [](std::uint8_t b) { return b == 77; }));
      }
    }
  }
  std::vector<std::uint8_t> turned(static_cast<std::size_t>(2 * kElems));  // H x W x C
  reader.gather(0, std::vector<std::int64_t>{5, 2},
                TensorView(turned.data(), DType::U8, {2, 3, 32, 32}, {kElems, 1, 96, 3}), 1);
  reader.read(0, 2, 1, TensorView(one.data(), DType::U8, {1, 3, 32, 32}), 1);
  for (std::size_t i = 0; i < one.size(); ++i) {
    ASSERT_EQ(turned[kElems + i % 1024 * 3 + i / 1024], one[i]);
  }
}

TEST(Gather, GivesWhatIsReadOneByOne) {
  const TempFolder folder;
  int number = 0;
  for (const char* codec : {"dct_quant(rate=2)", "dct_quant(rate=4)", "dct_quant(rate=8)",
                            "dct_quant(rate=4.125)", "raw", "block_quant(bits=4)"}) {
    for (const std::optional<double> max_error : {std::optional<double>{}, {12.0}}) {
      SCOPED_TRACE(codec);
      const std::string path = folder / (std::to_string(number++) + ".tuck");
      write_images(path, codec, max_error);
      expect_gathered(FileReader(path));
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(Gather, GoesOverShards) {
  const TempFolder folder;
  write_images(folder / "a.tuck", "dct_quant(rate=4)", {});
  write_images(folder / "b.tuck", "dct_quant(rate=4)", 12.0);
  write_images(folder / "c.tuck", "dct_quant(rate=2)", {});
  write_manifest(folder / "all.tuck", {{folder / "a.tuck", folder / "b.tuck", folder / "c.tuck"}});
  expect_gathered(FileReader(folder / "all.tuck"));
}

}  // namespace
}  // namespace tuckfold
