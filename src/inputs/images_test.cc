// Images: what each library reads comes out as C x H x W with the file's own values.
#include <gtest/gtest.h>

#include "inputs/image.h"
#include "inputs/source_fixture.h"
#include "inputs/tar_fixture.h"

namespace tuckfold {
namespace {

// Whether this build has the library; without it the format must say so.
bool can_read(const std::string& image) {
  try {
    look_at_image({reinterpret_cast<const std::byte*>(image.data()), image.size()}, "a");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::Unsupported) << error.what();
    EXPECT_NE(std::string(error.what()).find("install lib"), std::string::npos) << error.what();
    return false;
  }
  return true;
}
#define NEED(image) \
  if (!can_read(image)) GTEST_SKIP() << "this build lacks the library"

std::string grey(int value) {
  return png_bytes(2, 2, 8, 0, std::string(4, static_cast<char>(value)));
}

TEST(SourceImages, FoldersAreClassesInTheirOrder) {
  NEED(grey(1));
  const TempFolder folder;
  folder.write("data/dog/b.png", grey(3));
  folder.write("data/dog/a.PNG", grey(2));
  folder.write("data/cat/deeper/z.png", grey(1));
  folder.write("data/cat/notes.txt", "no image");
  folder.write("data/cat/.hidden/copy.png", grey(9));
  folder.write("data/.git/x.png", grey(9));
  const auto source = open_paths({folder.path() / "data"});
  EXPECT_EQ(source->samples(), 3);
  ASSERT_EQ(source->arrays().size(), 2u);
  EXPECT_EQ(source->arrays()[0], (SourceArray{"image", DType::U8, {1, 2, 2}}));
  EXPECT_EQ(source->arrays()[1], (SourceArray{"label", DType::I64, {}}));
  EXPECT_EQ(read_all<std::int64_t>(*source, 1), (std::vector<std::int64_t>{0, 1, 1}));
  EXPECT_EQ(read_all<std::uint8_t>(*source, 0),
            (std::vector<std::uint8_t>{1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3}));
}

TEST(SourceImages, FilesAndFlatFoldersHaveNoLabels) {
  NEED(grey(1));
  const TempFolder folder;
  const auto a = folder.write("flat/a.png", grey(1)), b = folder.write("flat/b.png", grey(2));
  EXPECT_EQ(open_paths({folder.path() / "flat"})->arrays().size(), 1u);
  const auto files = open_paths({b, a});
  EXPECT_EQ(read_all<std::uint8_t>(*files, 0)[0], 2);
  folder.write("classes/x/a.png", grey(1));
  EXPECT_EQ(error_of({folder.path() / "flat", folder.path() / "classes"}).code(),
            Errc::InvalidArgument);
  std::filesystem::create_directory(folder.path() / "empty");
  EXPECT_EQ(error_of({folder.path() / "empty"}).code(), Errc::InvalidArgument);
}

TEST(SourceImages, LooseOnesBesideClassesAreRefused) {
  NEED(grey(1));
  const TempFolder folder;
  folder.write("d/a.png", grey(1));
  std::filesystem::create_directories(folder.path() / "d/empty");
  EXPECT_EQ(open_paths({folder.path() / "d"})->arrays().size(), 1u);
  folder.write("d/cat/b.png", grey(1));
  const Error error = error_of({folder.path() / "d"});
  EXPECT_EQ(error.code(), Errc::InvalidArgument);
  EXPECT_NE(std::string(error.what()).find("d/a.png"), std::string::npos) << error.what();
}

TEST(SourceImages, ClassesAndFilesAreNamed) {
  NEED(grey(1));
  const TempFolder folder;
  folder.write("d/cat/x/b.png", grey(1));
  folder.write("d/d\"og\xff/a.png", grey(1));
  const auto source = open_paths({folder.path() / "d"});
  EXPECT_EQ(source->about().json(true),
            "{\"classes\": [\"cat\", \"d\\\"og\xef\xbf\xbd\"], \"files\": [\"cat/x/b.png\", "
            "\"d\\\"og\xef\xbf\xbd/a.png\"]}");
  EXPECT_EQ(source->about().json(false), "{\"classes\": [\"cat\", \"d\\\"og\xef\xbf\xbd\"]}");
}

TEST(SourceImages, TheFirstThatDiffersIsNamed) {
  NEED(grey(1));
  const TempFolder folder;
  folder.write("d/a.png", grey(1));
  folder.write("d/b.png", grey(1));
  folder.write("d/c.png", png_bytes(1, 2, 8, 0, "ab"));
  const Error size = error_of({folder.path() / "d"});
  EXPECT_EQ(size.code(), Errc::InvalidArgument);
  EXPECT_NE(std::string(size.what()).find("c.png' is 1x2x1 u8"), std::string::npos) << size.what();
  folder.write("e/a.webp", "RIFF");
  EXPECT_EQ(error_of({folder.path() / "e"}).code(), Errc::Unsupported);
  folder.write("f/a.png", "no image");
  EXPECT_EQ(error_of({folder.path() / "f"}).code(), Errc::CorruptData);
}

TEST(SourceImages, PngKeepsItsValues) {
  NEED(grey(1));
  const TempFolder folder;
  const auto open = [&](const std::string& png) {
    return open_paths({folder.write("a.png", png)});
  };
  const auto rgba = open(png_bytes(1, 2, 8, 6, "\x01\x02\x03\x04\x05\x06\x07\x08"));
  EXPECT_EQ(rgba->arrays()[0].sample, (Shape{4, 2, 1}));
  EXPECT_EQ(read_all<std::uint8_t>(*rgba, 0), (std::vector<std::uint8_t>{1, 5, 2, 6, 3, 7, 4, 8}));
  const auto deep = open(png_bytes(2, 1, 16, 0, std::string("\x01\x02\xff\xff", 4)));
  EXPECT_EQ(deep->arrays()[0], (SourceArray{"image", DType::U16, {1, 1, 2}}));
  EXPECT_EQ(read_all<std::uint16_t>(*deep, 0), (std::vector<std::uint16_t>{258, 65535}));
  const auto palette =
      open(png_bytes(2, 1, 8, 3, std::string("\x01\x00", 2), "\x0a\x0b\x0c\x14\x15\x16"));
  EXPECT_EQ(read_all<std::uint8_t>(*palette, 0),
            (std::vector<std::uint8_t>{20, 10, 21, 11, 22, 12}));
  const auto bits = open(png_bytes(8, 1, 1, 0, "\xaa"));
  EXPECT_EQ(read_all<std::uint8_t>(*bits, 0),
            (std::vector<std::uint8_t>{255, 0, 255, 0, 255, 0, 255, 0}));
}

TEST(SourceImages, JpegIsGreyOrRgb) {
  NEED(grey_jpeg());
  const TempFolder folder;
  const auto one = open_paths({folder.write("a.jpg", grey_jpeg())});
  EXPECT_EQ(one->arrays()[0], (SourceArray{"image", DType::U8, {1, 8, 8}}));
  for (const std::uint8_t value : read_all<std::uint8_t>(*one, 0)) EXPECT_NEAR(value, 100, 2);
  const auto three = open_paths({folder.write("b.jpeg", colour_jpeg())});
  EXPECT_EQ(three->arrays()[0].sample, (Shape{3, 8, 16}));
  const std::vector<std::uint8_t> values = read_all<std::uint8_t>(*three, 0);
  EXPECT_NEAR(values[0], 200, 4);
  EXPECT_NEAR(values[128], 40, 4);
  EXPECT_NEAR(values[256], 90, 4);
}

TEST(SourceImages, TiffKeepsItsTypeAndChannels) {
  const std::string values = bytes_of<std::uint16_t>({1, 2, 3, 4, 5, 6, 7, 65535});
  NEED(tiff_bytes(2, 1, 4, 16, 1, values));
  const TempFolder folder;
  const auto mixed = open_paths({folder.write("a.tif", tiff_bytes(2, 1, 4, 16, 1, values))});
  EXPECT_EQ(mixed->arrays()[0], (SourceArray{"image", DType::U16, {4, 1, 2}}));
  EXPECT_EQ(read_all<std::uint16_t>(*mixed, 0),
            (std::vector<std::uint16_t>{1, 5, 2, 6, 3, 7, 4, 65535}));
  const auto apart = open_paths({folder.write("b.tif", tiff_bytes(2, 1, 4, 16, 1, values, true))});
  EXPECT_EQ(read_all<std::uint16_t>(*apart, 0),
            (std::vector<std::uint16_t>{1, 2, 3, 4, 5, 6, 7, 65535}));
  const auto real =
      open_paths({folder.write("c.tiff", tiff_bytes(1, 2, 1, 32, 3, bytes_of<float>({1.5f, -2})))});
  EXPECT_EQ(real->arrays()[0], (SourceArray{"image", DType::F32, {1, 2, 1}}));
  EXPECT_EQ(read_all<float>(*real, 0), (std::vector<float>{1.5f, -2}));
  EXPECT_EQ(error_of({folder.write("d.tif", tiff_bytes(8, 1, 1, 4, 1, "abcd"))}).code(),
            Errc::Unsupported);
}

TEST(SourceImages, SizesThatLieAreRefusedWithoutAllocation) {
  NEED(grey(1));
  const TempFolder folder;
  for (const std::uint32_t side : {100000u, 1u << 20, 0u}) {
    const Error error = error_of({folder.write("a.png", png_bytes(side, side, 8, 2, ""))});
    EXPECT_EQ(error.code(), Errc::CorruptData) << side << error.what();
  }
  std::string jpeg = colour_jpeg();
  const std::size_t frame = jpeg.find(std::string("\xff\xc0", 2));
  jpeg.replace(frame + 5, 4, "\xff\xff\xff\xff");
  if (can_read(grey_jpeg())) {
    EXPECT_EQ(error_of({folder.write("a.jpg", jpeg)}).code(), Errc::CorruptData);
  }
  std::string tiff = tiff_bytes(2, 2, 1, 8, 1, "abcd");
  if (can_read(tiff)) {
    const std::size_t width = tiff.find(little(256, 2) + little(4, 2));
    tiff.replace(width + 8, 4, "\xff\xff\xff\x7f");
    tiff.replace(width + 20, 4, "\xff\xff\xff\x7f");
    EXPECT_EQ(error_of({folder.write("a.tif", tiff)}).code(), Errc::CorruptData);
  }
}

TEST(SourceImages, DamagedImagesNeverCrash) {
  if (can_read(grey(1)))
    expect_survives_damage(kImagesSource, png_bytes(4, 4, 8, 2, std::string(48, 'x')));
  if (can_read(grey_jpeg())) expect_survives_damage(kImagesSource, colour_jpeg(), true);
  if (can_read(tiff_bytes(2, 2, 1, 8, 1, "abcd"))) {
    expect_survives_damage(kImagesSource, tiff_bytes(2, 2, 3, 8, 1, "abcdefghijkl", true), true);
  }
}

TEST(SourceImages, RealScenesAreRead) {
  const std::filesystem::path path = real_data("cloud_landsat4band");
  if (path.empty()) GTEST_SKIP() << "no cloud_landsat4band under TUCKFOLD_DATA";
  NEED(tiff_bytes(2, 2, 1, 8, 1, "abcd"));
  const auto source = open_paths({path});
  EXPECT_EQ(source->samples(), 5);
  EXPECT_EQ(source->arrays()[0], (SourceArray{"image", DType::U16, {4, 512, 512}}));
  const std::vector<std::uint16_t> values = read_all<std::uint16_t>(*source, 0);
  EXPECT_GT(*std::ranges::max_element(values), 255);
}

}  // namespace
}  // namespace tuckfold
