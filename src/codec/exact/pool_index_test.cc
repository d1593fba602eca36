// pool_index against a pooling of random images; what every codec must keep is in contract_test.cc.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "base/fail.h"
#include "codec/contract_fixture.h"

namespace tuckfold {
namespace {

struct Pooling {
  int kernel, stride, padding;
  std::int64_t height, width;

  std::int64_t rows() const { return (height + 2 * padding - kernel) / stride + 1; }
  std::int64_t cols() const { return (width + 2 * padding - kernel) / stride + 1; }
  std::string text() const {
    return fmt::format("pool_index(kernel={}, stride={}, padding={}, width={})", kernel, stride,
                       padding, width);
  }
};

// An index in each window of `planes` images, as pooling would give it, and its place there.
struct Pooled {
  std::vector<std::int64_t> indices, places;
};
Pooled pooled(const Pooling& p, std::int64_t planes) {
  std::mt19937 random(3);
  Pooled result;
  for (std::int64_t i = 0; i < planes * p.rows() * p.cols(); ++i) {
    const std::int64_t top = i / p.cols() % p.rows() * p.stride - p.padding;
    const std::int64_t left = i % p.cols() * p.stride - p.padding;
    for (;;) {
      const std::int64_t dy = random() % static_cast<unsigned>(p.kernel);
      const std::int64_t dx = random() % static_cast<unsigned>(p.kernel);
      const std::int64_t y = top + dy, x = left + dx;
      if (y < 0 || x < 0 || y >= p.height || x >= p.width) continue;
      result.indices.push_back(y * p.width + x);
      result.places.push_back(dy * p.kernel + dx);
      break;
    }
  }
  return result;
}

constexpr Pooling kPoolings[] = {{2, 2, 0, 14, 14}, {3, 2, 1, 112, 112}, {3, 1, 1, 7, 9},
                                 {5, 3, 2, 31, 28}, {1, 2, 0, 9, 9},     {16, 16, 8, 40, 33},
                                 {2, 1, 1, 5, 5},   {7, 7, 3, 21, 50}};

template <class T>
std::vector<std::byte> packed(const CodecSpec& spec, DType dtype, const std::vector<T>& indices,
                              const Shape& shape) {
  std::vector<std::byte> bytes(layout(spec, dtype, shape).max_bytes);
  pack(spec, ConstTensorView(indices.data(), dtype, shape), bytes);
  return bytes;
}

TEST(PoolIndex, IndicesBecomePlacesInTheirWindowsAndComeBack) {
  for (const Pooling& p : kPoolings) {
    const Pooled wanted = pooled(p, 3);
    const CodecSpec spec = CodecSpec::parse(p.text());
    const Shape shape = {3, p.rows(), p.cols()};
    const std::vector<std::byte> bytes = packed(spec, DType::I64, wanted.indices, shape);
    int bits = 1;
    while (1 << bits < p.kernel * p.kernel) ++bits;
    ASSERT_EQ(bytes.size(), (wanted.indices.size() * static_cast<std::size_t>(bits) + 7) / 8);
    for (std::size_t i = 0; i < wanted.places.size(); ++i) {
      std::int64_t code = 0;
      for (int b = 0; b < bits; ++b) {
        const std::size_t at = i * static_cast<std::size_t>(bits) + static_cast<std::size_t>(b);
        code |= (std::to_integer<std::int64_t>(bytes[at / 8]) >> at % 8 & 1) << b;
      }
      ASSERT_EQ(code, wanted.places[i]) << p.text() << ' ' << i;
    }
    std::vector<std::int64_t> back(wanted.indices.size(), -1);
    unpack(spec, bytes, TensorView(back.data(), DType::I64, shape));
    EXPECT_EQ(back, wanted.indices) << p.text();

    const std::vector<std::int32_t> narrow(wanted.indices.begin(), wanted.indices.end());
    EXPECT_EQ(packed(spec, DType::I32, narrow, shape), bytes);
  }
}

TEST(PoolIndex, ChannelsLastPacksThePlacesInThatOrder) {
  const Pooling p = kPoolings[1];
  constexpr std::int64_t kChannels = 5, kImages = 2;
  const Pooled wanted = pooled(p, kImages * kChannels);
  const std::int64_t places = p.rows() * p.cols();
  std::vector<std::int64_t> last(wanted.indices.size());
  for (std::int64_t n = 0; n < kImages; ++n) {
    for (std::int64_t c = 0; c < kChannels; ++c) {
      for (std::int64_t i = 0; i < places; ++i) {
        last[static_cast<std::size_t>((n * places + i) * kChannels + c)] =
            wanted.indices[static_cast<std::size_t>((n * kChannels + c) * places + i)];
      }
    }
  }
  std::string text = p.text();
  text.insert(text.size() - 1, ", channels=last");
  const CodecSpec spec = CodecSpec::parse(text);
  const Shape shape = {kImages, p.rows(), p.cols(), kChannels};
  const std::vector<std::byte> bytes = packed(spec, DType::I64, last, shape);
  std::vector<std::int64_t> back(last.size(), -1);
  unpack(spec, bytes, TensorView(back.data(), DType::I64, shape));
  EXPECT_EQ(back, last);
}

TEST(PoolIndex, AnIndexOutsideOfItsWindowIsNamed) {
  const Pooling p = {3, 2, 1, 8, 8};
  Pooled wanted = pooled(p, 1);
  const Shape shape = {1, p.rows(), p.cols()};
  for (const std::int64_t wrong : {std::int64_t{-1}, std::int64_t{63}, INT64_MAX, INT64_MIN}) {
    wanted.indices[5] = wrong;
    try {
      packed(CodecSpec::parse(p.text()), DType::I64, wanted.indices, shape);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::InvalidArgument);
      EXPECT_EQ(
          error.what(),
          fmt::format("[pack] pool_index: the window of element 5 has rows 1..3 and columns "
                      "1..3 of an image with width=8, got index {}; give the pooling's kernel, "
                      "stride, padding and input width, or use bits",
                      wrong));
    }
  }
}

TEST(PoolIndex, WhatDoesNotFitIsRefused) {
  const auto code = [](const char* text, DType dtype, const Shape& shape) {
    return ref::code_of([&] { layout(CodecSpec::parse(text), dtype, shape); });
  };
  EXPECT_EQ(code("pool_index", DType::I64, {8, 8}), Errc::InvalidArgument);  // no width
  EXPECT_EQ(code("pool_index(width=16, padding=2)", DType::I64, {8, 8}), Errc::InvalidArgument);
  EXPECT_EQ(code("pool_index(width=16)", DType::F32, {8, 8}), Errc::InvalidArgument);
  EXPECT_EQ(code("pool_index(width=16)", DType::I64, {8}), Errc::InvalidArgument);
  EXPECT_EQ(code("pool_index(width=16, channels=last)", DType::I64, {8, 8}), Errc::InvalidArgument);
  EXPECT_EQ(code("pool_index(width=14)", DType::I64, {8, 8}), Errc::InvalidArgument);
  EXPECT_EQ(code("pool_index(width=16777216)", DType::I32, {800, 8}), Errc::InvalidArgument);
  EXPECT_EQ(layout(CodecSpec::parse("pool_index(width=15)"), DType::I64, {8, 8}).max_bytes, 16u);
}

}  // namespace
}  // namespace tuckfold
