#include "cli/quality/difference.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/fill.h"
#include "base/parallel.h"

namespace tuckfold::cli {
namespace {

constexpr std::int64_t kMostSamples = 1 << 16;  // at a time: sums of a label are larger than it
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

bool has_ssim(const ArrayRef& original) {
  return original.info().sample.rank() >= 2 && original.info().sample.elems() > 0;
}
bool needs_range(const ArrayRef& original) {
  return has_ssim(original) && original.info().dtype != DType::U8;
}

// Samples of an array, read in turn to the same memory.
class Batches {
 public:
  Batches(const ArrayRef& ref, std::int64_t most)
      : ref_(ref), room_(static_cast<std::size_t>(most) * ref.info().sample_bytes()) {}
  void read(const SampleSlice& slice, int threads) {
    ref_.samples.read(ref_.array, slice, room_.data(), threads);
  }
  const std::byte* sample(std::int64_t number) const {
    return room_.data() + static_cast<std::size_t>(number) * ref_.info().sample_bytes();
  }
  DType dtype() const { return ref_.info().dtype; }

 private:
  ArrayRef ref_;
  HugeBuffer room_;
};

std::vector<Sums> compare_samples(const Batches& original, const Batches& result,
                                  const FillMarks& fill, std::int64_t elems, std::int64_t samples,
                                  int threads) {
  std::vector<Sums> each(static_cast<std::size_t>(samples));
  parallel_for(samples, threads, [&](std::int64_t begin, std::int64_t end) {
    std::vector<std::uint8_t> marks(fill.empty() ? 0 : static_cast<std::size_t>(elems));
    for (std::int64_t i = begin; i < end; ++i) {
      if (!fill.empty()) fill.mark(original.sample(i), elems, marks.data());
      each[static_cast<std::size_t>(i)] =
          compare_values(original.dtype(), original.sample(i), result.dtype(), result.sample(i),
                         elems, fill.empty() ? nullptr : marks.data());
    }
  });
  return each;
}

// SSIM of every plane of a batch, in order, so that sums do not depend on threads.
std::vector<SsimSum> ssim_of_planes(const Batches& original, const Batches& result,
                                    const FillMarks& fill, const Planes& planes,
                                    const SsimScale& scale, std::int64_t samples, int threads) {
  const std::int64_t elems = planes.height * planes.width * planes.count;
  std::vector<SsimSum> sums(static_cast<std::size_t>(samples * planes.count));
  parallel_for(std::ssize(sums), threads, [&](std::int64_t begin, std::int64_t end) {
    Ssim ssim(planes.height, planes.width, scale);
    std::vector<std::uint8_t> marks(fill.empty() ? 0 : static_cast<std::size_t>(elems));
    std::int64_t marked = -1;  // the sample that `marks` are of
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t sample = i / planes.count, from = planes.offset(i % planes.count);
      const auto load = [&](std::int64_t y, double* wants, double* gots) {
        const std::int64_t first = from + y * planes.frame.row_step;
        const std::int64_t step = planes.frame.col_step;
        values_at(original.dtype(), original.sample(sample), first, step, planes.width, wants);
        values_at(result.dtype(), result.sample(sample), first, step, planes.width, gots);
        // Windows over NaN have no value.
        for (std::int64_t x = 0; !marks.empty() && x < planes.width; ++x) {
          if (marks[static_cast<std::size_t>(first + x * step)] != 0) wants[x] = kNan;
        }
      };
      if (!marks.empty() && marked != sample) {
        fill.mark(original.sample(sample), elems, marks.data());
        marked = sample;
      }
      sums[static_cast<std::size_t>(i)] = ssim.run(load);
    }
  });
  return sums;
}

// The finite range of the original, from comparing it with itself sample by sample.
SsimScale scale_of(const ArrayRef& original, const FillMarks& fill, const SampleSlice& slice,
                   std::int64_t batch, int threads, ProgressBar& bar) {
  if (!needs_range(original)) return {};
  const SourceArray& info = original.info();
  Batches values(original, batch);
  Sums all;
  for (std::int64_t at = 0; at < slice.samples; at += batch) {
    const std::int64_t count = std::min(batch, slice.samples - at);
    values.read({slice.at(at), count, slice.step}, threads);
    for (const Sums& one :
         compare_samples(values, values, fill, info.sample.elems(), count, threads)) {
      all.add(one);
    }
    bar.add(static_cast<std::uint64_t>(count) * info.sample_bytes());
  }
  return {.low = all.low, .range = all.high - all.low};
}

double badness(const Sums& sums) { return sums.lost > 0 ? kInfinity : sums.error_db(); }

void take(Difference& all, const Sums& sums, std::int64_t sample) {
  all.sums.add(sums);
  const bool differs = sums.max_error > 0 || sums.lost > 0;
  if (!differs || (all.worst >= 0 && badness(sums) <= badness(all.worst_sums))) return;
  all.worst = sample;
  all.worst_sums = sums;
}

}  // namespace

