// bytes_of against its definition; what every codec must keep is in contract_test.cc.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <string>

#include "base/half.h"
#include "base/target.h"
#include "codec/contract_fixture.h"
#include "tuckfold/version.h"

namespace tuckfold {
namespace {

constexpr DType kFloats[] = {DType::F32, DType::F16, DType::BF16, DType::F64};

template <class T>
ConstTensorView view_of(DType dtype, const std::vector<T>& values) {
  return {values.data(), dtype, {static_cast<std::int64_t>(values.size())}};
}

// "exact", or the error.
template <class T>
std::string round_trip(const std::string& text, DType dtype, const std::vector<T>& values,
                       std::vector<std::byte>* packed = nullptr) {
  const CodecSpec spec = CodecSpec::parse(text);
  try {
    const ConstTensorView in = view_of(dtype, values);
    std::vector<std::byte> bytes(layout(spec, dtype, in.shape).max_bytes);
    bytes.resize(pack(spec, in, bytes));
    if (packed != nullptr) *packed = bytes;
    std::vector<T> back(values.size());
    unpack(spec, bytes, TensorView(back.data(), dtype, in.shape));
    return std::memcmp(back.data(), values.data(), values.size() * sizeof(T)) == 0 ? "exact"
                                                                                   : "different";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::InvalidArgument);
    return error.what();
  }
}

// The values of all bytes, several times over, so that vectors and rests both see each.
template <class T>
std::vector<T> all_values(T (*value)(int)) {
  std::vector<T> values;
  for (int i = 0; i < 5 * 256 + 3; ++i) values.push_back(value(i * 7 % 256));
  return values;
}

void expect_codes(const std::vector<std::byte>& packed) {
  ASSERT_EQ(packed.size(), 5 * 256 + 3u);
  for (std::size_t i = 0; i < packed.size(); ++i) {
    ASSERT_EQ(static_cast<std::size_t>(packed[i]), i * 7 % 256);
  }
}

// As torchvision's ToTensor computes them: a division in the dtype.
TEST(BytesOf, WhatADivisionBy255GivesComesBackInEveryDtypeOnEveryTarget) {
  const std::string before = cpu_target();
  for (const std::string& target : cpu_targets()) {
    use_cpu_target(target);
    std::vector<std::byte> packed;
    const auto f32 = all_values<float>([](int k) { return static_cast<float>(k) / 255.0f; });
    EXPECT_EQ(round_trip("bytes_of", DType::F32, f32, &packed), "exact") << target;
    expect_codes(packed);
    const auto f64 = all_values<double>([](int k) { return k / 255.0; });
    EXPECT_EQ(round_trip("bytes_of", DType::F64, f64, &packed), "exact") << target;
    expect_codes(packed);
    const auto f16 = all_values<F16>([](int k) { return to_f16(static_cast<float>(k) / 255.0f); });
    EXPECT_EQ(round_trip("bytes_of", DType::F16, f16, &packed), "exact") << target;
    expect_codes(packed);
    const auto bf16 =
        all_values<BF16>([](int k) { return to_bf16(static_cast<float>(k) / 255.0f); });
    EXPECT_EQ(round_trip("bytes_of", DType::BF16, bf16), "exact") << target;
  }
  use_cpu_target(before);
}

TEST(BytesOf, OtherScalesComeBackToo) {
  EXPECT_EQ(round_trip("bytes_of(scale=1/256)", DType::F32,
                       all_values<float>([](int k) { return static_cast<float>(k) / 256; })),
            "exact");
  EXPECT_EQ(round_trip("bytes_of(scale=1)", DType::F32,
                       all_values<float>([](int k) { return static_cast<float>(k); })),
            "exact");
  EXPECT_EQ(round_trip("bytes_of(scale=1/127.5)", DType::F64,
                       all_values<double>([](int k) { return k / 127.5; })),
            "exact");
  EXPECT_EQ(round_trip("bytes_of(scale=0.3)", DType::F64,
                       all_values<double>([](int k) { return k * 0.3; })),
            "exact");
  EXPECT_EQ(round_trip("bytes_of(scale=0.1)", DType::F64,
                       all_values<double>([](int k) { return k / 10.0; })),
            "exact");
  // The mean and deviation of ImageNet's red, for which no vector computes all values.
  EXPECT_EQ(round_trip("bytes_of(scale=0.0171247538, add=-2.1179)", DType::F32,
                       all_values<float>(
                           [](int k) { return static_cast<float>(k * 0.0171247538 + -2.1179); })),
            "exact");
}

TEST(BytesOf, ASumIsRoundedOnceOrAfterEachStep) {
  const auto once = all_values<float>([](int k) { return static_cast<float>(k / 127.5 - 1); });
  const auto each = all_values<float>([](int k) { return static_cast<float>(k) / 127.5f - 1; });
  EXPECT_NE(once, each);
  const std::string text = "bytes_of(scale=1/127.5, add=-1";
  EXPECT_EQ(round_trip(text + ")", DType::F32, once), "exact");
  EXPECT_EQ(round_trip(text + ", round=each)", DType::F32, each), "exact");
  EXPECT_NE(round_trip(text + ")", DType::F32, each), "exact");
  EXPECT_NE(round_trip(text + ", round=each)", DType::F32, once), "exact");
  EXPECT_EQ(round_trip(text + ", round=each)", DType::F64,
                       all_values<double>([](int k) { return k / 127.5 - 1; })),
            "exact");
}

TEST(BytesOf, TheFirstValueThatNoByteStandsForIsNamed) {
  std::vector<float> values(100000, 1.0f);
  values[70001] = 0.5f;
  values[99999] = 0.25f;
  EXPECT_EQ(round_trip("bytes_of", DType::F32, values),
            "[pack] bytes_of holds 0, 0.003921569, 0.007843138 … 1, got 0.5 at element 70001; give "
            "another scale, or use a lossy codec such as block_quant");
  EXPECT_EQ(round_trip("bytes_of(scale=0.5)", DType::F32, values),
            "[pack] bytes_of holds 0, 0.5, 1 "
            "… 127.5, got 0.25 at element 99999; give another scale, or use a lossy codec such as "
            "block_quant");
}

TEST(BytesOf, ANeighbourInTheLastBitIsRefused) {
  for (int k = 1; k < 256; ++k) {
    const float value = static_cast<float>(k) / 255.0f;
    for (const float other : {std::nextafter(value, 0.0f), std::nextafter(value, 2.0f)}) {
      std::vector<float> values(40, value);
      for (const std::size_t at : {std::size_t{0}, std::size_t{21}, std::size_t{39}}) {
        values[at] = other;
        EXPECT_NE(round_trip("bytes_of", DType::F32, values), "exact") << k;
        values[at] = value;
      }
    }
  }
}

TEST(BytesOf, MinusZeroNanAndInfinitiesAreRefused) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  for (const DType dtype : kFloats) {
    for (const double bad : {-0.0, std::nan(""), kInf, -kInf, 1e30, -1e-30, 2.0}) {
      for (const std::int64_t at : {0, 40, 69}) {
        ref::Tensor in(dtype, {70});
        std::vector<double> values(70, 1.0);
        values[static_cast<std::size_t>(at)] = bad;
        in.fill(values);
        const CodecSpec spec = CodecSpec::parse("bytes_of");
        std::vector<std::byte> bytes(70);
        // What underflows to 0 in the dtype is 0.
        if (std::signbit(in.get(at)) || in.get(at) != 0) {
          EXPECT_EQ(ref::code_of([&] { pack(spec, in.view(), bytes); }), Errc::InvalidArgument)
              << to_string(dtype) << ' ' << bad;
        }
      }
    }
  }
}

