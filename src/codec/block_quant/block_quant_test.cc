// block_quant against its definition; what every codec must keep is in contract_test.cc.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>

#include "base/half.h"
#include "base/target.h"
#include "base/tensor_fixture.h"
#include "codec/block_quant/block_quant_block.h"
#include "codec/block_quant/block_quant_ref.h"
#include "codec/contract_fixture.h"
#include "tuckfold/codec.h"
#include "tuckfold/error.h"
#include "tuckfold/version.h"

namespace tuckfold {
namespace {

using ref::random_values;
using ref::Tensor;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kMax = std::numeric_limits<float>::max();

std::string spec_text(int bits, int group, const char* more = "") {
  return "block_quant(bits=" + std::to_string(bits) + ", group=" + std::to_string(group) + more +
         ")";
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
  const unsigned char* codes() const {
    return reinterpret_cast<const unsigned char*>(bytes.data());
  }
  block_quant::Header header(std::int64_t group, std::int64_t groups) const {
    block_quant::Header header;
    std::memcpy(&header, bytes.data() + bytes.size() - 4 * static_cast<std::size_t>(groups - group),
                4);
    return header;
  }
};

Packed pack_values(const std::string& text, const std::vector<float>& values,
                   std::uint64_t seed = 0) {
  Packed packed{CodecSpec::parse(text), static_cast<std::int64_t>(values.size()), {}};
  packed.bytes.resize(layout(packed.spec, DType::F32, {packed.count}).max_bytes);
  pack(packed.spec, ConstTensorView(values.data(), DType::F32, {packed.count}), packed.bytes,
       {.seed = seed});
  return packed;
}

TEST(BlockQuant, CodesAndHeadersAreThoseOfTheDefinition) {
  for (int bits = 1; bits <= 8; ++bits) {
    const std::vector<float> values = random_values(96, -3.0f, 5.0f, static_cast<unsigned>(bits));
    const Packed packed = pack_values(spec_text(bits, 32), values);
    for (std::int64_t g = 0; g < 3; ++g) {
      const std::vector<float> part(values.begin() + g * 32, values.begin() + (g + 1) * 32);
      const block_quant_ref::Group expected = block_quant_ref::quantize(part, bits);
      const block_quant::Header header = packed.header(g, 3);
      EXPECT_EQ(to_float(BF16{header.scale}), expected.scale);
      EXPECT_EQ(to_float(BF16{header.minimum}), expected.minimum);
      int different = 0;  // where double and float round to different sides of a tie
      for (std::int64_t i = 0; i < 32; ++i) {
        const std::int64_t code = block_quant_ref::code_at(packed.codes() + g * 4 * bits, i, bits);
        const std::int64_t wanted = expected.codes[static_cast<std::size_t>(i)];
        EXPECT_LE(std::abs(code - wanted), 1);
        different += code != wanted;
      }
      EXPECT_LE(different, 1) << "bits " << bits;
    }
  }
}

TEST(BlockQuant, ErrorIsAtMostHalfAScaleAndReachesIt) {
  for (int bits = 1; bits <= 8; ++bits) {
    for (const char* more : {"", ", zero=exact"}) {
      const bool exact = *more != '\0';
      if (exact && bits == 1) continue;  // one step cannot reach both sides of zero
      const std::vector<float> values = random_values(4096, -1.0f, 2.0f);
      const Packed packed = pack_values(spec_text(bits, 256, more), values);
      const std::vector<float> back = packed.unpack();
      double worst = 0;
      for (std::size_t i = 0; i < values.size(); ++i) {
        const block_quant::Group group =
            block_quant::group_of(packed.header(static_cast<std::int64_t>(i) / 256, 16));
        worst = std::max(worst, std::abs(double{values[i]} - back[i]) / group.scale);
      }
      EXPECT_LE(worst, 0.5 + 1e-4) << spec_text(bits, 256, more);
      EXPECT_GE(worst, 0.45) << spec_text(bits, 256, more);
    }
  }
}

TEST(BlockQuant, StochasticRoundingIsUnbiasedAndFollowsItsSeed) {
  const std::vector<float> values = random_values(256, -1.0f, 1.0f);
  const std::string text = spec_text(2, 64, ", round=stochastic");
  std::vector<double> sum(values.size());
  constexpr int kTrials = 4000;
  double scale = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    const Packed packed = pack_values(text, values, static_cast<std::uint64_t>(trial));
    scale = block_quant::group_of(packed.header(0, 4)).scale;
    const std::vector<float> back = packed.unpack();
    for (std::size_t i = 0; i < values.size(); ++i) sum[i] += back[i];
  }
  // Each mean has a deviation of at most scale / 2 / sqrt(trials); their mean 16 times less.
  double bias = 0, worst = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double off = sum[i] / kTrials - values[i];
    bias += off / static_cast<double>(values.size());
    worst = std::max(worst, std::abs(off));
  }
  const double deviation = scale / 2 / std::sqrt(double{kTrials});
  EXPECT_LT(worst, 5 * deviation);
  EXPECT_LT(std::abs(bias), 5 * deviation / 16);
  EXPECT_EQ(pack_values(text, values, 7).bytes, pack_values(text, values, 7).bytes);
  EXPECT_NE(pack_values(text, values, 7).bytes, pack_values(text, values, 8).bytes);
}

