// Ranges of samples as Python writes them.
#include <gtest/gtest.h>

#include "cli/dataset/dataset.h"
#include "tuckfold/error.h"

namespace tuckfold::cli {
namespace {

std::vector<std::int64_t> samples_of(std::string_view text, std::int64_t samples = 10) {
  const SampleSlice slice = parse_range("test", text, samples);
  std::vector<std::int64_t> numbers;
  for (std::int64_t i = 0; i < slice.samples; ++i) numbers.push_back(slice.at(i));
  return numbers;
}
using Numbers = std::vector<std::int64_t>;

TEST(Range, AsInPython) {
  EXPECT_EQ(samples_of("2:5"), (Numbers{2, 3, 4}));
  EXPECT_EQ(samples_of(":3"), (Numbers{0, 1, 2}));
  EXPECT_EQ(samples_of("8:"), (Numbers{8, 9}));
  EXPECT_EQ(samples_of("-3:"), (Numbers{7, 8, 9}));
  EXPECT_EQ(samples_of(":-8"), (Numbers{0, 1}));
  EXPECT_EQ(samples_of("-3:-1"), (Numbers{7, 8}));
  EXPECT_EQ(samples_of("::4"), (Numbers{0, 4, 8}));
  EXPECT_EQ(samples_of("1:9:3"), (Numbers{1, 4, 7}));
  EXPECT_EQ(samples_of("-9::3"), (Numbers{1, 4, 7}));
  EXPECT_EQ(samples_of("::100"), (Numbers{0}));
  EXPECT_EQ(samples_of("5:5"), Numbers{});
  EXPECT_EQ(samples_of(":").size(), 10u);
  EXPECT_EQ(samples_of("::").size(), 10u);
  EXPECT_EQ(samples_of("7"), (Numbers{7}));
  EXPECT_EQ(samples_of("-1"), (Numbers{9}));
  EXPECT_EQ(samples_of("-10:10"), samples_of(":"));
  EXPECT_EQ(samples_of(":", 0), Numbers{});
}

TEST(Range, WhatIsEmptyInPythonIsEmpty) {
  for (const char* text : {"5:4", "5:5", "-1:-5", "10:", "8:2:3"}) {
    EXPECT_EQ(parse_range("test", text, 10).samples, 0) << text;
  }
}

TEST(Range, WhatIsNotInTheFileIsRefused) {
  for (const char* text :
       {"", "x", "1:2:3:4", "1:x", "::0", "::-1", "11:", ":11", "10", "-11", "-11:", "1.5", " 1",
        "0x1", "99999999999999999999", "::99999999999999999999", ":-11"}) {
    EXPECT_THROW(parse_range("test", text, 10), Error) << text;
  }
}

TEST(Range, SamplesBetweenAreLeftOut) {
  char samples[] = "aabbccddee";
  compact({0, 3, 2}, 2, reinterpret_cast<std::byte*>(samples));
  EXPECT_EQ(std::string(samples, 6), "aaccee");
}

}  // namespace
}  // namespace tuckfold::cli
