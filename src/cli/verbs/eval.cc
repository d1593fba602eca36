// tuckfold eval: what a codec does to an array, in figures and as a picture.
#include <memory>
#include <optional>
#include <vector>

#include "base/fail.h"
#include "base/io/new_file.h"
#include "base/parallel.h"
#include "cli/bench/report.h"
#include "cli/dataset/load_arrays.h"
#include "cli/pictures/picture.h"
#include "cli/terminal/stdio.h"
#include "cli/terminal/table.h"
#include "cli/verbs/verbs.h"

namespace tuckfold::cli {
namespace {

constexpr const char* kFooter =
    R"_(The picture has the original, the result of each codec and its error around grey, enlarged as printed: in
one row for one codec, else with the errors below their results. Arrays are taken as H x W, H x W x 3 or
3 x H x W pictures in their last axes; --index picks one. view -o OUT.html writes a page with labels.
Fill values are blue in the picture, and in none of the figures.

Examples:
  tuckfold eval images.npy --codec "dct_chop(keep=4)"
  tuckfold eval images.npy --codec "dct_chop(keep=2)" "dct_chop(keep=6)" --png out.png --index 7)_";

struct Options {
  InputOptions inputs;
  std::vector<std::string> codecs;
  std::string png;
  std::int64_t index = 0;
  int threads = 0;
  bool json = false, force = false;
};

void run(Options& options) {
  take_files(options.codecs, options.inputs.files);
  if (options.inputs.files.empty()) invalid("[eval] nothing to pack; name a file");
  if (options.codecs.empty()) {
    invalid("[eval] nothing to pack with; give --codec \"dct_chop(keep=4)\"");
  }
  if (!options.png.empty()) check_absent("eval", options.png, options.force);
  std::vector<CodecSpec> specs;
  for (const std::string& text : options.codecs) specs.push_back(CodecSpec::parse(text));
  const int threads = thread_count(options.threads);
  const Array array =
      std::move(load_arrays("eval", options.inputs, ReadAs::Default, Take::One, threads).front());
  const HugeBuffer out(array.bytes());

  std::optional<SideBySide> picture;
  std::optional<NewFile> file;
  if (!options.png.empty()) file.emplace("eval", options.png, NewFile::Replace{options.force});
  if (!options.png.empty()) picture.emplace(array, frame_of(array.shape, options.index));
  std::vector<Report> reports;
  for (const CodecSpec& spec : specs) {
    const std::unique_ptr<BenchTarget> bench_target = codec_target(spec, array, out, threads);
    reports.push_back(checked_report(*bench_target, array, out));
    const std::uint8_t* marks = array.marks.empty() ? nullptr : array.marks.data();
    if (picture) picture->add(picture_of(array.dtype, out.data(), marks, picture->frame()));
  }
  if (file) {
    const std::string bytes = picture->draw().png();
    file->write(std::as_bytes(std::span(bytes)));
    file->finish();
  }

  if (options.json) {
    Json all = Json::array();
    for (const Report& report : reports) {
      all.push_back(to_json(report, array, threads));
      if (picture) all.back().update(Json{{"png", options.png}, {"error_gain", picture->gain()}});
    }
    return print_report(options.png, print_json(all));
  }
  std::string text = describe(array) + '\n' + to_table(reports) + notes_on(array);
  if (picture) {
    text += fmt::format("{}: picture {} of {}, errors shown x{}\n", options.png, options.index,
                        picture->frame().count, picture->gain());
  }
  print_report(options.png, text);
}

}  // namespace

void add_eval(Command& app) {
  const auto options = std::make_shared<Options>();
  Command verb = app.add_subcommand("eval", "Measure what codecs do to an array; draw a picture");
  options->inputs.add_to(verb, kSelectOne);
  verb.add_option("--codec", options->codecs, "Codecs to try; see 'tuckfold codecs'")
      .type_name("SPEC");
  verb.add_option("--png", options->png, "Write original, results and errors side by side")
      .type_name("OUT.png");
  verb.add_option("--index", options->index, "Which picture of the array, from 0").type_name("I");
  verb.add_threads(options->threads);
  verb.add_flag("-f,--force", options->force, "Overwrite a picture that exists");
  verb.add_flag("--json", options->json, "Print a JSON array of objects");
  verb.footer(kFooter);
  verb.callback([options] { run(*options); });
}

}  // namespace tuckfold::cli
