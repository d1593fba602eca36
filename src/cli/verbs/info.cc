// tuckfold info, verify and repair: what a .tuck file holds, whether all of it is whole, and what
// can be saved.
#include <algorithm>
#include <filesystem>
#include <memory>

#include "base/fail.h"
#include "base/json.h"
#include "base/parallel.h"
#include "cli/bench/report.h"
#include "cli/dataset/dataset.h"
#include "cli/terminal/progress_bar.h"
#include "cli/terminal/stdio.h"
#include "cli/terminal/table.h"
#include "cli/verbs/verbs.h"
#include "container/trailing_data.h"

namespace tuckfold::cli {
namespace {

struct Options {
  std::string file, out;
  int threads = 0;
  bool json = false, force = false, quiet = false;
};

std::uint64_t packed_bytes(const FileReader& reader, std::size_t array) {
  std::uint64_t bytes = 0;
  for (const ChunkInfo& chunk : reader.chunks(array)) bytes += chunk.frame_bytes;
  return bytes;
}

// What the library's reader has read, for printing.
Json printed(const tuckfold::Json& value) {
  using Kind = tuckfold::Json::Kind;
  switch (value.kind) {
    case Kind::Null: return nullptr;
    case Kind::Bool: return value.text == "true";
    case Kind::Number: {  // one that no double holds stays text
      const Json number = Json::parse(value.text, nullptr, false);
      return number.is_discarded() ? Json(value.text) : number;
    }
    case Kind::String: return value.string;
    case Kind::Array: {
      Json items = Json::array();
      for (const tuckfold::Json& item : value.items) items.push_back(printed(item));
      return items;
    }
    case Kind::Object: break;
  }
  Json members = Json::object();
  for (std::size_t i = 0; i < value.items.size(); ++i) {
    members[value.keys[i]] = printed(value.items[i]);
  }
  return members;
}

// What trails the last whole state, in words; empty where nothing does.
std::string trailing_text(const std::string& path) {
  std::string text;
  for (const TrailingData& trailing : find_trailing_data(path)) {
    text += trailing.trailer_broken
                ? fmt::format(
                      "note: the last trailer of '{}' is broken: it is read as it was before "
                      "the append that wrote it; `tuckfold repair` looks for what that "
                      "added, {}\n",
                      trailing.path, size_text(trailing.bytes))
                : fmt::format(
                      "note: an append to '{}' was stopped: it is as before; the next append "
                      "drops the trailing {}\n",
                      trailing.path, size_text(trailing.bytes));
  }
  return text;
}

bool trailer_broken(const std::string& path) {
  const std::vector<TrailingData> all = find_trailing_data(path);
  return std::any_of(all.begin(), all.end(),
                     [](const TrailingData& trailing) { return trailing.trailer_broken; });
}

void run_info(const Options& options) {
  if (options.file.empty()) invalid("[info] name a .tuck file");
  const std::string path = input_path("info", options.file);
  const FileReader reader(path);
  Json arrays = Json::array();
  Table table(
      {"<array", "<dtype", "<sample", "<codec", "samples/chunk", "bytes", "packed", "ratio"});
  std::uint64_t all = 0;
  for (std::size_t a = 0; a < reader.arrays().size(); ++a) {
    const ArrayInfo& array = reader.arrays()[a];
    const std::uint64_t bytes = static_cast<std::uint64_t>(reader.samples()) * array.sample_bytes();
    const std::uint64_t packed = packed_bytes(reader, a);
    const double ratio = packed == 0 ? 1 : static_cast<double>(bytes) / static_cast<double>(packed);
    all += bytes;
    table.add({array.name, std::string(to_string(array.dtype)), to_string(array.shape),
               array.codec.print(), fmt::format("{}", array.samples_per_chunk), size_text(bytes),
               size_text(packed), fmt::format("{:.2f}", ratio)});
    arrays.push_back({{"name", array.name},
                      {"dtype", to_string(array.dtype)},
                      {"shape", std::vector<std::int64_t>(array.shape.begin(), array.shape.end())},
                      {"codec", array.codec.print()},
                      {"samples_per_chunk", array.samples_per_chunk},
                      {"chunks", reader.chunks(a).size()},
                      {"bytes", bytes},
                      {"packed_bytes", packed},
                      {"ratio", ratio}});
  }
  if (options.json) {
    return print_out(
        print_json(Json::array({{{"file", options.file},
                                 {"samples", reader.samples()},
                                 {"bytes", all},
                                 {"file_bytes", reader.file_bytes()},
                                 {"trailing_bytes", reader.trailing_bytes()},
                                 {"trailer_broken", trailer_broken(path)},
                                 {"metadata", printed(tuckfold::Json::parse(reader.metadata()))},
                                 {"arrays", arrays}}})));
  }
  std::string text =
      fmt::format("{}: {} samples, {} in {} ({:.2f}x)\n", options.file, reader.samples(),
                  size_text(all), size_text(reader.file_bytes()),
                  static_cast<double>(all) / static_cast<double>(reader.file_bytes()));
  text += table.print();
  if (reader.metadata() != "{}") text += fmt::format("metadata: {}\n", reader.metadata());
  text += trailing_text(path);
  print_out(text);
}

std::string range_text(const SampleRange& range) {
  return fmt::format("{}:{}", range.first, range.first + range.samples);
}

// Returns normally where all is whole; else throws, so that the exit status tells.
void run_verify(const Options& options) {
  if (options.file.empty()) invalid("[verify] name a .tuck file");
  const std::string path = input_path("verify", options.file);
  const VerifyReport report = [&] {
    ProgressBar bar("verifying", FileReader(path).file_bytes(), options.quiet);
    return verify(path, thread_count(options.threads),
                  [&](std::uint64_t bytes) { bar.add(bytes); });
  }();
  if (options.json) {
    Json broken = Json::array();
    for (const BrokenChunk& one : report.broken) {
      broken.push_back({{"array", one.array},
                        {"first", one.range.first},
                        {"samples", one.range.samples},
                        {"reason", one.reason}});
    }
    print_out(print_json(Json::array({{{"file", options.file},
                                       {"samples", report.samples},
                                       {"chunks", report.chunks},
                                       {"trailing_bytes", report.trailing_bytes},
                                       {"trailer_broken", report.trailer_broken},
                                       {"schema_broken", report.schema_broken},
                                       {"broken", broken}}})));
  } else {
    std::string text;
    for (const BrokenChunk& one : report.broken) {
      text += fmt::format("{} {}: {}\n", one.array, range_text(one.range), one.reason);
    }
    if (report.broken.empty()) {
      text = fmt::format("{}: all {} chunks of {} samples are whole\n", options.file, report.chunks,
                         report.samples);
    }
    print_out(text + trailing_text(path));
  }
  if (!report.broken.empty()) {
    fail(Errc::CorruptData, "[verify] {} of {} chunks of '{}' are broken; repair saves the others",
         report.broken.size(), report.chunks, options.file);
  }
  if (report.trailer_broken) {
    fail(Errc::CorruptData,
         "[verify] the last trailer of '{}' is broken, and what it speaks of is not read; repair "
         "looks for it",
         options.file);
  }
  if (report.schema_broken) {
    fail(Errc::CorruptData,
         "[verify] the schema at the start of '{}' is broken; its samples can be read, and repair "
         "writes it anew",
         options.file);
  }
}

void run_repair(const Options& options) {
  if (options.file.empty()) invalid("[repair] name a .tuck file");
  if (options.out.empty()) invalid("[repair] give the file to write: -o OUT.tuck");
  if (options.out == "-") {
    check_stdout("repair", options.force);
  } else {
    check_absent("repair", options.out, options.force);
  }
  OutPath out("repair", options.out);
  const std::string path = input_path("repair", options.file);
  const RepairReport report = [&] {
    std::error_code unreadable;
    const std::uintmax_t bytes = std::filesystem::file_size(path, unreadable);
    // Chunks are looked at, and then copied.
    ProgressBar bar("repairing", unreadable ? 0 : 2 * bytes, options.quiet);
    return repair(path, out.path(), [&](std::uint64_t some) { bar.add(some); });
  }();
  out.finish();
  const auto print = [&](const std::string& text) {
    options.out == "-" ? fmt::print(stderr, "{}", text) : print_out(text);
  };
  std::int64_t lost = 0;
  Json dropped = Json::array();
  std::string text;
  for (const SampleRange& range : report.dropped) {
    lost += range.samples;
    dropped.push_back({{"first", range.first}, {"samples", range.samples}});
    text += fmt::format("dropped samples {}\n", range_text(range));
  }
  if (options.json) {
    return print(print_json(Json::array({{{"file", options.out},
                                          {"samples", report.samples},
                                          {"dropped", dropped},
                                          {"index_lost", !report.by_index}}})));
  }
  if (!report.by_index) text += "an index was lost; every chunk was looked for\n";
  print(text +
        fmt::format("{}: {} samples, {} lost{}\n", options.out, report.samples, lost,
                    report.by_index ? "" : " between them; if more followed, nothing says so"));
}

CLI::App* add_verb(CLI::App& app, const char* name, const char* summary, const char* file,
                   void (*run)(const Options&), const std::shared_ptr<Options>& options) {
  CLI::App* verb = app.add_subcommand(name, summary);
  verb->add_option("FILE", options->file, file)->type_name("");
  verb->add_flag("--json", options->json, "Print a JSON array with one object");
  verb->callback([options, run] { run(*options); });
  return verb;
}

void add_quiet(CLI::App& verb, const std::shared_ptr<Options>& options) {
  verb.add_flag("-q,--quiet", options->quiet, "No bar on the terminal");
}

constexpr const char* kOneOrMore = "A .tuck file, a manifest of several, or - for standard input";

}  // namespace

void add_info(CLI::App& app) {
  CLI::App* verb = add_verb(app, "info", "See what a .tuck file holds", kOneOrMore, run_info,
                            std::make_shared<Options>());
  verb->footer(R"_(Only the index is read; verify looks at the samples.

Examples:
  tuckfold info train.tuck
  tuckfold info train.tuck --json)_");
}

void add_verify(CLI::App& app) {
  const auto options = std::make_shared<Options>();
  CLI::App* verb = add_verb(app, "verify", "Look at every checksum of a .tuck file", kOneOrMore,
                            run_verify, options);
  verb->add_option("--threads", options->threads, "Threads; 0 is every core")
      ->type_name("N")
      ->check(CLI::Range(0, 255).description(""));
  add_quiet(*verb, options);
  verb->footer(
      R"_(Exit status 3 where something is broken. An append that was stopped is no damage: the file is as
before, and a note says so.

Examples:
  tuckfold verify train.tuck
  tuckfold verify - <train.tuck)_");
}

void add_repair(CLI::App& app) {
  const auto options = std::make_shared<Options>();
  CLI::App* verb = add_verb(app, "repair", "Save what is whole of a .tuck file",
                            "A .tuck file, or - for standard input", run_repair, options);
  verb->add_option("-o,--out", options->out, "The file to write, or - for standard output")
      ->type_name("OUT.tuck");
  verb->add_flag("-f,--force", options->force, "Write over a file that exists, or to a terminal");
  add_quiet(*verb, options);
  verb->footer(R"_(Where a chunk is broken all arrays lose its samples, so that they stay in step.

Example:
  tuckfold repair broken.tuck -o saved.tuck)_");
}

}  // namespace tuckfold::cli
