// Datasets of one file and of many: what they hold, how they are joined, what is refused.
#include "inputs/source.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "inputs/source_fixture.h"

namespace tuckfold {
namespace {

std::string numbers(int first, int count) {
  std::string data;
  for (int i = first; i < first + count; ++i) data += bytes_of<std::int32_t>({i});
  return npy_bytes("<i4", "(" + std::to_string(count / 2) + ", 2)", data);
}

TEST(Source, NpyHasItsLeadingAxisAsSamples) {
  const TempFolder folder;
  const auto source = open_paths({folder.write("a.npy", numbers(0, 8))});
  EXPECT_EQ(source->samples(), 4);
  ASSERT_EQ(source->arrays().size(), 1u);
  EXPECT_EQ(source->arrays()[0], (SourceArray{"data", DType::I32, {2}}));
  std::vector<std::int32_t> values(4);
  source->read(0, 1, 2, reinterpret_cast<std::byte*>(values.data()));
  EXPECT_EQ(values, (std::vector<std::int32_t>{2, 3, 4, 5}));
}

TEST(Source, FilesOfOneKindLieOneBehindTheOther) {
  const TempFolder folder;
  const auto source =
      open_paths({folder.write("a.npy", numbers(0, 4)), folder.write("b.npy", numbers(4, 2)),
                  folder.write("empty.npy", numbers(0, 0)), folder.write("c.npy", numbers(6, 6))});
  EXPECT_EQ(source->samples(), 6);
  for (std::int64_t first = 0; first <= 6; ++first) {
    for (std::int64_t count = 0; count <= 6 - first; ++count) {
      std::vector<std::int32_t> values(static_cast<std::size_t>(2 * count));
      source->read(0, first, count, reinterpret_cast<std::byte*>(values.data()));
      for (std::size_t i = 0; i < values.size(); ++i) {
        EXPECT_EQ(values[i], 2 * first + static_cast<std::int64_t>(i));
      }
    }
  }
}

TEST(Source, WhatLiesInMemoryIsFetchedWithoutACopy) {
  const TempFolder folder;
  // Values begin at 64 where the header is padded to that.
  const auto aligned = [](int first, int count) {
    std::string bytes = numbers(first, count);
    const std::size_t data = bytes.size() - static_cast<std::size_t>(count) * sizeof(int);
    bytes.insert(data - 1, 64 - data % 64, ' ');
    bytes[8] = static_cast<char>(bytes[8] + 64 - data % 64);
    return bytes;
  };
  std::vector<std::byte> room(64);
  const auto copies = [&](const Source& source, std::int64_t first, std::int64_t count) {
    const std::byte* found = source.fetch(0, first, count, room.data());
    std::vector<std::int32_t> values(static_cast<std::size_t>(2 * count));
    std::memcpy(values.data(), found, values.size() * sizeof(int));
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(values[i], 2 * first + static_cast<std::int64_t>(i));
    }
    EXPECT_TRUE(first > 0 || source.is_in_memory(0) == (found != room.data()));
    return found == room.data();
  };
  const auto a = folder.write("a.npy", aligned(0, 8)), b = folder.write("b.npy", aligned(8, 4));
  const auto both = open_paths({a, b});
  EXPECT_FALSE(copies(*both, 0, 4));
  EXPECT_FALSE(copies(*both, 1, 2));
  EXPECT_FALSE(copies(*both, 4, 2));
  EXPECT_TRUE(copies(*both, 3, 2));  // of two files
  EXPECT_FALSE(copies(*open_paths({a}, {.rename = {{"data", "x"}}}), 0, 4));
  EXPECT_FALSE(copies(*open_paths({a}, {.side_by_side = true}), 0, 4));
  std::string shifted = aligned(0, 8);
  shifted.insert(shifted.find('}'), 1, ' ');
  ++shifted[8];
  EXPECT_TRUE(copies(*open_paths({folder.write("shifted.npy", shifted)}), 0, 4));
  EXPECT_EQ(both->fetch(0, 6, 0, room.data()), room.data());
  EXPECT_THROW(both->fetch(0, 5, 2, room.data()), Error);
  EXPECT_THROW(both->fetch(1, 0, 1, room.data()), Error);
}

TEST(Source, FilesSideBySideAreArraysNamedAsTheFiles) {
  const TempFolder folder;
  const auto images = folder.write("images.npy", numbers(0, 4));
  const auto labels = folder.write("labels.v2.npy", npy_bytes("<i8", "(2,)", std::string(16, 1)));
  const auto source = open_paths({images, labels}, {.side_by_side = true});
  ASSERT_EQ(source->arrays().size(), 2u);
  EXPECT_EQ(source->arrays()[0].name, "images");
  EXPECT_EQ(source->arrays()[1], (SourceArray{"labels", DType::I64, {}}));
  EXPECT_EQ(read_all<std::int32_t>(*source, 0), (std::vector<std::int32_t>{0, 1, 2, 3}));

  const auto picked = open_paths(
      {images, labels}, {.arrays = {"labels"}, .rename = {{"labels", "y"}}, .side_by_side = true});
  ASSERT_EQ(picked->arrays().size(), 1u);
  EXPECT_EQ(picked->arrays()[0].name, "y");
  EXPECT_EQ(read_all<std::int64_t>(*picked, 0)[1], 0x0101010101010101);

  const Error longer =
      error_of({images, folder.write("long.npy", numbers(0, 6))}, {.side_by_side = true});
  EXPECT_NE(std::string(longer.what()).find("long.npy' has 3"), std::string::npos) << longer.what();
  EXPECT_EQ(error_of({images, images}, {.side_by_side = true}).code(), Errc::InvalidArgument);
}

TEST(Source, FilesThatDoNotFitAreRefusedByName) {
  const TempFolder folder;
  const auto a = folder.write("a.npy", numbers(0, 4));
  const auto b = folder.write("b.npy", npy_bytes("<f4", "(1, 3)", std::string(12, 0)));
  const Error error = error_of({a, b});
  EXPECT_EQ(error.code(), Errc::InvalidArgument);
  EXPECT_NE(std::string(error.what()).find("holds data i32 2"), std::string::npos) << error.what();
  EXPECT_NE(std::string(error.what()).find("holds data f32 3"), std::string::npos) << error.what();
}

TEST(Source, EveryTypeStaysWhatItIs) {
  const TempFolder folder;
  const auto check = [&]<class T>(const std::string& descr, DType dtype,
                                  std::initializer_list<T> values) {
    const auto path = folder.write(
        "a.npy", npy_bytes(descr, "(" + std::to_string(values.size()) + ",)", bytes_of(values)));
    const auto source = open_paths({path});
    EXPECT_EQ(source->arrays()[0].dtype, dtype) << descr;
    EXPECT_EQ(read_all<T>(*source, 0), std::vector<T>(values)) << descr;
  };
  check("|i1", DType::I8, std::initializer_list<std::int8_t>{-128, 127});
  check("<i2", DType::I16, std::initializer_list<std::int16_t>{-7, 32767});
  check("<u2", DType::U16, std::initializer_list<std::uint16_t>{0, 65535});
  check("<u4", DType::U32, std::initializer_list<std::uint32_t>{4294967295u});
  check("<u8", DType::U64, std::initializer_list<std::uint64_t>{0, UINT64_MAX});
  check("<i8", DType::I64, std::initializer_list<std::int64_t>{INT64_MIN, INT64_MAX});
  check("|b1", DType::Bool, std::initializer_list<std::uint8_t>{1, 0});
  check("<f2", DType::F16, std::initializer_list<std::uint16_t>{0x3c00});
  check("<f8", DType::F64, std::initializer_list<double>{0.1});
}

TEST(Source, BytesOfBoolsThatAreNotZeroAreOne) {
  const TempFolder folder;
  const std::string odd = bytes_of<std::uint8_t>({0, 1, 2, 255, 128, 0});
  const std::vector<std::uint8_t> wanted = {0, 1, 1, 1, 1, 0};
  const auto npy = open_paths({folder.write("a.npy", npy_bytes("|b1", "(3, 2)", odd))});
  EXPECT_EQ(read_all<std::uint8_t>(*npy, 0), wanted);
  const auto turned = open_paths({folder.write("b.npy", npy_bytes("|b1", "(3, 2)", odd, "True"))});
  EXPECT_EQ(read_all<std::uint8_t>(*turned, 0), (std::vector<std::uint8_t>{0, 1, 1, 1, 1, 0}));
  const auto raw =
      open_paths({folder.write("c.bin", odd)}, {.dtype = DType::Bool, .sample = Shape{2}});
  EXPECT_EQ(read_all<std::uint8_t>(*raw, 0), wanted);
}

TEST(Source, FortranOrderIsReadAsRowMajorSamples) {
  const TempFolder folder;
  std::vector<std::int16_t> stored(24);  // [i][j][k] of 2x3x4 at i + 2 j + 6 k
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 3; ++j) {
      for (int k = 0; k < 4; ++k) {
        stored[static_cast<std::size_t>(i + 2 * j + 6 * k)] =
            static_cast<std::int16_t>(12 * i + 4 * j + k);
      }
    }
  }
  const std::string data(reinterpret_cast<const char*>(stored.data()), 48);
  const auto source =
      open_paths({folder.write("a.npy", npy_bytes("<i2", "(2, 3, 4)", data, "True"))});
  const std::vector<std::int16_t> values = read_all<std::int16_t>(*source, 0);
  for (std::size_t i = 0; i < 24; ++i) EXPECT_EQ(values[i], static_cast<std::int16_t>(i));
  const auto line = open_paths({folder.write("b.npy", npy_bytes("<i2", "(24,)", data, "True"))});
  EXPECT_EQ(line->samples(), 24);
  EXPECT_EQ(read_all<std::int16_t>(*line, 0)[1], 12);
}