// A group's first and last values are 0 and 1, and the others one value: how often it is rounded
// up, over seeds and places, is its fraction.
TEST(BlockQuant, StochasticRoundingGoesUpAsOftenAsTheFractionSays) {
  constexpr int kBits = 4, kLevels = (1 << kBits) - 1, kSeeds = 40;
  constexpr std::int64_t kGroup = 256, kGroups = 40;
  for (const double fraction : {0.0, 1.0 / 256, 0.1, 0.25, 1.0 / 3, 0.5, 0.77, 255.0 / 256}) {
    const double value = (6 + fraction) / kLevels;
    std::vector<float> values(kGroup * kGroups, static_cast<float>(value));
    for (std::int64_t g = 0; g < kGroups; ++g) {
      values[static_cast<std::size_t>(g * kGroup)] = 0.0f;
      values[static_cast<std::size_t>(g * kGroup + kGroup - 1)] = 1.0f;
    }
    std::int64_t up = 0, all = 0;
    double wanted = 0;
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
      const Packed packed =
          pack_values(spec_text(kBits, kGroup, ", round=stochastic"), values, seed);
      for (std::int64_t g = 0; g < kGroups; ++g) {
        const double scaled = value / to_float(BF16{packed.header(g, kGroups).scale});
        for (std::int64_t i = 1; i + 1 < kGroup; ++i) {
          const auto code = static_cast<double>(
              block_quant_ref::code_at(packed.codes() + g * kGroup * kBits / 8, i, kBits));
          ASSERT_TRUE(code == std::floor(scaled) || code == std::ceil(scaled)) << scaled;
          up += code > std::floor(scaled);
          wanted += scaled - std::floor(scaled);
          ++all;
        }
      }
    }
    // Fractions have eight bits, and chance has its deviation.
    const double count = static_cast<double>(all), p = wanted / count;
    EXPECT_NEAR(static_cast<double>(up) / count, p, 1.0 / 512 + 4 * std::sqrt(p * (1 - p) / count));
  }
}

TEST(BlockQuant, RandomBytesAreEvenAndIndependentOfTheirNeighbours) {
  constexpr std::uint32_t kGroups = 4096, kQuads = 64;
  std::vector<std::uint8_t> bytes;
  for (std::uint32_t g = 0; g < kGroups; ++g) {
    const std::uint32_t key = block_quant::group_key(1, g);
    for (std::uint32_t q = 0; q < kQuads; ++q) {
      const std::uint32_t word = block_quant::random_bytes(key, q);
      for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<std::uint8_t>(word >> 8 * i));
    }
  }
  // Pairs of a byte and one some places on, counted in 256 * 256 bins: chi-square over its degrees
  // of freedom is 1 with a deviation of sqrt(2 / 65535).
  for (const std::size_t apart : {1u, 2u, 3u, 4u, 8u, 64u, 256u, 257u, 1024u}) {
    std::vector<int> bins(1 << 16);
    for (std::size_t i = 0; i + apart < bytes.size(); ++i) {
      ++bins[std::size_t{bytes[i]} << 8 | bytes[i + apart]];
    }
    const double expected = static_cast<double>(bytes.size() - apart) / 65536;
    double chi = 0;
    for (const int count : bins) chi += (count - expected) * (count - expected) / expected;
    EXPECT_NEAR(chi / 65535, 1.0, 5 * std::sqrt(2.0 / 65535)) << apart;
  }
}

