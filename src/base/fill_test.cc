#include "base/fill.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/dtype.h"
#include "base/element.h"

namespace tuckfold {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

// Row-major values of a dtype, from numbers.
std::vector<std::byte> values_of(DType dtype, const std::vector<double>& numbers) {
  std::vector<std::byte> bytes(numbers.size() * size_bytes(dtype));
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const std::uint64_t bits = element_bits(dtype, numbers[i]);
    std::memcpy(bytes.data() + i * size_bytes(dtype), &bits, size_bytes(dtype));
  }
  return bytes;
}

double value_at(DType dtype, const std::vector<std::byte>& bytes, std::size_t i) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, bytes.data() + i * size_bytes(dtype), size_bytes(dtype));
  return element_value(dtype, bits);
}

TEST(Fill, ValuesAreThoseOfTheDtype) {
  EXPECT_EQ(fill_value_in(DType::F32, 1e20)->value, double{1e20f});
  EXPECT_EQ(fill_value_in(DType::F64, 1e20)->value, 1e20);
  EXPECT_EQ(fill_value_in(DType::U16, 65535)->value, 65535);
  EXPECT_TRUE(std::isnan(fill_value_in(DType::F16, -kNan)->value));
  EXPECT_EQ(fill_value_in(DType::F16, -kInf)->value, -kInf);
  EXPECT_FALSE(fill_value_in(DType::F16, 1e20));  // infinity is another value
  EXPECT_FALSE(fill_value_in(DType::U8, 256));
  EXPECT_FALSE(fill_value_in(DType::U8, 0.5));
  EXPECT_FALSE(fill_value_in(DType::U16, kNan));
  EXPECT_EQ(fill_value_in(DType::I16, -32767)->value, -32767);
  EXPECT_TRUE(is_double(std::int64_t{1} << 60));
  EXPECT_FALSE(is_double((std::int64_t{1} << 53) + 1));
  EXPECT_TRUE(is_double(std::numeric_limits<std::int64_t>::min()));
  EXPECT_FALSE(is_double(std::numeric_limits<std::int64_t>::max()));
  EXPECT_FALSE(is_double(std::numeric_limits<std::uint64_t>::max()));
}

TEST(Fill, TextReadsBack) {
  EXPECT_EQ(to_string(DType::F32, {double{1e20f}}), "1e+20");
  EXPECT_EQ(to_string(DType::F64, {-999.25}), "-999.25");
  EXPECT_EQ(to_string(DType::F32, {kNan}), "nan");
  EXPECT_EQ(to_string(DType::U16, {65535}), "65535");
}

TEST(Fill, MarksAreByBitsAndRestoredByBits) {
  for (const DType dtype : kDTypes) {
    if (must_be_exact(dtype)) continue;
    const bool real = is_float(dtype);
    const std::vector<FillValue> fill =
        real ? std::vector<FillValue>{{-512}, {0}, {kNan}} : std::vector<FillValue>{{255}, {0}};
    const std::vector<double> numbers =
        real ? std::vector<double>{-512, 1, 0, -0.0, kNan, kInf, -kNan, -496, -512}
             : std::vector<double>{255, 1, 0, 2, 254, 255, 255, 3, 0};
    const std::vector<std::uint8_t> want =
        real ? std::vector<std::uint8_t>{1, 0, 2, 0, 3, 0, 3, 0, 1}
             : std::vector<std::uint8_t>{1, 0, 2, 0, 0, 1, 1, 0, 2};
    const std::vector<std::byte> values = values_of(dtype, numbers);
    const FillMarks marks(dtype, fill);
    std::vector<std::uint8_t> got(numbers.size(), 77);
    EXPECT_EQ(marks.mark(values.data(), std::ssize(numbers), got.data()), 5) << to_string(dtype);
    EXPECT_EQ(got, want) << to_string(dtype);
    // To a tensor whose values stand in reverse.
    std::vector<std::byte> out = values_of(dtype, std::vector<double>(numbers.size(), 7));
    std::byte* last = out.data() + (numbers.size() - 1) * size_bytes(dtype);
    const Shape shape{std::ssize(numbers)};
    EXPECT_TRUE(marks.restore(got.data(), TensorView(last, dtype, shape, Shape{-1})));
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const double value = value_at(dtype, out, numbers.size() - 1 - i);
      if (want[i] == 0) {
        EXPECT_EQ(value, 7);
      } else {
        EXPECT_EQ(FillValue{value}, fill[want[i] - 1u]);
      }
    }
    got[3] = 9;
    EXPECT_FALSE(marks.restore(got.data(), TensorView(out.data(), dtype, shape)));
  }
}

