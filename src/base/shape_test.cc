// Shape, DType, TensorView: what they hold and what they refuse. Error: its exit codes.
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "tuckfold/error.h"
#include "tuckfold/tensor.h"

namespace tuckfold {
namespace {

constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();

template <class Call>
std::string refusal(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::InvalidArgument);
    return error.what();
  }
  return "accepted";
}

TEST(Shape, ElemsIsTheProductOfItsAxes) {
  EXPECT_EQ(Shape({}).elems(), 1);
  EXPECT_EQ(Shape({7}).elems(), 7);
  EXPECT_EQ(Shape({2, 3, 4}).elems(), 24);
  EXPECT_EQ(Shape({2, 0, 4}).elems(), 0);
  EXPECT_EQ(Shape({std::int64_t{1} << 31, std::int64_t{1} << 31}).elems(), std::int64_t{1} << 62);
}

TEST(Shape, ProductsThatOverflowAreInvalid) {
  EXPECT_EQ(refusal([] {
              (void)Shape({2, -3}).elems();
            }),
            "[shape] axis lengths must not be negative, got 2x-3");
  EXPECT_EQ(refusal([] { (void)Shape({kHuge}).elems(); }),
            "[shape] a tensor has at most 2^62 elements, got 9223372036854775807");
  EXPECT_NE(refusal([] { (void)Shape({kHuge, kHuge, 4}).elems(); }), "accepted");
  // A zero axis hides nothing: strides are products of the others.
  EXPECT_NE(refusal([] { (void)Shape({0, kHuge, kHuge}).elems(); }), "accepted");
  EXPECT_NE(refusal([] { (void)Shape({kHuge, kHuge, 0}).elems(); }), "accepted");
  EXPECT_NE(refusal([] { (void)Shape({0, -1}).elems(); }), "accepted");
}

TEST(Shape, HoldsUpToSixtyFourAxes) {
  const std::vector<std::int64_t> most(Shape::kMaxRank, 1), more(Shape::kMaxRank + 1, 1);
  Shape shape{std::span(most)};
  EXPECT_EQ(shape.rank(), 64u);
  EXPECT_EQ(shape.elems(), 1);
  EXPECT_EQ(refusal([&] { Shape{std::span(more)}; }),
            "[shape] rank must be at most 64, got 65; merge axes first");
  EXPECT_EQ(refusal([&] { shape.push_back(1); }),
            "[shape] rank must be at most 64; merge axes first");
}

TEST(Shape, ComparesAndCopiesByItsAxesAlone) {
  Shape a({1, 2, 3, 4}), b({9});
  b = a;
  EXPECT_EQ(a, b);
  b[3] = 5;
  EXPECT_FALSE(a == b);
  EXPECT_FALSE(Shape({1, 2}) == Shape({1, 2, 1}));
  a = Shape({7});
  a.push_back(8);
  EXPECT_EQ(a, Shape({7, 8}));
  const Shape& same = a;
  a = same;
  EXPECT_EQ(a, Shape({7, 8}));
}

TEST(Shape, PrintsWithCrosses) {
  EXPECT_EQ(to_string(Shape({64, 3, 32, 32})), "64x3x32x32");
  EXPECT_EQ(to_string(Shape({0})), "0");
  EXPECT_EQ(to_string(Shape()), "scalar");
}

TEST(Shape, RowMajorStridesStepOverWhatIsInside) {
  EXPECT_EQ(row_major_strides({2, 3, 4}), Shape({12, 4, 1}));
  EXPECT_EQ(row_major_strides({2, 0, 4}), Shape({4, 4, 1}));
  EXPECT_EQ(row_major_strides({}), Shape());
  EXPECT_EQ(row_major_strides({kHuge, kHuge, kHuge}).rank(), 3u);  // refused later, by elems()
}

TEST(TensorView, OneThatWritesServesWhereOneReads) {
  float value = 0;
  const TensorView view(&value, DType::F32, {1, 1}, {5, 7});
  const ConstTensorView reading = view;
  EXPECT_EQ(reading.data, &value);
  EXPECT_EQ(reading.shape, Shape({1, 1}));
  EXPECT_EQ(reading.strides, Shape({5, 7}));
  EXPECT_EQ(ConstTensorView(&value, DType::F32, {4, 6}).strides, Shape({6, 1}));
}

TEST(Error, EveryKindHasItsExitCode) {
  EXPECT_EQ(exit_code(Errc::InvalidArgument), 2);
  EXPECT_EQ(exit_code(Errc::CorruptData), 3);
  EXPECT_EQ(exit_code(Errc::Unsupported), 4);
  EXPECT_EQ(exit_code(Errc::Io), 5);
  EXPECT_EQ(exit_code(Errc::Internal), 70);
  const Error error(Errc::Io, "the disk is full");
  EXPECT_STREQ(error.what(), "the disk is full");
  EXPECT_EQ(error.code(), Errc::Io);
}

}  // namespace
}  // namespace tuckfold
