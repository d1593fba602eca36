// Shared memory, against all addresses written down.
#include "base/overlap.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <set>
#include <vector>

namespace tuckfold {
namespace {

std::vector<std::byte> g_memory(4096);

std::set<std::ptrdiff_t> bytes_ref(const ConstTensorView& view) {
  std::set<std::ptrdiff_t> found;
  const auto size = static_cast<std::ptrdiff_t>(size_bytes(view.dtype));
  for (std::int64_t i = 0; i < view.shape.elems(); ++i) {
    std::int64_t rest = i;
    std::ptrdiff_t at = static_cast<const std::byte*>(view.data) - g_memory.data();
    for (std::size_t axis = view.shape.rank(); axis-- > 0; rest /= view.shape[axis]) {
      at += rest % view.shape[axis] * view.strides[axis] * size;
    }
    for (std::ptrdiff_t byte = 0; byte < size; ++byte) found.insert(at + byte);
  }
  return found;
}

bool overlaps_ref(const ConstTensorView& a, const ConstTensorView& b) {
  const auto all = bytes_ref(a);
  for (const std::ptrdiff_t byte : bytes_ref(b)) {
    if (all.contains(byte)) return true;
  }
  return false;
}

class Random {
 public:
  std::int64_t below(std::int64_t end) {
    return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(end));
  }
  // In the middle of the memory, any strides: negative, 0, overlapping.
  TensorView view() {
    constexpr DType kTypes[] = {DType::U8, DType::F16, DType::F32, DType::F64};
    const DType dtype = kTypes[below(4)];
    Shape shape, strides;
    const std::int64_t rank = below(4);
    for (std::int64_t axis = 0; axis < rank; ++axis) {
      shape.push_back(below(8) == 0 ? below(2) : 1 + below(4));
      strides.push_back(below(30) - 12);
    }
    const auto start = static_cast<std::ptrdiff_t>(2000 + below(12) * 8);
    return {g_memory.data() + start, dtype, shape, strides};
  }

 private:
  std::mt19937_64 random_{1};
};

TEST(Overlap, OfTensorsOfAnyStrides) {
  Random random;
  int shared = 0, apart = 0;
  for (int i = 0; i < 20000; ++i) {
    const TensorView a = random.view(), b = random.view();
    const bool wanted = overlaps_ref(a, b);
    ASSERT_EQ(overlaps(a, b), wanted)
        << i << ' ' << to_string(a.shape) << " by " << to_string(a.strides) << ", "
        << to_string(b.shape) << " by " << to_string(b.strides);
    (wanted ? shared : apart) += 1;
  }
  EXPECT_GT(shared, 4000);
  EXPECT_GT(apart, 5000);
}

TEST(Overlap, OfElementsOfOneTensor) {
  Random random;
  int shared = 0, apart = 0;
  for (int i = 0; i < 20000; ++i) {
    const TensorView view = random.view();
    const auto bytes = static_cast<std::size_t>(view.shape.elems()) * size_bytes(view.dtype);
    const bool wanted = bytes_ref(view).size() < bytes;
    ASSERT_EQ(repeats(view), wanted)
        << i << ' ' << to_string(view.shape) << " by " << to_string(view.strides);
    (wanted ? shared : apart) += 1;
  }
  EXPECT_GT(shared, 1000);
  EXPECT_GT(apart, 5000);
  const Shape large = {1 << 10, 1 << 10, 1 << 10};  // quickly, too
  EXPECT_FALSE(repeats(ConstTensorView(g_memory.data(), DType::F32, large)));
  EXPECT_FALSE(repeats(ConstTensorView(g_memory.data(), DType::F32, large, {1, 1 << 10, 1 << 20})));
}

TEST(Overlap, OfBytesAndATensor) {
  Random random;
  for (int i = 0; i < 20000; ++i) {
    const TensorView view = random.view();
    const std::span<const std::byte> bytes(g_memory.data() + 1950 + random.below(200),
                                           static_cast<std::size_t>(random.below(20)));
    const ConstTensorView row(bytes.data(), DType::U8, {static_cast<std::int64_t>(bytes.size())});
    ASSERT_EQ(overlaps(bytes, view), overlaps_ref(row, view)) << i;
  }
}

TEST(Overlap, ColumnsTilesAndPlanesOfOneMatrixAreApart) {
  std::vector<TensorView> parts;
  for (std::int64_t i = 0; i < 1000; ++i) {  // quickly, too: all addresses interleave
    parts.emplace_back(g_memory.data() + i, DType::U8, Shape{1 << 20}, Shape{1000});
  }
  EXPECT_FALSE(find_overlap<TensorView>(parts, {}, Writes::Views));
  parts.emplace_back(g_memory.data() + 7, DType::U8, Shape{3}, Shape{1000});
  EXPECT_EQ(find_overlap<TensorView>(parts, {}, Writes::Views),
            (std::pair<std::size_t, std::size_t>(7, 1000)));

  parts.clear();
  for (const std::int64_t at : {0, 8, 128, 136}) {
    parts.emplace_back(g_memory.data() + at, DType::U8, Shape{8, 8}, Shape{16, 1});
  }
  EXPECT_FALSE(find_overlap<TensorView>(parts, {}, Writes::Views));
}

TEST(Overlap, OnlyWhatIsWrittenMustBeApart) {
  const std::span<const std::byte> all(g_memory), front = all.first(64), back = all.subspan(64, 64);
  const std::vector<TensorView> twice(2, TensorView(g_memory.data(), DType::U8, {64}));
  const std::vector<std::span<const std::byte>> same = {back, back}, apart = {front, back};
  using Pair = std::pair<std::size_t, std::size_t>;
  EXPECT_EQ(find_overlap<TensorView>(twice, {}, Writes::Views), Pair(0, 1));
  EXPECT_EQ(find_overlap<TensorView>(twice, same, Writes::Bytes), Pair(2, 3));
  EXPECT_FALSE(find_overlap<TensorView>({twice.data(), 1}, same, Writes::Views));
  EXPECT_EQ(find_overlap<TensorView>({twice.data(), 1}, apart, Writes::Views), Pair(0, 1));
  EXPECT_EQ(find_overlap<TensorView>({twice.data(), 1}, apart, Writes::Bytes), Pair(0, 1));
  const std::vector<std::span<const std::byte>> empty(2);
  EXPECT_FALSE(find_overlap<TensorView>({twice.data(), 1}, empty, Writes::Bytes));
}

}  // namespace
}  // namespace tuckfold
