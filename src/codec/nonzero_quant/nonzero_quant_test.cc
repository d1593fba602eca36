// nonzero_quant against its definition; what every codec must keep is in contract_test.cc.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>

#include "base/half.h"
#include "base/tensor_fixture.h"
#include "codec/contract_fixture.h"
#include "codec/nonzero_quant/nonzero_quant_block.h"
#include "codec/nonzero_quant/nonzero_quant_ref.h"
#include "tuckfold/codec.h"
#include "tuckfold/error.h"

namespace tuckfold {
namespace {

using nonzero_quant_ref::Bytes;
using nonzero_quant_ref::Code;
using ref::Tensor;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kMax = std::numeric_limits<float>::max();

std::string spec_text(int bits, std::size_t group, const char* more = "") {
  return fmt::format("nonzero_quant(bits={}, group={}{})", bits, group, more);
}

struct Packed {
  CodecSpec spec;
  std::int64_t count;
  std::vector<std::byte> bytes;

  std::vector<float> unpack() const {
    std::vector<float> out(static_cast<std::size_t>(count), -77.0f);
    tuckfold::unpack(spec, bytes, TensorView(out.data(), DType::F32, {count}));
    return out;
  }
  Bytes plain() const {
    Bytes all(bytes.size());
    std::memcpy(all.data(), bytes.data(), bytes.size());
    return all;
  }
};

Packed pack_values(const std::string& text, const std::vector<float>& values,
                   std::uint64_t seed = 0) {
  Packed packed{CodecSpec::parse(text), static_cast<std::int64_t>(values.size()), {}};
  packed.bytes.resize(layout(packed.spec, DType::F32, {packed.count}).max_bytes);
  packed.bytes.resize(pack(packed.spec, ConstTensorView(values.data(), DType::F32, {packed.count}),
                           packed.bytes, {.seed = seed}));
  return packed;
}

// Random values of which a share is not 0.
std::vector<float> sparse(std::size_t count, double density, float low, float high,
                          unsigned seed = 1) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> value(low, high);
  std::bernoulli_distribution is_set(density);
  std::vector<float> values(count);
  for (float& x : values) x = is_set(random) ? value(random) : 0.0f;
  return values;
}

// Numbers of every magnitude and both signs.
std::vector<float> wild(std::size_t count, int least, int most, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> values(count);
  for (float& x : values) {
    const int exponent = std::uniform_int_distribution(least, most)(random);
    x = std::ldexp(1.0f + static_cast<float>(random() % 256) / 256.0f, exponent);
    if (random() % 2 == 0) x = -x;
    if (random() % 4 == 0) x = 0.0f;
  }
  return values;
}

TEST(NonzeroQuant, PackedBytesAreThoseOfTheDefinition) {
  for (const std::size_t count : {1, 7, 64, 65, 2047, 2048, 2049, 40000}) {
    for (const double density : {0.0, 0.05, 0.5, 1.0}) {
      for (int bits = 1; bits <= 8; ++bits) {
        const std::size_t group = bits % 2 == 0 ? 64 : bits == 3 ? 2048 : 8 * bits;
        SCOPED_TRACE(
            fmt::format("{} values, {} not 0, {}", count, density, spec_text(bits, group)));
        const std::vector<float> values = sparse(count, density, -0.5f, 4.0f);
        const Packed packed = pack_values(spec_text(bits, group), values);
        const Bytes got = packed.plain(), wanted = nonzero_quant_ref::pack(values, bits, group);
        ASSERT_EQ(got.size(), wanted.size());
        // Codes may differ where double and float round to different sides of a tie; all else not.
        const auto mine = nonzero_quant_ref::codes_of(got, count, bits, group);
        const auto theirs = nonzero_quant_ref::codes_of(wanted, count, bits, group);
        std::size_t different = 0;
        for (std::size_t i = 0; i < count; ++i) {
          ASSERT_EQ(mine[i].scale, theirs[i].scale) << i;
          ASSERT_EQ(mine[i].minimum, theirs[i].minimum) << i;
          ASSERT_LE(std::abs(mine[i].code - theirs[i].code), 1) << i;
          different += mine[i].code != theirs[i].code ? 1 : 0;
        }
        ASSERT_LE(different, 1 + count / 4000);
        if (different == 0) {
          ASSERT_EQ(got, wanted);
        }
      }
    }
  }
}

TEST(NonzeroQuant, ValuesAreThoseOfTheDefinition) {
  for (int bits = 1; bits <= 8; ++bits) {
    for (const char* more : {"", ", round=stochastic"}) {
      const std::vector<float> values = sparse(5000, 0.6, -1.0f, 3.0f, 5);
      const Packed packed = pack_values(spec_text(bits, 40, more), values, 3);
      const std::vector<float> back = packed.unpack();
      const auto codes = nonzero_quant_ref::codes_of(packed.plain(), values.size(), bits, 40);
      for (std::size_t i = 0; i < values.size(); ++i) {
        const auto value = static_cast<float>(codes[i].value());
        const float wanted = values[i] == 0 ? 0.0f : value == 0 ? 0x1p-149f : value;
        ASSERT_EQ(back[i], wanted) << i;
      }
    }
  }
}

TEST(NonzeroQuant, ErrorIsAtMostHalfAScaleAndReachesIt) {
  for (int bits = 1; bits <= 8; ++bits) {
    const std::vector<float> values = sparse(8192, 0.5, 0.01f, 3.0f);
    const Packed packed = pack_values(spec_text(bits, 64), values);
    const std::vector<float> back = packed.unpack();
    const auto codes = nonzero_quant_ref::codes_of(packed.plain(), values.size(), bits, 64);
    double worst = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (values[i] == 0) continue;
      worst = std::max(worst, std::abs(double{values[i]} - back[i]) / codes[i].scale);
    }
    EXPECT_LE(worst, 0.5 + 1e-4) << bits;
    EXPECT_GE(worst, 0.45) << bits;
  }
}

