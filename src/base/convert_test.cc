// Vectors of conversions give the bits of half.h, at every length and place.
#include "base/convert.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/target.h"

namespace tuckfold {
namespace {

template <class Narrow>
void expect_every_pattern() {
  std::vector<Narrow> in(0x10000);
  for (std::size_t i = 0; i < in.size(); ++i) in[i].bits = static_cast<std::uint16_t>(i);
  std::vector<float> out(in.size());
  to_floats(in.data(), static_cast<std::int64_t>(in.size()), out.data());
  for (std::size_t i = 0; i < in.size(); ++i) {
    ASSERT_EQ(bits_of(out[i]), bits_of(to_float(in[i]))) << i;
  }
}

// Every exponent and sign with mantissas around the places where rounding turns, and any others.
std::vector<float> floats() {
  std::vector<float> values;
  for (std::uint32_t top = 0; top < 0x200; ++top) {
    for (int bit = 0; bit < 23; ++bit) {
      for (const std::uint32_t delta : {0u, 1u, ~0u}) {
        values.push_back(float_of(top << 23 | (((1u << bit) + delta) & 0x7fffffu)));
        values.push_back(float_of(top << 23 | (((3u << bit) + delta) & 0x7fffffu)));
      }
    }
  }
  std::mt19937 random(5);
  for (int i = 0; i < 100000; ++i) values.push_back(float_of(static_cast<std::uint32_t>(random())));
  return values;
}

template <class Narrow>
void expect_every_rounding(Narrow (*narrow)(float)) {
  const std::vector<float> in = floats();
  std::vector<Narrow> out(in.size());
  from_floats(in.data(), static_cast<std::int64_t>(in.size()), out.data());
  for (std::size_t i = 0; i < in.size(); ++i) {
    ASSERT_EQ(out[i].bits, narrow(in[i]).bits) << std::hex << bits_of(in[i]);
  }
}

template <class Narrow>
void expect_every_length() {
  for (std::int64_t count = 0; count < 70; ++count) {
    const auto size = static_cast<std::size_t>(count);
    std::vector<Narrow> in(size + 2), back(size + 2, Narrow{0xabcd});
    for (std::size_t i = 0; i < in.size(); ++i) {
      in[i].bits = static_cast<std::uint16_t>(0x3c00 + 7 * i);
    }
    std::vector<float> out(size + 2, -77.0f);
    to_floats(in.data() + 1, count, out.data() + 1);
    from_floats(out.data() + 1, count, back.data() + 1);
    EXPECT_EQ(out[0], -77.0f);
    EXPECT_EQ(out[size + 1], -77.0f);
    EXPECT_EQ(back[0].bits, 0xabcd);
    EXPECT_EQ(back[size + 1].bits, 0xabcd);
    for (std::size_t i = 1; i <= size; ++i) {
      ASSERT_EQ(out[i], to_float(in[i]));
      ASSERT_EQ(back[i].bits, in[i].bits);
    }
  }
}

// Calls body for every SIMD target that this machine runs.
template <class Body>
void on_every_target(Body&& body) {
  choose_cpu_target();
  const std::vector<std::string> names = cpu_targets();
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    use_cpu_target(name);
    body();
  }
  use_cpu_target(names.front());
}

TEST(Convert, EveryPatternWidens) {
  on_every_target([] {
    expect_every_pattern<F16>();
    expect_every_pattern<BF16>();
  });
}

TEST(Convert, EveryRoundingIsThatOfOneValue) {
  on_every_target([] {
    expect_every_rounding<F16>(to_f16_saturated);
    expect_every_rounding<BF16>(to_bf16_saturated);
  });
}

template <class Whole>
void expect_every_whole() {
  constexpr std::size_t kValues = std::size_t{std::numeric_limits<Whole>::max()} + 1;
  std::vector<Whole> all(kValues), back(kValues);
  for (std::size_t i = 0; i < kValues; ++i) all[i] = static_cast<Whole>(i);
  std::vector<float> wide(kValues);
  to_floats(all.data(), static_cast<std::int64_t>(kValues), wide.data());
  for (std::size_t i = 0; i < kValues; ++i) ASSERT_EQ(wide[i], static_cast<float>(i));
  from_floats(wide.data(), static_cast<std::int64_t>(kValues), back.data());
  EXPECT_EQ(back, all);
  std::vector<float> in = floats();
  for (std::size_t i = 0; i < kValues; ++i) in.push_back(static_cast<float>(i) + 0.5f);
  std::vector<Whole> out(in.size());
  from_floats(in.data(), static_cast<std::int64_t>(in.size()), out.data());
  constexpr double kMost = std::numeric_limits<Whole>::max();
  for (std::size_t i = 0; i < in.size(); ++i) {
    // Its definition: nearest, ties to even, then the range.
    const double near = std::isnan(in[i]) ? 0 : std::nearbyint(std::clamp<double>(in[i], 0, kMost));
    ASSERT_EQ(out[i], static_cast<Whole>(near)) << in[i];
    ASSERT_EQ(out[i], to_whole<Whole>(in[i])) << in[i];
  }
  for (std::int64_t count = 0; count < 70; ++count) {
    std::vector<Whole> few(72, 99);
    from_floats(wide.data() + 1, count, few.data() + 1);
    ASSERT_EQ(few[0], 99);
    ASSERT_EQ(few[static_cast<std::size_t>(count) + 1], 99);
    for (std::int64_t i = 1; i <= count; ++i) ASSERT_EQ(few[static_cast<std::size_t>(i)], i);
  }
}

TEST(Convert, WholeNumbersAreRoundedToTheNearest) {
  on_every_target([] {
    expect_every_whole<std::uint8_t>();
    expect_every_whole<std::uint16_t>();
  });
}

void expect_every_f64() {
  std::vector<float> singles = floats();
  std::vector<double> doubles(singles.size());
  for (const bool only_finite : {false, true}) {
    if (only_finite) {
      for (float& value : singles) value = std::isfinite(value) ? value : 1.0f;
    }
    const auto count = static_cast<std::int64_t>(singles.size());
    from_floats(singles.data(), count, doubles.data());
    for (std::size_t i = 0; i < singles.size(); ++i) {
      const auto bits = std::bit_cast<std::uint64_t>(doubles[i]);
      ASSERT_EQ(bits, std::bit_cast<std::uint64_t>(to_f64(singles[i]))) << i;
    }
    if (!only_finite) doubles[7] = -1e300;
    doubles.back() = 1.0 + 0x1p-24;
    std::vector<float> back(singles.size());
    to_floats(doubles.data(), count, back.data());
    for (std::size_t i = 0; i < singles.size(); ++i) {
      ASSERT_EQ(bits_of(back[i]), bits_of(to_f32_saturated(doubles[i]))) << i;
    }
  }
}

TEST(Convert, RunsOfF64AreThoseOfOneValue) { on_every_target(expect_every_f64); }

TEST(Convert, EveryLengthWritesItsValuesAlone) {
  on_every_target([] {
    expect_every_length<F16>();
    expect_every_length<BF16>();
  });
}

}  // namespace
}  // namespace tuckfold