// At every place of the vectors: a value that is no byte's, of which some are whole steps above the
// last byte's; and all bytes' values with several rules.
TEST(BytesOf, HalvesAreRefusedAndComeBackOnEveryTarget) {
  const std::string before = cpu_target();
  for (const std::string& target : cpu_targets()) {
    use_cpu_target(target);
    for (const DType dtype : {DType::F16, DType::BF16}) {
      for (const char* text :
           {"bytes_of(scale=1)", "bytes_of(scale=1/256)", "bytes_of", "bytes_of(scale=2, add=-8)",
            "bytes_of(scale=1/127.5, add=-1)", "bytes_of(scale=0.0171247538, add=-2.1179)",
            "bytes_of(scale=1/127.5, add=-1, round=each)"}) {
        const CodecSpec spec = CodecSpec::parse(text);
        for (const std::size_t count : {1u, 31u, 256u, 1024u + 77u}) {
          SCOPED_TRACE(fmt::format("{} {} {} {}", target, to_string(dtype), text, count));
          std::vector<std::byte> codes(count), again(count);
          for (std::size_t i = 0; i < count; ++i) codes[i] = static_cast<std::byte>(i * 7 % 256);
          const Shape shape{static_cast<std::int64_t>(count)};
          const ref::Tensor values(dtype, shape), back(dtype, shape);
          unpack(spec, codes, values.view());
          pack(spec, values.view(), again);
          unpack(spec, again, back.view());
          ASSERT_EQ(back.bytes(), values.bytes());
        }
      }
      const CodecSpec spec = CodecSpec::parse("bytes_of(scale=1)");
      for (const double bad : {256.0, 300.0, 2048.0, -1.0, 0.5, 254.5, -0.0}) {
        ref::Tensor in(dtype, {100});
        if (in.dtype() == DType::BF16 && bad == 254.5) continue;  // is 254 there
        for (std::size_t at = 0; at < 100; ++at) {
          std::vector<double> values(100, 7.0);
          values[at] = bad;
          in.fill(values);
          std::vector<std::byte> bytes(100);
          EXPECT_EQ(ref::code_of([&] { pack(spec, in.view(), bytes); }), Errc::InvalidArgument)
              << target << ' ' << to_string(dtype) << ' ' << bad << ' ' << at;
        }
      }
    }
  }
  use_cpu_target(before);
}

