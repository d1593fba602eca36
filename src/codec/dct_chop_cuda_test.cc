// dct_chop's kernels for dense tensors of whole blocks: every keep, shape, order and pair of types,
// whole warps and parts of one.
#include <gtest/gtest.h>

#include "codec/contract_cuda_ref.h"

namespace tuckfold {
namespace {

using ref::expect_cpu_bytes;

class DctChopCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda_devices() == 0) GTEST_SKIP() << "there is no CUDA device";
  }
};

// 195, 1 and 512 blocks.
const std::vector<Shape> kWhole = {{3, 40, 104}, {8, 8}, {2, 128, 128}};

TEST_F(DctChopCuda, EveryKeepAndShapeHasTheCpusBytes) {
  for (int keep = 1; keep <= 8; ++keep) {
    for (const char* shape : {"square", "triangle"}) {
      for (const Shape& axes : kWhole) {
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
          expect_cpu_bytes(fmt::format("dct_chop(keep={}, coef={}{})", keep, coef, rest), dtype,
                           {3, 40, 104});
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

TEST_F(DctChopCuda, TensorsBetweenAlignedAddressesHaveTheCpusBytes) {
  const CodecSpec spec = CodecSpec::parse("dct_chop(keep=4)");
  ref::Tensor in(DType::F32, {2, 16, 24});
  in.fill(ref::Pattern::Random);
  ASSERT_EQ(ref::difference_from_cpu(spec, in, 1), "");
}

}  // namespace
}  // namespace tuckfold
