// JSON: what a schema needs is read, and what is none is refused.
#include "base/json.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>

#include "tuckfold/error.h"

namespace tuckfold {
namespace {

TEST(JsonText, ValuesOfEveryKindAreRead) {
  const std::string text =
      R"( {"a": [1, -2.5e3, true, null], "b": {"c": "x\n\u00e9\ud83d\ude00"}} )";
  const Json json = Json::parse(text);
  ASSERT_EQ(json.kind, Json::Kind::Object);
  const Json* a = json.find("a");
  ASSERT_NE(a, nullptr);
  ASSERT_EQ(a->items.size(), 4u);
  EXPECT_EQ(a->items[0].whole(), 1);
  EXPECT_EQ(a->items[1].whole(), -1);
  EXPECT_EQ(a->items[1].text, "-2.5e3");
  EXPECT_EQ(json.find("b")->text, R"({"c": "x\n\u00e9\ud83d\ude00"})");
  EXPECT_EQ(json.find("b")->find("c")->string, "x\n\xc3\xa9\xf0\x9f\x98\x80");
  EXPECT_EQ(json.find("d"), nullptr);
}

TEST(JsonText, WhatIsWrittenIsRead) {
  const std::string text = "quote \" slash \\ newline \n null " + std::string(1, '\0') + " é";
  EXPECT_EQ(Json::parse(json_string(text)).string, text);
}

TEST(JsonText, WhatIsNoJsonIsInvalid) {
  for (const char* text : {"", "{", "[1,]", "{\"a\":1,}", "{\"a\" 1}", "01", "1.", "-", "tru", "\"",
                           "\"\\x\"", "\"\\u12\"", "\"\\ud800\"", "\"\\ud800\\u0041\"", "[] []",
                           "{\"a\":1,\"a\":2}", "\"\n\"", "{1:2}"}) {
    EXPECT_THROW(Json::parse(text), Error) << text;
  }
  EXPECT_THROW(Json::parse(std::string(100000, '[')), Error);
}

TEST(JsonText, TextThatIsNotUtf8IsInvalid) {
  for (const char* text : {"caf\xe9", "\x80", "\xc0\xaf", "\xc1\x81", "\xe0\x80\x80",
                           "\xed\xa0\x80", "\xf0\x80\x80\x80", "\xf4\x90\x80\x80",
                           "\xf5\x80\x80\x80", "\xff", "\xe2\x82", "\xc3", "\xf0\x9f\x98"}) {
    EXPECT_THROW(Json::parse(fmt::format("\"{}\"", text)), Error) << text;
    EXPECT_THROW(Json::parse(fmt::format("{{\"{}\": 1}}", text)), Error) << text;
  }
  for (const char* text :
       {"\x7f", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80",
        "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_EQ(Json::parse(fmt::format("\"{}\"", text)).string, text);
  }
}

TEST(JsonText, NumbersThatNoDoubleHoldsAreInvalid) {
  EXPECT_THROW(Json::parse("1e999"), Error);
  EXPECT_THROW(Json::parse("[-1e309]"), Error);
  EXPECT_EQ(Json::parse("1e-999").kind, Json::Kind::Number);
  EXPECT_EQ(Json::parse("1.7e308").kind, Json::Kind::Number);
  EXPECT_EQ(Json::parse("123456789012345678901234567890").kind, Json::Kind::Number);
}

TEST(JsonText, WholeNumbersEndAtTheLargest) {
  EXPECT_EQ(Json::parse("9223372036854775807").whole(), INT64_MAX);
  for (const char* text : {"9223372036854775808", "99999999999999999999", "-1", "1.0", "1e3"}) {
    EXPECT_EQ(Json::parse(text).whole(), -1) << text;
  }
}

TEST(JsonText, SurrogatesComeInPairs) {
  EXPECT_EQ(Json::parse(R"("\ud83d\ude00")").string, "\xf0\x9f\x98\x80");
  for (const char* text : {R"("\ud83d")", R"("\ud83dx")", R"("\ud83d\n")", R"("\ude00")",
                           R"("\ud83d\ud83d")", R"("\ud83d\u0041")"}) {
    EXPECT_THROW(Json::parse(text), Error) << text;
  }
}

TEST(JsonText, LimitsHold) {
  const auto nested = [](int depth) {
    return std::string(static_cast<std::size_t>(depth), '[') +
           std::string(static_cast<std::size_t>(depth), ']');
  };
  EXPECT_NO_THROW(Json::parse(nested(Json::kMaxDepth + 1)));
  EXPECT_THROW(Json::parse(nested(Json::kMaxDepth + 2)), Error);
  std::string many = "[0";
  for (std::size_t i = 2; i < Json::kMaxValues; ++i) many += ",0";  // and the array itself
  EXPECT_EQ(Json::parse(many + "]").items.size(), Json::kMaxValues - 1);
  EXPECT_THROW(Json::parse(many + ",0]"), Error);
  EXPECT_THROW(Json::parse(std::string(Json::kMaxBytes + 1, ' ')), Error);
}

}  // namespace
}  // namespace tuckfold
