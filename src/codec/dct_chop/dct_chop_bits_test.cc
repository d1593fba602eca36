// The kernels of dct_chop against its normative scalar functions, bit for bit: every target, every
// keep, widths around the kernels' steps, any alignment of the output, any number of threads.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/guarded_fixture.h"
#include "base/stream.h"
#include "base/target.h"
#include "base/tensor_fixture.h"
#include "codec/dct_chop/dct_chop.h"
#include "codec/dct_chop/dct_chop_block.h"
#include "tuckfold/version.h"

namespace tuckfold {
namespace {

using dct_chop::Params;
using ref::Buffer;
using ref::first_difference;
using ref::Guarded;
using ref::Pattern;
using ref::Tensor;

Params params_of(const CodecSpec& spec) { return Params::of(spec.stages()[0]); }

// ---- the codec in terms of dct_chop_block.h alone -----------------------------------------------

void forward(const Params& p, const float* x, float* coefs) {
  if (p.transform == dct_chop::Transform::Zfp) {
    dct_chop::forward_block<4>(dct_chop::kZfpForward, p.keep, x, 4, coefs);
  } else if (p.block == 4) {
    dct_chop::forward_block<4>(dct_chop::kDct<4>, p.keep, x, 4, coefs);
  } else if (p.block == 8) {
    dct_chop::forward_block<8>(dct_chop::kDct<8>, p.keep, x, 8, coefs);
  } else {
    dct_chop::forward_block<16>(dct_chop::kDct<16>, p.keep, x, 16, coefs);
  }
}
void inverse(const Params& p, const float* coefs, float* x) {
  if (p.transform == dct_chop::Transform::Zfp) {
    dct_chop::inverse_block<4>(dct_chop::kZfpInverse, p.keep, coefs, x, 4);
  } else if (p.block == 4) {
    dct_chop::inverse_block<4>(dct_chop::kDct<4>, p.keep, coefs, x, 4);
  } else if (p.block == 8) {
    dct_chop::inverse_block<8>(dct_chop::kDct<8>, p.keep, coefs, x, 8);
  } else {
    dct_chop::inverse_block<16>(dct_chop::kDct<16>, p.keep, coefs, x, 16);
  }
}

// Visits the kept coefficients: visit(block's place among all blocks, u, v, packed index).
template <class Visit>
void for_each_coef(const Params& p, std::int64_t planes, std::int64_t down, std::int64_t across,
                   Visit&& visit) {
  std::int64_t next = 0;
  for (std::int64_t b = 0; b < planes * down * across; ++b) {
    const std::int64_t block_row = b / across, col = b % across;
    for (int u = 0; u < p.keep; ++u) {
      for (int v = 0; v < (p.triangle ? p.keep - u : p.keep); ++v) {
        visit(b, u, v,
              p.triangle ? next++ : ((block_row * p.keep + u) * across + col) * p.keep + v);
      }
    }
  }
}

struct Plane {
  std::int64_t planes, rows, cols;
  std::int64_t down(int block) const { return (rows + block - 1) / block; }
  std::int64_t across(int block) const { return (cols + block - 1) / block; }
};

std::vector<std::byte> normative_pack(const Params& p, const Tensor& in, const Plane& g) {
  const int n = p.block;
  const std::int64_t down = g.down(n), across = g.across(n);
  std::vector<float> coefs(static_cast<std::size_t>(g.planes * down * across * p.keep * p.keep));
  for (std::int64_t b = 0; b < g.planes * down * across; ++b) {
    const std::int64_t plane = b / across / down, r = b / across % down * n, c = b % across * n;
    float x[16 * 16];
    for (int i = 0; i < n * n; ++i) {
      const std::int64_t row = std::min(r + i / n, g.rows - 1),
                         col = std::min(c + i % n, g.cols - 1);
      x[i] = static_cast<float>(in.get((plane * g.rows + row) * g.cols + col));
    }
    forward(p, x, &coefs[static_cast<std::size_t>(b * p.keep * p.keep)]);
  }
  std::vector<std::byte> packed(static_cast<std::size_t>(g.planes * down * across) *
                                static_cast<std::size_t>(p.values_per_block()) *
                                size_bytes(p.coef));
  for_each_coef(p, g.planes, down, across, [&](std::int64_t b, int u, int v, std::int64_t at) {
    ref::set(p.coef, packed.data(), at,
             coefs[static_cast<std::size_t>((b * p.keep + u) * p.keep + v)]);
  });
  return packed;
}

std::vector<std::byte> normative_unpack(const Params& p, const std::vector<std::byte>& packed,
                                        DType dtype, const Plane& g) {
  const int n = p.block;
  const std::int64_t down = g.down(n), across = g.across(n);
  std::vector<float> coefs(static_cast<std::size_t>(g.planes * down * across * p.keep * p.keep));
  for_each_coef(p, g.planes, down, across, [&](std::int64_t b, int u, int v, std::int64_t at) {
    coefs[static_cast<std::size_t>((b * p.keep + u) * p.keep + v)] =
        static_cast<float>(ref::get(p.coef, packed.data(), at));
  });
  std::vector<std::byte> out(static_cast<std::size_t>(g.planes * g.rows * g.cols) *
                             size_bytes(dtype));
  for (std::int64_t b = 0; b < g.planes * down * across; ++b) {
    const std::int64_t plane = b / across / down, r = b / across % down * n, c = b % across * n;
    float x[16 * 16];
    inverse(p, &coefs[static_cast<std::size_t>(b * p.keep * p.keep)], x);
    for (int i = 0; i < n * n; ++i) {
      const std::int64_t row = r + i / n, col = c + i % n;
      if (row >= g.rows || col >= g.cols) continue;
      ref::set(dtype, out.data(), (plane * g.rows + row) * g.cols + col, x[i]);
    }
  }
  return out;
}

// ---- on every target ----------------------------------------------------------------------------

struct Way {
  int threads;
  std::size_t shift;  // of the output, in bytes past a cache line
};
constexpr Way kWays[] = {{1, 0}, {1, 4}, {2, 32}, {3, 0}, {8, 60}};

class DctChopBits : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { use_cpu_target(GetParam()); }
  void TearDown() override { use_cpu_target(before_); }

