// The text that names a codec: what is read, how it is printed, what is said of mistakes.
#include <gtest/gtest.h>

#include <string>

#include "tuckfold/codec.h"
#include "tuckfold/error.h"

namespace tuckfold {
namespace {

CodecSpec parse(std::string_view text) { return CodecSpec::parse(text); }

std::string mistake(std::string_view text) {
  try {
    return "read as " + parse(text).print();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::InvalidArgument);
    return error.what();
  }
}

TEST(CodecSpec, DefaultsAreFilledIn) {
  const CodecSpec spec = parse("dct_chop");
  ASSERT_EQ(spec.stages().size(), 1u);
  const Stage& stage = spec.stages()[0];
  EXPECT_EQ(stage.codec->name, "dct_chop");
  EXPECT_EQ(stage["block"], 8);
  EXPECT_EQ(stage["keep"], 4);
  EXPECT_EQ(stage["shape"], 0);
  EXPECT_EQ(stage["coef"], 0);
  EXPECT_EQ(stage["transform"], 0);
  EXPECT_EQ(stage["serialize"], 1);
  EXPECT_EQ(stage.values.size(), stage.codec->params.size());
}

TEST(CodecSpec, AParameterThatACodecLacksIsInternal) {
  const CodecSpec spec = parse("raw");
  try {
    static_cast<void>(spec.stages()[0]["keep"]);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::Internal);
  }
}

TEST(CodecSpec, PrintsTheCanonicalText) {
  EXPECT_EQ(parse("raw").print(), "raw");
  EXPECT_EQ(parse("raw()").print(), "raw");
  EXPECT_EQ(parse("dct_chop").print(), "dct_chop(keep=4)");
  EXPECT_EQ(parse("dct_chop(keep=4,block=8)").print(), "dct_chop(keep=4)");
  EXPECT_EQ(parse("dct_chop(coef=bf16,shape=triangle,keep=3)").print(),
            "dct_chop(keep=3, shape=triangle, coef=bf16)");
  EXPECT_EQ(parse("dct_chop(transform=zfp, keep=2, block=4)").print(),
            "dct_chop(block=4, keep=2, transform=zfp)");
  EXPECT_EQ(parse("dct_chop|raw").print(), "dct_chop(keep=4) | raw");
}

TEST(CodecSpec, SpaceStandsAnywhereBetweenWords) {
  const CodecSpec wanted = parse("dct_chop(block=4, keep=2) | raw");
  EXPECT_EQ(parse("  dct_chop ( block = 4 , keep\t=\n2 )\r\n|raw() \t"), wanted);
  EXPECT_EQ(parse("dct_chop(block=4,keep=2)|raw"), wanted);
}

TEST(CodecSpec, EqualSpecsCompareEqual) {
  EXPECT_EQ(parse("dct_chop"), parse("dct_chop(keep=4, coef=f32)"));
  EXPECT_NE(parse("dct_chop"), parse("dct_chop(keep=5)"));
  EXPECT_NE(parse("dct_chop"), parse("dct_chop(coef=f16)"));
  EXPECT_NE(parse("raw"), parse("raw | raw"));
  EXPECT_NE(parse("raw | dct_chop"), parse("dct_chop | raw"));
  EXPECT_EQ(CodecSpec(), CodecSpec());
  EXPECT_EQ(CodecSpec().print(), "");
}

TEST(CodecSpec, LeadingZerosAreStillNumbers) {
  EXPECT_EQ(parse("dct_chop(keep=0004)"), parse("dct_chop(keep=4)"));
}

TEST(CodecSpec, AnUnknownCodecIsPointedAt) {
  EXPECT_EQ(mistake("dct_chip(keep=4)"),
            "[codec] unknown codec 'dct_chip'; did you mean 'dct_chop'?\n"
            "  dct_chip(keep=4)\n"
            "  ^^^^^^^^");
  EXPECT_EQ(mistake("raw | arw"),
            "[codec] unknown codec 'arw'; did you mean 'raw'?\n"
            "  raw | arw\n"
            "        ^^^");
  EXPECT_EQ(mistake("jpeg").find("[codec] unknown codec 'jpeg'; there are: raw, dct_chop"), 0u);
  EXPECT_EQ(mistake("RAW").find("[codec] unknown codec 'RAW'"), 0u);
}

TEST(CodecSpec, AnUnknownParameterIsPointedAt) {
  EXPECT_EQ(mistake("dct_chop(kep=4)"),
            "[codec] dct_chop has no parameter 'kep'; did you mean 'keep'?\n"
            "  dct_chop(kep=4)\n"
            "           ^^^");
  EXPECT_EQ(mistake("dct_chop(quality=4)"),
            "[codec] dct_chop has no parameter 'quality'; there are: block, keep, shape, coef, "
            "transform, serialize, order\n"
            "  dct_chop(quality=4)\n"
            "           ^^^^^^^");
  EXPECT_EQ(mistake("raw(keep=4)"),
            "[codec] raw has no parameters\n"
            "  raw(keep=4)\n"
            "      ^^^^");
}

TEST(CodecSpec, ValuesOutOfRangeArePointedAt) {
  EXPECT_EQ(mistake("dct_chop(keep=0)"),
            "[codec] keep must be a whole number 1..16, got '0'\n"
            "  dct_chop(keep=0)\n"
            "                ^");
  for (const char* value : {"17", "-1", "99999999999999999999", "-99999999999999999999", "four",
                            "4x", "0x4", "-", "--4"}) {
    const std::string text = "dct_chop(keep=" + std::string(value) + ")";
    EXPECT_EQ(mistake(text).find("[codec] "), 0u) << value;
    EXPECT_NE(mistake(text).find("\n  " + text + "\n                "), std::string::npos) << value;
  }
  EXPECT_EQ(mistake("dct_chop(coef=f61)"),
            "[codec] coef must be one of f32, f16, bf16, got 'f61'; did you mean 'f16'?\n"
            "  dct_chop(coef=f61)\n"
            "                ^^^");
  EXPECT_EQ(mistake("dct_chop(shape=7)"),
            "[codec] shape must be one of square, triangle, got '7'\n"
            "  dct_chop(shape=7)\n"
            "                 ^");
}

