// dct_chop's kernels for dense tensors of whole blocks, small ones and large ones: every keep,
// shape, order and pair of types, whole warps and parts of one.
#include <gtest/gtest.h>

#include "codec/contract_cuda_fixture.h"
#include "codec/dct_chop/dct_chop.h"

namespace tuckfold {
namespace {

using ref::expect_cpu_bytes;

class DctChopCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda_devices() == 0) GTEST_SKIP() << "there is no CUDA device";
  }
};

// As many planes as make the tensor a large one on this device, and a few blocks more.
Shape large(std::int64_t rows, std::int64_t cols) {
  const std::int64_t blocks = dct_chop::kSmallBlocks * cuda::device().sms;
  return {blocks / (rows / 8 * (cols / 8)) + 1, rows, cols};
}

// 195, 1 and 512 blocks; block rows that are a part of a warp, whole warps, and more than one.
std::vector<Shape> whole() {
  return {{3, 40, 104}, {8, 8}, {2, 128, 128}, large(40, 40), large(16, 256), large(24, 312)};
}

TEST_F(DctChopCuda, EveryKeepAndShapeHasTheCpusBytes) {
  for (int keep = 1; keep <= 8; ++keep) {
    for (const char* shape : {"square", "triangle"}) {
      for (const Shape& axes : whole()) {
        expect_cpu_bytes(fmt::format("dct_chop(keep={}, shape={})", keep, shape), DType::F32, axes);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(DctChopCuda, EveryPairOfTypesHasTheCpusBytes) {
  for (const int keep : {2, 3, 4, 8}) {
    for (const char* coef : {"f32", "f16", "bf16"}) {
      for (const char* rest : {"", ", shape=triangle", ", order=planes"}) {
        for (const DType dtype : {DType::F32, DType::F16, DType::BF16}) {
          const std::string text = fmt::format("dct_chop(keep={}, coef={}{})", keep, coef, rest);
          expect_cpu_bytes(text, dtype, {3, 40, 104});
          if (keep == 3 || keep == 4) expect_cpu_bytes(text, dtype, large(8, 104));
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_F(DctChopCuda, ChainsWithBlockQuantHaveTheCpusBytes) {
  for (int keep = 1; keep <= 8; ++keep) {
    for (const char* shape : {"square", "triangle"}) {
      const std::string first = fmt::format("dct_chop(keep={}, shape={})", keep, shape);
      for (const char* second : {"bits=8", "bits=4", "bits=2", "bits=3, zero=exact",
                                 "bits=8, zero=exact", "bits=8, round=stochastic"}) {
        // 512 blocks, which one kernel takes, and 195, which need two.
        expect_cpu_bytes(fmt::format("{} | block_quant({})", first, second), DType::F32,
                         {2, 128, 128});
        if (keep == 3) {
          expect_cpu_bytes(fmt::format("{} | block_quant({})", first, second), DType::BF16,
                           {2, 128, 128});
          expect_cpu_bytes(fmt::format("{} | block_quant({})", first, second), DType::F32,
                           {3, 40, 104});
        }
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(DctChopCuda, GroupsThatAreNotFiniteHaveTheCpusBytes) {
  for (const char* text : {"dct_chop(keep=8) | block_quant(bits=8)",
                           "dct_chop(keep=3) | block_quant(bits=4, zero=exact)"}) {
    const CodecSpec spec = CodecSpec::parse(text);
    ref::Tensor in(DType::F32, {4, 128, 128});
    in.fill(ref::Pattern::Hostile);
    ASSERT_EQ(ref::difference_from_cpu(spec, in), "");
  }
}

TEST_F(DctChopCuda, ManyTensorsAtOnceHaveTheBytesOfEachAlone) {
  for (const char* text : {"dct_chop(keep=3)", "dct_chop(keep=8, shape=triangle, coef=bf16)",
                           "dct_chop(keep=5, order=planes)", "dct_chop(block=4, keep=2)",
                           "dct_chop(keep=4) | block_quant(bits=8, round=stochastic)"}) {
    const CodecSpec spec = CodecSpec::parse(text);
    // Small, odd, empty, large and of other types, more than one launch takes.
    std::vector<Shape> shapes = {{3, 40, 104}, {5, 13, 17}, {0, 8, 8}, large(40, 40)};
    for (int i = 0; i < 1100; ++i) shapes.push_back({1 + i % 3, 8 + 8 * (i % 2), 8 + 8 * (i % 5)});
    std::vector<ref::Tensor> in, back;
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      const DType dtype = i % 400 == 399 ? DType::BF16 : DType::F32;
      if (!ref::suits(spec, dtype, shapes[i])) continue;
      in.push_back(ref::input_for(spec, dtype, shapes[i], ref::Pattern::Random));
      back.emplace_back(dtype, shapes[i]);
    }
    ASSERT_EQ(ref::difference_of_many(spec, in, back, 7), "");
  }
}

TEST_F(DctChopCuda, ManyTensorsAreCheckedBeforeOneIsTouched) {
  const CodecSpec spec = CodecSpec::parse("dct_chop(keep=4)");
  ref::Tensor in(DType::F32, {2, 16, 24});
  in.fill(ref::Pattern::Random);
  const ref::DeviceTensor from(in);
  const ref::DeviceBytes good(layout(spec, DType::F32, in.shape()).max_bytes), bad(16);
  const std::vector<ConstTensorView> views(2, ConstTensorView(from.view()));
  const std::vector<std::span<std::byte>> outs = {good.span(), bad.span()};
  std::vector<std::size_t> written(2);
  EXPECT_THROW(pack_many(spec, views, outs, written), Error);
  const std::vector<std::byte> left = good.fetch();
  EXPECT_TRUE(
      std::all_of(left.begin(), left.end(), [](std::byte b) { return b == ref::kUntouched; }));
  EXPECT_THROW(pack_many(spec, views, std::span(outs).first(1), written), Error);
}

TEST_F(DctChopCuda, TensorsBetweenAlignedAddressesHaveTheCpusBytes) {
  const CodecSpec spec = CodecSpec::parse("dct_chop(keep=4)");
  ref::Tensor in(DType::F32, {2, 16, 24});
  in.fill(ref::Pattern::Random);
  ASSERT_EQ(ref::difference_from_cpu(spec, in, 1), "");
}

}  // namespace
}  // namespace tuckfold
