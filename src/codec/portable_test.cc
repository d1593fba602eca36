// dct_chop as matrix products: the paper's closed forms against counted operations, and the
// operators against what pack and unpack give.
#include "tuckfold/portable.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/tensor_fixture.h"
#include "codec/dct_chop/dct_chop_ref.h"
#include "tuckfold/error.h"

namespace tuckfold {
namespace {

using ref::Dense;
using ref::Pattern;
using ref::Tensor;

CodecSpec spec_of(int keep, int serialize = 1, const char* rest = "") {
  return CodecSpec::parse(fmt::format("dct_chop(keep={}, serialize={}{})", keep, serialize, rest));
}

std::string refusal(auto&& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::InvalidArgument);
    return error.what();
  }
  return "accepted";
}

// Counts instead of multiplying: b products and b - 1 sums for each of a * c results.
std::int64_t counted(std::int64_t a, std::int64_t b, std::int64_t c) {
  std::int64_t count = 0;
  for (std::int64_t entry = 0; entry < a * c; ++entry) count += b + (b - 1);
  return count;
}

Dense dense_of(const Matrix& m) {
  EXPECT_EQ(m.values.size(), static_cast<std::size_t>(m.rows * m.cols));
  Dense d(m.rows, m.cols);
  std::copy(m.values.begin(), m.values.end(), d.values.begin());
  return d;
}

// Part of a matrix, and that part put back.
Dense tile_of(const Dense& a, std::int64_t row, std::int64_t col, std::int64_t rows,
              std::int64_t cols) {
  Dense tile(rows, cols);
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < cols; ++j) tile.at(i, j) = a.at(row + i, col + j);
  }
  return tile;
}
void put_tile(Dense& a, std::int64_t row, std::int64_t col, const Dense& tile) {
  for (std::int64_t i = 0; i < tile.rows; ++i) {
    for (std::int64_t j = 0; j < tile.cols; ++j) a.at(row + i, col + j) = tile.at(i, j);
  }
}

// left · tile · right for each of s x s tiles.
Dense in_tiles(const Dense& left, const Dense& a, const Dense& right, int s) {
  Dense result(left.rows * s, right.cols * s);
  for (int r = 0; r < s; ++r) {
    for (int c = 0; c < s; ++c) {
      const Dense tile = tile_of(a, r * left.cols, c * right.rows, left.cols, right.rows);
      put_tile(result, r * left.rows, c * right.cols,
               ref::product(ref::product(left, tile), right));
    }
  }
  return result;
}

TEST(Portable, RatioIsEquationThree) {
  for (int keep = 1; keep <= 8; ++keep) {
    EXPECT_EQ(ratio(spec_of(keep)), 64.0 / (keep * keep));
    EXPECT_EQ(ratio(spec_of(keep, 2, ", shape=triangle")), 128.0 / (keep * (keep + 1)));
    EXPECT_EQ(ratio(spec_of(keep, 1, ", coef=f16")), 64.0 / (keep * keep));  // in values
  }
  EXPECT_EQ(ratio(CodecSpec::parse("dct_chop(block=16, keep=4)")), 16.0);
  EXPECT_EQ(ratio(CodecSpec::parse("dct_chop(block=4, keep=3, shape=triangle)")), 16.0 / 6);
}

TEST(Portable, FlopsAreEquationsFiveAndSevenForSquares) {
  for (std::int64_t n = 8; n <= 512; n += 8) {
    for (int keep = 1; keep <= 8; ++keep) {
      const auto size = static_cast<double>(n);
      const double cf = keep / 8.0;
      const double common = 2 * size * size * size * cf * (cf + 1);
      const Flops count = flops(spec_of(keep), n, n);
      EXPECT_EQ(static_cast<double>(count.pack), common - size * size * (cf + cf * cf));
      EXPECT_EQ(static_cast<double>(count.unpack), common - size * size * (cf + 1));
    }
  }
}

TEST(Portable, FlopsAreTheOperationsOfTheDenseProducts) {
  for (const auto& [rows, cols] : {std::pair(8, 8), std::pair(64, 64), std::pair(32, 96)}) {
    for (int keep = 1; keep <= 8; ++keep) {
      for (const int s : {1, 2, 4}) {
        if (rows % (8 * s) != 0 || cols % (8 * s) != 0) continue;
        const CodecSpec spec = spec_of(keep, s);
        const MatmulForm form = matmul_form(spec, rows, cols);
        const Flops count = flops(spec, rows, cols);
        const std::int64_t tiles = form.tiles, h = form.tile_rows, w = form.tile_cols;
        const std::int64_t y_h = form.lhs.rows, y_w = form.rhs.cols;
        // Either product may come first; for squares both orders cost the same.
        const std::int64_t pack_left = counted(y_h, h, w) + counted(y_h, w, y_w);
        const std::int64_t pack_right = counted(h, w, y_w) + counted(y_h, h, y_w);
        const std::int64_t unpack_left = counted(h, y_h, y_w) + counted(h, y_w, w);
        const std::int64_t unpack_right = counted(y_h, y_w, w) + counted(h, y_h, w);
        EXPECT_TRUE(count.pack == tiles * pack_left || count.pack == tiles * pack_right);
        EXPECT_TRUE(count.unpack == tiles * unpack_left || count.unpack == tiles * unpack_right);
      }
    }
  }
}

// s x s tiles of 1/s the side: s*s times (1/s)^3 of the cubic part.
TEST(Portable, SerializingDividesTheWorkByS) {
  for (int keep = 1; keep <= 8; ++keep) {
    const auto whole = static_cast<double>(flops(spec_of(keep), 512, 512).pack);
    for (const int s : {2, 4, 8}) {
      EXPECT_NEAR(static_cast<double>(flops(spec_of(keep, s), 512, 512).pack) * s / whole, 1.0,
                  0.01);
    }
  }
}

