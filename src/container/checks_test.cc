// What the writer finds out about what it wrote, against sums made here from what is read back.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <random>

#include "container/compare.h"
#include "container/dataset_fixture.h"
#include "container/rewrite.h"

namespace tuckfold {
namespace {

using ref::TempFolder;

constexpr std::int64_t kSide = 16, kElems = kSide * kSide;
constexpr float kInf = std::numeric_limits<float>::infinity();

// Noise in 0..1; sample `loud` is a hundred times that.
std::vector<float> noise(std::int64_t samples, std::int64_t loud = -1) {
  std::minstd_rand random(7);
  std::vector<float> values;
  for (std::int64_t i = 0; i < samples * kElems; ++i) {
    const float value = static_cast<float>(random() % 10000) / 10000;
    values.push_back(i / kElems == loud ? 100 * value : value);
  }
  return values;
}

ConstTensorView view_of(const std::vector<float>& values) {
  return {values.data(), DType::F32, {std::ssize(values) / kElems, kSide, kSide}};
}

ArrayInfo info(const char* codec, std::int64_t chunk = 2) {
  return {.name = "x",
          .dtype = DType::F32,
          .shape = {kSide, kSide},
          .codec = CodecSpec::parse(codec),
          .samples_per_chunk = chunk};
}

std::vector<float> read_all(const std::string& path) {
  const FileReader reader(path);
  std::vector<float> values(static_cast<std::size_t>(reader.samples() * kElems));
  reader.read(0, 0, reader.samples(),
              TensorView(values.data(), DType::F32, {reader.samples(), kSide, kSide}));
  return values;
}

WrittenArray write(const std::string& path, const ArrayInfo& array,
                   const std::vector<float>& values, const ArrayCheck& check, int threads = 2) {
  FileWriter writer(path, {array}, {.threads = threads, .sync = false, .checks = {check}});
  writer.write({view_of(values)});
  writer.finish();
  return writer.written(0);
}

TEST(Checks, FiguresAreThoseOfWhatIsReadBack) {
  const TempFolder folder;
  const std::vector<float> values = noise(11, 6);
  for (const char* codec :
       {"dct_quant(rate=3)", "block_quant(bits=3)", "bounded(abs=0.1)", "zstd"}) {
    const WrittenArray got = write(folder / "a.tuck", info(codec), values, {.measure = true});
    const std::vector<float> back = read_all(folder / "a.tuck");
    double low = kInf, high = -kInf, squares = 0, most = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double apart = std::abs(double{values[i]} - double{back[i]});
      low = std::min(low, double{values[i]});
      high = std::max(high, double{values[i]});
      squares += apart * apart;
      most = std::max(most, apart);
    }
    EXPECT_EQ(got.measured, 11) << codec;
    EXPECT_EQ(got.sums.finite, std::ssize(values));
    EXPECT_EQ(got.sums.low, low);
    EXPECT_EQ(got.sums.high, high);
    EXPECT_EQ(got.sums.max_error, most) << codec;
    EXPECT_NEAR(got.sums.squares, squares, 1e-12 * squares);
    std::uint64_t bytes = 0;
    const FileReader reader(folder / "a.tuck");
    for (const ChunkInfo& chunk : reader.chunks(0)) bytes += chunk.frame_bytes;
    EXPECT_EQ(got.packed_bytes, bytes);
    // Sums are made in the order of samples, whatever threads do.
    EXPECT_EQ(write(folder / "b.tuck", info(codec), values, {.measure = true}, 1).sums.squares,
              got.sums.squares);
  }
}

TEST(Checks, SamplesPastTheBoundAreStoredAsTheyAre) {
  const TempFolder folder;
  const std::vector<float> values = noise(11, 6);
  // A codec that promises nothing, on noise of 0..1: the bound holds but for the loud sample.
  const WrittenArray got =
      write(folder / "a.tuck", info("block_quant(bits=4)"), values, {.max_error = 0.2});
  EXPECT_EQ(got.past_bound, 2);  // it shares a chunk with another one
  EXPECT_LE(got.sums.max_error, 0.2);
  EXPECT_GT(got.sums.max_error, 0.02);
  const std::vector<float> back = read_all(folder / "a.tuck");
  for (std::size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(values[i], back[i], 0.2);
  EXPECT_TRUE(verify(folder / "a.tuck").broken.empty());
  // The same with a bound that nothing keeps, and one that is not asked for.
  EXPECT_EQ(
      write(folder / "a.tuck", info("block_quant(bits=4)"), values, {.max_error = 0}).past_bound,
      11);
  EXPECT_EQ(read_all(folder / "a.tuck"), values);
  EXPECT_EQ(
      write(folder / "a.tuck", info("block_quant(bits=4)"), values, {.measure = true}).past_bound,
      0);
}

TEST(Checks, SamplesPastTheBoundStayThroughARewrite) {
  const TempFolder folder;
  const std::vector<float> values = noise(11, 6);
  write(folder / "a.tuck", info("zstd"), values, {});
  std::vector<FileReader> files;
  files.emplace_back(folder / "a.tuck");
  const Rewrite rewrite(files, {{.from = 0, .info = info("block_quant(bits=4)")}});
  const RewriteResult result =
      rewrite.write(folder / "b.tuck", {.sync = false, .checks = {{.max_error = 0.2}}});
  EXPECT_EQ(result.arrays[0].past_bound, 2);
  EXPECT_EQ(result.arrays[0].measured, 11);
  EXPECT_LE(result.arrays[0].sums.max_error, 0.2);
  const std::vector<float> back = read_all(folder / "b.tuck");
  for (std::size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(values[i], back[i], 0.2);
  // Chunks that are copied have the error of none, and their bytes.
  std::vector<FileReader> again;
  again.emplace_back(folder / "b.tuck");
  const Rewrite copy(again, {{.from = 0, .info = again[0].arrays()[0]}});
  const RewriteResult copied =
      copy.write(folder / "c.tuck", {.sync = false, .checks = {{.measure = true}}});
  EXPECT_EQ(copied.arrays[0].sums.max_error, 0);
  EXPECT_EQ(copied.arrays[0].sums.finite, std::ssize(values));
  EXPECT_EQ(copied.arrays[0].packed_bytes, result.arrays[0].packed_bytes);
  EXPECT_EQ(read_all(folder / "c.tuck"), back);
}

TEST(Checks, ExtremesAreCountedWithoutBeingAskedFor) {
  const TempFolder folder;
  std::vector<float> values = noise(12);
  EXPECT_EQ(write(folder / "a.tuck", info("dct_quant(rate=4)"), values, {}).measured, 0);
  values[static_cast<std::size_t>(5 * kElems + 17)] = std::numeric_limits<float>::quiet_NaN();
  values[static_cast<std::size_t>(9 * kElems + 17)] = -kInf;
  const WrittenArray got = write(folder / "a.tuck", info("dct_quant(rate=4)"), values, {});
  EXPECT_EQ(got.measured, 4);  // two chunks of two samples
  std::int64_t lost = 0, changed = 0;
  const std::vector<float> back = read_all(folder / "a.tuck");
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i])) lost += std::isfinite(back[i]) ? 0 : 1;
    if (std::isnan(values[i])) changed += std::isnan(back[i]) ? 0 : 1;
    if (std::isinf(values[i])) changed += values[i] == back[i] ? 0 : 1;
  }
  EXPECT_EQ(got.sums.lost, lost);
  EXPECT_EQ(got.sums.changed, changed);
  EXPECT_GT(lost + changed, 0);
  EXPECT_EQ(write(folder / "a.tuck", info("zstd"), values, {}).measured, 0);
}

