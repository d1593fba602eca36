// Whether a training step of a structured layer fits a device.
#include <algorithm>

#include "base/fail.h"
#include "planner/tiles.h"
#include "planner/verdict.h"

namespace tuckfold {
namespace {

const DeviceLimit* memory_limit(const DeviceInfo& device) {
  for (const DeviceLimit& limit : device.limits) {
    if (limit.rule == DeviceLimit::Rule::MemoryBytes) return &limit;
  }
  return nullptr;
}

LayerFit fit_of(const DeviceInfo& device, const LayerQuestion& asked) {
  const StructuredLayer layer(asked.text, asked.in, asked.out);
  LayerFit fit;
  if (device.tiles) {
    const structured::Parsed parsed = structured::parse(asked.text);
    const auto declaration = parsed.family->declare(parsed.values, asked.in, asked.out);
    const DeviceNumber& units = device.numbers.at("compute_units");
    const DeviceNumber& unit = device.numbers.at("on_chip_bytes_per_unit");
    fit.tiles = count_tiles(device, declaration, asked);
    fit.bytes = fit.tiles->bytes();
    fit.most = unit.value;
    fit.fits = fit.bytes <= fit.most;
    fit.why = fmt::format("a training step takes {} of each of {} tiles, which have {} ({})",
                          bytes_text(fit.bytes), units.value, bytes_text(fit.most),
                          source_text(unit.from));
    return fit;
  }
  const DeviceLimit* limit = memory_limit(device);
  if (limit == nullptr) {
    fail(Errc::Unsupported, "[fits] the file of {} gives no limit memory_bytes; add one to a copy",
         device.name);
  }
  StepMemory memory =
      layer.step_memory(asked.dtype, asked.samples, {.states = asked.states, .threads = 1});
  fit.bytes = static_cast<double>(memory.peak() - memory.workspace);
  fit.most = limit->value;
  fit.fits = fit.bytes <= fit.most;
  fit.why = fmt::format("a training step takes {} beside its workspace, and {} ({})",
                        bytes_text(fit.bytes), limit->text, source_text(limit->from));
  return fit;
}

// The largest that fits, up to a million: memory only grows from one to the next.
std::int64_t largest_of(const DeviceInfo& device, LayerQuestion asked) {
  std::int64_t largest = 0;
  for (std::int64_t features = 2; features <= LayerFit::kMostFeatures; features *= 2) {
    asked.in = asked.out = features;
    try {
      if (!fit_of(device, asked).fits) break;
      largest = features;
    } catch (const Error& error) {  // blocks or a rank that are larger than the layer
      if (error.code() != Errc::InvalidArgument) throw;
    }
  }
  return largest;
}

}  // namespace

LayerFit fits(const DeviceInfo& device, const LayerQuestion& asked) {
  constexpr std::int64_t kMostSamples = std::int64_t{1} << 24;
  if (asked.samples < 1 || asked.samples > kMostSamples) {
    invalid("[fits] a layer takes 1..{} samples, got {}", kMostSamples, asked.samples);
  }
  if (asked.states < 0 || asked.states > 8) {
    invalid("[fits] states must be 0..8 for each weight, got {}", asked.states);
  }
  if (std::find(device.dtypes.begin(), device.dtypes.end(), asked.dtype) == device.dtypes.end()) {
    LayerFit fit = fit_of(device, asked);
    fit.fits = false;
    fit.why =
        fmt::format("it has no {} ({})", to_string(asked.dtype), source_text(device.dtypes_from));
    return fit;
  }
  LayerFit fit = fit_of(device, asked);
  fit.largest = largest_of(device, asked);
  return fit;
}

}  // namespace tuckfold