std::vector<FillValue> fill_of_both(const SourceArray& result, const SourceArray& original) {
  std::vector<FillValue> fill = original.fill;
  for (const FillValue& value : result.fill) {
    const std::optional<FillValue> own = fill_value_in(original.dtype, value.value);
    if (own && std::ranges::find(fill, *own) == fill.end()) fill.push_back(*own);
  }
  return fill;
}

std::uint64_t compared_bytes(const ArrayRef& result, const ArrayRef& original,
                             std::int64_t samples) {
  const std::uint64_t passes = needs_range(original) ? 2 : 1;
  return static_cast<std::uint64_t>(samples) *
         (passes * original.info().sample_bytes() + result.info().sample_bytes());
}

Difference compare_arrays(const ArrayRef& result, const ArrayRef& original,
                          const SampleSlice& slice, int threads, ProgressBar& bar) {
  const SourceArray& info = original.info();
  const std::int64_t batch = std::clamp<std::int64_t>(
      std::min(slice.samples, std::max(result.samples.batch(result.array, threads),
                                       original.samples.batch(original.array, threads))),
      1, kMostSamples);
  const FillMarks fill(info.dtype, fill_of_both(result.info(), info));
  const SsimScale scale = scale_of(original, fill, slice, batch, threads, bar);
  // SSIM of a constant original has no scale.
  const bool judge = has_ssim(original) && std::isfinite(scale.range) && scale.range > 0;
  const Planes planes = judge ? Planes::of(info.sample) : Planes{};
  Batches wants(original, batch), gots(result, batch);
  Difference all{.samples = slice.samples};
  double ssim = 0;
  std::int64_t judged = 0;
  for (std::int64_t at = 0; at < slice.samples; at += batch) {
    const std::int64_t count = std::min(batch, slice.samples - at);
    wants.read({slice.at(at), count, slice.step}, threads);
    gots.read({slice.at(at), count, slice.step}, threads);
    const auto each = compare_samples(wants, gots, fill, info.sample.elems(), count, threads);
    for (std::int64_t i = 0; i < count; ++i)
      take(all, each[static_cast<std::size_t>(i)], slice.at(at + i));
    if (judge) {
      for (const SsimSum& sum : ssim_of_planes(wants, gots, fill, planes, scale, count, threads)) {
        if (const std::optional<double> mean = sum.mean()) ssim += *mean, ++judged;
      }
    }
    bar.add(static_cast<std::uint64_t>(count) *
            (info.sample_bytes() + result.info().sample_bytes()));
  }
  all.quality = quality_of(all.sums);
  if (judged > 0 && all.sums.lost == 0) all.ssim = ssim / static_cast<double>(judged);
  if (has_ssim(original) && !judge && all.exact() && all.sums.finite > 0) all.ssim = 1;
  return all;
}

}  // namespace tuckfold::cli