TEST(Checks, ExtremesAreNanInfiniteOrHuge) {
  const auto has = [](float value, const std::uint8_t* marks = nullptr) {
    const float values[] = {1, -0x1.fp99f, value};
    return has_extremes(DType::F32, values, 3, marks);
  };
  EXPECT_FALSE(has(0));
  EXPECT_FALSE(has(-0.0f));
  EXPECT_TRUE(has(0x1p100f));
  EXPECT_TRUE(has(-0x1p100f));
  EXPECT_TRUE(has(-kInf));
  EXPECT_TRUE(has(std::numeric_limits<float>::quiet_NaN()));
  const std::uint8_t marks[] = {0, 0, 1};
  EXPECT_FALSE(has(kInf, marks));
  const double wide[] = {0x1.fp99, 0x1p100};
  EXPECT_FALSE(has_extremes(DType::F64, wide, 1));
  EXPECT_TRUE(has_extremes(DType::F64, wide, 2));
  const std::uint16_t halves[] = {0x7bff, 0xfc00};  // f16: 65504, -infinity
  EXPECT_FALSE(has_extremes(DType::F16, halves, 1));
  EXPECT_TRUE(has_extremes(DType::F16, halves, 2));
  const std::uint16_t brains[] = {0x717f, 0x7180};  // bf16: below 2^100, and that
  EXPECT_FALSE(has_extremes(DType::BF16, brains, 1));
  EXPECT_TRUE(has_extremes(DType::BF16, brains, 2));
  EXPECT_FALSE(has_extremes(DType::U16, halves, 2));
}

