// cross_entropy on CUDA: near the CPU's values, which are those of double precision.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/cuda/device_fixture.h"
#include "codec/loss/cross_entropy.h"

namespace tuckfold {
namespace {

using ref::DeviceBytes;
using ref::Tensor;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

DeviceBytes upload(const auto& from) { return DeviceBytes(std::as_bytes(std::span(from))); }

template <class T>
std::vector<T> fetch(const DeviceBytes& from) {
  const std::vector<std::byte> bytes = from.fetch();
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

void expect_near(double got, double want, double error) {
  if (std::isnan(want) || std::isinf(want)) {
    EXPECT_TRUE(std::isnan(got) == std::isnan(want) && (std::isnan(got) || got == want))
        << got << ", not " << want;
  } else {
    EXPECT_NEAR(got, want, error * std::max(1.0, std::fabs(want)));
  }
}

// past: values that the logits begin after an address of 16 bytes, and out_past the same of the gradient.
void compare(const Tensor& logits, const std::vector<std::int64_t>& classes, std::int64_t past = 0,
             std::int64_t out_past = 0) {
  const DType dtype = logits.dtype();
  const std::int64_t rows = logits.shape()[0], length = logits.shape()[1];
  SCOPED_TRACE(fmt::format("{} {} x {}, {} past the start", to_string(dtype), rows, length, past));
  const auto count = static_cast<std::size_t>(rows);
  std::vector<float> losses(count);
  std::vector<RowSum> sums(count);
  const float scale = 0.25f;
  Tensor gradient(dtype, {rows, length});
  cross_entropy(ConstTensorView{logits.view()}, {classes.data(), 3}, losses.data(), sums.data());
  cross_entropy_gradient(ConstTensorView{logits.view()}, {classes.data(), 3}, sums.data(), &scale,
                         gradient.view());

  const ref::DeviceTensor in(logits, past);
  const DeviceBytes of_rows = upload(classes), by = upload(std::vector<float>{scale});
  const DeviceBytes got_losses(count * sizeof(float)), got_sums(count * sizeof(RowSum));
  const auto at = [](const DeviceBytes& bytes, auto* as) {
    return reinterpret_cast<decltype(as)>(bytes.data());
  };
  const Classes on_device{at(of_rows, static_cast<const std::int64_t*>(nullptr)), 3};
  auto* their_sums = at(got_sums, static_cast<RowSum*>(nullptr));
  cross_entropy(ConstTensorView{in.view()}, on_device, at(got_losses, static_cast<float*>(nullptr)),
                their_sums);
  const std::size_t width = size_bytes(dtype), front = static_cast<std::size_t>(out_past) * width;
  const DeviceBytes out(front + static_cast<std::size_t>(rows * length) * width);
  cross_entropy_gradient(ConstTensorView{in.view()}, on_device, their_sums,
                         at(by, static_cast<const float*>(nullptr)),
                         TensorView(out.data() + front, dtype, {rows, length}, Device::Cuda));
  const std::vector<float> losses_there = fetch<float>(got_losses);
  for (std::size_t i = 0; i < count; ++i) expect_near(losses_there[i], losses[i], 1e-6);
  const std::vector<std::byte> made = out.fetch();
  const double error = dtype == DType::BF16 ? 4e-3 : dtype == DType::F16 ? 5e-4 : 1e-7;
  for (std::int64_t i = 0; i < rows * length; ++i) {
    expect_near(ref::get(dtype, made.data() + front, static_cast<std::size_t>(i)), gradient.get(i),
                error * scale);
  }
  EXPECT_TRUE(got_losses.guards_untouched() && got_sums.guards_untouched());
  EXPECT_TRUE(out.guards_untouched());
}

std::vector<std::int64_t> some_classes(std::int64_t rows, std::int64_t length) {
  std::vector<std::int64_t> classes;
  for (std::int64_t row = 0; row < rows; ++row) classes.push_back(row * 7919 % length);
  return classes;
}

TEST(CrossEntropyCuda, IsNearTheCpusValues) {
  if (cuda_devices() == 0) GTEST_SKIP() << "there is no CUDA device";
  for (const DType dtype : {DType::F32, DType::F16, DType::BF16}) {
    for (const std::int64_t length : {1, 5, 8, 64, 257, 2048, 8192, 9001}) {
      const std::int64_t rows = length > 4000 ? 3 : 17;
      Tensor logits(dtype, {rows, length});
      logits.fill(ref::pattern(ref::Pattern::Random, dtype, rows * length));
      compare(logits, some_classes(rows, length));
      compare(logits, some_classes(rows, length), 1, 1);
      compare(logits, some_classes(rows, length), 3, 0);
    }
  }
}

TEST(CrossEntropyCuda, TakesInfinitiesNansAndUnknownClasses) {
  if (cuda_devices() == 0) GTEST_SKIP() << "there is no CUDA device";
  constexpr std::int64_t kRows = 9, kLength = 40;
  Tensor logits(DType::F32, {kRows, kLength});
  std::vector<double> values = ref::pattern(ref::Pattern::Random, DType::F32, kRows * kLength);
  const auto row = [&](std::int64_t at) { return values.begin() + at * kLength; };
  *(row(1) + 4) = -kInfinity;
  std::fill_n(row(2) + 1, kLength - 1, -kInfinity);
  std::fill_n(row(3), kLength, -kInfinity);
  *(row(4) + 39) = kInfinity;
  *(row(5) + 17) = std::numeric_limits<double>::quiet_NaN();
  std::fill_n(row(6), kLength, -3e38);
  *(row(6) + 9) = 3e38;
  logits.fill(values);
  compare(logits, {3, 4, 0, 1, 2, 5, 9, kLength, -1});
}

TEST(CrossEntropyCuda, RefusesWhatDoesNotFit) {
  Tensor logits(DType::F32, {4, 8}), other(DType::F32, {4, 9}), whole(DType::I32, {4, 8});
  float losses[4], scale = 1;
  RowSum sums[4];
  const std::int64_t classes[4] = {};
  const auto view = [](const Tensor& of) { return ConstTensorView{of.view()}; };
  EXPECT_THROW(cross_entropy(view(whole), {classes}, losses, sums), Error);
  EXPECT_THROW(cross_entropy(view(logits), {}, losses, sums), Error);
  EXPECT_THROW(cross_entropy(view(logits), {classes}, nullptr, sums), Error);
  EXPECT_THROW(cross_entropy_gradient(view(logits), {classes}, sums, &scale, other.view()), Error);
  EXPECT_THROW(cross_entropy_gradient(view(logits), {classes}, sums, nullptr, logits.view()),
               Error);
  Tensor empty(DType::F32, {0, 8});
  cross_entropy(view(empty), {}, nullptr, nullptr);
}

}  // namespace
}  // namespace tuckfold
