// What every codec promises about its bytes, for specs generated from the registry.
#include <gtest/gtest.h>
#include <xmmintrin.h>

#include <cfenv>
#include <random>

#include "base/target.h"
#include "base/tensor_fixture.h"
#include "codec/contract_fixture.h"
#include "tuckfold/version.h"

namespace tuckfold {
namespace {

using ref::Buffer;
using ref::first_difference;
using ref::Order;
using ref::Pattern;
using ref::suits;
using ref::Tensor;

class Contract : public ::testing::TestWithParam<ref::Group> {
 protected:
  void SetUp() override {
    if (const std::string why = ref::missing(GetParam()); !why.empty()) GTEST_SKIP() << why;
  }

  // Calls check(spec, tensor, layout) for every spec with the dtypes and shapes that it takes;
  // where it takes none of the dtypes with any that it takes, where it takes none of the shapes
  // with a plane that has enough blocks for serialize=64.
  template <class Check>
  void for_each_case(std::span<const DType> dtypes, const std::vector<Shape>& shapes, Pattern kind,
                     Check&& check) {
    for (const CodecSpec& spec : GetParam().specs) {
      int suited = 0;
      const auto run = [&](DType dtype, const Shape& shape) {
        if (!suits(spec, dtype, shape) || HasFatalFailure()) return;
        ++suited;
        SCOPED_TRACE(fmt::format("{} of {} {}", spec.print(), to_string(dtype), to_string(shape)));
        const Layout fit = layout(spec, dtype, shape);
        check(spec, ref::input_for(spec, dtype, shape, kind), fit);
      };
      const auto run_all = [&](std::span<const DType> some) {
        for (const DType dtype : some) {
          for (const Shape& shape : shapes) run(dtype, shape);
        }
      };
      run_all(dtypes);
      if (suited == 0) run_all(kDTypes);
      for (const std::int64_t side : {256, 512, 1024}) {
        if (suited == 0) run(DType::F32, {side, side});
      }
      if (suited == 0) run(DType::F64, {256, 256});
      if (suited == 0) run(DType::I64, {6, 5, 1, 1});  // pool_index(width=1)
      ASSERT_GT(suited, 0) << spec.print() << " takes none of the shapes";
    }
  }
};

const std::vector<Shape> kShapes = {{24, 40}, {2, 3, 17, 19}, {3, 64, 2, 2, 2}, {70}, {64, 64}, {1},
                                    {},       {3, 0, 8}};
const std::vector<Shape> kTwoShapes = {{2, 24, 40}, {2, 33, 21}};
constexpr DType kOne[] = {DType::F32};

std::vector<std::byte> packed(const CodecSpec& spec, const Tensor& in, const Layout& fit,
                              const RunOptions& options = {.seed = 7}) {
  std::vector<std::byte> out(fit.max_bytes);
  out.resize(pack(spec, in.view(), out, options));
  return out;
}
std::vector<std::byte> unpacked(const CodecSpec& spec, const std::vector<std::byte>& bytes,
                                const Tensor& like, const RunOptions& options = {.seed = 7}) {
  const Tensor out(like.dtype(), like.shape());
  unpack(spec, bytes, out.view(), options);
  return out.bytes();
}

TEST_P(Contract, LayoutIsExactAndNothingIsWrittenBeyond) {
  for_each_case(
      kDTypes, kShapes, Pattern::Random,
      [](const CodecSpec& spec, const Tensor& in, const Layout& fit) {
        const Buffer out(fit.max_bytes + 64);
        const std::size_t written = pack(spec, in.view(), out.span());
        ASSERT_LE(written, fit.max_bytes);
        if (fit.fixed) {
          ASSERT_EQ(written, fit.max_bytes);
          ASSERT_LE(fit.max_bytes, static_cast<std::size_t>(in.elems()) * size_bytes(in.dtype()));
        }
        for (std::size_t i = fit.max_bytes; i < out.size(); ++i) {
          ASSERT_EQ(out.data()[i], ref::kUntouched);
        }
        ASSERT_EQ(static_cast<std::size_t>(fit.shape.elems()) * size_bytes(fit.dtype),
                  fit.max_bytes);
        const Tensor back(in.dtype(), in.shape());
        unpack(spec, out.span().first(written), back.view());
        if (ref::exact(spec)) {
          ASSERT_EQ(back.bytes(), in.bytes());
          return;
        }
        // Values come back in sight of themselves.
        const double limit = in.dtype() == DType::U8 ? 255 : 4 * ref::scale_of(in.dtype());
        for (const double value : back.values()) ASSERT_LE(std::abs(value), limit);
      });
}

TEST_P(Contract, ExactCodecsGiveBackEveryBitOfHostileValues) {
  for_each_case(kDTypes, kTwoShapes, Pattern::Hostile,
                [](const CodecSpec& spec, const Tensor& in, const Layout& fit) {
                  if (ref::exact(spec)) {
                    ASSERT_EQ(unpacked(spec, packed(spec, in, fit), in), in.bytes());
                  }
                });
}

TEST_P(Contract, OutputsOneByteTooSmallAreInvalid) {
  for_each_case(kDTypes, kTwoShapes, Pattern::Constant,
                [](const CodecSpec& spec, const Tensor& in, const Layout& fit) {
                  const Buffer out(fit.max_bytes - 1);
                  ASSERT_EQ(ref::code_of([&] { pack(spec, in.view(), out.span()); }),
                            Errc::InvalidArgument);
                  ASSERT_EQ(std::count(out.span().begin(), out.span().end(), ref::kUntouched),
                            static_cast<std::ptrdiff_t>(out.size()));
                });
}

TEST_P(Contract, PackedBytesOfAnotherNumberAreCorrupt) {
  for_each_case(
      kDTypes, kTwoShapes, Pattern::Constant,
      [](const CodecSpec& spec, const Tensor& in, const Layout& fit) {
        const Tensor out(in.dtype(), in.shape());
        const std::vector<std::byte> bytes(fit.max_bytes + 1);
        for (const std::size_t size : {fit.max_bytes + 1, fit.max_bytes - 1, std::size_t{0}}) {
          if (!fit.fixed && size < fit.max_bytes) continue;
          const std::span<const std::byte> part(bytes.data(), size);
          ASSERT_EQ(ref::code_of([&] { unpack(spec, part, out.view()); }), Errc::CorruptData)
              << size;
        }
      });
}

// To the same values on every target: infinities and NaN are among them.
TEST_P(Contract, RandomBytesUnpackOrAreCorrupt) {
  const std::string before = cpu_target();
  std::mt19937 random(5);
  for_each_case(kDTypes, kTwoShapes, Pattern::Constant,
                [&](const CodecSpec& spec, const Tensor& in, const Layout& fit) {
                  std::vector<std::byte> bytes(fit.max_bytes);
                  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
                  std::vector<std::byte> wanted;
                  for (const std::string& target : cpu_targets()) {
                    use_cpu_target(target);
                    const Tensor out(in.dtype(), in.shape(), Order::Gapped);
                    try {
                      unpack(spec, bytes, out.view());
                    } catch (const Error& error) {
                      ASSERT_EQ(error.code(), Errc::CorruptData) << error.what();
                      continue;
                    }
                    ASSERT_TRUE(out.gaps_untouched());
                    if (wanted.empty()) wanted = out.bytes();
                    ASSERT_EQ(first_difference(in.dtype(), out.bytes(), wanted), "") << target;
                  }
                });
  use_cpu_target(before);
}

// bounded keeps the bits of what it cannot hold to its bound; whatever else loses something has one
// NaN.
TEST_P(Contract, NansThatComeBackAreCanonical) {
  constexpr DType kFloats[] = {DType::F32, DType::F16, DType::BF16, DType::F64};
  for_each_case(kFloats, kTwoShapes, Pattern::Hostile,
                [](const CodecSpec& spec, const Tensor& in, const Layout& fit) {
                  if (ref::exact(spec) || spec.stages()[0].codec->name == "bounded") return;
                  const Tensor out(in.dtype(), in.shape());
                  unpack(spec, packed(spec, in, fit), out.view());
                  for (std::int64_t i = 0; i < out.elems(); ++i) {
                    if (std::isnan(out.get(i))) {
                      ASSERT_EQ(out.bits(i), ref::canonical_nan(in.dtype())) << i;
                    }
                  }
                });
}

// Arithmetic in f32 holds every sum of f16 values, so all of them come back finite.
TEST_P(Contract, FiniteF16ComesBackFinite) {
  constexpr DType kHalf[] = {DType::F16};
  for_each_case(kHalf, kTwoShapes, Pattern::Constant,
                [](const CodecSpec& spec, const Tensor& like, const Layout& fit) {
                  if (like.dtype() != DType::F16 || ref::exact(spec)) return;
                  std::mt19937 random(9);
                  for (int kind = 0; kind < 3; ++kind) {
                    Tensor in(DType::F16, like.shape());
                    for (std::int64_t i = 0; i < in.elems(); ++i) {
                      const std::uint64_t largest = 0x7bffu - (kind == 0 ? 0 : random() % 16);
                      const bool negative = kind == 1 || (kind == 2 && random() % 2 == 0);
                      in.set_bits(i, largest | (negative ? 0x8000u : 0));
                    }
                    const Tensor out(DType::F16, in.shape());
                    unpack(spec, packed(spec, in, fit), out.view());
                    for (const double value : out.values()) ASSERT_TRUE(std::isfinite(value));
                  }
                });
}

TEST_P(Contract, ThreadsDoNotChangeTheBytes) {
  for (const Pattern kind : {Pattern::Random, Pattern::Hostile}) {
    for_each_case(
        kOne, {{3, 168, 72}}, kind, [](const CodecSpec& spec, const Tensor& in, const Layout& fit) {
          const std::vector<std::byte> wanted = packed(spec, in, fit, {.threads = 1, .seed = 7});
          const std::vector<std::byte> back = unpacked(spec, wanted, in, {.threads = 1});
          for (const int threads : {1, 2, 3, 8}) {
            const RunOptions options{.threads = threads, .seed = 7};
            ASSERT_EQ(first_difference(fit.dtype, packed(spec, in, fit, options), wanted), "")
                << threads << " threads";
            ASSERT_EQ(first_difference(in.dtype(), unpacked(spec, wanted, in, options), back), "")
                << threads << " threads";
          }
        });
  }
}

TEST_P(Contract, CpuTargetsDoNotChangeTheBytes) {
  const std::string before = cpu_target();
  for (const Pattern kind : {Pattern::Random, Pattern::Hostile}) {
    for_each_case(
        kDTypes, kTwoShapes, kind, [](const CodecSpec& spec, const Tensor& in, const Layout& fit) {
          use_cpu_target(cpu_targets().back());
          const std::vector<std::byte> wanted = packed(spec, in, fit);
          const std::vector<std::byte> back = unpacked(spec, wanted, in);
          for (const std::string& target : cpu_targets()) {
            use_cpu_target(target);
            ASSERT_EQ(first_difference(fit.dtype, packed(spec, in, fit), wanted), "") << target;
            ASSERT_EQ(first_difference(in.dtype(), unpacked(spec, wanted, in), back), "") << target;
          }
        });
  }
  use_cpu_target(before);
}

TEST_P(Contract, StridesDoNotChangeTheBytes) {
  for_each_case(kDTypes, kTwoShapes, Pattern::Random,
                [](const CodecSpec& spec, const Tensor& in, const Layout& fit) {
                  const std::vector<std::byte> wanted = packed(spec, in, fit);
                  const std::vector<std::byte> back = unpacked(spec, wanted, in);
                  for (const Order order : ref::kOrders) {
                    const Tensor other(in.dtype(), in.shape(), order);
                    unpack(CodecSpec::parse("raw"), in.bytes(), other.view());
                    ASSERT_EQ(packed(spec, other, fit), wanted) << static_cast<int>(order);
                    const Tensor out(in.dtype(), in.shape(), order);
                    unpack(spec, wanted, out.view());
                    ASSERT_EQ(out.bytes(), back) << static_cast<int>(order);
                    ASSERT_TRUE(out.gaps_untouched()) << static_cast<int>(order);
                  }
                });
}

TEST_P(Contract, RowsThatPackAloneGiveTheBytesOfTheWhole) {
  const std::vector<Shape> shapes = {{5, 24, 40}, {3, 2, 17, 19}, {4, 8, 8}, {6, 16}, {7}};
  for_each_case(kDTypes, shapes, Pattern::Random,
                [](const CodecSpec& spec, const Tensor& in, const Layout& fit) {
                  if (!rows_independent(spec, in.shape())) return;
                  ASSERT_TRUE(fit.fixed);
                  const std::vector<std::byte> whole = packed(spec, in, fit);
                  const std::vector<std::byte> values = unpacked(spec, whole, in);
                  const std::vector<std::byte> given = in.bytes();
                  Shape row = in.shape();
                  const auto rows = static_cast<std::size_t>(row[0]);
                  row[0] = 1;
                  const std::size_t each = fit.max_bytes / rows;
                  ASSERT_EQ(layout(spec, in.dtype(), row).max_bytes, each);
                  for (std::size_t i = 0; i < rows; ++i) {
                    const Tensor one(in.dtype(), row);
                    const std::size_t bytes = one.bytes().size();
                    unpack(CodecSpec::parse("raw"), std::span(given).subspan(i * bytes, bytes),
                           one.view());
                    const std::vector<std::byte> part(
                        whole.begin() + static_cast<std::ptrdiff_t>(i * each),
                        whole.begin() + static_cast<std::ptrdiff_t>((i + 1) * each));
                    ASSERT_EQ(packed(spec, one, layout(spec, in.dtype(), row)), part) << i;
                    const std::vector<std::byte> back = unpacked(spec, part, one);
                    ASSERT_TRUE(std::equal(back.begin(), back.end(),
                                           values.begin() + static_cast<std::ptrdiff_t>(i * bytes)))
                        << i;
                  }
                });
}

TEST_P(Contract, PackedBytesMayLieAtAnyAddress) {
  for_each_case(
      kOne, kTwoShapes, Pattern::Random,
      [](const CodecSpec& spec, const Tensor& in, const Layout& fit) {
        const std::vector<std::byte> wanted = packed(spec, in, fit);
        const std::vector<std::byte> back = unpacked(spec, wanted, in);
        for (const std::size_t shift : {1, 2, 7, 63}) {
          const Buffer out(fit.max_bytes, shift);
          ASSERT_EQ(pack(spec, in.view(), out.span(), {.seed = 7}), wanted.size());
          ASSERT_EQ(first_difference(DType::U8, out.span().first(wanted.size()), wanted), "")
              << shift;
          const Tensor again(in.dtype(), in.shape());
          unpack(spec, out.span().first(wanted.size()), again.view());
          ASSERT_EQ(again.bytes(), back) << shift;
        }
      });
}

// Parameters with decimals that are no f64, read and used under every mode of rounding.
TEST(CodecModes, TheCallersRoundingDoesNotChangeASpecOrItsBytes) {
  Tensor in(DType::F32, {2, 33, 21});
  in.fill(Pattern::Random);
  for (const char* text : {"bounded(rel=0.01)", "bounded(abs=0.3)", "bounded(abs=1/3)",
                           "dct_quant(rate=4, offset=0.1)", "dct_quant(rate=4, offset=0.3)",
                           "dct_quant(rate=2, offset=-1/3, clamp=zero)"}) {
    const CodecSpec spec = CodecSpec::parse(text);
    const std::string print = spec.print();
    const Layout fit = layout(spec, in.dtype(), in.shape());
    const std::vector<std::byte> wanted = packed(spec, in, fit);
    const std::vector<std::byte> back = unpacked(spec, wanted, in);
    for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
      std::fesetround(mode);
      const CodecSpec again = CodecSpec::parse(text);
      const std::string print_again = again.print();
      const std::vector<std::byte> bytes = packed(again, in, fit);
      const std::vector<std::byte> values = unpacked(again, wanted, in);
      std::fesetround(FE_TONEAREST);
      EXPECT_EQ(again, spec) << text << " in mode " << mode;
      EXPECT_EQ(print_again, print);
      EXPECT_EQ(first_difference(fit.dtype, bytes, wanted), "") << text << " in mode " << mode;
      EXPECT_EQ(first_difference(in.dtype(), values, back), "") << text << " in mode " << mode;
    }
  }
}

// Rounding upward, subnormals off, and traps on: what a caller may have set for itself.
TEST_P(Contract, TheCallersFloatingPointModesDoNotMatterAndStay) {
  for (const Pattern kind : {Pattern::Random, Pattern::Hostile}) {
    for_each_case(kDTypes, {{2, 33, 21}}, kind,
                  [](const CodecSpec& spec, const Tensor& in, const Layout& fit) {
                    const std::vector<std::byte> wanted = packed(spec, in, fit);
                    const std::vector<std::byte> back = unpacked(spec, wanted, in);
                    for (const int threads : {1, 2}) {
                      std::fenv_t saved;
                      std::fegetenv(&saved);
                      std::fesetround(FE_UPWARD);
                      feenableexcept(FE_INVALID | FE_OVERFLOW | FE_DIVBYZERO);
                      constexpr unsigned kFlushToZero = 0x8000, kZeroForSubnormals = 0x0040;
                      _mm_setcsr(_mm_getcsr() | kFlushToZero | kZeroForSubnormals);
                      const unsigned modes = _mm_getcsr();
                      const RunOptions options{.threads = threads, .seed = 7};
                      const std::vector<std::byte> bytes = packed(spec, in, fit, options);
                      const std::vector<std::byte> values = unpacked(spec, wanted, in, options);
                      const unsigned modes_after = _mm_getcsr();
                      const int rounding_after = std::fegetround();
                      std::fesetenv(&saved);
                      ASSERT_EQ(modes_after, modes);
                      ASSERT_EQ(rounding_after, FE_UPWARD);
                      ASSERT_EQ(first_difference(fit.dtype, bytes, wanted), "");
                      ASSERT_EQ(first_difference(in.dtype(), values, back), "");
                    }
                  });
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, Contract, ::testing::ValuesIn(ref::groups()),
                         [](const auto& group) { return group.param.name; });

}  // namespace
}  // namespace tuckfold
