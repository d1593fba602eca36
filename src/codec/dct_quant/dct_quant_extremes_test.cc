// dct_quant at its limits: values that are not finite, huge, equal or subnormal, headers that do not
// fit, offset and clamp.
#include <cstring>
#include <numbers>

#include "codec/dct_quant/dct_quant_block.h"
#include "codec/dct_quant/dct_quant_fixture.h"
#include "tuckfold/error.h"

namespace tuckfold {
namespace {

using namespace dct_quant_fixture;

// ---- extremes -----------------------------------------------------------------------------------

TEST(DctQuant, ABlockThatIsNotFiniteComesBackNanAndLeavesOthersAlone) {
  const std::vector<float> clean = random_values(5 * 64, -1, 1);
  for (const double rate : {1.0, 2.5, 8.0, 11.0}) {
    const std::vector<float> wanted =
        pack_values(spec_text(rate), clean, row_of_blocks(5)).unpack();
    for (const float bad : {std::nanf(""), -std::nanf(""), kInf, -kInf}) {
      for (int place = 0; place < 64; place += 9) {
        std::vector<float> values = clean;
        values[at(5, 2, place)] = bad;
        const std::vector<float> got =
            pack_values(spec_text(rate), values, row_of_blocks(5)).unpack();
        for (std::int64_t b = 0; b < 5; ++b) {
          for (int i = 0; i < 64; ++i) {
            const std::size_t j = at(5, b, i);
            ASSERT_TRUE(b == 2 ? std::isnan(got[j]) : got[j] == wanted[j]);
          }
        }
      }
    }
  }
}

TEST(DctQuant, HugeValuesComeBackInSightOrAsNan) {
  const std::vector<float> noise = random_values(64, -1, 1);
  for (const double rate : {8.0, 12.0, 16.0}) {
    for (int kind = 0; kind < 4; ++kind) {
      for (int eighths = 8 * 100; eighths <= 8 * 128; ++eighths) {
        const double scale = std::min(std::exp2(eighths / 8.0), double{kMax});
        std::vector<float> values;
        for (int i = 0; i < 64; ++i) {
          const double sign = (i / 8 + i % 8) % 2 == 0 ? 1 : -1;
          const double one[] = {1, sign, noise[static_cast<std::size_t>(i)], i == 27 ? 1.0 : 0.0};
          values.push_back(static_cast<float>(scale * one[kind]));
        }
        const std::vector<float> got = pack_values(spec_text(rate), values, {8, 8}).unpack();
        const bool lost = std::isnan(got[0]);
        for (std::size_t i = 0; i < 64; ++i) {
          ASSERT_EQ(std::isnan(got[i]), lost);
          if (!lost) {
            ASSERT_NEAR(got[i] / scale, values[i] / scale, 0.06) << rate << ' ' << kind;
          }
        }
        // Sums of 64 values, some times about 5 or 25, must stay finite.
        if (scale < 0x1p118) {
          ASSERT_FALSE(lost) << rate << ' ' << kind << ' ' << scale;
        }
        if (scale > 0x1p122 && kind == 0) {
          ASSERT_TRUE(lost);
        }
      }
    }
  }
}

TEST(DctQuant, ZerosComeBackAsZeros) {
  std::vector<float> values = random_values(3 * 64, -1, 1);
  for (int i = 0; i < 64; ++i) values[at(3, 1, i)] = i % 2 == 0 ? 0.0f : -0.0f;
  for_each_rate([&](double rate, int dc) {
    const std::vector<float> got =
        pack_values(spec_text(rate, dc), values, row_of_blocks(3)).unpack();
    for (int i = 0; i < 64; ++i) ASSERT_EQ(got[at(3, 1, i)], 0.0f);
  });
}

TEST(DctQuant, EqualValuesComeBackWithinTheirStep) {
  for_each_rate([](double rate, int dc) {
    const Rules rules(rate, dc);
    for (const float value : {1.0f, -1.0f, 3.14159f, 1e-20f, -65504.0f, 1e30f}) {
      Packed packed = pack_values(spec_text(rate, dc), std::vector<float>(64, value), {8, 8});
      ASSERT_NO_FATAL_FAILURE(
          expect_within_steps(rules, packed.block(0), std::vector<float>(64, value).data(), 8));
      const double most = rate < 4 ? (dc == 4 ? 0x1p-4 : 0x1p-8) : (dc == 4 ? 0x1p-11 : 0x1p-15);
      for (const float got : packed.unpack()) ASSERT_NEAR(got / value, 1, most);
    }
  });
}

TEST(DctQuant, SubnormalsComeBackWithinTheLeastStep) {
  for_each_rate(
      [](double rate, int dc) {
        for (const float scale : {1e-45f, 1e-40f, 1e-38f, 1e-35f, 1e-33f}) {
          std::vector<float> values = random_values(64, -1, 1);
          for (float& value : values) value *= scale;
          const std::vector<float> got = pack_values(spec_text(rate, dc), values, {8, 8}).unpack();
          for (std::size_t i = 0; i < 64; ++i) ASSERT_NEAR(got[i], values[i], 8 * 0x1p-107);
        }
      },
      7);
}

TEST(DctQuant, SteepSpectraReachTheLargestWidth) {
  for (const double rate : {5.0, 8.0, 9.0, 12.0, 16.0}) {
    const Rules rules(rate, 8);
    // A cosine along each side: two values of tile 0, nothing else.
    std::vector<float> values;
    for (int i = 0; i < 64; ++i) {
      values.push_back(static_cast<float>(std::cos(std::numbers::pi * (2 * (i / 8) + 1) / 16) +
                                          std::cos(std::numbers::pi * (2 * (i % 8) + 1) / 16)));
    }
    Packed packed = pack_values(spec_text(rate), values, {8, 8});
    const Header header = dct_quant_ref::read_header(rules, packed.block(0));
    EXPECT_EQ(header.widths[0], rules.max_width) << rate;
    expect_within_steps(rules, packed.block(0), values.data(), 8);
    const std::vector<float> got = packed.unpack();
    for (std::size_t i = 0; i < 64; ++i) {
      EXPECT_NEAR(got[i], values[i], 4 * dct_quant_ref::step_size(header.step)) << rate;
    }
  }
}

TEST(DctQuant, RatesTooLowForABandLeaveItOut) {
  for (int eighths = 8; eighths < 22; ++eighths) {
    const Rules rules(eighths / 8.0, 8);
    ASSERT_LT(rules.tiles, 16);
    // The highest frequencies alone are nothing at such a rate.
    std::vector<float> values;
    for (int i = 0; i < 64; ++i) {
      values.push_back(static_cast<float>(std::cos(std::numbers::pi * (2 * (i / 8) + 1) * 7 / 16) *
                                          std::cos(std::numbers::pi * (2 * (i % 8) + 1) * 7 / 16)));
    }
    for (const float got : pack_values(spec_text(eighths / 8.0), values, {8, 8}).unpack()) {
      EXPECT_LT(std::abs(got), 1e-5f);
    }
  }
}

// A coefficient just below 2^e (1 + m/4) is the largest that its width holds: the product with the
// step's inverse must not round up to the next whole number, which would come back negative.
TEST(DctQuant, TheLastNumberBelowALevelKeepsItsSign) {
  for (const int place : {1, 8, 9}) {
    for (const float level : {2.0f, 2.5f, 3.0f, 3.5f}) {
      int hits = 0;
      for (int ulps = -64; ulps < 64; ++ulps) {
        const float amplitude =
            float_of(bits_of(level) + static_cast<std::uint32_t>(ulps)) / (place == 9 ? 4 : 1);
        float x[64], z[64];
        for (int i = 0; i < 64; ++i) {
          const double u = place / 8 * std::numbers::pi / 16, v = place % 8 * std::numbers::pi / 16;
          const double scale = place == 9 ? 1 : std::sqrt(1 / 32.0);
          x[i] = amplitude * static_cast<float>(scale * std::cos((2 * (i / 8) + 1) * u) *
                                                std::cos((2 * (i % 8) + 1) * v));
        }
        dct_quant::forward(x, z);
        hits += bits_of(z[place]) + 1 == bits_of(level);
        for (int bytes = 8; bytes <= 128; bytes += 5) {
          const dct_quant::Form form = dct_quant::Form::of(bytes, 8);
          std::uint8_t packed[128];
          float back[64], again[64];
          dct_quant::pack_block(form, x, packed);
          dct_quant::unpack_block(form, packed, back);
          dct_quant::forward(back, again);
          ASSERT_NEAR(again[place], z[place], 0.3) << level << ' ' << ulps << ' ' << bytes;
        }
      }
      if (level == 3.5f) {  // whose step's inverse is rounded up the most
        EXPECT_GT(hits, 0) << place;
      }
    }
  }
}

// ---- headers that do not fit --------------------------------------------------------------------

TEST(DctQuant, HeadersThatDoNotFitUnpackToNan) {
  for_each_rate([](double rate, int dc) {
    const Rules rules(rate, dc);
    const dct_quant::Form form = dct_quant::Form::of(rules.bytes, dc);
    const auto expect_nan = [&](Header header, const char* why) {
      std::vector<std::uint8_t> block(static_cast<std::size_t>(rules.bytes), 0x5a);
      header.widths.resize(static_cast<std::size_t>(rules.tiles), header.widths.back());
      dct_quant_ref::write_header(rules, header, block.data());
      ASSERT_FALSE(dct_quant_ref::read_header(rules, block.data()).fits) << why;
      float x[64];
      dct_quant::unpack_block(form, block.data(), x);
      for (const float value : x) ASSERT_TRUE(std::isnan(value)) << why;
      Packed packed{CodecSpec::parse(spec_text(rate, dc)), {8, 8}, {}};
      packed.bytes.resize(block.size());
      std::memcpy(packed.bytes.data(), block.data(), block.size());
      for (const float value : packed.unpack()) ASSERT_TRUE(std::isnan(value)) << why;
    };
    // Widths that fit every rate: the first tile has what it must, the next ones less and less.
    std::vector<int> least = {rules.bias};
    while (static_cast<int>(least.size()) < rules.tiles) {
      least.push_back(std::max(0, least.back() - 2));
    }
    for (const int step : {1020, 1021, 1022, 1023}) expect_nan({step, least}, "no finite step");
    for (const int step : {1, 40, 79}) expect_nan({step, least}, "below the least step");
    if (rules.bias == 0) expect_nan({0, least}, "no step");
    std::vector<int> negative = least;
    negative.back() = -1;
    if (rules.bias == 0) expect_nan({500, negative}, "a negative width");
    expect_nan({500, {rules.bias + 15, rules.bias + 16}}, "more bits than there are");
    if (rules.bias + 15 > rules.max_width) {
      std::vector<int> steep = {rules.bias + 15};
      while (static_cast<int>(steep.size()) < rules.tiles) {
        steep.push_back(std::max(0, steep.back() - 2));
      }
      expect_nan({500, steep}, "a width beyond the largest");
    }
  });
}

// ---- offset and clamp ---------------------------------------------------------------------------

TEST(DctQuant, AnOffsetIsTakenAwayAndAddedAgain) {
  std::vector<float> values = smooth_values(16, 32);
  for (const float offset : {-300.0f, 0.5f, 1000.0f}) {
    std::vector<float> moved = values, moved_back = values;
    for (std::size_t i = 0; i < values.size(); ++i) {
      moved[i] = values[i] + offset;
      moved_back[i] = moved[i] - offset;
    }
    for (const double rate : {1.0, 4.0, 12.0}) {
      const std::string more = fmt::format(", offset={}", offset);
      const Packed with = pack_values(spec_text(rate, 4, more.c_str()), moved, {16, 32});
      const Packed without = pack_values(spec_text(rate, 4), moved_back, {16, 32});
      EXPECT_EQ(with.bytes, without.bytes);
      const std::vector<float> got = with.unpack(), wanted = without.unpack();
      for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(got[i], wanted[i] + offset);
    }
  }
}

TEST(DctQuant, ClampingLeavesNothingNegativeAndKeepsNan) {
  std::vector<float> values = random_values(40 * 64, -1, 1);
  for (float& value : values) value = std::max(value, 0.0f);
  values[at(40, 3, 5)] = std::nanf("");
  for (const char* more : {"", ", offset=0.25", ", offset=-3"}) {
    for (const double rate : {1.0, 3.0, 8.0, 10.0}) {
      const std::string clamp = fmt::format("{}, clamp=zero", more);
      const Packed plain = pack_values(spec_text(rate, 8, more), values, row_of_blocks(40));
      const Packed clamped =
          pack_values(spec_text(rate, 8, clamp.c_str()), values, row_of_blocks(40));
      EXPECT_EQ(plain.bytes, clamped.bytes);
      const std::vector<float> wanted = plain.unpack(), got = clamped.unpack();
      int negative = 0;
      for (std::size_t i = 0; i < values.size(); ++i) {
        negative += wanted[i] < 0;
        ASSERT_EQ(std::isnan(got[i]), std::isnan(wanted[i]));
        if (!std::isnan(got[i])) {
          ASSERT_EQ(got[i], std::max(wanted[i], 0.0f));
        }
      }
      EXPECT_GT(negative, 100) << "there was nothing to clamp";
    }
  }
}

}  // namespace
}  // namespace tuckfold
