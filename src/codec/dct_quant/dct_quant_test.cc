// dct_quant against its definition; what it does with extremes is in dct_quant_extremes_test.cc, its
// kernels are compared in dct_quant_bits_test.cc, its quality is held in dct_quant_quality_test.cc,
// and what every codec must keep is in contract_test.cc.
#include <cstring>
#include <numbers>

#include "codec/dct_quant/dct_quant_block.h"
#include "codec/dct_quant/dct_quant_fixture.h"
#include "tuckfold/error.h"

namespace tuckfold {
namespace {

using namespace dct_quant_fixture;

// ---- sizes and bits -----------------------------------------------------------------------------

TEST(DctQuant, ABlockTakesEightTimesTheRateInBytes) {
  for_each_rate([](double rate, int dc) {
    const auto bytes = static_cast<std::size_t>(rate * 8);
    const CodecSpec spec = CodecSpec::parse(spec_text(rate, dc));
    const Layout even = layout(spec, DType::F32, {2, 16, 24});
    EXPECT_TRUE(even.fixed);
    EXPECT_EQ(even.max_bytes, 12 * bytes);
    EXPECT_EQ(even.shape, (Shape{2, 2, 3, static_cast<std::int64_t>(bytes)}));
    EXPECT_EQ(layout(spec, DType::F64, {17, 9}).max_bytes, 6 * bytes);
    EXPECT_EQ(layout(spec, DType::F32, {3, 0, 8}).max_bytes, 0u);
  });
}

TEST(DctQuant, SidesBelowABlockAreRefused) {
  try {
    layout(CodecSpec::parse("dct_quant"), DType::F32, {7, 3});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::InvalidArgument);
    EXPECT_STREQ(error.what(),
                 "[layout] dct_quant needs two sides of at least 8, got 7x3; use block_quant");
  }
}

TEST(DctQuant, AnyStreamWhoseHeadersFitUnpacksToItsDefinition) {
  std::mt19937 random(3);
  for_each_rate([&](double rate, int dc) {
    const Rules rules(rate, dc);
    for (int turn = 0; turn < 24; ++turn) {
      const std::vector<std::uint8_t> block = random_block(rules, random);
      const ref::Dense wanted = dct_quant_ref::decode(rules, block.data());
      const Packed packed{CodecSpec::parse(spec_text(rate, dc)), {8, 8}, [&] {
                            std::vector<std::byte> bytes(block.size());
                            std::memcpy(bytes.data(), block.data(), block.size());
                            return bytes;
                          }()};
      const std::vector<float> got = packed.unpack();
      const double most = largest(wanted.values);
      for (std::size_t i = 0; i < 64; ++i) {
        ASSERT_NEAR(got[i], wanted.values[i], 6 * 0x1p-24 * most) << "turn " << turn;
      }
    }
  });
}

TEST(DctQuant, PackedValuesUnpackToTheirDefinition) {
  const std::vector<float> smooth = smooth_values(8, 64), noise = random_values(512, -1, 3);
  for_each_rate([&](double rate, int dc) {
    const Rules rules(rate, dc);
    for (const std::vector<float>& values : {smooth, noise}) {
      Packed packed = pack_values(spec_text(rate, dc), values, row_of_blocks(8));
      const std::vector<float> got = packed.unpack();
      for (std::int64_t b = 0; b < 8; ++b) {
        const ref::Dense wanted = dct_quant_ref::decode(rules, packed.block(b));
        const double most = largest(wanted.values);
        for (int i = 0; i < 64; ++i) {
          ASSERT_NEAR(got[at(8, b, i)], wanted.values[static_cast<std::size_t>(i)],
                      6 * 0x1p-24 * most);
        }
      }
    }
  });
}

TEST(DctQuant, CoefficientsComeBackWithinHalfAStep) {
  const std::vector<float> smooth = smooth_values(8, 64), noise = random_values(512, -1, 3);
  std::vector<float> mixed = noise, spike(512), sparse(512);
  for (std::size_t i = 0; i < 512; ++i) mixed[i] *= std::exp2(static_cast<float>(i % 64) - 30);
  for (std::size_t b = 0; b < 8; ++b)
    spike[at(8, static_cast<std::int64_t>(b), 9 * static_cast<int>(b))] = 100;
  for (std::size_t i = 0; i < 512; i += 7) sparse[i] = noise[i] - 1;
  for_each_rate([&](double rate, int dc) {
    for (const std::vector<float>& values : {smooth, noise, mixed, spike, sparse}) {
      Packed packed = pack_values(spec_text(rate, dc), values, row_of_blocks(8));
      for (std::int64_t b = 0; b < 8; ++b) {
        expect_within_steps(Rules(rate, dc), packed.block(b), values.data() + 8 * b, 64);
      }
    }
  });
}

TEST(DctQuant, BitsThatMeanNothingAreZero) {
  const std::vector<float> noise = random_values(512, -1, 3);
  std::vector<float> values = noise;
  values[0] = std::nanf("");
  for (std::size_t i = 0; i < 512; ++i) values[i] *= i % 64 < 32 ? 1.0f : 0.0f;
  for_each_rate([&](double rate, int dc) {
    const Rules rules(rate, dc);
    Packed packed = pack_values(spec_text(rate, dc), values, row_of_blocks(8));
    for (std::int64_t b = 0; b < 8; ++b) {
      int used = 10;  // of a block that is NaN
      if (b > 0) dct_quant_ref::coefficients(rules, packed.block(b), &used);
      ASSERT_LE(used, 8 * rules.bytes);
      for (int i = used; i < 8 * rules.bytes; ++i) {
        ASSERT_EQ(dct_quant_ref::get_bits(packed.block(b), i, 1), 0u) << "block " << b;
      }
    }
  });
}

TEST(DctQuant, ABlocksBytesAloneUnpackToTheBlock) {
  const std::vector<float> values = random_values(5 * 64, -1, 1);
  for (const double rate : {1.0, 2.875, 8.0, 16.0}) {
    Packed packed = pack_values(spec_text(rate), values, row_of_blocks(5));
    const std::vector<float> all = packed.unpack();
    for (std::int64_t b = 0; b < 5; ++b) {
      Packed one{packed.spec, {8, 8}, {}};
      const auto* begin = reinterpret_cast<const std::byte*>(packed.block(b));
      one.bytes.assign(begin, begin + static_cast<std::ptrdiff_t>(rate * 8));
      const std::vector<float> got = one.unpack();
      for (int i = 0; i < 64; ++i) EXPECT_EQ(got[static_cast<std::size_t>(i)], all[at(5, b, i)]);
    }
  }
}

TEST(DctQuant, OddSidesPackLikeTheTensorWithItsEdgeRepeated) {
  for (const auto& [rows, cols] : {std::pair(13, 21), std::pair(8, 9), std::pair(65, 31)}) {
    const std::int64_t padded_rows = (rows + 7) / 8 * 8, padded_cols = (cols + 7) / 8 * 8;
    const std::vector<float> values = random_values(static_cast<std::size_t>(rows * cols), -1, 1);
    std::vector<float> padded;
    for (std::int64_t i = 0; i < padded_rows * padded_cols; ++i) {
      const std::int64_t r = std::min<std::int64_t>(i / padded_cols, rows - 1);
      const std::int64_t c = std::min<std::int64_t>(i % padded_cols, cols - 1);
      padded.push_back(values[static_cast<std::size_t>(r * cols + c)]);
    }
    for (const double rate : {1.0, 4.0, 12.5}) {
      const Packed odd = pack_values(spec_text(rate), values, {rows, cols});
      const Packed even = pack_values(spec_text(rate), padded, {padded_rows, padded_cols});
      EXPECT_EQ(odd.bytes, even.bytes);
      const std::vector<float> cropped = odd.unpack(), whole = even.unpack();
      for (std::int64_t i = 0; i < rows * cols; ++i) {
        EXPECT_EQ(cropped[static_cast<std::size_t>(i)],
                  whole[static_cast<std::size_t>(i / cols * padded_cols + i % cols)]);
      }
    }
  }
}

TEST(DctQuant, EveryRateTakesEveryDType) {
  for (const DType dtype : ref::kLossyDTypes) {
    const double scale = dtype == DType::U8 ? 255 : dtype == DType::U16 ? 65535 : 2;
    for (int eighths = 8; eighths <= 128; ++eighths) {
      const CodecSpec spec = CodecSpec::parse(spec_text(eighths / 8.0));
      if (eighths > 8 * 8 * static_cast<int>(size_bytes(dtype))) {
        EXPECT_EQ(ref::code_of([&] { layout(spec, dtype, {16, 24}); }), Errc::InvalidArgument);
        continue;
      }
      ref::Tensor in(dtype, {16, 24});
      std::vector<double> ramp;
      for (int i = 0; i < 16 * 24; ++i) ramp.push_back((i / 24 + i % 24) * scale / 40);
      in.fill(ramp);
      std::vector<std::byte> packed(layout(spec, dtype, in.shape()).max_bytes);
      pack(spec, in.view(), packed);
      const ref::Tensor out(dtype, in.shape());
      unpack(spec, packed, out.view());
      // A slope needs few bits; then types round.
      const double most = scale * (eighths < 16 ? 0.1 : 0.03);
      for (int i = 0; i < 16 * 24; ++i) ASSERT_NEAR(out.get(i), in.get(i), most) << eighths;
    }
  }
}

// What is gathered goes to batches that hold block rows of several planes.
TEST(DctQuant, PlanesOfAnyWidthHaveTheBytesOfTheSameValuesInF32) {
  const CodecSpec spec = CodecSpec::parse("dct_quant(rate=4)");
  for (const Shape& shape : {Shape{200, 32, 32},
                             {130, 8, 8},
                             {37, 9, 8},
                             {50, 17, 41},
                             {3, 24, 1040},
                             {2, 16, 2056},
                             {70, 8, 72}}) {
    const ref::Tensor bytes =
        std::move(ref::Tensor(DType::U8, shape).fill(ref::Pattern::Random, 7));
    std::vector<double> values;
    for (const std::byte byte : bytes.bytes()) values.push_back(std::to_integer<int>(byte));
    const ref::Tensor floats = std::move(ref::Tensor(DType::F32, shape).fill(values));
    const std::size_t most = layout(spec, DType::F32, shape).max_bytes;
    std::vector<std::byte> wanted(most);
    pack(spec, floats.view(), wanted);
    const ref::Tensor back(DType::F32, shape);
    unpack(spec, wanted, back.view());
    for (const int threads : {1, 3}) {
      for (const DType dtype : {DType::U8, DType::F16}) {
        const ref::Tensor in = std::move(ref::Tensor(dtype, shape).fill(values));
        std::vector<std::byte> packed(most);
        pack(spec, in.view(), packed, {.threads = threads});
        EXPECT_TRUE(packed == wanted) << to_string(dtype) << ' ' << to_string(shape);
      }
      const ref::Tensor out(DType::U8, shape);
      unpack(spec, wanted, out.view(), {.threads = threads});
      const std::vector<std::byte> got = out.bytes(), exact = back.bytes();
      int wrong = 0;
      for (std::size_t i = 0; i < got.size(); ++i) {
        float value;
        std::memcpy(&value, &exact[4 * i], sizeof value);
        const float rounded = std::nearbyint(std::clamp(value, 0.0f, 255.0f));
        wrong += std::to_integer<int>(got[i]) == static_cast<int>(rounded) ? 0 : 1;
      }
      EXPECT_EQ(wrong, 0) << to_string(shape);
    }
  }
}

// The worked example of docs/codecs/dct_quant.md.
TEST(DctQuant, TheExampleOfTheDocumentation) {
  std::vector<float> values;
  for (int i = 0; i < 64; ++i) values.push_back(static_cast<float>(i / 8 + i % 8));
  Packed packed = pack_values("dct_quant(rate=1)", values, {8, 8});
  std::string hex;
  for (int i = 0; i < 8; ++i) hex += fmt::format("{:02x} ", packed.block(0)[i]);
  EXPECT_EQ(hex, "01 12 a5 01 86 08 0c 47 ");
  const Rules rules(1, 8);
  EXPECT_EQ(rules.tiles, 6);
  EXPECT_EQ(rules.nibbles, 8);
  const Header header = dct_quant_ref::read_header(rules, packed.block(0));
  EXPECT_EQ(header.step, 513);
  EXPECT_EQ(dct_quant_ref::step_size(header.step), 2.5);
  EXPECT_EQ(header.widths, (std::vector<int>{4, 2, 1, 0, 0, 0}));
  EXPECT_EQ(header.left(rules), 1);
  const ref::Dense z = dct_quant_ref::coefficients(rules, packed.block(0));
  const std::vector<double> first_rows(z.values.begin(), z.values.begin() + 32);
  EXPECT_EQ(first_rows, (std::vector<double>{56.25,   -18.125, 1.25, -1.25, 0, 0, 0, 0,  //
                                             -18.125, 0.625,   1.25, 1.25,  0, 0, 0, 0,  //
                                             1.25,    1.25,    0,    0,     0, 0, 0, 0,  //
                                             -1.25,   1.25,    0,    0,     0, 0, 0, 0}));
  for (std::size_t i = 32; i < 64; ++i) EXPECT_EQ(z.values[i], 0);
  const std::vector<float> back = packed.unpack();
  EXPECT_NEAR(back[0], 2.0134, 1e-4);
  EXPECT_NEAR(back[63], 14.1857, 1e-4);
}

}  // namespace
}  // namespace tuckfold
