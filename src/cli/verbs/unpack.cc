// tuckfold unpack, slice and cat: samples of a .tuck file in other formats, or as bytes.
#include <chrono>
#include <memory>
#include <optional>

#include "base/fail.h"
#include "base/parallel.h"
#include "cli/bench/report.h"
#include "cli/dataset/array_out.h"
#include "cli/terminal/stdio.h"
#include "cli/terminal/table.h"
#include "cli/verbs/verbs.h"
#include "container/format.h"

namespace tuckfold::cli {
namespace {

struct Options {
  std::string file, out, range;
  std::vector<std::string> arrays;
  int threads = 0;
  bool force = false, quiet = false, json = false, strict = false;
};

std::vector<std::size_t> chosen(const FileReader& reader, const std::vector<std::string>& names) {
  std::vector<std::size_t> arrays;
  for (const std::string& name : names) arrays.push_back(reader.find(name));
  for (std::size_t a = 0; names.empty() && a < reader.arrays().size(); ++a) arrays.push_back(a);
  return arrays;
}

void run(const char* verb, const Options& options, std::optional<ArrayOut::Kind> kind = {}) {
  if (options.file.empty()) invalid("[{}] name a .tuck file", verb);
  if (options.out.empty()) invalid("[{}] give the place to write to: -o", verb);
  if (is_stdout(options.out)) {
    if (options.json) {
      invalid("[{}] --json and -o {} both need standard output; give a file or a folder", verb,
              options.out);
    }
    check_stdout(verb, options.force);
  }
  const FileReader reader =
      open_reader(input_path(verb, options.file, options.quiet), options.strict);
  const SampleSlice range = options.range.empty()
                                ? SampleSlice{0, reader.samples()}
                                : parse_range(verb, options.range, reader.samples());
  const std::vector<std::size_t> arrays = chosen(reader, options.arrays);
  std::vector<SourceArray> written;
  for (const std::size_t array : arrays) {
    const ArrayInfo& info = reader.arrays()[array];
    written.push_back(
        {.name = info.name, .dtype = info.dtype, .sample = info.shape, .fill = info.fill});
  }
  const int threads = thread_count(options.threads);
  const ArrayOut out{.verb = verb,
                     .out = options.out,
                     .kind = kind ? *kind : ArrayOut::kind_of(verb, options.out),
                     .force = options.force,
                     .threads = threads,
                     .metadata = reader.metadata()};
  const auto start = std::chrono::steady_clock::now();
  out.write(
      written, range.samples, options.quiet,
      [&](std::size_t i) { return cut_at_chunks(reader, arrays[i], range); },
      [&](std::size_t i, const SampleSlice& part, std::byte* to, int threads_of_each) {
        reader.read(arrays[i], part.first, part.span(),
                    TensorView(to, written[i].dtype, with_samples(part.span(), written[i].sample)),
                    threads_of_each);
        compact(part, written[i].sample_bytes(), to);
      });
  if (!options.json) return;
  Json rows = Json::array();
  for (const SourceArray& array : written) {
    const Shape shape = with_samples(range.samples, array.sample);
    const DType dtype = out.dtype_of(array);
    rows.push_back({{"name", array.name},
                    {"dtype", to_string(dtype)},
                    {"shape", std::vector<std::int64_t>(shape.begin(), shape.end())},
                    {"file", out.path_of(array)},
                    {"bytes", static_cast<std::size_t>(shape.elems()) * size_bytes(dtype)}});
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  print_out(print_json(Json::array({{{"file", options.file},
                                     {"first", range.first},
                                     {"step", range.step},
                                     {"samples", range.samples},
                                     {"arrays", rows},
                                     {"seconds", took.count()}}})));
}

Command add_verb(Command& app, const char* name, const char* summary, const char* arrays,
                 const std::shared_ptr<Options>& options) {
  Command verb = app.add_subcommand(name, summary);
  verb.add_option("FILE", options->file,
                  "A .tuck file, a manifest of several, or - for standard input")
      .type_name("");
  add_select(verb, options->arrays, arrays);
  add_strict(verb, options->strict);
  verb.add_threads(options->threads);
  return verb;
}

// Adds the options of the verbs that write files.
void add_output(Command& verb, const std::shared_ptr<Options>& options) {
  verb.add_option(
          "-o,--out", options->out,
          "A folder for NAME.npy of each array, OUT.npz or OUT.h5 for all, OUT.npy for one, - "
          "for standard output")
      .type_name("OUT");
  verb.add_flag("-f,--force", options->force, "Overwrite files that exist, or write to a terminal");
  verb.add_flag("-q,--quiet", options->quiet, "No bar on the terminal");
  verb.add_flag("--json", options->json, "Print a JSON array with one object: what was written");
}

}  // namespace

void add_unpack(Command& app) {
  const auto options = std::make_shared<Options>();
  Command verb = add_verb(app, "unpack", "Unpack a .tuck file to .npy, .npz or HDF5",
                          "Only these arrays", options);
  add_output(verb, options);
  verb.footer(
      R"_(bf16 becomes f32, because numpy and HDF5 have no bf16. HDF5 files have the attributes that pack found in the
inputs, and _FillValue; large arrays are chunked, shuffled and deflated.

Examples:
  tuckfold unpack train.tuck -o train
  tuckfold unpack train.tuck --select image -o images.npy
  tuckfold unpack - --select label -o - <train.tuck >labels.npy)_");
  verb.callback([options] { run("unpack", *options); });
}

void add_slice(Command& app) {
  const auto options = std::make_shared<Options>();
  Command verb =
      add_verb(app, "slice", "Unpack some samples of a .tuck file", "Only these arrays", options);
  verb.add_option("RANGE", options->range, kRangeText).type_name("");
  add_output(verb, options);
  verb.footer(R"_(Samples are numbered from 0; END is exclusive.

Examples:
  tuckfold slice train.tuck 100:200 --select image -o some.npy
  tuckfold slice train.tuck 7 -o seventh)_");
  verb.callback([options] {
    if (options->range.empty()) invalid("[slice] which samples? give a range, as 100:200");
    run("slice", *options);
  });
}

void add_cat(Command& app) {
  const auto options = std::make_shared<Options>();
  options->out = "-";
  Command verb = add_verb(app, "cat", "Write the values of one array to standard output",
                          "The array, if the file has several", options);
  verb.add_option("--range", options->range, kRangeText).type_name("RANGE");
  verb.add_flag("-f,--force", options->force, "Write to a terminal, too");
  verb.footer(R"_(Values are row-major and little-endian, without a header; unpack -o - has one.

Example:
  tuckfold cat train.tuck --select label --range :100 | od -td8)_");
  verb.callback([options] {
    options->quiet = true;
    run("cat", *options, ArrayOut::Kind::Bytes);
  });
}

}  // namespace tuckfold::cli
