// Files into one: what is copied, what is packed again, and what is left after an error.
#include "container/rewrite.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "container/dataset_fixture.h"

namespace tuckfold {
namespace {

using ref::numbers_to;
using ref::TempFolder;

const RewriteOptions kQuick{.sync = false};

std::vector<RewriteArray> all_of(const FileReader& file) {
  std::vector<RewriteArray> arrays;
  for (const ArrayInfo& info : file.arrays()) {
    arrays.push_back({.from = arrays.size(), .info = info});
  }
  return arrays;
}

std::vector<FileReader> open(const std::vector<std::string>& paths) {
  std::vector<FileReader> files;
  for (const std::string& path : paths) files.emplace_back(path);
  return files;
}

bool equal_bytes(std::span<const std::byte> a, std::span<const std::byte> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

// Samples 0 to 6 and 7 to 10.
void write_two(const TempFolder& folder) {
  ref::write_small(folder / "a.tuck", 7, 3);
  FileWriter writer(folder / "b.tuck", ref::small_arrays(), ref::kQuick);
  writer.write(ref::Batch(7, 4).views());
  writer.finish();
}

TEST(Rewrite, MergedFilesKeepTheirChunksByteForByte) {
  const TempFolder folder;
  write_two(folder);
  const std::vector<FileReader> files = open({folder / "a.tuck", folder / "b.tuck"});
  const Rewrite rewrite(files, all_of(files[0]));
  EXPECT_EQ(rewrite.samples(), 11);
  for (const RewrittenArray& array : rewrite.arrays()) EXPECT_EQ(array.packs_again, 0);
  rewrite.write(folder / "all.tuck", kQuick);
  const FileReader made(folder / "all.tuck");
  EXPECT_TRUE(ref::holds(made, numbers_to(11)));
  EXPECT_TRUE(verify(folder / "all.tuck").broken.empty());
  for (std::size_t a = 0; a < 3; ++a) {
    std::size_t chunk = 0;
    for (const FileReader& file : files) {
      for (std::size_t c = 0; c < file.chunks(a).size(); ++c) {
        EXPECT_TRUE(equal_bytes(made.chunk_bytes(a, chunk++).frame, file.chunk_bytes(a, c).frame));
      }
    }
    EXPECT_EQ(made.chunks(a).size(), chunk);
  }
}

TEST(Rewrite, OneFileAsItWasIsTheSameFile) {
  const TempFolder folder;
  ref::write_small(folder / "a.tuck", 11, 11);
  const std::vector<FileReader> files = open({folder / "a.tuck"});
  Rewrite(files, all_of(files[0])).write(folder / "b.tuck", kQuick);
  EXPECT_EQ(ref::read_file(folder / "a.tuck"), ref::read_file(folder / "b.tuck"));
}

TEST(Rewrite, AnyRangeOfSamplesIsWritten) {
  const TempFolder folder;
  write_two(folder);
  const std::vector<FileReader> files = open({folder / "a.tuck", folder / "b.tuck"});
  for (std::int64_t first = 0; first <= 11; ++first) {
    for (std::int64_t count = 0; first + count <= 11; ++count) {
      const Rewrite rewrite(files, all_of(files[0]), SampleRange{first, count});
      EXPECT_EQ(rewrite.samples(), count);
      EXPECT_GT(rewrite.write(folder / "c.tuck", kQuick).bytes, 0u);
      std::vector<std::int64_t> numbers;
      for (std::int64_t i = 0; i < count; ++i) numbers.push_back(first + i);
      EXPECT_TRUE(ref::holds(FileReader(folder / "c.tuck"), numbers)) << first << " " << count;
    }
  }
}

TEST(Rewrite, ManifestsAreFilesAsOthersAre) {
  const TempFolder folder;
  write_two(folder);
  const std::vector<std::string> shards = {folder / "a.tuck", folder / "b.tuck"};
  write_manifest(folder / "m.tuck", shards);
  const std::vector<FileReader> files = open(shards), manifest = open({folder / "m.tuck"});
  Rewrite(files, all_of(files[0])).write(folder / "one.tuck", kQuick);
  Rewrite(manifest, all_of(manifest[0])).write(folder / "two.tuck", kQuick);
  EXPECT_EQ(ref::read_file(folder / "one.tuck"), ref::read_file(folder / "two.tuck"));
}

TEST(Rewrite, CutsMeetWhereChunksDo) {
  const TempFolder folder;
  ref::write_small(folder / "a.tuck", 40, 40);  // chunks of 2, 4 and 4
  const std::vector<FileReader> files = open({folder / "a.tuck"});
  for (int ranges = 1; ranges <= 40; ++ranges) {
    std::int64_t at = 0;
    for (const SampleRange& range : cut_evenly(files, all_of(files[0]), ranges)) {
      EXPECT_EQ(range.first, at);
      EXPECT_GT(range.samples, 0);
      EXPECT_TRUE(ranges > 10 || range.first % 4 == 0) << ranges;
      at += range.samples;
    }
    EXPECT_EQ(at, 40);
  }
}

TEST(Rewrite, SamplesThatPackAloneArePutTogetherAnewWithoutLoss) {
  const TempFolder folder;
  write_two(folder);
  const std::vector<FileReader> files = open({folder / "a.tuck", folder / "b.tuck"});
  for (const std::int64_t size : {1, 3, 4, 100}) {
    std::vector<RewriteArray> arrays = all_of(files[0]);
    for (RewriteArray& array : arrays) array.info.samples_per_chunk = size;
    const Rewrite rewrite(files, arrays);
    EXPECT_EQ(rewrite.arrays()[0].packs_again, 0);  // dct_chop
    EXPECT_FALSE(rewrite.arrays()[0].lossy_before.has_value());
    rewrite.write(folder / "all.tuck", kQuick);
    const FileReader made(folder / "all.tuck");
    EXPECT_TRUE(ref::holds(made, numbers_to(11))) << size;
    EXPECT_EQ(made.chunks(0).size(), static_cast<std::size_t>((11 + size - 1) / size));
  }
}

TEST(Rewrite, ALossyCodecOnLossySamplesIsTold) {
  const TempFolder folder;
  ref::write_small(folder / "a.tuck", 6, 6);
  const std::vector<FileReader> files = open({folder / "a.tuck"});
  std::vector<RewriteArray> arrays = all_of(files[0]);
  arrays[0].info.codec = CodecSpec::parse("bounded(abs=0.5)");
  const Rewrite lossy(files, arrays);
  ASSERT_TRUE(lossy.arrays()[0].lossy_before.has_value());
  EXPECT_EQ(lossy.arrays()[0].lossy_before->print(), "dct_chop(keep=2)");
  arrays[0].info.codec = CodecSpec::parse("zstd");
  const Rewrite exact(files, arrays);
  EXPECT_FALSE(exact.arrays()[0].lossy_before.has_value());
  EXPECT_EQ(exact.arrays()[0].packs_again, 3);
  exact.write(folder / "b.tuck", kQuick);
  EXPECT_TRUE(ref::holds(FileReader(folder / "b.tuck"), numbers_to(6)));
}

TEST(Rewrite, FilesOfAnotherCodecArePackedByTheFirst) {
  const TempFolder folder;
  write_two(folder);
  std::vector<ArrayInfo> raw = ref::small_arrays();
  for (ArrayInfo& info : raw) info.codec = CodecSpec::parse("raw");
  raw[0].samples_per_chunk = 3;
  FileWriter writer(folder / "b.tuck", raw, ref::kQuick);
  writer.write(ref::Batch(7, 4).views());
  writer.finish();
  const std::vector<FileReader> files = open({folder / "a.tuck", folder / "b.tuck"});
  const Rewrite rewrite(files, all_of(files[0]));
  EXPECT_EQ(rewrite.arrays()[0].copied, 4);
  EXPECT_EQ(rewrite.arrays()[0].packs_again, 2);
  EXPECT_FALSE(rewrite.arrays()[0].lossy_before.has_value());
  rewrite.write(folder / "all.tuck", kQuick);
  EXPECT_TRUE(ref::holds(FileReader(folder / "all.tuck"), numbers_to(11)));
  EXPECT_EQ(FileReader(folder / "all.tuck").arrays()[0].samples_per_chunk, 3);
}

// A repair drops samples 2 and 3, with a chunk of planes; chunks of four labels keep two rows each.
TEST(Rewrite, WhatARepairLeftOfAChunkIsKeptAsItIs) {
  const TempFolder folder;
  ref::write_small(folder / "a.tuck", 8, 8);
  std::string bytes = ref::read_file(folder / "a.tuck");
  const FileReader whole(folder / "a.tuck");
  const ChunkBytes held = whole.chunk_bytes(0, 1);
  const std::span<const std::byte> second = held.frame;
  const std::string text(reinterpret_cast<const char*>(second.data()), second.size());
  bytes[bytes.find(text) + text.size() - 1] ^= 1;
  ref::write_file(folder / "broken.tuck", bytes);
  repair(folder / "broken.tuck", folder / "saved.tuck");
  const std::vector<std::int64_t> left = {0, 1, 4, 5, 6, 7};
  ASSERT_TRUE(ref::holds(FileReader(folder / "saved.tuck"), left));
  const std::vector<FileReader> files = open({folder / "saved.tuck"});
  Rewrite(files, all_of(files[0])).write(folder / "made.tuck", kQuick);
  EXPECT_TRUE(ref::holds(FileReader(folder / "made.tuck"), left));
  EXPECT_TRUE(verify(folder / "made.tuck").broken.empty());
}

TEST(Rewrite, ArraysMayBeLeftOutAndRenamed) {
  const TempFolder folder;
  write_two(folder);
  const std::vector<FileReader> files = open({folder / "a.tuck", folder / "b.tuck"});
  ArrayInfo label = files[0].arrays()[2];
  label.name = "class";
  label.samples_per_chunk = 0;
  Rewrite(files, {{.from = 2, .info = label}}).write(folder / "c.tuck", kQuick);
  const FileReader made(folder / "c.tuck");
  ASSERT_EQ(made.arrays().size(), 1u);
  EXPECT_EQ(made.arrays()[0].name, "class");
  std::vector<std::int64_t> labels(11);
  made.read(0, 0, 11, TensorView(labels.data(), DType::I64, {11}));
  EXPECT_EQ(labels[10], 10 * 1000003);
}

TEST(Rewrite, NoSamplesMakeAnEmptyFile) {
  const TempFolder folder;
  ref::write_small(folder / "a.tuck", 0, 1);
  const std::vector<FileReader> files = open({folder / "a.tuck", folder / "a.tuck"});
  Rewrite(files, all_of(files[0])).write(folder / "b.tuck", kQuick);
  EXPECT_EQ(FileReader(folder / "b.tuck").samples(), 0);
}

TEST(Rewrite, AnErrorLeavesNoFile) {
  const TempFolder folder;
  write_two(folder);
  const std::vector<FileReader> files = open({folder / "a.tuck"});
  std::vector<RewriteArray> arrays = all_of(files[0]);
  arrays[1].info.codec = CodecSpec::parse("bits(width=1)");  // masks go up to 9
  const Rewrite rewrite(files, arrays);
  EXPECT_EQ(ref::code_thrown([&] { rewrite.write(folder / "c.tuck", kQuick); }),
            Errc::InvalidArgument);
  EXPECT_FALSE(std::filesystem::exists(folder / "c.tuck"));
  EXPECT_FALSE(std::filesystem::exists(folder / "c.tuck.partial"));
}

TEST(Rewrite, ABrokenChunkIsCorruptData) {
  const TempFolder folder;
  ref::write_small(folder / "a.tuck", 8, 8);
  std::string bytes = ref::read_file(folder / "a.tuck");
  bytes[bytes.size() / 3] ^= 1;
  ref::write_file(folder / "a.tuck", bytes);
  const std::vector<FileReader> files = open({folder / "a.tuck"});
  const Rewrite rewrite(files, all_of(files[0]));
  EXPECT_EQ(ref::code_thrown([&] { rewrite.write(folder / "c.tuck", kQuick); }), Errc::CorruptData);
}

}  // namespace
}  // namespace tuckfold
