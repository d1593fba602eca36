// mask against its definition; what every codec must keep is in contract_test.cc.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "base/target.h"
#include "codec/contract_fixture.h"
#include "tuckfold/version.h"

namespace tuckfold {
namespace {

std::string error_of(const std::string& text, const ref::Tensor& in) {
  const CodecSpec spec = CodecSpec::parse(text);
  try {
    std::vector<std::byte> bytes(layout(spec, in.dtype(), in.shape()).max_bytes);
    pack(spec, in.view(), bytes);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::InvalidArgument);
    return error.what();
  }
  return "nothing was thrown";
}

ref::Tensor tensor_of(DType dtype, const std::vector<double>& values) {
  return std::move(ref::Tensor(dtype, {static_cast<std::int64_t>(values.size())}).fill(values));
}

TEST(Mask, OneBitAValueOfEveryDtypeOnEveryTarget) {
  const std::string before = cpu_target();
  for (const std::string& target : cpu_targets()) {
    use_cpu_target(target);
    for (const DType dtype : kDTypes) {
      for (const char* text : {"mask", "mask(scale=3)", "mask(values=sign)",
                               "mask(values=sign, scale=2)", "mask(scale=1/0.9)"}) {
        const CodecSpec spec = CodecSpec::parse(text);
        if (!ref::suits(spec, dtype, {1})) continue;
        const double scale = spec.stages()[0]["scale"];
        const double low = spec.stages()[0]["values"] == 1 ? -scale : 0;
        for (const std::int64_t count : {1, 7, 8, 9, 63, 64, 65, 1024, 2500}) {
          std::mt19937 random(static_cast<unsigned>(count));
          std::vector<double> values(static_cast<std::size_t>(count));
          std::vector<std::byte> wanted(static_cast<std::size_t>((count + 7) / 8));
          for (std::size_t i = 0; i < values.size(); ++i) {
            const bool set = random() % 3 == 0;
            values[i] = set ? scale : low;
            if (set) wanted[i / 8] |= static_cast<std::byte>(1 << i % 8);
          }
          const ref::Tensor in = tensor_of(dtype, values), out(dtype, {count});
          std::vector<std::byte> bytes(layout(spec, dtype, {count}).max_bytes);
          pack(spec, in.view(), bytes);
          ASSERT_EQ(bytes, wanted) << target << ' ' << text << ' ' << to_string(dtype);
          unpack(spec, bytes, out.view());
          ASSERT_EQ(out.bytes(), in.bytes()) << target << ' ' << text << ' ' << to_string(dtype);
        }
      }
    }
  }
  use_cpu_target(before);
}

TEST(Mask, TheFirstOtherValueIsNamedWhateverTheThreads) {
  std::vector<double> values(100000, 1.0);
  values[99999] = 3;
  values[70001] = 0.5;
  values[70002] = -1;
  const ref::Tensor in = tensor_of(DType::F32, values);
  const CodecSpec spec = CodecSpec::parse("mask");
  std::vector<std::byte> bytes(layout(spec, DType::F32, in.shape()).max_bytes);
  for (const int threads : {1, 2, 5}) {
    try {
      pack(spec, in.view(), bytes, {.threads = threads});
      FAIL();
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(),
                   "[pack] mask holds 0 and 1, got 0.5 at element 70001; give the scale of the "
                   "values, or use another codec");
    }
  }
}

TEST(Mask, EveryPlaceOfAnOtherValueIsFound) {
  for (const DType dtype : kDTypes) {
    if (dtype == DType::Bool) continue;  // it has no other
    for (const std::int64_t count : {1, 70, 1100}) {
      for (std::int64_t at = 0; at < count; at += 23) {
        std::vector<double> values(static_cast<std::size_t>(count), 0.0);
        values[static_cast<std::size_t>(at)] = 2;
        EXPECT_NE(error_of("mask", tensor_of(dtype, values))
                      .find(fmt::format("got 2 at element {};", at)),
                  std::string::npos);
      }
    }
  }
}

TEST(Mask, MinusZeroAndNanAreOtherValues) {
  for (const DType dtype : {DType::F32, DType::F16, DType::BF16, DType::F64}) {
    EXPECT_NE(error_of("mask", tensor_of(dtype, {0, 1, -0.0})).find("got -0 at element 2"),
              std::string::npos);
    EXPECT_NE(error_of("mask", tensor_of(dtype, {std::nan("")})).find("got nan at element 0"),
              std::string::npos);
    EXPECT_NE(error_of("mask(values=sign)", tensor_of(dtype, {1, 0})).find("got 0 at element 1"),
              std::string::npos);
  }
}

TEST(Mask, AScaleIsRoundedToTheDtypeOnce) {
  for (const DType dtype : {DType::F32, DType::F16, DType::BF16, DType::F64}) {
    EXPECT_EQ(error_of("mask(scale=1/0.9)", tensor_of(dtype, {0, 1 / 0.9})), "nothing was thrown");
  }
  EXPECT_EQ(error_of("mask(scale=1/0.9)", tensor_of(DType::F32, {0, 1.25})),
            "[pack] mask holds 0 and 1.1111112, got 1.25 at element 1; give the scale of the "
            "values, or use another codec");
}

TEST(Mask, AScaleThatTheDtypeCannotHoldIsRefused) {
  const auto refusal = [](const char* text, DType dtype) {
    return error_of(text, ref::Tensor(dtype, {8}));
  };
  EXPECT_EQ(refusal("mask(scale=0.5)", DType::I64),
            "[layout] mask holds 0 and 0.5, which i64 does not; use a whole scale that fits");
  EXPECT_EQ(refusal("mask(scale=256)", DType::U8),
            "[layout] mask holds 0 and 256, which u8 does not; use a whole scale that fits");
  EXPECT_EQ(refusal("mask(values=sign)", DType::U8),
            "[layout] mask holds -1 and 1, which u8 does not; use values=bool");
  EXPECT_EQ(refusal("mask(scale=1e5)", DType::F16),
            "[layout] scale=100000 of mask is inf in f16; use a dtype with more range");
  EXPECT_EQ(refusal("mask(scale=1e-9)", DType::F16),
            "[layout] scale=1e-09 of mask is 0 in f16; use a dtype with more range");
  EXPECT_EQ(refusal("mask(scale=1e19)", DType::I64).substr(0, 8), "[layout]");
}

}  // namespace
}  // namespace tuckfold
