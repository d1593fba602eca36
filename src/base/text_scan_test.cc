// Carets, quotes and the nearest word.
#include "base/text_scan.h"

#include <gtest/gtest.h>

#include <array>

namespace tuckfold {
namespace {

constexpr std::array<std::string_view, 5> kWords = {"block", "keep", "shape", "coef", "transform"};

TEST(TextScan, SlipsOfTheHandFindTheirWord) {
  EXPECT_EQ(nearest_word("kep", kWords), "keep");    // left out
  EXPECT_EQ(nearest_word("keeep", kWords), "keep");  // doubled
  EXPECT_EQ(nearest_word("kepe", kWords), "keep");   // swapped
  EXPECT_EQ(nearest_word("jeep", kWords), "keep");   // beside
  EXPECT_EQ(nearest_word("trasnfrom", kWords), "transform");
  EXPECT_EQ(nearest_word("block", kWords), "block");
}

TEST(TextScan, CaseDoesNotCount) {
  constexpr std::array<std::string_view, 3> kDevices = {"a30", "sn30", "cs2"};
  EXPECT_EQ(nearest_word("SN30", kDevices), "sn30");
  EXPECT_EQ(nearest_word("CS-2", kDevices), "cs2");
  EXPECT_EQ(nearest_word("KEPE", kWords), "keep");
}

TEST(TextScan, OtherWordsFindNone) {
  EXPECT_EQ(nearest_word("quality", kWords), "");
  EXPECT_EQ(nearest_word("x", kWords), "");
  EXPECT_EQ(nearest_word("", kWords), "");
  EXPECT_EQ(nearest_word("keep", {}), "");
  EXPECT_EQ(nearest_word(std::string(65, 'k'), kWords), "");
  EXPECT_EQ(nearest_word(std::string(1 << 20, 'k'), kWords), "");  // and in no time
}

TEST(TextScan, TheFirstOfTwoEquallyNearWordsIsTaken) {
  constexpr std::array<std::string_view, 2> kTwins = {"cart", "card"};
  EXPECT_EQ(nearest_word("carx", kTwins), "cart");
}

TEST(TextScan, ACaretStandsUnderEachCharacterOfTheWord) {
  EXPECT_EQ(with_caret("a(b=1)", 2, 1), "  a(b=1)\n    ^");
  EXPECT_EQ(with_caret("a(bit=1)", 2, 3), "  a(bit=1)\n    ^^^");
  EXPECT_EQ(with_caret("ab", 0, 0), "  ab\n  ^");    // at least one
  EXPECT_EQ(with_caret("ab", 1, 99), "  ab\n   ^");  // at most to the end
  EXPECT_EQ(with_caret("ab", 2, 1), "  ab\n    ^");  // just past it
  EXPECT_EQ(with_caret("", 0, 1), "  \n  ^");
}

TEST(TextScan, BytesThatWouldMoveTheCaretAreShownAsQuestionMarks) {
  EXPECT_EQ(with_caret("\tk\xc3\xa9\n\x7f+", 1, 1), "  ?k????+\n   ^");
  EXPECT_EQ(with_caret(std::string_view("\0a", 2), 1, 1), "  ?a\n   ^");
}

TEST(TextScan, LongTextsAreCutAroundTheCaret) {
  const std::string text = std::string(1000, 'a') + "X" + std::string(1000, 'b');
  EXPECT_EQ(with_caret(text, 1000, 1), "  " + std::string(60, 'a') + "X" + std::string(39, 'b') +
                                           "\n  " + std::string(60, ' ') + "^");
  EXPECT_EQ(with_caret(text, 2001, 1),
            "  " + std::string(60, 'b') + "\n  " + std::string(60, ' ') + "^");
}

TEST(TextScan, QuotesAreShortAndPrintable) {
  EXPECT_EQ(tuckfold::quoted("keep"), "'keep'");
  EXPECT_EQ(tuckfold::quoted(""), "''");
  EXPECT_EQ(tuckfold::quoted("a\nb\xff"), "'a?b?'");
  EXPECT_EQ(tuckfold::quoted(std::string(40, 'a')), "'" + std::string(40, 'a') + "'");
  EXPECT_EQ(tuckfold::quoted(std::string(41, 'a')), "'" + std::string(40, 'a') + "…'");
}

TEST(TextScan, CodePointsBecomeUtf8) {
  std::string text;
  for (const std::uint32_t point :
       {0x41u, 0x7fu, 0x80u, 0x7ffu, 0x800u, 0xffffu, 0x10000u, 0x10ffffu}) {
    append_utf8(text, point);
  }
  EXPECT_EQ(text,
            "\x41\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80\xef\xbf\xbf\xf0\x90\x80\x80\xf4\x8f\xbf\xbf");
}

}  // namespace
}  // namespace tuckfold
