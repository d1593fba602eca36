// tuckfold repair: what can be saved of a .tuck file, or of the shards of a manifest.
#include <filesystem>
#include <memory>

#include "base/fail.h"
#include "base/io/file.h"
#include "cli/bench/report.h"
#include "cli/dataset/dataset.h"
#include "cli/terminal/progress_bar.h"
#include "cli/terminal/stdio.h"
#include "cli/terminal/table.h"
#include "cli/verbs/verbs.h"
#include "container/sharded.h"
#include "container/shards.h"

namespace tuckfold::cli {
namespace {

struct Options {
  std::string file, out;
  bool json = false, force = false, quiet = false;
};

std::uint64_t bytes_to_look_at(const std::string& path) {
  std::uint64_t bytes = 0;
  for (const ManifestShard& shard : shards_at(path)) bytes += shard.bytes;
  std::error_code unreadable;
  if (bytes == 0) bytes = std::filesystem::file_size(path, unreadable);
  return unreadable ? 0 : bytes;
}

void run(const Options& options) {
  if (options.file.empty()) invalid("[repair] name a .tuck file");
  if (options.out.empty()) invalid("[repair] give the file to write: -o OUT.tuck");
  if (is_stdout(options.out)) check_stdout("repair", options.force);
  check_absent("repair", options.out, options.force);
  const std::string path = input_path("repair", options.file);
  const MappedFile input(path, "repair");  // before what is replaced is compared with inputs
  const ReplacedShards replaced(options.out);
  const RepairReport report = [&] {
    // Chunks are read twice: they are checked, and then copied.
    ProgressBar bar("repairing", 2 * bytes_to_look_at(path), options.quiet);
    return repair(path, options.out, [&](std::uint64_t some) { bar.add(some); });
  }();
  replaced.remove();
  const auto print = [&](const std::string& text) { print_report(options.out, text); };
  std::int64_t lost = 0;
  Json dropped = Json::array();
  std::string text;
  for (const std::string& reason : report.unreadable) text += reason + '\n';
  for (const std::string& shard : report.not_listed) {
    text +=
        fmt::format("'{}' is not the file that the manifest lists; it was used anyway\n", shard);
  }
  for (const std::string& shard : report.grown) {
    text += fmt::format(
        "'{}' has samples that the manifest does not list; they are left out, and repairing that "
        "file "
        "keeps them\n",
        shard);
  }
  for (const SampleRange& range : report.dropped) {
    lost += range.samples;
    dropped.push_back({{"first", range.first}, {"samples", range.samples}});
    text += fmt::format("dropped samples {}:{}\n", range.first, range.first + range.samples);
  }
  if (options.json) {
    return print(print_json(Json::array({{{"file", options.out},
                                          {"samples", report.samples},
                                          {"dropped", dropped},
                                          {"index_lost", !report.by_index},
                                          {"shards_not_listed", report.not_listed},
                                          {"shards_grown", report.grown},
                                          {"shards_unreadable", report.unreadable}}})));
  }
  if (!report.by_index) text += "an index was lost; the file was searched for chunks\n";
  print(text +
        fmt::format("{}: {} samples, {} lost{}\n", options.out, report.samples, lost,
                    report.by_index ? "" : " between them; if more followed, nothing says so"));
}

}  // namespace

void add_repair(Command& app) {
  const auto options = std::make_shared<Options>();
  Command verb = app.add_subcommand("repair", "Save the undamaged samples of a .tuck file");
  verb.add_option("FILE", options->file, "A .tuck file, a manifest, or - for standard input")
      .type_name("");
  verb.add_option("-o,--out", options->out, "The file to write, or - for standard output")
      .type_name("OUT.tuck");
  verb.add_flag("-f,--force", options->force,
                "Overwrite a file that exists, or write to a terminal");
  verb.add_flag("-q,--quiet", options->quiet, "No bar on the terminal");
  verb.add_flag("--json", options->json, "Print a JSON array with one object");
  verb.footer(
      R"_(All arrays lose the samples of a broken chunk, so that they keep the same samples. Chunks after the last
complete state of a file, from an append that was stopped or cut off, are saved, too. For a manifest every
shard is repaired, and OUT.tuck is a manifest.

Example:
  tuckfold repair broken.tuck -o saved.tuck)_");
  verb.callback([options] { run(*options); });
}

}  // namespace tuckfold::cli
