// Contact sheets: where pictures land, and what the page holds.
#include "cli/pictures/sheet.h"

#include <gtest/gtest.h>

#include "cli/pictures/sample_images.h"
#include "tuckfold/error.h"

namespace tuckfold::cli {
namespace {

constexpr Rgb kRed = {255, 0, 0};

bool operator==(const Rgb& a, const Rgb& b) {
  return a.red == b.red && a.green == b.green && a.blue == b.blue;
}

Sheet sheet_of(std::size_t rows, std::size_t samples, std::int64_t width, std::int64_t height) {
  Sheet sheet{.title = {"a <title> & \"more\""}, .rows = {}, .figures = {}, .columns = 4};
  for (std::size_t r = 0; r < rows; ++r) {
    SheetRow& row = sheet.rows.emplace_back();
    if (rows > 1) row.name = "row";
    for (std::size_t i = 0; i < samples; ++i) {
      row.tiles.push_back({Canvas(width, height, kRed), "#1"});
    }
  }
  return sheet;
}

std::size_t count_of(const std::string& text, const std::string& word) {
  std::size_t count = 0;
  for (std::size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) ++count;
  return count;
}

std::int64_t red_pixels(const Canvas& canvas) {
  std::int64_t count = 0;
  for (std::int64_t y = 0; y < canvas.height(); ++y) {
    for (std::int64_t x = 0; x < canvas.width(); ++x) count += canvas.at(x, y) == kRed ? 1 : 0;
  }
  return count;
}

TEST(Sheet, SmallPicturesAreEnlargedByWholeFactorsAndLargeOnesReduced) {
  EXPECT_EQ(Sheet::Scale::of(32, 32).enlarge, 5);
  EXPECT_EQ(Sheet::Scale::of(1, 1).enlarge, 144);
  EXPECT_EQ(Sheet::Scale::of(144, 10).enlarge, 1);
  EXPECT_EQ(Sheet::Scale::of(384, 384).reduce, 1);
  EXPECT_EQ(Sheet::Scale::of(385, 10).reduce, 2);
  EXPECT_EQ(Sheet::Scale::of(32, 32).reduce, 1);
}

TEST(Sheet, EveryPictureIsThereAndNoneCoversAnother) {
  for (const std::size_t rows : {1u, 3u}) {
    for (const std::size_t samples : {1u, 4u, 9u}) {
      const Canvas canvas = sheet_of(rows, samples, 32, 20).draw();
      EXPECT_EQ(red_pixels(canvas), static_cast<std::int64_t>(rows * samples) * 160 * 100);
    }
  }
}

TEST(Sheet, TooManyPixelsAreRefused) {
  Sheet sheet = sheet_of(1, 2, 4, 4);
  sheet.rows.front().tiles.resize(20000, {Canvas(1, 1), ""});
  EXPECT_THROW(sheet.draw(), Error);
}

TEST(Sheet, ThePageHasEveryPictureInItAndNothingOutside) {
  Sheet sheet = sheet_of(2, 3, 8, 8);
  sheet.figures.push_back({"a | b", "4.00", "30.00 dB", "1"});
  const std::string page = sheet.html();
  EXPECT_EQ(count_of(page, "<img "), 6u);
  EXPECT_EQ(count_of(page, "data:image/png;base64,iVBORw0KGgo"), 6u);
  EXPECT_EQ(count_of(page, "http"), 0u);
  EXPECT_EQ(count_of(page, "a &lt;title&gt; &amp; &quot;more&quot;"), 2u);
  EXPECT_NE(page.find("prefers-color-scheme: dark"), page.npos);
  EXPECT_NE(page.find("<td>a | b</td>"), page.npos);
}

TEST(Canvas, ReducedPixelsAreMeans) {
  Canvas canvas(3, 2, {10, 10, 10});
  canvas.at(0, 0) = {50, 10, 10};
  const Canvas small = canvas.reduced(2);
  EXPECT_EQ(small.width(), 2);
  EXPECT_EQ(small.height(), 1);
  EXPECT_TRUE((small.at(0, 0) == Rgb{20, 10, 10}));
  EXPECT_TRUE((small.at(1, 0) == Rgb{10, 10, 10}));
}

TEST(FrameIn, PicksAChannelOfAnyLayout) {
  EXPECT_EQ(frame_in({3, 8, 8}, {}).channels, 3);
  EXPECT_EQ(frame_in({8, 8, 3}, {}).channels, 3);
  EXPECT_EQ(frame_in({3, 8, 8}, 2).offset, 128);
  EXPECT_EQ(frame_in({3, 8, 8}, 2).channels, 1);
  EXPECT_EQ(frame_in({8, 8, 3}, 2).offset, 2);
  EXPECT_EQ(frame_in({8, 8, 3}, 2).col_step, 3);
  EXPECT_EQ(frame_in({13, 8, 8}, 12).offset, 12 * 64);
  const Frame last = frame_in({64, 32, 4}, 3);  // not three colours, but channels last
  EXPECT_EQ(last.width, 32);
  EXPECT_EQ(last.offset, 3);
  EXPECT_EQ(last.row_step, 128);
  EXPECT_EQ(frame_in({8, 8}, 0).offset, 0);
  EXPECT_THROW(frame_in({8, 8}, 1), Error);
  EXPECT_THROW(frame_in({13, 8, 8}, 13), Error);
  EXPECT_THROW(frame_in({13, 8, 8}, -1), Error);
}

}  // namespace
}  // namespace tuckfold::cli
