// Parameter counts of published networks, transforms that are butterflies, and what is refused.
#include <gtest/gtest.h>

#include <cmath>

#include "structured/layer_fixture.h"
#include "tuckfold/error.h"

namespace tuckfold::structured {
namespace {

// A network of one hidden layer, 1024 to 1024, and 10 outputs; biases included.
std::int64_t shl_params(const char* text) {
  return StructuredLayer(text, 1024, 1024).weight_count() + 1024 + 1024 * 10 + 10;
}

TEST(StructuredLayer, CountsAreThoseOfTheButterflyPaper) {
  EXPECT_EQ(shl_params("dense"), 1059850);
  EXPECT_EQ(shl_params("butterfly(tied=true)"), 15366);  // 16390 with a second bias
  EXPECT_EQ(shl_params("fastfood"), 14346);
  EXPECT_EQ(shl_params("circulant"), 12298);
  EXPECT_EQ(shl_params("low_rank(rank=1)"), 13322);
  EXPECT_EQ(shl_params("pixelfly(block=64, butterfly=16, rank=32)"), 404490);
  EXPECT_EQ(StructuredLayer("butterfly", 1024, 1024).weight_count(), 20480);
}

TEST(StructuredLayer, PixelflySweepIsThatOfTheButterflyPaper) {
  const auto swept = [](std::int64_t butterfly, std::int64_t block, std::int64_t rank) {
    const std::string text = "pixelfly(block=" + std::to_string(block) +
                             ", butterfly=" + std::to_string(butterfly) +
                             ", rank=" + std::to_string(rank) + ")";
    return shl_params(text.c_str()) + 1024;  // which has two biases
  };
  EXPECT_EQ(swept(2, 32, 2), 1064970);
  EXPECT_EQ(swept(128, 8, 2), 81930);
  EXPECT_EQ(swept(16, 16, 2), 344074);
}

TEST(StructuredLayer, FactorsOfPixelflyCountFromTheDiagonal) {
  const auto blocks = [](const char* text) {
    return StructuredLayer(text, 256, 256).weights()[0].shape[0];
  };
  EXPECT_EQ(blocks("pixelfly(block=16, butterfly=16, rank=1)"), 16 * 5);
  EXPECT_EQ(blocks("pixelfly(block=16, butterfly=16, rank=1, factors=2)"), 16 * 3);
  // Cells of half a block: the first factor is inside the diagonal.
  EXPECT_EQ(blocks("pixelfly(block=16, butterfly=32, rank=1, factors=2)"), 16 * 2);
  EXPECT_EQ(blocks("pixelfly(block=16, butterfly=32, rank=1)"), 16 * 5);
}

TEST(StructuredLayer, HadamardIsAButterfly) {
  LayerFixture f("butterfly", 64, 64);
  for (std::size_t i = 0; i < f.weights[0].size(); ++i) f.weights[0][i] = i % 4 == 3 ? -1 : 1;
  std::vector<std::vector<double>> held;
  EXPECT_EQ(f.layer.to_dense(f.views(held, DType::F64)), hadamard_ref(64).values);
}

TEST(StructuredLayer, RotationsKeepLengths) {
  LayerFixture f("butterfly(form=orthogonal, blocks=2)", 32, 32);
  std::vector<std::vector<double>> held;
  MatrixRef w(32, 32);
  w.values = f.layer.to_dense(f.views(held, DType::F64));
  for (std::int64_t i = 0; i < 32; ++i) {
    for (std::int64_t j = 0; j < 32; ++j) {
      double dot = 0;
      for (std::int64_t k = 0; k < 32; ++k) dot += w(i, k) * w(j, k);
      EXPECT_NEAR(dot, i == j, 1e-12);
    }
  }
}

TEST(StructuredLayer, MixturesOfPixelflyAreWhatTheySay) {
  for (const char* form : {"mean", "gated"}) {
    const std::string text =
        "pixelfly(block=4, butterfly=4, rank=2, form=" + std::string(form) + ")";
    LayerFixture f(text, 20, 13);
    const MatrixRef sparse = pixelfly_sparse_ref(f.weights[0], 4, 4, 20, 13);
    const MatrixRef low = low_rank_ref(f.weights[1], f.weights[2], 2, 20, 13);
    std::vector<double> x(20), y(13);
    for (std::size_t i = 0; i < 20; ++i) x[i] = std::sin(static_cast<double>(i));
    std::vector<std::vector<double>> held;
    f.layer.forward(ConstTensorView(x.data(), DType::F64, {1, 20}), f.views(held, DType::F64),
                    nullptr, TensorView(y.data(), DType::F64, {1, 13}));
    double gate = 0.5;
    if (f.weights.size() > 3) {
      double sum = f.weights[4][0];
      for (std::size_t i = 0; i < 20; ++i) sum += f.weights[3][i] * x[i];
      gate = 1 / (1 + std::exp(-sum));
    }
    for (std::int64_t o = 0; o < 13; ++o) {
      double want = 0;
      for (std::int64_t i = 0; i < 20; ++i) {
        want += ((1 - gate) * sparse(o, i) + gate * low(o, i)) * x[static_cast<std::size_t>(i)];
      }
      EXPECT_NEAR(y[static_cast<std::size_t>(o)], want, 1e-12) << form;
    }
  }
}

TEST(StructuredLayer, GatesHaveGradients) {
  LayerFixture f("pixelfly(block=4, butterfly=4, rank=2, form=gated)", 12, 9);
  const std::int64_t samples = 21;
  std::vector<double> x(static_cast<std::size_t>(samples * 12)),
      gy(static_cast<std::size_t>(samples * 9));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(1.7 * static_cast<double>(i));
  for (std::size_t i = 0; i < gy.size(); ++i) gy[i] = std::cos(2.3 * static_cast<double>(i));
  const auto loss = [&](const LayerFixture& at, const std::vector<double>& input) {
    std::vector<double> y(gy.size());
    std::vector<std::vector<double>> held;
    at.layer.forward(ConstTensorView(input.data(), DType::F64, {samples, 12}),
                     at.views(held, DType::F64), nullptr,
                     TensorView(y.data(), DType::F64, {samples, 9}));
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * gy[i];
    return sum;
  };
  std::vector<std::vector<double>> held, g;
  std::vector<TensorView> places;
  g.reserve(8);
  for (const WeightInfo& info : f.layer.weights()) {
    g.emplace_back(static_cast<std::size_t>(info.shape.elems()));
    places.emplace_back(g.back().data(), DType::F64, info.shape);
  }
  std::vector<double> gx(x.size());
  const TensorView gx_view(gx.data(), DType::F64, {samples, 12});
  f.layer.backward(ConstTensorView(x.data(), DType::F64, {samples, 12}),
                   ConstTensorView(gy.data(), DType::F64, {samples, 9}), f.views(held, DType::F64),
                   {.x = &gx_view, .weights = places});
  const double step = 1e-5;
  for (std::size_t k = 0; k < g.size(); ++k) {
    for (std::size_t i = 0; i < g[k].size(); i += 3) {
      LayerFixture up = f, down = f;
      up.weights[k][i] += step;
      down.weights[k][i] -= step;
      EXPECT_NEAR(g[k][i], (loss(up, x) - loss(down, x)) / (2 * step), 1e-7) << k << ' ' << i;
    }
  }
  for (std::size_t i = 0; i < x.size(); i += 5) {
    std::vector<double> up = x, down = x;
    up[i] += step;
    down[i] -= step;
    EXPECT_NEAR(gx[i], (loss(f, up) - loss(f, down)) / (2 * step), 1e-7) << i;
  }
}

// ---- what is refused ----------------------------------------------------------------------------

std::string refusal(const char* text, std::int64_t in, std::int64_t out) {
  try {
    StructuredLayer(text, in, out);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::InvalidArgument);
    return error.what();
  }
  return "nothing";
}

TEST(StructuredLayer, RefusalsSayRuleValueAndRemedy) {
  const auto says = [](const char* text, std::int64_t in, std::int64_t out, const char* want) {
    EXPECT_NE(refusal(text, in, out).find(want), std::string::npos)
        << text << ": " << refusal(text, in, out);
  };
  says("butterflie", 8, 8, "did you mean butterfly?");
  says("", 8, 8, "a structure is one of butterfly, pixelfly");
  says("butterfly(tied=maybe)", 8, 8, "tied must be one of false, true");
  says("butterfly(tide=true)", 8, 8, "did you mean tied?");
  says("butterfly(tied=true", 8, 8, "expected , or )");
  says("butterfly(tied=true, tied=true)", 8, 8, "tied is given twice");
  says("butterfly()x", 8, 8, "expected the end of the text");
  says("butterfly(blocks=0)", 8, 8, "blocks must be 1..64, got");
  says("butterfly(blocks=99999999999999999999)", 8, 8, "blocks must be 1..64, got");
  says("butterfly", 0, 8, "in must be 1..1073741824 features, got 0");
  says("butterfly", 8, -3, "out must be 1..1073741824 features, got -3");
  says("low_rank(rank=0)", 8, 8, "rank must be 1..");
  says("low_rank(rank=9)", 8, 20, "rank must be 1..8 for 8 to 20 features, got 9");
  says("block_diagonal(blocks=9)", 8, 20, "blocks must be 1..8");
  says("monarch(blocks=9)", 8, 20, "blocks must be 1..8");
  says("pixelfly(block=64)", 32, 128, "block must be 1..32 for 32 to 128 features, got 64");
  says("pixelfly(block=2, butterfly=6)", 32, 32, "butterfly must be a power of two, got 6; 8 is");
  says("circulant(n=3)", 8, 8, "circulant has no options");
}

TEST(StructuredLayer, TensorsThatDoNotFitAreRefused) {
  LayerFixture f("fastfood", 8, 8);
  std::vector<std::vector<float>> held;
  const auto weights = f.views(held, DType::F32);
  std::vector<float> x(64), y(64);
  const ConstTensorView good(x.data(), DType::F32, {8, 8});
  const TensorView out(y.data(), DType::F32, {8, 8});
  EXPECT_NO_THROW(f.layer.forward(good, weights, nullptr, out));
  const auto refused = [&](const ConstTensorView& in, const TensorView& to) {
    EXPECT_THROW(f.layer.forward(in, weights, nullptr, to), Error);
  };
  refused({x.data(), DType::F32, {4, 16}}, out);
  refused({x.data(), DType::F32, {64}}, out);
  refused({x.data(), DType::I32, {8, 8}}, out);
  refused({x.data(), DType::F64, {4, 8}}, out);
  refused({x.data(), DType::F32, {8, 8}, {1, 8}}, out);
  refused(good, {y.data(), DType::F32, {7, 8}});
  refused(good, {nullptr, DType::F32, {8, 8}});
  EXPECT_THROW(f.layer.forward(good, std::span(weights).first(2), nullptr, out), Error);
  const ConstTensorView bias(x.data(), DType::F32, {7});
  EXPECT_THROW(f.layer.forward(good, weights, &bias, out), Error);
  for (const std::int64_t wrong : {std::int64_t{-1}, std::int64_t{8}, f.permutation[1]}) {
    LayerFixture bad = f;
    bad.permutation[0] = wrong;
    const auto bad_weights = bad.views(held, DType::F32);
    EXPECT_THROW(bad.layer.forward(good, bad_weights, nullptr, out), Error) << wrong;
  }
}

TEST(StructuredLayer, NotANumberStaysOne) {
  LayerFixture f("butterfly", 16, 16);
  std::vector<std::vector<float>> held;
  std::vector<float> x(32 * 16, 1.0F), y(32 * 16);
  x[5] = NAN;
  f.layer.forward(ConstTensorView(x.data(), DType::F32, {32, 16}), f.views(held, DType::F32),
                  nullptr, TensorView(y.data(), DType::F32, {32, 16}));
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i < 16) << i;
}

TEST(Structures, AreListedWithTheirOptions) {
  ASSERT_EQ(structures().size(), 8U);
  EXPECT_EQ(structures()[0].name, "butterfly");
  EXPECT_EQ(structures()[0].options[0].initial, "false");
}

}  // namespace
}  // namespace tuckfold::structured
