// SSIM against its definition, on planes of every small size and on hostile values.
#include "cli/quality/ssim.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "cli/quality/ssim_ref.h"

namespace tuckfold::cli {
namespace {

struct Pair {
  std::vector<double> original, result;
};

Pair noisy(std::int64_t height, std::int64_t width, double low, double range, double noise) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> unit(0, 1);
  Pair pair;
  for (std::int64_t i = 0; i < height * width; ++i) {
    pair.original.push_back(low + range * unit(random));
    pair.result.push_back(pair.original.back() + noise * range * (unit(random) - 0.5));
  }
  return pair;
}

SsimSum ssim_of(const Pair& pair, std::int64_t height, std::int64_t width, const SsimScale& scale) {
  return Ssim(height, width, scale).run([&](std::int64_t y, double* original, double* result) {
    std::copy_n(pair.original.begin() + y * width, width, original);
    std::copy_n(pair.result.begin() + y * width, width, result);
  });
}

TEST(Ssim, IsTheDefinitionForPlanesOfEverySize) {
  for (std::int64_t height = 1; height <= 24; ++height) {
    for (const std::int64_t width : {1, 2, 3, 10, 11, 12, 13, 31}) {
      const Pair pair = noisy(height, width, 0, 255, 0.3);
      const double want = ref::ssim(pair.original, pair.result, height, width, 255);
      EXPECT_NEAR(*ssim_of(pair, height, width, {}).mean(), want, 1e-12) << height << "x" << width;
    }
  }
}

TEST(Ssim, CountsTheWindowsInsideOfThePlane) {
  EXPECT_EQ(ssim_of(noisy(32, 20, 0, 1, 0), 32, 20, {0, 1}).windows, 22 * 10);
  EXPECT_EQ(ssim_of(noisy(6, 4, 0, 1, 0), 6, 4, {0, 1}).windows, 2 * 2);
}

TEST(Ssim, OfEqualPlanesIsExactlyOne) {
  for (const double low : {0.0, -3.0, 1e12}) {
    EXPECT_EQ(*ssim_of(noisy(16, 16, low, 2, 0), 16, 16, {low, 2}).mean(), 1.0);
  }
  const Pair flat{std::vector<double>(256, 5), std::vector<double>(256, 5)};
  EXPECT_EQ(*ssim_of(flat, 16, 16, {}).mean(), 1.0);
}

TEST(Ssim, KeepsItsDigitsFarFromZero) {
  const double low = 3e5, range = 0.5;
  const Pair pair = noisy(20, 20, low, range, 0.2);
  const double want = ref::ssim(pair.original, pair.result, 20, 20, range);
  EXPECT_NEAR(*ssim_of(pair, 20, 20, {low, range}).mean(), want, 1e-8);
}

TEST(Ssim, LeavesOutWindowsOverNanAndInfinity) {
  for (const double odd : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    Pair pair = noisy(12, 30, 0, 1, 0.1);
    pair.original[5 * 30 + 0] = pair.result[5 * 30 + 0] = odd;
    const SsimSum sum = ssim_of(pair, 12, 30, {0, 1});
    EXPECT_EQ(sum.windows, 2 * 19);  // of 20 in each row the first has it
    EXPECT_TRUE(std::isfinite(*sum.mean()));
  }
  const Pair none{std::vector<double>(4, std::nan("")), std::vector<double>(4, 0)};
  EXPECT_FALSE(ssim_of(none, 2, 2, {}).mean().has_value());
}

TEST(Ssim, OfValuesFarAwayIsNearZeroAndFinite) {
  Pair pair = noisy(16, 16, 0, 1, 0);
  for (double& value : pair.result) value = 1e300 - value;
  pair.result[3] = -1e308;
  const std::optional<double> mean = ssim_of(pair, 16, 16, {0, 1}).mean();
  ASSERT_TRUE(mean.has_value());
  EXPECT_NEAR(*mean, 0, 1e-6);
}

TEST(Planes, AreTheLastTwoAxesOrChannelsBehindThem) {
  const Planes colour = Planes::of({3, 32, 20});
  EXPECT_EQ(colour.count, 3);
  EXPECT_EQ(colour.offset(2), 2 * 32 * 20);
  const Planes last = Planes::of({32, 20, 3});
  EXPECT_EQ(last.count, 3);
  EXPECT_EQ(last.height, 32);
  EXPECT_EQ(last.width, 20);
  EXPECT_EQ(last.offset(2), 2);
  const Planes many = Planes::of({4, 13, 8, 9});
  EXPECT_EQ(many.count, 52);
  EXPECT_EQ(many.offset(51), 51 * 72);
  const Planes movie = Planes::of({5, 32, 20, 3});
  EXPECT_EQ(movie.count, 15);
  EXPECT_EQ(movie.offset(4), 32 * 20 * 3 + 1);
}

}  // namespace
}  // namespace tuckfold::cli
