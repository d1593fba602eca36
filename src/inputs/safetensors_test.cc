// safetensors files: what is read, and false headers.
#include <gtest/gtest.h>

#include "inputs/source_fixture.h"
#include "inputs/zip_fixture.h"

namespace tuckfold {
namespace {

std::string safetensors(const std::string& header, const std::string& data) {
  return little(header.size(), 8) + header + data;
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  std::size_t begin, std::size_t end) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
         ",\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(end) + "]}";
}

std::string good() {
  return safetensors("{\"__metadata__\":{\"format\":\"pt\",\"x\":\"{[\\\"\"}," +
                         entry("image", "BF16", "[2, 3]", 0, 12) + "," +
                         entry("label", "I64", "[2]", 12, 28) + "}  ",
                     bytes_of<std::uint16_t>({1, 2, 3, 4, 5, 6}) + bytes_of<std::int64_t>({-7, 8}));
}

TEST(SourceSafetensors, TensorsAreArrays) {
  const TempFolder folder;
  const auto source =
      open_paths({folder.write("a.safetensors", good()), folder.write("b.bin", good())});
  EXPECT_EQ(source->samples(), 4);
  ASSERT_EQ(source->arrays().size(), 2u);
  EXPECT_EQ(source->arrays()[0], (SourceArray{"image", DType::BF16, {3}}));
  EXPECT_EQ(source->arrays()[1], (SourceArray{"label", DType::I64, {}}));
  EXPECT_EQ(read_all<std::uint16_t>(*source, 0)[5], 6);
  EXPECT_EQ(read_all<std::int64_t>(*source, 1), (std::vector<std::int64_t>{-7, 8, -7, 8}));
}

TEST(SourceSafetensors, NamesMayHaveEscapes) {
  const TempFolder folder;
  const auto source = open_paths({folder.write(
      "a.safetensors",
      safetensors("{" + entry("a\\\"\\n\\u00e9\\ud83d\\ude00", "U8", "[1]", 0, 1) + "}", "x"))});
  EXPECT_EQ(source->arrays()[0].name, "a\"\n\xc3\xa9\xf0\x9f\x98\x80");
}

TEST(SourceSafetensors, TensorsThatDoNotFitAreNamed) {
  const TempFolder folder;
  const auto path =
      folder.write("a.safetensors", safetensors("{" + entry("image", "U8", "[2]", 0, 2) + "," +
                                                    entry("mean", "F32", "[]", 2, 6) + "," +
                                                    entry("classes", "U8", "[3]", 6, 9) + "," +
                                                    entry("odd", "F8_E4M3", "[2]", 9, 11) + "}",
                                                std::string(11, 'x')));
  const Error scalar = error_of({path}, {.arrays = {"image", "mean"}});
  EXPECT_NE(std::string(scalar.what()).find("array 'mean' is a scalar"), std::string::npos)
      << scalar.what();
  const Error longer = error_of({path}, {.arrays = {"image", "classes"}});
  EXPECT_NE(std::string(longer.what()).find("'classes' has 3"), std::string::npos) << longer.what();
  const Error odd = error_of({path}, {.arrays = {"odd"}});
  EXPECT_EQ(odd.code(), Errc::Unsupported);
  EXPECT_NE(std::string(odd.what()).find("F8_E4M3"), std::string::npos) << odd.what();
  EXPECT_EQ(open_paths({path}, {.arrays = {"image"}})->samples(), 2);
}

TEST(SourceSafetensors, HeadersThatLieAreCorruptData) {
  const TempFolder folder;
  const SourceOptions format{.format = "safetensors"};
  const auto code = [&](const std::string& content) {
    return error_of({folder.write("a", content)}, format).code();
  };
  const std::string data(16, 'x');
  for (const std::string& header :
       {std::string(),
        std::string("{"),
        std::string("[]"),
        std::string("{\"a\":1}"),
        std::string("{\"a\":{}}"),
        std::string("{\"a"),
        std::string("{\"__metadata__\":"),
        std::string("{\"__metadata__\":[[[["),
        std::string("{\"\\u12"),
        std::string("{\"\\"),
        std::string("{\"\\x\":1}"),
        "{" + entry("a", "U8", "[1]", 0, 1) + "}x",
        "{," + entry("a", "U8", "[1]", 0, 1) + "}",
        "{" + entry("a", "U8", "[17]", 0, 17) + "}",
        "{" + entry("a", "U8", "[2]", 0, 1) + "}",
        "{" + entry("a", "U8", "[2]", 3, 1) + "}",
        "{" + entry("a", "F32", "[1]", 0, 5) + "}",
        "{" + entry("a", "U8", "[-1]", 0, 1) + "}",
        "{" + entry("a", "U8", "[4294967296, 4294967296]", 0, 16) + "}",
        "{" + entry("a", "F64", "[2305843009213693952]", 0, 0) + "}",
        "{" + entry("a", "U8", "[99999999999999999999]", 0, 1) + "}",
        "{" + entry("a", "U8", "[1]", 0, 1) + "," + entry("a", "U8", "[1]", 0, 1) + "}",
        "{" + entry("a", "U8", "[1.5]", 0, 1) + "}",
        "{" + entry("a", "U8", "[\"1\"]", 0, 1) + "}",
        "{" + entry("\\ud800", "U8", "[1]", 0, 1) + "}",  // half of a pair
        std::string(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":1}})"),
        std::string(R"({"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})"),
        std::string(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,1]}})"),
        std::string(R"({"a":{"dtype":1,"shape":[1],"data_offsets":[0,1]}})"),
        std::string(R"({"a":{"dtype":"U8","shape":1,"data_offsets":[0,1]}})")}) {
    EXPECT_EQ(code(safetensors(header, data)), Errc::CorruptData) << header;
  }
  EXPECT_EQ(code(little(UINT64_MAX, 8) + "{}"), Errc::CorruptData);
  EXPECT_EQ(code("short"), Errc::CorruptData);
  EXPECT_EQ(code(safetensors("{}", data)), Errc::InvalidArgument);
  EXPECT_EQ(code(safetensors("{\"__metadata__\":" + std::string(100000, '['), data)),
            Errc::CorruptData);
}

TEST(SourceSafetensors, EveryByteIsThatOfOneTensor) {
  const TempFolder folder;
  const auto path = [&](std::size_t begin, std::size_t bytes) {
    return folder.write("a.safetensors",
                        safetensors("{" + entry("b", "U8", "[2,2]", begin, begin + 4) + "," +
                                        entry("none", "U8", "[2,0]", 4, 4) + "," +
                                        entry("a", "U8", "[2,2]", 0, 4) + "}",
                                    std::string(bytes, 'x')));
  };
  EXPECT_EQ(open_paths({path(4, 8)})->samples(), 2);
  struct Wrong {
    std::size_t begin, bytes;
    const char* words;
  };
  for (const Wrong& wrong : {Wrong{2, 6, "overlaps"}, Wrong{0, 4, "overlaps"},
                             Wrong{5, 9, "does not follow"}, Wrong{4, 9, "9 are there"}}) {
    for (const std::vector<std::string>& names : {std::vector<std::string>{}, {"a"}}) {
      const Error error = error_of({path(wrong.begin, wrong.bytes)}, {.arrays = names});
      EXPECT_EQ(error.code(), Errc::CorruptData);
      EXPECT_NE(std::string(error.what()).find(wrong.words), std::string::npos) << error.what();
    }
  }
}

TEST(SourceSafetensors, DamagedFilesNeverCrash) {
  expect_survives_damage(kSafetensorsSource, good());
}

}  // namespace
}  // namespace tuckfold
