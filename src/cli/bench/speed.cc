#include "cli/bench/speed.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <functional>
#include <vector>

#include "base/stream.h"

namespace tuckfold::cli {
namespace {

// A timed piece lasts at least this long: the clock and the pool's hand-over are far below it.
constexpr double kMinSampleSeconds = 1e-3;

double seconds_of(const std::function<void()>& work, int times) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < times; ++i) work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / times;
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

Speed measure_speed(BenchTarget& bench_target, const Array& array, const HugeBuffer& out,
                    const SpeedOptions& options) {
  const auto copy_all = [&](bool prefetch) {
    stream_copy(out.data(), array.values.data(), array.bytes(), options.threads, prefetch);
  };
  const std::array<std::function<void()>, 4> works = {
      [&] { copy_all(false); },
      [&] { copy_all(true); },
      [&] { bench_target.pack(); },
      [&] { bench_target.unpack(); },
  };
  std::array<int, 4> times{};
  for (std::size_t i = 0; i < works.size(); ++i) {
    works[i]();  // the first run pays for page faults and starting threads
    times[i] =
        static_cast<int>(std::ceil(kMinSampleSeconds / std::max(seconds_of(works[i], 1), 1e-7)));
  }
  std::array<std::vector<double>, 4> seconds;
  double spent = 0;
  int rounds = 0;
  for (; rounds < options.min_rounds || spent < options.min_seconds; ++rounds) {
    for (std::size_t i = 0; i < works.size(); ++i) {
      seconds[i].push_back(seconds_of(works[i], times[i]));
      spent += seconds[i].back() * times[i];
    }
  }
  const auto& [copy, copy_prefetched, pack, unpack] = seconds;
  Speed speed{.copy = rate_of(copy, array.bytes()),
              .copy_prefetched = rate_of(copy_prefetched, array.bytes()),
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
