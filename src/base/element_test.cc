// Elements of every dtype from numbers.
#include "base/element.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/half.h"

namespace tuckfold {
namespace {

// Numbers that are no ties, but become one when they are rounded to f32 first.
TEST(Element, F16AndBf16AreRoundedOnce) {
  const double f16_tie = 1 + 0x1p-11, bf16_tie = 1 + 0x1p-8;
  EXPECT_EQ(element_bits(DType::F16, f16_tie), 0x3c00u);
  EXPECT_EQ(element_bits(DType::F16, f16_tie + 0x1p-40), 0x3c01u);
  EXPECT_EQ(element_bits(DType::F16, -(f16_tie + 0x1p-40)), 0xbc01u);
  EXPECT_EQ(element_bits(DType::F16, 1 + 3 * 0x1p-11), 0x3c02u);
  EXPECT_EQ(element_bits(DType::F16, 1 + 3 * 0x1p-11 - 0x1p-40), 0x3c01u);
  EXPECT_EQ(element_bits(DType::BF16, bf16_tie), 0x3f80u);
  EXPECT_EQ(element_bits(DType::BF16, bf16_tie + 0x1p-45), 0x3f81u);
  EXPECT_EQ(element_bits(DType::BF16, 1 + 3 * 0x1p-8 - 0x1p-45), 0x3f81u);
}

TEST(Element, EveryF16AndWhatLiesBetweenTwoRoundsToTheNearer) {
  for (std::uint32_t bits = 0; bits < 0x7bffu; ++bits) {
    const double low = to_float(F16{static_cast<std::uint16_t>(bits)});
    const double high = to_float(F16{static_cast<std::uint16_t>(bits + 1)});
    const double middle = (low + high) / 2, step = (high - low) * 0x1p-30;
    ASSERT_EQ(element_bits(DType::F16, low), bits);
    ASSERT_EQ(element_bits(DType::F16, middle - step), bits);
    ASSERT_EQ(element_bits(DType::F16, middle + step), bits + 1);
    ASSERT_EQ(element_bits(DType::F16, middle), bits + bits % 2);
  }
}

TEST(Element, ExtremesOverflowAndUnderflowAsIeeeSays) {
  EXPECT_EQ(element_bits(DType::F16, 65519.999), 0x7bffu);
  EXPECT_EQ(element_bits(DType::F16, 65520.0), 0x7c00u);
  EXPECT_EQ(element_bits(DType::F16, 1e300), 0x7c00u);
  EXPECT_EQ(element_bits(DType::BF16, -1e300), 0xff80u);
  EXPECT_EQ(element_bits(DType::BF16, 1e-300), 0u);
  EXPECT_EQ(element_bits(DType::F32, 1e-300), 0u);
  EXPECT_EQ(element_bits(DType::F16, -0.0), 0x8000u);
}

TEST(Element, WholeNumbersAreTwosComplement) {
  EXPECT_EQ(element_bits(DType::I64, -1), ~std::uint64_t{0});
  EXPECT_EQ(element_bits(DType::I32, -1), 0xffffffffu);
  EXPECT_EQ(element_bits(DType::U8, 255), 255u);
  EXPECT_TRUE(holds(DType::U8, 255));
  EXPECT_TRUE(holds(DType::I32, -0x1p31));
  EXPECT_TRUE(holds(DType::F16, 0.1));
  EXPECT_EQ(element_bits(DType::I8, -128), 0x80u);
  EXPECT_EQ(element_bits(DType::I16, -2), 0xfffeu);
  EXPECT_EQ(element_bits(DType::U16, 65535), 0xffffu);
  EXPECT_EQ(element_bits(DType::U32, 0x1p32 - 1), 0xffffffffu);
  EXPECT_EQ(element_bits(DType::U64, 0x1p63), std::uint64_t{1} << 63);
  EXPECT_EQ(element_value(DType::I8, 0x80), -128);
  EXPECT_EQ(element_value(DType::U16, 0xffff), 65535);
  EXPECT_EQ(element_value(DType::U64, ~std::uint64_t{0}), 0x1p64);
  for (const auto& [dtype, value] :
       {std::pair(DType::U16, 65535.0), std::pair(DType::I16, -32768.0),
        std::pair(DType::I8, 127.0), std::pair(DType::U32, 0x1p32 - 1),
        std::pair(DType::U64, 0x1p64 - 2048), std::pair(DType::Bool, 1.0)}) {
    EXPECT_TRUE(holds(dtype, value)) << to_string(dtype) << ' ' << value;
  }
  for (const auto& [dtype, value] :
       {std::pair(DType::U8, 256.0), std::pair(DType::U8, -1.0), std::pair(DType::I32, 0x1p31),
        std::pair(DType::I64, 0x1p63), std::pair(DType::I64, 0.5), std::pair(DType::U16, 65536.0),
        std::pair(DType::I16, 32768.0), std::pair(DType::I8, -129.0), std::pair(DType::U32, 0x1p32),
        std::pair(DType::U64, 0x1p64), std::pair(DType::U64, -1.0), std::pair(DType::Bool, 2.0),
        std::pair(DType::Bool, 0.5), std::pair(DType::I64, std::nan(""))}) {
    EXPECT_FALSE(holds(dtype, value)) << to_string(dtype) << ' ' << value;
  }
}

TEST(Element, TextsAreShortAndTellZerosApart) {
  EXPECT_EQ(element_text(DType::F32, bits_of(0.1f)), "0.1");
  EXPECT_EQ(element_text(DType::F32, bits_of(-0.0f)), "-0");
  EXPECT_EQ(element_text(DType::F16, 0x7e00u), "nan");
  EXPECT_EQ(element_text(DType::F64, element_bits(DType::F64, 1.0 / 255)), "0.00392156862745098");
  EXPECT_EQ(element_text(DType::I32, 0xfffffffeu), "-2");
  EXPECT_EQ(element_text(DType::I64, ~std::uint64_t{0}), "-1");
  EXPECT_EQ(element_text(DType::U8, 254), "254");
  EXPECT_EQ(element_text(DType::I8, 0xff), "-1");
  EXPECT_EQ(element_text(DType::U64, ~std::uint64_t{0}), "18446744073709551615");
  EXPECT_EQ(element_text(DType::Bool, 1), "1");
}

}  // namespace
}  // namespace tuckfold