// Only a value within half a scale of 0 may be moved to its side.
TEST(NonzeroQuant, AboutZeroTheErrorIsAtMostAScale) {
  for (int bits = 1; bits <= 8; ++bits) {
    const std::vector<float> values = sparse(8192, 0.5, -1.0f, 3.0f);
    const Packed packed = pack_values(spec_text(bits, 64), values);
    const std::vector<float> back = packed.unpack();
    const auto codes = nonzero_quant_ref::codes_of(packed.plain(), values.size(), bits, 64);
    double worst = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (values[i] == 0) continue;
      const double off = std::abs(double{values[i]} - back[i]) / codes[i].scale;
      const bool near = std::abs(values[i]) <= 0.5001 * codes[i].scale;
      ASSERT_LE(off, near ? 1 : 0.5 + 1e-4) << bits << ' ' << i;
      worst = std::max(worst, off);
    }
    EXPECT_GE(worst, 0.6) << bits;
  }
}

// Zeros as +0, the rest with its sign, whatever the magnitudes that share a group.
TEST(NonzeroQuant, OnlyZeroComesBackAsZeroAndSignsStay) {
  constexpr std::array kFloats = {DType::F32, DType::F16, DType::BF16, DType::F64};
  for (const DType dtype : kFloats) {
    for (int bits = 1; bits <= 8; ++bits) {
      for (const std::size_t group : {8, 64}) {
        for (const char* more : {"", ", round=stochastic"}) {
          const CodecSpec spec = CodecSpec::parse(spec_text(bits, group, more));
          const bool half = dtype == DType::F16;
          for (const auto& [least, most] :
               {std::pair(half ? -24 : -149, half ? 15 : 126), std::pair(-24, -18),
                std::pair(half ? -24 : -149, half ? -20 : -145), std::pair(-2, 2)}) {
            const std::vector<float> values =
                wild(3000, least, most, static_cast<unsigned>(bits * 64 + least));
            Tensor in(dtype, {3000});
            in.fill(std::vector<double>(values.begin(), values.end()));
            std::vector<std::byte> packed(layout(spec, dtype, in.shape()).max_bytes);
            packed.resize(pack(spec, in.view(), packed, {.seed = 5}));
            const Tensor out(dtype, in.shape());
            unpack(spec, packed, out.view());
            for (std::int64_t i = 0; i < 3000; ++i) {
              if (in.get(i) == 0) {
                ASSERT_EQ(out.bits(i), 0u) << i;
              } else {
                ASSERT_NE(out.get(i), 0) << to_string(dtype) << ' ' << spec.print() << ' ' << i;
                ASSERT_EQ(out.get(i) < 0, in.get(i) < 0)
                    << to_string(dtype) << ' ' << spec.print() << ' ' << in.get(i) << " became "
                    << out.get(i);
              }
            }
          }
        }
      }
    }
  }
}

TEST(NonzeroQuant, MinusZeroIsZero) {
  const std::vector<float> back = pack_values("nonzero_quant", {-0.0f, 1.0f, 0.0f, -1.0f}).unpack();
  EXPECT_EQ(std::bit_cast<std::uint32_t>(back[0]), 0u);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(back[2]), 0u);
  EXPECT_NEAR(back[1], 1.0f, 0.01);
  EXPECT_EQ(back[3], -1.0f);
}

