// Only tensors without gaps have all their elements in the order of memory.
#include "base/memory_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/tensor_fixture.h"

namespace tuckfold {
namespace {

using ref::Order;
using ref::Tensor;

TEST(MemoryOrder, HasEveryElementOnce) {
  for (const Shape& shape : {Shape{2, 5, 7, 3}, Shape{4, 1, 6}, Shape{9}, Shape{1}}) {
    for (const Order order :
         {Order::RowMajor, Order::ChannelsLast, Order::Transposed, Order::Fortran}) {
      Tensor tensor(DType::F32, shape, order);
      std::vector<double> values(static_cast<std::size_t>(shape.elems()));
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i);
      tensor.fill(values);
      const FlatReader reader(tensor.view());
      const auto* all = static_cast<const float*>(all_in_memory_order(reader));
      ASSERT_NE(all, nullptr) << to_string(shape);
      std::vector<double> sorted(all, all + values.size());
      std::sort(sorted.begin(), sorted.end());
      EXPECT_EQ(sorted, values);
    }
  }
}

TEST(MemoryOrder, IsNotThereWithGapsRepeatsOrStepsBack) {
  for (const Order order : {Order::PaddedRows, Order::Flipped, Order::Gapped}) {
    const Tensor tensor(DType::F32, {3, 5, 4}, order);
    EXPECT_EQ(all_in_memory_order(FlatReader(tensor.view())), nullptr);
  }
  const float value = 1;
  const ConstTensorView repeated(&value, DType::F32, Shape{3, 5}, Shape{0, 0});
  EXPECT_EQ(all_in_memory_order(FlatReader(repeated)), nullptr);
}

}  // namespace
}  // namespace tuckfold
