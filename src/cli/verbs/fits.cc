// tuckfold fits: whether an accelerator can take a codec, or a training step of a structured layer,
// from the files of devices/.
#include <algorithm>
#include <memory>

#include "base/fail.h"
#include "cli/bench/report.h"
#include "cli/terminal/table.h"
#include "cli/verbs/portable_options.h"
#include "cli/verbs/verbs.h"
#include "tuckfold/structured.h"

namespace tuckfold::cli {
namespace {

constexpr const char* kFooter =
    R"_(The codec in plain operators, as export writes it, is checked against the types, operators and memory in
the device's file. Nothing is compiled: answers follow from published limits, which
docs/devices.md lists with their sources. Exit status 0 means that it fits, 1 that it does not,
and 4 that no accelerator can take the codec, since it cannot be exported; 2 is a mistake in what was asked.

SPEC may be the text of a structured layer, too, with the shape of its input, samples first. Then the
answer is about a training step. For an IPU it is an estimate in compute sets, vertices, edges and bytes of a tile,
of the layer in plain operators; docs/devices.md says what it assumes. For other devices weights, gradients,
optimizer states and activations are counted.

--device takes a name or the path of a file; TUCKFOLD_DEVICES names a folder with more of them, where a file
of a name that is built in is taken instead. --json has its path (device_file), the answer as it is printed
without (text), and null as the remedy where it fits, or where nothing helps.

Examples:
  tuckfold fits "dct_chop(keep=4)" --shape 100,3,512,512 --device sn30
  tuckfold fits "dct_chop(keep=4, serialize=2)" --shape 100,3,512,512 --device sn30
  tuckfold fits "dct_chop(keep=4)" --shape 100,3,64,64 --dtype bf16 --device ipu-bow
  tuckfold fits butterfly --shape 50,1024 --device ipu-gc200
  tuckfold fits "low_rank(rank=8)" --shape 50,784 --out-features 10 --device ipu-gc200)_";

struct Options {
  PortableOptions codec;
  std::string device;
  std::int64_t out_features = 0;  // 0: as many as go in
  int states = 1;
  bool json = false;
};

bool is_structure(std::string_view text) {
  const std::string_view name = text.substr(0, text.find_first_of("( "));
  const auto all = structures();
  return std::any_of(all.begin(), all.end(), [&](const auto& one) { return one.name == name; });
}

DeviceInfo device_of(const Options& options) {
  if (options.device.empty()) {
    invalid("[fits] give a device: --device {}", fmt::join(device_names("fits"), ", "));
  }
  return find_device("fits", options.device);
}

void run_layer(const Options& options) {
  const Shape shape = parse_shape("fits", options.codec.shape);
  if (shape.rank() < 2) {
    invalid("[fits] a layer needs a shape of samples and features, as in --shape 50,1024, got '{}'",
            options.codec.shape);
  }
  if (!options.codec.only.empty()) {
    invalid("[fits] --only is for codecs, and {} is a layer; leave it out", options.codec.spec);
  }
  const DeviceInfo device = device_of(options);
  const std::int64_t in = shape[shape.rank() - 1];
  const LayerQuestion asked{.text = options.codec.spec,
                            .in = in,
                            .out = options.out_features > 0 ? options.out_features : in,
                            .samples = shape.elems() / in,
                            .dtype = parse_portable_dtype("fits", options.codec.dtype),
                            .states = options.states};
  const LayerFit fit = fits(device, asked);
  const std::string text = StructuredLayer(asked.text, asked.in, asked.out).text();
  std::string said =
      fmt::format("{}: {}: {}\n", device_text(device), fit.fits ? "fits" : "does not fit", fit.why);
  if (fit.tiles) {
    said += fmt::format("compute sets {}, vertices {}, edges {}\n", fit.tiles->compute_sets,
                        fit.tiles->vertices, fit.tiles->edges);
    said += fmt::format("of a tile: data {:.1f} kB, program {:.1f} kB, temporaries {:.1f} kB\n",
                        fit.tiles->data_bytes / 1e3, fit.tiles->program_bytes / 1e3,
                        fit.tiles->temporary_bytes / 1e3);
  }
  said += fit.largest == 0 ? fmt::format("no {} of {} samples fits", text, asked.samples)
                           : fmt::format("the largest {} of {} samples that fits has {} features{}",
                                         text, asked.samples, fit.largest,
                                         fit.largest == LayerFit::kMostFeatures ? " or more" : "");
  if (options.json) {
    const bool helps = !fit.fits && fit.largest > 0;
    Json answer = {
        {"device", device.name},
        {"device_file", device.file},
        {"layer", text},
        {"dtype", to_string(asked.dtype)},
        {"samples", asked.samples},
        {"in_features", asked.in},
        {"out_features", asked.out},
        {"fits", fit.fits},
        {"why", fit.why},
        {"remedy", helps ? Json(fmt::format("use {} features at most", fit.largest)) : Json()},
        {"text", said},
        {"bytes", fit.bytes},
        {"most_bytes", fit.most},
        {"largest_features", fit.largest}};
    if (fit.tiles) {
      answer["compute_sets"] = fit.tiles->compute_sets;
      answer["vertices"] = fit.tiles->vertices;
      answer["edges"] = fit.tiles->edges;
      answer["tile_bytes"] = {{"data", fit.tiles->data_bytes},
                              {"program", fit.tiles->program_bytes},
                              {"temporary", fit.tiles->temporary_bytes}};
    }
    print_out(print_json(Json::array({answer})));
  } else {
    print_out(said + "\n");
  }
  if (!fit.fits) throw ExitStatus{1};
}

void run(const Options& options) {
  if (is_structure(options.codec.spec)) {
    run_layer(options);
    return;
  }
  const PortableCodec codec("fits", options.codec);
  const DeviceInfo device = device_of(options);
  const Fit fit = fits(device, codec.spec, codec.dtype, codec.shape, codec.direction);
  const std::string text =
      fmt::format("{}: {}: {}", device_text(device), fit.fits ? "fits" : "does not fit",
                  fit.fits ? fit.why : refusal_text(fit));
  if (options.json) {
    print_out(print_json(
        Json::array({{{"device", device.name},
                      {"device_file", device.file},
                      {"codec", codec.spec.print()},
                      {"dtype", to_string(codec.dtype)},
                      {"shape", std::vector<std::int64_t>(codec.shape.begin(), codec.shape.end())},
                      {"fits", fit.fits},
                      {"why", fit.why},
                      {"remedy", fit.remedy.empty() ? Json() : Json(fit.remedy)},
                      {"text", text}}})));
  } else {
    print_out(text + "\n");
  }
  if (!fit.fits) throw ExitStatus{1};
}

}  // namespace

void add_fits(Command& app) {
  const auto options = std::make_shared<Options>();
  Command verb =
      app.add_subcommand("fits", "Check whether an accelerator can run a codec or a layer");
  verb.add_option("SPEC", options->codec.spec, "The codec, or a structured layer").type_name("");
  options->codec.add_to(verb);
  verb.add_option("--device", options->device, "The accelerator").type_name("NAME|FILE.json");
  verb.add_option("--out-features", options->out_features, "Of a layer; default: as many as go in")
      .type_name("N");
  verb.add_option("--states", options->states,
                  "Of the optimizer for each weight of a layer, default 1: a momentum")
      .type_name("0..8");
  verb.add_flag("--json", options->json, "Print a JSON array of one object");
  verb.footer(kFooter);
  verb.callback([options] { run(*options); });
}

}  // namespace tuckfold::cli
