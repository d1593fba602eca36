// The numbers of channels for tests of normalize().
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "codec/then/normalize.h"

namespace tuckfold::ref {

// With those that need care: 0, huge, and not a number in results.
struct ChannelNumbers {
  std::vector<float> mean, invstd, weight, bias;

  explicit ChannelNumbers(std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      const auto x = static_cast<float>(i % 101);
      mean.push_back(0.013f * x - 0.7f);
      invstd.push_back(i % 23 == 7 ? 3e38f : 0.3f + 0.11f * x);
      weight.push_back(i % 13 == 5 ? 0.0f : 0.37f * x - 9);
      bias.push_back(i % 13 == 5 ? -0.0f : i % 19 == 4 ? NAN : 1.7f - 0.21f * x);
    }
  }
  Normalization how(std::int64_t inner, bool relu) const {
    return {.mean = mean.data(),
            .invstd = invstd.data(),
            .weight = weight.data(),
            .bias = bias.data(),
            .channels = static_cast<std::int64_t>(mean.size()),
            .inner = inner,
            .relu = relu};
  }
};

}  // namespace tuckfold::ref