// Kernels do not compare codes with the last level where this holds.
TEST(BlockQuant, NoSumPassesTheLastLevelButOfOneBitAboutZero) {
  std::mt19937 random(11);
  for (int trial = 0; trial < 400000; ++trial) {
    const auto any = [&] {
      const auto exponent =
          static_cast<std::uint32_t>(random() % 3 == 0 ? 1 + random() % 253 : 120 + random() % 16);
      return float_of((static_cast<std::uint32_t>(random()) & 0x807fffffu) | exponent << 23);
    };
    float a = any(), b = any();
    if (random() % 4 == 0) b = a * 1.0001f;
    if (random() % 8 == 0) a = 0.0f;
    const float low = std::min(a, b), high = std::max(a, b);
    const int bits = 1 + static_cast<int>(random() % 8);
    const bool exact = random() % 2 == 0;
    const block_quant::Header header = block_quant::header_of(low, high, bits, exact);
    const block_quant::Group group = block_quant::group_of(header);
    if (!(group.scale < kInf)) continue;
    if (bits == 1 && exact && low < 0 && high > 0) continue;
    const block_quant::Scaling s = block_quant::scaling_of(group);
    const float levels = static_cast<float>((1 << bits) - 1);
    for (const float value : {low, high, low + (high - low) * 0.999999f}) {
      if (!(value >= low && value <= high)) continue;
      const float scaled = (value - s.subtract) * s.factor;
      const float nearest = scaled + (block_quant::kToInteger + s.zero);
      const float fixed = scaled + (block_quant::kToFixed + s.zero);
      ASSERT_GE(nearest, block_quant::kToInteger) << low << ' ' << high << ' ' << bits;
      ASSERT_LE(nearest, block_quant::kToInteger + levels) << low << ' ' << high << ' ' << bits;
      ASSERT_GE(fixed, block_quant::kToFixed) << low << ' ' << high << ' ' << bits;
      ASSERT_LE(fixed, block_quant::kToFixed + levels) << low << ' ' << high << ' ' << bits;
    }
  }
}

TEST(BlockQuant, StochasticRoundingKeepsExactZerosAndWholeCodes) {
  std::vector<float> values = random_values(512, -1.0f, 1.0f);
  for (std::size_t i = 0; i < values.size(); i += 3) values[i] = i % 2 == 0 ? 0.0f : -0.0f;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const std::vector<float> back =
        pack_values(spec_text(8, 64, ", round=stochastic, zero=exact"), values, seed).unpack();
    for (std::size_t i = 0; i < values.size(); i += 3) ASSERT_EQ(back[i], 0.0f);
  }
}

TEST(BlockQuant, ExactZeroKeepsZerosOfEveryGroup) {
  for (const auto& [low, high] :
       {std::pair{0.0f, 3.0f}, {-2.0f, 0.0f}, {-0.01f, 5.0f}, {-1.0f, 1e-3f}}) {
    for (int bits = 1; bits <= 8; ++bits) {
      std::vector<float> values = random_values(256, low, high);
      for (std::size_t i = 0; i < values.size(); i += 5) values[i] = 0.0f;
      const std::vector<float> back =
          pack_values(spec_text(bits, 64, ", zero=exact"), values).unpack();
      for (std::size_t i = 0; i < values.size(); i += 5) ASSERT_EQ(back[i], 0.0f);
    }
  }
}

