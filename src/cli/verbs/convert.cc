// tuckfold convert: .tuck files into one with other codecs or chunks, or into .npy files.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>

#include "base/fail.h"
#include "base/parallel.h"
#include "cli/bench/report.h"
#include "cli/choose/target_option.h"
#include "cli/dataset/about.h"
#include "cli/dataset/array_out.h"
#include "cli/dataset/codec_option.h"
#include "cli/dataset/outcome.h"
#include "cli/dataset/outliers.h"
#include "cli/dataset/samples.h"
#include "cli/dataset/scaled.h"
#include "cli/terminal/message.h"
#include "cli/terminal/progress_bar.h"
#include "cli/terminal/stdio.h"
#include "cli/terminal/table.h"
#include "cli/verbs/verbs.h"
#include "container/rewrite.h"
#include "container/sharded.h"

namespace tuckfold::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFooter =
    R"_(Several inputs (.tuck files and manifests with equal arrays) become one file, in that order, with the
metadata of the first. Arrays keep their codecs and chunks, whose bytes are copied, so that nothing is
lost a second time. Chunks of another size are copied, too, if the codec packs each sample alone (raw,
dct_chop, dct_quant). All other chunks are unpacked and packed again; a warning names arrays that two
lossy codecs have packed, and those that only the codec of the first file makes lossy.

A target searches for a codec, as in pack; what all samples reach is measured and printed, and a miss is a
warning, or exit status 6 with --strict. Figures are relative to the samples in the input. Fill values are
kept; --fill adds others.

--shards splits at the ends of chunks, so that these can be copied. Other outputs are those of unpack. To
convert other files, pack them.

Examples:
  tuckfold convert a.tuck b.tuck -o all.tuck
  tuckfold convert train.tuck -o small.tuck --codec "dct_quant(rate=2)" --samples-per-chunk 64
  tuckfold convert train.tuck -o sharded.tuck --shards 4
  tuckfold convert train.tuck -o image.npy --select image
  tuckfold convert shards.json -o both.tuck --select image,label --rename image=x)_";

struct Options {
  InputOptions inputs;
  CodecOption codec;
  TargetOption target;
  std::string out;
  std::int64_t samples_per_chunk = 0;
  std::uint64_t seed = 0;
  int threads = 0, shards = 0;
  bool force = false, quiet = false, json = false;
};

// The array as it will be written. --codec NAME=SPEC uses its new name.
Outcome outcome_for(const Options& options, const Samples& samples, std::size_t array,
                    const std::optional<Target>& target) {
  Outcome chosen{.array = samples.files().front().arrays()[samples.column(array)],
                 .samples = samples.samples()};
  ArrayInfo& info = chosen.array;
  info.name = samples.arrays()[array].name;
  info.samples_per_chunk = options.samples_per_chunk;
  info.fill = samples.arrays()[array].fill;
  if (const auto codec = options.codec.without_name(info.shape)) info.codec = *codec;
  if (const auto codec = options.codec.bound_to(info.name)) {
    info.codec = *codec;
  } else if (target && is_field(info.shape) && samples.samples() > 0) {
    const Array part = trial_part_of(
        samples.arrays()[array], samples.samples(), options.target.trial_values(),
        [&](std::int64_t sample, std::byte* to) { samples.read(array, sample, 1, to, 1); });
    for (const std::string& note :
         {note_on_exact(info.name, info.dtype, *target), note_on_outliers(part)}) {
      if (!options.quiet && !note.empty()) warn("[convert] {}", note);
    }
    ArrayInfo in_file = info;
    if (info.samples_per_chunk == 0) {  // as they are
      const FileReader& first = samples.files().front();
      in_file.samples_per_chunk = first.arrays()[samples.column(array)].samples_per_chunk;
    }
    Candidate best =
        choose_for(part, in_file, *target, thread_count(options.threads), options.quiet);
    info.codec = best.spec;
    chosen.trial = std::move(best.report);
  }
  if (target && measures(*target, info, samples.arrays())) chosen.target = target;
  return chosen;
}

std::uint64_t bytes_of(const Samples& samples) {
  std::uint64_t each = 0;
  for (const SourceArray& array : samples.arrays()) each += array.sample_bytes();
  return each * static_cast<std::uint64_t>(samples.samples());
}

void warn_of_losses(const Samples& samples, std::span<const RewrittenArray> arrays) {
  for (const RewrittenArray& array : arrays) {
    if (!array.lossy_before) continue;
    warn("{} was packed with {}; packing it again loses more", array.info.name,
         array.lossy_before->print());
  }
  for (const FileReader& file : samples.files()) {
    if (without_files(file.metadata()) == without_files(samples.files().front().metadata()))
      continue;
    warn("files differ in metadata; that of the first is kept");
    break;
  }
}

