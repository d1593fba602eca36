// tuckfold view: samples as a contact sheet, beside the results of a codec.
#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>

#include "base/fail.h"
#include "base/io/new_file.h"
#include "base/parallel.h"
#include "cli/bench/report.h"
#include "cli/pictures/sample_images.h"
#include "cli/pictures/view_pick.h"
#include "cli/terminal/stdio.h"
#include "cli/terminal/table.h"
#include "cli/verbs/verbs.h"

namespace tuckfold::cli {
namespace {

constexpr const char* kFooter =
    R"_(view shows samples of the first array with two axes or more, taken as H x W, H x W x 3 or 3 x H x W
pictures; of other shapes one channel, the first unless --channel names it. Small pictures are enlarged,
large ones reduced. u8 goes from black 0 to white 255, other types over the range of the samples shown.

--against shows the inputs below their originals, --codec its results below the inputs; errors around grey,
enlarged as printed, follow. PSNR takes the range of the originals shown as peak. Fill values, which the
inputs, the originals or --fill name, are blue and in none of the figures; red is NaN or infinite.

OUT.html is a page with the pictures inside, their numbers, their labels if the inputs have an integer
array beside the pictures, and figures. OUT.png has the pictures alone, in the same order.

Examples:
  tuckfold view train.tuck -o sheet.png
  tuckfold view images.npy --codec "dct_chop(keep=4)" --codec "dct_chop(keep=2)" --count 8 -o codecs.html
  tuckfold view images.tuck --against images.npy --samples 3,17,30 -o errors.png)_";

struct Options {
  InputOptions inputs, original;
  std::vector<std::string> codecs;
  std::string out = "sheet.png";
  WhichSamples which;
  std::optional<std::int64_t> channel, columns;
  int threads = 0;
  bool force = false, quiet = false, json = false;
};

// The array of --select under its new name; empty where none was given.
std::string selected(const InputOptions& inputs) {
  if (inputs.arrays.empty()) return {};
  const auto renames = inputs.renames("view");
  const auto found = renames.find(inputs.arrays.front());
  return found == renames.end() ? inputs.arrays.front() : found->second;
}

// All arrays, since labels may be in another than the one that is shown; those of --select where the
// others do not fit.
Samples open_shown(const InputOptions& inputs) {
  InputOptions all = inputs;
  all.arrays.clear();
  try {
    return {"view", all};
  } catch (const Error& error) {
    if (inputs.arrays.empty() || error.code() == Errc::Io) throw;
  }
  return {"view", inputs};
}

// A result that is compared with the original, and its overall figures.
struct Result {
  std::string name;
  std::optional<double> ratio;
  SampleImages shown;
  std::vector<Sums> sums;  // for each sample
  Sums all;
};

std::string psnr_text(const Sums& sums, double range) {
  if (sums.max_error == 0 && sums.lost == 0 && sums.changed == 0) return "exact";
  const double psnr = sums.psnr_db(range);
  return std::isfinite(psnr) ? fmt::format("{:.2f} dB", psnr) : "no PSNR";
}

Result judged(std::string name, std::optional<double> ratio, const SampleImages& original,
              SampleImages shown) {
  Result result{std::move(name), ratio, std::move(shown), {}, {}};
  for (std::int64_t i = 0; i < original.count(); ++i) {
    result.sums.push_back(compare_values(original.array.dtype, original.sample(i),
                                         result.shown.array.dtype, result.shown.sample(i),
                                         original.array.sample.elems(), original.sample_marks(i)));
    result.all.add(result.sums.back());
  }
  return result;
}

std::vector<Result> results_of(const Options& options, const Samples& inputs,
                               const SampleImages& original, const SampleImages* input,
                               int threads) {
  std::vector<Result> results;
  if (input != nullptr) {
    std::optional<double> ratio;
    std::string name = std::filesystem::path(inputs.name()).filename().string();
    const std::size_t array = inputs.find("view", input->array.name);
    if (!inputs.files().empty() && inputs.packed_bytes(array) > 0) {
      ratio = static_cast<double>(inputs.samples()) *
              static_cast<double>(input->array.sample_bytes()) /
              static_cast<double>(inputs.packed_bytes(array));
      name += ", " + inputs.files().front().arrays()[inputs.column(array)].codec.print();
    }
    results.push_back(judged(std::move(name), ratio, original, input->copy()));
  }
  for (const std::string& text : options.codecs) {
    const CodecSpec spec = CodecSpec::parse(text);
    auto [shown, ratio] = original.through(spec, threads);
    results.push_back(judged(spec.print(), ratio, original, std::move(shown)));
  }
  return results;
}

Sheet sheet_of(const SampleImages& original, const std::vector<Result>& results, const Frame& frame,
               const std::vector<std::string>& captions) {
  const auto [black, white] = original.tones(frame);
  double worst = 0;
  for (const Result& result : results) {
    worst = std::max(worst, std::sqrt(result.all.mean_square()));
  }
  const std::int64_t gain = error_gain(worst, white - black);
  Sheet sheet;
  SheetRow first{.name = results.empty() ? "" : "original", .tiles = {}};
  for (std::int64_t i = 0; i < original.count(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    first.tiles.push_back(
        {paint_values(frame, original.picture(i, frame), black, white), captions[at]});
  }
  sheet.rows.push_back(std::move(first));
  for (const Result& result : results) {
    const double range = result.all.range();
    SheetRow values{.name = result.name, .tiles = {}};
    SheetRow errors{.name = fmt::format("error x{}", gain), .tiles = {}};
    for (std::int64_t i = 0; i < original.count(); ++i) {
      const Picture picture = result.shown.picture(i, frame);
      values.tiles.push_back({paint_values(frame, picture, black, white),
                              psnr_text(result.sums[static_cast<std::size_t>(i)], range)});
      errors.tiles.push_back(
          {paint_errors(frame, picture, original.picture(i, frame), white - black, gain), ""});
    }
    sheet.rows.push_back(std::move(values));
    sheet.rows.push_back(std::move(errors));
    sheet.figures.push_back({result.name, result.ratio ? fmt::format("{:.2f}", *result.ratio) : "-",
                             psnr_text(result.all, range),
                             fmt::format("{:.3g}", result.all.max_error)});
  }
  return sheet;
}

Json to_json(const Options& options, const SampleImages& original,
             const std::vector<Result>& results, const std::vector<std::int64_t>& numbers) {
  const auto number = [](double value) {
    return std::isfinite(value) ? Json(value) : Json(nullptr);
  };
  Json all = Json::array();
  for (const Result& result : results) {
    Json each = Json::array();
    for (const Sums& sums : result.sums) each.push_back(number(sums.psnr_db(result.all.range())));
    all.push_back({{"name", result.name},
                   {"ratio", result.ratio ? Json(*result.ratio) : Json(nullptr)},
                   {"psnr_db", number(result.all.psnr_db(result.all.range()))},
                   {"max_error", number(result.all.max_error)},
                   {"lost_values", result.all.lost},
                   {"changed_not_finite", result.all.changed},
                   {"fill_values", result.all.filled},
                   {"sample_psnr_db", each}});
  }
  return Json::array({{{"file", options.out},
                       {"array", original.array.name},
                       {"samples", numbers},
                       {"results", all}}});
}

void run(Options& options) {
  const bool page = options.out.ends_with(".html") || options.out.ends_with(".htm");
  if (!page && !options.out.ends_with(".png")) {
    invalid("[view] OUT ends in .png or .html, got '{}'", options.out);
  }
  check_absent("view", options.out, options.force);
  const int threads = thread_count(options.threads);
  if (options.inputs.arrays.size() > 1) {
    invalid("[view] --select takes one array to show, got {}", options.inputs.arrays.size());
  }
  const Samples inputs = open_shown(options.inputs);
  const std::size_t array = array_to_show(selected(options.inputs), inputs);
  const SourceArray& info = inputs.arrays()[array];
  std::optional<Samples> against;
  options.original.strict = options.inputs.strict;
  options.original.allow_external = options.inputs.allow_external;
  if (!options.original.files.empty()) {
    against = open_named("view", options.original, std::array{info.name}).samples;
  }
  const std::int64_t samples =
      against ? std::min(inputs.samples(), against->samples()) : inputs.samples();
  const bool compared = !options.codecs.empty() || against;
  const std::vector<std::int64_t> numbers = options.which.of(samples, compared ? 8 : 16);
  const Frame frame = frame_in(info.sample, options.channel);
  SampleImages input(inputs, array, numbers);
  std::optional<SampleImages> other;
  if (against) other.emplace(*against, original_of(info, inputs, *against), numbers);
  const std::vector<FillValue> fill = other ? fill_of_both(info, other->array) : info.fill;
  input.mark(fill);
  if (other) other->mark(fill);
  const SampleImages& original = other ? *other : input;
  const std::vector<Result> results =
      results_of(options, inputs, original, other ? &input : nullptr, threads);

  std::vector<std::string> captions = labels_of(inputs, numbers);
  for (std::size_t i = 0; i < captions.size(); ++i) {
    captions[i] = fmt::format("#{}{}", numbers[i], captions[i]);
  }
  Sheet sheet = sheet_of(original, results, frame, captions);
  const std::string name = std::filesystem::path(inputs.name()).filename().string();
  sheet.title = {
      fmt::format("{}, {}: {} {}", name, info.name, to_string(info.sample), to_string(info.dtype)),
      fmt::format("{} of {} samples", numbers.size(), samples)};
  if (!original.marks.empty()) {
    const auto missing = std::ssize(original.marks) - std::ranges::count(original.marks, 0);
    sheet.title.push_back(fmt::format("{} values are missing, shown in blue", missing));
  }
  const auto root = static_cast<std::int64_t>(std::ceil(std::sqrt(std::ssize(numbers))));
  sheet.columns = options.columns.value_or(compared ? 8 : root);

  const std::string bytes = page ? sheet.html() : sheet.draw().png();
  NewFile file("view", options.out, NewFile::Replace{options.force});
  file.write(std::as_bytes(std::span(bytes)));
  file.finish();
  if (options.json) {
    return print_report(options.out, print_json(to_json(options, original, results, numbers)));
  }
  if (options.quiet) return;
  std::string text;
  if (!results.empty()) {
    Table table({"<shown", "ratio", "PSNR", "max error"});
    for (const SheetFigures& row : sheet.figures) {
      table.add({row.name, row.ratio, row.psnr, row.max_error});
    }
    text = table.print();
  }
  print_report(options.out, text + fmt::format("{}: {} of {} samples of {}\n", options.out,
                                               numbers.size(), samples, info.name));
}

}  // namespace

void add_view(Command& app) {
  const auto options = std::make_shared<Options>();
  Command verb = app.add_subcommand("view", "Show samples as a picture or a page");
  options->inputs.add_to(verb, "The array to show, as the inputs name it");
  verb.add_option("-o,--out", options->out, "OUT.png or OUT.html, default sheet.png")
      .type_name("OUT");
  verb.add_option("--against", options->original.files, "The original, in one file or several")
      .type_name("ORIGINAL");
  verb.add_option("--codec", options->codecs, "Show what it makes of the samples; may be repeated")
      .type_name("SPEC")
      .one_at_a_time();
  verb.add_option("--count", options->which.count,
                  "How many samples, spread evenly; default 16, or 8 beside others")
      .type_name("N")
      .range(std::int64_t{1}, std::int64_t{1} << 20);
  verb.add_option("--samples", options->which.list, "These samples, as 3,17,100").type_name("LIST");
  verb.add_option("--range", options->which.range, kRangeText).type_name("RANGE");
  verb.add_option("--channel", options->channel, "One channel, in shades of grey").type_name("C");
  verb.add_option("--columns", options->columns, "Samples beside each other")
      .type_name("N")
      .range(std::int64_t{1}, std::int64_t{1} << 20);
  verb.add_threads(options->threads);
  add_strict(verb, options->inputs.strict);
  verb.add_flag("-f,--force", options->force, "Overwrite a file that exists");
  verb.add_flag("-q,--quiet", options->quiet, "Print nothing but errors");
  verb.add_flag("--json", options->json, "Print a JSON array with one object");
  verb.footer(kFooter);
  verb.callback([options] { run(*options); });
}

}  // namespace tuckfold::cli
