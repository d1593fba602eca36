// Fill values through files: they come back by their bits, whatever happens to the file between.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/dtype.h"
#include "base/element.h"
#include "container/dataset_fixture.h"
#include "container/format.h"
#include "container/rewrite.h"

namespace tuckfold {
namespace {

using ref::kQuick;
using ref::TempFolder;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr std::int64_t kRows = 16, kCols = 24, kElems = kRows * kCols;

// Which fill value stands at a place of a sample: at edges and corners, in a disc, and all of sample
// 3; none in sample 4.
int fill_at(std::int64_t sample, std::int64_t row, std::int64_t col) {
  if (sample == 3) return 1;
  if (sample == 4) return 0;
  if (row == 0 || col == kCols - 1) return 1;
  if ((row - 8) * (row - 8) + (col - 9) * (col - 9) < 16) return static_cast<int>(sample % 2) + 1;
  return 0;
}

struct Field {
  DType dtype = DType::F32;
  std::vector<FillValue> fill{{1e20}, {kNan}};
  std::vector<std::byte> bytes{};  // of `samples` samples
  std::int64_t samples = 0;

  Field(DType type, std::int64_t first, std::int64_t count) : dtype(type), samples(count) {
    if (is_whole(dtype)) fill = {{255}, {0}};
    if (dtype == DType::F16) fill = {{-999}, {kNan}};
    if (is_float(dtype) && dtype != DType::F16) fill[0].value = static_cast<double>(1e20f);
    if (dtype == DType::BF16) fill[0].value = element_value(dtype, element_bits(dtype, 1e20));
    bytes.resize(static_cast<std::size_t>(count * kElems) * size_bytes(dtype));
    for (std::int64_t i = 0; i < count * kElems; ++i) {
      const std::int64_t row = i % kElems / kCols, col = i % kCols, sample = first + i / kElems;
      const int which = fill_at(sample, row, col);
      const double value = which > 0 ? fill[static_cast<std::size_t>(which - 1)].value
                                     : static_cast<double>(100 + sample + row + 2 * col);
      const std::uint64_t bits = element_bits(dtype, value);
      std::memcpy(bytes.data() + static_cast<std::size_t>(i) * size_bytes(dtype), &bits,
                  size_bytes(dtype));
    }
  }
  ConstTensorView view() const { return {bytes.data(), dtype, {samples, kRows, kCols}}; }
  ArrayInfo info(const char* codec) const {
    return {.name = "field",
            .dtype = dtype,
            .shape = {kRows, kCols},
            .codec = CodecSpec::parse(codec),
            .samples_per_chunk = 3,
            .fill = fill};
  }
};

double value_at(DType dtype, const std::byte* bytes, std::int64_t i) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, bytes + static_cast<std::size_t>(i) * size_bytes(dtype), size_bytes(dtype));
  return element_value(dtype, bits);
}

// Samples first .. of a file are those of the field: fill values by bits, others within `most`.
void expect_field(const FileReader& reader, DType dtype, std::int64_t samples, double most,
                  std::int64_t number = 0) {
  ASSERT_EQ(reader.arrays().size(), 1u);
  ASSERT_EQ(reader.samples(), samples);
  const Field want(dtype, number, samples);
  std::vector<std::byte> got(want.bytes.size());
  reader.read(0, 0, samples, TensorView(got.data(), dtype, {samples, kRows, kCols}), 2);
  for (std::int64_t i = 0; i < samples * kElems; ++i) {
    const int fill = fill_at(number + i / kElems, i % kElems / kCols, i % kCols);
    const double a = value_at(dtype, want.bytes.data(), i), b = value_at(dtype, got.data(), i);
    if (fill > 0) {
      ASSERT_EQ(FillValue{a}, FillValue{b}) << to_string(dtype) << " " << i;
    } else {
      ASSERT_NEAR(a, b, most) << to_string(dtype) << " " << i;
    }
  }
}

void write(const std::string& path, DType dtype, const char* codec, std::int64_t samples,
           std::int64_t batch = 2, const WriteOptions& options = kQuick) {
  FileWriter writer(path, {Field(dtype, 0, 1).info(codec)}, options);
  while (writer.samples() < samples) {
    const std::int64_t count = std::min(batch, samples - writer.samples());
    writer.write({Field(dtype, writer.samples(), count).view()});
  }
  writer.finish();
}

TEST(FillValues, ComeBackByTheirBitsFromEveryLossyCodec) {
  const TempFolder folder;
  for (const DType dtype : kDTypes) {
    if (must_be_exact(dtype)) continue;
    for (const char* codec : {"dct_quant(rate=8)", "dct_chop(keep=5, coef=f16)",
                              "block_quant(bits=6)", "bounded(abs=0.5) | zstd", "zstd", "raw"}) {
      SCOPED_TRACE(codec);
      write(folder / "a.tuck", dtype, codec, 8);
      // The smooth field is kept as well as without holes, though a fill value is 10^18 of it.
      expect_field(FileReader(folder / "a.tuck"), dtype, 8, 6);
    }
  }
}

