// The time of a call from the host, t = t0 + in/B_in + out/B_out: what the paper's throughputs
// measure, since its codec is far faster on chip than its link.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/fail.h"
#include "planner/graphs.h"
#include "portable/count.h"

namespace tuckfold {
namespace {

using portable::Count;

double seconds_of(const HostCallModel& model, const HostCallModel::Setting& setting,
                  const Count& count, double tensor_bytes) {
  const auto in = model.uncompressed ? tensor_bytes : static_cast<double>(count.in_bytes);
  const auto part = [](double amount, double per_s) { return per_s == 0 ? 0 : amount / per_s; };
  return setting.t0_s + part(in, setting.in_bytes_per_s) +
         part(static_cast<double>(count.out_bytes), setting.out_bytes_per_s) +
         part(static_cast<double>(count.flops), setting.flops);
}

bool within(const Shape& shape, const Shape& until) {
  return shape[0] <= until[0] && shape.elems() / shape[0] <= until.elems() / until[0];
}

// What no call can be faster than, from the device's figures, where nobody has measured one.
HostCallTime bound(const DeviceInfo& device, const Count& count) {
  double seconds = 0;
  const auto at_least = [&](const char* number, double amount) {
    const auto found = device.numbers.find(number);
    if (found != device.numbers.end()) seconds = std::max(seconds, amount / found->second.value);
  };
  // The fastest peak of any type: a framework may choose TF32 or less for products of f32.
  double peak = 0;
  for (const char* number :
       {"peak_f32_flops", "peak_tf32_flops", "peak_f16_flops", "peak_bf16_flops"}) {
    const auto found = device.numbers.find(number);
    if (found != device.numbers.end()) peak = std::max(peak, found->second.value);
  }
  if (peak > 0) seconds = static_cast<double>(count.flops) / peak;
  at_least("off_chip_bytes_per_s", static_cast<double>(count.in_bytes + count.out_bytes));
  if (seconds == 0) {
    fail(Errc::Unsupported,
         "[time] {} has neither `host_call` nor figures that bound it; measure a call and add them",
         device.name);
  }
  return {
      .seconds = seconds,
      .low = seconds,
      .high = std::numeric_limits<double>::infinity(),
      .how = "a bound: its fastest peak and its memory's bandwidth, without the link to the host"};
}

}  // namespace

HostCallTime host_call_time(const DeviceInfo& device, const CodecSpec& spec, DType dtype,
                            const Shape& shape, Direction direction) {
  if (direction == Direction::Both) invalid("[time] ask for one direction at a time");
  const Count count = portable::count(graphs_of(spec, dtype, shape, direction).front());
  if (!device.host_call) return bound(device, count);
  const HostCallModel& model = *device.host_call;
  const double tensor_bytes =
      static_cast<double>(shape.elems()) * static_cast<double>(size_bytes(dtype));
  const auto ends_of = [&](const Count& of) {
    double least = std::numeric_limits<double>::infinity(), most = 0;
    for (const HostCallModel::Setting& setting : model.settings) {
      const double seconds = seconds_of(model, setting, of, tensor_bytes);
      least = std::min(least, seconds);
      most = std::max(most, seconds);
    }
    return std::pair(least, most);
  };
  const auto middle_of = [](double least, double most) {
    return std::clamp(std::sqrt(least) * std::sqrt(most), least, most);
  };
  const auto [least, most] = ends_of(count);
  const double middle = middle_of(least, most);
  HostCallTime time{.seconds = middle,
                    .low = least * (1 - model.error),
                    .high = most * (1 + model.error),
                    .how = fmt::format("{} ({}, {}){}{}", model.points, model.from.source,
                                       model.from.at, model.note.empty() ? "" : "; ", model.note)};
  if (model.flat && within(shape, model.flat->until)) {
    time.low = std::min(time.low, model.flat->seconds * (1 - model.error));
    time.high = std::max(time.high, model.flat->seconds * (1 + model.error));
    time.how += fmt::format("; the interval holds {:.3g} ms, too, as stated up to {} ({}, {})",
                            model.flat->seconds * 1e3, to_string(model.flat->until),
                            model.flat->from.source, model.flat->from.at);
  }
  const Stage& first = spec.stages().front();
  if (first.codec->name != "dct_chop" || spec.stages().size() > 1) {
    time.high = std::numeric_limits<double>::infinity();
    time.how += "; timed was dct_chop alone, and what the other operators add is not known";
  }
  if (first.codec->name != "dct_chop") return time;
  double factor = 1;  // of tiles
  if (first["serialize"] > 1 && device.serialize) {
    // The middle; but where the factors differ by less than the fit's error, the nearest to the fit.
    const auto [low, high] = std::pair(device.serialize->low, device.serialize->high);
    const bool near = high / low < (1 + model.error) / (1 - model.error);
    factor = near ? std::clamp(1.0, low, high) : middle_of(low, high);
    time.seconds *= factor;
    time.low *= device.serialize->low;
    time.high *= device.serialize->high;
    time.how +=
        fmt::format("; tiles take {:.3g} to {:.3g} times as long, {:.3g} in the estimate ({}, {})",
                    device.serialize->low, device.serialize->high, factor,
                    device.serialize->from.source, device.serialize->from.at);
  }
  if (first["shape"] == 1 && device.triangle) {
    const bool packs = direction == Direction::Pack;
    const auto packed = static_cast<double>(packs ? count.out_bytes : count.in_bytes);
    const DeviceInfo::Slower& slower = *device.triangle;
    // The two figures are of one size: far from it the parameters alone would leave the factors.
    Count whole = count;
    const auto keep = static_cast<double>(first["keep"]);
    (packs ? whole.out_bytes : whole.in_bytes) =
        static_cast<std::int64_t>(packed * 2 * keep / (keep + 1));
    const auto [fast, slow] = ends_of(whole);
    const double square = middle_of(fast, slow) * factor;
    const double added = slower.t0_s + slower.s_per_value * packed / sizeof(float);
    time.seconds = std::clamp(time.seconds + added, square * slower.low, square * slower.high);
    time.low = std::min(time.low * slower.low, time.seconds * (1 - model.error));
    time.high = std::max(time.high, slow * (1 + model.error) * factor) * slower.high;
    time.how += fmt::format(
        "; the triangle adds {:.4g} ms + {:.4g} ns for each packed value, and takes {:.3g} to "
        "{:.3g} times as long as the square ({}, {})",
        slower.t0_s * 1e3, slower.s_per_value * 1e9, slower.low, slower.high, slower.from.source,
        slower.from.at);
    if (!slower.note.empty()) time.how += fmt::format("; {}", slower.note);
  }
  return time;
}

}  // namespace tuckfold