// The last code of these groups is exactly 0: of the positive side.
TEST(NonzeroQuant, AValueThatItsGroupCannotTellFromZeroBecomesTheSmallestNumber) {
  const std::vector<float> values = {-3.0f, 1e-30f, -3.0f, -1e-30f};
  const Packed packed = pack_values(spec_text(2, 8), values);
  const std::vector<float> back = packed.unpack();
  EXPECT_EQ(back[0], -3.0f);
  EXPECT_EQ(back[1], 0x1p-149f);
  EXPECT_EQ(back[3], -1.0f);
}

TEST(NonzeroQuant, BytesOfWholeNumbersStayAboveZero) {
  for (const DType dtype : {DType::U8, DType::U16}) {
    const CodecSpec spec = CodecSpec::parse("nonzero_quant(bits=1)");
    Tensor in(dtype, {100});
    std::vector<double> values(100);
    for (std::size_t i = 0; i < 100; ++i) values[i] = i % 3 == 0 ? 0 : i % 3 == 1 ? 1 : 255;
    in.fill(values);
    std::vector<std::byte> packed(layout(spec, dtype, in.shape()).max_bytes);
    packed.resize(pack(spec, in.view(), packed));
    const Tensor out(dtype, in.shape());
    unpack(spec, packed, out.view());
    for (std::int64_t i = 0; i < 100; ++i) ASSERT_EQ(out.get(i), in.get(i)) << i;
  }
}

TEST(NonzeroQuant, DoublesBelowTheRangeOfF32AreNotZero) {
  const CodecSpec spec = CodecSpec::parse("nonzero_quant(bits=4)");
  const std::vector<double> values = {1e-300, -1e-300, 0.0, -0.0, 5e-324, 1e300, 1.0};
  for (std::size_t group = 0; group < values.size(); ++group) {
    const double value = values[group];
    double back = 7;
    std::vector<std::byte> packed(layout(spec, DType::F64, {1}).max_bytes);
    packed.resize(pack(spec, ConstTensorView(&value, DType::F64, {1}), packed));
    unpack(spec, packed, TensorView(&back, DType::F64, {1}));
    EXPECT_EQ(back == 0, value == 0) << value;
    EXPECT_EQ(std::signbit(back), value < 0) << value;
    EXPECT_FALSE(std::isnan(back) && value != 1e300) << value;
  }
}

TEST(NonzeroQuant, StochasticRoundingOfPositiveGroupsIsUnbiasedAndFollowsItsSeed) {
  const std::vector<float> values = sparse(256, 0.5, 0.2f, 1.0f);
  const std::string text = spec_text(2, 64, ", round=stochastic");
  std::vector<double> sum(values.size());
  constexpr int kTrials = 4000;
  double scale = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    const Packed packed = pack_values(text, values, static_cast<std::uint64_t>(trial));
    for (const Code& code : nonzero_quant_ref::codes_of(packed.plain(), 256, 2, 64)) {
      scale = std::max(scale, code.scale);
    }
    const std::vector<float> back = packed.unpack();
    for (std::size_t i = 0; i < values.size(); ++i) sum[i] += back[i];
  }
  double bias = 0, worst = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double off = sum[i] / kTrials - values[i];
    bias += off / static_cast<double>(values.size());
    worst = std::max(worst, std::abs(off));
  }
  // Each mean has a deviation of at most scale / 2 / sqrt(trials), and a bias of scale / 512.
  EXPECT_LE(worst, scale * (5 * 0.5 / std::sqrt(kTrials) + 1.0 / 512));
  EXPECT_LE(std::abs(bias), scale / 512);
  EXPECT_EQ(pack_values(text, values, 9).bytes, pack_values(text, values, 9).bytes);
  EXPECT_NE(pack_values(text, values, 9).bytes, pack_values(text, values, 10).bytes);
}

TEST(NonzeroQuant, TilesAndGroupsRoundByOtherRandomBytes) {
  std::vector<float> values(4096);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = i % 64 == 0 ? 1.0f : i % 64 == 1 ? 2.0f : 1.4f;
  const std::vector<float> back =
      pack_values(spec_text(1, 64, ", round=stochastic"), values, 2).unpack();
  const auto part = [&](std::size_t at) {
    return std::vector<float>(back.begin() + static_cast<std::ptrdiff_t>(at),
                              back.begin() + static_cast<std::ptrdiff_t>(at + 64));
  };
  EXPECT_NE(part(0), part(64));
  EXPECT_NE(part(0), part(2048));
}