TEST(Source, RangesOutsideAreRefused) {
  const TempFolder folder;
  const auto source = open_paths({folder.write("a.npy", numbers(0, 4))});
  std::byte out[64];
  EXPECT_NO_THROW(source->read(0, 2, 0, out));
  for (const auto& [first, count] : std::initializer_list<std::pair<std::int64_t, std::int64_t>>{
           {-1, 1}, {0, 3}, {3, 0}, {1, INT64_MAX}, {INT64_MIN, 1}, {0, -1}}) {
    EXPECT_THROW(source->read(0, first, count, out), Error) << first << " " << count;
  }
  EXPECT_THROW(source->read(1, 0, 1, out), Error);
}

TEST(Source, NoSamplesAndSamplesWithoutValuesAreDatasets) {
  const TempFolder folder;
  EXPECT_EQ(open_paths({folder.write("a.npy", npy_bytes("<f4", "(0, 3)", ""))})->samples(), 0);
  const auto hollow =
      open_paths({folder.write("b.npy", npy_bytes("<i2", "(1152921504606846976, 0)", ""))});
  EXPECT_NO_THROW(hollow->read(0, 0, hollow->samples(), nullptr));
  EXPECT_EQ(
      error_of({folder.write("c.npy", npy_bytes("<i2", "(0, 4294967296, 4294967296)", ""))}).code(),
      Errc::CorruptData);
  EXPECT_EQ(error_of({folder.write("d.npy", npy_bytes("<i2", "()", "xx"))}).code(),
            Errc::InvalidArgument);
}

