// Codecs of planes on a CUDA device against the CPU, bit for bit: every layout in memory, dtype and
// side that networks have, and what they are next to.
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "codec/contract_cuda_fixture.h"

namespace tuckfold {
namespace {

using ref::Order;
using ref::Pattern;

struct MemoryLayout {
  const char* name;
  Order order;
  std::int64_t past;  // elements that the tensor begins after a multiple of 16 bytes
};
constexpr MemoryLayout kLayouts[] = {{"Rows", Order::RowMajor, 0},
                                     {"RowsAtAnOddAddress", Order::RowMajor, 1},
                                     {"ChannelsLast", Order::ChannelsLast, 0},
                                     {"BatchLast", Order::Fortran, 0},
                                     {"Transposed", Order::Transposed, 0},
                                     {"PaddedRows", Order::PaddedRows, 0},
                                     {"PaddedLines", Order::PaddedLines, 0},
                                     {"Gapped", Order::Gapped, 0},
                                     {"Backwards", Order::Backwards, 0}};

class CudaPlanes : public ::testing::TestWithParam<std::tuple<MemoryLayout, DType>> {
 protected:
  void SetUp() override {
    if (cuda_devices() == 0) GTEST_SKIP() << "there is no CUDA device";
  }

  static void compare(const char* text, const Shape& shape, Pattern kind = Pattern::Random) {
    const auto& [layout, dtype] = GetParam();
    const CodecSpec spec = CodecSpec::parse(text);
    const ref::Tensor in = ref::input_for(spec, dtype, shape, kind, layout.order);
    ASSERT_EQ(ref::difference_from_cpu(spec, in, layout.past, layout.order), "");
  }
};

// Sides of 7 fold with the channels; 35 and 33 channels leave a warp partly idle. Rows of 197 and
// columns of 24 are tokens. The last have more blocks in a row than a CTA has threads.
const std::vector<Shape> kSides = {{2, 35, 14, 14}, {1, 33, 28, 28}, {2, 3, 56, 56}, {3, 40, 7, 7},
                                   {2, 197, 24},    {2, 9, 17, 19},  {16, 40},       {9, 1035},
                                   {2, 144, 49},    {24, 1029}};

TEST_P(CudaPlanes, DctChopHasTheCpusBytesAndValues) {
  for (const Shape& shape : kSides) {
    for (const char* text :
         {"dct_chop(keep=4)", "dct_chop(keep=3, coef=f16)", "dct_chop(keep=5, shape=triangle)",
          "dct_chop(keep=2, order=planes)"}) {
      compare(text, shape);
      if (HasFatalFailure()) return;
    }
  }
}

// Padded blocks would grow with some, which layout refuses; whole ones do not.
TEST_P(CudaPlanes, EveryKeepOfDctChopToo) {
  for (int keep = 1; keep <= 8; ++keep) {
    for (const char* rest :
         {"", ", coef=bf16", ", shape=triangle, coef=f16", ", shape=triangle, order=planes"}) {
      const std::string text = fmt::format("dct_chop(keep={}{})", keep, rest);
      for (const Shape& shape : {Shape{2, 5, 14, 18}, Shape{2, 5, 16, 24}}) {
        const DType dtype = std::get<1>(GetParam());
        if (ref::suits(CodecSpec::parse(text), dtype, shape)) compare(text.c_str(), shape);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(CudaPlanes, DctQuantHasTheCpusBytesAndValues) {
  for (const Shape& shape : kSides) {
    for (const char* text : {"dct_quant(rate=2)", "dct_quant(rate=3)", "dct_quant(rate=4)"}) {
      compare(text, shape);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(CudaPlanes, EveryRateOfDctQuantToo) {
  for (const char* text : {"dct_quant(rate=1)", "dct_quant(rate=1.375)", "dct_quant(rate=1.75)",
                           "dct_quant(rate=2.5)", "dct_quant(rate=7.875)", "dct_quant(rate=8)",
                           "dct_quant(rate=8.125)", "dct_quant(rate=4, offset=-3, clamp=zero)"}) {
    compare(text, {2, 5, 14, 18});
    if (HasFatalFailure()) return;
  }
}

// Numbers of blocks that make whole groups, which one kernel takes, and others.
TEST_P(CudaPlanes, DctChopWithBlockQuantHasTheCpusBytesAndValues) {
  const std::vector<Shape> shapes = {
      {1, 128, 14, 14}, {2, 16, 28, 28},   {1, 256, 21, 24}, {16, 64, 7, 7},   {4, 64, 64},
      {32, 13, 32},     {5, 3, 14, 14},    {64, 32, 7, 7},   {1, 3, 128, 128}, {4, 64, 63},
      {1, 64, 16, 260}, {1, 12, 128, 128}, {1, 16, 72, 128}, {1, 256, 56, 56}, {3, 160, 28, 28}};
  for (const Shape& shape : shapes) {
    for (const char* text :
         {"dct_chop(keep=4) | block_quant(bits=8)",
          "dct_chop(keep=3) | block_quant(bits=4, round=stochastic)",
          "dct_chop(keep=2, shape=triangle) | block_quant(bits=3, zero=exact)"}) {
      compare(text, shape);
      if (HasFatalFailure()) return;
    }
  }
  compare("dct_chop(keep=8) | block_quant(bits=8)", {2, 16, 28, 28});
}

// Codes of every width: those of 3, 5, 6 and 7 bits begin within bytes.
TEST_P(CudaPlanes, EveryWidthOfThePairToo) {
  for (int bits = 1; bits <= 8; ++bits) {
    for (const char* rest : {"", ", zero=exact"}) {
      const std::string text = fmt::format("dct_chop(keep=3) | block_quant(bits={}{})", bits, rest);
      compare(text.c_str(), {1, 128, 14, 14});
      compare(text.c_str(), {16, 64, 7, 7});
      if (HasFatalFailure()) return;
    }
  }
}

// Steps beyond 2^90, and values that are no numbers.
TEST_P(CudaPlanes, LargeStepsOfDctQuantToo) {
  for (const char* text : {"dct_quant(rate=1)", "dct_quant(rate=4)", "dct_quant(rate=8)",
                           "dct_quant(rate=4, offset=1e30)"}) {
    compare(text, {2, 40, 16, 16}, Pattern::Hostile);
    compare(text, {2, 40, 14, 7}, Pattern::Hostile);
    if (HasFatalFailure()) return;
  }
}

TEST_P(CudaPlanes, HostileValuesToo) {
  for (const char* text :
       {"dct_chop(keep=4)", "dct_quant(rate=4)", "dct_chop(keep=4) | block_quant(bits=8)"}) {
    compare(text, {4, 32, 14, 14}, Pattern::Hostile);
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, CudaPlanes,
                         ::testing::Combine(::testing::ValuesIn(kLayouts),
                                            ::testing::Values(DType::F32, DType::F16, DType::BF16)),
                         [](const auto& of) {
                           return std::string(std::get<0>(of.param).name) + "_" +
                                  std::string(to_string(std::get<1>(of.param)));
                         });

// More tensors than one launch takes, of all layouts, dtypes and kinds of sides; one is empty.
TEST(CudaManyPlanes, HaveTheBytesAndValuesOfEachAlone) {
  if (cuda_devices() == 0) GTEST_SKIP() << "there is no CUDA device";
  const std::vector<Shape> shapes = {{3, 40, 104},  {5, 3, 14, 14}, {2, 40, 7, 7}, {0, 8, 8},
                                     {16, 9, 3, 3}, {8, 16},        {1, 24, 49},   {2, 3, 24, 16}};
  const DType dtypes[] = {DType::F32, DType::BF16, DType::F16, DType::F64};
  for (const char* text :
       {"dct_quant(rate=4)", "dct_quant(rate=2.5, offset=1, clamp=zero)", "dct_quant(rate=9)",
        "dct_chop(keep=4)", "dct_chop(keep=3, coef=f16)", "dct_chop(keep=2, order=planes)",
        "dct_chop(keep=4, shape=triangle)", "dct_chop(keep=4) | block_quant(bits=4)"}) {
    const CodecSpec spec = CodecSpec::parse(text);
    std::vector<ref::Tensor> in, back;
    for (std::size_t i = 0; i < 300; ++i) {
      const Shape& shape = shapes[i % 8];
      const DType dtype = dtypes[i / 3 % 4];
      if (!ref::suits(spec, dtype, shape)) continue;
      const Order order = shape.rank() == 4 ? kLayouts[i % 9].order : Order::RowMajor;
      in.push_back(ref::input_for(spec, dtype, shape, Pattern::Random, order));
      back.emplace_back(dtype, shape, order);
    }
    ASSERT_EQ(ref::difference_of_many(spec, in, back), "");
  }
}

}  // namespace
}  // namespace tuckfold
