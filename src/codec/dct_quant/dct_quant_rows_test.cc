// Packed images of bytes at places of their own: what unpack() makes of them side by side.
#include "codec/dct_quant/dct_quant_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/guarded_fixture.h"
#include "base/target.h"
#include "tuckfold/codec.h"
#include "tuckfold/version.h"

namespace tuckfold {
namespace {

class DctQuantRows : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { use_cpu_target(GetParam()); }
  void TearDown() override { use_cpu_target(before_); }

 private:
  std::string before_ = cpu_target();
};

struct Case {
  Shape shape;  // of an image
  bool suits;   // the kernel takes 16 blocks at a time
};

// Images packed side by side, their rows moved to the ends of memory that may be read.
void expect_rows(const Case& how, double rate) {
  constexpr std::int64_t kImages = 37;
  const CodecSpec spec = CodecSpec::parse("dct_quant(rate=" + std::to_string(rate) + ")");
  Shape all{kImages};
  for (const std::int64_t side : how.shape) all.push_back(side);
  std::mt19937 random(5);
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(all.elems()));
  for (std::uint8_t& pixel : pixels) pixel = static_cast<std::uint8_t>(random());
  std::vector<std::byte> packed(layout(spec, DType::U8, all).max_bytes);
  pack(spec, ConstTensorView(pixels.data(), DType::U8, all), packed);
  unpack(spec, packed, TensorView(pixels.data(), DType::U8, all));

  const std::size_t each = packed.size() / kImages;
  const auto size = static_cast<std::size_t>(how.shape.elems());
  std::vector<std::size_t> order(kImages);
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i * 5 % kImages;
  const std::size_t room = each + dct_quant::kBeyondRow;
  const ref::Guarded memory(kImages * room, true);
  std::vector<const std::byte*> rows;
  for (std::size_t i = 0; i < order.size(); ++i) {
    std::byte* row = memory.data() + i * room;
    std::copy_n(packed.data() + order[i] * each, each, row);
    std::fill_n(row + each, dct_quant::kBeyondRow, std::byte{0xff});
    rows.push_back(row);
  }
  constexpr std::size_t kGap = 24;  // between images of the output
  std::vector<std::uint8_t> out(kImages * (size + kGap), 77);
  const bool done = dct_quant::unpack_byte_rows(spec.stages()[0], rows, all, out.data(),
                                                static_cast<std::int64_t>(size + kGap));
  EXPECT_TRUE(how.suits || !done);
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto image = std::span(out).subspan(i * (size + kGap));
    for (std::size_t k = 0; k < size + kGap; ++k) {
      const std::uint8_t wanted = done && k < size ? pixels[order[i] * size + k] : 77;
      ASSERT_EQ(image[k], wanted) << i << ", pixel " << k;
    }
  }
}

TEST_P(DctQuantRows, AreUnpackedWhereTheyAre) {
  for (const Case& how : {Case{{3, 32, 32}, true}, Case{{64, 64}, true}, Case{{2, 16, 64}, true},
                          Case{{3, 16, 16}, false}, Case{{3, 28, 32}, false}}) {
    for (const double rate : {1.0, 2.0, 3.0, 4.0, 4.125, 7.0}) {
      expect_rows(how, rate);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(DctQuantRows, NoneIsNone) {
  const CodecSpec spec = CodecSpec::parse("dct_quant(rate=4)");
  EXPECT_FALSE(dct_quant::unpack_byte_rows(spec.stages()[0], {}, {0, 3, 32, 32}, nullptr, 0));
}

INSTANTIATE_TEST_SUITE_P(Cpu, DctQuantRows, ::testing::ValuesIn(cpu_targets()),
                         [](const auto& target) { return target.param; });

}  // namespace
}  // namespace tuckfold
