#include "cli/speed.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/parallel.h"
#include "base/stream.h"

namespace tuckfold::cli {
namespace {

// A timed piece lasts at least this long: the clock and the pool's hand-over are far below it.
constexpr double kMinSampleSeconds = 1e-3;
constexpr std::int64_t kCopyGrain = 4096;

double seconds_of(const std::function<void()>& work, int times) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < times; ++i) work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / times;
}

void copy_all(const Array& array, const HugeBuffer& out, int threads) {
  const auto bytes = static_cast<std::int64_t>(array.bytes());
  parallel_for((bytes + kCopyGrain - 1) / kCopyGrain, threads,
               [&](std::int64_t begin, std::int64_t end) {
                 const std::int64_t first = begin * kCopyGrain;
                 const std::int64_t last = std::min(end * kCopyGrain, bytes);
                 stream_copy(out.data() + first, array.values.data() + first,
                             static_cast<std::size_t>(last - first));
                 stream_fence();
               });
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

Rate rate_of(const std::vector<double>& seconds, std::size_t bytes) {
  const double gigabytes = static_cast<double>(bytes) * 1e-9;
  return {gigabytes / *std::min_element(seconds.begin(), seconds.end()),
          gigabytes / median(seconds)};
}

double median_quotient(const std::vector<double>& over, const std::vector<double>& under) {
  std::vector<double> quotients(over.size());
  std::transform(over.begin(), over.end(), under.begin(), quotients.begin(), std::divides<>());
  return median(quotients);
}

}  // namespace

Speed measure_speed(Subject& subject, const Array& array, const HugeBuffer& out,
                    const SpeedOptions& options) {
  const std::array<std::function<void()>, 3> works = {
      [&] { copy_all(array, out, options.threads); },
      [&] { subject.pack(); },
      [&] { subject.unpack(); },
  };
  std::array<int, 3> times{};
  for (std::size_t i = 0; i < works.size(); ++i) {
    works[i]();  // the first run pays for page faults and starting threads
    times[i] =
        static_cast<int>(std::ceil(kMinSampleSeconds / std::max(seconds_of(works[i], 1), 1e-7)));
  }
  std::array<std::vector<double>, 3> seconds;
  double spent = 0;
  int rounds = 0;
  for (; rounds < options.min_rounds || spent < options.min_seconds; ++rounds) {
    for (std::size_t i = 0; i < works.size(); ++i) {
      seconds[i].push_back(seconds_of(works[i], times[i]));
      spent += seconds[i].back() * times[i];
    }
  }
  const auto& [copy, pack, unpack] = seconds;
  Speed speed{.copy = rate_of(copy, array.bytes()),
              .pack = rate_of(pack, array.bytes()),
              .unpack = rate_of(unpack, array.bytes()),
              .pack_of_copy_median = median_quotient(copy, pack),
              .unpack_of_copy_median = median_quotient(copy, unpack),
              .rounds = rounds};
  speed.pack_of_copy = speed.pack.best / speed.copy.best;
  speed.unpack_of_copy = speed.unpack.best / speed.copy.best;
  return speed;
}

}  // namespace tuckfold::cli
