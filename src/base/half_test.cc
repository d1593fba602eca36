// f16 and bf16: every bit pattern, and rounding against the definition in double.
#include "base/half.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

namespace tuckfold {
namespace {

// A narrow format by its definition: values are multiples of 2^(exponent - fraction bits), the
// exponent never below that of the smallest normal number.
struct Format {
  int fraction_bits, min_exponent, max_exponent;

  double quantum(double value) const {
    const int exponent = value == 0 ? min_exponent : std::max(std::ilogb(value), min_exponent);
    return std::ldexp(1.0, exponent - fraction_bits);
  }
  // `round` takes a multiple of the quantum to a whole number. Past the range there is infinity.
  double rounded(double value, double (*round)(double)) const {
    const double result = round(value / quantum(value)) * quantum(value);
    const double limit = std::ldexp(2.0, max_exponent);
    return std::abs(result) < limit ? result
                                    : std::copysign(std::numeric_limits<double>::infinity(), value);
  }
};
constexpr Format kF16 = {10, -14, 15};
constexpr Format kBF16 = {7, -126, 127};

double nearest_even(double value) { return std::nearbyint(value); }
double down(double value) { return std::floor(value); }
double up(double value) { return std::ceil(value); }

// Every exponent with mantissas at and around the places where rounding turns.
std::vector<float> corner_cases() {
  std::vector<std::uint32_t> mantissas = {0, 1, 0x7fffff, 0x7ffffe, 0x555555, 0x2aaaaa, 0x400000};
  for (int bit = 0; bit < 23; ++bit) {
    for (const std::uint32_t base : {0u, 1u << bit, 3u << bit, 5u << bit, 0x7fffffu << bit}) {
      for (const std::uint32_t delta : {0u, 1u, ~0u}) {
        mantissas.push_back((base + delta) & 0x7fffffu);
      }
    }
  }
  std::vector<float> values;
  for (std::uint32_t exponent = 0; exponent < 255; ++exponent) {
    for (const std::uint32_t mantissa : mantissas) {
      values.push_back(float_of(exponent << 23 | mantissa));
      values.push_back(-values.back());
    }
  }
  values.push_back(std::numeric_limits<float>::infinity());
  values.push_back(-values.back());
  return values;
}

// Equal as numbers and in the sign of zero.
::testing::AssertionResult same(double got, double wanted, float from) {
  if (got == wanted && std::signbit(got) == std::signbit(wanted)) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure() << from << " became " << got << ", not " << wanted;
}

template <class Narrow>
void expect_every_pattern_round_trips(Narrow (*narrow)(float), std::uint16_t inf,
                                      std::uint16_t quiet) {
  for (std::uint32_t pattern = 0; pattern < 0x10000; ++pattern) {
    const Narrow value{static_cast<std::uint16_t>(pattern)};
    const auto sign = static_cast<std::uint16_t>(pattern & 0x8000);
    const bool nan = (pattern & 0x7fff) > inf;
    ASSERT_EQ(std::isnan(to_float(value)), nan) << pattern;
    ASSERT_EQ(narrow(to_float(value)).bits, nan ? sign | quiet : pattern) << pattern;
  }
}

TEST(Half, EveryF16RoundTrips) { expect_every_pattern_round_trips<F16>(to_f16, 0x7c00, 0x7e00); }

TEST(Half, EveryBF16RoundTrips) { expect_every_pattern_round_trips<BF16>(to_bf16, 0x7f80, 0x7fc0); }

TEST(Half, F16MeansWhatItsBitsSay) {
  for (std::uint32_t pattern = 0; pattern < 0x7c00; ++pattern) {
    const int exponent = static_cast<int>(pattern >> 10);
    const double fraction = static_cast<double>(pattern & 0x3ff) / 1024;
    const double value =
        exponent == 0 ? std::ldexp(fraction, -14) : std::ldexp(1 + fraction, exponent - 15);
    ASSERT_EQ(to_float(F16{static_cast<std::uint16_t>(pattern)}), value) << pattern;
    ASSERT_EQ(to_float(F16{static_cast<std::uint16_t>(pattern | 0x8000)}), -value) << pattern;
  }
  EXPECT_EQ(to_float(F16{0x7c00}), std::numeric_limits<float>::infinity());
  EXPECT_EQ(to_float(F16{0xfc00}), -std::numeric_limits<float>::infinity());
}

TEST(Half, RoundsToTheNearestAndTiesToEven) {
  for (const float value : corner_cases()) {
    if (std::isinf(value)) {
      ASSERT_EQ(to_float(to_f16(value)), value);
      ASSERT_EQ(to_float(to_bf16(value)), value);
      continue;
    }
    ASSERT_TRUE(same(to_float(to_f16(value)), kF16.rounded(value, nearest_even), value));
    ASSERT_TRUE(same(to_float(to_bf16(value)), kBF16.rounded(value, nearest_even), value));
  }
}

TEST(Half, EveryMidpointOfNeighboursGoesToTheEvenOne) {
  for (std::uint32_t pattern = 0; pattern < 0x7bff; ++pattern) {
    const float low = to_float(F16{static_cast<std::uint16_t>(pattern)});
    const float high = to_float(F16{static_cast<std::uint16_t>(pattern + 1)});
    const float middle = 0.5f * low + 0.5f * high;
    ASSERT_EQ(to_f16(middle).bits, pattern + pattern % 2);
    ASSERT_EQ(to_f16(std::nextafter(middle, 0.0f)).bits, pattern);
    ASSERT_EQ(to_f16(std::nextafter(middle, high)).bits, pattern + 1);
  }
  EXPECT_EQ(to_f16(65519.996f).bits, 0x7bff);  // the last before infinity
  EXPECT_EQ(to_f16(65520.0f).bits, 0x7c00);
}

TEST(Half, DownAndUpEncloseTheValueAsTightlyAsBF16Can) {
  for (const float value : corner_cases()) {
    if (std::isinf(value)) continue;
    const float low = to_float(to_bf16_down(value)), high = to_float(to_bf16_up(value));
    ASSERT_LE(low, value);
    ASSERT_GE(high, value);
    ASSERT_EQ(low, kBF16.rounded(value, down)) << value;
    ASSERT_EQ(high, kBF16.rounded(value, up)) << value;
  }
}

TEST(Half, EveryNaNBecomesTheQuietOneOfItsSign) {
  for (const std::uint32_t sign : {0u, kSignBit}) {
    for (const std::uint32_t payload : {1u, 0x1fffu, 0x2000u, 0x400000u, 0x7fffffu, 0x400001u}) {
      const float nan = float_of(sign | kInfBits | payload);
      EXPECT_EQ(to_f16(nan).bits, (sign >> 16) | 0x7e00u) << payload;
      EXPECT_EQ(to_bf16(nan).bits, (sign >> 16) | 0x7fc0u) << payload;
    }
  }
  for (const unsigned pattern : {0x7c01u, 0x7dffu, 0x7e00u, 0x7fffu, 0xfc01u, 0xffffu}) {
    const std::uint32_t sign = (pattern & 0x8000u) << 16;
    EXPECT_EQ(bits_of(to_float(F16{static_cast<std::uint16_t>(pattern)})), sign | 0x7fc00000u)
        << pattern;
  }
}

}  // namespace
}  // namespace tuckfold