TEST(BlockQuant, AllEqualValuesComeBackWithinBf16) {
  for (const float value : {0.0f, 1.0f, -1.0f, 3.14159f, 1e-20f, -65504.0f}) {
    const std::vector<float> back =
        pack_values("block_quant", std::vector<float>(300, value)).unpack();
    for (const float got : back) EXPECT_NEAR(got, value, std::abs(value) * 0x1p-15f);
  }
}

TEST(BlockQuant, AGroupThatIsNotFiniteComesBackNanAndLeavesOthersAlone) {
  for (const float bad : {std::nanf(""), -std::nanf(""), kInf, -kInf}) {
    for (const std::size_t at : {std::size_t{0}, std::size_t{37}, std::size_t{63}}) {
      std::vector<float> values = random_values(192, 0.0f, 1.0f);
      values[64 + at] = bad;
      const std::vector<float> back = pack_values(spec_text(8, 64), values).unpack();
      for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(std::isnan(back[i]), i / 64 == 1);
    }
  }
}

TEST(BlockQuant, ASpanThatF32CannotHoldComesBackNan) {
  std::vector<float> values(64, 0.0f);
  values[1] = kMax;
  values[2] = -kMax;
  for (const float got : pack_values(spec_text(8, 64), values).unpack())
    EXPECT_TRUE(std::isnan(got));
  values[2] = 0.0f;
  const std::vector<float> back = pack_values(spec_text(8, 64), values).unpack();
  EXPECT_NEAR(back[1] / kMax, 1.0f, 0.01f);
}

// Where m + code * s passes f32's largest number, on the way or in the end, the value is still
// within half a scale.
TEST(BlockQuant, TheLargestNumbersComeBackFinite) {
  int groups = 0;
  for (int bits = 1; bits <= 8; ++bits) {
    for (const char* zero : {"", ", zero=exact"}) {
      for (const float low : {0.0f, -1.0f, 0.5f * kMax, 0.999f * kMax, -0.01f * kMax}) {
        for (const float high : {kMax, 0.9999f * kMax, 0.997f * kMax, 0.99f * kMax}) {
          for (const float sign : {1.0f, -1.0f}) {
            std::vector<float> values = random_values(67, 0.0f, 1.0f);
            for (float& value : values) value = sign * (low + value * (high - low));
            values[5] = sign * low;
            values[6] = sign * high;
            const Packed packed = pack_values(spec_text(bits, 72, zero), values);
            const block_quant::Group group = block_quant::group_of(packed.header(0, 1));
            if (std::isnan(group.scale)) continue;  // a span or a minimum that is no bf16
            ++groups;
            const std::vector<float> back = packed.unpack();
            for (std::size_t i = 0; i < values.size(); ++i) {
              const double one_bit_about_zero = group.about_zero && bits == 1 ? 1.0 : 0.5;
              ASSERT_LE(std::abs(double{back[i]} - values[i]),
                        one_bit_about_zero * group.scale + 0x1p105)
                  << bits << zero << ' ' << sign * low << " … " << sign * high;
            }
          }
        }
      }
    }
  }
  EXPECT_GT(groups, 300);
}

TEST(BlockQuant, HalvesHaveTheBitsOfOrdinaryValues) {
  std::mt19937 random(8);
  int infinite = 0;
  for (int trial = 0; trial < 100000; ++trial) {
    const block_quant::Header header{static_cast<std::uint16_t>(random() % 0x10000),
                                     static_cast<std::uint16_t>(random() % 0x10000)};
    const block_quant::Group group = block_quant::group_of(header);
    const int code = static_cast<int>(random() % 256);
    const float plain = block_quant::ordinary_value(code, group);
    const float value = block_quant::value_of(code, group);
    if (std::isfinite(group.scale) && std::isfinite(group.minimum)) {
      ASSERT_TRUE(std::isfinite(value)) << header.scale << ' ' << header.minimum;
      if (std::isfinite(plain)) {
        ASSERT_EQ(bits_of(value), bits_of(plain));
      } else {
        ASSERT_TRUE(block_quant::is_extreme(group));
        ++infinite;
      }
    } else {
      ASSERT_EQ(bits_of(value), kNanBits);
    }
  }
  EXPECT_GT(infinite, 100);
}

