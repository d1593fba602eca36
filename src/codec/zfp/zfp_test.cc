// zfp's sizes, bounds and refusals, against the library itself where it is installed.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/tensor_fixture.h"
#include "codec/contract_fixture.h"
#include "codec/zfp/zfp_library.h"
#include "tuckfold/codec.h"
#include "tuckfold/error.h"

namespace tuckfold {
namespace {

using ref::code_of;
using ref::Tensor;

// Tests of what is packed; those of the spec and the layout need no library.
class ZfpPacked : public ::testing::Test {
 protected:
  void SetUp() override {
    try {
      zfp_library();
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), Errc::Unsupported);
      GTEST_SKIP() << error.what();
    }
  }
};

struct Packed {
  CodecSpec spec;
  std::vector<std::byte> bytes;
};

Packed packed(const std::string& text, const Tensor& in) {
  Packed result{CodecSpec::parse(text), {}};
  result.bytes.resize(layout(result.spec, in.dtype(), in.shape()).max_bytes);
  result.bytes.resize(pack(result.spec, in.view(), result.bytes));
  return result;
}

std::vector<double> unpacked(const Packed& from, const Tensor& like) {
  const Tensor out(like.dtype(), like.shape());
  unpack(from.spec, from.bytes, out.view());
  return out.values();
}

// A wave, so that blocks are smooth and of many magnitudes.
Tensor wave(DType dtype, const Shape& shape, double scale = 1) {
  Tensor tensor(dtype, shape);
  std::vector<double> values(static_cast<std::size_t>(tensor.elems()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto x = static_cast<double>(i);
    values[i] = scale * (std::sin(x / 11) + 0.2 * std::cos(x / 2.3)) * std::exp2(-x / 500);
  }
  tensor.fill(values);
  return tensor;
}

double worst_error(const Tensor& in, const std::vector<double>& back) {
  double worst = 0;
  for (std::size_t i = 0; i < back.size(); ++i) {
    worst = std::max(worst, std::abs(in.get(static_cast<std::int64_t>(i)) - back[i]));
  }
  return worst;
}

// ---- spec and layout ----------------------------------------------------------------------------

TEST(Zfp, ExactlyOneOfItsParametersIsGiven) {
  const auto complaint = [](const char* text) -> std::string {
    try {
      return "read as " + CodecSpec::parse(text).print();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::InvalidArgument);
      return error.what();
    }
  };
  EXPECT_EQ(complaint("zfp(rate=8)"), "read as zfp(rate=8)");
  EXPECT_EQ(complaint("zfp(accuracy=1e-3)"), "read as zfp(accuracy=0.001)");
  EXPECT_EQ(complaint("zfp"),
            "[codec] zfp needs one of rate, accuracy and precision, as in zfp(rate=8)\n"
            "  zfp\n"
            "  ^^^");
  EXPECT_EQ(complaint("zfp(precision=9, rate=8)"),
            "[codec] zfp takes one of rate, accuracy and precision, got rate and precision\n"
            "  zfp(precision=9, rate=8)\n"
            "                ^");
}

TEST(Zfp, OtherDTypesAreRefusedWithARemedy) {
  for (const DType dtype : {DType::F16, DType::BF16, DType::U8}) {
    try {
      layout(CodecSpec::parse("zfp(rate=8)"), dtype, {8, 8});
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::InvalidArgument);
      EXPECT_NE(std::string(error.what()).find("convert to f32"), std::string::npos);
    }
  }
}

TEST(Zfp, AnAccuracyThatF32CannotKeepIsRefused) {
  const CodecSpec spec = CodecSpec::parse("zfp(accuracy=1e-29)");
  EXPECT_EQ(code_of([&] { layout(spec, DType::F32, {8, 8}); }), Errc::InvalidArgument);
  EXPECT_FALSE(layout(spec, DType::F64, {8, 8}).fixed);
}

