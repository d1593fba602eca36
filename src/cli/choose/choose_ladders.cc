#include "cli/choose/choose_ladders.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>
#include <string_view>

#include "cli/quality/quality.h"

namespace tuckfold::cli {
namespace {

using Settings = std::vector<double>;

Settings steps(double first, double last, double step) {
  Settings values;
  for (int i = 0; first + i * step <= last; ++i) values.push_back(first + i * step);
  return values;
}

// To four digits, downwards, for the sake of a short text.
double shortened(double value) {
  const double unit = std::pow(10.0, std::floor(std::log10(value)) - 3);
  const std::string text = fmt::format("{:.4g}", std::floor(value / unit) * unit);
  return std::strtod(text.c_str(), nullptr);
}

// ---- the values of a ladder's main parameter, in its order --------------------------------------

Settings once(const Facts&, const Target&) { return {0}; }
Settings keeps(const Facts&, const Target&) { return steps(1, 8, 1); }
Settings bits(const Facts&, const Target&) { return steps(1, 8, 1); }
Settings dct_rates(const Facts&, const Target&) { return steps(1, 16, 0.125); }
Settings zfp_rates(const Facts&, const Target&) { return steps(0.5, 32, 0.25); }

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

// ---- the table ----------------------------------------------------------------------------------

// In a text, {x} is the main parameter, {more} what dct_quant is told of the data, {high} the
// largest value. Of equal candidates the earlier is chosen.
struct Row {
  std::string_view text;
  Settings (*settings)(const Facts&, const Target&);
};

constexpr Row kRows[] = {
    {"dct_quant(rate={x}, dc=4{more})", dct_rates},
    {"dct_quant(rate={x}, dc=8{more})", dct_rates},
    {"dct_quant(rate={x}, dc=12{more})", dct_rates},
    {"dct_chop(keep={x})", keeps},
    {"dct_chop(keep={x}, coef=f16)", keeps},
    {"dct_chop(keep={x}) | block_quant(bits=8)", keeps},
    {"block_quant(bits={x}, group=64)", bits},
    {"block_quant(bits={x}, group=256)", bits},
    {"bounded(abs={x})", bounds},
    {"bounded(abs={x}) | zstd", bounds},
    {"zfp(rate={x})", zfp_rates},
    {"zfp(accuracy={x})", the_bound},
    {"mask(scale={high})", once},
    {"mask(values=sign, scale={high})", once},
    {"bits", once},
    {"bytes_of", once},
    {"bytes_of(scale=1)", once},
    {"bytes_of(scale=1/127.5, add=-1, round=each)", once},
    {"bytes_of | zstd", once},
    {"bytes_of(scale=1) | zstd", once},
    {"bytes_of(scale=1/127.5, add=-1, round=each) | zstd", once},
    {"zstd(level=3)", once},
    {"raw", once},
};

bool has_codec(std::string_view name) {
  const auto codecs = list_codecs();
  return std::any_of(codecs.begin(), codecs.end(),
                     [&](const CodecInfo& codec) { return codec.name == name; });
}

// Whether this build has every codec of a chain.
bool has_codecs(std::string_view chain) {
  constexpr std::string_view kPipe = " | ";
  while (true) {
    const std::size_t pipe = chain.find(kPipe);
    const std::string_view stage = chain.substr(0, pipe);
    if (!has_codec(stage.substr(0, stage.find('(')))) return false;
    if (pipe == chain.npos) return true;
    chain.remove_prefix(pipe + kPipe.size());
  }
}

// Values far from 0 would spend the bits of a block's mean on where they all are. The offset is
// coarse, by a power of two of at most half the range, for the sake of a short text.
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

Facts facts_of(const Array& array) {
  double low = std::numeric_limits<double>::infinity(), high = -low, sum = 0;
  std::int64_t finite = 0, zeros = 0;
  const std::int64_t elems = array.shape.elems();
  for (std::int64_t i = 0; i < elems; ++i) {
    const double value = value_at(array.dtype, array.values.data(), i);
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

std::vector<Ladder> ladders_for(const Facts& facts, const Target& target) {
  std::vector<Ladder> ladders;
  const std::string more = dct_quant_parameters(facts);
  const double high = facts.high >= 1e-30 && facts.high <= 1e30 ? facts.high : 1;
  for (const Row& row : kRows) {
    if (!has_codecs(row.text)) continue;
    Ladder ladder;
    for (const double setting : row.settings(facts, target)) {
      ladder.push_back(
          CodecSpec::parse(fmt::format(fmt::runtime(row.text), fmt::arg("x", setting),
                                       fmt::arg("more", more), fmt::arg("high", high))));
    }
    if (!ladder.empty()) ladders.push_back(std::move(ladder));
  }
  return ladders;
}

}  // namespace tuckfold::cli
