// idx files: Fashion-MNIST's pair of them, every type, gzip, and files with false headers.
#include <gtest/gtest.h>

#include <numeric>

#include "inputs/source_fixture.h"
#include "inputs/zip_fixture.h"

namespace tuckfold {
namespace {

std::string idx(int type, std::initializer_list<std::uint32_t> axes, const std::string& data) {
  std::string text("\0\0", 2);
  text += static_cast<char>(type);
  text += static_cast<char>(axes.size());
  for (const std::uint32_t axis : axes) {
    for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>(axis >> shift & 255);
  }
  return text + data;
}
std::string images(char first) {
  std::string data(24, '\0');
  std::iota(data.begin(), data.end(), first);
  return idx(8, {4, 2, 3}, data);
}
std::string labels() { return idx(8, {4}, "\x01\x02\x03\x04"); }

TEST(SourceIdx, ImagesAndLabelsOfOnePrefixAreOneDataset) {
  const TempFolder folder;
  const auto source = open_paths({folder.write("train-labels-idx1-ubyte", labels()),
                                  folder.write("train-images-idx3-ubyte.gz", gzipped(images(0)))});
  EXPECT_EQ(source->samples(), 4);
  ASSERT_EQ(source->arrays().size(), 2u);
  EXPECT_EQ(source->arrays()[0], (SourceArray{"image", DType::U8, {2, 3}}));
  EXPECT_EQ(source->arrays()[1], (SourceArray{"label", DType::U8, {}}));
  EXPECT_EQ(read_all<std::uint8_t>(*source, 0)[23], 23);
  EXPECT_EQ(read_all<std::uint8_t>(*source, 1), (std::vector<std::uint8_t>{1, 2, 3, 4}));
}

TEST(SourceIdx, PrefixesLieOneBehindTheOther) {
  const TempFolder folder;
  const auto train_images = folder.write("train-images-idx3-ubyte", images(0));
  const auto train_labels = folder.write("train-labels-idx1-ubyte", labels());
  const auto test_images = folder.write("t10k-images-idx3-ubyte", images(24));
  const auto test_labels = folder.write("t10k-labels-idx1-ubyte", labels());
  const auto source = open_paths({train_images, test_images, train_labels, test_labels});
  EXPECT_EQ(source->samples(), 8);
  EXPECT_EQ(read_all<std::uint8_t>(*source, 0)[47], 47);
  EXPECT_EQ(open_paths({test_images, train_images})->arrays().size(), 1u);
  EXPECT_EQ(error_of({train_images, test_images, train_labels}).code(), Errc::InvalidArgument);
  const auto few = folder.write("few-labels-idx1-ubyte", idx(8, {3}, "abc"));
  const auto more = folder.write("few-images-idx3-ubyte", images(0));
  EXPECT_EQ(error_of({few, more}).code(), Errc::InvalidArgument);
}

TEST(SourceIdx, EveryTypeIsReadBigEndian) {
  const TempFolder folder;
  const auto open = [&](int type, const std::string& data) {
    return open_paths({folder.write("a.idx", idx(type, {1}, data))});
  };
  EXPECT_EQ(read_all<std::int8_t>(*open(0x09, "\xff"), 0)[0], -1);
  EXPECT_EQ(read_all<std::int16_t>(*open(0x0b, std::string("\x01\x02", 2)), 0)[0], 258);
  EXPECT_EQ(open(0x0b, std::string("\x01\x02", 2))->arrays()[0].dtype, DType::I16);
  EXPECT_EQ(read_all<std::int32_t>(*open(0x0c, std::string("\xff\xff\xff\xfe", 4)), 0)[0], -2);
  EXPECT_EQ(read_all<float>(*open(0x0d, std::string("\x3f\x80\0\0", 4)), 0)[0], 1.0f);
  const auto f64 = open(0x0e, std::string("\x3f\xf0\0\0\0\0\0\0", 8));
  EXPECT_EQ(f64->arrays()[0], (SourceArray{"data", DType::F64, {}}));
  EXPECT_EQ(read_all<double>(*f64, 0)[0], 1.0);
  EXPECT_EQ(error_of({folder.write("a.idx", idx(0x0a, {1}, "a"))}).code(), Errc::CorruptData);
}

TEST(SourceIdx, StreamsOfGzipOneBehindTheOtherAreOneFile) {
  const TempFolder folder;
  const std::string whole = images(0);
  const auto source =
      open_paths({folder.write("a.gz", gzipped(whole.substr(0, 20)) + gzipped(whole.substr(20)))});
  EXPECT_EQ(read_all<std::uint8_t>(*source, 0)[23], 23);
}

TEST(SourceIdx, HugeSizesAreCorruptDataWithoutAllocation) {
  const TempFolder folder;
  for (const std::string& false_header :
       {idx(8, {0xffffffff}, "abc"), idx(8, {0xffffffff, 0xffffffff}, "abc"),
        idx(8, {0xffffffff, 0xffffffff, 0xffffffff}, "abc"), idx(14, {1u << 30}, "abc"),
        idx(8, {4}, "abc"), idx(8, {2}, "abc")}) {
    EXPECT_EQ(error_of({folder.write("a.idx", false_header)}).code(), Errc::CorruptData);
    EXPECT_EQ(error_of({folder.write("a.gz", gzipped(false_header))}).code(), Errc::CorruptData);
  }
  EXPECT_EQ(error_of({folder.write("a.gz", gzipped("no idx file"))}).code(), Errc::InvalidArgument);
}

TEST(SourceIdx, DamagedFilesNeverCrash) {
  expect_survives_damage(kIdxSource, images(0));
  expect_survives_damage(kIdxSource, gzipped(images(0)));
}

TEST(SourceIdx, FashionMnistIsRead) {
  const std::filesystem::path root = "/usr/share/datasets/fashion-mnist";
  if (!std::filesystem::exists(root)) GTEST_SKIP() << "no package dataset-fashion-mnist";
  const auto source =
      open_paths({root / "t10k-images-idx3-ubyte.gz", root / "t10k-labels-idx1-ubyte.gz"});
  EXPECT_EQ(source->samples(), 10000);
  EXPECT_EQ(source->arrays()[0], (SourceArray{"image", DType::U8, {28, 28}}));
  std::vector<int> counts(10);
  for (const std::uint8_t label : read_all<std::uint8_t>(*source, 1)) ++counts.at(label);
  EXPECT_EQ(counts, std::vector<int>(10, 1000));
}

}  // namespace
}  // namespace tuckfold
