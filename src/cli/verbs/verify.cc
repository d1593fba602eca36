// tuckfold verify: checks that a .tuck file is complete and undamaged.
#include <memory>

#include "base/fail.h"
#include "base/parallel.h"
#include "cli/dataset/dataset.h"
#include "cli/terminal/progress_bar.h"
#include "cli/terminal/stdio.h"
#include "cli/verbs/each_file.h"
#include "cli/verbs/verbs.h"

namespace tuckfold::cli {
namespace {

struct Options {
  std::vector<std::string> files;
  int threads = 0;
  bool json = false, quiet = false, strict = false;
};

void judge(const VerifyReport& report, bool trailer_broken, const std::string& file) {
  if (!report.broken.empty()) {
    fail(Errc::CorruptData, "[verify] {} of {} chunks of '{}' are broken; repair saves the others",
         report.broken.size(), report.chunks, file);
  }
  if (trailer_broken) {
    fail(Errc::CorruptData,
         "[verify] the last trailer of '{}' is broken, and the samples that it lists are not read; "
         "repair searches for them",
         file);
  }
  if (report.schema_broken) {
    fail(Errc::CorruptData,
         "[verify] the schema at the start of '{}' is broken; its samples can be read, and repair "
         "writes a new one",
         file);
  }
}

FoundInFile look_at(const Options& options, const std::string& file) {
  const std::string path = input_path("verify", file);
  const std::uint64_t file_bytes = open_reader(path, options.strict).file_bytes();
  const VerifyReport report = [&] {
    ProgressBar bar("verifying", file_bytes, options.quiet);
    return verify(path, thread_count(options.threads),
                  [&](std::uint64_t bytes) { bar.add(bytes); });
  }();
  std::uint64_t trailing_bytes = 0;
  bool trailer_broken = false;
  for (const TrailingData& trailing : report.trailing_data) {
    trailing_bytes += trailing.bytes;
    trailer_broken = trailer_broken || trailing.trailer_broken;
  }
  std::string text;
  Json broken = Json::array();
  for (const BrokenChunk& one : report.broken) {
    text += fmt::format("{} {}:{}: {}\n", one.array, one.range.first,
                        one.range.first + one.range.samples, one.reason);
    broken.push_back({{"array", one.array},
                      {"first", one.range.first},
                      {"samples", one.range.samples},
                      {"reason", one.reason}});
  }
  if (report.broken.empty()) {
    text = fmt::format("{}: all {} chunks of {} samples are whole\n", file, report.chunks,
                       report.samples);
  }
  return {.object = {{"file", file},
                     {"samples", report.samples},
                     {"chunks", report.chunks},
                     {"trailing_bytes", trailing_bytes},
                     {"trailer_broken", trailer_broken},
                     {"schema_broken", report.schema_broken},
                     {"broken", broken}},
          .text = text,
          .judge = [report, trailer_broken, file] { judge(report, trailer_broken, file); }};
}

}  // namespace

void add_verify(Command& app) {
  const auto options = std::make_shared<Options>();
  Command verb = app.add_subcommand("verify", "Check every checksum of .tuck files");
  add_tuck_files(verb, options->files);
  add_strict(verb, options->strict);
  verb.add_threads(options->threads);
  verb.add_flag("-q,--quiet", options->quiet, "No bar on the terminal");
  verb.add_flag("--json", options->json, "Print a JSON array, an object for each file");
  verb.footer(
      R"_(Exit status 3 where something is broken. An append that was stopped is no damage: the file is as
before, and a warning says so; but a copy that was cut short looks the same, and --strict refuses both.

Examples:
  tuckfold verify train.tuck
  tuckfold verify - <train.tuck)_");
  verb.callback([options] {
    look_at_each("verify", options->files, options->json,
                 [&](const std::string& file) { return look_at(*options, file); });
  });
}

}  // namespace tuckfold::cli