// 0.001 is far below the precision of bf16 at 100: many bytes have the same value.
TEST(BytesOf, ValuesOfSeveralBytesComeBack) {
  for (const char* text : {"bytes_of(scale=0.001, add=100)", "bytes_of(scale=1e-9, add=1)",
                           "bytes_of(scale=0.001, add=1e6, round=each)", "bytes_of(scale=1e-30)",
                           "bytes_of(scale=1e30)", "bytes_of(scale=1e4)", "bytes_of(scale=1e-7)"}) {
    const CodecSpec spec = CodecSpec::parse(text);
    for (const DType dtype : kFloats) {
      if (!ref::suits(spec, dtype, {256})) continue;
      std::vector<std::byte> codes(256), again(256);
      for (std::size_t k = 0; k < 256; ++k) codes[k] = static_cast<std::byte>(k);
      const ref::Tensor values(dtype, {256}), back(dtype, {256});
      unpack(spec, codes, values.view());
      pack(spec, values.view(), again);
      unpack(spec, again, back.view());
      EXPECT_EQ(back.bytes(), values.bytes()) << text << ' ' << to_string(dtype);
    }
  }
}

TEST(BytesOf, ValuesThatTheDtypeCannotHoldAreRefused) {
  const std::vector<F16> values(8);
  EXPECT_EQ(round_trip("bytes_of(scale=1000)", DType::F16, values),
            "[layout] 255 * scale + add of bytes_of is inf in f16; use a dtype with more range");
  EXPECT_EQ(round_trip("bytes_of(scale=1, add=-1e6)", DType::F16, values),
            "[layout] 0 * scale + add of bytes_of is -inf in f16; use a dtype with more range");
}

TEST(BytesOf, PacksFurtherInAChain) {
  std::vector<float> values(1000);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(i * i % 16) / 15.0f;
  }
  std::vector<std::byte> packed;
  EXPECT_EQ(round_trip("bytes_of(scale=1/15) | bits(width=4)", DType::F32, values, &packed),
            "exact");
  EXPECT_EQ(packed.size(), 8 + 500u);
  EXPECT_EQ(round_trip("bytes_of(scale=1/15) | bits", DType::F32, values, &packed), "exact");
  EXPECT_EQ(packed.size(), 9 + 500u);
  const Layout fit = layout(CodecSpec::parse("bytes_of"), DType::F32, {2, 3, 5});
  EXPECT_EQ(fit.dtype, DType::U8);
  EXPECT_EQ(fit.shape, Shape({2, 3, 5}));
}

TEST(BytesOf, WholeNumbersAreRefusedWithWhatTakesThem) {
  for (const DType dtype : {DType::U8, DType::I32, DType::I64}) {
    try {
      layout(CodecSpec::parse("bytes_of"), dtype, {8});
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.what(), fmt::format("[layout] bytes_of packs f32, f16, bf16 and f64, got {}; "
                                          "use bits",
                                          to_string(dtype)));
    }
  }
}

}  // namespace
}  // namespace tuckfold
