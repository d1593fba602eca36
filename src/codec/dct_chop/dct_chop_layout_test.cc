// Which planes dct_chop sees in a tensor, what it packs them to, and what it refuses.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/tensor_fixture.h"
#include "codec/dct_chop/dct_chop.h"
#include "tuckfold/error.h"

namespace tuckfold {
namespace {

using ref::first_difference;
using ref::Order;
using ref::Pattern;
using ref::Tensor;

CodecSpec spec_of(std::string_view text) { return CodecSpec::parse(text); }

std::vector<std::byte> packed(const CodecSpec& spec, const ConstTensorView& in) {
  std::vector<std::byte> out(layout(spec, in.dtype, in.shape).max_bytes);
  EXPECT_EQ(pack(spec, in, out), out.size());
  return out;
}

std::string refusal(std::string_view text, DType dtype, const Shape& shape) {
  try {
    layout(spec_of(text), dtype, shape);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::InvalidArgument);
    return error.what();
  }
  return "accepted";
}

TEST(DctChopLayout, APackedSquareTensorIsThePapersMatrix) {
  for (int keep = 1; keep <= 8; ++keep) {
    const CodecSpec spec = spec_of(fmt::format("dct_chop(keep={})", keep));
    const Layout fit = layout(spec, DType::F32, {5, 3, 32, 64});
    EXPECT_EQ(fit.shape, Shape({5, 3, keep * 4, keep * 8}));
    EXPECT_EQ(fit.dtype, DType::F32);
    EXPECT_EQ(fit.max_bytes, static_cast<std::size_t>(5 * 3 * keep * 4 * keep * 8 * 4));
    EXPECT_TRUE(fit.fixed);
    EXPECT_EQ(fit.workspace_bytes, 0u);
  }
}

TEST(DctChopLayout, TrianglesAreBlocksByTheirValues) {
  const Layout fit =
      layout(spec_of("dct_chop(keep=5, shape=triangle, coef=f16)"), DType::F32, {2, 32, 24});
  EXPECT_EQ(fit.shape, Shape({2, 12, 15}));
  EXPECT_EQ(fit.dtype, DType::F16);
  EXPECT_EQ(fit.max_bytes, 2u * 12 * 15 * 2);
}

// Columns fold first, then rows, each only as far as it must.
TEST(DctChopLayout, TrailingAxesFoldUntilBothSidesReachTheBlock) {
  struct Case {
    int block;
    Shape shape, plane, grid;  // grid: the packed shape for keep=1
  };
  for (const Case& c : {
           Case{8, {8, 8}, {8, 8}, {1, 1}},
           Case{8, {4, 16, 24}, {4, 16, 24}, {4, 2, 3}},
           Case{8, {64, 3, 3}, {64, 9}, {8, 2}},
           Case{8, {16, 4, 4}, {16, 16}, {2, 2}},
           Case{8, {10, 8, 2, 2, 2}, {10, 8, 8}, {10, 1, 1}},
           Case{8, {10, 4, 2, 2, 2, 2}, {10, 8, 8}, {10, 1, 1}},
           Case{4, {6, 3, 3}, {6, 9}, {2, 3}},
           Case{16, {5, 6, 7, 8}, {30, 56}, {2, 4}},
           Case{8, {8, 1, 1, 8}, {8, 8}, {1, 1}},
           Case{8, {3, 1, 64, 5, 1}, {192, 5 * 64}, {}},
       }) {
    const CodecSpec spec = spec_of(fmt::format("dct_chop(block={}, keep=1)", c.block));
    if (c.grid.rank() == 0) {  // 320 columns would leave three rows
      EXPECT_NE(refusal(spec.print(), DType::F32, c.shape), "accepted") << to_string(c.shape);
      continue;
    }
    EXPECT_EQ(layout(spec, DType::F32, c.shape).shape, c.grid) << to_string(c.shape);
    const Tensor folded = std::move(Tensor(DType::F32, c.shape).fill(Pattern::Random));
    const Tensor plane = std::move(Tensor(DType::F32, c.plane).fill(Pattern::Random));
    EXPECT_EQ(packed(spec, folded.view()), packed(spec, plane.view())) << to_string(c.shape);
  }
}

TEST(DctChopLayout, EdgesArePaddedByRepetitionAndCroppedBack) {
  for (const char* text : {"dct_chop(keep=4)", "dct_chop(keep=3, shape=triangle, coef=bf16)",
                           "dct_chop(block=16, keep=7)", "dct_chop(block=4, keep=2)"}) {
    const CodecSpec spec = spec_of(text);
    constexpr std::int64_t kRows = 27, kCols = 45, kWholeRows = 32, kWholeCols = 48;
    const Tensor odd = std::move(Tensor(DType::F32, {2, kRows, kCols}).fill(Pattern::Random));
    const auto block = static_cast<std::int64_t>(spec.stages()[0]["block"]);
    const std::int64_t rows = (kRows + block - 1) / block * block;
    const std::int64_t cols = (kCols + block - 1) / block * block;
    ASSERT_LE(rows, kWholeRows);
    ASSERT_LE(cols, kWholeCols);
    std::vector<double> values;
    for (std::int64_t i = 0; i < 2 * rows * cols; ++i) {
      const std::int64_t row = std::min(i / cols % rows, kRows - 1),
                         col = std::min(i % cols, kCols - 1);
      values.push_back(odd.get((i / cols / rows * kRows + row) * kCols + col));
    }
    const Tensor whole = std::move(Tensor(DType::F32, {2, rows, cols}).fill(values));
    const std::vector<std::byte> bytes = packed(spec, odd.view());
    EXPECT_EQ(bytes, packed(spec, whole.view())) << text;

    const Tensor back(DType::F32, odd.shape()), whole_back(DType::F32, whole.shape());
    unpack(spec, bytes, back.view());
    unpack(spec, bytes, whole_back.view());
    for (std::int64_t i = 0; i < back.elems(); ++i) {
      const std::int64_t plane = i / kCols / kRows, row = i / kCols % kRows;
      ASSERT_EQ(back.get(i), whole_back.get((plane * rows + row) * cols + i % kCols)) << text;
    }
  }
}

TEST(DctChopLayout, RepeatedInputsNeedNoCopy) {
  const std::vector<float> line = [] {
    std::vector<float> values;
    for (int i = 0; i < 40; ++i) values.push_back(static_cast<float>(i * i % 17));
    return values;
  }();
  const CodecSpec spec = spec_of("dct_chop(keep=4)");
  struct Case {
    Shape shape, strides;
  };
  for (const Case& c :
       {Case{{16, 40}, {0, 1}}, Case{{40, 16}, {1, 0}}, Case{{3, 8, 40}, {0, 0, 1}},
        Case{{16, 24}, {0, 0}}, Case{{33, 8}, {1, 1}}, Case{{2, 8, 8}, {0, 4, 1}}}) {
    const ConstTensorView repeated(line.data(), DType::F32, c.shape, c.strides);
    Tensor copy(DType::F32, c.shape);
    std::vector<double> values;
    for (std::int64_t i = 0; i < copy.elems(); ++i) {
      std::int64_t at = 0, index = i;
      for (std::size_t axis = c.shape.rank(); axis-- > 0; index /= c.shape[axis]) {
        at += index % c.shape[axis] * c.strides[axis];
      }
      values.push_back(line[static_cast<std::size_t>(at)]);
    }
    copy.fill(values);
    EXPECT_EQ(packed(spec, repeated), packed(spec, copy.view())) << to_string(c.shape);
  }
}

TEST(DctChopLayout, SerializeNeverChangesTheBytes) {
  const Tensor in = std::move(Tensor(DType::F32, {2, 64, 96}).fill(Pattern::Random));
  for (const char* rest : {"", ", shape=triangle", ", coef=f16"}) {
    const auto with = [&](int s) {
      return spec_of(fmt::format("dct_chop(keep=3{}, serialize={})", rest, s));
    };
    const std::vector<std::byte> whole = packed(with(1), in.view());
    for (const int s : {2, 4}) {
      EXPECT_EQ(packed(with(s), in.view()), whole) << s;
      const Tensor out(DType::F32, in.shape()), same(DType::F32, in.shape());
      unpack(with(s), whole, out.view());
      unpack(with(1), whole, same.view());
      EXPECT_EQ(out.bytes(), same.bytes()) << s;
    }
  }
}

TEST(DctChopLayout, SerializeMustDivideTheBlocks) {
  EXPECT_EQ(refusal("dct_chop(keep=4, serialize=3)", DType::F32, {5, 32, 64}),
            "[layout] serialize=3 must divide the 4 x 8 blocks of 5x32x64; use 1, 2, 4");
  EXPECT_EQ(refusal("dct_chop(keep=4, serialize=8)", DType::F32, {32, 64}),
            "[layout] serialize=8 must divide the 4 x 8 blocks of 32x64; use 1, 2, 4");
  EXPECT_EQ(refusal("dct_chop(keep=4, serialize=4)", DType::F32, {32, 64}), "accepted");
  EXPECT_EQ(refusal("dct_chop(keep=4, serialize=4)", DType::F32, {25, 64}), "accepted");
}

TEST(DctChopLayout, TensorsWithoutTwoSidesOfABlockAreInvalid) {
  EXPECT_EQ(refusal("dct_chop", DType::F32, {4, 4}),
            "[layout] dct_chop needs two sides of at least 8, got 4x4; use a smaller block, "
            "or block_quant");
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{4096}, Shape{1, 4096}, Shape{7, 8},
                             Shape{1, 1, 1, 7, 8}, Shape{9, 7, 1}}) {
    EXPECT_NE(refusal("dct_chop(keep=1)", DType::F32, shape), "accepted") << to_string(shape);
  }
  EXPECT_EQ(refusal("dct_chop(block=4, keep=1)", DType::F32, {4, 4}), "accepted");
}

