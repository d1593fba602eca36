// tuckfold convert: .tuck files into one with other codecs or chunks, or into .npy files.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>

#include "base/fail.h"
#include "base/parallel.h"
#include "cli/bench/report.h"
#include "cli/dataset/codec_option.h"
#include "cli/dataset/npy_out.h"
#include "cli/dataset/samples.h"
#include "cli/terminal/progress_bar.h"
#include "cli/terminal/table.h"
#include "cli/verbs/verbs.h"
#include "container/rewrite.h"

namespace tuckfold::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFooter =
    R"_(Several inputs, .tuck files and manifests with equal arrays, become one file, in that order; metadata is
that of the first. Arrays keep their codecs and chunks, which are then copied as they lie: nothing is
lost a second time. So are chunks of another size where a codec packs each sample alone (raw, dct_chop,
dct_quant). What else must be packed again is unpacked first, and a lossy codec on samples that were lossy
before is told of.

OUT.npy takes one array, any other name without an ending is a folder for NAME.npy of each, as unpack
writes them. To convert other files, pack them.

Examples:
  tuckfold convert a.tuck b.tuck -o all.tuck
  tuckfold convert train.tuck -o small.tuck --codec "dct_quant(rate=2)" --samples-per-chunk 64
  tuckfold convert train.tuck -o image.npy --select image
  tuckfold convert shards.json -o both.tuck --select image,label --rename image=x)_";

struct Options {
  InputOptions inputs;
  CodecOption codec;
  std::string out;
  std::int64_t samples_per_chunk = 0;
  std::uint64_t seed = 0;
  int threads = 0;
  bool force = false, quiet = false, json = false;
};

bool changes_packing(const Options& options) {
  return options.codec.given() || options.samples_per_chunk > 0;
}

// The array as it shall be. --codec NAME=SPEC has its new name.
ArrayInfo info_for(const Options& options, const Samples& samples, std::size_t array) {
  ArrayInfo info = samples.files().front().arrays()[samples.column(array)];
  info.name = samples.arrays()[array].name;
  info.samples_per_chunk = options.samples_per_chunk;
  if (const auto codec = options.codec.without_name(info.shape)) info.codec = *codec;
  if (const auto codec = options.codec.bound_to(info.name)) info.codec = *codec;
  return info;
}

std::uint64_t bytes_of(const Samples& samples) {
  std::uint64_t each = 0;
  for (const SourceArray& array : samples.arrays()) each += array.sample_bytes();
  return each * static_cast<std::uint64_t>(samples.samples());
}

void warn(const Samples& samples, const Rewrite& rewrite) {
  for (const RewrittenArray& array : rewrite.arrays()) {
    if (!array.lossy_before) continue;
    fmt::print(stderr, "tuckfold: warning: {} was packed with {}; packing it again loses more\n",
               array.info.name, array.lossy_before->print());
  }
  for (const FileReader& file : samples.files()) {
    if (file.metadata() == samples.files().front().metadata()) continue;
    fmt::print(stderr, "tuckfold: warning: files differ in metadata; that of the first is kept\n");
    break;
  }
}

Json to_json(const RewrittenArray& array, const CodecSpec& before) {
  return {{"name", array.info.name},
          {"codec_before", before.print()},
          {"codec", array.info.codec.print()},
          {"samples_per_chunk", array.info.samples_per_chunk},
          {"chunks_copied", array.copied},
          {"chunks_packed", array.packs_again},
          {"lossy_again", array.lossy_before.has_value()}};
}

void to_tuck(const Options& options, const Samples& samples) {
  options.codec.check("convert", samples.arrays());
  std::vector<RewriteArray> arrays;
  for (std::size_t a = 0; a < samples.arrays().size(); ++a) {
    arrays.push_back({.from = samples.column(a), .info = info_for(options, samples, a)});
  }
  const Rewrite rewrite(samples.files(), std::move(arrays));
  if (!options.quiet) warn(samples, rewrite);
  std::uint64_t before = 0;
  for (const FileReader& file : samples.files()) before += file.file_bytes();
  {
    ProgressBar bar("converting", bytes_of(samples), options.quiet);
    rewrite.write(options.out, {.threads = thread_count(options.threads),
                                .metadata = samples.files().front().metadata(),
                                .seed = options.seed,
                                .progress = [&](std::uint64_t bytes) { bar.add(bytes); }});
  }
  const FileReader made(options.out);
  Json json = Json::array();
  Table table({"<array", "<codec before", "<codec", "samples/chunk", "copied", "packed"});
  for (const RewrittenArray& array : rewrite.arrays()) {
    const CodecSpec& codec = samples.files().front().arrays()[array.from].codec;
    json.push_back(to_json(array, codec));
    table.add({array.info.name, codec.print(), array.info.codec.print(),
               fmt::format("{}", array.info.samples_per_chunk), fmt::format("{}", array.copied),
               fmt::format("{}", array.packs_again)});
  }
  if (options.json) {
    return print_out(print_json(Json::array({{{"file", options.out},
                                              {"samples", made.samples()},
                                              {"bytes", bytes_of(samples)},
                                              {"file_bytes_before", before},
                                              {"file_bytes", made.file_bytes()},
                                              {"arrays", json}}})));
  }
  if (options.quiet) return;
  print_out(table.print() + fmt::format("{}: {} samples, {} -> {}\n", options.out, made.samples(),
                                        size_text(before), size_text(made.file_bytes())));
}

