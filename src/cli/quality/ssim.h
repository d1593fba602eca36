// SSIM, the structural similarity of Wang, Bovik, Sheikh and Simoncelli (2004): a Gaussian window
// of 11 x 11 and sigma 1.5, K1 = 0.01, K2 = 0.03, the mean over all windows inside of a plane.
// Along an axis shorter than 11 the window has the largest odd length that fits.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "cli/pictures/picture.h"

namespace tuckfold::cli {

// What "black" and "white" are in the original: the definition's L is the distance between them.
struct SsimScale {
  double low = 0, range = 255;
};

// Planes of H x W in a sample: its last two axes, or of H x W x 3 each channel.
struct Planes {
  std::int64_t height = 0, width = 0, count = 0;
  Frame frame{};

  static Planes of(const Shape& sample);  // of two axes at least
  // Place of a plane's first value among those of its sample.
  std::int64_t offset(std::int64_t plane) const;
};

// The windows of one plane that have a value: those over NaN or infinity have none.
struct SsimSum {
  double sum = 0;
  std::int64_t windows = 0;
  std::optional<double> mean() const;
};

// One plane after the other, row by row: memory grows with a plane's width alone.
class Ssim {
 public:
  Ssim(std::int64_t height, std::int64_t width, const SsimScale& scale);

  // Fills row y of the original and of the result.
  using Load = std::function<void(std::int64_t y, double* original, double* result)>;
  SsimSum run(const Load& load);

 private:
  void blur_row(std::int64_t y, const Load& load);
  SsimSum score_row(std::int64_t y);

  std::int64_t height_, width_;
  SsimScale scale_;
  std::vector<double> down_, across_;  // weights of the window
  std::vector<double> row_;            // four moments of the values in a row
  std::vector<double> ring_;  // the same, blurred along the row, for as many rows as a window has
  std::vector<double> sums_;  // the same, blurred along columns, too
};

}  // namespace tuckfold::cli
