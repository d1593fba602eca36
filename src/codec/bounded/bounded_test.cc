// bounded against its promise and its documentation; what every codec must keep is in
// contract_test.cc.
#include "codec/bounded/bounded.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <utility>

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

using ref::Tensor;

constexpr const char* kCodes[] = {"bits", "bytes"};

struct Packed {
  CodecSpec spec;
  std::vector<std::byte> bytes;

  Tensor unpack(const Tensor& like) const {
    Tensor out(like.dtype(), like.shape());
    tuckfold::unpack(spec, bytes, out.view());
    return out;
  }
};

Packed pack_tensor(const std::string& text, const Tensor& in) {
  Packed packed{CodecSpec::parse(text), {}};
  packed.bytes.resize(layout(packed.spec, in.dtype(), in.shape()).max_bytes);
  packed.bytes.resize(pack(packed.spec, in.view(), packed.bytes));
  return packed;
}

std::string spec_text(const char* kind, double bound, const char* codes, bool exact = false) {
  return fmt::format("bounded({}={}, codes={}{})", kind, bound, codes, exact ? ", zero=exact" : "");
}

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

TEST(Bounded, PackedBitsDecodeFromTheDocumentation) {
  for (const DType dtype : ref::kLossyDTypes) {
    for (const bool exact : {false, true}) {
      for (const char* kind : {"abs", "rel"}) {
        for (const double bound : {2e-5, 1e-3, 0.02, 2.5}) {
          Tensor in(dtype, {3000});
          std::vector<double> values = ref::pattern(ref::Pattern::Random, dtype, in.elems());
          for (std::size_t i = 0; i < 1000; ++i)
            values[i] = values[0] + 0.01 * std::sin(0.01 * static_cast<double>(i));
          for (std::size_t i = 1024; i < 2048; i += 3) values[i] = 0;
          values[2100] = is_whole(dtype) ? 7 : std::nan("");
          in.fill(values);
          const Packed packed = pack_tensor(spec_text(kind, bound, "bits", exact), in);
          const std::vector<double> expected =
              bounded_ref::unpack_bits(dtype, in.elems(), *kind == 'r', bound, exact, packed.bytes);
          const std::vector<double> got = packed.unpack(in).values();
          ASSERT_EQ(got.size(), expected.size());
          for (std::size_t i = 0; i < got.size(); ++i) {
            if (!std::isnan(expected[i]) || !std::isnan(got[i])) {
              ASSERT_EQ(got[i], expected[i])
                  << to_string(dtype) << ' ' << kind << bound << " at " << i;
            }
          }
        }
      }
    }
  }
}

TEST(Bounded, RowsOfEveryFormDecodeFromTheDocumentation) {
  std::set<std::pair<int, int>> seen;  // form and mask bits
  for (const ref::SteppedValues& stepped : ref::stepped_values()) {
    Tensor in(DType::F32, {1024});
    in.fill(stepped.values);
    const Packed packed = pack_tensor("bounded(abs=0.5, codes=bits)", in);
    const int what = static_cast<int>(packed.bytes[7]), first = static_cast<int>(packed.bytes[6]);
    seen.insert({what >> 1, what >> 1 == 0 ? 0 : first});
    const auto expected =
        bounded_ref::unpack_bits(DType::F32, 1024, false, 0.5, false, packed.bytes);
    ASSERT_EQ(packed.unpack(in).values(), expected) << stepped.name;
    ASSERT_EQ(expected.size(), stepped.values.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      ASSERT_LE(std::abs(expected[i] - stepped.values[i]), 0.5) << stepped.name << " at " << i;
    }
  }
  const std::set<std::pair<int, int>> all = {{0, 0}, {1, 1}, {1, 2}, {1, 4}, {1, 8},
                                             {2, 1}, {2, 2}, {2, 4}, {2, 8}};
  EXPECT_EQ(seen, all);
}

