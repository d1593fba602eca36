// tar archives: samples by stem, arrays by extension, long names, and archives with false headers.
#include "inputs/tar.h"

#include <gtest/gtest.h>

#include "inputs/source_fixture.h"
#include "inputs/tar_fixture.h"

namespace tuckfold {
namespace {

std::string values(float first) {
  return npy_bytes("<f4", "(2,)", bytes_of<float>({first, first + 1}));
}

std::string good() {
  return tar_bytes({{"./a/0001.image.npy", values(1)},
                    {"./a/0001.cls", "7\n"},
                    {"./a/0002.cls", " -8"},
                    {"./a/0002.image.npy", values(3)}});
}

TEST(SourceTar, ExtensionsAreArraysAndStemsAreSamples) {
  const TempFolder folder;
  const auto source = open_paths({folder.write("a.tar", good()), folder.write("b.tar", good())},
                                 {.rename = {{"cls", "label"}}});
  EXPECT_EQ(source->samples(), 4);
  ASSERT_EQ(source->arrays().size(), 2u);
  EXPECT_EQ(source->arrays()[0], (SourceArray{"label", DType::I64, {}}));
  EXPECT_EQ(source->arrays()[1], (SourceArray{"image", DType::F32, {2}}));
  EXPECT_EQ(read_all<std::int64_t>(*source, 0), (std::vector<std::int64_t>{7, -8, 7, -8}));
  EXPECT_EQ(read_all<float>(*source, 1), (std::vector<float>{1, 2, 3, 4, 1, 2, 3, 4}));
}

TEST(SourceTar, FortranOrderAndHollowMembersAreRead) {
  const TempFolder folder;
  const auto turned = open_paths({folder.write(
      "a.tar", tar_bytes({{"1.npy", npy_bytes("<i4", "(2, 2)", bytes_of<std::int32_t>({1, 3, 2, 4}),
                                              "True")}}))});
  EXPECT_EQ(turned->arrays()[0], (SourceArray{"npy", DType::I32, {2, 2}}));
  EXPECT_EQ(read_all<std::int32_t>(*turned, 0), (std::vector<std::int32_t>{1, 2, 3, 4}));
  const auto hollow =
      open_paths({folder.write("a.tar", tar_bytes({{"1.npy", npy_bytes("<i4", "(0,)", "")}}))});
  EXPECT_EQ(hollow->samples(), 1);
}

TEST(SourceTar, LongNamesAreThoseOfGnuAndPax) {
  const std::string long_name = std::string(150, 'd') + "/1.cls";
  const std::string record = " path=" + long_name + "\n";
  const std::string pax = std::to_string(record.size() + 3) + record;
  const std::string archive = tar_member("././@LongLink", long_name + '\0', 'L') +
                              tar_member("short", "1") +
                              tar_member("pax", pax + "10 size=2\n", 'x') + tar_header("short", 0) +
                              "42" + std::string(510, '\0') + tar_member("folder/", "", '5') +
                              tar_member("g", "", 'g') + tar_member("2.cls", "3") + tar_end();
  const std::vector<TarMember> members =
      list_tar({reinterpret_cast<const std::byte*>(archive.data()), archive.size()}, "a.tar");
  ASSERT_EQ(members.size(), 3u);
  EXPECT_EQ(members[0].name, long_name);
  EXPECT_EQ(members[1].name, long_name);
  EXPECT_EQ(members[1].bytes.size(), 2u);
  EXPECT_EQ(members[2].name, "2.cls");
}

TEST(SourceTar, ImagesAreDecodedWhenRead) {
  const TempFolder folder;
  if (error_of(kImagesSource, png_bytes(1, 1, 8, 0, "x")).code() == Errc::Unsupported) {
    GTEST_SKIP() << "this build lacks libpng";
  }
  const std::string pixels = "\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c";
  const auto source =
      open_paths({folder.write("a.tar", tar_bytes({{"1.png", png_bytes(2, 2, 8, 2, pixels)},
                                                   {"1.txt", "5"},
                                                   {"2.png", png_bytes(2, 2, 8, 2, pixels)},
                                                   {"2.txt", "6"}}))});
  EXPECT_EQ(source->arrays()[0], (SourceArray{"png", DType::U8, {3, 2, 2}}));
  EXPECT_EQ(read_all<std::uint8_t>(*source, 0),
            (std::vector<std::uint8_t>{1, 4, 7, 10, 2, 5, 8, 11, 3, 6, 9, 12,
                                       1, 4, 7, 10, 2, 5, 8, 11, 3, 6, 9, 12}));
}

TEST(SourceTar, SamplesThatDifferAreNamed) {
  const TempFolder folder;
  const auto message = [&](const std::vector<std::pair<std::string, std::string>>& members,
                           const SourceOptions& options = {}) {
    return std::string(error_of({folder.write("a.tar", tar_bytes(members))}, options).what());
  };
  EXPECT_NE(message({{"1.cls", "1"}, {"1.npy", values(1)}, {"2.cls", "2"}})
                .find("sample '2' has no .npy"),
            std::string::npos);
  EXPECT_NE(
      message({{"1.cls", "1"}, {"2.cls", "2"}, {"2.npy", values(1)}}).find("sample '2' has a .npy"),
      std::string::npos);
  EXPECT_NE(message({{"1.cls", "1"}, {"1.cls", "1"}}).find("twice"), std::string::npos);
  EXPECT_NE(message({{"1.npy", values(1)}, {"2.npy", npy_bytes("<f4", "(1,)", "abcd")}})
                .find("is 1 f32 and the first is 2 f32"),
            std::string::npos);
  EXPECT_NE(message({{"1.cls", "cat"}}).find("must be a whole number, got 'cat'"),
            std::string::npos);
  EXPECT_NE(message({{"1.json", "{}"}, {"1.cls", "1"}}).find("is neither .npy"), std::string::npos);
  EXPECT_EQ(message({{"1.json", "{}"}, {"1.cls", "1"}}, {.arrays = {"cls"}}), "accepted");
  EXPECT_EQ(error_of({folder.write("a.tar", tar_member("1.cls", "", '2') + tar_end())}).code(),
            Errc::Unsupported);
  EXPECT_EQ(error_of({folder.write("a.tar", tar_member("readme", "") + tar_end())}).code(),
            Errc::InvalidArgument);
}

TEST(SourceTar, SizesThatLieAreCorruptData) {
  const TempFolder folder;
  const SourceOptions format{.format = "tar"};
  EXPECT_EQ(
      error_of({folder.write("a.tar", tar_header("1.cls", 1 << 20) + tar_end())}, format).code(),
      Errc::CorruptData);
  EXPECT_EQ(error_of({folder.write("a.tar", tar_header("1.cls", 077777777777) + tar_end())}, format)
                .code(),
            Errc::CorruptData);
  EXPECT_EQ(error_of({folder.write("a.tar", tar_member("1.cls", "1"))}, format).code(),
            Errc::CorruptData);
  for (const char* record :
       {"x", "5", "99 size=1\n", "10 size=x\n", "8 size=\n", "25 size=18446744073709551615\n"}) {
    EXPECT_EQ(error_of({folder.write("a.tar", tar_member("pax", record, 'x') +
                                                  tar_member("1.cls", "1") + tar_end())},
                       format)
                  .code(),
              Errc::CorruptData)
        << record;
  }
}

TEST(SourceTar, DamagedArchivesNeverCrash) { expect_survives_damage(kTarSource, good(), true); }

}  // namespace
}  // namespace tuckfold