TEST(Checks, TooFewSamplesAreCounted) {
  const TempFolder folder;
  ArrayInfo small{.name = "x",
                  .dtype = DType::F32,
                  .shape = {7, 13},
                  .codec = CodecSpec::parse("dct_chop(keep=16, block=16)"),
                  .samples_per_chunk = 64};
  try {
    FileWriter writer(folder / "a.tuck", {small}, ref::kQuick);
    const std::vector<float> values(5 * 7 * 13, 1);
    writer.write({ConstTensorView(values.data(), DType::F32, {5, 7, 13})});
    writer.finish();
    EXPECT_EQ(writer.written(0).too_few, 5);
  } catch (const Error& error) {  // a refusal names the shape of a sample
    EXPECT_NE(std::string(error.what()).find("samples of 7x13"), std::string::npos) << error.what();
  }
}

// Readers refuse a frame that unpacks to far more bytes than it has.
TEST(Checks, BlankSamplesAreStoredAsTheyAre) {
  const TempFolder folder;
  constexpr std::int64_t kWide = 640;
  std::vector<std::int64_t> values(3 * kWide * kWide);
  values[5] = 3;  // the others are blank
  for (const char* codec : {"bits", "bits | zstd", "zstd", "shuffle | zstd"}) {
    for (const std::int64_t chunk : {1, 2, 3}) {
      const ArrayInfo array{.name = "x",
                            .dtype = DType::I64,
                            .shape = {kWide, kWide},
                            .codec = CodecSpec::parse(codec),
                            .samples_per_chunk = chunk};
      const std::string path = folder / "a.tuck";
      FileWriter writer(path, {array}, {.sync = false});
      writer.write({ConstTensorView(values.data(), DType::I64, {3, kWide, kWide})});
      writer.finish();
      const FileReader reader(path);
      std::vector<std::int64_t> back(values.size(), -1);
      reader.read(0, 0, 3, TensorView(back.data(), DType::I64, {3, kWide, kWide}));
      EXPECT_TRUE(back == values) << codec << ", " << chunk;
      std::filesystem::remove(path);
    }
  }
}

TEST(Checks, OneIsNeededForEachArray) {
  const TempFolder folder;
  EXPECT_EQ(ref::code_thrown([&] {
              FileWriter(folder / "a.tuck", {info("zstd")}, {.sync = false, .checks = {{}, {}}});
            }),
            Errc::InvalidArgument);
  FileWriter writer(folder / "a.tuck", {info("zstd")}, ref::kQuick);
  EXPECT_EQ(ref::code_thrown([&] { writer.written(1); }), Errc::InvalidArgument);
}

}  // namespace
}  // namespace tuckfold
