// The window is separable, so a row is blurred once and kept while windows reach it. Values are
// relative to the lowest one, in units of the range: large offsets and small ranges lose no digits.
#include "cli/quality/ssim.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tuckfold::cli {
namespace {

constexpr std::int64_t kWindow = 11;
constexpr double kSigma = 1.5, kC1 = 0.01 * 0.01, kC2 = 0.03 * 0.03;
constexpr double kFar = 1e60;  // further away nothing is alike, and squares stay finite
enum Moment : std::int64_t { Original, Result, Squares, Difference, kMoments };

std::vector<double> gaussian(std::int64_t length) {
  const std::int64_t taps = std::min(kWindow, length - (length + 1) % 2);
  std::vector<double> weights(static_cast<std::size_t>(taps));
  double sum = 0;
  for (std::int64_t i = 0; i < taps; ++i) {
    const auto from_middle = static_cast<double>(i - taps / 2);
    sum += weights[static_cast<std::size_t>(i)] =
        std::exp(-from_middle * from_middle / (2 * kSigma * kSigma));
  }
  for (double& weight : weights) weight /= sum;
  return weights;
}

double in_units(double value, const SsimScale& scale) {
  if (!std::isfinite(value)) return std::numeric_limits<double>::quiet_NaN();
  return std::clamp((value - scale.low) / scale.range, -kFar, kFar);
}

}  // namespace

Planes Planes::of(const Shape& sample) {
  Planes planes;
  planes.frame = frame_of(sample, 0);
  planes.height = planes.frame.height;
  planes.width = planes.frame.width;
  planes.count = planes.frame.count * planes.frame.channels;
  return planes;
}

std::int64_t Planes::offset(std::int64_t plane) const {
  return plane / frame.channels * height * width * frame.channels +
         plane % frame.channels * frame.channel_step;
}

std::optional<double> SsimSum::mean() const {
  return windows == 0 ? std::nullopt : std::optional(sum / static_cast<double>(windows));
}

Ssim::Ssim(std::int64_t height, std::int64_t width, const SsimScale& scale)
    : height_(height),
      width_(width),
      scale_(scale),
      down_(gaussian(height)),
      across_(gaussian(width)),
      row_(static_cast<std::size_t>(kMoments * width)),
      ring_(row_.size() * down_.size()),
      sums_(row_.size()) {}

void Ssim::blur_row(std::int64_t y, const Load& load) {
  double* row = row_.data();
  load(y, row + Original * width_, row + Result * width_);
  for (std::int64_t x = 0; x < width_; ++x) {
    const double a = row[Original * width_ + x] = in_units(row[Original * width_ + x], scale_);
    const double b = row[Result * width_ + x] = in_units(row[Result * width_ + x], scale_);
    row[Squares * width_ + x] = a * a + b * b;
    row[Difference * width_ + x] = (a - b) * (a - b);
  }
  const std::int64_t taps = std::ssize(across_), windows = width_ - taps + 1;
  double* out = ring_.data() + y % std::ssize(down_) * kMoments * width_;
  for (std::int64_t moment = 0; moment < kMoments; ++moment) {
    double* to = out + moment * width_;
    std::fill_n(to, windows, 0.0);
    for (std::int64_t i = 0; i < taps; ++i) {
      const double weight = across_[static_cast<std::size_t>(i)];
      const double* from = row + moment * width_ + i;
      for (std::int64_t x = 0; x < windows; ++x) to[x] += weight * from[x];
    }
  }
}

// The score of the windows whose last row is y. With means m, n and variances v, w the definition
// is (2mn + C1)(2cov + C2) / ((mm + nn + C1)(v + w + C2)); each factor is written as 1 minus a
// difference, which is exactly 0 for equal planes.
SsimSum Ssim::score_row(std::int64_t y) {
  const std::int64_t taps = std::ssize(down_), windows = width_ - std::ssize(across_) + 1;
  std::fill(sums_.begin(), sums_.end(), 0.0);
  for (std::int64_t i = 0; i < taps; ++i) {
    const double weight = down_[static_cast<std::size_t>(i)];
    const double* from = ring_.data() + (y - taps + 1 + i) % taps * kMoments * width_;
    for (std::int64_t k = 0; k < kMoments * width_; ++k) {
      sums_[static_cast<std::size_t>(k)] += weight * from[k];
    }
  }
  const double zero = scale_.low / scale_.range;  // what 0 is away from the lowest value
  SsimSum total;
  for (std::int64_t x = 0; x < windows; ++x) {
    const auto sum = [&](Moment moment) {
      return sums_[static_cast<std::size_t>(moment * width_ + x)];
    };
    const double m = sum(Original), n = sum(Result), apart = (m - n) * (m - n);
    const double both = std::max(sum(Squares) - m * m - n * n, 0.0);
    const double unlike = std::max(sum(Difference) - apart, 0.0);
    const double bright = (m + zero) * (m + zero) + (n + zero) * (n + zero);
    // Rounding of huge values must not take the second factor out of -1..1.
    const double score = (1 - apart / (bright + kC1)) * std::max(1 - unlike / (both + kC2), -1.0);
    if (std::isnan(score)) continue;
    total.sum += score;
    ++total.windows;
  }
  return total;
}

SsimSum Ssim::run(const Load& load) {
  SsimSum total;
  for (std::int64_t y = 0; y < height_; ++y) {
    blur_row(y, load);
    if (y + 1 < std::ssize(down_)) continue;
    const SsimSum row = score_row(y);
    total.sum += row.sum;
    total.windows += row.windows;
  }
  return total;
}

}  // namespace tuckfold::cli
