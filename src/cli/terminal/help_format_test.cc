// Help texts at several widths.
#include "cli/terminal/help_format.h"

#include <gtest/gtest.h>

namespace tuckfold::cli {
namespace {

constexpr const char* kHelp =
    "Do it\n"
    "Usage: tool verb [OPTIONS] a line that is longer than the others and left alone\n"
    "\n"
    "Options:\n"
    "  --flag                      What this flag does, in many words\n"
    "  --a-name-that-fills-its-whole-column VALUE\n"
    "                              And its description below\n"
    "\n"
    "Some prose that was wrapped\n"
    "where its writer liked to.\n"
    "\n"
    "Examples:\n"
    "  tool verb --flag --another-flag --a-third-flag --a-fourth-flag\n";

TEST(HelpFormat, ProseAndDescriptionsAreFilled) {
  EXPECT_EQ(fit_help(kHelp, 48),
            "Do it\n"
            "Usage: tool verb [OPTIONS] a line that is longer than the others and left alone\n"
            "\n"
            "Options:\n"
            "  --flag                      What this flag\n"
            "                              does, in many\n"
            "                              words\n"
            "  --a-name-that-fills-its-whole-column VALUE\n"
            "                              And its\n"
            "                              description below\n"
            "\n"
            "Some prose that was wrapped where its writer\n"
            "liked to.\n"
            "\n"
            "Examples:\n"
            "  tool verb --flag --another-flag --a-third-flag --a-fourth-flag\n");
}

TEST(HelpFormat, NarrowTerminalsHaveDescriptionsBelow) {
  const std::string narrow = fit_help(kHelp, 40);
  EXPECT_NE(narrow.find("  --flag\n      What this flag does, in many words\n"
                        "  --a-name-that-fills-its-whole-column VALUE\n"
                        "      And its description below\n"),
            narrow.npos)
      << narrow;
}

TEST(HelpFormat, WideTerminalsGetOneLine) {
  const std::string wide = fit_help(kHelp, 120);
  EXPECT_NE(wide.find("Some prose that was wrapped where its writer liked to.\n"), wide.npos);
  EXPECT_NE(wide.find("What this flag does, in many words\n"), wide.npos);
}

TEST(HelpFormat, LongWordsAndEmptyTextsStay) {
  EXPECT_EQ(fit_help("", 80), "");
  const std::string word(200, 'w');
  EXPECT_EQ(fit_help("a " + word + " b\n", 40), "a\n" + word + "\nb\n");
}

}  // namespace
}  // namespace tuckfold::cli
