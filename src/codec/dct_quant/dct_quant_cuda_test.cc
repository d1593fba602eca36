// dct_quant on a CUDA device against the CPU, bit for bit: every rate, blocks of very different
// kinds, warps full and partial, bytes that nothing packed.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/cuda/device_fixture.h"
#include "tuckfold/codec.h"

namespace tuckfold {
namespace {

using ref::DeviceBytes;
using ref::DeviceTensor;
using ref::first_difference;
using ref::Tensor;

class DctQuantCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda_devices() == 0) GTEST_SKIP() << "there is no CUDA device";
  }
};

CodecSpec spec_of(double rate, int dc = 8, const char* more = "") {
  return CodecSpec::parse(fmt::format("dct_quant(rate={}, dc={}{})", rate, dc, more));
}

// Each block of one kind: noise, smooth, sparse, steep, huge, small, zero, constant, one of a NaN.
Tensor many_kinds(DType dtype, const Shape& shape, unsigned seed) {
  std::mt19937 random(seed);
  const auto uniform = [&] { return static_cast<double>(random()) / 2147483648.0 - 1; };
  Tensor tensor(dtype, shape);
  std::vector<double> values(static_cast<std::size_t>(tensor.elems()));
  const std::int64_t cols = shape[shape.rank() - 1], rows = tensor.elems() / cols;
  for (std::int64_t top = 0; top < rows; top += 8) {
    for (std::int64_t left = 0; left < cols; left += 8) {
      const auto kind = random() % 9;
      const double a = uniform(), b = uniform(), c = uniform(), size = std::exp2(8 * uniform());
      for (std::int64_t r = top; r < std::min(top + 8, rows); ++r) {
        for (std::int64_t s = left; s < std::min(left + 8, cols); ++s) {
          const double slope = a * static_cast<double>(r - top) + b * static_cast<double>(s - left);
          const double noise = uniform();
          const double of_kind[] = {size * noise,
                                    size * (std::sin(slope) + 5 * c),
                                    random() % 16 == 0 ? size * noise : 0,
                                    size * (1000 * c + slope + 1e-4 * noise),
                                    std::exp2(116 + 12 * a) * noise,
                                    std::exp2(-120 + 29 * a) * noise,
                                    0,
                                    size * c,
                                    r == top && s == left ? std::nan("") : noise};
          values[static_cast<std::size_t>(r * cols + s)] = of_kind[kind];
        }
      }
    }
  }
  return std::move(tensor.fill(values));
}

void expect_the_cpus_bytes(const CodecSpec& spec, const Tensor& in) {
  SCOPED_TRACE(spec.print() + " of " + std::string(to_string(in.dtype())) + " " +
               to_string(in.shape()));
  std::vector<std::byte> wanted(layout(spec, in.dtype(), in.shape()).max_bytes);
  pack(spec, in.view(), wanted);
  const DeviceTensor on_device(in);
  const DeviceBytes out(wanted.size());
  ASSERT_EQ(pack(spec, on_device.view(), out.span()), wanted.size());
  ASSERT_EQ(first_difference(DType::U8, out.fetch(), wanted), "");
  ASSERT_TRUE(out.guards_untouched());
}

void expect_the_cpus_values(const CodecSpec& spec, std::span<const std::byte> bytes, DType dtype,
                            const Shape& shape) {
  SCOPED_TRACE(spec.print() + " to " + std::string(to_string(dtype)) + " " + to_string(shape));
  Tensor expected(dtype, shape), back(dtype, shape);
  unpack(spec, bytes, expected.view());
  const DeviceBytes packed(bytes);
  const DeviceTensor to(back);
  unpack(spec, packed.span(), to.view());
  to.fetch();
  ASSERT_EQ(first_difference(dtype, back.bytes(), expected.bytes()), "");
  ASSERT_TRUE(to.guards_untouched());
}

void expect_the_cpu(const CodecSpec& spec, const Tensor& in) {
  expect_the_cpus_bytes(spec, in);
  if (::testing::Test::HasFatalFailure()) return;
  std::vector<std::byte> bytes(layout(spec, in.dtype(), in.shape()).max_bytes);
  pack(spec, in.view(), bytes);
  expect_the_cpus_values(spec, bytes, in.dtype(), in.shape());
}

