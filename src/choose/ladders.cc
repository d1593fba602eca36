#include "choose/ladders.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>
#include <string_view>

#include "codec/registry.h"
#include "container/compare.h"
#include "container/rewrite.h"

namespace tuckfold {
namespace {

using Settings = std::vector<double>;

Settings steps(double first, double last, double step) {
  Settings values;
  for (int i = 0; first + i * step <= last; ++i) values.push_back(first + i * step);
  return values;
}

// Rounds down to four digits, so that the text is short.
double shortened(double value) {
  const double unit = std::pow(10.0, std::floor(std::log10(value)) - 3);
  const std::string text = fmt::format("{:.4g}", std::floor(value / unit) * unit);
  return std::strtod(text.c_str(), nullptr);
}

// ---- the values of a ladder's main parameter, in its order --------------------------------------

// Bounds that every codec with one takes.
bool is_bound(double value) { return value >= 1e-280 && value <= 1e280; }

Settings the_bound(const Facts&, const Target& target) {
  const bool given = target.kind == Target::Kind::MaxError && is_bound(target.value);
  return given ? Settings{target.value} : Settings{};
}

// Error bounds, in steps of a sixteenth of an octave where a PSNR is asked for, of an eighth where
// a ratio is. A bound of range * 10^(-psnr/20) cannot miss the PSNR, and errors spread evenly over
// what is allowed meet it with sqrt(3) times that; data that is mostly exact with more still.
Settings bounds(const Facts& facts, const Target& target) {
  if (target.kind == Target::Kind::MaxError) return the_bound(facts, target);
  const bool psnr = target.kind == Target::Kind::Psnr;
  const double range = facts.range();
  const double last = psnr ? range * std::pow(10.0, -target.value / 20) : range * 0x1p-24;
  const double first = psnr ? std::min(64 * last, range) : range / 2;
  if (!is_bound(first) || !is_bound(last)) return {};
  const int per_octave = psnr ? 16 : 8;
  const int count = std::max(0, static_cast<int>(std::ceil(std::log2(first / last) * per_octave)));
  Settings values;
  for (int i = 0; i <= count; ++i) {
    values.push_back(shortened(first * std::exp2(-static_cast<double>(i) / per_octave)));
  }
  return values;
}

Settings settings_of(const Ladder& ladder, const Facts& facts, const Target& target) {
  using enum Ladder::Setting;
  switch (ladder.setting) {
    case Once: return {0};
    case Steps: return steps(ladder.first, ladder.last, ladder.step);
    case Bounds: return bounds(facts, target);
    case TheBound: return the_bound(facts, target);
  }
  return {};
}

// If values are far from 0, a block's mean would spend bits on their common offset. The offset is a
// coarse number, a multiple of a power of two of at most half the range, so that its text is short.
std::string dct_quant_parameters(const Facts& facts) {
  std::string text;
  if (std::abs(facts.mean) > facts.range() && facts.range() > 0) {
    const double unit = std::exp2(std::floor(std::log2(facts.range())) - 1);
    const auto offset = static_cast<float>(std::round(facts.mean / unit) * unit);
    if (std::abs(offset) <= 1e30f) text += fmt::format(", offset={}", offset);
  }
  if (facts.low >= 0 && facts.zeros >= 0.125) text += ", clamp=zero";
  return text;
}

}  // namespace

Facts facts_of(const ConstTensorView& array) {
  double low = std::numeric_limits<double>::infinity(), high = -low, sum = 0;
  std::int64_t finite = 0, zeros = 0;
  const std::int64_t elems = array.shape.elems();
  for (std::int64_t i = 0; i < elems; ++i) {
    const double value = value_at(array.dtype, array.data, i);
    if (!std::isfinite(value)) continue;
    ++finite;
    zeros += value == 0;
    low = std::min(low, value);
    high = std::max(high, value);
    sum += value;
  }
  if (finite == 0) return {};
  return {.low = low,
          .high = high,
          .mean = sum / static_cast<double>(finite),
          .zeros = static_cast<double>(zeros) / static_cast<double>(elems)};
}

std::vector<SpecLadder> ladders_for(const Facts& facts, const Target& target) {
  std::vector<SpecLadder> ladders;
  const std::string mean = dct_quant_parameters(facts);
  const double high = facts.high >= 1e-30 && facts.high <= 1e30 ? facts.high : 1;
  for (const Codec* row : codec_rows()) {
    for (const Ladder& rungs : row->ladders) {
      SpecLadder ladder;
      for (const double setting : settings_of(rungs, facts, target)) {
        ladder.push_back(
            CodecSpec::parse(fmt::format(fmt::runtime(rungs.text), fmt::arg("x", setting),
                                         fmt::arg("mean", mean), fmt::arg("high", high))));
      }
      if (target.kind == Target::Kind::MaxError) {
        // A setting that is found on a part must be valid for the whole array.
        std::erase_if(ladder, [&](const CodecSpec& spec) {
          const std::optional<double> bound = error_bound(spec);
          return !bound || *bound > target.value;
        });
      }
      if (!ladder.empty()) ladders.push_back(std::move(ladder));
    }
  }
  return ladders;
}

bool refuses_some(const CodecSpec& spec, DType dtype, const Shape& shape) {
  if (!is_exact(spec)) return false;
  const std::string text = spec.print();
  std::size_t bytes = static_cast<std::size_t>(shape.elems()) * size_bytes(dtype);
  for (std::size_t end = 0; end != text.npos;) {  // of the chain's first stages
    end = text.find(" | ", end == 0 ? 0 : end + 3);
    const Layout fit = layout(CodecSpec::parse(text.substr(0, end)), dtype, shape);
    if (!fit.fixed) return false;
    if (fit.max_bytes < bytes) return true;
    bytes = fit.max_bytes;
  }
  return false;
}

}  // namespace tuckfold
