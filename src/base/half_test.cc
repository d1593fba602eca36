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
                                      std::uint16_t canonical_nan) {
  for (std::uint32_t pattern = 0; pattern < 0x10000; ++pattern) {
    const Narrow value{static_cast<std::uint16_t>(pattern)};
    const bool nan = (pattern & 0x7fff) > inf;
    ASSERT_EQ(std::isnan(to_float(value)), nan) << pattern;
    ASSERT_EQ(narrow(to_float(value)).bits, nan ? canonical_nan : pattern) << pattern;
  }
}

TEST(Half, EveryF16RoundTrips) {
  expect_every_pattern_round_trips<F16>(to_f16, 0x7c00, 0x7e00);
  expect_every_pattern_round_trips<F16>(to_f16_saturated, 0x7c00, 0x7e00);
}

TEST(Half, EveryBF16RoundTrips) {
  expect_every_pattern_round_trips<BF16>(to_bf16, 0x7f80, 0x7fc0);
  expect_every_pattern_round_trips<BF16>(to_bf16_saturated, 0x7f80, 0x7fc0);
}

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

TEST(Half, EveryNaNBecomesTheCanonicalOne) {
  for (const std::uint32_t sign : {0u, kSignBit}) {
    for (const std::uint32_t payload : {1u, 0x1fffu, 0x2000u, 0x400000u, 0x7fffffu, 0x400001u}) {
      const float nan = float_of(sign | kInfBits | payload);
      EXPECT_EQ(bits_of(canonical(nan)), 0x7fc00000u) << payload;
      EXPECT_EQ(std::bit_cast<std::uint64_t>(to_f64(nan)), 0x7ff8000000000000u) << payload;
      for (const F16 half : {to_f16(nan), to_f16_saturated(nan)}) {
        EXPECT_EQ(half.bits, 0x7e00u) << payload;
      }
      for (const BF16 half : {to_bf16(nan), to_bf16_saturated(nan)}) {
        EXPECT_EQ(half.bits, 0x7fc0u) << payload;
      }
    }
  }
  for (const float value : {0.0f, -0.0f, 1.0f, -kMaxBF16, std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(bits_of(canonical(value)), bits_of(value));
    EXPECT_EQ(to_f64(value), value);
  }
}

// Saturated, a finite number becomes a finite one; up to the largest nothing else changes.
TEST(Half, SaturatingKeepsFiniteNumbersFinite) {
  for (const float value : corner_cases()) {
    const F16 half = to_f16_saturated(value);
    const BF16 brain = to_bf16_saturated(value);
    const bool f16_fits = std::isinf(value) || std::abs(value) <= kMaxF16;
    const bool bf16_fits = std::isinf(value) || std::abs(value) <= kMaxBF16;
    ASSERT_EQ(to_float(half), f16_fits ? to_float(to_f16(value)) : std::copysign(kMaxF16, value))
        << value;
    ASSERT_EQ(to_float(brain),
              bf16_fits ? to_float(to_bf16(value)) : std::copysign(kMaxBF16, value))
        << value;
    // The same from what an instruction gives.
    ASSERT_EQ(detail::saturated(to_f16(value).bits, value, 0x7c00, kF16Nan), half.bits) << value;
    ASSERT_EQ(detail::saturated(to_bf16(value).bits, value, 0x7f80, kBF16Nan), brain.bits) << value;
  }
  for (const float nan : {float_of(kNanBits), float_of(0xff800001u)}) {
    EXPECT_EQ(detail::saturated(0x7fff, nan, 0x7c00, kF16Nan), kF16Nan);
    EXPECT_EQ(detail::saturated(0x7fff, nan, 0x7f80, kBF16Nan), kBF16Nan);
  }
}

TEST(Half, FiniteF64BecomesFiniteF32) {
  constexpr double kMost = std::numeric_limits<float>::max();
  for (const double sign : {1.0, -1.0}) {
    for (const double huge : {kMost, std::nextafter(kMost, HUGE_VAL), kMost * 1.1, 1e300,
                              std::numeric_limits<double>::max()}) {
      EXPECT_EQ(to_f32_saturated(sign * huge), sign * kMost) << huge;
    }
    EXPECT_EQ(to_f32_saturated(sign * HUGE_VAL), sign * HUGE_VAL);
    EXPECT_EQ(to_f32_saturated(sign * (1.0 + 0x1p-24)), sign);
    EXPECT_EQ(std::signbit(to_f32_saturated(sign * 1e-60)), sign < 0);
  }
  EXPECT_TRUE(std::isnan(to_f32_saturated(std::nan(""))));
}

}  // namespace
}  // namespace tuckfold
