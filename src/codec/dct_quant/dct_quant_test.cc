// dct_quant against its definition, and what it does with extremes; its kernels are compared in
// dct_quant_bits_test.cc, its quality is held in dct_quant_quality_test.cc, and what every codec
// must keep is in contract_test.cc.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>
#include <random>
#include <string>

#include "base/tensor_fixture.h"
#include "codec/contract_fixture.h"
#include "codec/dct_quant/dct_quant_block.h"
#include "codec/dct_quant/dct_quant_ref.h"
#include "tuckfold/codec.h"
#include "tuckfold/error.h"

namespace tuckfold {
namespace {

using dct_quant_ref::Header;
using dct_quant_ref::Rules;
using ref::random_values;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kMax = std::numeric_limits<float>::max();
constexpr int kDcs[] = {4, 8, 12};

std::string spec_text(double rate, int dc = 8, const char* more = "") {
  return fmt::format("dct_quant(rate={}, dc={}{})", rate, dc, more);
}

// ---- packed planes, block by block --------------------------------------------------------------

struct Packed {
  CodecSpec spec;
  Shape shape;
  std::vector<std::byte> bytes;

  std::vector<float> unpack() const {
    std::vector<float> out(static_cast<std::size_t>(shape.elems()), -77.0f);
    tuckfold::unpack(spec, bytes, TensorView(out.data(), DType::F32, shape));
    return out;
  }
  std::uint8_t* block(std::int64_t index) {
    return reinterpret_cast<std::uint8_t*>(bytes.data()) +
           index * static_cast<std::int64_t>(spec.stages()[0]["rate"] * 8);
  }
};

Packed pack_values(const std::string& text, const std::vector<float>& values, const Shape& shape) {
  Packed packed{CodecSpec::parse(text), shape, {}};
  packed.bytes.resize(layout(packed.spec, DType::F32, shape).max_bytes);
  pack(packed.spec, ConstTensorView(values.data(), DType::F32, shape), packed.bytes);
  return packed;
}
// Blocks side by side.
Shape row_of_blocks(std::int64_t count) { return {8, 8 * count}; }
std::size_t at(std::int64_t blocks, std::int64_t b, int i) {
  return static_cast<std::size_t>(i / 8 * 8 * blocks + b * 8 + i % 8);
}

// A wave on a slope.
std::vector<float> smooth_values(std::int64_t rows, std::int64_t cols) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < rows * cols; ++i) {
    const auto r = static_cast<double>(i / cols), c = static_cast<double>(i % cols);
    values.push_back(static_cast<float>(std::sin(0.11 * r + 0.07 * c) + 0.01 * r));
  }
  return values;
}

ref::Dense coefficients_of(const float* x, std::int64_t row) {
  ref::Dense a(8, 8);
  for (int i = 0; i < 64; ++i) a.at(i / 8, i % 8) = x[i / 8 * row + i % 8];
  const ref::Dense t = ref::dct_matrix(8);
  return ref::product(ref::product(t, a), ref::transposed(t));
}
double largest(const std::vector<double>& values) {
  double most = 0;
  for (const double value : values) most = std::max(most, std::abs(value));
  return most;
}

// Every coefficient must be off by at most half of its tile's step, the first, which its width may
// stop, by a step; those of tiles without bits must come back as 0. Rounding comes on top.
void expect_within_steps(const Rules& rules, const std::uint8_t* block, const float* x,
                         std::int64_t row) {
  const Header header = dct_quant_ref::read_header(rules, block);
  ASSERT_TRUE(header.fits);
  const ref::Dense wanted = coefficients_of(x, row);
  const ref::Dense got = dct_quant_ref::coefficients(rules, block);
  const double rounding = largest(wanted.values) * 0x1p-20;
  for (int k = 0; k < 16; ++k) {
    for (int t = 0; t < 4; ++t) {
      const int u = 2 * dct_quant_ref::kTiles[k][0] + t / 2;
      const int v = 2 * dct_quant_ref::kTiles[k][1] + t % 2;
      if (k >= rules.tiles) {
        ASSERT_EQ(got.at(u, v), 0) << k;
        continue;
      }
      const double step = dct_quant_ref::step_size(header.step) / (header.finer(rules, k) ? 2 : 1);
      const double most = k == 0 && t == 0 ? step : step / 2;
      ASSERT_NEAR(got.at(u, v), wanted.at(u, v), most + rounding) << "tile " << k << " value " << t;
    }
  }
}

