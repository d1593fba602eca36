// Every order of up to five axes in memory, with and without elements between rows, some of them
// backwards: what is gathered and scattered, through panels and without, is what a plain loop gives.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/strided.h"
#include "base/target.h"
#include "base/tensor_fixture.h"
#include "tuckfold/version.h"

namespace tuckfold {
namespace {

// A shape whose axes lie in memory in this order, outermost first; so many elements are between
// rows, the runs along the last of them. Bit i of `mirrored`: axis i runs backwards.
struct Arranged {
  Shape shape, strides;
  std::int64_t span = 1;   // elements from the first to the last
  std::int64_t first = 0;  // where the first of the sequence lies

  Arranged(const Shape& axes, const std::vector<std::size_t>& order, std::int64_t between,
           unsigned mirrored = 0)
      : shape(axes), strides(axes) {
    std::int64_t step = 1;
    for (std::size_t i = order.size(); i-- > 0;) {
      strides[order[i]] = step;
      step *= std::max<std::int64_t>(axes[order[i]], 1);
      if (i + 1 == order.size()) step += between;
    }
    for (std::size_t axis = 0; axis < axes.rank(); ++axis) {
      span += (axes[axis] - 1) * strides[axis];
    }
    if (axes.elems() == 0) span = 0;
    for (std::size_t axis = 0; axis < axes.rank() && span > 0; ++axis) {
      if ((mirrored >> axis & 1) == 0) continue;
      first += (axes[axis] - 1) * strides[axis];
      strides[axis] = -strides[axis];
    }
  }
  // Where element i of the sequence lies.
  std::int64_t place(std::int64_t i) const {
    std::int64_t at = first;
    for (std::size_t axis = shape.rank(); axis-- > 0; i /= shape[axis]) {
      at += i % shape[axis] * strides[axis];
    }
    return at;
  }
};

// Pieces of a sequence, in order: the whole, or some elements at a time.
template <class Piece>
void for_each_piece(std::int64_t elems, std::int64_t most, Piece&& piece) {
  for (std::int64_t at = 0; at < elems; at += most) piece(at, std::min(most, elems - at));
}

void expect_plain(DType dtype, const Arranged& is, std::int64_t piece) {
  const auto width = static_cast<std::int64_t>(size_bytes(dtype));
  const std::int64_t elems = is.shape.elems();
  // Ends where the tensor does, for AddressSanitizer.
  const ref::Buffer memory(static_cast<std::size_t>(is.span * width));
  std::mt19937 random(static_cast<unsigned>(elems));
  for (std::byte& byte : memory.span()) byte = static_cast<std::byte>(random() & 0x3f);
  std::vector<std::byte> rows(static_cast<std::size_t>(elems * width));
  for (std::int64_t i = 0; i < elems; ++i) {
    std::copy_n(memory.data() + is.place(i) * width, width, rows.data() + i * width);
  }

  const FlatReader reader(
      ConstTensorView(memory.data() + is.first * width, dtype, is.shape, is.strides));
  std::vector<std::byte> got(rows.size());
  {
    const ReadPanels panels(reader);
    for_each_piece(elems, piece, [&](std::int64_t at, std::int64_t count) {
      const void* there = reader.in_thread_panel(at, count);
      if (there != nullptr) {
        std::memcpy(got.data() + at * width, there, static_cast<std::size_t>(count * width));
      } else {
        reader.gather_bytes(at, count, got.data() + at * width);
      }
    });
    ASSERT_EQ(got, rows) << "gathered through panels";
  }
  std::fill(got.begin(), got.end(), std::byte{0xee});
  for_each_piece(elems, piece, [&](std::int64_t at, std::int64_t count) {
    reader.gather_bytes(at, count, got.data() + at * width);
  });
  ASSERT_EQ(got, rows) << "gathered";

  const ref::Buffer wanted(memory.size());
  for (std::int64_t i = 0; i < elems; ++i) {
    std::copy_n(rows.data() + i * width, width, wanted.data() + is.place(i) * width);
  }
  for (const bool through_panels : {false, true}) {
    const ref::Buffer out(memory.size());
    const FlatWriter writer(TensorView(out.data() + is.first * width, dtype, is.shape, is.strides));
    const auto scatter = [&] {
      for_each_piece(elems, piece, [&](std::int64_t at, std::int64_t count) {
        writer.scatter_bytes(at, count, rows.data() + at * width);
      });
    };
    if (through_panels) {
      const WritePanels panels(writer);
      scatter();
    } else {
      scatter();
    }
    ASSERT_TRUE(std::ranges::equal(out.span(), wanted.span())) << "scattered " << through_panels;
  }
}

void expect_plain_floats(DType dtype, const Arranged& is, std::int64_t piece) {
  const std::int64_t elems = is.shape.elems();
  const auto width = static_cast<std::int64_t>(size_bytes(dtype));
  std::vector<float> values(static_cast<std::size_t>(elems)), got(values.size());
  const ref::Buffer memory(static_cast<std::size_t>(is.span * width));
  const ref::Buffer out(memory.size());
  for (std::int64_t i = 0; i < elems; ++i) {
    values[static_cast<std::size_t>(i)] = static_cast<float>(i % 251);
    ref::set(dtype, memory.data(), is.place(i), static_cast<double>(i % 251));
  }
  const FlatReader reader(
      ConstTensorView(memory.data() + is.first * width, dtype, is.shape, is.strides));
  const FlatWriter writer(TensorView(out.data() + is.first * width, dtype, is.shape, is.strides));
  {
    const ReadPanels panels(reader);
    for_each_piece(elems, piece, [&](std::int64_t at, std::int64_t count) {
      reader.gather(at, count, got.data() + at);
    });
  }
  ASSERT_EQ(got, values);
  {
    const WritePanels panels(writer);
    for_each_piece(elems, piece, [&](std::int64_t at, std::int64_t count) {
      writer.scatter(at, count, values.data() + at);
    });
  }
  ASSERT_TRUE(std::ranges::equal(out.span(), memory.span()));
}

const std::vector<Shape> kShapes = {{70},
                                    {1},
                                    {0},
                                    {7, 7},
                                    {33, 70},
                                    {64, 1},
                                    {3, 0, 5},
                                    {40, 7, 7},
                                    {11, 14, 14},
                                    {2, 67, 35},
                                    {5, 3, 40, 9},
                                    {2, 16, 7, 7},
                                    {3, 70, 5, 13},
                                    {2, 1, 33, 17},
                                    {2, 3, 5, 7, 9},
                                    {1, 17, 2, 16, 8}};

template <class Check>
void for_each_arranged(Check&& check) {
  for (const Shape& shape : kShapes) {
    std::vector<std::size_t> order(shape.rank());
    std::iota(order.begin(), order.end(), std::size_t{0});
    do {
      const unsigned all = (1U << shape.rank()) - 1;
      for (const auto& [between, mirrored] :
           {std::pair{0, 0U}, {5, 0U}, {0, 1U}, {0, 2U}, {5, 4U}, {0, all}}) {
        if ((mirrored & all) != mirrored) continue;
        SCOPED_TRACE(fmt::format("{} in the order {}, {} between rows, mirrored {:b}",
                                 to_string(shape), fmt::join(order, ", "), between, mirrored));
        check(Arranged(shape, order, between, mirrored));
        if (::testing::Test::HasFatalFailure()) return;
      }
    } while (std::next_permutation(order.begin(), order.end()));
  }
}

TEST(Permutation, BytesAreThoseOfAPlainLoop) {
  for_each_arranged([](const Arranged& is) {
    for (const DType dtype : {DType::U8, DType::BF16, DType::F32, DType::I64}) {
      for (const std::int64_t piece : {101, 1 << 20}) {
        expect_plain(dtype, is, piece);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  });
}

TEST(Permutation, FloatsAreThoseOfAPlainLoop) {
  for_each_arranged([](const Arranged& is) {
    for (const DType dtype :
         {DType::F32, DType::F16, DType::BF16, DType::F64, DType::U8, DType::U16}) {
      expect_plain_floats(dtype, is, 1 << 10);
      if (::testing::Test::HasFatalFailure()) return;
    }
  });
}

// Two axes with many pairs of sides, the shortest of which need no whole vector, on every target.
void expect_every_side() {
  for (std::int64_t rows = 1; rows <= 70; rows += rows < 18 ? 1 : 13) {
    for (std::int64_t cols = 1; cols <= 70; cols += cols < 18 ? 1 : 13) {
      for (const auto& [between, mirrored] :
           {std::pair{0, 0U}, {3, 0U}, {0, 1U}, {0, 2U}, {0, 4U}}) {
        const Arranged is({9, rows, cols}, {0, 2, 1}, between, mirrored);
        for (const DType dtype : {DType::U8, DType::F16, DType::F32, DType::F64}) {
          SCOPED_TRACE(
              fmt::format("{} {} x {}, mirrored {:b}", to_string(dtype), rows, cols, mirrored));
          expect_plain(dtype, is, 777);
          if (::testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(Permutation, EverySideUpToSeventy) {
  const std::string before = cpu_target();
  for (const std::string& target : cpu_targets()) {
    SCOPED_TRACE(target);
    use_cpu_target(target);
    expect_every_side();
    if (::testing::Test::HasFatalFailure()) break;
  }
  use_cpu_target(before);
}

// Panels of large tensors reach memory by non-temporal stores; planes of one are larger than it.
TEST(Permutation, LargeTensors) {
  expect_plain(DType::F32, Arranged({3, 64, 15000}, {0, 2, 1}, 0), 5000);
  expect_plain(DType::F16, Arranged({5, 1024, 768}, {0, 2, 1}, 0), 5000);
  expect_plain(DType::U8, Arranged({100, 300, 300}, {0, 2, 1}, 4), 5000);
}

}  // namespace
}  // namespace tuckfold