TEST(Zfp, ARateGivesAFixedSizeInWholeBytes) {
  const auto bytes = [](const char* text, DType dtype, const Shape& shape) {
    const Layout fit = layout(CodecSpec::parse(text), dtype, shape);
    EXPECT_TRUE(fit.fixed);
    return fit.max_bytes;
  };
  EXPECT_EQ(bytes("zfp(rate=8)", DType::F32, {64, 64}), 64u * 64);
  EXPECT_EQ(bytes("zfp(rate=8)", DType::F32, {5, 2, 2, 64}), 20u * 64);  // 20 rows
  EXPECT_EQ(bytes("zfp(rate=8)", DType::F32, {63, 61}), 64u * 64);
  EXPECT_EQ(bytes("zfp(rate=8)", DType::F64, {101}), 104u);     // 26 blocks of 4
  EXPECT_EQ(bytes("zfp(rate=8)", DType::F64, {101, 1}), 104u);  // as one axis
  EXPECT_EQ(bytes("zfp(rate=8)", DType::F64, {1, 1, 101}), 104u);
  EXPECT_EQ(bytes("zfp(rate=1/16)", DType::F32, {64, 64}), 256u * 9 / 8);  // an exponent at least
  EXPECT_EQ(bytes("zfp(rate=1/16)", DType::F64, {64, 64}), 256u * 12 / 8);
  EXPECT_EQ(bytes("zfp(rate=8)", DType::F32, {3, 0, 8}), 0u);
}

// ---- what is packed -----------------------------------------------------------------------------

TEST_F(ZfpPacked, SizesAreThoseOfTheLibrary) {
  const ZfpLibrary& zfp = zfp_library();
  for (const DType dtype : {DType::F32, DType::F64}) {
    const int type = dtype == DType::F32 ? ZfpLibrary::kFloat : ZfpLibrary::kDouble;
    for (const Shape& shape : {Shape{16, 16}, {13, 7}, {2, 3, 5, 9}, {101}, {37, 1}, {1, 30}, {}}) {
      Tensor in = wave(dtype, shape);
      const auto elems = static_cast<std::size_t>(in.elems());
      std::size_t nx = shape.rank() < 2 ? 1 : static_cast<std::size_t>(shape[shape.rank() - 1]);
      std::size_t ny = elems / nx;
      if (nx == 1 || ny == 1) nx = elems, ny = 0;
      for (const char* text : {"zfp(rate=1/16)", "zfp(rate=2.5)", "zfp(rate=7.0625)",
                               "zfp(accuracy=0.001)", "zfp(precision=3)", "zfp(precision=60)"}) {
        if (!ref::suits(CodecSpec::parse(text), dtype, shape)) continue;
        const Packed got = packed(text, in);
        const Stage& stage = got.spec.stages()[0];
        void* field = zfp.zfp_field_2d(in.view().data, type, nx, ny);
        void* stream = zfp.zfp_stream_open(nullptr);
        if (stage["rate"] != 0) {
          zfp.zfp_stream_set_rate(stream, stage["rate"], type, ny == 0 ? 1 : 2, 0);
        } else if (stage["accuracy"] != 0) {
          zfp.zfp_stream_set_accuracy(stream, stage["accuracy"]);
        } else {
          zfp.zfp_stream_set_precision(stream, static_cast<unsigned>(stage["precision"]));
        }
        std::vector<std::byte> wanted(zfp.zfp_stream_maximum_size(stream, field));
        // The library counts a header of 148 bits in, which we do not have, and whole words.
        const std::size_t most = layout(got.spec, dtype, shape).max_bytes;
        EXPECT_LE(most, wanted.size() - 148 / 8) << text << ' ' << to_string(shape);
        EXPECT_GE(most + 148 / 8 + 1 + 8, wanted.size()) << text << ' ' << to_string(shape);
        void* bits = zfp.stream_open(wanted.data(), wanted.size());
        zfp.zfp_stream_set_bit_stream(stream, bits);
        zfp.zfp_stream_rewind(stream);
        wanted.resize(zfp.zfp_compress(stream, field));
        EXPECT_GE(wanted.size(), got.bytes.size());
        EXPECT_LT(wanted.size(), got.bytes.size() + 8);
        wanted.resize(got.bytes.size());
        EXPECT_EQ(got.bytes, wanted) << text << ' ' << to_string(shape);
        zfp.zfp_field_free(field);
        zfp.zfp_stream_close(stream);
        zfp.stream_close(bits);
      }
    }
  }
}

