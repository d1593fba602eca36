#include "cli/dataset/outcome.h"

#include <algorithm>
#include <cmath>

#include "base/fail.h"
#include "cli/choose/choose_search.h"
#include "cli/quality/quality.h"
#include "cli/terminal/command.h"
#include "cli/terminal/message.h"
#include "cli/terminal/table.h"
#include "container/format.h"
#include "container/rewrite.h"

namespace tuckfold::cli {
namespace {

using Kind = Target::Kind;

constexpr const char* kFigures[] = {"psnr_db", "ratio", "max_error"};  // by Target::Kind

// JSON has no infinity: null stands for it, and for a PSNR that does not exist.
Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

std::string figure_text(Kind kind, double value) {
  switch (kind) {
    case Kind::Psnr: return fmt::format("a PSNR of {:.2f} dB", value);
    case Kind::Ratio: return fmt::format("a ratio of {:.2f}", value);
    case Kind::MaxError: break;
  }
  return fmt::format("a largest error of {:.3g}", value);
}

std::string missed_text(const Outcome& outcome) {
  const Target& target = *outcome.target;
  const char* remedy = target.kind == Kind::MaxError ? "pack it again without --resume"
                       : outcome.trial ? "ask for more, or try more values (--trial-values)"
                                       : "name another codec with --codec NAME=SPEC";
  return fmt::format("'{}' has {} over all samples, where {} was asked for; {}", outcome.array.name,
                     figure_text(target.kind, outcome.reached()), to_string(target), remedy);
}

// Values that are not what they were, with what keeps them.
std::string lost_text(const Outcome& outcome) {
  const Sums& sums = outcome.written.sums;
  std::string what;
  if (sums.changed > 0) {
    what = fmt::format("{} values that are NaN or infinite came back otherwise", sums.changed);
  }
  if (sums.lost > 0) {
    what += fmt::format("{}{} finite values came back as NaN or infinity",
                        what.empty() ? "" : ", and ", sums.lost);
  }
  return fmt::format(
      "'{}': {} with {}; --fill nan (or inf, or a value) keeps such values apart, and "
      "--max-error and exact codecs keep all",
      outcome.array.name, what, outcome.array.codec.print());
}

}  // namespace

double Outcome::ratio() const {
  const auto bytes = static_cast<double>(samples) * static_cast<double>(array.sample_bytes());
  return written.packed_bytes == 0 ? 1 : bytes / static_cast<double>(written.packed_bytes);
}

double Outcome::reached() const {
  switch (target->kind) {
    case Kind::Psnr: return written.sums.psnr_db(written.sums.range());
    case Kind::Ratio: return ratio();
    case Kind::MaxError: break;
  }
  const Sums& sums = written.sums;
  return sums.lost + sums.changed > 0 ? std::numeric_limits<double>::infinity() : sums.max_error;
}

bool Outcome::reaches() const {
  if (!target || samples == 0) return true;
  return target->kind == Kind::MaxError ? reached() <= target->value : reached() >= target->value;
}

bool is_field(const Shape& sample) { return sample.rank() >= 2; }

bool has_fields(std::span<const SourceArray> arrays) {
  return std::ranges::any_of(arrays, is_field, &SourceArray::sample);
}

bool measures(const Target& target, const ArrayInfo& array, std::span<const SourceArray> arrays) {
  if (target.kind == Kind::MaxError && !is_exact(array.codec)) return true;
  return is_field(array.shape) || !has_fields(arrays);
}

ArrayCheck check_for(const std::optional<Target>& target) {
  if (!target) return {};
  return {
      .measure = true,
      .max_error = target->kind == Kind::MaxError ? std::optional(target->value) : std::nullopt};
}

std::string to_table(std::span<const Outcome> outcomes) {
  Table table({"<array", "<dtype", "<sample", "<codec", "ratio", "PSNR dB", "max error"});
  for (const Outcome& one : outcomes) {
    std::optional<Quality> quality;
    std::string ratio;
    if (one.measured()) {
      quality = quality_of(one.written.sums);
      ratio = fmt::format("{:.2f}", one.ratio());
    } else if (one.trial) {
      quality = one.trial->quality;
      ratio = fmt::format("{:.2f}", one.trial->ratio);
    }
    table.add({one.array.name, std::string(to_string(one.array.dtype)), to_string(one.array.shape),
               one.array.codec.print(), ratio, quality ? psnr_text(*quality) : "",
               quality ? fmt::format("{:.3g}", quality->max_error) : ""});
  }
  return table.print();
}

Json to_json(const Outcome& one) {
  const ArrayInfo& array = one.array;
  Json json = {{"name", array.name},
               {"dtype", to_string(array.dtype)},
               {"shape", std::vector<std::int64_t>(array.shape.begin(), array.shape.end())},
               {"codec", array.codec.print()}};
  if (one.samples == 0) {  // nothing is packed yet
    if (!one.trial) return json;
    json["ratio"] = number(one.trial->ratio);
    json["psnr_db"] = number(one.trial->quality.psnr_db);
    json["max_error"] = number(one.trial->quality.max_error);
    return json;
  }
  json["packed_bytes"] = one.written.packed_bytes;
  json["ratio"] = number(one.ratio());
  if (one.measured()) {
    const Quality quality = quality_of(one.written.sums);
    json["psnr_db"] = number(quality.psnr_db);
    json["max_error"] = number(quality.max_error);
    json["fill_values"] = one.written.sums.filled;
  }
  json["lost_values"] = one.written.sums.lost;
  json["changed_not_finite"] = one.written.sums.changed;
  json["stored_as_they_are"] = {{"too_few", one.written.too_few},
                                {"past_max_error", one.written.past_bound}};
  if (one.target) {
    const char* figure = kFigures[static_cast<int>(one.target->kind)];
    json["target"] = {{"figure", figure},
                      {"asked", one.target->value},
                      {"reached", number(one.reached())},
                      {"reaches", one.reaches()}};
  }
  if (one.trial) {
    json["trial"] = {{"ratio", number(one.trial->ratio)},
                     {"psnr_db", number(one.trial->quality.psnr_db)},
                     {"max_error", number(one.trial->quality.max_error)}};
  }
  return json;
}

std::vector<std::string> warnings_on(const Outcome& one) {
  constexpr double kMuchWider = 100;
  std::vector<std::string> lines;
  const WrittenArray& written = one.written;
  const std::string& name = one.array.name;
  if (!one.reaches()) lines.push_back(missed_text(one));
  if (one.measured() && one.trial && one.target && one.target->kind == Kind::Psnr &&
      written.sums.range() > kMuchWider * one.trial->quality.range &&
      one.trial->quality.range > 0) {
    lines.push_back(
        fmt::format("values of '{}' range over {:.3g}, those that were tried over {:.3g}: a few "
                    "decide its PSNR. "
                    "--max-error bounds every error",
                    name, written.sums.range(), one.trial->quality.range));
  }
  if (written.sums.lost + written.sums.changed > 0) lines.push_back(lost_text(one));
  if (written.past_bound > 0) {
    lines.push_back(fmt::format(
        "{} of {} samples of '{}' are stored as they are: {} does not keep {} on them",
        written.past_bound, one.samples, name, one.array.codec.print(), to_string(*one.target)));
  }
  if (written.too_few > 0) {
    lines.push_back(fmt::format(
        "{} of {} samples of '{}' are stored as they are: {} does not make {} {} smaller",
        written.too_few, one.samples, name, one.array.codec.print(),
        to_string(with_samples(written.too_few, one.array.shape)), to_string(one.array.dtype)));
  }
  return lines;
}

void judge(const char* verb, std::span<const Outcome> outcomes, bool strict, bool quiet) {
  bool failed = false;
  for (const Outcome& one : outcomes) {
    const bool fails = !one.reaches() && (strict || one.target->kind == Kind::MaxError);
    failed = failed || fails;
    if (fails && quiet) say("[{}] {}", verb, missed_text(one));
    if (quiet) continue;
    for (const std::string& line : warnings_on(one)) {
      warn("[{}] {}", verb, line);
    }
  }
  if (failed) throw ExitStatus{kMissedStatus};
}

void judge_trials(const char* verb, std::span<const Outcome> outcomes, bool strict, bool quiet) {
  bool failed = false;
  for (const Outcome& one : outcomes) {
    if (!one.target || !one.trial || reaches(*one.trial, *one.target)) continue;
    const bool bound = one.target->kind == Kind::MaxError;
    failed = failed || (strict && !bound);
    if (quiet && !(strict && !bound)) continue;
    warn("[{}] {} does not reach {} on the part of '{}' that was tried{}", verb,
         one.array.codec.print(), to_string(*one.target), one.array.name,
         bound ? "; such chunks would be stored as they are" : "");
  }
  if (failed) throw ExitStatus{kMissedStatus};
}

}  // namespace tuckfold::cli
