// tuckfold pack: samples from files of many kinds into one .tuck file.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>

#include "base/fail.h"
#include "base/io/bytes.h"
#include "base/parallel.h"
#include "cli/bench/bench_target.h"
#include "cli/choose/exact_codec.h"
#include "cli/choose/target_option.h"
#include "cli/dataset/about.h"
#include "cli/dataset/append.h"
#include "cli/dataset/codec_option.h"
#include "cli/dataset/dataset.h"
#include "cli/dataset/estimate.h"
#include "cli/dataset/foreign_fill.h"
#include "cli/dataset/outcome.h"
#include "cli/dataset/outliers.h"
#include "cli/dataset/pack_write.h"
#include "cli/dataset/scaled.h"
#include "cli/terminal/message.h"
#include "cli/terminal/stdio.h"
#include "cli/terminal/table.h"
#include "cli/verbs/verbs.h"
#include "container/resume.h"
#include "container/rewrite.h"
#include "container/shards.h"

namespace tuckfold::cli {
namespace {

constexpr const char* kFooter =
    R"_(Without --codec or a target nothing is lost: pack tries exact codecs on a part of each array and takes the
smallest, zstd for less than 64 KiB. --codec and targets are for arrays whose samples have two axes or more;
others, such as labels, lose nothing unless --codec NAME=SPEC names one. Ratios are relative to the bytes of the
input's values.

A target searches for a codec on a part of each array (--trial-values). --max-error is a bound: only codecs
that promise it are tried, every chunk is unpacked and compared as it is packed, and a chunk in which a value
differs by more is stored raw. --target-psnr and --target-ratio are goals: what all samples reach is measured
and printed; a miss is a warning, or exit status 6 with --strict. With --append the codecs are those of the
file, and the target is measured on the samples that are added.

Fill values stand for missing values: _FillValue and missing_value of netCDF files, and what --fill names. They come
back exactly from lossy codecs, and figures ignore them: the file has a mask of them, and other values are
packed in their places.

The file appears under its name when it is whole, and so does a dataset of --shards. A run that was
stopped leaves OUT.tuck.partial; the same command with --resume goes on with it, and refuses where inputs
or options have changed. --append adds samples to a file, which stays readable meanwhile, with the
codecs that it has. Every verb takes the file that lists shards as it takes a file with samples.

A folder is read as the files in it: images, CIFAR's batches, IDX files, .npy files as one array each, or
others of one format. 'tuckfold inputs' lists the arrays of an input. Metadata get a member "source" with
names of classes and samples and attributes of HDF5 files.

HDF5 files are read by libhdf5, which is not made for hostile files: open only those that you trust.

- is standard input or output; either is kept in a file of the temporary folder (TMPDIR), and what is
printed goes to standard error where the data go to standard output.

Examples:
  tuckfold pack images.npy -o images.tuck --codec "dct_quant(rate=4)"
  tuckfold pack train-images-idx3-ubyte.gz train-labels-idx1-ubyte.gz -o train.tuck
  tuckfold pack data.npz -o data.tuck --target-psnr 45 --codec mask="bits(width=1)"
  tuckfold pack field.bin --dtype f32 --shape 1x256x256 -o field.tuck --max-error 1e-3 --dry-run
  gunzip -c images.npy.gz | tuckfold pack - -o - | tuckfold verify -)_";

struct Options {
  InputOptions inputs;
  CodecOption codec;
  std::string out, metadata;
  std::string dask;  // main() has run another program where it is given
  TargetOption target;
  int threads = 0, shards = 0;
  std::int64_t samples_per_chunk = 0;
  std::uint64_t seed = 0;
  bool force = false, append = false, resume = false, strict = false;
  bool dry_run = false, quiet = false, json = false;
};

Report report_on(const Array& part, const CodecSpec& spec, int threads) {
  const HugeBuffer out(part.bytes());
  const std::unique_ptr<BenchTarget> bench_target = codec_target(spec, part, out, threads);
  return checked_report(*bench_target, part, out);
}

// The codec that a file has for the array, when appending to it.
const CodecSpec* codec_in(const std::vector<ArrayInfo>& file, const std::string& name) {
  for (const ArrayInfo& array : file) {
    if (array.name == name) return &array.codec;
  }
  return nullptr;
}

// What is wise to know of values before they are packed with a loss.
void warn_of_outliers(const Array& part) {
  const std::string note = note_on_outliers(part);
  if (!note.empty()) warn("[pack] {}", note);
}

Outcome choose_codec(const Options& options, const Source& source, std::size_t number,
                     const std::optional<Target>& target, const std::vector<ArrayInfo>& file,
                     int threads) {
  const SourceArray& array = source.arrays()[number];
  Outcome chosen{.array = {.name = array.name,
                           .dtype = array.dtype,
                           .shape = array.sample,
                           .samples_per_chunk = options.samples_per_chunk,
                           .fill = array.fill}};
  const bool field = is_field(array.sample), any = source.samples() > 0;
  const auto part = [&](std::int64_t values, Fill fill = Fill::Replace) {
    return trial_part_of(source, number, std::min(values, options.target.trial_values()), fill);
  };
  const std::int64_t all = options.target.trial_values();
  const auto exact = [&] {
    constexpr std::int64_t kEnough = 1 << 18;
    constexpr std::size_t kLittle = 1 << 16;  // bytes that are not worth a search
    const std::size_t bytes = static_cast<std::size_t>(source.samples()) * array.sample_bytes();
    return bytes < kLittle ? CodecSpec::parse("zstd")
                           : choose_exact(part(kEnough, Fill::Stay), threads);
  };
  const CodecSpec* const in_file = codec_in(file, array.name);
  const std::optional<CodecSpec> bound = options.codec.bound_to(array.name);
  if (!bound && field && target && any && in_file == nullptr) {
    const Array tried = part(all);
    chosen.target = target;
    if (target->kind == Target::Kind::MaxError && target->value == 0) {  // as without a target
      chosen.array.codec = exact();
      chosen.trial = report_on(tried, chosen.array.codec, threads);
      return chosen;
    }
    const std::string note = note_on_exact(array.name, array.dtype, *target);
    if (!options.quiet && !note.empty()) warn("[pack] {}", note);
    // A bound holds for every value, whatever the range.
    const bool bounds = target->kind == Target::Kind::MaxError;
    if (!options.quiet && !bounds) warn_of_outliers(tried);
    Candidate best = choose_for(tried, chosen.array, *target, threads, options.quiet);
    chosen.array.codec = best.spec;
    chosen.trial = std::move(best.report);
    return chosen;
  }
  if (bound) {
    chosen.array.codec = *bound;
  } else if (in_file != nullptr && (!options.codec.for_all() || !field)) {
    chosen.array.codec = *in_file;
  } else if (const auto spec = options.codec.without_name(array.sample)) {
    chosen.array.codec = *spec;
  } else {
    chosen.array.codec = exact();
  }
  if (!any) return chosen;
  if (target && measures(*target, chosen.array, source.arrays())) chosen.target = target;
  constexpr std::int64_t kSome = 1 << 17;
  if (!options.quiet && !is_exact(chosen.array.codec)) warn_of_outliers(part(kSome));
  if (options.dry_run) chosen.trial = report_on(part(all), chosen.array.codec, threads);
  return chosen;
}

// A codec or target for all arrays that suits none of them is not what was asked for.
void warn_of_unused(const Options& options, const std::optional<Target>& target,
                    std::span<const SourceArray> arrays) {
  if ((!options.codec.for_all() && !target) || options.quiet || has_fields(arrays)) return;
  const auto unbound = std::ranges::find_if(
      arrays, [&](const SourceArray& array) { return !options.codec.bound_to(array.name); });
  if (unbound == arrays.end()) return;
  warn(
      "[pack] {} for samples with two axes or more, and no array has such; '{}' is packed without "
      "loss (--codec '{}=SPEC' binds one)",
      target ? "a target searches codecs" : "--codec without a name is", unbound->name,
      unbound->name);
}

// Refuses a codec that the arrays do not suit, in the words of the shape that the user knows.
void check_codecs(const std::vector<ArrayInfo>& arrays, std::int64_t samples) {
  std::vector<ArrayInfo> settled = arrays;
  try {
    check_arrays(settled);
  } catch (const Error&) {
    for (const ArrayInfo& array : arrays) {
      if (samples == 0) break;
      try {
        layout(array.codec, array.dtype, with_samples(samples, array.shape));
      } catch (const Error& error) {
        fail(error.code(), "[pack] '{}': {}", array.name, error.what());
      }
    }
    throw;
  }
}

std::string metadata_of(const Options& options) {
  if (!options.metadata.starts_with('@')) return options.metadata;
  const std::string path = options.metadata.substr(1);
  const std::shared_ptr<const Bytes> file = Bytes::map(path, "pack");
  if (file->span().empty()) {
    invalid("[pack] --metadata takes a JSON object, and '{}' is empty", path);
  }
  return {reinterpret_cast<const char*>(file->span().data()), file->span().size()};
}

// "about 0.1 s", "about 3 min": an estimate has no more digits.
std::string time_text(double seconds) {
  if (seconds < 0.1) return "less than 0.1 s";
  if (seconds < 10) return fmt::format("about {:.1f} s", seconds);
  if (seconds < 120) return fmt::format("about {:.0f} s", seconds);
  if (seconds < 7200) return fmt::format("about {:.0f} min", seconds / 60);
  return fmt::format("about {:.0f} h", seconds / 3600);
}

void dry_run(const Options& options, const Source& source, const std::vector<Outcome>& chosen,
             double search_seconds, int threads) {
  std::vector<ArrayInfo> arrays;
  for (const Outcome& one : chosen) arrays.push_back(one.array);
  Estimate all =
      estimate_packing(source, arrays, options.target.trial_values(), search_seconds > 0, threads);
  all.seconds += search_seconds;
  if (options.json) {
    Json rows = Json::array();
    for (const Outcome& one : chosen) rows.push_back(to_json(one));
    return print_out(print_json(Json::array({{{"samples", source.samples()},
                                              {"bytes", all.bytes},
                                              {"packed_bytes_about", all.packed_bytes},
                                              {"seconds_about", all.seconds},
                                              {"memory_bytes_about", all.memory_bytes},
                                              {"arrays", rows}}})));
  }
  print_out(to_table(chosen) +
            fmt::format("{} samples, {} -> about {} ({:.2f}x)\n{} to read and pack with {}, and "
                        "what the disk takes; about {} of memory\nnothing was written\n",
                        source.samples(), size_text(all.bytes), size_text(all.packed_bytes),
                        all.packed_bytes == 0 ? 1.0
                                              : static_cast<double>(all.bytes) /
                                                    static_cast<double>(all.packed_bytes),
                        time_text(all.seconds),
                        threads == 1 ? "1 thread" : fmt::format("{} threads", threads),
                        size_text(all.memory_bytes)));
}

std::string summary(const Options& options, const std::vector<Outcome>& chosen,
                    const PackTotal& total) {
  if (options.json) {
    Json arrays = Json::array();
    for (const Outcome& one : chosen) arrays.push_back(to_json(one));
    return print_json(Json::array({{{"file", options.out},
                                    {"samples", total.samples},
                                    {"bytes", total.bytes},
                                    {"file_bytes", total.file_bytes},
                                    {"seconds", total.seconds},
                                    {"arrays", arrays}}}));
  }
  if (options.quiet) return "";
  const bool measured =
      std::any_of(chosen.begin(), chosen.end(), [](const Outcome& one) { return one.measured(); });
  return (measured ? to_table(chosen) : "") +
         fmt::format("{}: {} samples, {} -> {} ({:.2f}x)\n", options.out, total.samples,
                     size_text(total.bytes), size_text(total.file_bytes),
                     static_cast<double>(total.bytes) / static_cast<double>(total.file_bytes));
}

void check(const Options& options) {
  if (options.out.empty() && !options.dry_run) {
    invalid("[pack] give the file to write: -o OUT.tuck");
  }
  if (options.append && options.resume) {
    invalid("[pack] --append and --resume exclude each other; drop one");
  }
  if (options.append && options.shards > 0 && !options.out.empty() &&
      shards_at(options.out).empty()) {
    invalid("[pack] --append adds shards to a manifest, and '{}' is none; leave out --shards",
            options.out);
  }
  if (options.dry_run) return;
  if (is_stdout(options.out)) {
    if (options.shards > 0) {
      invalid("[pack] --shards writes several files, got -o {}; name one", options.out);
    }
    if (options.append || options.resume) {
      invalid("[pack] --append and --resume go on with a file, got -o {}; name it with -o",
              options.out);
    }
    return check_stdout("pack", options.force);
  }
  if (!options.append) check_absent("pack", options.out, options.force);
}

void run(const Options& options) {
  const std::optional<Target> target = options.target.get("pack", options.codec);
  check(options);
  const int threads = thread_count(options.threads);
  const std::unique_ptr<Source> source = options.inputs.open("pack", options.quiet);
  // A file that is added to keeps what it says, and shards would each repeat the names of all samples.
  const std::string metadata = options.append
                                   ? metadata_of(options)
                                   : with_about(metadata_of(options), *source, options.shards == 0);
  Bytes::remember_mapped(false);  // what is read from here on is no input
  std::optional<OutPath> out;
  if (!options.dry_run) out.emplace("pack", options.out);
  PackOutput output{.path = out ? out->path() : options.out,
                    .inputs = options.inputs.files,
                    .metadata = metadata,
                    .seed = options.seed,
                    .threads = threads,
                    .shards = options.shards,
                    .append = options.append,
                    .resume = options.resume,
                    .force = options.force,
                    .quiet = options.quiet,
                    .temporary = out && out->is_temporary(),
                    .reads_others = options.inputs.allow_external};
  // What is added to a manifest is further shards.
  if (options.append && output.shards == 0 && !shards_at(options.out).empty()) output.shards = 1;
  if (!options.dry_run) check_output(output, source->samples());
  options.codec.check("pack", source->arrays());
  const auto start = std::chrono::steady_clock::now();
  const std::vector<ArrayInfo> file = options.append && !options.out.empty()
                                          ? arrays_of(options.out, options.strict)
                                          : std::vector<ArrayInfo>();
  warn_of_unused(options, target, source->arrays());
  std::vector<Outcome> chosen;
  std::vector<ArrayInfo> arrays;
  for (std::size_t a = 0; a < source->arrays().size(); ++a) {
    chosen.push_back(choose_codec(options, *source, a, target, file, threads));
    arrays.push_back(chosen.back().array);
    output.checks.push_back(check_for(chosen.back().target));
  }
  if (!file.empty()) check_append(options.out, file, arrays);
  if (!file.empty()) check_classes(options.out, FileReader(options.out).metadata(), *source);
  check_codecs(arrays, source->samples());
  for (const Outcome& one : chosen) {
    if (options.quiet) break;
    warn_of_scale("pack", options.codec, one, scale_factor_of(*source, one.array.name));
    warn_of_foreign_fill("pack", one, *source);
  }
  if (options.dry_run) {
    const std::chrono::duration<double> searched = std::chrono::steady_clock::now() - start;
    dry_run(options, *source, chosen, target ? searched.count() : 0, threads);
    return judge_trials("pack", chosen, options.strict, options.quiet);
  }
  if (output.append && output.shards > 0) {  // as the samples that are there
    for (std::size_t a = 0; a < arrays.size(); ++a) {
      if (arrays[a].samples_per_chunk == 0) arrays[a].samples_per_chunk = file[a].samples_per_chunk;
    }
  }
  const PackTotal total = write_samples(output, *source, arrays);
  out->finish();
  for (std::size_t a = 0; a < chosen.size(); ++a) {
    chosen[a].written = total.arrays[a];
    chosen[a].samples = total.packed_samples;
  }
  const std::string text = summary(options, chosen, total);
  print_report(options.out, text);
  judge("pack", chosen, options.strict, options.quiet);
}

}  // namespace