TEST_F(ZfpPacked, ErrorsStayWithinTheAccuracyAndNearIt) {
  for (const DType dtype : {DType::F32, DType::F64}) {
    for (const Shape& shape : {Shape{60, 70}, {3001}}) {
      const Tensor in = wave(dtype, shape);
      std::size_t before = 0;
      for (const char* accuracy : {"1/4", "0.01", "1e-4"}) {
        const Packed got = packed("zfp(accuracy=" + std::string(accuracy) + ")", in);
        const double bound = got.spec.stages()[0]["accuracy"];
        const double worst = worst_error(in, unpacked(got, in));
        EXPECT_LE(worst, bound);
        EXPECT_GE(worst, bound / 100);
        EXPECT_GT(got.bytes.size(), before);
        before = got.bytes.size();
      }
    }
  }
}

TEST_F(ZfpPacked, MoreRateAndMorePrecisionMeanLessError) {
  const Tensor in = wave(DType::F32, {3, 33, 40});
  for (const char* mode : {"rate", "precision"}) {
    double before = 2;
    for (const int value : {2, 4, 8, 16, 24}) {
      const double worst =
          worst_error(in, unpacked(packed(fmt::format("zfp({}={})", mode, value), in), in));
      EXPECT_LT(worst, before) << mode << ' ' << value;
      before = worst;
    }
    EXPECT_LT(before, 1e-4) << mode;
  }
}

TEST_F(ZfpPacked, ValuesThatZfpWouldNotBringBackAreRefusedByTheirPlace) {
  const auto refusal = [](DType dtype, double value) -> std::string {
    Tensor in(dtype, {9, 11});
    std::vector<double> values(99, 0.5);
    values[57] = value;
    in.fill(values);
    try {
      packed("zfp(accuracy=1e-3)", in);
      return "";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::InvalidArgument);
      return error.what();
    }
  };
  const double inf = std::numeric_limits<double>::infinity();
  for (const DType dtype : {DType::F32, DType::F64}) {
    for (const double bad : {inf, -inf, std::nan("")}) {
      EXPECT_NE(refusal(dtype, bad).find("element 57 is "), std::string::npos) << bad;
    }
    EXPECT_EQ(refusal(dtype, -0.0), "");
  }
  EXPECT_NE(refusal(DType::F32, -0x1p126).find("below 2^126"), std::string::npos);
  EXPECT_NE(refusal(DType::F64, 0x1p1022).find("below 2^1022"), std::string::npos);
  EXPECT_EQ(refusal(DType::F64, 0x1.fp1021), "");
}

TEST_F(ZfpPacked, TheLargestValuesStayFinite) {
  std::mt19937 random(2);
  for (const DType dtype : {DType::F32, DType::F64}) {
    const double most = dtype == DType::F32 ? 0x1.fffffep125 : 0x1.fffffffffffffp1021;
    Tensor in(dtype, {64, 64});
    std::vector<double> values(64 * 64);
    for (double& value : values) value = random() % 2 == 0 ? most : -most;
    in.fill(values);
    for (const char* text :
         {"zfp(precision=1)", "zfp(precision=3)", "zfp(rate=1)", "zfp(rate=6)"}) {
      for (const double value : unpacked(packed(text, in), in)) ASSERT_TRUE(std::isfinite(value));
    }
  }
}

