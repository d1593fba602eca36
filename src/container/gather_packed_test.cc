// Packed samples brought together: unpacked, they are what gather() gives.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "container/dataset_fixture.h"

namespace tuckfold {
namespace {

using ref::code_thrown;
using ref::kQuick;
using ref::TempFolder;

constexpr std::int64_t kSamples = 40, kElems = 3 * 16 * 24;
const Shape kSample{3, 16, 24};
constexpr std::byte kUntouched{0xa5};

// A file of samples from `first` on, of which every seventh is noise that max_error refuses.
void write_images(const std::string& path, const char* codec, std::int64_t first,
                  std::int64_t count, std::optional<double> max_error = {},
                  std::vector<FillValue> fill = {}) {
  std::vector<float> values(static_cast<std::size_t>(count * kElems));
  std::mt19937 random(5);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::int64_t sample = first + static_cast<std::int64_t>(i) / kElems;
    const auto smooth = static_cast<float>(sample + static_cast<std::int64_t>(i) % 24);
    values[i] = sample % 7 == 3 ? static_cast<float>(random() % 1000) : smooth;
  }
  WriteOptions options = kQuick;
  options.checks = {{.max_error = max_error}};
  FileWriter writer(path,
                    {{.name = "image",
                      .dtype = DType::F32,
                      .shape = kSample,
                      .codec = CodecSpec::parse(codec),
                      .samples_per_chunk = 4,
                      .fill = std::move(fill)}},
                    options);
  writer.write({ConstTensorView(values.data(), DType::F32, {count, 3, 16, 24})});
  writer.finish();
}

// Unpacks every part to its places.
std::vector<float> unpacked(const PackedBatch& batch, const std::vector<std::byte>& room) {
  std::vector<float> all(batch.places.size() * kElems, -1.0f);
  std::size_t at = 0;
  for (const PackedBatch::Part& part : batch.parts) {
    EXPECT_EQ(part.offset % PackedBatch::kAlign, 0u);
    std::vector<float> some(static_cast<std::size_t>(part.samples) * kElems);
    unpack(part.codec, std::span(room).subspan(part.offset, part.bytes),
           TensorView(some.data(), DType::F32, {part.samples, 3, 16, 24}));
    for (std::int64_t i = 0; i < part.samples; ++i) {
      const auto to = static_cast<std::ptrdiff_t>(batch.places[at++]) * kElems;
      std::copy_n(some.begin() + i * kElems, kElems, all.begin() + to);
    }
  }
  EXPECT_EQ(at, batch.places.size());
  return all;
}

void expect_gathered(const FileReader& reader, std::size_t parts) {
  const std::vector<std::int64_t> samples = {7, 39, 3, 3, 0, 24, 25, 26, 31, 10, 11, 38, 17};
  std::vector<float> expected(samples.size() * kElems);
  reader.gather(0, samples, TensorView(expected.data(), DType::F32, {13, 3, 16, 24}));
  for (const int threads : {1, 3}) {
    PackedBatch batch = reader.gather_packed(0, samples, {}, threads);
    std::vector<std::byte> room(batch.bytes + 10, kUntouched);
    batch = reader.gather_packed(0, samples, std::span(room).first(batch.bytes), threads);
    EXPECT_EQ(batch.parts.size(), parts);
    EXPECT_TRUE(
        std::all_of(room.end() - 10, room.end(), [](std::byte b) { return b == kUntouched; }));
    EXPECT_EQ(unpacked(batch, room), expected);
  }
}

TEST(GatherPacked, UnpackedItIsWhatGatherGives) {
  const TempFolder folder;
  for (const char* codec : {"raw", "dct_quant(rate=4)", "dct_chop(keep=3)"}) {
    write_images(folder / "a.tuck", codec, 0, kSamples);
    const FileReader reader(folder / "a.tuck");
    ASSERT_TRUE(reader.is_packed_alone(0)) << codec;
    expect_gathered(reader, 1);
    std::filesystem::remove(folder / "a.tuck");
  }
}

TEST(GatherPacked, ChunksThatTheCodecDidNotSuitAreAPartOfTheirOwn) {
  const TempFolder folder;
  write_images(folder / "a.tuck", "dct_quant(rate=4)", 0, kSamples, 2.0);
  expect_gathered(FileReader(folder / "a.tuck"), 2);
}

TEST(GatherPacked, ShardsMayHaveCodecsOfTheirOwn) {
  const TempFolder folder;
  const std::string shards[] = {folder / "a-0.tuck", folder / "a-1.tuck", folder / "a-2.tuck"};
  write_images(shards[0], "dct_quant(rate=4)", 0, 15);
  write_images(shards[1], "dct_quant(rate=6)", 15, 15);
  write_images(shards[2], "dct_quant(rate=4)", 30, 10);
  write_manifest(folder / "a.tuck", shards);
  expect_gathered(FileReader(folder / "a.tuck"), 2);
}

TEST(GatherPacked, ARoomThatIsTooSmallIsLeftAlone) {
  const TempFolder folder;
  write_images(folder / "a.tuck", "raw", 0, 8);
  const FileReader reader(folder / "a.tuck");
  const std::int64_t samples[] = {1, 2};
  std::vector<std::byte> room(2 * kElems * sizeof(float) - 1, kUntouched);
  const PackedBatch batch = reader.gather_packed(0, samples, room);
  EXPECT_EQ(batch.bytes, room.size() + 1);
  EXPECT_TRUE(std::all_of(room.begin(), room.end(), [](std::byte b) { return b == kUntouched; }));
  EXPECT_EQ(reader.gather_packed(0, {}, {}).bytes, 0u);
}

TEST(GatherPacked, WhatCannotBeIsRefused) {
  const TempFolder folder;
  write_images(folder / "a.tuck", "zstd", 0, 8);
  write_images(folder / "b.tuck", "raw", 0, 8);
  write_images(folder / "c.tuck", "dct_quant(rate=4)", 0, 8, {}, {{3.0}});
  const FileReader together(folder / "a.tuck"), reader(folder / "b.tuck"),
      masked(folder / "c.tuck");
  const auto code = [](const FileReader& from, std::int64_t sample, std::size_t array = 0,
                       int threads = 1) {
    return code_thrown([&] { from.gather_packed(array, {&sample, 1}, {}, threads); });
  };
  EXPECT_EQ(code(together, 0), Errc::Unsupported);
  EXPECT_EQ(code(masked, 0), Errc::Unsupported);
  EXPECT_EQ(code(reader, 8), Errc::InvalidArgument);
  EXPECT_EQ(code(reader, -1), Errc::InvalidArgument);
  EXPECT_EQ(code(reader, 0, 1), Errc::InvalidArgument);
  EXPECT_EQ(code(reader, 0, 0, -1), Errc::InvalidArgument);
}

TEST(GatherPacked, ADamagedChunkIsNamedByItsLowestSample) {
  const TempFolder folder;
  write_images(folder / "a.tuck", "raw", 0, kSamples);
  std::string bytes = ref::read_file(folder / "a.tuck");
  for (const std::size_t chunk : {2, 8}) {  // samples 8 to 11 and 32 to 35
    const ChunkInfo info = FileReader(folder / "a.tuck").chunks(0)[chunk];
    bytes[info.offset + info.frame_bytes] ^= 1;
  }
  ref::write_file(folder / "a.tuck", bytes);
  const FileReader reader(folder / "a.tuck");
  const std::vector<std::int64_t> samples = {34, 1, 33, 8, 0, 35};
  for (const int threads : {1, 3}) {
    try {
      reader.gather_packed(0, samples, {}, threads);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::CorruptData);
      EXPECT_NE(std::string(error.what()).find("'image' with samples 8 to 11"), std::string::npos)
          << error.what();
    }
  }
}

}  // namespace
}  // namespace tuckfold