TEST(DctChopLayout, GrowthIsInvalid) {
  EXPECT_EQ(refusal("dct_chop(keep=8)", DType::U8, {8, 8}),
            "[layout] dct_chop(keep=8) would grow u8 8x8 from 64 to 256 bytes; store fewer or "
            "narrower values, or use raw");
  EXPECT_EQ(refusal("dct_chop(keep=4)", DType::U8, {8, 8}), "accepted");  // 16 values of 4 bytes
  EXPECT_NE(refusal("dct_chop(keep=5)", DType::U8, {8, 8}), "accepted");
  EXPECT_NE(refusal("dct_chop(keep=6)", DType::F16, {8, 8}), "accepted");
  EXPECT_EQ(refusal("dct_chop(keep=8, coef=bf16)", DType::F16, {8, 8}), "accepted");
  EXPECT_NE(refusal("dct_chop(keep=8)", DType::F32, {9, 9}), "accepted");  // padded to 16 x 16
  EXPECT_EQ(refusal("dct_chop(keep=4)", DType::F32, {9, 9}), "accepted");
}

TEST(DctChopLayout, EmptyTensorsPackToNothing) {
  for (const char* text :
       {"dct_chop(keep=4)", "dct_chop(keep=4, shape=triangle)", "dct_chop(keep=4, serialize=7)"}) {
    const CodecSpec spec = spec_of(text);
    for (const Shape& shape :
         {Shape{0}, Shape{0, 8}, Shape{8, 0}, Shape{3, 0, 8, 8}, Shape{0, std::int64_t{1} << 62}}) {
      const Layout fit = layout(spec, DType::F32, shape);
      EXPECT_EQ(fit.max_bytes, 0u);
      EXPECT_EQ(fit.shape.elems(), 0);
      EXPECT_EQ(pack(spec, ConstTensorView(nullptr, DType::F32, shape), {}), 0u);
      unpack(spec, {}, TensorView(nullptr, DType::F32, shape));
    }
  }
}