void to_npy(const Options& options, const Samples& samples) {
  if (changes_packing(options)) {
    invalid("[convert] '{}' is not packed; leave out --codec and --samples-per-chunk, {}",
            options.out, "or name OUT.tuck");
  }
  const bool one_file = options.out == "-" || options.out.ends_with(".npy");
  if (one_file && samples.arrays().size() != 1) {
    invalid("[convert] there are {} arrays; choose one with --select, or give a folder with -o",
            samples.arrays().size());
  }
  const int threads = thread_count(options.threads);
  const NpyOut out{
      .verb = "convert", .out = options.out, .force = options.force, .threads = threads};
  out.write(
      {samples.arrays().begin(), samples.arrays().end()}, {0, samples.samples()}, options.quiet,
      [&](std::size_t array) { return samples.parts(array); },
      [&](std::size_t array, const SampleRange& part, std::byte* to, int threads_of_each) {
        samples.read(array, part.first, part.samples, to, threads_of_each);
      });
  if (options.out == "-") return;
  if (options.json) {
    return print_out(print_json(Json::array(
        {{{"file", options.out}, {"samples", samples.samples()}, {"bytes", bytes_of(samples)}}})));
  }
  if (options.quiet) return;
  print_out(fmt::format("{}: {} samples, {}\n", options.out, samples.samples(),
                        size_text(bytes_of(samples))));
}

void run(const Options& options) {
  if (options.inputs.files.empty()) invalid("[convert] name .tuck files to convert");
  if (options.out.empty()) invalid("[convert] give the file to write: -o OUT.tuck");
  for (const std::string& path : options.inputs.files) {
    std::error_code unreadable;
    if (fs::exists(path, unreadable) && !is_tuck(path)) {
      invalid("[convert] '{}' is neither a .tuck file nor a manifest; pack reads other files",
              path);
    }
  }
  const std::string ending = fs::path(options.out).extension().string();
  const bool packed = ending == ".tuck";
  std::error_code ignored;
  const bool folder = ending.empty() || fs::is_directory(options.out, ignored);
  if (!packed && ending != ".npy" && options.out != "-" && !folder) {
    invalid("[convert] OUT is OUT.tuck, OUT.npy, a folder or -, got '{}'", options.out);
  }
  if (packed) check_absent("convert", options.out, options.force);
  const Samples samples("convert", options.inputs);
  packed ? to_tuck(options, samples) : to_npy(options, samples);
}

}  // namespace

void add_convert(CLI::App& app) {
  const auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("convert", "Merge .tuck files, change codecs, write .npy");
  verb->add_option("INPUT", options->inputs.files, "The .tuck files, or manifests of several")
      ->type_name("");
  verb->add_option("-o,--out", options->out, "OUT.tuck, OUT.npy, a folder, or - for .npy")
      ->type_name("OUT");
  options->inputs.add_names_to(*verb);
  options->codec.add_to(*verb);
  verb->add_option("--samples-per-chunk", options->samples_per_chunk,
                   "Samples packed together; default: as they are")
      ->type_name("N")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 31).description(""));
  verb->add_option("--seed", options->seed, "For stochastic rounding")->type_name("N");
  verb->add_option("--threads", options->threads, "Threads; 0 is every core")
      ->type_name("N")
      ->check(CLI::Range(0, 255).description(""));
  verb->add_flag("-f,--force", options->force, "Write over files that exist");
  verb->add_flag("-q,--quiet", options->quiet, "Print nothing but errors");
  verb->add_flag("--json", options->json, "Print a JSON array with one object");
  verb->footer(kFooter);
  verb->callback([options] { run(*options); });
}

}  // namespace tuckfold::cli
