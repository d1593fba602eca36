// Figures of diff: against sums worked out by hand, and on hostile values.
#include "cli/quality/difference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "container/dataset_fixture.h"

namespace tuckfold::cli {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");

Sums sums_of(const std::vector<double>& original, const std::vector<double>& result) {
  return compare_values(DType::F64, original.data(), DType::F64, result.data(),
                        std::ssize(original));
}

TEST(Difference, SumsAreThoseOfTheDefinition) {
  const Sums sums = sums_of({0, 10, 4}, {1, 10, 1});
  EXPECT_EQ(sums.max_error, 3);
  EXPECT_EQ(sums.squares, 10);
  EXPECT_EQ(sums.range(), 10);
  EXPECT_DOUBLE_EQ(sums.psnr_db(sums.range()), 10 * std::log10(100 / (10.0 / 3)));
  EXPECT_EQ(sums_of({1, 2}, {1, 2}).psnr_db(1), kInfinity);
}

TEST(Difference, TheLevelOfErrorsDoesNotDependOnTheScale) {
  const std::vector<double> original = {0, 10, 4, 7}, result = {1, 10, 1, 7 + 0x1p-30};
  const Sums as_is = sums_of(original, result);
  const double want = as_is.psnr_db(as_is.range());
  for (const double scale : {0x1p-1040, 0x1p-570, 0x1p-540, 0x1p-501, 0x1p-499, 0x1p499, 0x1p501,
                             0x1p530, 0x1p1000, 0x1p1020}) {
    std::vector<double> a, b;
    for (const double x : original) a.push_back(x * scale);
    for (const double x : result) b.push_back(x * scale);
    Sums sums = sums_of(a, b);
    EXPECT_NEAR(sums.psnr_db(sums.range()), want, 1e-9) << scale;
    sums.add(sums_of(a, a));
    EXPECT_NEAR(sums.psnr_db(sums.range()), want + 10 * std::log10(2.0), 1e-9) << scale;
  }
  const double most = std::numeric_limits<double>::max();
  const Sums wide = sums_of({-most, most, 0}, {-most, most / 2, 0});
  EXPECT_NEAR(wide.psnr_db(wide.range()), 20 * std::log10(4.0) + 10 * std::log10(3.0), 1e-9);
}

TEST(Difference, ValuesThatBecomeNanOrInfiniteAreLost) {
  const Sums sums = sums_of({1, 2, 3}, {kNan, 2, -kInfinity});
  EXPECT_EQ(sums.lost, 2);
  EXPECT_EQ(sums.finite, 3);
  EXPECT_TRUE(std::isnan(sums.psnr_db(2)));
}

TEST(Difference, WhatIsNotFiniteMustComeBackTheSame) {
  EXPECT_EQ(sums_of({kNan, kInfinity, -kInfinity}, {kNan, kInfinity, -kInfinity}).changed, 0);
  EXPECT_EQ(sums_of({kNan, kInfinity, -kInfinity}, {0, -kInfinity, 1}).changed, 3);
  EXPECT_EQ(sums_of({kNan, kNan}, {1, 2}).finite, 0);
}

TEST(Difference, NothingIsEqualToNothing) {
  const Sums sums = sums_of({}, {});
  EXPECT_EQ(sums.range(), 0);
  EXPECT_EQ(sums.mean_square(), 0);
  EXPECT_EQ(sums.psnr_db(0), kInfinity);
}

TEST(Difference, ConstantsThatDifferAreInfinitelyFar) {
  const Sums sums = sums_of({5, 5}, {5, 6});
  EXPECT_EQ(sums.psnr_db(sums.range()), -kInfinity);
}

TEST(Difference, WholeNumbersDifferExactlyWhereDoublesDoNot) {
  const std::int64_t big = std::int64_t{1} << 60;
  const std::int64_t a[] = {big, std::numeric_limits<std::int64_t>::min()};
  const std::int64_t b[] = {big + 1, std::numeric_limits<std::int64_t>::max()};
  EXPECT_EQ(compare_values(DType::I64, a, DType::I64, b, 1).max_error, 1);
  EXPECT_EQ(compare_values(DType::I64, a, DType::I64, b, 2).max_error, 0x1p64);
}

TEST(Difference, TheRangeOfWholeNumbersIsExactWhereDoublesAreEqual) {
  const std::int64_t low = std::int64_t{1} << 62, a[] = {low, low + 1}, b[] = {low, low};
  Sums sums = compare_values(DType::I64, a, DType::I64, b, 2);
  EXPECT_EQ(sums.range(), 1);
  EXPECT_DOUBLE_EQ(sums.psnr_db(sums.range()), 10 * std::log10(2.0));
  const std::int64_t more[] = {low + 3, low - 1};
  sums.add(compare_values(DType::I64, more, DType::I64, more, 2));
  sums.add({});
  EXPECT_EQ(sums.range(), 4);
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  const std::uint64_t last[] = {kMost, kMost - 1, kMost - 2000};
  EXPECT_EQ(compare_values(DType::U64, last, DType::U64, last, 2).range(), 1);
  EXPECT_EQ(compare_values(DType::U64, last, DType::U64, last, 3).range(), 2000);
  const std::int64_t ends[] = {std::numeric_limits<std::int64_t>::max(),
                               std::numeric_limits<std::int64_t>::min()};
  EXPECT_EQ(compare_values(DType::I64, ends, DType::I64, ends, 1).range(), 0);
  EXPECT_EQ(compare_values(DType::I64, ends, DType::I64, ends, 2).range(), 0x1p64);
}

TEST(Difference, WholeNumbersDifferFromOtherTypesExactly) {
  const std::int64_t a[] = {(std::int64_t{1} << 62) + 1};
  const std::uint64_t b[] = {std::uint64_t{1} << 62};
  const double c[] = {0x1p62};
  EXPECT_EQ(compare_values(DType::I64, a, DType::U64, b, 1).max_error, 1);
  EXPECT_EQ(compare_values(DType::I64, a, DType::F64, c, 1).max_error, 1);
  EXPECT_EQ(compare_values(DType::F64, c, DType::I64, a, 1).max_error, 1);
  EXPECT_EQ(compare_values(DType::U64, b, DType::F64, c, 1).max_error, 0);
}

TEST(Difference, TypesMayDiffer) {
  const std::uint8_t a[] = {0, 128, 255};
  const float b[] = {0.5f, 128, 255};
  const Sums sums = compare_values(DType::U8, a, DType::F32, b, 3);
  EXPECT_EQ(sums.max_error, 0.5);
  EXPECT_EQ(sums.high, 255);
}

TEST(Difference, ManyValuesAreTakenInBlocks) {
  std::vector<double> a(5000), b(5000);
  for (std::size_t i = 0; i < a.size(); ++i) b[i] = a[i] = static_cast<double>(i);
  b[4999] -= 2;
  const Sums sums = sums_of(a, b);
  EXPECT_EQ(sums.finite, 5000);
  EXPECT_EQ(sums.max_error, 2);
  EXPECT_EQ(sums.range(), 4999);
}

// Two .tuck files of planes 12 x 12; the second has one value of one sample changed.
class DifferenceOfFiles : public testing::Test {
 protected:
  void write(const std::string& name, std::vector<float> planes) const {
    FileWriter writer(folder_ / name, {{.name = "plane", .shape = {12, 12}}}, ref::kQuick);
    writer.write({{planes.data(), DType::F32, {std::ssize(planes) / 144, 12, 12}}});
    writer.finish();
  }
  Difference compare(int threads, SampleSlice range = {0, 20}) const {
    const Samples result("diff", {.files = {folder_ / "b.tuck"}});
    const Samples original("diff", {.files = {folder_ / "a.tuck"}});
    ProgressBar bar("", 0, true);
    return compare_arrays({result, 0}, {original, 0}, range, threads, bar);
  }
  void SetUp() override {
    for (std::size_t i = 0; i < planes_.size(); ++i) planes_[i] = static_cast<float>(i % 97);
    write("a.tuck", planes_);
  }

