// What became of an array that was packed: what was asked for, tried, and reached over all samples.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/bench/report.h"
#include "cli/choose/choose_ladders.h"
#include "inputs/source.h"
#include "tuckfold/container.h"

namespace tuckfold::cli {

inline constexpr int kMissedStatus = 6;  // of --strict, where a target is missed

struct Outcome {
  ArrayInfo array;
  std::optional<Target> target{};  // that was asked for
  std::optional<Report> trial{};   // figures of the part that was tried
  std::int64_t samples = 0;        // that were packed
  WrittenArray written{};

  // Whether figures are those of all samples.
  bool measured() const { return samples > 0 && written.measured == samples; }
  // Bytes of the samples against those of their chunks, heads and masks included.
  double ratio() const;
  // The figure that the target is about, of all samples.
  double reached() const;
  bool reaches() const;
};

// Whether samples have two axes or more: codecs and targets without a name are for such arrays.
bool is_field(const Shape& sample);
bool has_fields(std::span<const SourceArray> arrays);

// Whether a target is about an array of these: a bound is about each that a codec may change, a goal
// about those with two axes or more, or about all where there is none. It does not matter who chose
// the codec.
bool measures(const Target& target, const ArrayInfo& array, std::span<const SourceArray> arrays);

// What the writer has to look at for a target, if there is one.
ArrayCheck check_for(const std::optional<Target>& target);

// A line for each array: codec, and figures of all samples or, before packing, of the part tried.
std::string to_table(std::span<const Outcome> outcomes);
Json to_json(const Outcome& outcome);

// What a user must know of arrays that are packed, a line each: targets that were missed, values
// that a codec lost, samples that were stored as they are.
std::vector<std::string> warnings_on(const Outcome& outcome);

// Prints the warnings, and throws the exit status where a target is missed: that of --max-error,
// or any with `strict`.
void judge(const char* verb, std::span<const Outcome> outcomes, bool strict, bool quiet);
// The same of the parts that were tried, where nothing is packed. A bound holds whatever they say.
void judge_trials(const char* verb, std::span<const Outcome> outcomes, bool strict, bool quiet);

}  // namespace tuckfold::cli
