// normalize() on the CPU: against its definition, and what it refuses.
#include "codec/then/normalize.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "base/half.h"
#include "base/tensor_fixture.h"
#include "codec/contract_fixture.h"
#include "codec/then/normalize_fixture.h"
#include "tuckfold/error.h"

namespace tuckfold {
namespace {

using ref::ChannelNumbers;
using ref::Tensor;

// Beyond the largest number of the type is infinity, as in PyTorch.
double rounded(DType dtype, float value) {
  if (dtype == DType::F16) return to_float(to_f16(value));
  return dtype == DType::BF16 ? to_float(to_bf16(value)) : value;
}

// Each rounding from a long double, which holds products of floats.
double defined(DType dtype, double x, const double* add, const ChannelNumbers& of, std::size_t c,
               bool relu) {
  const auto centered = static_cast<float>(static_cast<long double>(x) - of.mean[c]);
  const auto scaled = static_cast<float>(static_cast<long double>(of.weight[c]) * centered);
  const auto sum = static_cast<float>(static_cast<long double>(scaled) * of.invstd[c] + of.bias[c]);
  double y = rounded(dtype, sum);
  if (add != nullptr) y = rounded(dtype, static_cast<float>(y + *add));
  return relu && !(y > 0) && !std::isnan(y) ? 0.0 : y;
}

struct Case {
  Shape shape;
  std::int64_t channels, inner;
};

TEST(Normalize, GivesWhatItsDefinitionSays) {
  for (const DType dtype : {DType::F32, DType::F16, DType::BF16}) {
    for (const Case& c : {Case{{2, 24, 16, 16}, 24, 256}, Case{{2, 16, 16, 24}, 24, 1},
                          Case{{3, 7, 9, 11}, 7, 99}, Case{{8, 5000}, 1, 1}}) {
      Tensor x(dtype, c.shape), add(dtype, c.shape), out(dtype, c.shape);
      x.fill(ref::pattern(ref::Pattern::Random, dtype, x.elems()));
      std::vector<double> others = ref::pattern(ref::Pattern::Random, dtype, x.elems());
      std::ranges::reverse(others);
      add.fill(others);
      const ChannelNumbers numbers(c.channels);
      const std::vector<double> from = x.values(), added = add.values();
      for (const bool relu : {false, true}) {
        for (const bool adds : {false, true}) {
          const ConstTensorView other{add.view()};
          normalize(ConstTensorView{x.view()}, adds ? &other : nullptr, out.view(),
                    numbers.how(c.inner, relu));
          const std::vector<double> got = out.values();
          for (std::size_t i = 0; i < got.size(); ++i) {
            const std::size_t channel =
                i / static_cast<std::size_t>(c.inner) % static_cast<std::size_t>(c.channels);
            const double expected =
                defined(dtype, from[i], adds ? &added[i] : nullptr, numbers, channel, relu);
            ASSERT_TRUE(std::isnan(expected) ? std::isnan(got[i]) : got[i] == expected)
                << to_string(dtype) << " at " << i << ": " << got[i] << ", not " << expected;
          }
        }
      }
    }
  }
}

TEST(Normalize, RowsHaveStatisticsOfTheirOwn) {
  constexpr std::int64_t kRows = 5, kLength = 24;
  const ChannelNumbers of_rows(kRows), of_places(kLength);
  for (const DType dtype : {DType::F32, DType::F16, DType::BF16}) {
    for (const DType to : {DType::F32, DType::F16, DType::BF16}) {
      Tensor x(dtype, {kRows, kLength}), out(to, {kRows, kLength});
      x.fill(ref::pattern(ref::Pattern::Random, dtype, x.elems()));
      normalize_rows(ConstTensorView{x.view()}, out.view(),
                     {.mean = of_rows.mean.data(),
                      .invstd = of_rows.invstd.data(),
                      .weight = of_places.weight.data(),
                      .bias = of_places.bias.data(),
                      .length = kLength});
      const std::vector<double> from = x.values(), got = out.values();
      for (std::size_t i = 0; i < got.size(); ++i) {
        const std::size_t r = i / kLength, c = i % kLength;
        const auto centered =
            static_cast<float>(static_cast<long double>(from[i]) - of_rows.mean[r]);
        const auto scaled =
            static_cast<float>(static_cast<long double>(of_rows.invstd[r]) * centered);
        const auto sum = static_cast<float>(static_cast<long double>(scaled) * of_places.weight[c] +
                                            of_places.bias[c]);
        const double expected = rounded(to, static_cast<float>(rounded(dtype, sum)));
        ASSERT_TRUE(std::isnan(expected) ? std::isnan(got[i]) : got[i] == expected)
            << to_string(dtype) << " at " << i << ": " << got[i] << ", not " << expected;
      }
    }
  }
}

TEST(Normalize, RefusesWhatDoesNotFit) {
  std::vector<float> values(24), numbers(6);
  const TensorView view(values.data(), DType::F32, {4, 6});
  const ConstTensorView in{view};
  Normalization how{.mean = numbers.data(),
                    .invstd = numbers.data(),
                    .weight = numbers.data(),
                    .bias = numbers.data(),
                    .channels = 6};
  normalize(in, nullptr, view, how);
  const auto refused = [&](const ConstTensorView& x, const ConstTensorView* add) {
    EXPECT_THROW(normalize(x, add, view, how), Error);
  };
  const ConstTensorView transposed(values.data(), DType::F32, {4, 6}, Shape{1, 4});
  const ConstTensorView shorter(values.data(), DType::F32, {3, 6});
  const ConstTensorView half(values.data(), DType::F16, {4, 6});
  refused(transposed, nullptr);
  refused(half, nullptr);
  refused(in, &shorter);
  refused(in, &half);
  how.channels = 5;
  refused(in, nullptr);
  how.channels = 0;
  refused(in, nullptr);
  how = {.mean = numbers.data(), .channels = 6};
  refused(in, nullptr);
}

TEST(Normalize, TakesNoValues) {
  const TensorView none(nullptr, DType::F32, {0, 6});
  normalize(ConstTensorView{none}, nullptr, none, {});
}

}  // namespace
}  // namespace tuckfold
