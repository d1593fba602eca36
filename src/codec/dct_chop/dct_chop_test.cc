// dct_chop against the paper's definition, in double.
#include "codec/dct_chop/dct_chop.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "base/tensor_fixture.h"
#include "codec/dct_chop/dct_chop_block.h"
#include "codec/dct_chop/dct_chop_ref.h"

namespace tuckfold {
namespace {

using dct_chop::Params;
using ref::Dense;
using ref::Pattern;
using ref::Tensor;

constexpr double kEps = 0x1p-23;

Params params_of(const CodecSpec& spec) { return Params::of(spec.stages()[0]); }

// Every block, transform, keep, shape and coef.
std::vector<CodecSpec> all_specs() {
  std::vector<CodecSpec> specs;
  for (const auto& [block, transform] :
       {std::pair(4, "dct"), std::pair(4, "zfp"), std::pair(8, "dct"), std::pair(16, "dct")}) {
    for (int keep = 1; keep <= block; ++keep) {
      for (const char* shape : {"square", "triangle"}) {
        for (const char* coef : {"f32", "f16", "bf16"}) {
          specs.push_back(CodecSpec::parse(
              fmt::format("dct_chop(block={}, keep={}, shape={}, coef={}, transform={})", block,
                          keep, shape, coef, transform)));
        }
      }
    }
  }
  return specs;
}

std::vector<double> packed_values(const CodecSpec& spec, const Tensor& in) {
  const Layout fit = layout(spec, in.dtype(), in.shape());
  const ref::Buffer packed(fit.max_bytes);
  EXPECT_EQ(pack(spec, in.view(), packed.span()), fit.max_bytes);
  std::vector<double> values(static_cast<std::size_t>(fit.shape.elems()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = ref::get(fit.dtype, packed.data(), static_cast<std::int64_t>(i));
  }
  return values;
}

std::vector<double> unpacked_values(const CodecSpec& spec, const std::vector<double>& packed,
                                    const Shape& shape, DType dtype = DType::F32) {
  const Layout fit = layout(spec, dtype, shape);
  Tensor stored(fit.dtype, fit.shape), out(dtype, shape);
  stored.fill(packed);
  unpack(spec, stored.bytes(), out.view());
  return out.values();
}

// How far a product with this matrix on both sides can enlarge the largest value.
double gain(const Dense& m) {
  double most = 0;
  for (std::int64_t i = 0; i < m.rows; ++i) {
    double sum = 0;
    for (std::int64_t j = 0; j < m.cols; ++j) sum += std::abs(m.at(i, j));
    most = std::max(most, sum);
  }
  return most * most;
}

double largest(const std::vector<double>& values) {
  double most = 0;
  for (const double value : values) most = std::max(most, std::abs(value));
  return most;
}

// What storing a value in `coef` may change it by.
double storing_error(DType coef, double value) {
  if (coef == DType::F16) return std::max(std::abs(value) * 0x1p-11, 0x1p-25);
  return coef == DType::BF16 ? std::abs(value) * 0x1p-8 : 0;
}

// Padded planes may grow when all is kept, which only a wide dtype allows.
DType dtype_for(int rows) { return rows % 16 == 0 ? DType::F32 : DType::F64; }

TEST(DctChop, TablesAreEquationTwo) {
  const auto check = []<int N>(const dct_chop::Table<N>& table) {
    for (int v = 0; v < N; ++v) {
      for (int k = 0; k < N / 2; ++k) {
        const long double angle = (2 * k + 1) * v * std::numbers::pi_v<long double> / (2 * N);
        const long double exact =
            v == 0 ? 1 / std::sqrt(static_cast<long double>(N))
                   : std::sqrt(2 / static_cast<long double>(N)) * std::cos(angle);
        EXPECT_EQ(table[v][k], static_cast<float>(exact)) << N << ' ' << v << ' ' << k;
      }
    }
  };
  check.operator()<4>(dct_chop::kDct<4>);
  check.operator()<8>(dct_chop::kDct<8>);
  check.operator()<16>(dct_chop::kDct<16>);
}

TEST(DctChop, TransformsOfTheReferenceAreInvertible) {
  for (const char* text : {"dct_chop(block=4, keep=4)", "dct_chop(block=4, keep=4, transform=zfp)",
                           "dct_chop(keep=8)", "dct_chop(block=16, keep=16)"}) {
    const Params p = params_of(CodecSpec::parse(text));
    const Dense one = ref::product(ref::inverse_matrix(p), ref::forward_matrix(p));
    for (std::int64_t i = 0; i < one.rows; ++i) {
      for (std::int64_t j = 0; j < one.cols; ++j) {
        EXPECT_NEAR(one.at(i, j), i == j ? 1.0 : 0.0, 4e-15) << text;
      }
    }
  }
}

TEST(DctChop, PackingIsTheDefinitionToRounding) {
  for (const CodecSpec& spec : all_specs()) {
    const Params p = params_of(spec);
    const Dense block = ref::lhs(p, p.block);
    for (const auto& [rows, cols] : {std::pair(32, 48), std::pair(27, 45)}) {
      for (const Pattern kind :
           {Pattern::Random, Pattern::Constant, Pattern::Ramp, Pattern::Impulse}) {
        Tensor in(dtype_for(rows), {2, rows, cols});
        in.fill(Tensor(DType::F32, in.shape()).fill(kind).values());
        const std::vector<double> got = packed_values(spec, in);
        const std::vector<double> wanted = ref::pack_planes(p, in.values(), rows, cols);
        ASSERT_EQ(got.size(), wanted.size());
        const double bound = 2 * kEps * gain(block) * largest(in.values());
        double worst = 0;
        for (std::size_t i = 0; i < got.size(); ++i) {
          const double error = std::abs(got[i] - wanted[i]);
          worst = std::max(worst, error);
          ASSERT_LE(error, bound + storing_error(p.coef, wanted[i])) << spec.print() << " at " << i;
        }
        // f32 cannot hold random sums exactly: an error of nothing would be a reference that is
        // computed by the codec.
        if (kind == Pattern::Random) {
          ASSERT_GE(worst, 0.01 * bound) << spec.print();
        }
      }
    }
  }
}

TEST(DctChop, UnpackingIsTheDefinitionToRounding) {
  for (const CodecSpec& spec : all_specs()) {
    const Params p = params_of(spec);
    const Dense block = ref::back_lhs(p, p.block);
    for (const auto& [rows, cols] : {std::pair(32, 48), std::pair(27, 45)}) {
      const Shape shape{2, rows, cols};
      const Layout fit = layout(spec, dtype_for(rows), shape);
      for (const Pattern kind : {Pattern::Random, Pattern::Constant, Pattern::Impulse}) {
        const Tensor stored = std::move(Tensor(fit.dtype, fit.shape).fill(kind));
        const std::vector<double> packed = stored.values();
        const std::vector<double> got = unpacked_values(spec, packed, shape, dtype_for(rows));
        const std::vector<double> wanted = ref::unpack_planes(p, packed, rows, cols);
        ASSERT_EQ(got.size(), wanted.size());
        const double bound = 2 * kEps * gain(block) * largest(packed);
        double worst = 0;
        for (std::size_t i = 0; i < got.size(); ++i) {
          worst = std::max(worst, std::abs(got[i] - wanted[i]));
        }
        ASSERT_LE(worst, bound) << spec.print();
        // Some come back exactly: zfp's matrices are whole quarters, a mean of four is halved
        // twice.
        const bool exact =
            (p.transform == ref::Transform::Zfp && p.coef != DType::F32) || p.keep == 1;
        if (kind == Pattern::Random && !exact) {
          ASSERT_GE(worst, 0.02 * bound) << spec.print();
        }
      }
    }
  }
}

TEST(DctChop, KeepingAllCoefficientsIsLosslessToRounding) {
  for (const char* text :
       {"dct_chop(block=4, keep=4)", "dct_chop(keep=8)", "dct_chop(block=16, keep=16)"}) {
    const CodecSpec spec = CodecSpec::parse(text);
    const Tensor in = std::move(Tensor(DType::F32, {64, 96}).fill(Pattern::Random));
    const std::vector<double> back = unpacked_values(spec, packed_values(spec, in), in.shape());
    double worst = 0;
    for (std::int64_t i = 0; i < in.elems(); ++i) {
      worst = std::max(worst, std::abs(back[static_cast<std::size_t>(i)] - in.get(i)));
    }
    EXPECT_LT(worst, 8 * kEps) << text;
    EXPECT_GT(worst, 1 * kEps) << text;
  }
}

TEST(DctChop, ZfpOfWholeNumbersIsExact) {
  const CodecSpec spec = CodecSpec::parse("dct_chop(block=4, keep=4, transform=zfp)");
  Tensor in(DType::F32, {40, 44});
  in.fill(ref::pattern(Pattern::Random, DType::U8, in.elems()));
  EXPECT_EQ(unpacked_values(spec, packed_values(spec, in), in.shape()), in.values());
}

// A plane divisible by the block is one product of dense matrices, as other devices compute it.
TEST(DctChop, SquaresAreThePapersDenseProducts) {
  for (const int block : {4, 8, 16}) {
    for (int keep = 1; keep <= block; ++keep) {
      const CodecSpec spec =
          CodecSpec::parse(fmt::format("dct_chop(block={}, keep={})", block, keep));
      const Params p = params_of(spec);
      for (const auto& [rows, cols] : {std::pair(16, 16), std::pair(64, 32), std::pair(48, 80)}) {
        const Tensor in = std::move(Tensor(DType::F32, {rows, cols}).fill(Pattern::Random, 3));
        Dense a(rows, cols);
        a.values = in.values();
        const Dense y = ref::product(ref::product(ref::lhs(p, rows), a), ref::rhs(p, cols));
        const Dense back =
            ref::product(ref::product(ref::back_lhs(p, rows), y), ref::back_rhs(p, cols));
        ASSERT_EQ(layout(spec, DType::F32, in.shape()).shape, Shape({y.rows, y.cols}));

        const std::vector<double> ours = packed_values(spec, in);
        const double bound = 2 * kEps * block * keep;
        for (std::size_t i = 0; i < ours.size(); ++i) ASSERT_NEAR(ours[i], y.values[i], bound);
        // We unpack what they packed; they unpack what we packed.
        const std::vector<double> theirs_unpacked = unpacked_values(spec, y.values, in.shape());
        Dense our_y(y.rows, y.cols);
        our_y.values = ours;
        const Dense ours_unpacked =
            ref::product(ref::product(ref::back_lhs(p, rows), our_y), ref::back_rhs(p, cols));
        for (std::size_t i = 0; i < theirs_unpacked.size(); ++i) {
          ASSERT_NEAR(theirs_unpacked[i], back.values[i], bound);
          ASSERT_NEAR(ours_unpacked.values[i], back.values[i], bound);
        }
      }
    }
  }
}

TEST(DctChop, BlockByBlockIsTheDenseProduct) {
  const Params p = params_of(CodecSpec::parse("dct_chop(keep=5)"));
  Dense a(24, 40);
  a.values = ref::pattern(Pattern::Random, DType::F64, 24 * 40);
  const Dense dense = ref::product(ref::product(ref::lhs(p, 24), a), ref::rhs(p, 40));
  const Dense blocks = ref::pack_plane(p, a);
  for (std::size_t i = 0; i < dense.values.size(); ++i) {
    EXPECT_NEAR(dense.values[i], blocks.values[i], 1e-14);
  }
}

// The DCT is orthonormal: what is missing from the coefficients' energy is the error's.
TEST(DctChop, TheErrorIsTheEnergyOfWhatWasDropped) {
  const auto energy = [](const std::vector<double>& values) {
    return std::inner_product(values.begin(), values.end(), values.begin(), 0.0);
  };
  const Tensor in = std::move(Tensor(DType::F32, {3, 64, 64}).fill(Pattern::Random));
  for (const int block : {4, 8, 16}) {
    for (const char* shape : {"square", "triangle"}) {
      double last = energy(in.values());
      for (int keep = 1; keep < block; ++keep) {
        const CodecSpec spec = CodecSpec::parse(
            fmt::format("dct_chop(block={}, keep={}, shape={})", block, keep, shape));
        const std::vector<double> packed = packed_values(spec, in);
        std::vector<double> error = unpacked_values(spec, packed, in.shape());
        for (std::size_t i = 0; i < error.size(); ++i) {
          error[i] -= in.get(static_cast<std::int64_t>(i));
        }
        EXPECT_NEAR(energy(error) / (energy(in.values()) - energy(packed)), 1.0, 1e-5)
            << spec.print();
        EXPECT_LT(energy(error), last) << spec.print();
        last = energy(error);
      }
    }
  }
}

TEST(DctChop, CoefficientsBeyondTheirTypeSaturate) {
  // The mean of 9000s is stored as 8 * 9000, which f16 cannot hold.
  for (const auto& [value, coef, most] :
       {std::tuple(9000.0, "f16", double{kMaxF16}), std::tuple(-9000.0, "f16", double{kMaxF16}),
        std::tuple(8.5e36, "bf16", 8 * 8.5e36), std::tuple(9000.0, "bf16", 8 * 9000.0)}) {
    const CodecSpec spec = CodecSpec::parse(fmt::format("dct_chop(keep=4, coef={})", coef));
    const Tensor in = std::move(Tensor(DType::F32, {16, 16}).fill(std::vector<double>(256, value)));
    const std::vector<double> packed = packed_values(spec, in);
    EXPECT_NEAR(std::abs(packed[0]) / most, 1.0, 0.01);
    for (const double got : unpacked_values(spec, packed, in.shape())) {
      EXPECT_NEAR(got / std::copysign(most / 8, value), 1.0, 0.01) << coef;
    }
  }
}

TEST(DctChop, FiniteF16ComesBackFinite) {
  Tensor in(DType::F16, {16, 16});
  std::vector<double> values;
  for (int i = 0; i < 256; ++i)
    values.push_back(i % 16 < 3 ? -65504 : 65504);  // rings when chopped
  in.fill(values);
  const CodecSpec spec = CodecSpec::parse("dct_chop(keep=4)");
  const std::vector<double> back =
      unpacked_values(spec, packed_values(spec, in), in.shape(), DType::F16);
  EXPECT_EQ(largest(back), 65504);
  EXPECT_GT(largest(unpacked_values(spec, packed_values(spec, in), in.shape())), 66000);
}

// No sum that makes a coefficient has more than 52 times the largest value.
TEST(DctChop, ValuesBelow2To122NeverOverflow) {
  std::mt19937 random(3);
  for (int keep = 1; keep <= 8; ++keep) {
    const CodecSpec spec = CodecSpec::parse(fmt::format("dct_chop(keep={})", keep));
    std::vector<double> values(64 * 64);
    for (double& value : values) value = random() % 2 == 0 ? 0x1p122 : -0x1p122;
    for (int i = 0; i < 8 * 64; ++i) {  // one block of alike, one of every sign
      const int r = i / 64, c = i % 64;
      if (c < 8) values[static_cast<std::size_t>(i)] = 0x1p122;
      if (c >= 8 && c < 16)
        values[static_cast<std::size_t>(i)] = (r + c) % 2 == 0 ? 0x1p122 : -0x1p122;
    }
    const Tensor in = std::move(Tensor(DType::F32, {64, 64}).fill(values));
    const std::vector<double> packed = packed_values(spec, in);
    ASSERT_TRUE(std::isfinite(largest(packed))) << keep;
    for (const double value : unpacked_values(spec, packed, in.shape())) {
      ASSERT_TRUE(std::isfinite(value)) << keep;
    }
  }
}

TEST(DctChop, NaNStaysInItsBlock) {
  for (const char* text : {"dct_chop(keep=3)", "dct_chop(keep=8, coef=f16, shape=triangle)",
                           "dct_chop(block=16, keep=4, coef=bf16)", "dct_chop(block=4, keep=2)"}) {
    const CodecSpec spec = CodecSpec::parse(text);
    const int block = params_of(spec).block;
    std::vector<double> values(64 * 64, 1.0);
    values[21 * 64 + 37] = std::numeric_limits<double>::quiet_NaN();
    const Tensor in = std::move(Tensor(DType::F32, {64, 64}).fill(values));
    const std::vector<double> back = unpacked_values(spec, packed_values(spec, in), in.shape());
    for (int i = 0; i < 64 * 64; ++i) {
      const bool same_block = i / 64 / block == 21 / block && i % 64 / block == 37 / block;
      ASSERT_EQ(std::isnan(back[static_cast<std::size_t>(i)]), same_block) << text << " at " << i;
    }
  }
}

}  // namespace
}  // namespace tuckfold
