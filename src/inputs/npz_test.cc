// .npz archives: stored, deflated, 64-bit; and archives with false headers.
#include <gtest/gtest.h>

#include "inputs/source_fixture.h"
#include "inputs/zip_fixture.h"

namespace tuckfold {
namespace {

std::string images() {
  std::string data;
  for (int i = 0; i < 600; ++i) data += bytes_of<float>({static_cast<float>(i)});
  return npy_bytes("<f4", "(3, 200)", data);
}
std::string labels() { return npy_bytes("<i8", "(3,)", bytes_of<std::int64_t>({7, 8, 9})); }

TEST(SourceNpz, MembersAreArrays) {
  const TempFolder folder;
  for (const int method : {0, 8}) {
    for (const bool wide : {false, true}) {
      const auto source =
          open_paths({folder.write("a.npz", zip_bytes({{"image.npy", images(), method, wide},
                                                       {"label.npy", labels(), method, wide}},
                                                      wide))});
      EXPECT_EQ(source->samples(), 3);
      ASSERT_EQ(source->arrays().size(), 2u);
      EXPECT_EQ(source->arrays()[0], (SourceArray{"image", DType::F32, {200}}));
      EXPECT_EQ(source->arrays()[1], (SourceArray{"label", DType::I64, {}}));
      EXPECT_EQ(read_all<float>(*source, 0)[599], 599.0f);
      EXPECT_EQ(read_all<std::int64_t>(*source, 1), (std::vector<std::int64_t>{7, 8, 9}));
    }
  }
}

TEST(SourceNpz, ArchivesLieOneBehindTheOther) {
  const TempFolder folder;
  const std::string archive = zip_bytes({{"label.npy", labels(), 8}});
  const auto source = open_paths({folder.write("a.npz", archive), folder.write("b.npz", archive)});
  EXPECT_EQ(read_all<std::int64_t>(*source, 0), (std::vector<std::int64_t>{7, 8, 9, 7, 8, 9}));
}

TEST(SourceNpz, UnequalLengthsAreRefusedUnlessNamed) {
  const TempFolder folder;
  const auto path =
      folder.write("a.npz", zip_bytes({{"image.npy", images()},
                                       {"mean.npy", npy_bytes("<f4", "()", std::string(4, 0))},
                                       {"names.npy", npy_bytes("|O", "(3,)", "pickle")},
                                       {"classes.npy", npy_bytes("|u1", "(2,)", "ab")}}));
  const Error scalar = error_of({path});
  EXPECT_EQ(scalar.code(), Errc::InvalidArgument);
  EXPECT_NE(std::string(scalar.what()).find("'mean' is a scalar"), std::string::npos)
      << scalar.what();
  EXPECT_EQ(error_of({path}, {.arrays = {"names"}}).code(), Errc::Unsupported);
  const Error longer = error_of({path}, {.arrays = {"image", "classes"}});
  EXPECT_NE(std::string(longer.what()).find("'image' has 3 and 'classes' has 2"), std::string::npos)
      << longer.what();
  EXPECT_EQ(open_paths({path}, {.arrays = {"image"}})->arrays().size(), 1u);
  EXPECT_EQ(error_of({path}, {.arrays = {"nothing"}}).code(), Errc::InvalidArgument);
}

TEST(SourceNpz, HugeSizesAreCorruptDataWithoutAllocation) {
  const TempFolder folder;
  for (const std::uint64_t size : {std::uint64_t{1} << 62, UINT64_MAX, std::uint64_t{10} << 30}) {
    EXPECT_EQ(
        error_of({folder.write("a.npz", zip_bytes({{"a.npy", labels(), 8, true, false, size}}))})
            .code(),
        Errc::CorruptData);
    EXPECT_EQ(
        error_of({folder.write("a.npz", zip_bytes({{"a.npy", labels(), 0, true, false, size}}))})
            .code(),
        Errc::CorruptData);
  }
  // Too small and too large by little.
  for (const std::uint64_t size : {labels().size() - 1, labels().size() + 1}) {
    EXPECT_EQ(
        error_of({folder.write("a.npz", zip_bytes({{"a.npy", labels(), 8, false, false, size}}))})
            .code(),
        Errc::CorruptData);
  }
}

TEST(SourceNpz, WhatNumpyDoesNotWriteIsRefused) {
  const TempFolder folder;
  EXPECT_EQ(error_of({folder.write("a.npz", zip_bytes({{"a.npy", labels(), 12}}))}).code(),
            Errc::Unsupported);
  EXPECT_EQ(error_of({folder.write("a.npz", zip_bytes({{"a.txt", "text"}}))}).code(),
            Errc::Unsupported);
  EXPECT_EQ(error_of({folder.write("a.npz", zip_bytes({}))}).code(), Errc::InvalidArgument);
  EXPECT_EQ(error_of({folder.write("a.npz", zip_bytes({{"a.npy", labels()}, {"a.npy", labels()}}))})
                .code(),
            Errc::CorruptData);
  ZipEntry again{"b.npy", images()};
  again.first_place = true;
  const Error overlap = error_of({folder.write("a.npz", zip_bytes({{"a.npy", images()}, again}))});
  EXPECT_EQ(overlap.code(), Errc::CorruptData);
  EXPECT_NE(std::string(overlap.what()).find("overlap"), std::string::npos) << overlap.what();
}

TEST(SourceNpz, DamagedArchivesNeverCrash) {
  expect_survives_damage(kNpzSource,
                         zip_bytes({{"image.npy", images(), 8}, {"label.npy", labels()}}));
  expect_survives_damage(kNpzSource, zip_bytes({{"label.npy", labels(), 8, true}}, true));
}

TEST(SourceNpz, RealArchivesAreRead) {
  const std::filesystem::path path = real_data("graphene_stem/librarynet_256x256_u16.npz");
  if (path.empty())
    GTEST_SKIP() << "no graphene_stem/librarynet_256x256_u16.npz under TUCKFOLD_DATA";
  const auto source = open_paths({path});
  EXPECT_EQ(source->samples(), 140);
  EXPECT_EQ(source->arrays()[0].dtype, DType::U16);
  EXPECT_EQ(source->arrays()[0].sample, (Shape{256, 256}));
  const std::vector<std::uint16_t> values = read_all<std::uint16_t>(*source, 0);
  EXPECT_GT(*std::ranges::max_element(values), 255);
}

}  // namespace
}  // namespace tuckfold