TEST(CodecSpec, RulesBetweenParametersPointAtTheOneGiven) {
  EXPECT_EQ(mistake("dct_chop(keep=9)"),
            "[codec] keep must be 1..8 for block=8, got 9\n"
            "  dct_chop(keep=9)\n"
            "                ^");
  EXPECT_EQ(mistake("dct_chop(keep=4, block=7)"),
            "[codec] block must be 4, 8 or 16, got 7\n"
            "  dct_chop(keep=4, block=7)\n"
            "                         ^");
  EXPECT_EQ(mistake("dct_chop(transform=zfp)"),
            "[codec] transform=zfp needs block=4, got block=8\n"
            "  dct_chop(transform=zfp)\n"
            "                     ^^^");
  EXPECT_EQ(parse("dct_chop(block=4)").print(), "dct_chop(block=4, keep=4)");
  EXPECT_EQ(parse("dct_chop(keep=16, block=16)").print(), "dct_chop(block=16, keep=16)");
}

TEST(CodecSpec, AParameterGivenTwiceIsPointedAt) {
  EXPECT_EQ(mistake("dct_chop(keep=4, keep=4)"),
            "[codec] keep is given twice\n"
            "  dct_chop(keep=4, keep=4)\n"
            "                   ^^^^");
}

TEST(CodecSpec, WhatIsMissingIsPointedAt) {
  struct Case {
    const char *text, *rule, *caret;
  };
  for (const Case& c : {
           Case{"", "expected the name of a codec", "^"},
           Case{"   ", "expected the name of a codec", "   ^"},
           Case{"|raw", "expected the name of a codec", "^"},
           Case{"raw |", "expected the name of a codec", "     ^"},
           Case{"raw | | raw", "expected the name of a codec", "      ^"},
           Case{"(keep=4)", "expected the name of a codec", "^"},
           Case{"9raw", "expected the name of a codec", "^"},
           Case{"raw raw", "expected '|' or the end of the spec", "    ^"},
           Case{"raw)", "expected '|' or the end of the spec", "   ^"},
           Case{"raw(", "expected the name of a parameter", "    ^"},
           Case{"dct_chop(keep", "expected '=' after keep", "             ^"},
           Case{"dct_chop(keep 4)", "expected '=' after keep", "              ^"},
           Case{"dct_chop(keep=", "expected a whole number", "              ^"},
           Case{"dct_chop(keep=)", "expected a whole number", "              ^"},
           Case{"dct_chop(coef=)", "expected a word", "              ^"},
           Case{"dct_chop(keep=4", "expected ',' or ')'", "               ^"},
           Case{"dct_chop(keep=4 coef=f16)", "expected ',' or ')'", "                ^"},
           Case{"dct_chop(keep=4,)", "expected the name of a parameter", "                ^"},
           Case{"dct_chop(,keep=4)", "expected the name of a parameter", "         ^"},
           Case{"dct_chop(keep==4)", "expected a whole number", "              ^"},
       }) {
    EXPECT_EQ(mistake(c.text),
              "[codec] " + std::string(c.rule) + "\n  " + c.text + "\n  " + c.caret);
  }
}

TEST(CodecSpec, BytesThatAreNoTextAreShownAsQuestionMarks) {
  EXPECT_EQ(mistake("raw\xc3\xa9"),
            "[codec] expected '|' or the end of the spec\n"
            "  raw??\n"
            "     ^");
  EXPECT_EQ(mistake(std::string_view("raw\0", 4)),
            "[codec] expected '|' or the end of the spec\n"
            "  raw?\n"
            "     ^");
  EXPECT_EQ(mistake("dct_chop(keep=\xe2\x88\x9e)"),
            "[codec] expected a whole number\n"
            "  dct_chop(keep=???"
            ")\n"
            "                ^");
}

TEST(CodecSpec, LongTextsAreRefusedBriefly) {
  EXPECT_EQ(mistake(std::string(5000, 'a')),
            "[codec] a spec has at most 4096 characters, got 5000");
  EXPECT_LT(mistake(std::string(4000, 'a')).size(), 500u);
  EXPECT_LT(mistake("dct_chop(" + std::string(4000, 'k') + "=1)").size(), 500u);
  EXPECT_LT(mistake("dct_chop(coef=" + std::string(4000, 'f') + ")").size(), 500u);
  EXPECT_EQ(parse(std::string(4000, ' ') + "raw"), parse("raw"));
}

TEST(CodecSpec, ChainsHaveAtMostEightCodecs) {
  std::string text = "raw";
  for (int i = 1; i < 8; ++i) text += " | raw";
  EXPECT_EQ(parse(text).print(), text);
  EXPECT_EQ(mistake(text + " | raw").find("[codec] a chain has at most 8 codecs\n"), 0u);
}

TEST(CodecSpec, AnEmptySpecIsInvalidToUse) {
  const CodecSpec empty;
  try {
    layout(empty, DType::F32, {8, 8});
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::InvalidArgument);
    EXPECT_STREQ(error.what(), "[layout] the spec is empty; make one with CodecSpec::parse");
  }
}

}  // namespace
}  // namespace tuckfold