TEST(FillValues, MasksAreNoArraysOfTheReader) {
  const TempFolder folder;
  write(folder / "a.tuck", DType::F32, "dct_quant(rate=8)", 8);
  const FileReader reader(folder / "a.tuck");
  EXPECT_EQ(reader.arrays().size(), 1u);
  EXPECT_EQ(reader.arrays()[0].fill, Field(DType::F32, 0, 1).fill);
  EXPECT_EQ(ref::code_thrown([&] { reader.find("field.fill"); }), Errc::InvalidArgument);
  ASSERT_EQ(reader.mask(0), 1u);
  std::vector<std::uint8_t> marks(kElems);
  reader.read(1, 2, 1, TensorView(marks.data(), DType::U8, {1, kRows, kCols}));
  for (std::int64_t i = 0; i < kElems; ++i) {
    EXPECT_EQ(marks[static_cast<std::size_t>(i)], fill_at(2, i / kCols, i % kCols));
  }
  // A lossless codec needs none.
  write(folder / "b.tuck", DType::F32, "zstd", 8);
  EXPECT_EQ(FileReader(folder / "b.tuck").mask(0), std::nullopt);
}

TEST(FillValues, OneSampleAndStridedOutputsHaveThem) {
  const TempFolder folder;
  write(folder / "a.tuck", DType::F32, "dct_quant(rate=8)", 7);
  const FileReader reader(folder / "a.tuck");
  for (std::int64_t sample = 0; sample < 7; ++sample) {
    std::vector<float> turned(kElems);  // column by column
    reader.read_one(0, sample,
                    TensorView(turned.data(), DType::F32, {kRows, kCols}, Shape{1, kRows}));
    const Field want(DType::F32, sample, 1);
    for (std::int64_t i = 0; i < kElems; ++i) {
      const double a = value_at(DType::F32, want.bytes.data(), i);
      const float b = turned[static_cast<std::size_t>(i % kCols * kRows + i / kCols)];
      if (fill_at(sample, i / kCols, i % kCols) > 0) {
        EXPECT_EQ(FillValue{a}, FillValue{double{b}});
      } else {
        EXPECT_NEAR(a, double{b}, 6);
      }
    }
  }
}

TEST(FillValues, BytesDependNeitherOnThreadsNorBatchesNorStops) {
  const TempFolder folder;
  write(folder / "a.tuck", DType::F32, "dct_quant(rate=8)", 11, 11, {.threads = 1, .sync = false});
  write(folder / "b.tuck", DType::F32, "dct_quant(rate=8)", 11, 1, {.threads = 3, .sync = false});
  const std::string bytes = ref::read_file(folder / "a.tuck");
  EXPECT_EQ(bytes, ref::read_file(folder / "b.tuck"));
  for (std::int64_t stop = 0; stop < 11; ++stop) {
    const std::string path = folder / "c.tuck";
    std::filesystem::remove(path);
    {
      FileWriter writer(path, {Field(DType::F32, 0, 1).info("dct_quant(rate=8)")}, kQuick);
      writer.write({Field(DType::F32, 0, stop).view()});
    }
    write(path, DType::F32, "dct_quant(rate=8)", 11, 4, {.mode = WriteMode::Resume, .sync = false});
    EXPECT_EQ(bytes, ref::read_file(path)) << stop;
  }
}

TEST(FillValues, AppendAddsToTheMask) {
  const TempFolder folder;
  write(folder / "a.tuck", DType::F32, "dct_quant(rate=8)", 5);
  {
    FileWriter writer(folder / "a.tuck", {}, {.mode = WriteMode::Append, .sync = false});
    writer.write({Field(DType::F32, 5, 4).view()});
    writer.finish();
  }
  expect_field(FileReader(folder / "a.tuck"), DType::F32, 9, 6);
  // Other fill values are another array.
  ArrayInfo other = Field(DType::F32, 0, 1).info("dct_quant(rate=8)");
  other.fill = {{-1}};
  EXPECT_EQ(ref::code_thrown([&] {
              FileWriter(folder / "a.tuck", {other}, {.mode = WriteMode::Append, .sync = false});
            }),
            Errc::InvalidArgument);
}

