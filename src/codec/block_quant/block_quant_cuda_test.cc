// block_quant on CUDA where its fast kernels run: whole tiles of 1024 values, and what is left
// behind them.
#include <gtest/gtest.h>

#include "codec/contract_cuda_fixture.h"

namespace tuckfold {
namespace {

using ref::difference_from_cpu;
using ref::Pattern;
using ref::Tensor;

class BlockQuantCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda_devices() == 0) GTEST_SKIP() << "there is no CUDA device";
  }
};

constexpr DType kFast[] = {DType::F32, DType::F16, DType::BF16};

CodecSpec spec_of(int bits, int group, const char* more = "") {
  return CodecSpec::parse(fmt::format("block_quant(bits={}, group={}{})", bits, group, more));
}

Tensor values(DType dtype, std::int64_t elems, Pattern kind) {
  return std::move(Tensor(dtype, {elems}).fill(kind));
}

TEST_F(BlockQuantCuda, EveryNumberOfBitsAndEveryGroupOfATile) {
  for (const DType dtype : kFast) {
    for (int bits = 1; bits <= 8; ++bits) {
      for (const int group : {32, 64, 128, 256, 512, 1024}) {
        ASSERT_EQ(
            difference_from_cpu(spec_of(bits, group), values(dtype, 9 * 1024, Pattern::Random)),
            "");
      }
    }
  }
}

TEST_F(BlockQuantCuda, WhatIsLeftBehindTiles) {
  for (const DType dtype : kFast) {
    for (const int bits : {1, 3, 4, 7, 8}) {
      for (const std::int64_t left : {1, 2, 7, 8, 255, 257, 1023}) {
        ASSERT_EQ(
            difference_from_cpu(spec_of(bits, 256), values(dtype, 2048 + left, Pattern::Random)),
            "");
        ASSERT_EQ(difference_from_cpu(spec_of(bits, 64), values(dtype, 1024 + left, Pattern::Ramp)),
                  "");
      }
    }
  }
}

TEST_F(BlockQuantCuda, GroupsThatTilesDoNotHold) {
  for (const DType dtype : kFast) {
    for (const int bits : {2, 5, 8}) {
      for (const int group : {8, 16, 24, 200, 1000, 1032, 2048, 65536}) {
        ASSERT_EQ(difference_from_cpu(spec_of(bits, group),
                                      values(dtype, 5 * 1024 + 19, Pattern::Random)),
                  "");
      }
    }
  }
}

TEST_F(BlockQuantCuda, RandomRoundingAndExactZero) {
  for (const DType dtype : kFast) {
    for (const int bits : {1, 2, 4, 8}) {
      for (const int group : {32, 64, 256, 1024}) {
        for (const char* more :
             {", round=stochastic", ", zero=exact", ", round=stochastic, zero=exact"}) {
          for (const Pattern kind : {Pattern::Random, Pattern::Ramp, Pattern::Impulse}) {
            ASSERT_EQ(difference_from_cpu(spec_of(bits, group, more),
                                          values(dtype, 3 * 1024 + 300, kind)),
                      "");
          }
        }
      }
    }
  }
}

TEST_F(BlockQuantCuda, HostileValues) {
  for (const DType dtype : kFast) {
    for (const int group : {32, 64, 256, 512}) {
      for (const char* more : {"", ", round=stochastic", ", zero=exact"}) {
        ASSERT_EQ(difference_from_cpu(spec_of(4, group, more),
                                      values(dtype, 24 * 1024, Pattern::Hostile)),
                  "");
      }
    }
  }
}

TEST_F(BlockQuantCuda, EveryAlignment) {
  for (const DType dtype : kFast) {
    for (const std::int64_t past : {1, 2, 3, 4, 5}) {
      ASSERT_EQ(
          difference_from_cpu(spec_of(4, 256), values(dtype, 2048 + 5, Pattern::Random), past), "");
    }
  }
}

// No pack writes such headers.
TEST_F(BlockQuantCuda, EveryHeaderUnpacksToTheCpusValues) {
  std::vector<std::byte> packed(layout(spec_of(2, 32), DType::F32, {32768}).max_bytes);
  std::mt19937 random(3);
  for (std::byte& byte : packed) byte = static_cast<std::byte>(random());
  const ref::DeviceBytes on_device(packed);
  for (const DType dtype : kFast) {
    const Tensor expected(dtype, {32768});
    unpack(spec_of(2, 32), packed, expected.view());
    const Tensor back(dtype, {32768});
    const ref::DeviceTensor to(back);
    unpack(spec_of(2, 32), on_device.span(), to.view());
    to.fetch();
    EXPECT_EQ(ref::first_difference(dtype, back.bytes(), expected.bytes()), "");
  }
}

}  // namespace
}  // namespace tuckfold
