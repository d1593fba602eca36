// Tensors as networks have them: sides that are no multiples of 8, f16 and bf16, channels_last and
// views. Every target gives the bytes and values of the same values as rows on the simplest one.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "base/strided.h"
#include "base/target.h"
#include "base/tensor_fixture.h"
#include "codec/contract_fixture.h"
#include "tuckfold/version.h"

namespace tuckfold {
namespace {

using ref::Order;
using ref::Pattern;
using ref::Tensor;

// Sides of 7 fold with the channels before them. The last ones are wider than a buffer has room
// for, or have rows of blocks that make no whole vector.
const std::vector<Shape> kSides = {{2, 20, 14, 14}, {1, 17, 28, 28}, {1, 3, 56, 56},
                                   {1, 40, 7, 7},   {1, 197, 24},    {2, 9, 17, 19},
                                   {16, 40},        {9, 1035},       {2, 9, 16, 24}};
constexpr Order kMemories[] = {Order::RowMajor, Order::ChannelsLast, Order::Transposed,
                               Order::PaddedRows, Order::Fortran};
constexpr DType kTypes[] = {DType::F32, DType::F16, DType::BF16};

std::vector<std::byte> packed(const CodecSpec& spec, const Tensor& in, int threads) {
  std::vector<std::byte> out(layout(spec, in.dtype(), in.shape()).max_bytes);
  out.resize(pack(spec, in.view(), out, {.threads = threads}));
  return out;
}

class Memory : public ::testing::TestWithParam<const char*> {
 protected:
  void TearDown() override { use_cpu_target(before_); }

  static void compare(const CodecSpec& spec, DType dtype, const Shape& shape, Pattern kind) {
    const std::vector<std::string> targets = cpu_targets();
    use_cpu_target(targets.back());
    const Tensor rows = ref::input_for(spec, dtype, shape, kind);
    const std::vector<std::byte> bytes = packed(spec, rows, 1);
    const Tensor back(dtype, shape);
    unpack(spec, bytes, back.view(), {.threads = 1});
    const std::vector<std::byte> values = back.bytes();
    for (const Order order : kMemories) {
      const Tensor in = ref::input_for(spec, dtype, shape, kind, order);
      for (const std::string& target : targets) {
        use_cpu_target(target);
        const int threads = target == targets.front() ? 3 : 1;
        SCOPED_TRACE(fmt::format("{} of {} {}, order {}, {} threads, {}", spec.print(),
                                 to_string(dtype), to_string(shape), static_cast<int>(order),
                                 threads, target));
        ASSERT_EQ(packed(spec, in, threads), bytes);
        const Tensor out(dtype, shape, order);
        unpack(spec, bytes, out.view(), {.threads = threads});
        ASSERT_EQ(ref::first_difference(dtype, out.bytes(), values), "");
        if (target == targets.front()) {
          ASSERT_TRUE(out.gaps_untouched());
        }
      }
    }
  }

 private:
  const std::string before_ = cpu_target();
};

TEST_P(Memory, IsNotSeenInBytesAndValues) {
  const CodecSpec spec = CodecSpec::parse(GetParam());
  int suited = 0;
  for (const Shape& shape : kSides) {
    for (const DType dtype : kTypes) {
      if (!ref::suits(spec, dtype, shape)) continue;
      ++suited;
      compare(spec, dtype, shape, Pattern::Random);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GE(suited, 9);
}

TEST_P(Memory, IsNotSeenOfHostileValuesEither) {
  const CodecSpec spec = CodecSpec::parse(GetParam());
  const Shape shape{2, 20, 14, 14};
  for (const DType dtype : kTypes) {
    if (ref::suits(spec, dtype, shape)) compare(spec, dtype, shape, Pattern::Hostile);
    if (HasFatalFailure()) return;
  }
}

// Outputs that are too large for a cache are stored in other ways.
TEST_P(Memory, IsNotSeenOfLargeTensors) {
  const CodecSpec spec = CodecSpec::parse(GetParam());
  for (const Shape& shape :
       {Shape{24, 2048, 7, 7}, Shape{24, 512, 14, 14}, Shape{12, 64, 56, 56}}) {
    if (!ref::suits(spec, DType::F32, shape)) continue;
    const auto elems = static_cast<std::size_t>(shape.elems());
    const std::vector<float> values = ref::random_values(elems, -1.0f, 1.0f);
    const ConstTensorView in(values.data(), DType::F32, shape);
    std::vector<std::byte> all(layout(spec, DType::F32, shape).max_bytes);
    all.resize(pack(spec, in, all, {.threads = 1}));
    std::vector<float> rows(elems), moved(elems);
    unpack(spec, all, TensorView(rows.data(), DType::F32, shape), {.threads = 1});
    const Shape last{shape[1] * shape[2] * shape[3], 1, shape[1] * shape[3], shape[1]};
    unpack(spec, all, TensorView(moved.data(), DType::F32, shape, last), {.threads = 2});
    const FlatReader reader(ConstTensorView(moved.data(), DType::F32, shape, last));
    std::vector<float> back(elems);
    reader.gather(0, reader.elems(), back.data());
    ASSERT_EQ(std::memcmp(back.data(), rows.data(), elems * sizeof(float)), 0) << to_string(shape);
    // A small tensor of the same values, which is not streamed.
    if (!rows_independent(spec, shape)) continue;
    Shape one = shape;
    one[0] = 1;
    std::vector<std::byte> first(layout(spec, DType::F32, one).max_bytes);
    pack(spec, ConstTensorView(values.data(), DType::F32, one), first);
    unpack(spec, first, TensorView(back.data(), DType::F32, one));
    const std::size_t bytes = static_cast<std::size_t>(one.elems()) * sizeof(float);
    ASSERT_EQ(std::memcmp(back.data(), rows.data(), bytes), 0) << to_string(shape);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Codecs, Memory,
    ::testing::Values("dct_chop(keep=4)", "dct_chop(keep=3, coef=f16)",
                      "dct_chop(keep=5, shape=triangle)", "dct_chop(keep=2, order=planes)",
                      "dct_chop(keep=3, shape=triangle, order=planes)", "dct_chop(block=4, keep=3)",
                      "dct_chop(block=16, keep=9)", "dct_quant(rate=2)", "dct_quant(rate=4)",
                      "dct_quant(rate=8.125)", "dct_chop(keep=4) | block_quant(bits=8)",
                      "block_quant(bits=4)", "block_quant(bits=4, group=2048, round=stochastic)",
                      "block_quant(bits=3, group=64, round=stochastic)", "block_quant(bits=8)",
                      "bounded(rel=0.01)", "bounded(abs=0.01, codes=bytes)",
                      "nonzero_quant(bits=3)", "nonzero_quant(bits=8, group=64)", "positive",
                      "raw"),
    [](const auto& of) {
      std::string name;
      for (const char c : std::string(of.param)) {
        if (std::isalnum(static_cast<unsigned char>(c)) != 0) name += c;
      }
      return name;
    });

}  // namespace
}  // namespace tuckfold