TEST(FillValues, ShardsHaveTheirMasks) {
  const TempFolder folder;
  write(folder / "a.tuck", DType::F32, "dct_quant(rate=8)", 5);
  {
    FileWriter writer(folder / "b.tuck", {Field(DType::F32, 0, 1).info("dct_quant(rate=8)")},
                      kQuick);
    writer.write({Field(DType::F32, 5, 4).view()});
    writer.finish();
  }
  const std::string shards[] = {folder / "a.tuck", folder / "b.tuck"};
  write_manifest(folder / "all.json", shards);
  expect_field(FileReader(folder / "all.json"), DType::F32, 9, 6);
  // One with other fill values cannot be read as one with these.
  ArrayInfo other = Field(DType::F32, 0, 1).info("dct_quant(rate=8)");
  other.fill = {{-1}};
  FileWriter(folder / "b.tuck", {other}, kQuick).finish();
  EXPECT_EQ(ref::code_thrown([&] { write_manifest(folder / "all.json", shards); }),
            Errc::InvalidArgument);
}

TEST(FillValues, ABrokenMaskIsFoundAndRepaired) {
  const TempFolder folder;
  write(folder / "a.tuck", DType::F32, "dct_quant(rate=8)", 9);
  std::string bytes = ref::read_file(folder / "a.tuck");
  std::size_t where = 0;
  {
    const FileReader reader(folder / "a.tuck");
    const ChunkBytes chunk = reader.chunk_bytes(1, 1);  // of samples 3 to 5
    const std::string frame(reinterpret_cast<const char*>(chunk.frame.data()), chunk.frame.size());
    where = bytes.find(frame) + frame.size() - 1;
  }
  bytes[where] = static_cast<char>(bytes[where] ^ 1);
  ref::write_file(folder / "a.tuck", bytes);
  const VerifyReport report = verify(folder / "a.tuck");
  ASSERT_EQ(report.broken.size(), 1u);
  EXPECT_EQ(report.broken[0].array, "the mask of field");
  EXPECT_EQ(report.broken[0].range, (SampleRange{3, 3}));
  std::vector<float> out(kElems);
  const FileReader broken(folder / "a.tuck");
  EXPECT_EQ(ref::code_thrown([&] {
              broken.read_one(0, 4, TensorView(out.data(), DType::F32, {kRows, kCols}));
            }),
            Errc::CorruptData);
  EXPECT_EQ(repair(folder / "a.tuck", folder / "b.tuck").samples, 6);
  const FileReader reader(folder / "b.tuck");
  for (std::int64_t sample = 0; sample < 6; ++sample) {
    reader.read_one(0, sample, TensorView(out.data(), DType::F32, {kRows, kCols}));
    const std::int64_t before = sample < 3 ? sample : sample + 3;
    EXPECT_EQ(out[0], 1e20f);
    EXPECT_NEAR(out[30], static_cast<double>(100 + before + 1 + 12), 6);
  }
}

TEST(FillValues, SurviveARewriteOfEveryKind) {
  const TempFolder folder;
  write(folder / "lossy.tuck", DType::F32, "dct_quant(rate=8)", 10);
  write(folder / "exact.tuck", DType::F32, "zstd", 10);
  for (const char* from : {"lossy.tuck", "exact.tuck"}) {
    for (const char* codec : {"dct_quant(rate=8)", "zstd", "bounded(abs=0.5)", "raw"}) {
      for (const std::int64_t chunk : {0, 2, 5}) {
        SCOPED_TRACE(from + std::string(" to ") + codec + " by " + std::to_string(chunk));
        std::vector<FileReader> files;
        files.emplace_back(folder / from);
        ArrayInfo info = files[0].arrays()[0];
        info.codec = CodecSpec::parse(codec);
        info.samples_per_chunk = chunk;
        const Rewrite whole(files, {{.from = 0, .info = info}});
        whole.write(folder / "out.tuck", {.sync = false});
        const FileReader reader(folder / "out.tuck");
        expect_field(reader, DType::F32, 10, 7);
        EXPECT_EQ(reader.mask(0).has_value(), !is_exact(info.codec));
        EXPECT_TRUE(verify(folder / "out.tuck").broken.empty());
        const Rewrite part(files, {{.from = 0, .info = info}}, SampleRange{4, 5});
        part.write(folder / "part.tuck", {.sync = false});
        expect_field(FileReader(folder / "part.tuck"), DType::F32, 5, 7, 4);
      }
    }
  }
}

TEST(FillValues, FilesThatNameOthersArePackedAgain) {
  const TempFolder folder;
  write(folder / "a.tuck", DType::F32, "dct_quant(rate=8)", 5);
  std::vector<FileReader> files;
  files.emplace_back(folder / "a.tuck");
  ArrayInfo info = files[0].arrays()[0];
  info.fill.erase(info.fill.begin());  // 1e20 becomes a value: its place has another in the file
  const Rewrite rewrite(files, {{.from = 0, .info = info}});
  EXPECT_EQ(rewrite.arrays()[0].copied, 0);
  info = files[0].arrays()[0];
  info.fill.push_back({-1});
  EXPECT_EQ(Rewrite(files, {{.from = 0, .info = info}}).arrays()[0].packs_again, 0);
}