Json to_json(const RewrittenArray& array, const CodecSpec& before, const Outcome& outcome) {
  Json json = {{"name", array.info.name},
               {"codec_before", before.print()},
               {"codec", array.info.codec.print()},
               {"samples_per_chunk", array.info.samples_per_chunk},
               {"chunks_copied", array.copied},
               {"chunks_packed", array.packs_again},
               {"lossy_again", array.lossy_before.has_value()}};
  const Json figures = to_json(outcome);
  for (const auto& [key, value] : figures.items()) {
    if (!json.contains(key)) json[key] = value;
  }
  return json;
}

// Writes the files that were planned, one, or shards and their manifest, and returns their bytes.
// Adds to the outcomes what became of each array.
std::uint64_t write_planned(const Options& options, const Samples& samples,
                            std::span<const Rewrite> planned, std::span<Outcome> outcomes) {
  ProgressBar bar("converting", bytes_of(samples), options.quiet);
  const bool same_samples = samples.files().size() == 1 && options.shards == 0;
  const std::string& metadata = samples.files().front().metadata();
  RewriteOptions how{.threads = thread_count(options.threads),
                     .metadata = same_samples ? metadata : without_files(metadata),
                     .seed = options.seed,
                     .progress = [&](std::uint64_t bytes) { bar.add(bytes); }};
  for (const Outcome& one : outcomes) how.checks.push_back(check_for(one.target));
  const ReplacedShards replaced(options.out);
  std::uint64_t bytes = 0;
  const auto write = [&](const Rewrite& plan, const std::string& path) {
    const RewriteResult result = plan.write(path, how);
    bytes += result.bytes;
    for (std::size_t a = 0; a < outcomes.size(); ++a) outcomes[a].written.add(result.arrays[a]);
  };
  if (options.shards == 0) {
    write(planned.front(), options.out);
    replaced.remove();
    return bytes;
  }
  ShardedOutput output({.path = options.out, .shards = options.shards, .replace = options.force});
  for (std::size_t i = 0; i < planned.size(); ++i) {
    write(planned[i], output.paths()[i]);
  }
  output.finish();
  return bytes;
}

// Nobody asked for a loss where the first file's codec packs what others hold exactly.
void warn_of_first_codec(const Options& options, const Samples& samples,
                         std::span<const RewriteArray> arrays) {
  for (const RewriteArray& array : arrays) {
    const CodecSpec& codec = array.info.codec;
    if (is_exact(codec) || options.codec.bound_to(array.info.name) ||
        options.codec.without_name(array.info.shape)) {
      continue;
    }
    for (const FileReader& file : samples.files()) {
      const CodecSpec& there = file.arrays()[array.from].codec;
      if (!is_exact(there)) continue;
      warn(
          "{} is exact in another file ({}), and loses values by the codec of the first, {}; "
          "--codec "
          "{}={} keeps them",
          array.info.name, there.print(), codec.print(), array.info.name, there.print());
      break;
    }
  }
}

void to_tuck(const Options& options, const Samples& samples) {
  options.codec.check("convert", samples.arrays());
  check_shards("[convert] --shards", options.shards, samples.samples());
  const std::optional<Target> target = options.target.get("convert", options.codec);
  std::vector<RewriteArray> arrays;
  std::vector<Outcome> outcomes;
  for (std::size_t a = 0; a < samples.arrays().size(); ++a) {
    outcomes.push_back(outcome_for(options, samples, a, target));
    arrays.push_back({.from = samples.column(a), .info = outcomes.back().array});
  }
  std::vector<Rewrite> planned;
  if (options.shards == 0) planned.emplace_back(samples.files(), arrays);
  if (options.shards > 0) {
    for (const SampleRange& range : cut_evenly(samples.files(), arrays, options.shards)) {
      planned.emplace_back(samples.files(), arrays, range);
    }
  }
  std::vector<RewrittenArray> rewritten(planned.front().arrays().begin(),
                                        planned.front().arrays().end());
  for (std::size_t i = 1; i < planned.size(); ++i) {
    for (std::size_t a = 0; a < rewritten.size(); ++a) {
      const RewrittenArray& more = planned[i].arrays()[a];
      rewritten[a].copied += more.copied;
      rewritten[a].packs_again += more.packs_again;
      if (more.lossy_before) rewritten[a].lossy_before = more.lossy_before;
    }
  }
  if (!options.quiet) {
    warn_of_losses(samples, rewritten);
    if (!target) warn_of_first_codec(options, samples, arrays);
    for (std::size_t a = 0; a < outcomes.size(); ++a) {
      warn_of_scale("convert", options.codec, outcomes[a], samples.scale_factor(a));
    }
  }
  std::uint64_t before = 0;
  for (const FileReader& file : samples.files()) before += file.file_bytes();
  const std::uint64_t after = write_planned(options, samples, planned, outcomes);
  Json json = Json::array();
  Table table({"<array", "<codec before", "<codec", "samples/chunk", "copied", "packed"});
  for (std::size_t a = 0; a < rewritten.size(); ++a) {
    const RewrittenArray& array = rewritten[a];
    const CodecSpec& codec = samples.files().front().arrays()[array.from].codec;
    json.push_back(to_json(array, codec, outcomes[a]));
    table.add({array.info.name, codec.print(), array.info.codec.print(),
               fmt::format("{}", array.info.samples_per_chunk), fmt::format("{}", array.copied),
               fmt::format("{}", array.packs_again)});
  }
  if (options.json) {
    print_report(options.out, print_json(Json::array({{{"file", options.out},
                                                       {"samples", samples.samples()},
                                                       {"bytes", bytes_of(samples)},
                                                       {"file_bytes_before", before},
                                                       {"file_bytes", after},
                                                       {"arrays", json}}})));
  } else if (!options.quiet) {
    const bool measured = std::ranges::any_of(outcomes, &Outcome::measured);
    print_report(options.out,
                 table.print() + (measured ? to_table(outcomes) : "") +
                     fmt::format("{}: {} samples, {} -> {}\n", options.out, samples.samples(),
                                 size_text(before), size_text(after)));
  }
  judge("convert", outcomes, options.inputs.strict, options.quiet);
}

