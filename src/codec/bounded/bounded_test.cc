// bounded against its promise; its bytes are in bounded_format_test.cc, and what every codec must keep is in
// contract_test.cc.
#include "codec/bounded/bounded.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>

#include "base/dtype.h"
#include "base/target.h"
#include "base/tensor_fixture.h"
#include "codec/bounded/bounded_fixture.h"
#include "codec/bounded/bounded_ref.h"
#include "codec/contract_fixture.h"
#include "codec/registry.h"
#include "tuckfold/codec.h"
#include "tuckfold/error.h"
#include "tuckfold/version.h"

namespace tuckfold {
namespace {

using ref::kCodes;
using ref::mixture;
using ref::pack_tensor;
using ref::Packed;
using ref::spec_text;
using ref::Tensor;

// Whether |a - b| <= bound in exact arithmetic: the difference's rounding error settles ties.
bool within(double a, double b, double bound) {
  const double off = std::abs(a - b);
  if (off != bound) return off < bound;
  const double high = std::max(a, b), low = std::min(a, b);
  const double part = off - high, given = off - part;
  return (high - given) + (-low - part) <= 0;
}

// Checks the whole promise; returns the packed bytes.
std::size_t keeps_promise(const std::string& text, const Tensor& in, double bound, bool exact) {
  const Packed packed = pack_tensor(text, in);
  const Tensor out = packed.unpack(in);
  const std::vector<std::byte> before = in.bytes(), after = out.bytes();
  const std::size_t width = size_bytes(in.dtype());
  for (std::int64_t i = 0; i < in.elems(); ++i) {
    const double value = in.get(i), back = out.get(i);
    const std::size_t at = static_cast<std::size_t>(i) * width;
    if (!std::isfinite(value)) {
      EXPECT_EQ(std::memcmp(&before[at], &after[at], width), 0) << text << " at " << i;
    } else {
      EXPECT_TRUE(within(value, back, bound))
          << text << " at " << i << ": " << value << ' ' << back;
      if (exact) {
        EXPECT_EQ(value == 0, back == 0) << text << " at " << i << ": " << value << ' ' << back;
      }
    }
    if (::testing::Test::HasFailure()) break;
  }
  return packed.bytes.size();
}

// Numbers that make trouble: subnormals, powers of two, their neighbours, the largest ones, middles
// between steps of the bound; some not finite.
std::vector<double> troublesome(DType dtype, std::int64_t count, double bound, unsigned seed,
                                bool finite) {
  std::mt19937_64 random(seed);
  std::vector<double> values(static_cast<std::size_t>(count));
  const int most = dtype == DType::F64 ? 1023 : dtype == DType::F16 ? 15 : 127;
  const auto style = random() % 4;
  for (double& value : values) {
    const double sign = random() % 2 == 0 ? 1 : -1;
    const double uniform = static_cast<double>(random() >> 11) * 0x1p-53;
    switch (style == 3 ? random() % 3 : style) {
      case 0:  // any magnitude
        value = sign * std::ldexp(1 + uniform, static_cast<int>(random() % (2 * most)) - most);
        break;
      case 1: {  // half steps of the bound and their neighbours
        value = sign * bound * static_cast<double>(random() % 4096);
        const auto side = random() % 3;
        const auto narrow = static_cast<float>(value);
        if (side == 1) value = dtype == DType::F64 ? std::nextafter(value, 0) : narrow;
        if (side == 2) value = std::nextafterf(narrow, std::numeric_limits<float>::infinity());
        break;
      }
      default: value = sign * bound * 1e4 * uniform; break;
    }
    if (dtype == DType::F16) value = std::clamp(value, -65504.0, 65504.0);
    if (dtype != DType::F64) {
      value = std::clamp(value, -double{std::numeric_limits<float>::max()},
                         double{std::numeric_limits<float>::max()});
    }
    if (random() % 64 == 0) value = 0;
    if (random() % 256 == 0) value = std::ldexp(sign, dtype == DType::F64 ? -1074 : -149);
    if (!finite && random() % 1024 == 0) value = sign * std::numeric_limits<double>::infinity();
    if (!finite && random() % 1024 == 0) value = std::nan("");
  }
  return values;
}

TEST(Bounded, TheBoundHoldsToTheLastBitWhateverTheValues) {
  for (const char* codes : kCodes) {
    for (const DType dtype : ref::kLossyDTypes) {
      for (const double bound :
           {1e-300, 1e-45, 1e-40, 1e-30, 1e-9, 1e-4, 0.1, 0.5, 1.0, 3.7, 1e5, 1e30, 1e39, 1e300}) {
        for (unsigned seed = 0; seed < 6; ++seed) {
          for (const bool exact : {false, true}) {
            Tensor in(dtype, {2, 37, 41});
            in.fill(troublesome(dtype, in.elems(), bound, seed, seed % 2 == 0));
            keeps_promise(spec_text("abs", bound, codes, exact), in, bound, exact);
            if (HasFailure()) return;
          }
        }
      }
    }
  }
}

TEST(Bounded, ARelativeBoundIsThatFractionOfTheRangeOfFiniteValues) {
  for (const char* codes : kCodes) {
    for (const DType dtype : ref::kLossyDTypes) {
      for (const double fraction : {1e-12, 1e-7, 1e-6, 1e-5, 1e-3, 0.25, 1.0, 7.0}) {
        for (unsigned seed = 0; seed < 6; ++seed) {
          Tensor in(dtype, {3, 19, 40});
          in.fill(troublesome(dtype, in.elems(), 1e-3, seed, seed % 3 == 0));
          double low = HUGE_VAL, high = -HUGE_VAL;
          for (const double value : in.values()) {
            if (!std::isfinite(value)) continue;
            low = std::min(low, value);
            high = std::max(high, value);
          }
          const long double bound =
              static_cast<long double>(fraction) *
              (static_cast<long double>(high) - static_cast<long double>(low));
          keeps_promise(spec_text("rel", fraction, codes), in, static_cast<double>(bound), false);
          if (HasFailure()) return;
        }
      }
    }
  }
}

TEST(Bounded, SparseValuesCostTheirOwnBitsNotThoseOfJumps) {
  Tensor in(DType::F32, {8192});
  std::mt19937 random(3);
  std::normal_distribution<double> normal;
  std::vector<double> values(8192);
  for (double& value : values) value = std::max(normal(random), 0.0);
  in.fill(values);
  const double bound = 0.5e-3;
  const Packed packed = pack_tensor(spec_text("abs", bound, "bits", false), in);
  // Codes to about 2^11 in most rows of 16; their differences have a sign as well.
  const double bits = 8.0 * static_cast<double>(packed.bytes.size()) / 8192;
  EXPECT_GT(bits, 11.0);
  EXPECT_LT(bits, 11.6);
  EXPECT_EQ(bounded_ref::unpack_bits(DType::F32, 8192, false, bound, false, packed.bytes),
            packed.unpack(in).values());
  values[5000] = -1e-3;  // one chunk cannot, the others still can
  in.fill(values);
  const Packed other = pack_tensor(spec_text("abs", bound, "bits", false), in);
  EXPECT_GT(other.bytes.size(), packed.bytes.size() + 64);
  EXPECT_LT(other.bytes.size(), packed.bytes.size() + 256);
  EXPECT_EQ(bounded_ref::unpack_bits(DType::F32, 8192, false, bound, false, other.bytes),
            other.unpack(in).values());
}

TEST(Bounded, NanAndInfinitiesKeepTheirBits) {
  for (const char* codes : kCodes) {
    std::vector<std::uint32_t> bits(5000, 0x3f800000u);
    bits[7] = 0x7f800001u;  // signalling
    bits[1500] = 0xffc12345u;
    bits[1501] = 0x7f800000u;
    bits[4999] = 0xff800000u;
    const CodecSpec spec = CodecSpec::parse(spec_text("rel", 1e-3, codes));
    std::vector<std::byte> packed(layout(spec, DType::F32, {5000}).max_bytes);
    packed.resize(pack(spec, {bits.data(), DType::F32, {5000}}, packed));
    std::vector<std::uint32_t> back(5000);
    unpack(spec, packed, {back.data(), DType::F32, {5000}});
    EXPECT_EQ(back, bits) << codes;
  }
}

TEST(Bounded, ZerosStayAndNothingElseBecomesZero) {
  for (const char* codes : kCodes) {
    for (const DType dtype : ref::kLossyDTypes) {
      Tensor in(dtype, {64, 64});
      std::vector<double> values = ref::pattern(ref::Pattern::Random, dtype, in.elems());
      for (std::size_t i = 0; i < values.size(); ++i) {
        if (i % 3 == 0) values[i] = i % 2 == 0 ? 0.0 : -0.0;
        if (i % 7 == 0 && !is_whole(dtype)) values[i] *= 1e-4;
      }
      in.fill(values);
      for (const double bound : {0.01, 0.3, 2.0}) {
        keeps_promise(spec_text("abs", bound, codes, true), in, bound, true);
      }
    }
  }
}

// +0 comes back as it is. So does -0 where values are stored as they are, beside one that no grid
// holds; elsewhere it comes back as +0.
TEST(Bounded, ZerosHaveTheSignThatTheirPlaceGivesThem) {
  for (const char* codes : kCodes) {
    for (const DType dtype : {DType::F32, DType::F16, DType::BF16, DType::F64}) {
      for (const bool exact_zero : {false, true}) {
        if (!exact_zero && codes == std::string_view("bytes")) continue;  // near 0, if anything
        Tensor in(dtype, {4, 1024});
        std::vector<double> values = ref::pattern(ref::Pattern::Random, dtype, in.elems());
        for (std::size_t i = 0; i < values.size(); ++i) {
          if (i % 3 == 0) values[i] = i % 2 == 0 ? 0.0 : -0.0;
          if (i / 1024 == 1) values[i] = i % 16 == 0 ? HUGE_VAL : -0.0;
        }
        in.fill(values);
        const Tensor out = pack_tensor(spec_text("abs", 0.01, codes, exact_zero), in).unpack(in);
        for (std::int64_t i = 0; i < in.elems(); ++i) {
          if (in.get(i) != 0) continue;
          ASSERT_EQ(out.get(i), 0.0);
          const bool stored = i / 1024 == 1 && codes == std::string_view("bits");
          ASSERT_EQ(std::signbit(out.get(i)), stored && std::signbit(in.get(i))) << codes << i;
        }
      }
    }
  }
}

// The grid number nearest to the largest value is beyond it, and saturates.
TEST(Bounded, TheLargestNumbersHoldOnTheFirstGrid) {
  for (const DType dtype : {DType::F16, DType::BF16}) {
    const double most = dtype == DType::F16 ? kMaxF16 : kMaxBF16, bound = most / 1001.2;
    Tensor in(dtype, {2048});
    std::vector<double> values;
    for (int i = 0; i < 2048; ++i) values.push_back(i % 2 == 0 ? most : -most);
    in.fill(values);
    const std::string text = spec_text("abs", bound, "bits");
    keeps_promise(text, in, bound, false);
    EXPECT_EQ(static_cast<int>(pack_tensor(text, in).bytes[4]) & 7, 0) << to_string(dtype);
  }
}

TEST(Bounded, ConstantTensorsAreExactUnderARelativeBoundAndSmall) {
  for (const char* codes : kCodes) {
    for (const double value : {0.0, 3.14159, -1e-42, 1e38, std::nan(""), HUGE_VAL}) {
      Tensor in(DType::F32, {100, 100});
      in.fill(std::vector<double>(10000, value));
      const Packed packed = pack_tensor(spec_text("rel", 1e-3, codes), in);
      EXPECT_EQ(packed.unpack(in).bytes(), in.bytes()) << codes << ' ' << value;
      EXPECT_LE(packed.bytes.size(), 120u) << codes << ' ' << value;
    }
  }
}

TEST(Bounded, ASpikeCostsOnlyItsNeighbourhood) {
  Tensor in(DType::F32, {128, 128});
  std::vector<double> values(128 * 128, 1.0);
  values[5000] = 1e3;
  in.fill(values);
  for (const char* codes : kCodes) {
    EXPECT_LT(keeps_promise(spec_text("abs", 0.01, codes), in, 0.01, false), 2500u) << codes;
  }
}

TEST(Bounded, WholeNumbersUseEveryStepTheyCan) {
  // 2 * floor(abs) + 1 values to a step, for u8 and u16; below 1 nothing is lost.
  for (const DType dtype : {DType::U8, DType::U16}) {
    const std::size_t count = dtype == DType::U8 ? 256 : 65536;
    Tensor in(dtype, {static_cast<std::int64_t>(count)});
    std::vector<double> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<double>(i);
    in.fill(values);
    for (const char* codes : kCodes) {
      for (const bool exact : {false, true}) {
        const Packed same = pack_tensor(spec_text("abs", 0.9, codes, exact), in);
        EXPECT_EQ(same.unpack(in).values(), values);
        for (const double bound : {1.0, 2.5, 100.0, 254.0}) {
          keeps_promise(spec_text("abs", bound, codes, exact), in, bound, exact);
        }
      }
      const std::vector<double> back =
          pack_tensor(spec_text("abs", 1, codes), in).unpack(in).values();
      EXPECT_EQ(std::set(back.begin(), back.end()).size(), (count + 2) / 3) << to_string(dtype);
    }
  }
}

// A field of waves: the size is part of what the codec promises, from both sides.
Tensor field(std::int64_t side) {
  Tensor in(DType::F32, {side, side});
  std::vector<double> values;
  for (std::int64_t y = 0; y < side; ++y) {
    for (std::int64_t x = 0; x < side; ++x) {
      const double u = static_cast<double>(x) / 40, v = static_cast<double>(y) / 55;
      values.push_back(std::sin(u) * std::cos(v) + 0.2 * std::sin(3.1 * u + 2.3 * v));
    }
  }
  in.fill(values);
  return in;
}

TEST(Bounded, RatiosOnASmoothField) {
  const Tensor in = field(256);
  const double bytes = 4.0 * 256 * 256;
  struct Row {
    const char* text;
    double least, most;
  };
  for (const Row& row :
       {Row{"bounded(rel=0.01)", 23.2, 23.3}, Row{"bounded(rel=0.001)", 9.3, 9.4},
        Row{"bounded(rel=0.0001)", 4.6, 4.7}, Row{"bounded(rel=0.01, codes=bytes)", 69.0, 69.3},
        Row{"bounded(rel=0.001, codes=bytes)", 46.0, 46.3},
        Row{"bounded(rel=0.0001, codes=bytes)", 22.7, 22.9}}) {
    const double ratio = bytes / static_cast<double>(pack_tensor(row.text, in).bytes.size());
    EXPECT_GE(ratio, row.least) << row.text;
    EXPECT_LE(ratio, row.most) << row.text;
  }
}

TEST(Bounded, ValuesThatCannotBePackedTakeTheirOwnSize) {
  Tensor in(DType::F32, {50000});
  in.fill(troublesome(DType::F32, in.elems(), 1e-9, 0, true));
  EXPECT_EQ(keeps_promise("bounded(abs=1e-30)", in, 1e-30, false), 200000u);
}

TEST(Bounded, LargeTensorsHaveEqualBytesOnAnyThreadsAndTargets) {
  const std::string target = cpu_target();
  const Shape shape{40, 64, 65};
  for (const bool packable : {true, false}) {
    Tensor in(DType::F32, shape);
    if (packable) {
      in.fill(mixture(DType::F32, shape[0], shape[1], shape[2]));
    } else {
      in.fill(troublesome(DType::F32, in.elems(), 1e-9, 0, true));
    }
    for (const char* codes : kCodes) {
      for (const bool exact : {false, true}) {
        const CodecSpec spec = CodecSpec::parse(spec_text("abs", 1e-3, codes, exact));
        const std::vector<std::byte> wanted = pack_tensor(spec.print(), in).bytes;
        for (const std::string& other : cpu_targets()) {
          use_cpu_target(other);
          for (const int threads : {1, 2, 5}) {
            std::vector<std::byte> bytes(layout(spec, DType::F32, shape).max_bytes);
            bytes.resize(pack(spec, in.view(), bytes, {.threads = threads}));
            ASSERT_EQ(bytes, wanted) << spec.print() << ' ' << other << ' ' << threads;
            const Tensor out(DType::F32, shape);
            tuckfold::unpack(spec, bytes, out.view(), {.threads = threads});
            const Packed packed{spec, wanted};
            ASSERT_EQ(out.bytes(), packed.unpack(in).bytes()) << spec.print() << ' ' << other;
          }
        }
        use_cpu_target(target);
      }
    }
  }
}

TEST(Bounded, LargeOutputsThatAreStreamedHaveTheSameValues) {
  for (const Shape& shape : {Shape{1100, 32, 64}, Shape{33, 257, 270}}) {
    Tensor in(DType::F32, shape);
    in.fill(mixture(DType::F32, shape[0], shape[1], shape[2]));
    for (const char* codes : kCodes) {
      const Packed packed = pack_tensor(spec_text("abs", 1e-3, codes), in);
      const Tensor apart(DType::F32, shape, ref::Order::Gapped);
      tuckfold::unpack(packed.spec, packed.bytes, apart.view());
      EXPECT_EQ(packed.unpack(in).bytes(), apart.bytes()) << codes << ' ' << to_string(shape);
    }
  }
}

TEST(Bounded, CodesAreBytesWhereZstdFollows) {
  const CodecSpec alone = CodecSpec::parse("bounded(rel=0.001)");
  const auto codes_before = [&](const Codec& next, const char* text) {
    Stage stage = CodecSpec::parse(text).stages()[0];
    kBounded.resolve(stage, next);
    return stage["codes"];
  };
  EXPECT_EQ(alone.stages()[0]["codes"], 0);
  EXPECT_EQ(codes_before(kRaw, "bounded(rel=0.001)"), 0);
  EXPECT_EQ(codes_before(kZstd, "bounded(rel=0.001)"), 2);
  EXPECT_EQ(codes_before(kZstd, "bounded(rel=0.001, codes=bits)"), 1);
}

TEST(Bounded, OneBoundMustBeGiven) {
  const auto message = [](const char* text) -> std::string {
    try {
      CodecSpec::parse(text);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message("bounded"),
            "[codec] bounded needs a bound; give abs=0.01 or rel=0.001, say\n"
            "  bounded\n"
            "  ^^^^^^^");
  EXPECT_EQ(message("bounded(abs=1, rel=0.1)"),
            "[codec] abs and rel cannot both be given; drop one\n"
            "  bounded(abs=1, rel=0.1)\n"
            "                     ^^^");
  EXPECT_EQ(message("bounded(rel=1/255)"), "");
  EXPECT_EQ(CodecSpec::parse("bounded(rel=1e-3, codes=auto)").print(), "bounded(rel=0.001)");
}

}  // namespace
}  // namespace tuckfold