// Bytes with a header that fits, and anything behind it.
std::vector<std::uint8_t> random_block(const Rules& rules, std::mt19937& random) {
  std::vector<std::uint8_t> block(static_cast<std::size_t>(rules.bytes));
  for (std::uint8_t& byte : block) byte = static_cast<std::uint8_t>(random());
  Header header;
  do {
    header.step = 80 + static_cast<int>(random() % 800);
    header.widths = {rules.bias + static_cast<int>(random() % 16)};
    while (static_cast<int>(header.widths.size()) < rules.tiles) {
      const int least = std::max(0, header.widths.back() - 2);
      const int choices = header.widths.back() + 2 - least;
      header.widths.push_back(least + static_cast<int>(random() % static_cast<unsigned>(choices)));
    }
    dct_quant_ref::write_header(rules, header, block.data());
  } while (!dct_quant_ref::read_header(rules, block.data()).fits);
  return block;
}

template <class Check>
void for_each_rate(Check&& check, int step = 1) {
  for (int eighths = 8; eighths <= 128; eighths += step) {
    for (const int dc : kDcs) {
      SCOPED_TRACE(spec_text(eighths / 8.0, dc));
      check(eighths / 8.0, dc);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

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

// The worked example of docs/codecs/dct_quant.md.
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

// ---- extremes -----------------------------------------------------------------------------------

TEST(DctQuant, ABlockThatIsNotFiniteComesBackNanAndLeavesOthersAlone) {
  const std::vector<float> clean = random_values(5 * 64, -1, 1);
  for (const double rate : {1.0, 2.5, 8.0, 11.0}) {
    const std::vector<float> wanted =
        pack_values(spec_text(rate), clean, row_of_blocks(5)).unpack();
    for (const float bad : {std::nanf(""), -std::nanf(""), kInf, -kInf}) {
      for (int place = 0; place < 64; place += 9) {
        std::vector<float> values = clean;
        values[at(5, 2, place)] = bad;
        const std::vector<float> got =
            pack_values(spec_text(rate), values, row_of_blocks(5)).unpack();
        for (std::int64_t b = 0; b < 5; ++b) {
          for (int i = 0; i < 64; ++i) {
            const std::size_t j = at(5, b, i);
            ASSERT_TRUE(b == 2 ? std::isnan(got[j]) : got[j] == wanted[j]);
          }
        }
      }
    }
  }
}

TEST(DctQuant, HugeValuesComeBackInSightOrAsNan) {
  const std::vector<float> noise = random_values(64, -1, 1);
  for (const double rate : {8.0, 12.0, 16.0}) {
    for (int kind = 0; kind < 4; ++kind) {
      for (int eighths = 8 * 100; eighths <= 8 * 128; ++eighths) {
        const double scale = std::min(std::exp2(eighths / 8.0), double{kMax});
        std::vector<float> values;
        for (int i = 0; i < 64; ++i) {
          const double sign = (i / 8 + i % 8) % 2 == 0 ? 1 : -1;
          const double one[] = {1, sign, noise[static_cast<std::size_t>(i)], i == 27 ? 1.0 : 0.0};
          values.push_back(static_cast<float>(scale * one[kind]));
        }
        const std::vector<float> got = pack_values(spec_text(rate), values, {8, 8}).unpack();
        const bool lost = std::isnan(got[0]);
        for (std::size_t i = 0; i < 64; ++i) {
          ASSERT_EQ(std::isnan(got[i]), lost);
          if (!lost) {
            ASSERT_NEAR(got[i] / scale, values[i] / scale, 0.06) << rate << ' ' << kind;
          }
        }
        // Sums of 64 values, some times about 5 or 25, must stay finite.
        if (scale < 0x1p118) {
          ASSERT_FALSE(lost) << rate << ' ' << kind << ' ' << scale;
        }
        if (scale > 0x1p122 && kind == 0) {
          ASSERT_TRUE(lost);
        }
      }
    }
  }
}

TEST(DctQuant, ZerosComeBackAsZeros) {
  std::vector<float> values = random_values(3 * 64, -1, 1);
  for (int i = 0; i < 64; ++i) values[at(3, 1, i)] = i % 2 == 0 ? 0.0f : -0.0f;
  for_each_rate([&](double rate, int dc) {
    const std::vector<float> got =
        pack_values(spec_text(rate, dc), values, row_of_blocks(3)).unpack();
    for (int i = 0; i < 64; ++i) ASSERT_EQ(got[at(3, 1, i)], 0.0f);
  });
}

TEST(DctQuant, EqualValuesComeBackWithinTheirStep) {
  for_each_rate([](double rate, int dc) {
    const Rules rules(rate, dc);
    for (const float value : {1.0f, -1.0f, 3.14159f, 1e-20f, -65504.0f, 1e30f}) {
      Packed packed = pack_values(spec_text(rate, dc), std::vector<float>(64, value), {8, 8});
      ASSERT_NO_FATAL_FAILURE(
          expect_within_steps(rules, packed.block(0), std::vector<float>(64, value).data(), 8));
      const double most = rate < 4 ? (dc == 4 ? 0x1p-4 : 0x1p-8) : (dc == 4 ? 0x1p-11 : 0x1p-15);
      for (const float got : packed.unpack()) ASSERT_NEAR(got / value, 1, most);
    }
  });
}

TEST(DctQuant, SubnormalsComeBackWithinTheLeastStep) {
  for_each_rate(
      [](double rate, int dc) {
        for (const float scale : {1e-45f, 1e-40f, 1e-38f, 1e-35f, 1e-33f}) {
          std::vector<float> values = random_values(64, -1, 1);
          for (float& value : values) value *= scale;
          const std::vector<float> got = pack_values(spec_text(rate, dc), values, {8, 8}).unpack();
          for (std::size_t i = 0; i < 64; ++i) ASSERT_NEAR(got[i], values[i], 8 * 0x1p-107);
        }
      },
      7);
}

TEST(DctQuant, SteepSpectraReachTheLargestWidth) {
  for (const double rate : {5.0, 8.0, 9.0, 12.0, 16.0}) {
    const Rules rules(rate, 8);
    // A cosine along each side: two values of tile 0, nothing else.
    std::vector<float> values;
    for (int i = 0; i < 64; ++i) {
      values.push_back(static_cast<float>(std::cos(std::numbers::pi * (2 * (i / 8) + 1) / 16) +
                                          std::cos(std::numbers::pi * (2 * (i % 8) + 1) / 16)));
    }
    Packed packed = pack_values(spec_text(rate), values, {8, 8});
    const Header header = dct_quant_ref::read_header(rules, packed.block(0));
    EXPECT_EQ(header.widths[0], rules.max_width) << rate;
    expect_within_steps(rules, packed.block(0), values.data(), 8);
    const std::vector<float> got = packed.unpack();
    for (std::size_t i = 0; i < 64; ++i) {
      EXPECT_NEAR(got[i], values[i], 4 * dct_quant_ref::step_size(header.step)) << rate;
    }
  }
}

TEST(DctQuant, RatesTooLowForABandLeaveItOut) {
  for (int eighths = 8; eighths < 22; ++eighths) {
    const Rules rules(eighths / 8.0, 8);
    ASSERT_LT(rules.tiles, 16);
    // The highest frequencies alone are nothing at such a rate.
    std::vector<float> values;
    for (int i = 0; i < 64; ++i) {
      values.push_back(static_cast<float>(std::cos(std::numbers::pi * (2 * (i / 8) + 1) * 7 / 16) *
                                          std::cos(std::numbers::pi * (2 * (i % 8) + 1) * 7 / 16)));
    }
    for (const float got : pack_values(spec_text(eighths / 8.0), values, {8, 8}).unpack()) {
      EXPECT_LT(std::abs(got), 1e-5f);
    }
  }
}

// A coefficient just below 2^e (1 + m/4) is the largest that its width holds: the product with the
// step's inverse must not round up to the next whole number, which would come back negative.
TEST(DctQuant, TheLastNumberBelowALevelKeepsItsSign) {
  for (const int place : {1, 8, 9}) {
    for (const float level : {2.0f, 2.5f, 3.0f, 3.5f}) {
      int hits = 0;
      for (int ulps = -64; ulps < 64; ++ulps) {
        const float amplitude =
            float_of(bits_of(level) + static_cast<std::uint32_t>(ulps)) / (place == 9 ? 4 : 1);
        float x[64], z[64];
        for (int i = 0; i < 64; ++i) {
          const double u = place / 8 * std::numbers::pi / 16, v = place % 8 * std::numbers::pi / 16;
          const double scale = place == 9 ? 1 : std::sqrt(1 / 32.0);
          x[i] = amplitude * static_cast<float>(scale * std::cos((2 * (i / 8) + 1) * u) *
                                                std::cos((2 * (i % 8) + 1) * v));
        }
        dct_quant::forward(x, z);
        hits += bits_of(z[place]) + 1 == bits_of(level);
        for (int bytes = 8; bytes <= 128; bytes += 5) {
          const dct_quant::Form form = dct_quant::Form::of(bytes, 8);
          std::uint8_t packed[128];
          float back[64], again[64];
          dct_quant::pack_block(form, x, packed);
          dct_quant::unpack_block(form, packed, back);
          dct_quant::forward(back, again);
          ASSERT_NEAR(again[place], z[place], 0.3) << level << ' ' << ulps << ' ' << bytes;
        }
      }
      if (level == 3.5f) {  // whose step's inverse is rounded up the most
        EXPECT_GT(hits, 0) << place;
      }
    }
  }
}

// ---- headers that do not fit --------------------------------------------------------------------

TEST(DctQuant, HeadersThatDoNotFitUnpackToNan) {
  for_each_rate([](double rate, int dc) {
    const Rules rules(rate, dc);
    const dct_quant::Form form = dct_quant::Form::of(rules.bytes, dc);
    const auto expect_nan = [&](Header header, const char* why) {
      std::vector<std::uint8_t> block(static_cast<std::size_t>(rules.bytes), 0x5a);
      header.widths.resize(static_cast<std::size_t>(rules.tiles), header.widths.back());
      dct_quant_ref::write_header(rules, header, block.data());
      ASSERT_FALSE(dct_quant_ref::read_header(rules, block.data()).fits) << why;
      float x[64];
      dct_quant::unpack_block(form, block.data(), x);
      for (const float value : x) ASSERT_TRUE(std::isnan(value)) << why;
      Packed packed{CodecSpec::parse(spec_text(rate, dc)), {8, 8}, {}};
      packed.bytes.resize(block.size());
      std::memcpy(packed.bytes.data(), block.data(), block.size());
      for (const float value : packed.unpack()) ASSERT_TRUE(std::isnan(value)) << why;
    };
    // Widths that fit every rate: the first tile has what it must, the next ones less and less.
    std::vector<int> least = {rules.bias};
    while (static_cast<int>(least.size()) < rules.tiles) {
      least.push_back(std::max(0, least.back() - 2));
    }
    for (const int step : {1020, 1021, 1022, 1023}) expect_nan({step, least}, "no finite step");
    for (const int step : {1, 40, 79}) expect_nan({step, least}, "below the least step");
    if (rules.bias == 0) expect_nan({0, least}, "no step");
    std::vector<int> negative = least;
    negative.back() = -1;
    if (rules.bias == 0) expect_nan({500, negative}, "a negative width");
    expect_nan({500, {rules.bias + 15, rules.bias + 16}}, "more bits than there are");
    if (rules.bias + 15 > rules.max_width) {
      std::vector<int> steep = {rules.bias + 15};
      while (static_cast<int>(steep.size()) < rules.tiles) {
        steep.push_back(std::max(0, steep.back() - 2));
      }
      expect_nan({500, steep}, "a width beyond the largest");
    }
  });
}

// ---- offset and clamp ---------------------------------------------------------------------------

TEST(DctQuant, AnOffsetIsTakenAwayAndAddedAgain) {
  std::vector<float> values = smooth_values(16, 32);
  for (const float offset : {-300.0f, 0.5f, 1000.0f}) {
    std::vector<float> moved = values, moved_back = values;
    for (std::size_t i = 0; i < values.size(); ++i) {
      moved[i] = values[i] + offset;
      moved_back[i] = moved[i] - offset;
    }
    for (const double rate : {1.0, 4.0, 12.0}) {
      const std::string more = fmt::format(", offset={}", offset);
      const Packed with = pack_values(spec_text(rate, 4, more.c_str()), moved, {16, 32});
      const Packed without = pack_values(spec_text(rate, 4), moved_back, {16, 32});
      EXPECT_EQ(with.bytes, without.bytes);
      const std::vector<float> got = with.unpack(), wanted = without.unpack();
      for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(got[i], wanted[i] + offset);
    }
  }
}

TEST(DctQuant, ClampingLeavesNothingNegativeAndKeepsNan) {
  std::vector<float> values = random_values(40 * 64, -1, 1);
  for (float& value : values) value = std::max(value, 0.0f);
  values[at(40, 3, 5)] = std::nanf("");
  for (const char* more : {"", ", offset=0.25", ", offset=-3"}) {
    for (const double rate : {1.0, 3.0, 8.0, 10.0}) {
      const std::string clamp = fmt::format("{}, clamp=zero", more);
      const Packed plain = pack_values(spec_text(rate, 8, more), values, row_of_blocks(40));
      const Packed clamped =
          pack_values(spec_text(rate, 8, clamp.c_str()), values, row_of_blocks(40));
      EXPECT_EQ(plain.bytes, clamped.bytes);
      const std::vector<float> wanted = plain.unpack(), got = clamped.unpack();
      int negative = 0;
      for (std::size_t i = 0; i < values.size(); ++i) {
        negative += wanted[i] < 0;
        ASSERT_EQ(std::isnan(got[i]), std::isnan(wanted[i]));
        if (!std::isnan(got[i])) {
          ASSERT_EQ(got[i], std::max(wanted[i], 0.0f));
        }
      }
      EXPECT_GT(negative, 100) << "there was nothing to clamp";
    }
  }
}

}  // namespace
}  // namespace tuckfold