TEST(Source, ArraysArePickedAndRenamedByName) {
  const TempFolder folder;
  const auto path = folder.write("a.npy", numbers(0, 4));
  EXPECT_EQ(open_paths({path}, {.rename = {{"data", "x"}}})->arrays()[0].name, "x");
  EXPECT_EQ(error_of({path}, {.rename = {{"date", "x"}}}).code(), Errc::InvalidArgument);
  EXPECT_EQ(error_of({path}, {.rename = {{"data", ""}}}).code(), Errc::InvalidArgument);
  EXPECT_STREQ(error_of({path}, {.arrays = {"image"}}).what(),
               "[source] there is no array 'image'; there are data i32 2");
  EXPECT_EQ(error_of({path}, {.arrays = {"data", "data"}}).code(), Errc::InvalidArgument);
}

TEST(Source, FormatsAreGuessedFromContentsAndNamed) {
  const TempFolder folder;
  const auto odd = folder.write("odd.dat", numbers(0, 4));
  EXPECT_EQ(open_paths({odd})->samples(), 2);
  EXPECT_EQ(open_paths({odd}, {.format = "npy"})->samples(), 2);
  EXPECT_EQ(error_of({odd}, {.format = "npz"}).code(), Errc::CorruptData);
  const Error wrong = error_of({odd}, {.format = "npq"});
  EXPECT_NE(std::string(wrong.what()).find("did you mean np"), std::string::npos) << wrong.what();
  EXPECT_EQ(error_of({folder.write("what.xyz", "?")}).code(), Errc::InvalidArgument);
  EXPECT_EQ(error_of({folder.write("short.npy", "")}).code(), Errc::CorruptData);
  EXPECT_EQ(error_of({}).code(), Errc::InvalidArgument);
  EXPECT_EQ(error_of({folder.path() / "missing.npy"}).code(), Errc::Io);
  const auto pipe = folder.path() / "pipe.npy";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(error_of({pipe}).code(), Errc::Io);
}

TEST(Source, DamagedNpyNeverCrashes) { expect_survives_damage(kNpySource, numbers(0, 8)); }

TEST(Source, RealNpyFilesAreRead) {
  const std::filesystem::path path = real_data("eolearn_s2/NDVI.npy");
  if (path.empty()) GTEST_SKIP() << "no eolearn_s2/NDVI.npy under TUCKFOLD_DATA";
  const auto source = open_paths({path});
  EXPECT_EQ(source->samples(), 68);
  EXPECT_EQ(source->arrays()[0], (SourceArray{"data", DType::F32, {101, 100, 1}}));
  EXPECT_EQ(read_all<float>(*source, 0).size(), 68u * 10100);
}

}  // namespace
}  // namespace tuckfold
