// What every structured layer promises, for every family: y = x W^T, gradients, dtypes, threads.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <thread>

#include "base/half.h"
#include "structured/layer_fixture.h"
#include "tuckfold/error.h"

namespace tuckfold::structured {
namespace {

struct Case {
  const char* text;
  std::int64_t in, out;
};
std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.text << ' ' << c.in << "->" << c.out;
}

constexpr Case kCases[] = {
    {"butterfly", 7, 15},
    {"butterfly", 784, 10},
    {"butterfly", 1, 1},
    {"butterfly", 64, 64},
    {"butterfly(stride=decreasing)", 128, 128},
    {"butterfly(stride=decreasing)", 32, 48},
    {"butterfly(tied=true)", 7, 15},
    {"butterfly(tied=true)", 256, 200},
    {"butterfly(tied=true, stride=decreasing)", 100, 300},
    {"butterfly(blocks=2)", 32, 32},
    {"butterfly(blocks=3, tied=true)", 16, 40},
    {"butterfly(form=orthogonal)", 64, 64},
    {"butterfly(form=orthogonal, tied=true, stride=decreasing)", 20, 70},
    {"low_rank(rank=3)", 7, 15},
    {"low_rank(rank=1)", 784, 10},
    {"low_rank(rank=9)", 300, 65},
    {"block_diagonal(blocks=4)", 7, 15},
    {"block_diagonal(blocks=3)", 784, 10},
    {"block_diagonal(blocks=8)", 128, 256},
    {"block_diagonal(blocks=5)", 7, 9},
    {"monarch(blocks=2)", 7, 15},
    {"monarch(blocks=4)", 784, 10},
    {"monarch(blocks=8)", 64, 64},
    {"monarch(blocks=5)", 33, 71},
    {"pixelfly(block=2, butterfly=4, rank=2)", 7, 15},
    {"pixelfly(block=4, butterfly=8, rank=3)", 784, 10},
    {"pixelfly(block=16, butterfly=16, rank=8)", 128, 128},
    {"pixelfly(block=8, butterfly=4, rank=1)", 96, 40},
    {"pixelfly(block=1, butterfly=32, rank=1)", 32, 32},
    {"circulant", 7, 15},
    {"circulant", 784, 10},
    {"circulant", 64, 64},
    {"circulant", 1, 1},
    {"circulant", 10, 64},
    {"fastfood", 7, 15},
    {"fastfood", 200, 10},  // products of matrices as long as 784 asks for would take minutes
    {"fastfood", 128, 128},
    {"fastfood(normalize=false)", 32, 16},
    {"dense", 7, 15},
    {"dense", 784, 10},
    {"dense", 530, 70},
};

class Structured : public testing::TestWithParam<Case> {
 protected:
  LayerFixture fixture_{GetParam().text, GetParam().in, GetParam().out};
  const StructuredLayer& layer_ = fixture_.layer;
  std::mt19937_64 random_{7};

  template <class T>
  std::vector<T> noise(std::int64_t count) {
    std::normal_distribution<double> normal;
    std::vector<T> values(static_cast<std::size_t>(count));
    for (T& value : values) value = static_cast<T>(normal(random_));
    return values;
  }
};
INSTANTIATE_TEST_SUITE_P(Families, Structured, testing::ValuesIn(kCases));

// The largest difference, as a part of the largest number.
template <class A, class B>
double error_of(const std::vector<A>& got, const std::vector<B>& want) {
  EXPECT_EQ(got.size(), want.size());
  double most = 0, largest = 1e-300;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const auto wanted = static_cast<double>(want[i]);
    most = std::max(most, std::abs(static_cast<double>(got[i]) - wanted));
    largest = std::max(largest, std::abs(wanted));
    if (std::isnan(static_cast<double>(got[i]))) return INFINITY;
  }
  return most / largest;
}

template <class T>
std::vector<double> times(const MatrixRef& w, const std::vector<T>& x, std::int64_t samples,
                          const std::vector<T>& bias) {
  std::vector<double> y;
  for (std::int64_t b = 0; b < samples; ++b) {
    for (std::int64_t o = 0; o < w.rows; ++o) {
      double sum = bias.empty() ? 0 : static_cast<double>(bias[static_cast<std::size_t>(o)]);
      for (std::int64_t i = 0; i < w.cols; ++i) {
        sum += w(o, i) * static_cast<double>(x[static_cast<std::size_t>(b * w.cols + i)]);
      }
      y.push_back(sum);
    }
  }
  return y;
}

template <class T>
std::vector<T> forward(const LayerFixture& f, DType dtype, const std::vector<T>& x,
                       const std::vector<T>& bias, int threads = 0) {
  const std::int64_t samples = static_cast<std::int64_t>(x.size()) / f.layer.in();
  std::vector<T> y(static_cast<std::size_t>(samples * f.layer.out()));
  std::vector<std::vector<T>> held;
  const auto weights = f.views(held, dtype);
  const ConstTensorView bias_view(bias.data(), dtype, {f.layer.out()});
  f.layer.forward(ConstTensorView(x.data(), dtype, {samples, f.layer.in()}), weights,
                  bias.empty() ? nullptr : &bias_view,
                  TensorView(y.data(), dtype, {samples, f.layer.out()}), {.threads = threads});
  return y;
}