TEST(NonzeroQuant, NotFiniteValuesMakeTheirGroupNanAndLeaveZerosAlone) {
  for (const float bad : {kNan, kInf, -kInf}) {
    std::vector<float> values = sparse(600, 0.5, 0.5f, 1.0f);
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (values[i] != 0) places.push_back(i);
    }
    values[places[70]] = bad;
    const std::vector<float> back = pack_values(spec_text(4, 64), values).unpack();
    for (std::size_t k = 0; k < places.size(); ++k) {
      const float value = back[places[k]];
      if (k >= 64 && k < 128) {
        ASSERT_EQ(std::bit_cast<std::uint32_t>(value), kNanBits) << k;
      } else {
        ASSERT_NEAR(value, values[places[k]], 0.03) << k;
      }
    }
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (values[i] == 0) {
        ASSERT_EQ(std::bit_cast<std::uint32_t>(back[i]), 0u) << i;
      }
    }
  }
  // A span that f32 does not have.
  for (const float value : pack_values("nonzero_quant", {kMax, -kMax}).unpack()) {
    EXPECT_TRUE(std::isnan(value));
  }
}

TEST(NonzeroQuant, TheSizeFollowsFromHowManyAreNotZero) {
  const auto bytes = [](std::size_t count, double density) {
    return pack_values("nonzero_quant(bits=3)", sparse(count, density, 1.0f, 2.0f)).bytes.size();
  };
  EXPECT_EQ(bytes(2048, 0), 4u + 256);
  EXPECT_EQ(bytes(2048, 1), 4u + 256 + 32 * 4 + 2048 * 3 / 8);
  EXPECT_EQ(bytes(1, 1), 4u + 4 + 4 + 4);
  EXPECT_EQ(pack_values("nonzero_quant", {}).bytes.size(), 0u);
  // 1 + density * (bits + 32 / group) bits for each value, and a percent.
  const double wanted = (1 + 0.5 * (3 + 0.5)) / 8 * 1e6;
  EXPECT_NEAR(static_cast<double>(bytes(1000000, 0.5)), wanted * 1.01, wanted * 0.01);
  const Layout most = layout(CodecSpec::parse("nonzero_quant(bits=3)"), DType::F32, {4097});
  EXPECT_FALSE(most.fixed);
  EXPECT_EQ(most.max_bytes, bytes(4097, 1));
}

TEST(NonzeroQuant, BadSpecsAndSizesSayWhatToDo) {
  const auto message = [](auto&& call) -> std::string {
    try {
      call();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::InvalidArgument);
      return error.what();
    }
    return "";
  };
  EXPECT_NE(
      message([] { CodecSpec::parse("nonzero_quant(group=12)"); }).find("multiple of 8, got 12"),
      std::string::npos);
  EXPECT_NE(message([] { CodecSpec::parse("nonzero_quant(group=4096)"); }).find("2048"),
            std::string::npos);
  EXPECT_NE(message([] {
              layout(CodecSpec::parse("nonzero_quant(bits=8)"), DType::F32,
                     {std::int64_t{1} << 40});
            }).find("pack the tensor in parts"),
            std::string::npos);
  EXPECT_EQ(message([] {
              layout(CodecSpec::parse("nonzero_quant(bits=8)"), DType::BF16,
                     {std::int64_t{1} << 33});
            }),
            "");
}

TEST(NonzeroQuant, BytesThatContradictThemselvesAreCorrupt) {
  const Packed packed = pack_values("nonzero_quant", sparse(5000, 0.5, 0.1f, 1.0f));
  const auto code = [&](const std::vector<std::byte>& bytes) {
    Packed other = packed;
    other.bytes = bytes;
    return ref::code_of([&] { other.unpack(); });
  };
  ASSERT_EQ(code(packed.bytes), Errc::Internal) << "which says that nothing was thrown";
  const std::size_t front = 12 + (5000 + 31) / 32 * 4;
  for (const std::size_t size : {std::size_t{0}, std::size_t{11}, front - 1, front,
                                 packed.bytes.size() - 1, packed.bytes.size() - 4}) {
    std::vector<std::byte> bytes = packed.bytes;
    bytes.resize(size);
    EXPECT_EQ(code(bytes), Errc::CorruptData) << size;
  }
  std::vector<std::byte> longer = packed.bytes;
  longer.resize(longer.size() + 4);
  EXPECT_EQ(code(longer), Errc::CorruptData);
  for (std::size_t at = 0; at < 12; ++at) {  // an end is another
    std::vector<std::byte> bytes = packed.bytes;
    bytes[at] ^= std::byte{1};
    EXPECT_EQ(code(bytes), Errc::CorruptData) << at;
  }
  std::vector<std::byte> bytes = packed.bytes;  // a tile with 256 zeros more
  std::fill_n(bytes.begin() + 12, 64, std::byte{0});
  EXPECT_EQ(code(bytes), Errc::CorruptData);
  bytes = packed.bytes;  // bits after the last value mean nothing
  bytes[12 + 5000 / 8] |= std::byte{0xff};
  EXPECT_EQ(code(bytes), Errc::Internal);
}

}  // namespace
}  // namespace tuckfold