void add_pack(Command& app) {
  const auto options = std::make_shared<Options>();
  Command verb = app.add_subcommand("pack", "Pack samples from files into a .tuck file");
  options->inputs.add_to(verb);
  verb.add_option("-o,--out", options->out, "The file to write, or - for standard output")
      .type_name("OUT.tuck");
  options->codec.add_to(verb);
  options->target.add_to(verb);
  verb.add_option("--samples-per-chunk", options->samples_per_chunk,
                  "Samples packed together; default: what lets one be read in tens of microseconds")
      .type_name("N")
      .range(std::int64_t{0}, std::int64_t{1} << 31);
  verb.add_option("--shards", options->shards,
                  "Write so many files, NAME-00000-of-0000N.tuck, and OUT.tuck that lists them")
      .type_name("N")
      .range(1, 99999);
  verb.add_option("--dask", options->dask,
                  "Pack on the workers of this Dask scheduler, with the Python package and some of "
                  "these options; 'tuckfold pack --dask ADDRESS --help' lists them")
      .type_name("ADDRESS");
  verb.add_option("--metadata", options->metadata, "A JSON object for the file, or @FILE with one")
      .type_name("JSON");
  verb.add_option("--seed", options->seed, "For stochastic rounding")
      .type_name("N")
      .check([](const std::string& text) {  // the parser wraps around, or stops at the largest
        std::uint64_t value = 0;
        const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        const bool whole = error == std::errc{} && stop == text.data() + text.size();
        return whole ? std::string() : "must be 0..2^64-1, got " + text;
      });
  verb.add_threads(options->threads);
  verb.add_flag("--append", options->append, "Add samples to the file, or shards to the manifest");
  verb.add_flag("--resume", options->resume, "Go on where a stopped run of the same was");
  verb.add_flag("-f,--force", options->force,
                "Write over a file that exists or a stopped run has left, or to a terminal");
  verb.add_flag(
      "--strict", options->strict,
      "Exit with 6 where a target is missed, and with 3 where the file to append to may have "
      "missing samples; without, both are warnings");
  verb.add_flag("--dry-run", options->dry_run,
                "Print codecs, sizes, quality, time and memory; write nothing");
  verb.add_flag("-q,--quiet", options->quiet, "Print nothing but errors");
  verb.add_flag("--json", options->json, "Print a JSON array with one object");
  verb.footer(kFooter);
  verb.callback([options] { run(*options); });
}

}  // namespace tuckfold::cli
