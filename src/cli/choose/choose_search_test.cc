// Choosing a codec: the trial part, the ladders, and what is found on them.
#include "cli/choose/choose_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "cli/choose/trial_part.h"
#include "tuckfold/error.h"

namespace tuckfold::cli {
namespace {

using Kind = Target::Kind;

constexpr Target kTargets[] = {{Kind::Psnr, 40}, {Kind::Ratio, 6}, {Kind::MaxError, 0.02}};

float* floats(const Array& array) { return reinterpret_cast<float*>(array.values.data()); }

// Values 0, 1, 2 …
Array numbered(const Shape& shape) {
  Array array{.name = "numbered",
              .stored = "f32",
              .stored_bytes = static_cast<std::size_t>(shape.elems()) * 4,
              .dtype = DType::F32,
              .shape = shape,
              .values = HugeBuffer(static_cast<std::size_t>(shape.elems()) * 4)};
  for (std::int64_t i = 0; i < shape.elems(); ++i) floats(array)[i] = static_cast<float>(i);
  return array;
}

Array picture() { return make_array("4x3x48x64", ReadAs::Default); }

Choice choose_for(const Array& array, const Target& target) {
  return choose(array, target, {.measure_seconds = 0});
}

// ---- the trial part

TEST(TrialPart, AnArrayThatIsSmallEnoughIsTakenWhole) {
  const Array array = numbered({3, 5, 9, 11});
  const Array part = trial_part_of(array, 3 * 5 * 9 * 11);
  EXPECT_EQ(part.shape, array.shape);
  EXPECT_EQ(part.stored_bytes, array.stored_bytes);
  for (std::int64_t i = 0; i < array.shape.elems(); ++i) {
    ASSERT_EQ(floats(part)[i], floats(array)[i]);
  }
}

TEST(TrialPart, PlanesAreWholeDifferentAndOfEveryChannel) {
  const Array array = numbered({100, 3, 8, 10});
  const Array part = trial_part_of(array, 60 * 80 + 79);
  ASSERT_EQ(part.shape, (Shape{60, 8, 10}));
  EXPECT_EQ(part.stored_bytes, 60u * 80 * 4);
  std::set<int> planes, channels;
  for (int p = 0; p < 60; ++p) {
    const int first = static_cast<int>(floats(part)[p * 80]);
    EXPECT_EQ(first % 80, 0);
    for (int i = 0; i < 80; ++i) ASSERT_EQ(floats(part)[p * 80 + i], static_cast<float>(first + i));
    EXPECT_TRUE(planes.empty() || first > *planes.rbegin());
    planes.insert(first);
    channels.insert(first / 80 % 3);
  }
  EXPECT_EQ(planes.size(), 60u);
  EXPECT_EQ(channels.size(), 3u);
  EXPECT_LT(*planes.begin(), 5 * 80);
  EXPECT_GE(*planes.rbegin(), 295 * 80);
}

TEST(TrialPart, ChannelsLastStayTogether) {
  EXPECT_EQ(trial_part_of(numbered({50, 16, 16, 3}), 10 * 768).shape, (Shape{10, 16, 16, 3}));
}

TEST(TrialPart, ALargeMatrixIsCutIntoBandsOfWholeBlocks) {
  const Array array = numbered({1001, 10});
  const Array part = trial_part_of(array, 2000);
  ASSERT_EQ(part.shape.rank(), 2u);
  EXPECT_EQ(part.shape[0] % 8, 0);
  EXPECT_EQ(part.shape[1], 10);
  EXPECT_LE(part.shape.elems(), 2000);
  EXPECT_GT(part.shape.elems(), 1000);
  for (std::int64_t row = 0; row < part.shape[0]; row += 8) {
    const auto first = static_cast<int>(floats(part)[row * 10]);
    EXPECT_EQ(first % 80, 0);  // a band begins where a block does
  }
}

TEST(TrialPart, AVectorIsCutIntoRuns) {
  const Array part = trial_part_of(numbered({1, 100000}), 1000);
  EXPECT_EQ(part.shape.rank(), 1u);
  EXPECT_LE(part.shape.elems(), 1000);
  EXPECT_GE(part.shape.elems(), 500);
}

TEST(TrialPart, OneValueIsEnough) {
  EXPECT_EQ(trial_part_of(numbered({40}), 1).shape, (Shape{8}));
  EXPECT_EQ(trial_part_of(numbered({}), 1).shape, Shape{});
}

// ---- the ladders

TEST(ChooseLadders, RungsOfAFixedSizeGrow) {
  const Array array = picture();
  for (const Target& target : kTargets) {
    for (const Ladder& ladder : ladders_for(facts_of(array), target)) {
      std::size_t last = 0;
      for (const CodecSpec& spec : ladder) {
        Layout fit;
        try {
          fit = layout(spec, array.dtype, array.shape);
        } catch (const Error&) {
          continue;
        }
        if (!fit.fixed) continue;
        EXPECT_GE(fit.max_bytes, last) << spec.print();
        last = fit.max_bytes;
      }
    }
  }
}

TEST(ChooseLadders, EveryCodecOfTheRegistryIsTried) {
  std::set<std::string_view> names;
  for (const Target& target : kTargets) {
    for (const Ladder& ladder : ladders_for({.low = 0, .high = 1, .mean = 0.5}, target)) {
      for (const Stage& stage : ladder.front().stages()) names.insert(stage.codec->name);
    }
  }
  for (const CodecInfo& codec : list_codecs()) {
    // The first keeps no values, the second needs to know the pooling: no target can ask for them.
    if (codec.name == "positive" || codec.name == "pool_index") continue;
    EXPECT_TRUE(names.contains(codec.name)) << codec.name;
  }
}

TEST(ChooseLadders, DctQuantIsToldOfValuesFarFromZeroAndOfZeros) {
  const auto first = [](const Facts& facts) {
    for (const Ladder& ladder : ladders_for(facts, {Kind::Psnr, 40})) {
      const std::string text = ladder.front().print();
      if (text.starts_with("dct_quant")) return text;
    }
    return std::string();
  };
  EXPECT_EQ(first({.low = 0, .high = 1, .mean = 0.5, .zeros = 0.1}), "dct_quant(rate=1, dc=4)");
  EXPECT_EQ(first({.low = 280, .high = 285, .mean = 282.3}), "dct_quant(rate=1, dc=4, offset=282)");
  EXPECT_EQ(first({.low = 0, .high = 1, .mean = 0.1, .zeros = 0.5}),
            "dct_quant(rate=1, dc=4, clamp=zero)");
}

TEST(ChooseLadders, FactsAreOfFiniteValues) {
  const Array array = numbered({6});
  floats(array)[1] = std::numeric_limits<float>::quiet_NaN();
  floats(array)[2] = -std::numeric_limits<float>::infinity();
  const Facts facts = facts_of(array);
  EXPECT_EQ(facts.low, 0);
  EXPECT_EQ(facts.high, 5);
  EXPECT_EQ(facts.mean, 3);
  EXPECT_EQ(facts.zeros, 1.0 / 6);
}

// ---- what is found

TEST(Choose, WhatIsChosenReachesTheTargetAndIsTheBestThatDoes) {
  const Array array = picture();
  for (const Target& target : kTargets) {
    const Choice choice = choose_for(array, target);
    const Report& best = choice.best.front().report;
    for (const Candidate& one : choice.tried) {
      if (!one.reaches) continue;
      const Quality& quality = one.report.quality;
      switch (target.kind) {
        case Kind::Psnr: EXPECT_GE(quality.psnr_db, target.value); break;
        case Kind::Ratio: EXPECT_GE(one.report.ratio, target.value); break;
        case Kind::MaxError: EXPECT_LE(quality.max_error, target.value); break;
      }
      if (target.kind == Kind::Ratio) {
        EXPECT_LE(quality.psnr_db, best.quality.psnr_db);
      } else {
        EXPECT_GE(one.report.packed_bytes, best.packed_bytes);
      }
    }
    EXPECT_TRUE(choice.best.front().reaches);
    EXPECT_EQ(choice.best.front().spec, choice.tried.front().spec);
  }
}

TEST(Choose, BisectionFindsWhatTryingEverythingFinds) {
  const Array array = picture();
  const HugeBuffer out(array.bytes());
  for (const Target& target : {Target{Kind::Psnr, 38}, Target{Kind::Ratio, 7}}) {
    const Choice choice = choose_for(array, target);
    for (const Ladder& ladder : ladders_for(facts_of(array), target)) {
      const CodecSpec& first = ladder.front();
      if (first.stages().size() != 1 || first.stages()[0].codec->name != "dct_quant") continue;
      const CodecSpec* wanted = nullptr;
      for (const CodecSpec& spec : ladder) {
        const auto bench_target = codec_target(spec, array, out, 1);
        const Report report = checked_report(*bench_target, array, out);
        if (target.kind == Kind::Ratio && report.ratio >= target.value) wanted = &spec;
        if (target.kind == Kind::Psnr && report.quality.psnr_db >= target.value) {
          wanted = &spec;
          break;
        }
      }
      ASSERT_NE(wanted, nullptr);
      EXPECT_TRUE(std::any_of(choice.tried.begin(), choice.tried.end(), [&](const Candidate& one) {
        return one.reaches && one.spec == *wanted;
      })) << wanted->print();
    }
  }
}

TEST(Choose, TheBestAreOneOfEachCodecAndHaveSpeeds) {
  const Choice choice = choose(picture(), {Kind::Psnr, 30}, {.finalists = 3, .measure_seconds = 0});
  ASSERT_EQ(choice.best.size(), 3u);
  std::set<std::string_view> names;
  for (const Candidate& one : choice.best) {
    names.insert(one.spec.stages()[0].codec->name);
    ASSERT_TRUE(one.report.speed);
    EXPECT_GT(one.report.speed->pack.best, 0);
  }
  EXPECT_EQ(names.size(), 3u);
}

TEST(Choose, TheFastestIsSmallerThanTheArrayWhereSomethingIs) {
  const Choice choice =
      choose(picture(), {Kind::Psnr, 30}, {.prefer = Prefer::Fastest, .measure_seconds = 0});
  EXPECT_GT(choice.best.front().report.ratio, 1);
  EXPECT_GT(choice.best.front().seconds, 0);
}

TEST(Choose, AnErrorOfZeroAsksForWhatIsExact) {
  const Choice choice = choose_for(picture(), {Kind::MaxError, 0});
  for (const Candidate& one : choice.best) EXPECT_TRUE(one.report.quality.exact());
}

TEST(Choose, NothingThatLosesValuesIsChosen) {
  const Array array = picture();
  for (std::int64_t i = 0; i < array.shape.elems(); i += 40) {
    floats(array)[i] = std::numeric_limits<float>::quiet_NaN();
  }
  for (const Target& target : {Target{Kind::Psnr, 10}, Target{Kind::Ratio, 1}}) {
    for (const Candidate& one : choose_for(array, target).best) {
      EXPECT_EQ(one.report.quality.lost, 0) << one.report.codec;
    }
  }
}

TEST(Choose, AnyArrayHasACodec) {
  Array constant = numbered({64, 64});
  std::fill_n(floats(constant), 4096, 7.0f);
  Array nan = numbered({64, 64});
  std::fill_n(floats(nan), 4096, std::numeric_limits<float>::quiet_NaN());
  Array wide = numbered({16, 16});
  floats(wide)[3] = std::numeric_limits<float>::max();
  floats(wide)[4] = -std::numeric_limits<float>::max();
  for (const Array* array : {&constant, &nan, &wide}) {
    for (const Target& target : {Target{Kind::Psnr, 60}, Target{Kind::MaxError, 1e-6}}) {
      EXPECT_FALSE(choose_for(*array, target).best.empty());
    }
  }
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{3, 3}, Shape{7, 1, 1}}) {
    EXPECT_FALSE(choose_for(numbered(shape), {Kind::Psnr, 60}).best.empty());
  }
  for (const char* text : {"16x16:f16", "16x16:bf16", "16x16:f64", "16x16:u8"}) {
    EXPECT_FALSE(choose_for(make_array(text, ReadAs::Stored), {Kind::Psnr, 30}).best.empty());
  }
}

TEST(Choose, WhatNothingReachesIsAnErrorThatNamesTheClosest) {
  try {
    choose_for(numbered({5}), {Kind::Ratio, 1000});
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::InvalidArgument);
    const std::string_view text = error.what();
    EXPECT_TRUE(
        text.starts_with("[choose] no codec reaches a ratio of 1000 on 'numbered'; closest is "));
    EXPECT_TRUE(text.ends_with("; ask for less")) << text;
  }
}

}  // namespace
}  // namespace tuckfold::cli
