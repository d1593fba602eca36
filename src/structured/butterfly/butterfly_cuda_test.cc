// Butterflies on a device, or on the emulator, against those of the CPU in double precision.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "base/cuda/device_fixture.h"
#include "base/half.h"
#include "structured/layer_fixture.h"
#include "tuckfold/error.h"

namespace tuckfold::structured {
namespace {

struct Case {
  const char* text;
  std::int64_t in, out, samples;
};
std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.text << ' ' << c.in << "->" << c.out << ", " << c.samples << " samples";
}

class ButterflyCuda : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device";
  }
};

template <class T>
T narrowed(double value) {
  if constexpr (std::is_same_v<T, F16>) return to_f16(static_cast<float>(value));
  if constexpr (std::is_same_v<T, BF16>) return to_bf16(static_cast<float>(value));
  if constexpr (std::is_same_v<T, float>) return static_cast<float>(value);
}
double widened(float value) { return static_cast<double>(value); }
template <class Half>
double widened(Half value) {
  return static_cast<double>(to_float(value));
}

template <class T>
std::vector<T> noise(std::int64_t count, unsigned seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::vector<T> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(narrowed<T>(normal(random)));
  return values;
}
template <class T>
std::vector<double> doubles(const std::vector<T>& values) {
  std::vector<double> all;
  for (const T value : values) all.push_back(widened(value));
  return all;
}

// |got - want| / |want|, as lengths of vectors.
template <class T>
double distance(const ref::DeviceBytes& got, const std::vector<double>& want) {
  const auto bytes = got.fetch();
  EXPECT_EQ(bytes.size(), want.size() * sizeof(T));
  EXPECT_TRUE(got.guards_untouched());
  const auto* values = reinterpret_cast<const T*>(bytes.data());
  double error = 0, length = 1e-300;
  for (std::size_t i = 0; i < want.size(); ++i) {
    error += std::pow(widened(values[i]) - want[i], 2);
    length += want[i] * want[i];
  }
  return std::sqrt(error / length);
}

template <class T>
ref::DeviceBytes on_device(const std::vector<T>& values) {
  return ref::DeviceBytes(std::as_bytes(std::span(values)));
}

template <class T>
void check(const Case& c, DType dtype, double tolerance) {
  LayerFixture f(c.text, c.in, c.out);
  ASSERT_TRUE(f.layer.has_cuda(dtype));
  std::vector<T> twiddle;
  for (double& value : f.weights[0]) {
    twiddle.push_back(narrowed<T>(value));
    value = widened(twiddle.back());
  }
  const auto x = noise<T>(c.samples * c.in, 1), gy = noise<T>(c.samples * c.out, 2);
  const auto bias = noise<T>(c.out, 3);
  const Shape shape = f.layer.weights()[0].shape;

  std::vector<std::vector<double>> held;
  const auto weights = f.views(held, DType::F64);
  const auto xd = doubles(x), gyd = doubles(gy), biasd = doubles(bias);
  std::vector<double> y(gy.size()), gx(x.size()), gt(twiddle.size()), gb(bias.size());
  const ConstTensorView x_view(xd.data(), DType::F64, {c.samples, c.in});
  const ConstTensorView bias_view(biasd.data(), DType::F64, {c.out});
  f.layer.forward(x_view, weights, &bias_view,
                  TensorView(y.data(), DType::F64, {c.samples, c.out}));
  const TensorView gx_view(gx.data(), DType::F64, {c.samples, c.in});
  const TensorView gb_view(gb.data(), DType::F64, {c.out});
  const TensorView places[] = {{gt.data(), DType::F64, shape}};
  f.layer.backward(x_view, ConstTensorView(gyd.data(), DType::F64, {c.samples, c.out}), weights,
                   {.x = &gx_view, .weights = places, .bias = &gb_view});

  const auto dx = on_device(x), dgy = on_device(gy), dt = on_device(twiddle), db = on_device(bias);
  const ref::DeviceBytes dy(gy.size() * sizeof(T)), dgx(x.size() * sizeof(T));
  const ref::DeviceBytes dgt(twiddle.size() * sizeof(T)), dgb(bias.size() * sizeof(T));
  const auto view = [&](const ref::DeviceBytes& bytes, const Shape& axes) {
    return TensorView(bytes.data(), dtype, axes, Device::Cuda);
  };
  const ConstTensorView on_x = view(dx, {c.samples, c.in}), on_bias = view(db, {c.out});
  const ConstTensorView on_weights[] = {view(dt, shape)};
  f.layer.forward(on_x, on_weights, &on_bias, view(dy, {c.samples, c.out}));
  EXPECT_LT(distance<T>(dy, y), tolerance);
  const TensorView on_gx = view(dgx, {c.samples, c.in}), on_gb = view(dgb, {c.out});
  const TensorView on_places[] = {view(dgt, shape)};
  f.layer.backward(on_x, view(dgy, {c.samples, c.out}), on_weights,
                   {.x = &on_gx, .weights = on_places, .bias = &on_gb});
  EXPECT_LT(distance<T>(dgx, gx), tolerance * 2);
  EXPECT_LT(distance<T>(dgt, gt), tolerance * 2);
  EXPECT_LT(distance<T>(dgb, gb), tolerance);
  const auto once = dgt.fetch();
  f.layer.backward(on_x, view(dgy, {c.samples, c.out}), on_weights,
                   {.x = &on_gx, .weights = on_places, .bias = &on_gb});
  EXPECT_EQ(once, dgt.fetch());
}