// ---- order --------------------------------------------------------------------------------------

TEST(DctChopLayout, PlanesHoldTheRowsValuesByFrequency) {
  for (const char* rest : {"keep=4", "keep=3, shape=triangle", "block=4, keep=3, coef=f16",
                           "block=16, keep=5, coef=bf16"}) {
    const Tensor in = std::move(Tensor(DType::F32, {2, 3, 40, 56}).fill(Pattern::Random));
    const CodecSpec rows = spec_of(fmt::format("dct_chop({}, order=rows)", rest));
    const CodecSpec planes = spec_of(fmt::format("dct_chop({}, order=planes)", rest));
    const Layout by_rows = layout(rows, DType::F32, in.shape());
    const Layout by_planes = layout(planes, DType::F32, in.shape());
    const bool triangle = rows.stages()[0]["shape"] == 1;
    const auto block = static_cast<std::int64_t>(rows.stages()[0]["block"]);
    const auto keep = static_cast<std::int64_t>(rows.stages()[0]["keep"]);
    const std::int64_t down = (40 + block - 1) / block, across = (56 + block - 1) / block;
    const std::int64_t values = triangle ? keep * (keep + 1) / 2 : keep * keep;
    EXPECT_EQ(by_planes.shape, Shape({values, 2, 3, down, across}));
    EXPECT_EQ(by_planes.max_bytes, by_rows.max_bytes);
    const Tensor a(by_rows.dtype, by_rows.shape), b(by_planes.dtype, by_planes.shape);
    pack(rows, in.view(), {static_cast<std::byte*>(a.view().data), by_rows.max_bytes});
    pack(planes, in.view(), {static_cast<std::byte*>(b.view().data), by_planes.max_bytes});
    std::int64_t at = 0;  // in b
    for (std::int64_t u = 0; u < keep; ++u) {
      for (std::int64_t v = 0; v < (triangle ? keep - u : keep); ++v) {
        const std::int64_t frequency = at / (6 * down * across);
        for (std::int64_t i = 0; i < 6 * down * across; ++i, ++at) {
          const std::int64_t block_row = i / across, col = i % across;
          const std::int64_t from = triangle
                                        ? i * values + frequency
                                        : (block_row * keep + u) * across * keep + col * keep + v;
          ASSERT_EQ(b.get(at), a.get(from)) << rest << ' ' << at;
        }
      }
    }
    const Tensor back(DType::F32, in.shape()), wanted(DType::F32, in.shape());
    unpack(planes, {static_cast<std::byte*>(b.view().data), by_planes.max_bytes}, back.view());
    unpack(rows, {static_cast<std::byte*>(a.view().data), by_rows.max_bytes}, wanted.view());
    EXPECT_EQ(back.bytes(), wanted.bytes()) << rest;
  }
}

