// tuckfold: compress arrays, and see what that costs. One verb per file; errors end here.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <exception>
#include <new>
#include <string_view>
#include <vector>

#include "base/fail.h"
#include "base/io/bytes.h"
#include "cli/terminal/bus_error.h"
#include "cli/terminal/help_format.h"
#include "cli/terminal/interrupt.h"
#include "cli/terminal/message.h"
#include "cli/terminal/table.h"
#include "cli/verbs/verbs.h"
#include "tuckfold/version.h"

namespace tuckfold::cli {
namespace {

constexpr const char* kExamples = R"_(Examples:
  tuckfold pack images.npy -o images.tuck --codec "dct_quant(rate=4)"
  tuckfold unpack images.tuck -o images
  tuckfold codecs
  tuckfold bench images.npy --codec "dct_chop(keep=4)" --codec "block_quant(bits=4)"
  tuckfold eval images.npy --codec "dct_chop(keep=2)" --png side_by_side.png
  tuckfold choose images.npy --target-psnr 45

Any other VERB runs the program tuckfold-VERB beside this one or on PATH.

In place of a file, - is standard input or output; ./- is a file of that name.

Exit status: 1 the answer of diff or fits is no, 2 invalid argument, 3 corrupt data, 4 unsupported, 5 input or
output, 6 a target is missed (--strict), 70 a bug, 130 stopped by Ctrl-C.)_";

// Whether `pack` is left to Python, which Dask is made for.
bool is_dask(std::string_view word) { return word == "--dask" || word.starts_with("--dask="); }

int run(int argc, char** argv) {
  CLI::App parser("Tuckfold folds tensors small.", "tuckfold");
  Command app(parser);
  parser.set_version_flag("-V,--version", "tuckfold " + version());
  app.footer(kExamples);
  parser.require_subcommand(1);
  add_pack(app);
  add_unpack(app);
  add_slice(app);
  add_cat(app);
  add_inputs(app);
  add_info(app);
  add_verify(app);
  add_repair(app);
  add_diff(app);
  add_convert(app);
  add_view(app);
  add_codecs(app);
  add_bench(app);
  add_eval(app);
  add_choose(app);
  add_export(app);
  add_fits(app);
  add_time(app);
  add_doctor(app);
  add_completion(app);
  add_man(app);
  add_help(app);

  parser.get_formatter()->label("SUBCOMMAND", "VERB");
  std::vector<std::string> names;
  for (CLI::App* verb : parser.get_subcommands([](const CLI::App*) { return true; })) {
    verb->group("Verbs");
    names.push_back(verb->get_name());
  }
  const std::string verb = argc > 1 ? argv[1] : "";
  const bool known = std::find(names.begin(), names.end(), verb) != names.end();
  if (verb == "pack" && std::any_of(argv + 2, argv + argc, is_dask)) {
    run_external("pack-dask", argv + 1);
    invalid(
        "[pack] --dask comes with the Python package, and no tuckfold-pack-dask is found; 'pip "
        "install .' in the sources installs it");
  }
  if (!known && !verb.empty() && verb[0] != '-') {
    run_external(verb, argv + 1);
    if (verb == "activations" || verb == "factorize" || verb == "study") {
      invalid(
          "'{}' comes with the Python package, and no tuckfold-{} is found; 'pip install .' in "
          "the sources installs it",
          verb, verb);
    }
    const std::vector<std::string_view> candidates(names.begin(), names.end());
    invalid("{}", unknown_text("verb", verb, candidates));
  }
  try {
    parser.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help and --version
    std::ostringstream text;
    parser.exit(asked, text, text);
    print_out(fit_help(text.str(), terminal_columns()));
  } catch (const ExitStatus& answer) {
    return answer.value;
  } catch (const CLI::ParseError& error) {
    if (verb.empty()) {
      print_err(fit_help(parser.help(), terminal_columns()));
      return exit_code(Errc::InvalidArgument);
    }
    invalid("{}{}; see 'tuckfold {}--help'", known ? "[" + verb + "] " : "", error.what(),
            known ? verb + " " : "");
  }
  return 0;
}

}  // namespace

}  // namespace tuckfold::cli

int main(int argc, char** argv) {
  using tuckfold::Errc;
  using tuckfold::cli::say;
  tuckfold::cli::guard_streams();
  tuckfold::cli::install_bus_error_handler();
  tuckfold::Bytes::remember_mapped(true);  // none of them may be written over
  try {
    return tuckfold::cli::run(argc, argv);
  } catch (const tuckfold::Error& error) {
    say("{}", error.what());
    return exit_code(error.code());
  } catch (const tuckfold::cli::Interrupted& stop) {
    if (*stop.what() != '\0') say("{}", stop.what());
    std::signal(stop.signal(), SIG_DFL);
    std::raise(stop.signal());  // so that a shell stops its script, too
    return 128 + stop.signal();
  } catch (const std::bad_alloc&) {
    tuckfold::cli::print_err("tuckfold: there is not enough memory for this\n");
    return exit_code(Errc::Io);
  } catch (const std::exception& error) {
    say("internal error: {}", error.what());
    return exit_code(Errc::Internal);
  }
}