// What a value without a mark becomes that a codec has made the fill value `number`.
double next_to(DType dtype, const std::vector<FillValue>& fill, double number) {
  std::vector<std::byte> values = values_of(dtype, {number, 1});
  const std::uint8_t marks[] = {0, 0};
  const TensorView view(values.data(), dtype, {2});
  FillMarks(dtype, fill).step_aside(view);
  EXPECT_TRUE(FillMarks(dtype, fill).restore(marks, view));
  EXPECT_EQ(value_at(dtype, values, 1), 1);
  return value_at(dtype, values, 0);
}

TEST(Fill, ValidValuesStepAsideTowardsZero) {
  EXPECT_EQ(next_to(DType::U8, {{0}}, 0), 1);
  EXPECT_EQ(next_to(DType::U8, {{255}}, 255), 254);
  EXPECT_EQ(next_to(DType::U8, {{128}, {127}}, 128), 126);
  EXPECT_EQ(next_to(DType::U8, {{3}, {0}}, 3), 2);
  EXPECT_EQ(next_to(DType::U8, {{0}, {2}}, 0), 1);
  EXPECT_EQ(next_to(DType::U16, {{65535}, {0}}, 65535), 65534);
  EXPECT_EQ(next_to(DType::F32, {{-999}}, -999), double{std::nextafterf(-999, 0)});
  EXPECT_EQ(next_to(DType::F64, {{1e20}}, 1e20), std::nextafter(1e20, 0));
  EXPECT_EQ(next_to(DType::F32, {{0}}, 0), double{std::numeric_limits<float>::denorm_min()});
  EXPECT_EQ(next_to(DType::F16, {{kInf}}, kInf), 65504);
  EXPECT_EQ(next_to(DType::F16, {{-kInf}, {-65504}}, -65504), -65472);
  EXPECT_EQ(next_to(DType::BF16, {{256}}, 256), 255);
  EXPECT_TRUE(std::isnan(next_to(DType::F32, {{kNan}}, kNan)));
  constexpr double kTiny = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(next_to(DType::F32, {{0}}, -0.0), -kTiny);
  EXPECT_EQ(next_to(DType::F32, {{-0.0}}, 0), kTiny);
  EXPECT_EQ(next_to(DType::F32, {{0}, {-kTiny}}, -kTiny), -2 * kTiny);
}

TEST(Fill, EveryByteButOneMayBeAFillValue) {
  std::vector<FillValue> fill;
  for (int i = 0; i < 256; ++i) {
    if (i != 77) fill.push_back({static_cast<double>(i)});
  }
  std::vector<std::uint8_t> values(256), marks(256);
  for (std::size_t i = 0; i < 256; ++i) values[i] = static_cast<std::uint8_t>(i);
  const TensorView view(values.data(), DType::U8, {256});
  FillMarks(DType::U8, fill).step_aside(view);
  EXPECT_TRUE(FillMarks(DType::U8, fill).restore(marks.data(), view));
  EXPECT_EQ(values, std::vector<std::uint8_t>(256, 77));
}