  // Packs and unpacks in all ways of kWays; both must be what the normative functions give.
  static void expect_normative(const CodecSpec& spec, const Tensor& in, const Plane& g) {
    const Params p = params_of(spec);
    const std::vector<std::byte> packed = normative_pack(p, in, g);
    const std::vector<std::byte> unpacked = normative_unpack(p, packed, in.dtype(), g);
    for (const auto& [threads, shift] : kWays) {
      const std::string where =
          fmt::format("{} of {} {} on {} threads, shifted by {}", spec.print(),
                      to_string(in.dtype()), to_string(in.shape()), threads, shift);
      const Buffer got(packed.size(), shift);
      ASSERT_EQ(pack(spec, in.view(), got.span(), {.threads = threads}), packed.size()) << where;
      ASSERT_EQ(first_difference(p.coef, got.span(), packed), "") << "pack " << where;
      const Tensor out(in.dtype(), in.shape(), ref::Order::RowMajor,
                       shift / size_bytes(in.dtype()) * size_bytes(in.dtype()));
      unpack(spec, packed, out.view(), {.threads = threads});
      ASSERT_EQ(first_difference(in.dtype(), out.bytes(), unpacked), "") << "unpack " << where;
    }
  }

 private:
  std::string before_ = cpu_target();
};

TEST_P(DctChopBits, EightByEightInEveryWidth) {
  for (int keep = 1; keep <= 8; ++keep) {
    const CodecSpec spec = CodecSpec::parse(fmt::format("dct_chop(keep={})", keep));
    for (const std::int64_t cols :
         {8, 16, 24, 32, 40, 48, 56, 64, 72, 128, 136, 200, 256, 1024, 1032, 2048, 9000}) {
      // Enough block rows for several threads where that is cheap.
      const Plane g{.planes = 2, .rows = cols <= 72 ? 160 : 16, .cols = cols};
      const Pattern kind = cols % 3 == 0 ? Pattern::Hostile : Pattern::Random;
      const Tensor in = std::move(Tensor(DType::F32, {2, g.rows, cols}).fill(kind));
      expect_normative(spec, in, g);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(DctChopBits, InputsAtAnyAddress) {
  for (int keep = 1; keep <= 8; ++keep) {
    const CodecSpec spec = CodecSpec::parse(fmt::format("dct_chop(keep={})", keep));
    for (const std::size_t shift : {4, 28, 32}) {
      const Tensor in = std::move(
          Tensor(DType::F32, {48, 96}, ref::Order::RowMajor, shift).fill(Pattern::Random));
      expect_normative(spec, in, {1, 48, 96});
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(DctChopBits, EveryBlockShapeCoefAndTransform) {
  for (const auto& [block, transform] :
       {std::pair(4, "dct"), std::pair(4, "zfp"), std::pair(8, "dct"), std::pair(16, "dct")}) {
    for (int keep = 1; keep <= block; ++keep) {
      for (const char* shape : {"square", "triangle"}) {
        for (const char* coef : {"f32", "f16", "bf16"}) {
          const CodecSpec spec = CodecSpec::parse(
              fmt::format("dct_chop(block={}, keep={}, shape={}, coef={}, transform={})", block,
                          keep, shape, coef, transform));
          const Tensor in = std::move(Tensor(DType::F32, {2, 48, 80}).fill(Pattern::Hostile));
          expect_normative(spec, in, {2, 48, 80});
          // Padded on both sides; f64 has room for padding when all is kept.
          const Tensor odd = std::move(Tensor(DType::F64, {2, 29, 43}).fill(Pattern::Random));
          expect_normative(spec, odd, {2, 29, 43});
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(DctChopBits, EveryDTypeAndOddSides) {
  for (const DType dtype : {DType::F32, DType::F16, DType::BF16, DType::F64, DType::U8}) {
    const char* coef = dtype == DType::F32 || dtype == DType::F64 ? "f32" : "bf16";
    for (const int keep : {1, 3, 4}) {
      const CodecSpec spec =
          CodecSpec::parse(fmt::format("dct_chop(keep={}, coef={})", keep, coef));
      for (const auto& [rows, cols] : {std::pair(64, 64), std::pair(17, 250), std::pair(65, 31)}) {
        const Tensor in = std::move(Tensor(dtype, {2, rows, cols}).fill(Pattern::Random));
        expect_normative(spec, in, {2, rows, cols});
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(DctChopBits, WideBlockRowsOfEveryBlock) {
  for (const char* text : {"dct_chop(block=4, keep=2)", "dct_chop(block=16, keep=5)",
                           "dct_chop(keep=3, shape=triangle)", "dct_chop(keep=5, coef=f16)"}) {
    for (const std::int64_t cols : {4096, 4109}) {
      const Plane g{.planes = 1, .rows = 33, .cols = cols};
      const Tensor in = std::move(Tensor(DType::F32, {g.rows, cols}).fill(Pattern::Random));
      expect_normative(CodecSpec::parse(text), in, g);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(DctChopBits, NothingBesideTheTensorsIsReadOrWritten) {
  for (int keep = 1; keep <= 8; ++keep) {
    for (const char* rest : {"", ", coef=bf16", ", shape=triangle"}) {
      const CodecSpec spec = CodecSpec::parse(fmt::format("dct_chop(keep={}{})", keep, rest));
      for (const std::int64_t cols : {8, 16, 24, 40, 64, 256}) {
        for (const bool at_end : {false, true}) {
          const Shape shape{24, cols};
          const Tensor values = std::move(Tensor(DType::F32, shape).fill(Pattern::Random));
          const std::vector<std::byte> bytes = values.bytes();
          const Guarded in(bytes.size(), at_end), out(bytes.size(), at_end);
          std::copy(bytes.begin(), bytes.end(), in.data());
          const std::size_t packed_bytes = layout(spec, DType::F32, shape).max_bytes;
          const Guarded packed(packed_bytes, at_end);
          pack(spec, ConstTensorView(in.data(), DType::F32, shape), {packed.data(), packed_bytes});
          unpack(spec, {packed.data(), packed_bytes}, TensorView(out.data(), DType::F32, shape));
        }
      }
    }
  }
}

// Outputs past kStreamBytes leave by other stores. Plane by plane they are too small for that.
TEST_P(DctChopBits, StreamedOutputsAreTheSame) {
  struct Case {
    const char* spec;
    std::int64_t planes, rows, cols;
  };
  for (const Case& c :
       {Case{"dct_chop(keep=8)", 9, 512, 512}, Case{"dct_chop(keep=7)", 3, 1024, 1000},
        Case{"dct_chop(keep=6)", 15, 512, 512},
        Case{"dct_chop(keep=8, coef=bf16)", 17, 504, 512}}) {
    const CodecSpec spec = CodecSpec::parse(c.spec);
    const Shape plane{c.rows, c.cols}, shape{c.planes, c.rows, c.cols};
    const Tensor in = std::move(Tensor(DType::F32, shape).fill(Pattern::Random));
    const Layout fit = layout(spec, DType::F32, shape);
    ASSERT_GT(fit.max_bytes, kStreamBytes) << c.spec;
    const Buffer packed(fit.max_bytes);
    const Tensor back(DType::F32, shape);
    const std::size_t packed_bytes = fit.max_bytes / static_cast<std::size_t>(c.planes);
    for (std::int64_t i = 0; i < c.planes; ++i) {
      const std::span part =
          packed.span().subspan(packed_bytes * static_cast<std::size_t>(i), packed_bytes);
      const auto at = [&](const Tensor& tensor) {
        return static_cast<float*>(tensor.view().data) + i * plane.elems();
      };
      pack(spec, ConstTensorView(at(in), DType::F32, plane), part);
      unpack(spec, part, TensorView(at(back), DType::F32, plane));
    }
    for (const auto& [threads, shift] : {Way{1, 0}, Way{3, 4}}) {
      const Buffer got(fit.max_bytes, shift);
      pack(spec, in.view(), got.span(), {.threads = threads});
      ASSERT_EQ(first_difference(fit.dtype, got.span(), packed.span()), "") << c.spec;
      const Tensor out(DType::F32, shape, ref::Order::RowMajor, shift);
      unpack(spec, got.span(), out.view(), {.threads = threads});
      ASSERT_EQ(std::memcmp(out.view().data, back.view().data,
                            static_cast<std::size_t>(out.elems()) * sizeof(float)),
                0)
          << c.spec;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, DctChopBits, ::testing::ValuesIn(cpu_targets()),
                         [](const auto& target) { return target.param; });

}  // namespace
}  // namespace tuckfold