// Halves with tame values, and some groups with zeros of both signs, subnormals, the largest
// numbers, infinities and NaN.
std::vector<std::uint16_t> halves_of(DType dtype, std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<std::uint16_t> halves(count);
  for (std::size_t i = 0; i < count; ++i) {
    const float value = normal(random);
    const std::uint16_t tame = dtype == DType::F16 ? to_f16(value).bits : to_bf16(value).bits;
    const bool wild = i / 61 % 3 == 2 && random() % 16 == 0;
    halves[i] = wild ? static_cast<std::uint16_t>(random()) : tame;
    if (random() % 32 == 0) halves[i] &= 0x8003;  // zeros and the smallest numbers
  }
  return halves;
}

// The kernels compute with halves in their own way; their values in f32 give the same bytes, and
// what comes back is what f32 comes back as, rounded. At every target, at an address that is no
// multiple of a vector's.
TEST(BlockQuant, HalvesArePackedAsTheirValuesInF32AreOnEveryTarget) {
  const std::string before = cpu_target();
  for (const DType dtype : {DType::F16, DType::BF16}) {
    for (const std::int64_t count : {1, 8, 31, 33, 63, 1000, 1024, 1029, 4321}) {
      const std::vector<std::uint16_t> halves =
          halves_of(dtype, static_cast<std::size_t>(count) + 1, static_cast<unsigned>(count));
      std::vector<float> floats(static_cast<std::size_t>(count));
      for (std::size_t i = 0; i < floats.size(); ++i) {
        floats[i] =
            dtype == DType::F16 ? to_float(F16{halves[i + 1]}) : to_float(BF16{halves[i + 1]});
      }
      for (int bits = 1; bits <= 8; ++bits) {
        for (const int group : {8, 24, 64, 256, 1032}) {
          for (const char* more : {"", ", round=stochastic", ", zero=exact"}) {
            const std::string text = spec_text(bits, group, more);
            if (!ref::suits(CodecSpec::parse(text), dtype, {count})) continue;
            use_cpu_target(cpu_targets().back());
            const Packed packed = pack_values(text, floats, 9);
            const std::vector<float> back = packed.unpack();
            std::vector<std::uint16_t> rounded(back.size());
            for (std::size_t i = 0; i < back.size(); ++i) {
              rounded[i] = dtype == DType::F16 ? to_f16_saturated(back[i]).bits
                                               : to_bf16_saturated(back[i]).bits;
            }
            for (const std::string& target : cpu_targets()) {
              use_cpu_target(target);
              SCOPED_TRACE(target + ' ' + packed.spec.print() + ' ' + std::to_string(count));
              std::vector<std::byte> bytes(packed.bytes.size());
              pack(packed.spec, ConstTensorView(halves.data() + 1, dtype, {count}), bytes,
                   {.seed = 9});
              ASSERT_EQ(bytes, packed.bytes);
              std::vector<std::uint16_t> out(static_cast<std::size_t>(count) + 2, 0xabcd);
              unpack(packed.spec, bytes, TensorView(out.data() + 1, dtype, {count}));
              ASSERT_EQ(out.front(), 0xabcd);
              ASSERT_EQ(out.back(), 0xabcd);
              ASSERT_TRUE(std::equal(rounded.begin(), rounded.end(), out.begin() + 1));
            }
          }
        }
      }
    }
  }
  use_cpu_target(before);
}