// Libzfp alone turns whole blocks of such values into others, four times as large.
TEST_F(ZfpPacked, ValuesTooSmallForABlockCountAsZero) {
  for (const auto& [dtype, limit] :
       {std::pair{DType::F32, 0x1p-98}, std::pair{DType::F64, 0x1p-962}}) {
    for (const double scale : {0.9, 1e-3, 1e-9}) {
      for (const char* text : {"zfp(precision=64)", "zfp(rate=16)"}) {
        const Tensor in = wave(dtype, {16, 20}, scale * limit / 1.2);
        for (const double value : unpacked(packed(text, in), in)) ASSERT_EQ(value, 0);
      }
    }
    const Tensor in = wave(dtype, {4, 4}, 16 * limit);
    const double worst = worst_error(in, unpacked(packed("zfp(precision=64)", in), in));
    EXPECT_LE(worst, limit);
  }
}

TEST_F(ZfpPacked, TruncatedAndLongerBytesAreCorruptData) {
  const Tensor in = wave(DType::F32, {60, 70});
  for (const char* text : {"zfp(accuracy=1e-3)", "zfp(precision=12)", "zfp(rate=4)"}) {
    const Packed whole = packed(text, in);
    const auto with_size = [&](std::size_t size) {
      Packed other = whole;
      other.bytes.resize(size);
      return code_of([&] { unpacked(other, in); });
    };
    // Where words are longer than a byte, what is cut may be their padding.
    const std::size_t word_bytes = *zfp_library().stream_word_bits / 8;
    for (std::size_t cut = word_bytes; cut <= whole.bytes.size(); cut += 3) {
      ASSERT_EQ(with_size(whole.bytes.size() - cut), Errc::CorruptData) << text << ' ' << cut;
    }
    ASSERT_EQ(with_size(0), Errc::CorruptData) << text;
    ASSERT_EQ(with_size(whole.bytes.size() + 8), Errc::CorruptData) << text;
  }
}

// The workspace ends where memory does: a read or write beyond it would not return.
TEST_F(ZfpPacked, NoBitsMakeTheLibraryLeaveItsWorkspace) {
  std::mt19937 random(6);
  constexpr std::size_t kPage = 4096, kRoom = 64 * kPage;
  auto* memory = static_cast<std::byte*>(
      ::mmap(nullptr, kRoom + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(static_cast<void*>(memory), MAP_FAILED);
  ASSERT_EQ(::mprotect(memory + kRoom, kPage, PROT_NONE), 0);
  for (const char* text : {"zfp(accuracy=1e-3)", "zfp(accuracy=1e-25)", "zfp(precision=64)",
                           "zfp(precision=1)", "zfp(rate=3.0625)"}) {
    for (const DType dtype : {DType::F32, DType::F64}) {
      for (const Shape& shape : {Shape{41, 30}, {1001}}) {
        const CodecSpec spec = CodecSpec::parse(text);
        const Layout fit = layout(spec, dtype, shape);
        ASSERT_LE(fit.workspace_bytes, kRoom);
        // Dense values are not in the workspace: what libzfp reads ends where they would begin.
        const std::size_t values = static_cast<std::size_t>(shape.elems()) * size_bytes(dtype);
        const std::size_t bits = fit.workspace_bytes - values;
        const Tensor out(dtype, shape);
        const Tensor worst = std::move(Tensor(dtype, shape).fill(ref::Pattern::Random));
        for (int turn = 0; turn < 40; ++turn) {
          std::vector<std::byte> bytes(fit.max_bytes);
          for (std::byte& byte : bytes) {
            byte = turn == 0 ? std::byte{0xff} : static_cast<std::byte>(random() | random());
          }
          const std::span<std::byte> workspace(memory + kRoom - bits, fit.workspace_bytes);
          try {
            unpack(spec, bytes, out.view(), {.workspace = workspace});
          } catch (const Error& error) {
            ASSERT_EQ(error.code(), Errc::CorruptData) << error.what();
          }
        }
        std::vector<std::byte> bytes(fit.max_bytes);
        const std::span<std::byte> workspace(memory + kRoom - bits, fit.workspace_bytes);
        pack(spec, worst.view(), bytes, {.workspace = workspace});
      }
    }
  }
  ::munmap(memory, kRoom + kPage);
}

}  // namespace
}  // namespace tuckfold