  ref::TempFolder folder_;
  std::vector<float> planes_ = std::vector<float>(20 * 144);
};

TEST_F(DifferenceOfFiles, TheWorstSampleIsNamed) {
  planes_[7 * 144 + 3] += 1;
  planes_[11 * 144 + 5] += 2;
  write("b.tuck", planes_);
  const Difference found = compare(2);
  EXPECT_EQ(found.worst, 11);
  EXPECT_DOUBLE_EQ(found.worst_psnr_db(), 10 * std::log10(96.0 * 96 / (4.0 / 144)));
  EXPECT_DOUBLE_EQ(found.quality.psnr_db, 10 * std::log10(96.0 * 96 / (5.0 / 2880)));
  EXPECT_FALSE(found.exact());
  EXPECT_LT(*found.ssim, 1);
  EXPECT_GT(*found.ssim, 0.99);
  EXPECT_EQ(compare(2, {0, 8}).worst, 7);
  EXPECT_TRUE(compare(1, {8, 3}).exact());
}

TEST_F(DifferenceOfFiles, FiguresDoNotDependOnThreads) {
  for (std::size_t i = 0; i < planes_.size(); i += 3)
    planes_[i] += 0.1f * static_cast<float>(i % 7);
  write("b.tuck", planes_);
  const Difference one = compare(1), three = compare(3);
  EXPECT_EQ(one.quality.psnr_db, three.quality.psnr_db);
  EXPECT_EQ(*one.ssim, *three.ssim);
}

TEST_F(DifferenceOfFiles, EqualFilesAreExact) {
  write("b.tuck", planes_);
  const Difference found = compare(2);
  EXPECT_TRUE(found.exact());
  EXPECT_EQ(found.worst, -1);
  EXPECT_EQ(*found.ssim, 1);
}

TEST_F(DifferenceOfFiles, ConstantOriginalsHaveNoScaleForSsim) {
  std::fill(planes_.begin(), planes_.end(), 3.0f);
  write("a.tuck", planes_);
  write("b.tuck", planes_);
  EXPECT_EQ(*compare(1).ssim, 1);
  planes_[0] = 4;
  write("b.tuck", planes_);
  EXPECT_FALSE(compare(1).ssim.has_value());
}

TEST_F(DifferenceOfFiles, ALostValueLeavesNoFigures) {
  planes_[9 * 144] = std::nanf("");
  write("b.tuck", planes_);
  const Difference found = compare(1);
  EXPECT_EQ(found.quality.lost, 1);
  EXPECT_EQ(found.worst, 9);
  EXPECT_TRUE(std::isnan(found.quality.psnr_db));
  EXPECT_FALSE(found.ssim.has_value());
}

TEST_F(DifferenceOfFiles, NoSamplesAreExact) {
  write("b.tuck", planes_);
  const Difference found = compare(1, {5, 0});
  EXPECT_TRUE(found.exact());
  EXPECT_FALSE(found.ssim.has_value());
}

}  // namespace
}  // namespace tuckfold::cli