TEST(Portable, OperatorsAreThePapersToTheNearestFloat) {
  for (const char* text :
       {"dct_chop(block=4, keep=3)", "dct_chop(keep=5)", "dct_chop(keep=8)",
        "dct_chop(block=16, keep=7)", "dct_chop(block=4, keep=3, transform=zfp)"}) {
    const CodecSpec spec = CodecSpec::parse(text);
    const ref::Params p = ref::Params::of(spec.stages()[0]);
    const MatmulForm form = matmul_form(spec, 32, 48);
    const auto same = [&](const Matrix& ours, const Dense& papers) {
      ASSERT_EQ(ours.rows, papers.rows) << text;
      ASSERT_EQ(ours.cols, papers.cols) << text;
      for (std::size_t i = 0; i < papers.values.size(); ++i) {
        ASSERT_NEAR(ours.values[i], papers.values[i], 0x1p-25) << text << ' ' << i;
        ASSERT_EQ(ours.values[i] == 0, std::abs(papers.values[i]) < 1e-12) << text << ' ' << i;
      }
    };
    same(form.lhs, ref::lhs(p, 32));
    same(form.rhs, ref::rhs(p, 48));
    same(form.back_lhs, ref::back_lhs(p, 32));
    same(form.back_rhs, ref::back_rhs(p, 48));
  }
}

TEST(Portable, TilesGiveThePackedTensorToRounding) {
  for (const char* rest : {"", ", block=4, transform=zfp"}) {
    for (const int keep : {1, 2, 4}) {
      for (const int s : {1, 2, 4}) {
        const CodecSpec spec = spec_of(keep, s, rest);
        const std::int64_t rows = 64, cols = 96;
        const MatmulForm form = matmul_form(spec, rows, cols);
        EXPECT_EQ(form.tiles, s * s);
        EXPECT_EQ(form.tile_rows, rows / s);
        EXPECT_EQ(form.tile_cols, cols / s);
        const Tensor in = std::move(Tensor(DType::F32, {rows, cols}).fill(Pattern::Random));
        Dense a(rows, cols);
        a.values = in.values();
        const Dense y = in_tiles(dense_of(form.lhs), a, dense_of(form.rhs), s);
        const Tensor packed(DType::F32, {y.rows, y.cols});
        pack(spec, in.view(), {static_cast<std::byte*>(packed.view().data), y.values.size() * 4});
        for (std::size_t i = 0; i < y.values.size(); ++i) {
          ASSERT_NEAR(packed.get(static_cast<std::int64_t>(i)), y.values[i], 3e-6) << spec.print();
        }
        Dense stored(y.rows, y.cols);
        stored.values = packed.values();
        const Dense back = in_tiles(dense_of(form.back_lhs), stored, dense_of(form.back_rhs), s);
        const Tensor out(DType::F32, {rows, cols});
        unpack(spec, packed.bytes(), out.view());
        for (std::size_t i = 0; i < back.values.size(); ++i) {
          ASSERT_NEAR(out.get(static_cast<std::int64_t>(i)), back.values[i], 3e-6) << spec.print();
        }
      }
    }
  }
}

TEST(Portable, OperatorsShrinkByTheSquareOfSerialize) {
  const std::size_t whole = matmul_form(spec_of(4), 256, 256).workspace_bytes;
  EXPECT_EQ(whole, 2u * 256 * 128 * sizeof(float));
  for (const int s : {2, 4, 8}) {
    EXPECT_EQ(
        matmul_form(spec_of(4, s), 256, 256).workspace_bytes * static_cast<std::size_t>(s * s),
        whole);
  }
}

TEST(Portable, WhatIsNoSquareDctChopOfWholeTilesIsInvalid) {
  const auto form = [](std::string_view text, std::int64_t rows, std::int64_t cols) {
    return refusal([&] { matmul_form(CodecSpec::parse(text), rows, cols); });
  };
  EXPECT_EQ(form("dct_chop", 20, 32),
            "[matmul_form] both sides must be multiples of block * serialize = 8, got 20 x 32; pad "
            "first");
  EXPECT_NE(form("dct_chop(serialize=4)", 16, 32), "accepted");
  EXPECT_NE(form("dct_chop", 0, 32), "accepted");
  EXPECT_NE(form("dct_chop", -8, 32), "accepted");
  EXPECT_NE(form("dct_chop(shape=triangle)", 32, 32), "accepted");
  EXPECT_EQ(form("raw", 32, 32), "[matmul_form] needs one dct_chop, got raw");
  EXPECT_NE(form("dct_chop | raw", 32, 32), "accepted");
  EXPECT_EQ(refusal([] { ratio(CodecSpec::parse("raw")); }), "[ratio] needs one dct_chop, got raw");
  EXPECT_NE(refusal([] { ratio(CodecSpec()); }), "accepted");
  EXPECT_NE(refusal([] { flops(CodecSpec::parse("dct_chop"), 12, 8); }), "accepted");
}

// Products of sides that overflow must be noticed before anything is allocated or counted.
TEST(Portable, PlanesTooLargeForAnyMatrixAreInvalid) {
  constexpr std::int64_t kSides[] = {std::int64_t{1} << 33, std::int64_t{1} << 62};
  for (const std::int64_t side : kSides) {
    EXPECT_NE(refusal([&] { matmul_form(spec_of(4), side, 8); }), "accepted") << side;
    EXPECT_NE(refusal([&] { matmul_form(spec_of(4), 8, side); }), "accepted") << side;
    EXPECT_NE(refusal([&] { flops(spec_of(4), side, side); }), "accepted") << side;
  }
}

}  // namespace
}  // namespace tuckfold