// Writes to files of other formats.
void to_arrays(const Options& options, const Samples& samples) {
  if (options.codec.given() || options.samples_per_chunk > 0 || options.shards > 0 ||
      options.target.get("convert", options.codec)) {
    invalid(
        "[convert] '{}' is not packed; leave out --codec, targets, --samples-per-chunk and "
        "--shards, "
        "or name OUT.tuck",
        options.out);
  }
  const int threads = thread_count(options.threads);
  const ArrayOut out{.verb = "convert",
                     .out = options.out,
                     .kind = ArrayOut::kind_of("convert", options.out),
                     .force = options.force,
                     .threads = threads,
                     .metadata = samples.files().front().metadata()};
  out.write(
      {samples.arrays().begin(), samples.arrays().end()}, samples.samples(), options.quiet,
      [&](std::size_t array) { return samples.parts(array); },
      [&](std::size_t array, const SampleSlice& part, std::byte* to, int threads_of_each) {
        samples.read(array, part, to, threads_of_each);
      });
  if (options.json) {
    return print_report(options.out, print_json(Json::array({{{"file", options.out},
                                                              {"samples", samples.samples()},
                                                              {"bytes", bytes_of(samples)}}})));
  }
  if (options.quiet || is_stdout(options.out)) return;
  print_out(fmt::format("{}: {} samples, {}\n", options.out, samples.samples(),
                        size_text(bytes_of(samples))));
}

void run(const Options& options) {
  if (options.inputs.files.empty()) invalid("[convert] name .tuck files to convert");
  if (options.out.empty()) invalid("[convert] give the file to write: -o OUT.tuck");
  for (const std::string& path : options.inputs.files) {
    std::error_code unreadable;
    const std::string there = input_path("convert", path, options.quiet);
    if (fs::exists(there, unreadable) && !is_tuck(there)) {
      invalid("[convert] '{}' is neither a .tuck file nor a manifest; pack it first", path);
    }
  }
  const bool packed = options.out.ends_with(".tuck");
  if (!packed) ArrayOut::kind_of("convert", options.out);  // refuses other names
  if (packed) check_absent("convert", options.out, options.force);
  if (is_stdout(options.out)) check_stdout("convert", options.force);
  const Samples samples("convert", options.inputs);
  packed ? to_tuck(options, samples) : to_arrays(options, samples);
}

}  // namespace

void add_convert(Command& app) {
  const auto options = std::make_shared<Options>();
  Command verb =
      app.add_subcommand("convert", "Merge or shard .tuck files, change codecs, write .npy");
  verb.add_option("INPUT", options->inputs.files, "The .tuck files, or manifests of several")
      .type_name("");
  verb.add_option("-o,--out", options->out,
                  "OUT.tuck, or as unpack: OUT.npy, OUT.npz, OUT.h5, a folder, or - for .npy")
      .type_name("OUT");
  options->inputs.add_names_to(verb);
  options->inputs.fill.add_to(verb);
  options->codec.add_to(verb);
  options->target.add_to(verb);
  verb.add_option("--samples-per-chunk", options->samples_per_chunk,
                  "Samples packed together; default: unchanged")
      .type_name("N")
      .range(std::int64_t{0}, std::int64_t{1} << 31);
  verb.add_option("--shards", options->shards,
                  "Write so many files, NAME-00000-of-0000N.tuck, and OUT.tuck that lists them")
      .type_name("N")
      .range(1, 99999);
  verb.add_option("--seed", options->seed, "For stochastic rounding").type_name("N");
  verb.add_threads(options->threads);
  verb.add_flag(
      "--strict", options->inputs.strict,
      "Exit with 6 where a target is missed, and with 3 where samples may be missing; without, "
      "both are warnings");
  verb.add_flag("-f,--force", options->force, "Overwrite files that exist, or write to a terminal");
  verb.add_flag("-q,--quiet", options->quiet, "Print nothing but errors");
  verb.add_flag("--json", options->json, "Print a JSON array with one object");
  verb.footer(kFooter);
  verb.callback([options] { run(*options); });
}

}  // namespace tuckfold::cli