template <class T>
struct Back {
  std::vector<T> x, bias;
  std::vector<std::vector<T>> weights;
};
template <class T>
Back<T> backward(const LayerFixture& f, DType dtype, const std::vector<T>& x,
                 const std::vector<T>& gy, int threads = 0) {
  const StructuredLayer& layer = f.layer;
  const std::int64_t samples = static_cast<std::int64_t>(x.size()) / layer.in();
  Back<T> g{.x = std::vector<T>(x.size()),
            .bias = std::vector<T>(static_cast<std::size_t>(layer.out())),
            .weights = {}};
  std::vector<std::vector<T>> held;
  const auto weights = f.views(held, dtype);
  std::vector<TensorView> places;
  g.weights.reserve(weights.size());
  for (const WeightInfo& info : layer.weights()) {
    g.weights.emplace_back(static_cast<std::size_t>(info.shape.elems()));
    places.emplace_back(info.trained ? g.weights.back().data() : nullptr, dtype, info.shape);
  }
  const TensorView gx(g.x.data(), dtype, {samples, layer.in()});
  const TensorView gb(g.bias.data(), dtype, {layer.out()});
  layer.backward(ConstTensorView(x.data(), dtype, {samples, layer.in()}),
                 ConstTensorView(gy.data(), dtype, {samples, layer.out()}), weights,
                 {.x = &gx, .weights = places, .bias = &gb}, {.threads = threads});
  return g;
}

TEST_P(Structured, ForwardIsTheProductWithTheMatrix) {
  const MatrixRef w = fixture_.dense();
  for (const std::int64_t samples : {1, 5, 37, 150}) {
    const auto x = noise<double>(samples * layer_.in()), bias = noise<double>(layer_.out());
    EXPECT_LT(error_of(forward(fixture_, DType::F64, x, bias), times(w, x, samples, bias)), 1e-12);
    const std::vector<float> xf(x.begin(), x.end()), none;
    EXPECT_LT(error_of(forward(fixture_, DType::F32, xf, none), times(w, xf, samples, none)), 1e-5);
  }
}

TEST_P(Structured, ToDenseIsTheMatrix) {
  std::vector<std::vector<double>> held;
  const auto dense = layer_.to_dense(fixture_.views(held, DType::F64));
  EXPECT_LT(error_of(dense, fixture_.dense().values), 1e-13);
}

TEST_P(Structured, GradientsAreThoseOfTheMatrix) {
  const MatrixRef w = fixture_.dense();
  MatrixRef turned(w.cols, w.rows);
  for (std::int64_t i = 0; i < w.rows; ++i) {
    for (std::int64_t j = 0; j < w.cols; ++j) turned(j, i) = w(i, j);
  }
  const std::int64_t samples = 37;
  const auto x = noise<double>(samples * layer_.in()), gy = noise<double>(samples * layer_.out());
  const Back<double> g = backward(fixture_, DType::F64, x, gy);
  EXPECT_LT(error_of(g.x, times(turned, gy, samples, {})), 1e-12);
  std::vector<double> sums(static_cast<std::size_t>(layer_.out()));
  for (std::size_t i = 0; i < gy.size(); ++i) sums[i % sums.size()] += gy[i];
  EXPECT_LT(error_of(g.bias, sums), 1e-12);
}

// The sum of gy * y, whose slope along a weight is that weight's gradient.
double loss(const LayerFixture& f, const std::vector<double>& x, const std::vector<double>& gy) {
  const auto y = forward(f, DType::F64, x, {});
  double sum = 0;
  for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * gy[i];
  return sum;
}

TEST_P(Structured, GradientsOfWeightsAreSlopes) {
  const std::int64_t samples = 19;
  const auto x = noise<double>(samples * layer_.in()), gy = noise<double>(samples * layer_.out());
  const Back<double> g = backward(fixture_, DType::F64, x, gy);
  for (std::size_t k = 0; k < layer_.weights().size(); ++k) {
    if (!layer_.weights()[k].trained) continue;
    double largest = 1e-3;
    for (const double value : g.weights[k]) largest = std::max(largest, std::abs(value));
    std::uniform_int_distribution<std::size_t> any(0, fixture_.weights[k].size() - 1);
    for (int trial = 0; trial < 24; ++trial) {
      const std::size_t i = any(random_);
      LayerFixture moved = fixture_;
      const double step = 1e-4;
      moved.weights[k][i] += step;
      const double up = loss(moved, x, gy);
      moved.weights[k][i] -= 2 * step;
      const double slope = (up - loss(moved, x, gy)) / (2 * step);
      EXPECT_NEAR(g.weights[k][i] / largest, slope / largest, 1e-7) << k << ' ' << i;
    }
  }
}

