// block_quant on CUDA where its fast kernels run: whole tiles of 1024 values, and the values after
// the last whole tile.
#include <gtest/gtest.h>

#include <deque>

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
      for (const int group : {8, 16, 32, 64, 128, 256, 512, 1024, 2048}) {
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
      for (const int group : {24, 200, 1000, 1032, 2048, 4096, 65536}) {
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
    for (const std::int64_t past : {1, 2, 3, 4, 5, 6, 7}) {
      for (const std::int64_t elems : {2048, 2048 + 5, 4096, 4097}) {
        for (const int bits : {3, 4}) {
          ASSERT_EQ(difference_from_cpu(spec_of(bits, 256, ", round=stochastic"),
                                        values(dtype, elems, Pattern::Random), past),
                    "");
        }
      }
    }
  }
}

// Strides that hold, and rows that end within eight values of a group.
TEST_F(BlockQuantCuda, EveryOrderInMemory) {
  for (const DType dtype : kFast) {
    for (const Shape& shape : {Shape{2, 33, 14, 14}, Shape{3, 64, 49}, Shape{5, 7, 11}}) {
      for (const ref::Order order : ref::kOrders) {
        const Tensor in = std::move(Tensor(dtype, shape, order).fill(Pattern::Random));
        ASSERT_EQ(difference_from_cpu(spec_of(4, 64), in, 0, order), "");
      }
    }
  }
}

TEST_F(BlockQuantCuda, ManyTensorsHaveTheBytesOfEachAlone) {
  const std::int64_t lengths[] = {1,    7,    0,     256,   1000, 2048,
                                  2049, 5000, 16384, 40000, 255,  3 * 8192};
  for (const char* more : {", round=stochastic", "", ", zero=exact"}) {
    for (const int group : {32, 256, 200}) {
      const CodecSpec spec = spec_of(4, group, more);
      std::vector<Tensor> tensors;
      for (const std::int64_t length : lengths) {
        for (const DType dtype : {DType::F32, DType::BF16, DType::F16, DType::F64}) {
          if (!ref::suits(spec, dtype, {length})) continue;
          tensors.push_back(values(dtype, length, Pattern::Random));
        }
      }
      tensors.push_back(
          std::move(Tensor(DType::BF16, {3, 17, 40}, ref::Order::Fortran).fill(Pattern::Ramp)));
      const RunOptions options{.seed = 9};
      std::deque<ref::DeviceTensor> in, back;
      std::deque<ref::DeviceBytes> rooms;
      std::vector<Tensor> outs;
      std::vector<ConstTensorView> views;
      std::vector<std::span<std::byte>> out;
      std::vector<std::size_t> written(tensors.size());
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        const Tensor& tensor = tensors[i];
        in.emplace_back(tensor, static_cast<std::int64_t>(i % 3));
        rooms.emplace_back(layout(spec, tensor.dtype(), tensor.shape()).max_bytes);
        views.push_back(in.back().view());
        out.push_back(rooms.back().span());
      }
      pack_many(spec, views, out, written, options);
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        std::vector<std::byte> wanted(out[i].size());
        pack(spec, tensors[i].view(), wanted, {.seed = 9 + i});
        ASSERT_EQ(ref::first_difference(DType::U8, rooms[i].fetch(), wanted), "")
            << i << ' ' << spec.print();
        ASSERT_TRUE(rooms[i].guards_untouched());
        outs.emplace_back(tensors[i].dtype(), tensors[i].shape());
      }
      std::vector<TensorView> to;
      std::vector<std::span<const std::byte>> from(out.begin(), out.end());
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        back.emplace_back(outs[i], static_cast<std::int64_t>(i % 5));
        to.push_back(back.back().view());
      }
      unpack_many(spec, from, to);
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        const Tensor expected(tensors[i].dtype(), tensors[i].shape());
        unpack(spec, rooms[i].fetch(), expected.view());
        back[i].fetch();
        ASSERT_TRUE(back[i].guards_untouched());
        ASSERT_EQ(ref::first_difference(tensors[i].dtype(), outs[i].bytes(), expected.bytes()), "");
      }
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