TEST(FillValues, WrongOnesAreRefused) {
  const TempFolder folder;
  const auto refused = [&](ArrayInfo info) {
    return ref::code_thrown([&] { FileWriter(folder / "a.tuck", {std::move(info)}, kQuick); }) ==
           Errc::InvalidArgument;
  };
  EXPECT_TRUE(refused({.name = "a", .dtype = DType::F32, .shape = {8}, .fill = {{1e20}}}));
  EXPECT_TRUE(refused({.name = "a", .dtype = DType::U8, .shape = {8}, .fill = {{256}}}));
  EXPECT_TRUE(refused({.name = "a",
                       .dtype = DType::F64,
                       .shape = {8},
                       .fill = std::vector<FillValue>(256, FillValue{1})}));
  EXPECT_TRUE(refused({.name = "a", .dtype = DType::U8, .shape = {8}, .mask_of = "b"}));
}

TEST(FillValues, AMaskTakesANameThatIsFree) {
  const TempFolder folder;
  ArrayInfo field = Field(DType::F32, 0, 1).info("dct_quant(rate=8)");
  ArrayInfo taken = {.name = "field.fill", .dtype = DType::I64, .samples_per_chunk = 3};
  FileWriter writer(folder / "a.tuck", {field, taken}, kQuick);
  const std::int64_t labels[] = {7, 8, 9, 10};
  writer.write({Field(DType::F32, 0, 4).view(), ConstTensorView(labels, DType::I64, {4})});
  writer.finish();
  const FileReader reader(folder / "a.tuck");
  ASSERT_EQ(reader.arrays().size(), 2u);
  std::int64_t label = 0;
  reader.read_one(1, 2, TensorView(&label, DType::I64, {}));
  EXPECT_EQ(label, 9);
  EXPECT_EQ(reader.mask(0), 2u);
  EXPECT_EQ(reader.mask(1), std::nullopt);
}

TEST(FillValues, AHostileSchemaIsCorruptData) {
  const auto array = [](const char* name, const char* dtype, const char* more) {
    return std::string(R"({"name": ")") + name + R"(", "dtype": ")" + dtype +
           R"(", "shape": [4], "codec": "zstd", "samples_per_chunk": 2)" + more + "}";
  };
  const auto code = [](const std::string& arrays) {
    return ref::code_thrown(
        [&] { parse_schema(R"({"arrays": [)" + arrays + R"(], "metadata": {}})", "a.tuck"); });
  };
  const std::string field = array("a", "f32", R"(, "fill": ["1e+20", "nan"])");
  const std::string mask = array("m", "u8", R"(, "mask_of": "a")");
  EXPECT_EQ(code(field + "," + mask), Errc::Internal);  // nothing is wrong
  EXPECT_EQ(code(mask), Errc::CorruptData);
  EXPECT_EQ(code(mask + "," + field), Errc::CorruptData);
  EXPECT_EQ(code(field + "," + mask + "," + array("n", "u8", R"(, "mask_of": "a")")),
            Errc::CorruptData);
  EXPECT_EQ(code(field + "," + array("m", "u8", R"(, "mask_of": "b")")), Errc::CorruptData);
  EXPECT_EQ(code(field + "," + array("m", "u8", R"(, "mask_of": "m")")), Errc::CorruptData);
  EXPECT_EQ(code(field + "," + array("m", "u8", R"(, "mask_of": "")")), Errc::CorruptData);
  EXPECT_EQ(code(field + "," + array("m", "u8", R"(, "mask_of": 7)")), Errc::CorruptData);
  EXPECT_EQ(code(field + "," + array("m", "f32", R"(, "mask_of": "a")")), Errc::CorruptData);
  EXPECT_EQ(code(array("a", "f32", "") + "," + mask), Errc::CorruptData);  // without fill values
  for (const char* fill :
       {R"(, "fill": 7)", R"(, "fill": [7])", R"(, "fill": ["x"])", R"(, "fill": ["1e99"])",
        R"(, "fill": [""])", R"(, "fill": ["1 "])", R"(, "fill": ["NaN"])",
        R"(, "fill": ["infinity"])", R"(, "fill": ["+5"])", R"(, "fill": ["1e-400"])"}) {
    EXPECT_EQ(code(array("a", "f32", fill)), Errc::CorruptData) << fill;
  }
}

}  // namespace
}  // namespace tuckfold
