// normalize() on CUDA: the CPU's values, for channels next to each other and for planes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/cuda/device_fixture.h"
#include "base/fail.h"
#include "codec/contract_fixture.h"
#include "codec/then/normalize.h"
#include "codec/then/normalize_fixture.h"

namespace tuckfold {
namespace {

using ref::ChannelNumbers;
using ref::DeviceBytes;
using ref::Tensor;

// Tensors start `shift` values after an address that is a multiple of 256.
void compare(DType dtype, std::int64_t elems, std::int64_t channels, std::int64_t inner,
             std::int64_t shift = 0) {
  SCOPED_TRACE(fmt::format("{} {}, {} channels of {}, {} past the start", to_string(dtype), elems,
                           channels, inner, shift));
  Tensor x(dtype, {elems}), add(dtype, {elems}), expected(dtype, {elems});
  x.fill(ref::pattern(ref::Pattern::Random, dtype, elems));
  std::vector<double> others = ref::pattern(ref::Pattern::Random, dtype, elems);
  std::ranges::reverse(others);
  add.fill(others);
  const ChannelNumbers numbers(channels);
  const auto upload = [](const std::vector<float>& from) {
    return DeviceBytes(std::as_bytes(std::span(from)));
  };
  const DeviceBytes mean = upload(numbers.mean), invstd = upload(numbers.invstd),
                    weight = upload(numbers.weight), bias = upload(numbers.bias);
  const std::size_t skipped = static_cast<std::size_t>(shift) * size_bytes(dtype);
  const auto shifted = [&](const Tensor& from) {
    std::vector<std::byte> all(skipped);
    const auto bytes = from.bytes();
    all.insert(all.end(), bytes.begin(), bytes.end());
    return all;
  };
  const DeviceBytes in(shifted(x)), other(shifted(add));
  const DeviceBytes out(skipped + static_cast<std::size_t>(elems) * size_bytes(dtype));
  const auto at = [](const DeviceBytes& bytes) {
    return reinterpret_cast<const float*>(bytes.data());
  };
  for (const bool relu : {false, true}) {
    for (const bool adds : {false, true}) {
      const ConstTensorView host_other{add.view()};
      normalize(ConstTensorView{x.view()}, adds ? &host_other : nullptr, expected.view(),
                numbers.how(inner, relu));
      Normalization how = numbers.how(inner, relu);
      how.mean = at(mean), how.invstd = at(invstd), how.weight = at(weight), how.bias = at(bias);
      const auto view = [&](const DeviceBytes& bytes) {
        return TensorView(const_cast<std::byte*>(bytes.data()) + skipped, dtype, {elems},
                          Device::Cuda);
      };
      const ConstTensorView device_other{view(other)};
      normalize(ConstTensorView{view(in)}, adds ? &device_other : nullptr, view(out), how);
      std::vector<std::byte> got = out.fetch();
      got.erase(got.begin(), got.begin() + static_cast<std::ptrdiff_t>(skipped));
      const auto want = expected.bytes();
      for (std::size_t i = 0; i < static_cast<std::size_t>(elems); ++i) {
        const double a = ref::get(dtype, got.data(), i), b = ref::get(dtype, want.data(), i);
        const bool is_same = a == b && std::signbit(a) == std::signbit(b);
        ASSERT_TRUE(is_same || (std::isnan(a) && std::isnan(b))) << i << ": " << a << ", not " << b;
      }
      EXPECT_TRUE(out.guards_untouched());
    }
  }
}

TEST(NormalizeCuda, HasTheCpusValues) {
  if (cuda_devices() == 0) GTEST_SKIP() << "there is no CUDA device";
  for (const DType dtype : {DType::F32, DType::F16, DType::BF16}) {
    compare(dtype, 24 * 400, 24, 1);     // channels_last, whole vectors
    compare(dtype, 8 * 33 * 40, 8, 1);   // many rows of a thread
    compare(dtype, 4096 * 3, 4096, 1);   // more vectors in a row than threads
    compare(dtype, 21 * 400, 21, 1);     // channels_last, odd
    compare(dtype, 12 * 800, 12, 400);   // rows, whole vectors
    compare(dtype, 12 * 490, 6, 49);     // rows, odd
    compare(dtype, 12 * 490, 6, 49, 1);  // at an odd address
    compare(dtype, 3 * 5 * 3, 5, 3);     // short planes
    compare(dtype, 3, 3, 1);             // less than a vector
    compare(dtype, 1024, 1, 1);          // one channel
  }
}

void compare_rows(DType dtype, DType to, std::int64_t rows, std::int64_t length) {
  SCOPED_TRACE(
      fmt::format("{} to {}, {} rows of {}", to_string(dtype), to_string(to), rows, length));
  Tensor x(dtype, {rows, length}), expected(to, {rows, length});
  x.fill(ref::pattern(ref::Pattern::Random, dtype, rows * length));
  const ChannelNumbers of_rows(rows), of_places(length);
  RowNormalization how{.mean = of_rows.mean.data(),
                       .invstd = of_rows.invstd.data(),
                       .weight = of_places.weight.data(),
                       .bias = of_places.bias.data(),
                       .length = length};
  normalize_rows(ConstTensorView{x.view()}, expected.view(), how);
  const auto upload = [](const std::vector<float>& from) {
    return DeviceBytes(std::as_bytes(std::span(from)));
  };
  const DeviceBytes mean = upload(of_rows.mean), invstd = upload(of_rows.invstd),
                    weight = upload(of_places.weight), bias = upload(of_places.bias);
  const auto at = [](const DeviceBytes& bytes) {
    return reinterpret_cast<const float*>(bytes.data());
  };
  how.mean = at(mean), how.invstd = at(invstd), how.weight = at(weight), how.bias = at(bias);
  const auto bytes = x.bytes();
  const DeviceBytes in(std::vector<std::byte>(bytes.begin(), bytes.end()));
  const DeviceBytes out(static_cast<std::size_t>(rows * length) * size_bytes(to));
  const auto view = [&](const DeviceBytes& of, DType as) {
    return TensorView(const_cast<std::byte*>(of.data()), as, {rows, length}, Device::Cuda);
  };
  normalize_rows(ConstTensorView{view(in, dtype)}, view(out, to), how);
  const std::vector<std::byte> got = out.fetch();
  const auto want = expected.bytes();
  for (std::int64_t i = 0; i < rows * length; ++i) {
    const double a = ref::get(to, got.data(), i), b = ref::get(to, want.data(), i);
    ASSERT_TRUE(a == b || (std::isnan(a) && std::isnan(b))) << i << ": " << a << ", not " << b;
  }
  EXPECT_TRUE(out.guards_untouched());
}

TEST(NormalizeCuda, RowsHaveTheCpusValues) {
  if (cuda_devices() == 0) GTEST_SKIP() << "there is no CUDA device";
  constexpr DType kAll[] = {DType::F32, DType::F16, DType::BF16};
  for (const DType dtype : kAll) {
    for (const DType to : kAll) {
      compare_rows(dtype, to, 70, 768);
      compare_rows(dtype, to, 3, 4096);  // more than a block has threads for
      compare_rows(dtype, to, 300, 8);
      compare_rows(dtype, to, 5, 21);
    }
  }
}

}  // namespace
}  // namespace tuckfold
