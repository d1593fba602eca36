// shuffle against its definition; contract_test.cc has what all codecs promise.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "base/fail.h"
#include "base/target.h"
#include "base/tensor_fixture.h"
#include "codec/shuffle/shuffle_ref.h"
#include "tuckfold/codec.h"
#include "tuckfold/version.h"

namespace tuckfold {
namespace {

using ref::Order;
using ref::Pattern;
using ref::Tensor;

constexpr const char* kDeltas[] = {"none", "sub", "xor", "rows", "plane"};
const std::vector<Shape> kShapes = {
    {},           {1},          {7},     {1000},    {8, 8},         {5, 7},
    {3, 1},       {33, 9},      {2, 70}, {2, 3, 4}, {4, 5, 100, 1}, {3, 2, 17, 19},
    {2, 3000, 8}, {2, 2, 1500}, {0},     {3, 0},    {70000, 1, 1}};

CodecSpec spec_of(const char* delta) {
  return CodecSpec::parse(fmt::format("shuffle(delta={})", delta));
}

std::vector<std::byte> packed(const CodecSpec& spec, const Tensor& in, int threads = 1) {
  std::vector<std::byte> out(layout(spec, in.dtype(), in.shape()).max_bytes);
  out.resize(pack(spec, in.view(), out, {.threads = threads}));
  return out;
}

TEST(Shuffle, HasTheBytesOfItsDefinition) {
  for (const DType dtype : kDTypes) {
    for (const Shape& shape : kShapes) {
      for (const Pattern pattern : {Pattern::Random, Pattern::Hostile}) {
        Tensor in(dtype, shape);
        in.fill(pattern);
        for (const char* delta : kDeltas) {
          SCOPED_TRACE(fmt::format("{} {} {}", delta, to_string(dtype), to_string(shape)));
          const std::vector<std::byte> bytes = packed(spec_of(delta), in);
          ASSERT_EQ(bytes, shuffle_ref::pack(in.bytes(), size_bytes(dtype), shape, delta));
          const Tensor back(dtype, shape);
          unpack(spec_of(delta), bytes, back.view());
          ASSERT_EQ(back.bytes(), in.bytes());
        }
      }
    }
  }
}

// Values above are read from the output, which may have any strides.
TEST(Shuffle, UnpacksToAnyStridesOnAnyTargetWithAnyThreads) {
  for (const Order order : ref::kOrders) {
    for (const char* delta : kDeltas) {
      for (const std::string& target : cpu_targets()) {
        use_cpu_target(target);
        for (const int threads : {1, 3}) {
          SCOPED_TRACE(fmt::format("{} on {} with {} threads", delta, target, threads));
          Tensor in(DType::F32, {6, 40, 41}, order);
          in.fill(Pattern::Random);
          const std::vector<std::byte> bytes = packed(spec_of(delta), in, threads);
          ASSERT_EQ(bytes, shuffle_ref::pack(in.bytes(), 4, in.shape(), delta));
          const Tensor back(DType::F32, in.shape(), order);
          unpack(spec_of(delta), bytes, back.view(), {.threads = threads});
          ASSERT_EQ(back.bytes(), in.bytes());
        }
      }
    }
  }
  use_cpu_target(cpu_targets().front());
}

TEST(Shuffle, MakesZstdSmallerWhereValuesAreSmooth) {
  constexpr std::int64_t kSide = 64;
  std::vector<float> values(static_cast<std::size_t>(kSide * kSide));
  for (std::int64_t y = 0; y < kSide; ++y) {
    for (std::int64_t x = 0; x < kSide; ++x) {
      values[static_cast<std::size_t>(y * kSide + x)] =
          280 + 0.01f * static_cast<float>(x) + 0.02f * static_cast<float>(y);
    }
  }
  const ConstTensorView view(values.data(), DType::F32, {kSide, kSide});
  const auto bytes = [&](const char* text) {
    const CodecSpec spec = CodecSpec::parse(text);
    std::vector<std::byte> out(layout(spec, DType::F32, {kSide, kSide}).max_bytes);
    return pack(spec, view, out);
  };
  EXPECT_LT(bytes("shuffle | zstd"), bytes("zstd"));
  EXPECT_LT(bytes("shuffle(delta=plane) | zstd"), bytes("zstd"));
}

TEST(Shuffle, TakesWholeNumbers) {
  const std::vector<std::int64_t> values = {INT64_MIN, INT64_MAX, 0, -1, 1, 7};
  for (const char* delta : kDeltas) {
    const CodecSpec spec = spec_of(delta);
    std::vector<std::byte> out(48);
    ASSERT_EQ(pack(spec, ConstTensorView(values.data(), DType::I64, {2, 3}), out), 48u);
    std::vector<std::int64_t> back(6);
    unpack(spec, out, TensorView(back.data(), DType::I64, {2, 3}));
    EXPECT_EQ(back, values) << delta;
  }
}

}  // namespace
}  // namespace tuckfold
