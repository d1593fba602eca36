// tuckfold diff: how far the samples of a file are from those of the original.
#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "base/fail.h"
#include "base/parallel.h"
#include "cli/bench/report.h"
#include "cli/quality/difference.h"
#include "cli/terminal/message.h"
#include "cli/terminal/table.h"
#include "cli/verbs/verbs.h"

namespace tuckfold::cli {
namespace {

constexpr const char* kFooter =
    R"_(The original is the second file, or all that --against names: .tuck files, manifests, or anything that
pack reads. Arrays of the same name are compared. --format, --rename, --dtype and --shape apply to the original;
--select takes names of FILE.

PSNR takes the range of the original's values as peak, of a single sample too; --json adds that with
peak 255 for u8. SSIM is that of Wang et al. (2004): 11 x 11 Gaussian windows, L the range of the original,
255 for u8; the mean over the planes of the last two axes, or the channels of H x W x 3. Along an axis
shorter than 11 the window has the largest odd length that fits. Samples with fewer axes have no SSIM, nor
does an original whose values are all equal. All figures ignore values that are not finite in the original,
and fill values, which either side or --fill names; those that differ in the file are counted.

With --fail-below, exit status 1 if an array has a lower PSNR, or if a NaN, an infinity or a fill value
came back as something else.

Examples:
  tuckfold diff images.tuck images.npy
  tuckfold diff train.tuck --against train-images-idx3-ubyte.gz train-labels-idx1-ubyte.gz
  tuckfold diff images.tuck images.npy --range :20 --fail-below 40 --quiet)_";

struct Options {
  std::vector<std::string> files;
  InputOptions original;
  std::string range;
  std::optional<double> fail_below;
  int threads = 0;
  bool quiet = false, json = false;
};

struct Compared {
  std::string name;
  DType dtype, original_dtype;
  Shape sample;
  Difference difference;
};

std::vector<std::string> names_of(const Samples& samples) {
  std::vector<std::string> names;
  for (const SourceArray& array : samples.arrays()) names.push_back(array.name);
  return names;
}

// Those of `a` that `b` does not have, or does.
std::vector<std::string> names_in(const Samples& a, const Samples& b, bool both) {
  std::vector<std::string> names = names_of(a);
  const std::vector<std::string> others = names_of(b);
  std::erase_if(names, [&](const std::string& name) {
    return (std::count(others.begin(), others.end(), name) > 0) != both;
  });
  return names;
}

// The files of both sides, as they are given.
std::pair<InputOptions, InputOptions> sides_of(const Options& options) {
  InputOptions result{
      .files = options.files, .arrays = options.original.arrays, .strict = options.original.strict};
  InputOptions original = options.original;
  if (original.files.empty()) {
    if (options.files.size() != 2) {
      invalid("[diff] give a file and its original, got {} files; {}", options.files.size(),
              "name several originals with --against");
    }
    original.files = {result.files.back()};
    result.files.pop_back();
  }
  if (result.files.empty()) invalid("[diff] which file is to be compared? name it");
  for (const auto& [from, to] : original.renames("diff")) {
    std::replace(original.arrays.begin(), original.arrays.end(), to, from);
  }
  return {std::move(result), std::move(original)};
}

SampleSlice range_of(const Options& options, const Samples& result, const Samples& original) {
  const std::int64_t both = std::min(result.samples(), original.samples());
  if (!options.range.empty()) return parse_range("diff", options.range, both);
  if (result.samples() != original.samples()) {
    invalid("[diff] '{}' has {} samples, '{}' has {}; --range :{} compares those that both have",
            result.name(), result.samples(), original.name(), original.samples(), both);
  }
  return {0, both};
}

void check_shapes(const ArrayRef& result, const ArrayRef& original) {
  if (result.info().sample == original.info().sample) return;
  invalid("[diff] samples of '{}' are {} in '{}' and {} in '{}'; --select leaves arrays out",
          result.info().name, to_string(result.info().sample), result.samples.name(),
          to_string(original.info().sample), original.samples.name());
}

std::vector<Compared> compare_all(const Options& options, const Samples& result,
                                  const Samples& original) {
  const std::vector<std::string> names = names_in(result, original, true);
  if (names.empty()) {
    invalid("[diff] '{}' has {}, '{}' has {}; --rename OLD=NEW of the original makes names agree",
            result.name(), fmt::join(names_of(result), ", "), original.name(),
            fmt::join(names_of(original), ", "));
  }
  const SampleSlice range = range_of(options, result, original);
  const auto refs = [&](const std::string& name) {
    return std::pair(ArrayRef{result, result.find("diff", name)},
                     ArrayRef{original, original.find("diff", name)});
  };
  std::uint64_t bytes = 0;
  for (const std::string& name : names) {
    const auto [ours, theirs] = refs(name);
    check_shapes(ours, theirs);
    bytes += compared_bytes(ours, theirs, range.samples);
  }
  ProgressBar bar("comparing", bytes, options.quiet);
  std::vector<Compared> all;
  for (const std::string& name : names) {
    const auto [ours, theirs] = refs(name);
    all.push_back({name, ours.info().dtype, theirs.info().dtype, ours.info().sample,
                   compare_arrays(ours, theirs, range, thread_count(options.threads), bar)});
  }
  return all;
}

std::string db_text(double db) { return std::isfinite(db) ? fmt::format("{:.2f}", db) : "-"; }

std::string to_table(const std::vector<Compared>& all) {
  Table table({"<array", "<dtype", "samples", "PSNR dB", "SSIM", "max error", "worst sample",
               "its PSNR", "lost"});
  std::string notes;
  for (const Compared& one : all) {
    const Difference& difference = one.difference;
    const bool differs = difference.worst >= 0;
    table.add({one.name,
               one.dtype == one.original_dtype
                   ? std::string(to_string(one.dtype))
                   : fmt::format("{} for {}", to_string(one.dtype), to_string(one.original_dtype)),
               fmt::format("{}", difference.samples),
               difference.exact() ? "exact" : db_text(difference.quality.psnr_db),
               difference.ssim ? fmt::format("{:.4f}", *difference.ssim) : "-",
               fmt::format("{:.3g}", difference.quality.max_error),
               differs ? fmt::format("{}", difference.worst) : "-",
               differs ? db_text(difference.worst_psnr_db()) : "-",
               fmt::format("{}", difference.quality.lost)});
    if (difference.quality.lost > 0) {
      notes += fmt::format("note: {} finite values of {} came back as NaN or infinity\n",
                           difference.quality.lost, one.name);
    }
    if (difference.sums.changed > 0) {
      notes += fmt::format("note: {} values of {} that are NaN{} or infinite came back otherwise\n",
                           difference.sums.changed, one.name,
                           difference.sums.filled > 0 ? ", fill values" : "");
    }
  }
  return table.print() + notes;
}

Json to_json(const Compared& one) {
  // JSON has no infinity: null replaces it, and figures that do not exist.
  const auto number = [](double value) {
    return std::isfinite(value) ? Json(value) : Json(nullptr);
  };
  const Difference& difference = one.difference;
  const bool differs = difference.worst >= 0;
  Json json = {{"array", one.name},
               {"dtype", to_string(one.dtype)},
               {"original_dtype", to_string(one.original_dtype)},
               {"shape", std::vector<std::int64_t>(one.sample.begin(), one.sample.end())},
               {"samples", difference.samples},
               {"exact", difference.exact()},
               {"psnr_db", number(difference.quality.psnr_db)},
               {"ssim", difference.ssim ? Json(*difference.ssim) : Json(nullptr)},
               {"max_error", number(difference.quality.max_error)},
               {"mean_square_error", number(difference.sums.mean_square())},
               {"range", number(difference.quality.range)},
               {"worst_sample", differs ? Json(difference.worst) : Json(nullptr)},
               {"worst_psnr_db", number(difference.worst_psnr_db())},
               {"lost_values", difference.quality.lost},
               {"changed_not_finite", difference.sums.changed},
               {"fill_values", difference.sums.filled}};
  if (one.original_dtype == DType::U8) {
    json["psnr_255_db"] = number(difference.sums.psnr_db(255));
  }
  return json;
}

// Throws the exit status where an array is too far from its original.
void judge(const std::vector<Compared>& all, double least) {
  bool passed = true;
  for (const Compared& one : all) {
    const double psnr = one.difference.quality.psnr_db;
    if (const std::int64_t changed = one.difference.sums.changed; changed > 0) {
      passed = false;
      say("[diff] '{}': {} of the original's NaN, infinities and fill values came back as "
          "something "
          "else",
          one.name, changed);
    }
    if (psnr >= least) continue;
    passed = false;
    say("[diff] '{}' has a PSNR of {} dB, below {}", one.name,
        std::isnan(psnr) ? "no" : fmt::format("{:.2f}", psnr), least);
  }
  if (!passed) throw ExitStatus{1};
}

void run(const Options& options) {
  if (options.fail_below && std::isnan(*options.fail_below)) {
    invalid("[diff] --fail-below must be a number, got nan");
  }
  const auto [left, right] = sides_of(options);
  const Samples result("diff", left);
  const auto [original, left_out] = open_named("diff", right, names_of(result));
  const std::vector<Compared> all = compare_all(options, result, original);
  std::vector<std::string> only_here = names_in(result, original, false);
  std::vector<std::string> only_there = names_in(original, result, false);
  only_there.insert(only_there.end(), left_out.begin(), left_out.end());
  if (options.json) {
    Json json = Json::array();
    for (const Compared& one : all) json.push_back(to_json(one));
    for (const std::string& name : only_here) {
      json.push_back({{"array", name}, {"only_in", "file"}});
    }
    for (const std::string& name : only_there) {
      json.push_back({{"array", name}, {"only_in", "original"}});
    }
    print_out(print_json(json));
  } else if (!options.quiet) {
    std::string text = to_table(all);
    for (const auto& [file, names] :
         {std::pair(&result, &only_here), std::pair(&original, &only_there)}) {
      if (names->empty()) continue;
      text += fmt::format("note: only '{}' has {}\n", file->name(), fmt::join(*names, ", "));
    }
    print_out(text);
  }
  if (options.fail_below) judge(all, *options.fail_below);
}

}  // namespace

void add_diff(Command& app) {
  const auto options = std::make_shared<Options>();
  Command verb = app.add_subcommand("diff", "Compare samples with those they were packed from");
  verb.add_option("FILE", options->files,
                  "The file to compare; then the original, if it is one file")
      .type_name("");
  verb.add_option("--against", options->original.files, "The original, in one file or several")
      .type_name("ORIGINAL");
  options->original.add_options_to(verb);
  verb.add_option("--range", options->range, kRangeText).type_name("RANGE");
  verb.add_option("--fail-below", options->fail_below,
                  "Exit with 1 if the PSNR of an array is below this")
      .type_name("DB");
  verb.add_threads(options->threads);
  add_strict(verb, options->original.strict);
  verb.add_flag("-q,--quiet", options->quiet, "Print nothing but errors");
  verb.add_flag("--json", options->json, "Print a JSON array, an object for each array");
  verb.footer(kFooter);
  verb.callback([options] { run(*options); });
}

}  // namespace tuckfold::cli