TEST(Bounded, FormsThatDoNotExistAreCorruptData) {
  for (const ref::SteppedValues& stepped : ref::stepped_values()) {
    Tensor in(DType::F32, {1024});
    in.fill(stepped.values);
    const Packed packed = pack_tensor("bounded(abs=0.5, codes=bits)", in);
    const auto refused = [&](std::size_t at, int byte) {
      Packed damaged = packed;
      damaged.bytes[at] = static_cast<std::byte>(byte);
      return ref::code_of([&] { damaged.unpack(in); }) == Errc::CorruptData;
    };
    EXPECT_TRUE(refused(7, 6)) << stepped.name;    // form 3
    EXPECT_TRUE(refused(7, 255)) << stepped.name;  // a form past all
    const bool masks = packed.bytes[7] >= std::byte{2};
    for (const int bits : {0, 3, 5, 16, 255}) {
      EXPECT_TRUE(!masks || refused(6, bits)) << stepped.name << bits;
    }
    // Masks with one bit more or less than there are planes for; an odd plane may be padding.
    if (masks && packed.bytes[7] < std::byte{4}) {
      EXPECT_TRUE(refused(8, static_cast<int>(packed.bytes[8]) ^ 1)) << stepped.name;
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

// Smooth here, noisy there, with zeros and values that must be kept.
std::vector<double> mixture(DType dtype, std::int64_t planes, std::int64_t rows,
                            std::int64_t cols) {
  std::vector<double> values;
  std::mt19937 random(11);
  const double scale = dtype == DType::U8 ? 100 : dtype == DType::U16 ? 20000 : 1;
  for (std::int64_t p = 0; p < planes; ++p) {
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < cols; ++c) {
        const auto y = static_cast<double>(r), x = static_cast<double>(c);
        double value = 1.2 + std::sin(x / 30 + static_cast<double>(p)) * std::cos(y / 20);
        if (p % 3 == 1) value += 0.5 * static_cast<double>(random() % 1000) / 1000;
        if (p % 3 == 2) value = random() % 3 == 0 ? value : 0;
        if (random() % 997 == 0 && !is_whole(dtype)) value = p % 2 == 0 ? std::nan("") : 1e30;
        values.push_back(value * scale);
      }
    }
  }
  return values;
}

TEST(Bounded, PackedBytesDecodeFromTheDocumentation) {
  struct Size {
    std::int64_t planes, rows, cols;
  };
  for (const DType dtype : ref::kLossyDTypes) {
    for (const Size& size : {Size{7, 64, 100}, Size{2, 33, 514}, Size{60, 9, 7}, Size{1, 1, 3000},
                             Size{300, 8, 8}, Size{40, 2, 26}}) {
      const Shape shape{size.planes, size.rows, size.cols};
      Tensor in(dtype, shape);
      in.fill(mixture(dtype, size.planes, size.rows, size.cols));
      for (const bool exact : {false, true}) {
        for (const char* kind : {"abs", "rel"}) {
          for (const double bound : {1e-5, 1e-3, 0.02, 1.5}) {
            const std::string text = spec_text(kind, bound, "bytes", exact);
            SCOPED_TRACE(fmt::format("{} of {} {}", text, to_string(dtype), to_string(shape)));
            const Packed packed = pack_tensor(text, in);
            const auto decode = dtype == DType::F64 ? bounded_ref::unpack_bytes<double>
                                                    : bounded_ref::unpack_bytes<float>;
            const std::vector<double> expected = decode(dtype, size.planes, size.rows, size.cols,
                                                        *kind == 'r', bound, exact, packed.bytes);
            const std::vector<double> got = packed.unpack(in).values();
            ASSERT_EQ(got.size(), expected.size());
            for (std::size_t i = 0; i < got.size(); ++i) {
              if (std::isnan(expected[i]) && std::isnan(got[i])) continue;
              ASSERT_EQ(got[i], expected[i]) << "at " << i;
            }
          }
        }
      }
    }
  }
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
       {Row{"bounded(rel=0.01)", 23.6, 23.8}, Row{"bounded(rel=0.001)", 8.8, 8.9},
        Row{"bounded(rel=0.0001)", 4.5, 4.6}, Row{"bounded(rel=0.01, codes=bytes)", 69.0, 69.3},
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

TEST(Bounded, DamagedBytesAreCorruptDataOrValues) {
  std::mt19937 random(3);
  for (const char* codes : kCodes) {
    for (const DType dtype : ref::kLossyDTypes) {
      const Shape shape{5, 64, 33};
      Tensor in(dtype, shape);
      in.fill(ref::pattern(ref::Pattern::Ramp, dtype, in.elems()));
      for (const char* kind : {"abs", "rel"}) {
        const Packed packed = pack_tensor(spec_text(kind, 0.003, codes), in);
        const Tensor out(dtype, shape, ref::Order::Gapped);
        for (int trial = 0; trial < 80; ++trial) {
          std::vector<std::byte> bytes = packed.bytes;
          for (auto n = 1 + random() % 3; n > 0; --n) {
            // The front decides most.
            const std::size_t reach =
                random() % 2 == 0 ? std::min<std::size_t>(80, bytes.size()) : bytes.size();
            bytes[random() % reach] = static_cast<std::byte>(random());
          }
          if (random() % 4 == 0) bytes.resize(random() % bytes.size());
          try {
            tuckfold::unpack(packed.spec, bytes, out.view());
          } catch (const Error& error) {
            ASSERT_EQ(error.code(), Errc::CorruptData) << error.what();
          }
          ASSERT_TRUE(out.gaps_untouched());
        }
      }
    }
  }
}

// Headers of codes=bits that say every number of words, with as many bytes after them.
TEST(Bounded, ForgedHeadersAreCorruptDataOrValues) {
  const Shape shape{2 * bounded::kChunk};
  const CodecSpec spec = CodecSpec::parse("bounded(abs=0.1)");
  for (const DType dtype : ref::kLossyDTypes) {
    const Tensor out(dtype, shape, ref::Order::Gapped);
    int refused = 0;
    for (unsigned words = 0; words < 1U << 13; words += words % 16 == 1 ? 15 : 1) {
      const std::size_t size = 2 * (bounded::kHeaderBytes + 2 * std::size_t{words});
      if (size >= layout(spec, dtype, shape).max_bytes) break;
      for (const unsigned kind : {0, 5, bounded::kSame, bounded::kKept}) {
        std::vector<std::byte> bytes(size, std::byte{255});
        const unsigned both = words << 3 | kind;
        for (const std::size_t chunk : {0, 1}) {
          std::memcpy(bytes.data() + chunk * bounded::kHeaderBytes + 4, &both, 2);
        }
        try {
          tuckfold::unpack(spec, bytes, out.view());
        } catch (const Error& error) {
          ASSERT_EQ(error.code(), Errc::CorruptData) << error.what();
          ++refused;
        }
        ASSERT_TRUE(out.gaps_untouched());
      }
    }
    EXPECT_GT(refused, 100);
  }
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
