// tuckfold inputs: what arrays an input has, before any is packed.
#include <algorithm>
#include <memory>

#include "base/fail.h"
#include "cli/bench/report.h"
#include "cli/dataset/samples.h"
#include "cli/terminal/stdio.h"
#include "cli/terminal/table.h"
#include "cli/verbs/each_file.h"
#include "cli/verbs/verbs.h"

namespace tuckfold::cli {
namespace {

struct Options {
  InputOptions inputs;
  bool json = false;
};

// Whether pack would take them together.
bool fit_together(const std::vector<InputArray>& arrays) {
  return std::all_of(arrays.begin(), arrays.end(), [&](const InputArray& array) {
    return array.refused.empty() && array.shape.rank() > 0 &&
           array.shape[0] == arrays.front().shape[0];
  });
}

// The shape of an array that cannot be read may be unknown.
std::string shape_text(const InputArray& array) {
  return array.shape.rank() == 0 && !array.refused.empty() ? "?" : to_string(array.shape);
}

FoundInFile look_at(const Options& options, const std::string& file) {
  if (file != "-" && is_tuck(file)) {
    invalid("[inputs] '{}' is a .tuck file or a manifest; see 'tuckfold info {}'", file, file);
  }
  const InputListing listing =
      list_input(input_path("inputs", file), options.inputs.source_options("inputs"));
  Json arrays = Json::array();
  Table table({"<array", "<dtype", "<shape", "bytes", "<"});
  for (const InputArray& array : listing.arrays) {
    table.add({array.name, array.dtype, shape_text(array), size_text(array.bytes),
               array.refused.empty() ? "" : "not read: " + array.refused});
    arrays.push_back({{"name", array.name},
                      {"dtype", array.dtype},
                      {"shape", std::vector<std::int64_t>(array.shape.begin(), array.shape.end())},
                      {"bytes", array.bytes},
                      {"refused", array.refused}});
  }
  const bool together = fit_together(listing.arrays);
  std::string text = fmt::format("{}: {}\n{}", file, listing.format, table.print());
  if (!together) {
    text += "pack takes arrays with one number of samples; name them with --select\n";
  }
  if (options.inputs.files.size() > 1 && &file != &options.inputs.files.back()) text += '\n';
  return {.object = {{"file", file},
                     {"format", listing.format},
                     {"fit_together", together},
                     {"arrays", arrays}},
          .text = text,
          .judge = {}};
}

}  // namespace

void add_inputs(Command& app) {
  const auto options = std::make_shared<Options>();
  Command verb = app.add_subcommand("inputs", "List the arrays of files that pack reads");
  verb.add_option("INPUT", options->inputs.files, "Files or folders, each on its own")
      .type_name("");
  options->inputs.add_format_to(verb);
  verb.add_flag("--json", options->json, "Print a JSON array, an object for each input");
  verb.footer(
      R"_(The leading axis of a shape counts samples. Values are not read, but compressed files are inflated.

HDF5 files are read by libhdf5, which is not made for hostile files: open only those that you trust.

Examples:
  tuckfold inputs data.npz
  tuckfold inputs weather.nc --json
  tuckfold inputs cifar-10-batches-py --split train)_");
  verb.callback([options] {
    look_at_each("inputs", options->inputs.files, options->json,
                 [&](const std::string& file) { return look_at(*options, file); });
  });
}

}  // namespace tuckfold::cli
