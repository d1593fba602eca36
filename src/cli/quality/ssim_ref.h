// SSIM from its definition, window by window, in the units of the original; only tests include it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace tuckfold::cli::ref {

// Of planes H x W, row-major; `range` is the definition's L.
inline double ssim(const std::vector<double>& a, const std::vector<double>& b, std::int64_t height,
                   std::int64_t width, double range) {
  const auto taps = [](std::int64_t length) {
    return std::min<std::int64_t>(11, length % 2 == 1 ? length : length - 1);
  };
  const std::int64_t rows = taps(height), cols = taps(width);
  const double c1 = std::pow(0.01 * range, 2), c2 = std::pow(0.03 * range, 2);
  const auto weight = [&](std::int64_t y, std::int64_t x) {
    const auto dy = static_cast<double>(y - rows / 2), dx = static_cast<double>(x - cols / 2);
    return std::exp(-(dy * dy + dx * dx) / (2 * 1.5 * 1.5));
  };
  double total = 0;
  std::int64_t windows = 0;
  for (std::int64_t top = 0; top + rows <= height; ++top) {
    for (std::int64_t left = 0; left + cols <= width; ++left) {
      const auto sum = [&](auto&& value) {
        double result = 0, weights = 0;
        for (std::int64_t y = 0; y < rows; ++y) {
          for (std::int64_t x = 0; x < cols; ++x) {
            const auto at = static_cast<std::size_t>((top + y) * width + left + x);
            result += weight(y, x) * value(a[at], b[at]);
            weights += weight(y, x);
          }
        }
        return result / weights;
      };
      const double m = sum([](double p, double) { return p; });
      const double n = sum([](double, double q) { return q; });
      const double v = sum([&](double p, double) { return (p - m) * (p - m); });
      const double w = sum([&](double, double q) { return (q - n) * (q - n); });
      const double cov = sum([&](double p, double q) { return (p - m) * (q - n); });
      total += (2 * m * n + c1) * (2 * cov + c2) / ((m * m + n * n + c1) * (v + w + c2));
      ++windows;
    }
  }
  return total / static_cast<double>(windows);
}

}  // namespace tuckfold::cli::ref