TEST_P(ButterflyCuda, IsThatOfTheCpu) {
  check<float>(GetParam(), DType::F32, 1e-6);
  check<F16>(GetParam(), DType::F16, 1e-3);
  check<BF16>(GetParam(), DType::BF16, 6e-3);
}

TEST_P(ButterflyCuda, NoSamplesGiveNoGradients) {
  Case none = GetParam();
  none.samples = 0;
  check<float>(none, DType::F32, 1e-6);
}

constexpr Case kCases[] = {
    {"butterfly", 8, 8, 5},
    {"butterfly", 7, 15, 3},
    {"butterfly", 16, 16, 37},
    {"butterfly(stride=decreasing)", 32, 32, 9},
    {"butterfly(tied=true)", 64, 64, 70},
    {"butterfly(tied=true, stride=decreasing)", 100, 300, 5},
    {"butterfly(blocks=2)", 128, 128, 11},
    {"butterfly(blocks=3, tied=true)", 16, 40, 6},
    {"butterfly", 512, 500, 21},
    {"butterfly", 512, 512, 170},  // more than the blocks of a GPU take at once, on the emulator
    {"butterfly", 1024, 1024, 170},
    {"butterfly(tied=true)", 512, 1100, 70},
    {"butterfly", 784, 10, 7},
    {"butterfly(tied=true)", 1024, 1024, 50},
    {"butterfly", 777, 2000, 9},
    {"butterfly(stride=decreasing)", 2048, 2048, 9},
    {"butterfly(blocks=2)", 1024, 1024, 5},
    {"butterfly", 2048, 2048, 21},
    {"butterfly(tied=true)", 1500, 2048, 3},
    {"butterfly", 4096, 5000, 70},  // several turns of every cluster
    {"butterfly(tied=true)", 4090, 4096, 3},
    {"butterfly", 5000, 8192, 2},
};
INSTANTIATE_TEST_SUITE_P(Sizes, ButterflyCuda, testing::ValuesIn(kCases));

TEST(ButterflyOnCuda, ASampleThatIsNotFiniteSpoilsNoOther) {
  if (cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device";
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const std::int64_t n : {64, 512, 2048}) {
    const LayerFixture f("butterfly", n, n);
    constexpr std::int64_t kSamples = 7, kBad = 2;  // the others of its four, and another four
    std::vector<std::vector<float>> held;
    f.views(held, DType::F32);
    const auto twiddle = on_device(held[0]), gy = on_device(noise<float>(kSamples * n, 2));
    const ConstTensorView weights[] = {
        {twiddle.data(), DType::F32, f.layer.weights()[0].shape, Device::Cuda}};
    auto x = noise<float>(kSamples * n, 1);
    std::vector<std::vector<std::byte>> ys, gxs;
    for (const float bad : {0.0f, kNan, std::numeric_limits<float>::infinity()}) {
      std::fill_n(x.begin() + kBad * n, n, bad);
      const auto dx = on_device(x);
      const ref::DeviceBytes y(x.size() * sizeof(float)), gx(x.size() * sizeof(float));
      const ConstTensorView on_x(dx.data(), DType::F32, {kSamples, n}, Device::Cuda);
      f.layer.forward(on_x, weights, nullptr,
                      TensorView(y.data(), DType::F32, {kSamples, n}, Device::Cuda));
      const TensorView on_gx(gx.data(), DType::F32, {kSamples, n}, Device::Cuda);
      f.layer.backward(on_x, ConstTensorView(gy.data(), DType::F32, {kSamples, n}, Device::Cuda),
                       weights, {.x = &on_gx});
      ys.push_back(y.fetch());
      gxs.push_back(gx.fetch());
    }
    const auto row = static_cast<std::ptrdiff_t>(n * sizeof(float));
    for (std::size_t i = 1; i < ys.size(); ++i) {
      EXPECT_EQ(gxs[i], gxs[0]);  // gradients of the input do not depend on it
      std::fill_n(ys[i].begin() + kBad * row, row, std::byte{0});
      std::fill_n(ys[0].begin() + kBad * row, row, std::byte{0});
      EXPECT_EQ(ys[i], ys[0]);
    }
  }
}

TEST(ButterflyOnCuda, WhatHasNoKernelIsRefused) {
  if (cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device";
  EXPECT_FALSE(StructuredLayer("butterfly", 16384, 16).has_cuda(DType::F32));
  EXPECT_FALSE(StructuredLayer("butterfly", 4, 4).has_cuda(DType::F32));
  EXPECT_FALSE(StructuredLayer("butterfly(form=orthogonal)", 64, 64).has_cuda(DType::F32));
  EXPECT_FALSE(StructuredLayer("butterfly", 64, 64).has_cuda(DType::F64));
  EXPECT_FALSE(StructuredLayer("monarch", 64, 64).has_cuda(DType::F32));
}

}  // namespace
}  // namespace tuckfold::structured
