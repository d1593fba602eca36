// How far the samples of one array are from those of another, a batch at a time.
//
//   Difference all = compare_arrays({file, 0}, {original, 0}, {0, 1000}, threads, bar);
//   all.quality.psnr_db;   // the peak is the range of the original, over the samples compared
#pragma once

#include <cstdint>
#include <optional>

#include "cli/dataset/samples.h"
#include "cli/quality/quality.h"
#include "cli/quality/ssim.h"
#include "cli/terminal/progress_bar.h"

namespace tuckfold::cli {

struct Difference {
  Quality quality;
  Sums sums;
  std::optional<double> ssim;  // of samples with two axes or more; the mean over planes
  std::int64_t samples = 0;
  std::int64_t worst = -1;  // the sample with the largest mean square error; -1: all are equal
  Sums worst_sums;

  double worst_psnr_db() const { return worst_sums.psnr_db(quality.range); }
  bool exact() const noexcept { return quality.exact() && sums.changed == 0; }
};

struct ArrayRef {
  const Samples& samples;
  std::size_t array;
  const SourceArray& info() const { return samples.arrays()[array]; }
};

// Fill values that either side names, as the original has them.
std::vector<FillValue> fill_of_both(const SourceArray& result, const SourceArray& original);

// Bytes that compare_arrays reads, for a ProgressBar: the original is read twice if its range must
// be known first.
std::uint64_t compared_bytes(const ArrayRef& result, const ArrayRef& original,
                             std::int64_t samples);

// Both have samples of one shape, and the samples of the slice. The result does not depend on
// threads.
Difference compare_arrays(const ArrayRef& result, const ArrayRef& original,
                          const SampleSlice& slice, int threads, ProgressBar& bar);

}  // namespace tuckfold::cli
