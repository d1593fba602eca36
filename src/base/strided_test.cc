// Tensors of any dtype and strides as one sequence of f32 values, or of elements as they are.
#include "base/strided.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "base/tensor_fixture.h"

namespace tuckfold {
namespace {

using ref::Order;
using ref::Pattern;
using ref::Tensor;

const std::vector<Shape> kShapes = {{},     {1},    {17},      {3, 5},       {2, 3, 4},
                                    {1, 7}, {7, 1}, {4, 1, 6}, {2, 3, 1, 5}, {2, 2, 3, 2, 3}};

constexpr auto kFloatable = ref::kLossyDTypes;

TEST(Strided, GatherReadsEveryOrderAlike) {
  for (const Shape& shape : kShapes) {
    for (const DType dtype : kFloatable) {
      for (const Order order : ref::kOrders) {
        const Tensor tensor = std::move(Tensor(dtype, shape, order).fill(Pattern::Random));
        const FlatReader reader(tensor.view());
        ASSERT_EQ(reader.elems(), tensor.elems());
        for (std::int64_t begin = 0; begin < tensor.elems(); ++begin) {
          const std::int64_t count = std::min<std::int64_t>(tensor.elems() - begin, 1 + begin * 3);
          std::vector<float> got(static_cast<std::size_t>(count), -9.0f);
          reader.gather(begin, count, got.data());
          for (std::int64_t i = 0; i < count; ++i) {
            ASSERT_EQ(got[static_cast<std::size_t>(i)], static_cast<float>(tensor.get(begin + i)))
                << to_string(shape) << ' ' << to_string(dtype) << ' ' << begin << '+' << i;
          }
        }
      }
    }
  }
}

TEST(Strided, ScatterWritesWhatGatherReadsAndNothingBeside) {
  for (const Shape& shape : kShapes) {
    for (const DType dtype : kFloatable) {
      for (const Order order : ref::kOrders) {
        const Tensor out(dtype, shape, order);
        Tensor wanted(dtype, shape);
        wanted.fill(
            ref::pattern(Pattern::Random, DType::U8, out.elems()));  // whole numbers, f32 too
        std::vector<float> values(static_cast<std::size_t>(out.elems()));
        FlatReader(wanted.view()).gather(0, out.elems(), values.data());
        const FlatWriter writer(out.view());
        const std::int64_t middle = out.elems() / 3;
        writer.scatter(middle, out.elems() - middle, values.data() + middle);
        writer.scatter(0, middle, values.data());
        ASSERT_EQ(ref::first_difference(dtype, out.bytes(), wanted.bytes()), "");
        ASSERT_TRUE(out.gaps_untouched());
      }
    }
  }
}

TEST(Strided, BytesAreReadAndWrittenAsTheyAreInEveryOrder) {
  for (const Shape& shape : kShapes) {
    for (const DType dtype : kDTypes) {
      for (const Order order : ref::kOrders) {
        const Tensor in = std::move(Tensor(dtype, shape, order).fill(Pattern::Hostile));
        const Tensor out(dtype, shape, order);
        const auto width = static_cast<std::int64_t>(size_bytes(dtype));
        const std::vector<std::byte> wanted = in.bytes();
        std::vector<std::byte> got(wanted.size());
        const std::int64_t middle = in.elems() / 3, rest = in.elems() - middle;
        const FlatReader reader(in.view());
        const FlatWriter writer(out.view());
        reader.gather_bytes(middle, rest, got.data() + middle * width);
        reader.gather_bytes(0, middle, got.data());
        ASSERT_EQ(got, wanted) << to_string(shape) << ' ' << to_string(dtype);
        writer.scatter_bytes(middle, rest, wanted.data() + middle * width);
        writer.scatter_bytes(0, middle, wanted.data());
        ASSERT_EQ(out.bytes(), wanted) << to_string(shape) << ' ' << to_string(dtype);
        ASSERT_TRUE(out.gaps_untouched());
      }
    }
  }
}

TEST(Strided, DenseRunsAreFoundWhereTheyAre) {
  for (const Shape& shape : kShapes) {
    for (const Order order : ref::kOrders) {
      const Tensor tensor = std::move(Tensor(DType::F32, shape, order).fill(Pattern::Random));
      const FlatReader reader(tensor.view());
      for (std::int64_t begin = 0; begin < tensor.elems(); ++begin) {
        const std::int64_t rest = tensor.elems() - begin;
        const std::int64_t run = reader.run_length(begin, rest);
        ASSERT_GE(run, 1);
        ASSERT_LE(run, rest);
        ASSERT_EQ(reader.run_length(begin, 1), 1);
        const auto* at = static_cast<const float*>(reader.dense(begin, run));
        ASSERT_NE(at, nullptr);
        for (std::int64_t i = 0; i < run; ++i) {
          ASSERT_EQ(at[i], static_cast<float>(tensor.get(begin + i)));
        }
        if (run < rest) {
          ASSERT_EQ(reader.dense(begin, run + 1), nullptr);
        }
      }
      if (order == Order::RowMajor) {
        ASSERT_EQ(reader.run_length(0, tensor.elems()), tensor.elems());
      }
    }
  }
}

TEST(Strided, AxesThatLieBehindEachOtherMerge) {
  const std::vector<float> data(64);
  // 2 x 3 x 4 with rows of 4 side by side but planes apart: runs of 12.
  const FlatReader planes(ConstTensorView(data.data(), DType::F32, {2, 3, 4}, {20, 4, 1}));
  EXPECT_EQ(planes.run_length(0, 24), 12);
  EXPECT_EQ(planes.run_length(5, 24), 7);
  // Axes of length 1 may have any stride.
  const FlatReader ones(ConstTensorView(data.data(), DType::F32, {1, 3, 1, 4}, {-7, 4, 99, 1}));
  EXPECT_EQ(ones.run_length(0, 12), 12);
}

TEST(Strided, ZeroStridesRepeatElements) {
  const std::vector<float> row = {1, 2, 3};
  const FlatReader rows(ConstTensorView(row.data(), DType::F32, {2, 3}, {0, 1}));
  std::vector<float> got(6);
  rows.gather(0, 6, got.data());
  EXPECT_EQ(got, (std::vector<float>{1, 2, 3, 1, 2, 3}));
  const FlatReader cols(ConstTensorView(row.data(), DType::F32, {3, 2}, {1, 0}));
  cols.gather(0, 6, got.data());
  EXPECT_EQ(got, (std::vector<float>{1, 1, 2, 2, 3, 3}));
  const FlatReader one(ConstTensorView(row.data(), DType::F32, {2, 3}, {0, 0}));
  one.gather(1, 5, got.data());
  EXPECT_EQ(got, (std::vector<float>{1, 1, 1, 1, 1, 3}));
}

TEST(Strided, EmptyTensorsHaveNoElements) {
  for (const Shape& shape : {Shape{0}, Shape{3, 0}, Shape{0, 3}}) {
    EXPECT_EQ(FlatReader(ConstTensorView(nullptr, DType::F32, shape)).elems(), 0);
  }
}

TEST(Strided, DoublesRoundToTheNearestFloat) {
  const std::vector<double> data = {1.0 + 0x1p-24, 1.0 + 0x1.8p-24, -1e300, 1e-60, 0x1p-149};
  std::vector<float> got(data.size());
  FlatReader(ConstTensorView(data.data(), DType::F64, {5})).gather(0, 5, got.data());
  EXPECT_EQ(got, (std::vector<float>{1.0f, 1.0f + 0x1p-23f, -std::numeric_limits<float>::max(),
                                     0.0f, 0x1p-149f}));
}

TEST(Strided, FiniteValuesStayFiniteInEveryDtype) {
  constexpr float kMost = std::numeric_limits<float>::max(), kInf = HUGE_VALF;
  const std::vector<float> values = {kMost, -kMost, 65520.0f, -65504.0f, kInf, -kInf};
  for (const DType dtype : {DType::F32, DType::F16, DType::BF16, DType::F64}) {
    const Tensor out(dtype, {6});
    FlatWriter(out.view()).scatter(0, 6, values.data());
    const double most = dtype == DType::F16 ? kMaxF16 : dtype == DType::BF16 ? kMaxBF16 : kMost;
    const double large = dtype == DType::F16 ? kMaxF16 : 65536.0;
    for (std::int64_t i : {0, 1}) EXPECT_EQ(std::abs(out.get(i)), most) << to_string(dtype);
    for (std::int64_t i : {2, 3}) EXPECT_NEAR(std::abs(out.get(i)), large, 32) << to_string(dtype);
    for (std::int64_t i : {4, 5}) EXPECT_EQ(std::abs(out.get(i)), kInf) << to_string(dtype);
  }
}

TEST(Strided, BytesSaturateAndRoundToEven) {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> values = {-1,
                                     -0.0f,
                                     0.5f,
                                     1.5f,
                                     2.5f,
                                     254.5f,
                                     255.5f,
                                     1e9f,
                                     inf,
                                     -inf,
                                     std::numeric_limits<float>::quiet_NaN()};
  std::vector<std::uint8_t> out(values.size(), 77);
  const FlatWriter writer(TensorView(out.data(), DType::U8, {11}));
  writer.scatter(0, writer.elems(), values.data());
  EXPECT_EQ(out, (std::vector<std::uint8_t>{0, 0, 0, 2, 2, 254, 255, 255, 255, 0, 0}));
}

TEST(Strided, EveryU16ComesBackAndOthersSaturateAndRoundToEven) {
  std::vector<std::uint16_t> all(65536), back(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  std::vector<float> values(all.size());
  FlatReader(ConstTensorView(all.data(), DType::U16, {65536})).gather(0, 65536, values.data());
  for (const float off : {0.0f, 0.4375f, -0.4375f}) {
    std::vector<float> near = values;
    for (float& value : near) value += off;
    FlatWriter(TensorView(back.data(), DType::U16, {65536})).scatter(0, 65536, near.data());
    ASSERT_EQ(back, all) << off;
  }
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> odd = {-1,
                                  -0.0f,
                                  0.5f,
                                  1.5f,
                                  32768.5f,
                                  65534.5f,
                                  65535.5f,
                                  1e9f,
                                  inf,
                                  -inf,
                                  std::numeric_limits<float>::quiet_NaN()};
  std::vector<std::uint16_t> out(odd.size(), 77);
  FlatWriter(TensorView(out.data(), DType::U16, {11})).scatter(0, 11, odd.data());
  EXPECT_EQ(out, (std::vector<std::uint16_t>{0, 0, 0, 2, 32768, 65534, 65535, 65535, 65535, 0, 0}));
}

}  // namespace
}  // namespace tuckfold