TEST(Fill, RestoringTakesAnyStrides) {
  constexpr std::int64_t kRows = 70, kCols = 45;  // more than one block
  std::vector<std::uint16_t> values(2 * kRows * kCols, 9);
  std::vector<std::uint8_t> marks(kRows * kCols);
  const TensorView view(values.data(), DType::U16, {kRows, kCols}, {2, 2 * kRows});
  for (std::int64_t i = 0; i < kRows * kCols; ++i) {
    const std::int64_t at = i / kCols * 2 + i % kCols * 2 * kRows;
    values[static_cast<std::size_t>(at)] = static_cast<std::uint16_t>(i % 3 == 0 ? 0 : 7);
    marks[static_cast<std::size_t>(i)] = i % 2 == 0 ? 1 : 0;
  }
  const FillMarks fill(DType::U16, std::vector<FillValue>{{0}});
  fill.step_aside(view);
  EXPECT_TRUE(fill.restore(marks.data(), view));
  for (std::int64_t i = 0; i < kRows * kCols; ++i) {
    const auto at = static_cast<std::size_t>(i / kCols * 2 + i % kCols * 2 * kRows);
    EXPECT_EQ(values[at], i % 2 == 0 ? 0 : i % 3 == 0 ? 1 : 7) << i;
    EXPECT_EQ(values[at + 1], 9) << i;
  }
}

TEST(Fill, HolesLieBetweenTheValuesAround) {
  for (const DType dtype :
       {DType::F32, DType::F64, DType::F16, DType::BF16, DType::U8, DType::U16}) {
    for (const Shape& shape : {Shape{1}, Shape{7}, Shape{2, 13}, Shape{3, 1, 5}, Shape{2, 9, 17}}) {
      std::vector<double> numbers;
      std::vector<std::uint8_t> marks;
      for (std::int64_t i = 0; i < shape.elems(); ++i) {
        const bool hole = i % 3 == 1 || i == 0;
        numbers.push_back(hole ? 250 : static_cast<double>(10 + i % 50));
        marks.push_back(hole ? 1 : 0);
      }
      std::vector<std::byte> values = values_of(dtype, numbers);
      fill_holes(dtype, shape, marks.data(), values.data());
      for (std::size_t i = 0; i < numbers.size(); ++i) {
        const double value = value_at(dtype, values, i);
        if (marks[i] == 0) {
          EXPECT_EQ(value, numbers[i]);
        } else {
          EXPECT_LE(value, 60) << to_string(dtype) << " " << to_string(shape);
        }
      }
    }
  }
}

TEST(Fill, ASlopeGoesOnAcrossAHole) {
  constexpr std::int64_t kSide = 64;
  std::vector<float> values(kSide * kSide);
  std::vector<std::uint8_t> marks(values.size());
  for (std::int64_t i = 0; i < kSide * kSide; ++i) {
    const std::int64_t row = i / kSide, col = i % kSide;
    const bool hole = (row - 20) * (row - 20) + (col - 40) * (col - 40) < 100;
    marks[static_cast<std::size_t>(i)] = hole ? 1 : 0;
    values[static_cast<std::size_t>(i)] = hole ? 1e20f : static_cast<float>(row + col);
  }
  fill_holes(DType::F32, {1, kSide, kSide}, marks.data(), values.data());
  for (std::int64_t row = 0; row < kSide; ++row) {
    for (std::int64_t col = 1; col < kSide; ++col) {
      const auto i = static_cast<std::size_t>(row * kSide + col);
      EXPECT_LT(std::abs(values[i] - values[i - 1]), 8) << row << " " << col;
    }
  }
}

TEST(Fill, WithoutAnyValueHolesAreZeroAndHugeOnesDoNotOverflow) {
  std::vector<double> all(12, 1e20);
  const std::vector<std::uint8_t> marks(12, 1);
  fill_holes(DType::F64, {1, 3, 4}, marks.data(), all.data());
  EXPECT_EQ(all, std::vector<double>(12, 0));

  const double most = std::numeric_limits<double>::max();
  std::vector<double> huge = {most, most, -most, kNan, most, kInf, most, kNan};
  const std::vector<std::uint8_t> holes = {0, 0, 0, 1, 0, 0, 0, 1};
  fill_holes(DType::F64, {2, 4}, holes.data(), huge.data());
  EXPECT_TRUE(std::isfinite(huge[3]));
  EXPECT_TRUE(std::isfinite(huge[7]));
  EXPECT_EQ(huge[5], kInf);
}

TEST(Fill, NothingIsDoneToATensorWithoutElements) {
  fill_holes(DType::F32, {0, 3}, nullptr, nullptr);
  EXPECT_TRUE(FillMarks(DType::F32, {}).empty());
}

}  // namespace
}  // namespace tuckfold
