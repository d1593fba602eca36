// Dataset files: what is written is read, in any order.
#include "tuckfold/container.h"

#include <gtest/gtest.h>

#include "base/tensor_fixture.h"
#include "container/dataset_fixture.h"
#include "container/format.h"
#include "tuckfold/error.h"

namespace tuckfold {
namespace {

using ref::Batch;
using ref::code_thrown;
using ref::holds;
using ref::kQuick;
using ref::numbers_to;
using ref::read_file;
using ref::TempFolder;
using ref::write_small;

TEST(Container, WhatIsWrittenIsRead) {
  const TempFolder folder;
  const std::string path = folder / "a.tuck";
  write_small(path, 11, 3, {.metadata = R"({"split": "train"})"});
  const FileReader reader(path);
  EXPECT_EQ(reader.samples(), 11);
  EXPECT_EQ(reader.metadata(), R"({"split": "train"})");
  EXPECT_EQ(reader.trailing_bytes(), 0u);
  EXPECT_EQ(reader.file_bytes() % 64, 0u);
  ASSERT_EQ(reader.arrays().size(), 3u);
  EXPECT_EQ(reader.arrays()[0], ref::small_arrays()[0]);
  EXPECT_EQ(reader.find("label"), 2u);
  EXPECT_EQ(code_thrown([&] { reader.find("lable"); }), Errc::InvalidArgument);
  EXPECT_TRUE(holds(reader, numbers_to(11)));
  EXPECT_FALSE(std::filesystem::exists(path + ".partial"));
}

TEST(Container, WhatFetchingThrowsIsThrownAndTheWriterEnds) {
  const TempFolder folder;
  FileWriter writer(folder / "a.tuck", ref::small_arrays(), kQuick);
  EXPECT_EQ(code_thrown([&] {
              writer.write(8, [](std::size_t, std::int64_t first, std::int64_t, std::byte* room) {
                if (first >= 4) throw Error(Errc::CorruptData, "torn");
                return room;
              });
            }),
            Errc::CorruptData);
  EXPECT_EQ(code_thrown([&] { writer.finish(); }), Errc::InvalidArgument);
  EXPECT_EQ(code_thrown([&] { writer.write(-1, {}); }), Errc::InvalidArgument);
}

TEST(Container, ABatchMayBeAWholeDataset) {
  const TempFolder folder;
  std::vector<std::int64_t> values(10001);
  std::iota(values.begin(), values.end(), 0);
  const auto write = [&](const std::string& path, std::int64_t batch) {
    FileWriter writer(path, {{.name = "x", .dtype = DType::I64, .samples_per_chunk = 3}}, kQuick);
    for (std::int64_t at = 0; at < 10001; at += batch) {
      writer.write({ConstTensorView(&values[static_cast<std::size_t>(at)], DType::I64,
                                    {std::min<std::int64_t>(batch, 10001 - at)})});
    }
    writer.finish();
  };
  write(folder / "a.tuck", 10001);
  write(folder / "b.tuck", 1000);
  EXPECT_TRUE(read_file(folder / "a.tuck") == read_file(folder / "b.tuck"));
  std::vector<std::int64_t> back(values.size());
  FileReader(folder / "a.tuck").read(0, 0, 10001, TensorView(back.data(), DType::I64, {10001}));
  EXPECT_EQ(back, values);
}

TEST(Container, AnySamplesAreReadToAnyStrides) {
  const TempFolder folder;
  write_small(folder / "a.tuck", 13, 5);
  const FileReader reader(folder / "a.tuck");
  for (std::int64_t first = 0; first <= 13; ++first) {
    for (std::int64_t count = 0; first + count <= 13; ++count) {
      const Batch wanted(first, count);
      // Every second place, from the last sample back.
      std::vector<std::uint8_t> masks(8 * 13 + 8, 0xaa);
      std::uint8_t* last = masks.data() + 8 * std::max<std::int64_t>(count - 1, 0);
      reader.read(1, first, count, TensorView(last, DType::U8, {count, 4}, {-8, 2}), 3);
      for (std::int64_t i = 0; i < count; ++i) {
        for (int k = 0; k < 4; ++k) {
          ASSERT_EQ(last[-8 * i + 2 * k], wanted.masks[static_cast<std::size_t>(4 * i + k)]);
          ASSERT_EQ(last[-8 * i + 2 * k + 1], 0xaa);
        }
      }
    }
  }
  for (std::int64_t i = 0; i < 13; ++i) {
    std::vector<float> plane(64);
    reader.read_one(0, i, TensorView(plane.data(), DType::F32, {8, 8}));
    ASSERT_EQ(plane, ref::plane_read(i));
    std::int64_t label = 0;
    reader.read_one(2, i, TensorView(&label, DType::I64, {}));
    ASSERT_EQ(label, i * 1000003);
  }
}

TEST(Container, CallsThatCannotBeSatisfiedAreInvalid) {
  const TempFolder folder;
  write_small(folder / "a.tuck", 5, 5);
  const FileReader reader(folder / "a.tuck");
  std::vector<float> room(5 * 64);
  const TensorView all(room.data(), DType::F32, {5, 8, 8});
  for (const auto& [first, count] : {std::pair{1, 5}, {-1, 5}, {6, 0}, {0, -1}}) {
    EXPECT_EQ(code_thrown([&] { reader.read(0, first, count, all); }), Errc::InvalidArgument);
  }
  EXPECT_EQ(code_thrown([&] { reader.read(3, 0, 5, all); }), Errc::InvalidArgument);
  EXPECT_EQ(code_thrown([&] { reader.read(1, 0, 5, all); }), Errc::InvalidArgument);
  EXPECT_EQ(code_thrown([&] { reader.read(0, 0, 4, all); }), Errc::InvalidArgument);
  EXPECT_EQ(code_thrown([&] { reader.chunk_bytes(0, 3); }), Errc::InvalidArgument);
  EXPECT_EQ(code_thrown([&] { FileReader(folder / "none.tuck"); }), Errc::Io);

  const auto create = [&](std::vector<ArrayInfo> arrays, const WriteOptions& options = kQuick) {
    return code_thrown([&] { FileWriter(folder / "w.tuck", std::move(arrays), options); });
  };
  EXPECT_EQ(create({}), Errc::InvalidArgument);
  EXPECT_EQ(create({{.name = ""}}), Errc::InvalidArgument);
  EXPECT_EQ(create({{.name = "a"}, {.name = "a"}}), Errc::InvalidArgument);
  EXPECT_EQ(create({{.name = "a", .shape = {3, 0}}}), Errc::InvalidArgument);
  EXPECT_EQ(create({{.name = "a", .shape = {std::int64_t{1} << 62}}}), Errc::InvalidArgument);
  EXPECT_EQ(create({{.name = "a", .samples_per_chunk = -1}}), Errc::InvalidArgument);
  EXPECT_EQ(create({{.name = "a", .dtype = DType::I64, .codec = CodecSpec::parse("dct_chop")}}),
            Errc::InvalidArgument);
  EXPECT_EQ(create({{.name = "a"}}, {.metadata = "[1]"}), Errc::InvalidArgument);
  EXPECT_EQ(create({{.name = "a"}}, {.metadata = "{"}), Errc::InvalidArgument);
  EXPECT_EQ(create({{.name = "a"}}, {.threads = -1}), Errc::InvalidArgument);

  FileWriter writer(folder / "w.tuck", ref::small_arrays(), kQuick);
  const Batch batch(0, 4), shorter(0, 3);
  std::vector<ConstTensorView> views = batch.views();
  views[1] = shorter.views()[1];
  EXPECT_EQ(code_thrown([&] { writer.write(views); }), Errc::InvalidArgument);
  views.pop_back();
  EXPECT_EQ(code_thrown([&] { writer.write(views); }), Errc::InvalidArgument);
  writer.write(batch.views());  // a batch that was refused as a whole does no harm
  writer.finish();
  EXPECT_EQ(code_thrown([&] { writer.write(batch.views()); }), Errc::InvalidArgument);
  EXPECT_TRUE(holds(FileReader(folder / "w.tuck"), numbers_to(4)));
}

TEST(Container, EveryDtypeIsHeldAsItIs) {
  const TempFolder folder;
  std::vector<ArrayInfo> arrays;
  std::vector<ref::Tensor> tensors;
  std::vector<ConstTensorView> views;
  for (const DType dtype : kDTypes) {
    arrays.push_back({.name = std::string(to_string(dtype)),
                      .dtype = dtype,
                      .shape = {3},
                      .codec = CodecSpec::parse("zstd")});
    tensors.push_back(std::move(ref::Tensor(dtype, {7, 3}).fill(ref::Pattern::Random)));
    views.push_back(tensors.back().view());
  }
  FileWriter writer(folder / "a.tuck", arrays, kQuick);
  writer.write(views);
  writer.finish();
  const FileReader reader(folder / "a.tuck");
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_EQ(reader.arrays()[i].dtype, kDTypes[i]);
    const ref::Tensor out(kDTypes[i], {7, 3});
    reader.read(i, 0, 7, out.view());
    EXPECT_EQ(out.bytes(), tensors[i].bytes()) << reader.arrays()[i].name;
  }
}

TEST(Container, EmptyFilesAndScalarsAreFiles) {
  const TempFolder folder;
  write_small(folder / "a.tuck", 0, 1);
  const FileReader reader(folder / "a.tuck");
  EXPECT_EQ(reader.samples(), 0);
  EXPECT_TRUE(reader.chunks(0).empty());
}

TEST(Container, DefaultChunksAreAboutAQuarterOfAMebibyteAndMeetOften) {
  const TempFolder folder;
  FileWriter writer(folder / "a.tuck",
                    {{.name = "image", .dtype = DType::F32, .shape = {3, 100, 100}},
                     {.name = "large", .dtype = DType::F32, .shape = {1024, 1024}},
                     {.name = "label", .dtype = DType::I64}},
                    kQuick);
  writer.finish();
  const FileReader reader(folder / "a.tuck");
  EXPECT_EQ(reader.arrays()[0].samples_per_chunk, 2);
  EXPECT_EQ(reader.arrays()[1].samples_per_chunk, 1);
  EXPECT_EQ(reader.arrays()[2].samples_per_chunk, 64);
}

// A chunk of one row is too small for blocks of 8 x 8.
TEST(Container, SamplesTooFewForTheCodecAreStoredAsTheyAre) {
  const TempFolder folder;
  std::vector<float> rows(10 * 8);
  std::iota(rows.begin(), rows.end(), 0.f);
  FileWriter writer(folder / "a.tuck",
                    {{.name = "row",
                      .shape = {8},
                      .codec = CodecSpec::parse("dct_chop(keep=8)"),
                      .samples_per_chunk = 8}},
                    kQuick);
  writer.write({ConstTensorView(rows.data(), DType::F32, {10, 8})});
  writer.finish();
  const FileReader reader(folder / "a.tuck");
  ASSERT_EQ(reader.chunks(0).size(), 2u);
  EXPECT_EQ(read_frame_header(reader.chunk_bytes(0, 0).frame).codec,
            CodecSpec::parse("dct_chop(keep=8)"));
  EXPECT_EQ(read_frame_header(reader.chunk_bytes(0, 1).frame).codec, CodecSpec::parse("raw"));
  std::vector<float> last(16);
  reader.read(0, 8, 2, TensorView(last.data(), DType::F32, {2, 8}));
  EXPECT_TRUE(std::equal(last.begin(), last.end(), rows.begin() + 64));
}

// Rows are read with and without the codec's promise that they pack alone, for every codec there
// is.
TEST(Container, SomeSamplesOfAChunkAreThoseOfAllOfIt) {
  const TempFolder folder;
  for (const char* codec : {"raw", "dct_chop(keep=4)", "dct_chop(keep=3, shape=triangle)",
                            "dct_chop(keep=4, order=planes)", "dct_quant(rate=2)",
                            "block_quant(bits=8)", "bounded(abs=0.01)", "zstd",
                            "dct_chop(keep=4) | block_quant(bits=8)", "dct_chop(keep=4) | zstd"}) {
    SCOPED_TRACE(codec);
    ref::Tensor in(DType::F32, {7, 2, 24, 17});
    in.fill(ref::Pattern::Random);
    FileWriter writer(folder / "a.tuck",
                      {{.name = "x",
                        .shape = {2, 24, 17},
                        .codec = CodecSpec::parse(codec),
                        .samples_per_chunk = 4}},
                      kQuick);
    writer.write({in.view()});
    writer.finish();
    const FileReader reader(folder / "a.tuck");
    const std::size_t each = 2 * 24 * 17;
    std::vector<float> all(7 * each), some(7 * each);
    reader.read(0, 0, 7, TensorView(all.data(), DType::F32, {7, 2, 24, 17}));
    for (std::int64_t first = 0; first < 7; ++first) {
      for (std::int64_t count = 1; first + count <= 7; ++count) {
        reader.read(0, first, count, TensorView(some.data(), DType::F32, {count, 2, 24, 17}));
        ASSERT_EQ(0, std::memcmp(some.data(), all.data() + static_cast<std::size_t>(first) * each,
                                 static_cast<std::size_t>(count) * each * 4))
            << first << " " << count;
      }
    }
  }
}

TEST(Container, ValuesThatACodecRefusesEndTheWriting) {
  const TempFolder folder;
  FileWriter writer(folder / "a.tuck",
                    {{.name = "x",
                      .dtype = DType::I64,
                      .codec = CodecSpec::parse("bits(width=8)"),
                      .samples_per_chunk = 64}},
                    kQuick);
  std::vector<std::int64_t> values(64, INT64_MAX);
  values[0] = 0;
  const ConstTensorView view(values.data(), DType::I64, {64});
  EXPECT_EQ(code_thrown([&] { writer.write({view}); }), Errc::InvalidArgument);
  EXPECT_EQ(code_thrown([&] { writer.finish(); }), Errc::InvalidArgument);
  EXPECT_FALSE(std::filesystem::exists(folder / "a.tuck"));
}

TEST(Container, LargeSamplesOfZerosArePackedByEveryCodecThatPacksThemSmall) {
  const TempFolder folder;
  const std::vector<float> zeros(8 << 20);
  for (const char* codec : {"zstd", "zstd(level=19)", "bounded(abs=0.01)", "mask"}) {
    SCOPED_TRACE(codec);
    FileWriter writer(folder / "a.tuck",
                      {{.name = "x", .shape = {8 << 20}, .codec = CodecSpec::parse(codec)}},
                      kQuick);
    writer.write({ConstTensorView(zeros.data(), DType::F32, {1, 8 << 20})});
    writer.finish();
    std::vector<float> back(zeros.size(), 1.f);
    FileReader(folder / "a.tuck").read(0, 0, 1, TensorView(back.data(), DType::F32, {1, 8 << 20}));
    EXPECT_TRUE(back == zeros);
  }
}

TEST(Container, OneWriterAtATime) {
  const TempFolder folder;
  FileWriter writer(folder / "a.tuck", ref::small_arrays(), kQuick);
  EXPECT_EQ(code_thrown([&] { FileWriter(folder / "a.tuck", ref::small_arrays(), kQuick); }),
            Errc::Io);
  writer.finish();
}

TEST(Container, ShardsAreReadAsOne) {
  const TempFolder folder;
  std::vector<std::string> shards;
  for (int i = 0; i < 3; ++i) {
    shards.push_back(folder / shard_name("train", i, 3));
    FileWriter writer(shards.back(), ref::small_arrays(), kQuick);
    writer.write(Batch(i * 5, 5).views());
    writer.finish();
  }
  EXPECT_TRUE(shards[1].ends_with("/train-00001-of-00003.tuck"));
  write_manifest(folder / "train.json", shards);
  EXPECT_TRUE(holds(FileReader(folder / "train.json"), numbers_to(15)));
  EXPECT_EQ(verify(folder / "train.json").chunks, 3 * (3 + 2 + 2));

  write_small(shards[1], 4, 4);
  EXPECT_EQ(code_thrown([&] { FileReader(folder / "train.json"); }), Errc::CorruptData);
  std::filesystem::remove(shards[1]);
  EXPECT_EQ(code_thrown([&] { FileReader(folder / "train.json"); }), Errc::Io);
  ref::write_file(folder / "out.json",
                  R"({"tuckfold_manifest": 1, "shards": [{"file": "../a.tuck", "samples": 1}]})");
  EXPECT_EQ(code_thrown([&] { FileReader(folder / "out.json"); }), Errc::CorruptData);
  ref::write_file(folder / "new.json", R"({"tuckfold_manifest": 2})");
  EXPECT_EQ(code_thrown([&] { FileReader(folder / "new.json"); }), Errc::Unsupported);
}

TEST(Container, AFileMayBeASampleOfAnother) {
  const TempFolder folder;
  write_small(folder / "inner.tuck", 4, 4);
  const std::string inner = read_file(folder / "inner.tuck");
  const auto bytes = static_cast<std::int64_t>(inner.size());
  FileWriter writer(folder / "outer.tuck", {{.name = "file", .dtype = DType::U8, .shape = {bytes}}},
                    kQuick);
  writer.write({ConstTensorView(inner.data(), DType::U8, {1, bytes})});
  writer.finish();
  const std::string outer = read_file(folder / "outer.tuck");
  ref::write_file(folder / "cut.tuck", outer.substr(0, outer.size() - 64));
  EXPECT_EQ(code_thrown([&] { FileReader(folder / "cut.tuck"); }), Errc::CorruptData);
  EXPECT_EQ(repair(folder / "cut.tuck", folder / "whole.tuck").samples, 1);
  std::string back(inner.size(), '\0');
  FileReader(folder / "whole.tuck").read(0, 0, 1, TensorView(back.data(), DType::U8, {1, bytes}));
  EXPECT_EQ(back, inner);
}

}  // namespace
}  // namespace tuckfold