TEST_P(Structured, SinglePrecisionFollowsDouble) {
  for (const std::int64_t samples : {1, 37, 300}) {
    const auto x = noise<double>(samples * layer_.in()), gy = noise<double>(samples * layer_.out());
    const std::vector<float> xf(x.begin(), x.end()), gf(gy.begin(), gy.end());
    const Back<double> want = backward(fixture_, DType::F64, x, gy);
    const Back<float> got = backward(fixture_, DType::F32, xf, gf);
    EXPECT_LT(error_of(got.x, want.x), 1e-5);
    EXPECT_LT(error_of(got.bias, want.bias), 1e-5);
    for (std::size_t k = 0; k < want.weights.size(); ++k) {
      if (layer_.weights()[k].trained) {
        EXPECT_LT(error_of(got.weights[k], want.weights[k]), 1e-5) << layer_.weights()[k].name;
      }
    }
  }
}

TEST_P(Structured, ThreadsChangeNoBit) {
  const std::int64_t samples = 333;
  const auto x = noise<float>(samples * layer_.in()), gy = noise<float>(samples * layer_.out());
  const auto y = forward(fixture_, DType::F32, x, {}, 1);
  const Back<float> g = backward(fixture_, DType::F32, x, gy, 1);
  for (const int threads : {2, 3}) {
    EXPECT_EQ(y, forward(fixture_, DType::F32, x, {}, threads));
    const Back<float> again = backward(fixture_, DType::F32, x, gy, threads);
    EXPECT_EQ(g.x, again.x);
    EXPECT_EQ(g.bias, again.bias);
    EXPECT_EQ(g.weights, again.weights);
  }
}

// Threads keep memory from call to call; a new one has none.
TEST_P(Structured, ANewThreadCanRunIt) {
  const auto x = noise<float>(40 * layer_.in());
  const auto want = forward(fixture_, DType::F32, x, {}, 1);
  std::vector<float> got;
  std::thread([&] { got = forward(fixture_, DType::F32, x, {}, 1); }).join();
  EXPECT_EQ(got, want);
}

TEST_P(Structured, NoSamplesGiveNoGradients) {
  const Back<float> g = backward(fixture_, DType::F32, std::vector<float>(), std::vector<float>());
  for (const auto& weight : g.weights) {
    for (const float value : weight) EXPECT_EQ(value, 0);
  }
  EXPECT_TRUE(forward(fixture_, DType::F32, std::vector<float>(), std::vector<float>()).empty());
}

// f16 and bf16 in and out, f32 inside: the f32 result of the rounded numbers, rounded.
template <class Half>
void halves_are_rounded(const LayerFixture& f, DType dtype, const std::vector<float>& x,
                        Half (*narrow)(float)) {
  LayerFixture rounded = f;
  std::vector<std::vector<Half>> held;
  std::vector<ConstTensorView> weights;
  held.reserve(f.weights.size());
  for (std::size_t k = 0; k < f.weights.size(); ++k) {
    const WeightInfo& info = f.layer.weights()[k];
    if (!info.trained) {
      weights.emplace_back(f.permutation.data(), DType::I64, info.shape);
      continue;
    }
    held.emplace_back();
    for (double& value : rounded.weights[k]) {
      held.back().push_back(narrow(static_cast<float>(value)));
      value = static_cast<double>(to_float(held.back().back()));
    }
    weights.emplace_back(held.back().data(), dtype, info.shape);
  }
  std::vector<Half> xh;
  std::vector<float> xf;
  for (const float value : x) {
    xh.push_back(narrow(value));
    xf.push_back(to_float(xh.back()));
  }
  const std::int64_t samples = static_cast<std::int64_t>(x.size()) / f.layer.in();
  std::vector<Half> y(static_cast<std::size_t>(samples * f.layer.out()));
  f.layer.forward(ConstTensorView(xh.data(), dtype, {samples, f.layer.in()}), weights, nullptr,
                  TensorView(y.data(), dtype, {samples, f.layer.out()}));
  const auto want = forward(rounded, DType::F32, xf, {});
  for (std::size_t i = 0; i < y.size(); ++i) ASSERT_EQ(y[i].bits, narrow(want[i]).bits) << i;
}
TEST_P(Structured, HalvesAreRoundedOnceAtTheEnd) {
  const auto x = noise<float>(40 * layer_.in());
  halves_are_rounded<F16>(fixture_, DType::F16, x, [](float v) { return to_f16(v); });
  halves_are_rounded<BF16>(fixture_, DType::BF16, x, [](float v) { return to_bf16(v); });
}

TEST_P(Structured, SavedBytesAreThoseOfTheInput) {
  EXPECT_EQ(layer_.saved_bytes(DType::BF16, 100), 200 * layer_.in());
}

TEST_P(Structured, TextsAreCanonical) {
  const StructuredLayer again(layer_.text(), layer_.in(), layer_.out());
  EXPECT_EQ(again.text(), layer_.text());
}

}  // namespace
}  // namespace tuckfold::structured