TEST(DctChopLayout, BlockQuantBehindItGetsPlanesUnlessToldOtherwise) {
  EXPECT_EQ(spec_of("dct_chop(keep=4) | block_quant(bits=8)").print(),
            "dct_chop(keep=4, order=planes) | block_quant(bits=8)");
  EXPECT_EQ(spec_of("dct_chop(keep=4, order=rows) | block_quant(bits=8)").print(),
            "dct_chop(keep=4, order=rows) | block_quant(bits=8)");
  EXPECT_EQ(spec_of("dct_chop(keep=4) | raw").print(), "dct_chop(keep=4) | raw");
  EXPECT_EQ(spec_of("dct_chop(keep=4, serialize=2) | block_quant(bits=8)").print(),
            "dct_chop(keep=4, serialize=2) | block_quant(bits=8)");
}

// The means of blocks are far larger than the rest: scaled with it they drown it.
TEST(DctChopLayout, ScalesOfTheirOwnForFrequenciesLoseLess) {
  const Shape shape{4, 64, 64};
  Tensor in(DType::F32, shape);
  std::vector<double> values;
  for (std::int64_t i = 0; i < shape.elems(); ++i) {
    const auto row = static_cast<double>(i / 64), col = static_cast<double>(i % 64);
    values.push_back(10 + std::sin(row * 0.37) * std::cos(col * 0.51));
  }
  in.fill(values);
  const auto error = [&](const char* text) {
    const CodecSpec spec = spec_of(text);
    const Layout fit = layout(spec, DType::F32, shape);
    std::vector<std::byte> packed(fit.max_bytes);
    pack(spec, in.view(), packed);
    const Tensor back(DType::F32, shape);
    unpack(spec, packed, back.view());
    double sum = 0;
    for (std::int64_t i = 0; i < shape.elems(); ++i) {
      sum += std::pow(back.get(i) - values[static_cast<std::size_t>(i)], 2);
    }
    return std::sqrt(sum / static_cast<double>(shape.elems()));
  };
  EXPECT_LT(4 * error("dct_chop(keep=8) | block_quant(bits=8)"),
            error("dct_chop(keep=8, order=rows) | block_quant(bits=8)"));
}

}  // namespace
}  // namespace tuckfold
