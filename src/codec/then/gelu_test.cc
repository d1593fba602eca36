// unpack_gelu on the CPU: against its definition in double precision, and what it refuses.
#include "codec/then/gelu.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "codec/contract_fixture.h"
#include "codec/then/gelu_block.h"
#include "tuckfold/codec.h"

namespace tuckfold {
namespace {

using ref::Tensor;

// From the definition; erfc has all digits also where values are small.
double gelu_ref(double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); }

TEST(Gelu, IsNearItsDefinition) {
  for (int i = -200000; i <= 200000; ++i) {
    const float x = static_cast<float>(i) * 5e-5f;
    const double bound = 3e-7 * std::max(std::fabs(double{x}), 1.0);
    ASSERT_NEAR(then::gelu(x), gelu_ref(x), bound) << x;
  }
}

TEST(Gelu, TakesAnyNumber) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(then::gelu(0.0f), 0.0f);
  EXPECT_EQ(then::gelu(-3e38f), 0.0f);
  EXPECT_EQ(then::gelu(3e38f), 3e38f);
  EXPECT_EQ(then::gelu(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(then::gelu(-kInfinity)));  // as PyTorch has it
  EXPECT_EQ(bits_of(then::gelu(-NAN)), kNanBits);
  EXPECT_GT(then::gelu(1e-30f), 0.0f);
}

TEST(UnpackGelu, IsWhatFollowsUnpacking) {
  for (const DType dtype : {DType::F32, DType::F16, DType::BF16}) {
    for (const char* text : {"block_quant(bits=4, group=256, round=stochastic)",
                             "block_quant(bits=2, group=64)", "raw"}) {
      const Shape shape{3, 7, 999};
      Tensor in(dtype, shape), unpacked(dtype, shape), got(dtype, shape);
      in.fill(ref::pattern(ref::Pattern::Random, dtype, in.elems()));
      const Plan plan(CodecSpec::parse(text), dtype, shape);
      std::vector<std::byte> packed(plan.layout().max_bytes);
      packed.resize(plan.pack(in.view(), packed));
      plan.unpack(packed, unpacked.view());
      unpack_gelu(plan, packed, got.view());
      const std::vector<double> x = unpacked.values(), y = got.values();
      const double digits = dtype == DType::F32 ? 3e-7 : dtype == DType::F16 ? 5e-4 : 4e-3;
      for (std::size_t i = 0; i < x.size(); ++i) {
        ASSERT_NEAR(y[i], gelu_ref(x[i]), digits * std::max(std::fabs(x[i]), 1.0)) << i;
      }
    }
  }
}

TEST(UnpackGelu, RefusesWhatDoesNotFit) {
  std::vector<float> out(24);
  std::vector<std::byte> packed(96);
  const Plan whole(CodecSpec::parse("raw"), DType::I32, {4, 6});
  EXPECT_EQ(ref::code_of([&] {
              unpack_gelu(whole, packed, TensorView(out.data(), DType::I32, {4, 6}));
            }),
            Errc::InvalidArgument);
  const Plan plan(CodecSpec::parse("raw"), DType::F32, {4, 6});
  packed.resize(95);
  EXPECT_EQ(ref::code_of([&] {
              unpack_gelu(plan, packed, TensorView(out.data(), DType::F32, {4, 6}));
            }),
            Errc::CorruptData);
  const Plan none(CodecSpec::parse("raw"), DType::F32, {0});
  unpack_gelu(none, {}, TensorView(nullptr, DType::F32, {0}));
}

}  // namespace
}  // namespace tuckfold
