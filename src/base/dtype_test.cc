// The table of dtypes.
#include "base/dtype.h"

#include <gtest/gtest.h>

#include "tuckfold/error.h"

namespace tuckfold {
namespace {

TEST(DType, NamesReadBackAndHaveTheirSize) {
  EXPECT_EQ(dtype_names(), "f32, f16, bf16, f64, u8, i32, i64, u16, i16, i8, u32, u64 or bool");
  for (const DType dtype : kDTypes) {
    EXPECT_EQ(parse_dtype(to_string(dtype)), dtype);
    EXPECT_EQ(size_bytes(dtype), with_element(dtype, [](auto element) { return sizeof element; }));
    EXPECT_EQ(is_float(dtype), !is_whole(dtype));
  }
  EXPECT_THROW(parse_dtype(""), Error);
  try {
    parse_dtype("f33");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.what(), "[dtype] must be " + dtype_names() + ", got 'f33'");
  }
}

TEST(DType, NumbersAreThoseOfFiles) {
  for (std::size_t i = 0; i < kDTypes.size(); ++i) {
    EXPECT_EQ(static_cast<std::size_t>(kDTypes[i]), i);
  }
  EXPECT_EQ(static_cast<int>(DType::I64), 6);
  EXPECT_EQ(static_cast<int>(DType::Bool), 12);
}

TEST(DType, OnlyPixelsAmongWholeNumbersMayBeLossy) {
  for (const DType dtype : kDTypes) {
    const bool pixels = dtype == DType::U8 || dtype == DType::U16;
    EXPECT_EQ(must_be_exact(dtype), is_whole(dtype) && !pixels) << to_string(dtype);
  }
}

}  // namespace
}  // namespace tuckfold
