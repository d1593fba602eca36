// Reading and writing through panels is what it is without them.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "base/strided.h"
#include "base/tensor_fixture.h"

namespace tuckfold {
namespace {

using ref::Order;
using ref::Pattern;
using ref::Tensor;

// Whole panels, parts of one at the end, fewer lines than a vector, rows apart, rank 3 and 2.
const std::vector<Shape> kShapes = {{2, 35, 14, 14}, {1, 300, 7, 7},   {3, 2, 5, 9},    {2, 64, 33},
                                    {40, 70},        {2, 3, 20, 9, 5}, {1, 20, 70, 130}};
constexpr Order kOrders[] = {Order::RowMajor, Order::ChannelsLast, Order::Transposed,
                             Order::Fortran,  Order::PaddedRows,   Order::Flipped,
                             Order::Gapped};

template <class Check>
void for_each_tensor(Check&& check) {
  for (const Shape& shape : kShapes) {
    for (const DType dtype : {DType::U8, DType::BF16, DType::F32, DType::F64}) {
      for (const Order order : kOrders) {
        SCOPED_TRACE(fmt::format("{} {} order {}", to_string(dtype), to_string(shape),
                                 static_cast<int>(order)));
        check(dtype, shape, order);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

// Calls piece(begin, count) for pieces of a range, in order; some pieces are left out.
template <class Piece>
void for_each_piece(std::int64_t elems, bool gaps, Piece&& piece) {
  std::mt19937 random(3);
  for (std::int64_t at = elems / 5; at < elems;) {
    const std::int64_t count = std::min<std::int64_t>(elems - at, 1 + random() % 700);
    if (!gaps || random() % 4 != 0) piece(at, count);
    at += count;
  }
  piece(0, elems / 5);  // back again
}

TEST(Panels, ReadWhatIsThere) {
  for_each_tensor([](DType dtype, const Shape& shape, Order order) {
    const Tensor tensor = std::move(Tensor(dtype, shape, order).fill(Pattern::Random));
    const FlatReader reader(tensor.view());
    const std::vector<std::byte> wanted = tensor.bytes();
    const auto width = static_cast<std::int64_t>(size_bytes(dtype));
    const ReadPanels panels(reader);
    for_each_piece(reader.elems(), true, [&](std::int64_t at, std::int64_t count) {
      std::vector<std::byte> got(static_cast<std::size_t>(count * width));
      reader.gather_bytes(at, count, got.data());
      const auto begin = wanted.begin() + at * width;
      ASSERT_TRUE(std::equal(got.begin(), got.end(), begin)) << at << '+' << count;
      std::vector<float> floats(static_cast<std::size_t>(count));
      reader.gather(at, count, floats.data());
      for (std::int64_t i = 0; i < count; ++i) {
        ASSERT_EQ(floats[static_cast<std::size_t>(i)], static_cast<float>(tensor.get(at + i)));
      }
    });
  });
}

TEST(Panels, WriteWhatIsGivenAndNothingElse) {
  for_each_tensor([](DType dtype, const Shape& shape, Order order) {
    const Tensor source = std::move(Tensor(dtype, shape).fill(Pattern::Random));
    const std::vector<std::byte> from = source.bytes();
    const Tensor out(dtype, shape, order);
    std::vector<std::byte> wanted(from.size(), ref::kUntouched);
    const FlatWriter writer(out.view());
    const auto width = static_cast<std::int64_t>(size_bytes(dtype));
    {
      const WritePanels panels(writer);
      for_each_piece(writer.elems(), true, [&](std::int64_t at, std::int64_t count) {
        std::copy_n(from.begin() + at * width, count * width, wanted.begin() + at * width);
        void* in_panel = at % 3 == 0 ? writer.in_thread_panel(at, count) : nullptr;
        if (in_panel != nullptr) {
          std::memcpy(in_panel, from.data() + at * width, static_cast<std::size_t>(count * width));
        } else if (at % 2 == 0) {
          writer.scatter_bytes(at, count, from.data() + at * width);
        } else {
          std::vector<float> floats(static_cast<std::size_t>(count));
          const FlatReader reader(source.view());
          reader.gather(at, count, floats.data());
          writer.scatter(at, count, floats.data());
          if (dtype == DType::F64) writer.scatter_bytes(at, count, from.data() + at * width);
        }
      });
    }
    ASSERT_EQ(out.bytes(), wanted);
    ASSERT_TRUE(out.gaps_untouched());
  });
}

// Threads share a tensor out without regard to lines and panels.
TEST(Panels, TwoOfThemShareALine) {
  const Shape shape{1, 37, 11, 13};
  const Tensor source = std::move(Tensor(DType::F32, shape).fill(Pattern::Random));
  const std::vector<std::byte> from = source.bytes();
  for (std::int64_t middle = 1; middle < source.elems(); middle += 97) {
    const Tensor out(DType::F32, shape, Order::ChannelsLast);
    const FlatWriter writer(out.view());
    for (const auto& [begin, end] :
         {std::pair{middle, source.elems()}, {std::int64_t{0}, middle}}) {
      const WritePanels panels(writer);
      writer.scatter_bytes(begin, end - begin, from.data() + begin * 4);
    }
    ASSERT_EQ(out.bytes(), from) << middle;
  }
}

TEST(Panels, AreForTensorsWhoseUnitStepIsElsewhere) {
  const auto together = [](const Shape& axes, const Shape& steps) {
    return PanelGrid::of(DType::F32, axes, steps).together;
  };
  EXPECT_EQ(together({100}, {1}), 0);
  EXPECT_EQ(together({8, 100}, {200, 1}), 0);      // rows apart
  EXPECT_EQ(together({8, 100}, {2, 16}), 0);       // no unit step
  EXPECT_EQ(together({3, 1000}, {1, 3}), 3);       // fewer lines than a vector
  EXPECT_EQ(together({64, 1 << 20}, {1, 64}), 0);  // lines too long
  EXPECT_GE(together({32, 64, 3136}, {64 * 3136, 1, 64}), 16);
}

}  // namespace
}  // namespace tuckfold