// Headers as damaged bytes may have them: scales and minima beyond the dtype's numbers as well.
TEST(BlockQuant, HalvesOfAnyHeaderAreThoseOfF32RoundedOnEveryTarget) {
  const std::string before = cpu_target();
  constexpr std::int64_t kGroup = 64, kGroups = 200, kCount = kGroup * kGroups - 5;
  for (const int bits : {1, 3, 4, 5, 8}) {
    std::mt19937 random(static_cast<unsigned>(bits));
    Packed packed{CodecSpec::parse(spec_text(bits, kGroup)), kCount, {}};
    packed.bytes.resize(layout(packed.spec, DType::F32, {kCount}).max_bytes);
    for (std::byte& byte : packed.bytes) byte = static_cast<std::byte>(random());
    use_cpu_target(cpu_targets().back());
    const std::vector<float> back = packed.unpack();
    for (const std::string& target : cpu_targets()) {
      use_cpu_target(target);
      for (const DType dtype : {DType::F16, DType::BF16}) {
        std::vector<std::uint16_t> out(kCount);
        unpack(packed.spec, packed.bytes, TensorView(out.data(), dtype, {kCount}));
        for (std::size_t i = 0; i < out.size(); ++i) {
          ASSERT_EQ(out[i], dtype == DType::F16 ? to_f16_saturated(back[i]).bits
                                                : to_bf16_saturated(back[i]).bits)
              << target << ' ' << bits << ' ' << i << ' ' << back[i];
        }
      }
    }
  }
  use_cpu_target(before);
}

std::vector<double> there_and_back(const std::string& text, DType dtype,
                                   const std::vector<double>& values) {
  Tensor in(dtype, {static_cast<std::int64_t>(values.size())});
  in.fill(values);
  const CodecSpec spec = CodecSpec::parse(text);
  std::vector<std::byte> packed(layout(spec, dtype, in.shape()).max_bytes);
  pack(spec, in.view(), packed);
  const Tensor out(dtype, in.shape());
  unpack(spec, packed, out.view());
  return out.values();
}

TEST(BlockQuant, NarrowDtypesSaturate) {
  std::vector<double> values(64, 1.0);
  values[0] = -65400;
  values[1] = 100;
  // The minimum, rounded down to bf16, is -65536.
  EXPECT_EQ(there_and_back(spec_text(8, 64), DType::F16, values)[0], -65504);
  values[0] = 0;
  values[1] = kMaxBF16;
  EXPECT_EQ(there_and_back(spec_text(8, 64), DType::BF16, values)[1], kMaxBF16);
}

TEST(BlockQuant, HugeF64CountsAsTheLargestF32) {
  std::vector<double> values(64, 1.0);
  values[3] = 1e300;
  const std::vector<double> back = there_and_back(spec_text(8, 64), DType::F64, values);
  EXPECT_NEAR(back[3] / kMax, 1.0, 0.001);
  for (std::size_t i = 4; i < 64; ++i) EXPECT_LT(std::abs(back[i]), 0.01 * kMax);
}

TEST(BlockQuant, SubnormalsComeBackWithinTheSmallestScale) {
  std::vector<float> values(64, 0.0f);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) * 1e-42f;
  for (const float got : pack_values(spec_text(8, 64), values).unpack()) {
    EXPECT_LE(std::abs(got), block_quant::kMinScale);
  }
}

TEST(BlockQuant, ALastGroupThatIsShortTakesOnlyItsBytes) {
  const CodecSpec spec = CodecSpec::parse(spec_text(3, 64));
  EXPECT_EQ(layout(spec, DType::F32, {64 + 11}).max_bytes, 64u * 3 / 8 + (11 * 3 + 7) / 8 + 2 * 4);
  const std::vector<float> values = random_values(64 + 11, -1.0f, 1.0f);
  const std::vector<float> back = pack_values(spec_text(3, 64), values).unpack();
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(back[i], values[i], 0.15f);
}

TEST(BlockQuant, GroupsLongerThanABatchAreOneGroup) {
  const std::vector<float> values = random_values(65536 + 5000, -1.0f, 1.0f);
  const Packed packed = pack_values(spec_text(8, 65536), values);
  EXPECT_EQ(packed.bytes.size(), values.size() + 8);
  const std::vector<float> back = packed.unpack();
  for (std::size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(back[i], values[i], 0.0045f);
}

TEST(BlockQuant, AGroupThatIsNoMultipleOf8IsRefusedWithACaret) {
  try {
    CodecSpec::parse("block_quant(bits=4, group=100)");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::InvalidArgument);
    EXPECT_STREQ(error.what(),
                 "[codec] group must be a multiple of 8, got 100\n"
                 "  block_quant(bits=4, group=100)\n"
                 "                            ^^^");
  }
}

}  // namespace
}  // namespace tuckfold
