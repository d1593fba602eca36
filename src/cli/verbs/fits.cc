// tuckfold fits: whether an accelerator can take a codec, from the files of devices/.
#include <memory>

#include "base/fail.h"
#include "cli/bench/report.h"
#include "cli/terminal/table.h"
#include "cli/verbs/portable_options.h"
#include "cli/verbs/verbs.h"

namespace tuckfold::cli {
namespace {

constexpr const char* kFooter =
    R"_(The codec in plain operators, as export writes it, is checked against the types, operators and memory in
the device's file. Nothing is compiled: answers follow from published limits, which
docs/devices.md lists with their sources. Exit status 0 means that it fits, 1 that it does not.

--device takes a name or the path of a file; TUCKFOLD_DEVICES names a folder with more of them.

Examples:
  tuckfold fits "dct_chop(keep=4)" --shape 100,3,512,512 --device sn30
  tuckfold fits "dct_chop(keep=4, serialize=2)" --shape 100,3,512,512 --device sn30
  tuckfold fits "dct_chop(keep=4)" --shape 100,3,64,64 --dtype bf16 --device ipu-bow)_";

struct Options {
  PortableOptions codec;
  std::string device;
  bool json = false;
};

void run(const Options& options) {
  const PortableCodec codec("fits", options.codec);
  if (options.device.empty()) {
    invalid("[fits] give a device: --device {}", fmt::join(device_names("fits"), ", "));
  }
  const DeviceInfo device = find_device("fits", options.device);
  const Fit fit = fits(device, codec.spec, codec.dtype, codec.shape, codec.direction);
  if (options.json) {
    print_out(print_json(
        Json::array({{{"device", device.name},
                      {"codec", codec.spec.print()},
                      {"dtype", to_string(codec.dtype)},
                      {"shape", std::vector<std::int64_t>(codec.shape.begin(), codec.shape.end())},
                      {"fits", fit.fits},
                      {"why", fit.why},
                      {"remedy", fit.remedy}}})));
  } else {
    print_out(fmt::format("{}: {}: {}\n", device.name, fit.fits ? "fits" : "does not fit",
                          fit.fits ? fit.why : refusal_text(fit)));
  }
  if (!fit.fits) throw ExitStatus{1};
}

}  // namespace

void add_fits(Command& app) {
  const auto options = std::make_shared<Options>();
  Command verb = app.add_subcommand("fits", "Check whether an accelerator can run a codec");
  verb.add_option("SPEC", options->codec.spec, "The codec").type_name("");
  options->codec.add_to(verb);
  verb.add_option("--device", options->device, "The accelerator").type_name("NAME|FILE.json");
  verb.add_flag("--json", options->json, "Print a JSON array of one object");
  verb.footer(kFooter);
  verb.callback([options] { run(*options); });
}

}  // namespace tuckfold::cli
