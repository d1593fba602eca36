// nonzero_quant on CUDA where the contract tests do not reach: zeros, many blocks, every group and
// number of bits, damaged bytes.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "base/cuda/device_fixture.h"
#include "base/fail.h"
#include "codec/contract_cuda_fixture.h"
#include "tuckfold/codec.h"
#include "tuckfold/error.h"

namespace tuckfold {
namespace {

using ref::DeviceBytes;
using ref::Order;
using ref::Tensor;

class NonzeroQuantCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda_devices() == 0) GTEST_SKIP() << "there is no CUDA device";
  }
};

double noise(std::int64_t i) {
  const auto mixed = static_cast<std::uint64_t>(i + 1) * 0x9e3779b97f4a7c15u;
  return static_cast<double>((mixed ^ mixed >> 29) * 0xbf58476d1ce4e5b9u >> 11) * 0x1p-53;
}

// Values of which a share is not 0; of both signs from `low` on.
Tensor sparse(DType dtype, const Shape& shape, double density, double low = 0.01,
              Order order = Order::RowMajor) {
  Tensor in(dtype, shape, order);
  const double scale = dtype == DType::U8 ? 255 : 1;
  std::vector<double> values(static_cast<std::size_t>(shape.elems()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    values[i] = noise(at) < density ? scale * (low + (1 - low) * noise(at + 77777)) : 0;
  }
  in.fill(values);
  return in;
}

void compare(const std::string& text, const Tensor& in, std::int64_t past = 0,
             Order order = Order::RowMajor) {
  ASSERT_EQ(ref::difference_from_cpu(CodecSpec::parse(text), in, past, order), "");
}

TEST_F(NonzeroQuantCuda, EveryNumberOfBitsAndGroupHasTheCpusBytes) {
  for (const DType dtype : {DType::F32, DType::BF16}) {
    for (int bits = 1; bits <= 8; ++bits) {
      for (const int group : {8, 16, 24, 64, 256, 264, 512, 2048}) {
        for (const char* round : {"nearest", "stochastic"}) {
          const std::string text =
              fmt::format("nonzero_quant(bits={}, group={}, round={})", bits, group, round);
          compare(text, sparse(dtype, {3 * 2048 + 333}, 0.5));
          compare(text, sparse(dtype, {2500}, 0.9, -0.7));
        }
      }
    }
  }
}

TEST_F(NonzeroQuantCuda, EveryDensityAndTailHasTheCpusBytes) {
  for (const DType dtype : ref::kDeviceLossyDTypes) {
    for (const double density : {0.0, 0.002, 0.3, 1.0}) {
      for (const std::int64_t elems : {1, 7, 33, 2047, 2048, 2049, 8 * 2048, 17 * 2048 + 31}) {
        compare("nonzero_quant(bits=3)", sparse(dtype, {elems}, density));
        compare("nonzero_quant(bits=5, group=8)", sparse(dtype, {elems}, density, -1), 1);
      }
    }
  }
}

TEST_F(NonzeroQuantCuda, StridesHaveTheCpusBytes) {
  for (const DType dtype : ref::kDeviceLossyDTypes) {
    for (const Order order : ref::kOrders) {
      compare("nonzero_quant(bits=2)", sparse(dtype, {2, 5, 24, 21}, 0.5, 0.1, order), 0, order);
    }
  }
}

TEST_F(NonzeroQuantCuda, MoreBlocksThanOneLookReachesHaveTheCpusBytes) {
  compare("nonzero_quant(bits=1, group=256)",
          sparse(DType::BF16, {(1 << 21) + (1 << 18) + 7}, 0.1));
}

// Subnormals, NaN and infinities among zeros, and magnitudes that differ much.
TEST_F(NonzeroQuantCuda, HostileValuesAmongZerosHaveTheCpusBytes) {
  std::mt19937 random(3);
  for (const DType dtype : {DType::F32, DType::F16, DType::BF16, DType::F64}) {
    for (const int bits : {1, 2, 3, 4, 8}) {
      Tensor in(dtype, {9000});
      std::vector<double> values(9000);
      for (double& x : values) {
        if (random() % 3 == 0) continue;
        x = std::ldexp(1 + noise(random()), static_cast<int>(random() % 300) - 160);
        if (random() % 2 == 0) x = -x;
        if (random() % 500 == 0) x = std::array{NAN, INFINITY, -INFINITY, -0.0f}[random() % 4];
      }
      in.fill(values);
      in.vary_nans(7);
      compare(fmt::format("nonzero_quant(bits={}, group=16)", bits), in);
      compare(fmt::format("nonzero_quant(bits={}, group=40, round=stochastic)", bits), in);
    }
  }
}

struct Word {
  DeviceBytes bytes{8};
  std::uint64_t* data() const { return reinterpret_cast<std::uint64_t*>(bytes.data()); }
  std::uint64_t fetch() const {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.fetch().data(), sizeof(word));
    return word;
  }
};