TEST_F(DctQuantCuda, EveryRateAndEveryDc) {
  for (int bytes = 8; bytes <= 128; ++bytes) {
    const Tensor in = many_kinds(DType::F32, {2, 40, 104}, static_cast<unsigned>(bytes));
    for (const int dc : {4, 8, 12}) {
      expect_the_cpu(spec_of(bytes / 8.0, dc), in);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(DctQuantCuda, EveryDtypeOfWholeBlocks) {
  for (const DType dtype : ref::kDeviceLossyDTypes) {
    for (const double rate : {1.0, 1.375, 2.0, 3.0, 4.0, 6.0, 7.875, 8.0, 8.125}) {
      if (rate > 8 && dtype == DType::U8) continue;  // it would grow
      expect_the_cpu(spec_of(rate), many_kinds(dtype, {3, 16, 88}, 5));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(DctQuantCuda, OffsetsAndClamps) {
  const Tensor in = many_kinds(DType::F32, {64, 72}, 6);
  for (const char* more : {", offset=0.75", ", clamp=zero", ", offset=-3, clamp=zero"}) {
    for (const double rate : {2.0, 4.0, 12.0}) {
      expect_the_cpu(spec_of(rate, 8, more), in);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(DctQuantCuda, AnyNumberOfBlocksInTheLastWarp) {
  for (std::int64_t blocks = 1; blocks <= 67; ++blocks) {
    for (const double rate : {1.125, 2.0, 2.75, 4.0}) {
      expect_the_cpu(spec_of(rate), many_kinds(DType::F32, {8, 8 * blocks}, 7));
      expect_the_cpu(spec_of(rate), many_kinds(DType::F32, {8 * blocks, 8}, 8));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(DctQuantCuda, TensorsThatStartOffSixteenBytes) {
  const Tensor in = many_kinds(DType::F32, {24, 80}, 9);
  const CodecSpec spec = spec_of(4);
  std::vector<std::byte> bytes(layout(spec, in.dtype(), in.shape()).max_bytes);
  pack(spec, in.view(), bytes);
  // Memory of the device starts where a line does; a tensor from its second value on does not.
  const DeviceBytes memory(std::vector<std::byte>(4 + in.storage().size()));
  cuda::copy(memory.data() + 4, in.view().data, in.storage().size(), nullptr);
  const DeviceBytes out(bytes.size());
  const TensorView shifted(memory.data() + 4, DType::F32, in.shape(), Device::Cuda);
  pack(spec, shifted, out.span());
  ASSERT_EQ(first_difference(DType::U8, out.fetch(), bytes), "");
  Tensor expected(DType::F32, in.shape());
  unpack(spec, bytes, expected.view());
  unpack(spec, out.span(), shifted);
  const std::vector<std::byte> back = memory.fetch();
  ASSERT_EQ(first_difference(DType::F32, std::span(back).subspan(4), expected.bytes()), "");
  ASSERT_TRUE(memory.guards_untouched());
}

// Random bytes hardly ever have widths that fit; changes of a few bits of good ones often do.
TEST_F(DctQuantCuda, BytesThatNothingPackedGiveTheCpusValues) {
  std::mt19937 random(11);
  const Shape shape = {64, 136};
  for (const double rate : {1.0, 1.375, 1.75, 2.0, 2.375, 2.5, 3.0, 4.0, 4.125, 6.0, 8.0, 9.0}) {
    for (const int dc : {4, 8, 12}) {
      const CodecSpec spec = spec_of(rate, dc);
      std::vector<std::byte> bytes(layout(spec, DType::F32, shape).max_bytes);
      for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
      expect_the_cpus_values(spec, bytes, DType::F32, shape);
      std::fill(bytes.begin(), bytes.end(), std::byte{0xff});
      expect_the_cpus_values(spec, bytes, DType::F32, shape);
      const Tensor in = many_kinds(DType::F32, shape, 12);
      pack(spec, in.view(), bytes);
      const auto each = static_cast<std::size_t>(rate * 8);
      for (std::size_t at = 0; at < bytes.size(); at += each) {
        bytes[at + random() % std::min<std::size_t>(each, 8)] ^= std::byte{1} << random() % 8;
      }
      expect_the_cpus_values(spec, bytes, DType::F32, shape);
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace tuckfold
