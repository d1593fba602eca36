// tuckfold choose: tries the codecs on a part of an array, and names the best spec for a target.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "base/parallel.h"
#include "cli/choose/choose_search.h"
#include "cli/choose/trial_part.h"
#include "cli/dataset/load_arrays.h"
#include "cli/dataset/scaled.h"
#include "cli/terminal/message.h"
#include "cli/terminal/status_line.h"
#include "cli/terminal/table.h"
#include "cli/verbs/verbs.h"
#include "tuckfold/version.h"

namespace tuckfold::cli {
namespace {

constexpr const char* kFooter =
    R"_(Give one target. choose picks the smallest spec that reaches it, with --fastest the one that packs and
unpacks in the least time, or, if the target is a ratio, the one closest to the original. PSNR takes the
range of the data as peak. Ratios are relative to the type that is packed; "ratio stored" is relative to
the type in the file.

Codecs are tried on a part of the array: whole planes of its last two axes, spread over the others, or
bands of rows of a large matrix. Figures are those of the part. --max-error tries only codecs that bound
the error of every value (exact codecs if it is 0), so the bound holds for the whole array, too.

Examples:
  tuckfold choose images.npy --target-psnr 45
  tuckfold choose images.npy --target-ratio 8 --threads 1
  tuckfold choose field.npy --max-error 1e-3 --fastest --json)_";

struct Options {
  InputOptions inputs;
  std::string read_as;
  std::optional<double> psnr, ratio, max_error;
  bool fastest = false, smallest = false, json = false;
  int threads = 0;
  std::int64_t trial_values = 4'000'000;
};

Target target_of(const Options& options) {
  std::vector<Target> given;
  if (options.psnr) given.push_back({Target::Kind::Psnr, *options.psnr});
  if (options.ratio) given.push_back({Target::Kind::Ratio, *options.ratio});
  if (options.max_error) given.push_back({Target::Kind::MaxError, *options.max_error});
  if (given.size() != 1) {
    invalid("[choose] give one of --target-psnr, --target-ratio and --max-error, got {}",
            given.empty() ? "none" : fmt::format("{}", given.size()));
  }
  check_target("choose", given.front());
  return given.front();
}

std::string to_table(const Choice& choice) {
  Table table(
      {"<", "<codec", "ratio", "ratio stored", "PSNR dB", "max error", "pack GB/s", "unpack GB/s"});
  for (const Candidate& one : choice.best) {
    const Report& report = one.report;
    table.add({&one == &choice.best.front() ? "*" : "", report.codec,
               fmt::format("{:.2f}", report.ratio), fmt::format("{:.2f}", report.ratio_stored),
               psnr_text(report.quality), fmt::format("{:.3g}", report.quality.max_error),
               fmt::format("{:.2f}", report.speed->pack.median),
               fmt::format("{:.2f}", report.speed->unpack.median)});
  }
  return table.print();
}

void print_text(const Array& array, const Array& part, const Target& target, const Choice& choice,
                const ChooseOptions& options) {
  std::size_t reaching = 0;
  for (const Candidate& one : choice.tried) reaching += one.reaches;
  const bool whole = part.shape.elems() == array.shape.elems();
  const CodecSpec& best = choice.best.front().spec;
  std::string text = fmt::format(
      "{}, {} on {}\n", describe(array),
      options.threads == 1 ? "1 thread" : fmt::format("{} threads", options.threads), cpu_target());
  text +=
      fmt::format("{} of {} specs reach {} on {}; the best of each codec, {} first:\n", reaching,
                  choice.tried.size(), to_string(target),
                  whole ? "all values"
                        : fmt::format("{} of {} values", part.shape.elems(), array.shape.elems()),
                  options.prefer == Prefer::Fastest    ? "fastest"
                  : target.kind == Target::Kind::Ratio ? "closest"
                                                       : "smallest");
  text += to_table(choice) + notes_on(array);
  print_out(fmt::format("{}use: {}\n", text, best.print()));
}

// A report without what is the same for all of them.
Json to_json(const Candidate& one, const Array& part, int threads) {
  Json json = to_json(one.report, part, threads);
  for (const char* same : {"peer", "file", "shape", "dtype", "stored", "threads", "cpu_target"}) {
    json.erase(same);
  }
  json["reaches_target"] = one.reaches;
  return json;
}

void print_object(const Array& array, const Array& part, const Target& target, const Choice& choice,
                  const ChooseOptions& options) {
  constexpr const char* kKinds[] = {"psnr_db", "ratio", "max_error"};
  Json tried = Json::array();
  for (const Candidate& one : choice.tried) tried.push_back(to_json(one, part, options.threads));
  const Json head = {{"file", array.name},
                     {"shape", std::vector<std::int64_t>(array.shape.begin(), array.shape.end())},
                     {"dtype", to_string(array.dtype)},
                     {"stored", array.stored},
                     {"threads", options.threads},
                     {"cpu_target", cpu_target()},
                     {"target",
                      {{kKinds[static_cast<int>(target.kind)], target.value},
                       {"prefer", options.prefer == Prefer::Fastest ? "fastest" : "smallest"}}},
                     {"trial", {{"values", part.shape.elems()}, {"of", array.shape.elems()}}},
                     {"best", to_json(choice.best.front(), part, options.threads)}};
  std::string text = "{\n";
  for (const auto& [key, value] : head.items()) {
    text += fmt::format("\"{}\": {},\n", key,
                        value.dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  print_out(fmt::format("{}\"tried\": {}}}\n", text, print_json(tried)));
}

void run(const Options& options) {
  if (options.inputs.files.empty()) invalid("[choose] nothing to pack; name a file");
  if (options.fastest && options.smallest) {
    invalid("[choose] --fastest and --smallest exclude each other; drop one");
  }
  const Target target = target_of(options);
  static_cast<void>(cpu_target());  // a bad TUCKFOLD_CPU fails here, not on a thread of the pool
  const ReadAs read_as = options.read_as == "f32" ? ReadAs::F32 : ReadAs::Stored;
  const Array array = std::move(
      load_arrays("choose", options.inputs, read_as, Take::One, thread_count(options.threads))
          .front());
  if (options.max_error) {
    const std::string note = note_on_scale(array.name, array.scale_factor, *options.max_error);
    if (!note.empty()) warn("[choose] {}", note);
  }
  const std::string note = note_on_exact(array.name, array.dtype, target);
  if (!note.empty()) warn("[choose] {}", note);
  const Array part = trial_part_of(array, options.trial_values);
  StatusLine progress;
  const ChooseOptions how{.prefer = options.fastest ? Prefer::Fastest : Prefer::Smallest,
                          .threads = thread_count(options.threads),
                          .progress = [&](std::string_view text) { progress.show(text); }};
  const Choice choice = choose(part, target, how);
  progress.show("");
  (options.json ? print_object : print_text)(array, part, target, choice, how);
}

}  // namespace

void add_choose(Command& app) {
  const auto options = std::make_shared<Options>();
  Command verb = app.add_subcommand("choose", "Find the codec for a quality, ratio or error");
  options->inputs.add_to(verb, kSelectOne);
  verb.add_option("--target-psnr", options->psnr, "PSNR to reach").type_name("DB");
  verb.add_option("--target-ratio", options->ratio, "How many times smaller to become")
      .type_name("R");
  verb.add_option("--max-error", options->max_error,
                  "Largest error of a value; 0 asks for exact codecs")
      .type_name("E");
  verb.add_flag("--smallest", options->smallest, "The smallest that reaches the target; default");
  verb.add_flag("--fastest", options->fastest, "The fastest that reaches the target");
  verb.add_option("--trial-values", options->trial_values, "Values to try on, default 4000000")
      .type_name("N")
      .range(std::int64_t{1}, std::int64_t{1} << 62);
  verb.add_threads(options->threads);
  verb.add_option("--as", options->read_as, "What to pack; default: as stored, as pack does")
      .type_name("f32|stored")
      .one_of({"f32", "stored"});
  verb.add_flag("--json", options->json, "Print a JSON object");
  verb.footer(kFooter);
  verb.callback([options] { run(*options); });
}

}  // namespace tuckfold::cli