TEST_F(NonzeroQuantCuda, TheSizeStaysOnTheDeviceIfAskedFor) {
  const CodecSpec spec = CodecSpec::parse("nonzero_quant(bits=3)");
  for (const std::int64_t elems : {0, 5, 50000}) {
    const Tensor in = sparse(DType::F32, {elems}, 0.5);
    const Layout fit = layout(spec, DType::F32, in.shape());
    std::vector<std::byte> wanted(fit.max_bytes);
    wanted.resize(pack(spec, in.view(), wanted));
    const ref::DeviceTensor from(in, 0);
    const DeviceBytes out(fit.max_bytes), workspace(fit.workspace_bytes);
    const Word result;
    const RunOptions options{.workspace = workspace.span(),
                             .cuda = {.device_result = result.data()}};
    EXPECT_EQ(pack(spec, from.view(), out.span(), options), fit.max_bytes);
    EXPECT_EQ(result.fetch(), wanted.size());
    EXPECT_TRUE(workspace.guards_untouched());
    const DeviceBytes packed(wanted);
    unpack(spec, packed.span(), from.view(), options);
    EXPECT_EQ(result.fetch(), 0u);
  }
}

TEST_F(NonzeroQuantCuda, ASeedOnTheDeviceIsAdded) {
  const CodecSpec spec = CodecSpec::parse("nonzero_quant(bits=2, round=stochastic)");
  const Tensor in = sparse(DType::F32, {5000}, 0.5);
  std::vector<std::byte> wanted(layout(spec, DType::F32, in.shape()).max_bytes);
  wanted.resize(pack(spec, in.view(), wanted, {.seed = 12}));
  const ref::DeviceTensor from(in, 0);
  const DeviceBytes out(layout(spec, DType::F32, in.shape()).max_bytes);
  const Word seed;
  const std::uint64_t five = 5;
  cuda::copy(seed.data(), &five, 8, nullptr);
  const std::size_t bytes =
      pack(spec, from.view(), out.span(), {.seed = 7, .cuda = {.device_seed = seed.data()}});
  std::vector<std::byte> got = out.fetch();
  got.resize(bytes);
  EXPECT_EQ(ref::first_difference(DType::U8, got, wanted), "");
}

// Damaged bytes give what the CPU gives, or a refusal where the CPU refuses; memory is safe.
TEST_F(NonzeroQuantCuda, DamagedBytesAreRefusedWhereTheCpuRefuses) {
  std::mt19937 random(5);
  int refused = 0;
  for (const DType dtype : {DType::F32, DType::BF16, DType::U8}) {
    const CodecSpec spec = CodecSpec::parse("nonzero_quant(bits=3, group=16)");
    const Tensor in = sparse(dtype, {10 * 2048 + 77}, 0.4);
    std::vector<std::byte> all(layout(spec, dtype, in.shape()).max_bytes);
    all.resize(pack(spec, in.view(), all));
    for (int round = 0; round < 60; ++round) {
      std::vector<std::byte> damaged = all;
      const std::size_t front = round % 3 == 0 ? 11 * 4 : damaged.size();
      for (int i = 0; i <= round % 3; ++i) damaged[random() % front] ^= std::byte(random());
      if (round % 5 == 4) damaged.resize(damaged.size() - random() % 300);
      const Tensor expected(dtype, in.shape()), back(dtype, in.shape());
      const bool good =
          ref::code_of([&] { unpack(spec, damaged, expected.view()); }) != Errc::CorruptData;
      const DeviceBytes packed(damaged);
      const ref::DeviceTensor to(back, 0);
      const bool accepted =
          ref::code_of([&] { unpack(spec, packed.span(), to.view()); }) != Errc::CorruptData;
      ASSERT_EQ(accepted, good) << "round " << round;
      to.fetch();
      if (good) {
        ASSERT_EQ(ref::first_difference(dtype, back.bytes(), expected.bytes()), "");
      }
      ASSERT_TRUE(to.guards_untouched());
      refused += good ? 0 : 1;
    }
  }
  EXPECT_GT(refused, 40);
}

TEST_F(NonzeroQuantCuda, ATileThatContradictsItsMaskIsNoNumber) {
  const CodecSpec spec = CodecSpec::parse("nonzero_quant(bits=3)");
  const Tensor in = sparse(DType::F32, {3 * 2048}, 0.5), back(DType::F32, in.shape());
  std::vector<std::byte> bytes(layout(spec, DType::F32, in.shape()).max_bytes);
  bytes.resize(pack(spec, in.view(), bytes));
  std::fill_n(bytes.begin() + 12 + 256, 64, std::byte{0});  // in the mask of the second tile
  const DeviceBytes packed(bytes);
  const ref::DeviceTensor to(back, 0);
  const Word result;
  unpack(spec, packed.span(), to.view(), {.cuda = {.device_result = result.data()}});
  EXPECT_EQ(result.fetch(), kRefused);
  to.fetch();
  for (std::int64_t i = 0; i < 3 * 2048; ++i) {
    ASSERT_EQ(std::isnan(back.get(i)), i / 2048 == 1) << i;
  }
}

}  // namespace
}  // namespace tuckfold
