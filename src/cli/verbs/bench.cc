// tuckfold bench: speed beside a plain copy, ratio and error, of codecs and of peers.
#include <algorithm>
#include <memory>
#include <vector>

#include "base/fail.h"
#include "base/parallel.h"
#include "cli/bench/peer.h"
#include "cli/bench/report.h"
#include "cli/dataset/load_arrays.h"
#include "cli/terminal/status_line.h"
#include "cli/terminal/table.h"
#include "cli/verbs/verbs.h"
#include "tuckfold/version.h"

namespace tuckfold::cli {
namespace {

constexpr const char* kFooter =
    R"_(Speeds are GB/s of uncompressed bytes, the median of at least --repeat rounds. Each round also runs a
plain non-temporal copy of the same array with as many threads: "of copy" is the median of the rounds'
quotients. --json also has the best rounds, and copy_prefetched_gbps, of a copy with software prefetch,
which is faster on some CPUs. PSNR takes the
range of the data as peak. "ratio stored" is against the type in the file: u8 images are packed as
f32, unless --as says stored, which flatters every ratio by 4.

Peers are loaded from installed libraries, or from PATH. SETTING is zfp's bits per value, or the error
bound of sz3 and szx relative to the range. Without one, zfp gets the rates of the given codecs.

Examples:
  tuckfold bench images.npy --codec "dct_chop(keep=4)" --codec "block_quant(bits=4)" --threads 1
  tuckfold bench --synthetic 100x3x256x256 --codec "dct_chop(keep=4)" --peer zfp --json
  tuckfold bench images.npy --peer zfp@4 --peer sz3=/opt/lib/libSZ3c.so@1e-3)_";

struct Options {
  InputOptions inputs;
  std::vector<std::string> synthetic, codecs, peers;
  std::string read_as;
  int threads = 0;
  double min_time = 0.5;
  int repeat = 7;
  bool json = false;
};

// Bits per value of each codec: the rates at which zfp is as large.
std::vector<double> rates_of(const std::vector<CodecSpec>& specs, const Array& array) {
  std::vector<double> rates;
  for (const CodecSpec& spec : specs) {
    const Layout fit = layout(spec, array.dtype, array.shape);
    const double rate =
        static_cast<double>(fit.max_bytes) * 8 / static_cast<double>(array.shape.elems());
    const bool smaller = fit.max_bytes < array.bytes();
    const bool is_new = std::find(rates.begin(), rates.end(), rate) == rates.end();
    if (smaller && is_new) rates.push_back(rate);
  }
  return rates;
}

class Bench {
 public:
  explicit Bench(const Options& options) : options_(options), target_(cpu_target()) {
    for (const std::string& text : options.codecs) specs_.push_back(CodecSpec::parse(text));
    for (const std::string& text : options.peers) peers_.push_back(PeerRequest::parse(text));
    speed_ = {.threads = thread_count(options.threads),
              .min_seconds = options.min_time,
              .min_rounds = options.repeat};
  }

  void run(const Array& array) {
    const HugeBuffer out(array.bytes());
    std::vector<std::unique_ptr<BenchTarget>> targets;
    for (const CodecSpec& spec : specs_) {
      targets.push_back(codec_target(spec, array, out, speed_.threads));
    }
    const std::vector<double> rates = rates_of(specs_, array);
    for (const PeerRequest& peer : peers_) {
      for (auto& bench_target : peer_targets(peer, array, rates, out, speed_.threads)) {
        targets.push_back(std::move(bench_target));
      }
    }
    std::vector<Report> reports;
    for (std::unique_ptr<BenchTarget>& bench_target : targets) {
      progress_.show(fmt::format("{} {}/{} {}", array.name, reports.size() + 1, targets.size(),
                                 bench_target->name()));
      const Speed speed = measure_speed(*bench_target, array, out, speed_);
      reports.push_back(checked_report(*bench_target, array, out));
      reports.back().speed = speed;
      bench_target.reset();  // its buffers
    }
    progress_.show("");
    if (options_.json) {
      for (const Report& report : reports) all_.push_back(to_json(report, array, speed_.threads));
    } else {
      const std::string threads =
          speed_.threads == 1 ? "1 thread" : fmt::format("{} threads", speed_.threads);
      print_out(fmt::format("{}{}, {} on {}\n{}", first_ ? "" : "\n", describe(array), threads,
                            target_, to_table(reports) + notes_on(array)));
      first_ = false;
    }
  }

  void finish() {
    if (options_.json) print_out(print_json(all_));
  }

 private:
  const Options& options_;
  std::string target_;  // a bad TUCKFOLD_CPU fails here, not on a thread of the pool
  std::vector<CodecSpec> specs_;
  std::vector<PeerRequest> peers_;
  SpeedOptions speed_;
  StatusLine progress_;
  Json all_ = Json::array();
  bool first_ = true;
};

void run(Options& options) {
  take_files(options.codecs, options.inputs.files);
  if (options.inputs.files.empty() && options.synthetic.empty()) {
    invalid("[bench] nothing to pack; name a file or give --synthetic 100x3x256x256");
  }
  if (options.codecs.empty() && options.peers.empty()) {
    invalid("[bench] nothing to pack with; give --codec \"dct_chop(keep=4)\" or --peer zfp");
  }
  const ReadAs read_as = parse_read_as(options.read_as);
  Bench bench(options);
  for (const std::string& file : options.inputs.files) {
    InputOptions one = options.inputs;
    one.files = {file};
    for (const Array& array :
         load_arrays("bench", one, read_as, Take::Each, thread_count(options.threads))) {
      bench.run(array);
    }
  }
  for (const std::string& text : options.synthetic) bench.run(make_array(text, read_as));
  bench.finish();
}

}  // namespace

void add_bench(Command& app) {
  const auto options = std::make_shared<Options>();
  Command verb = app.add_subcommand("bench", "Measure speed beside a copy, ratio and error");
  verb.add_option("FILE", options->inputs.files,
                  "Inputs as pack takes them, each on its own; - for standard input")
      .type_name("");
  options->inputs.add_options_to(
      verb, "Only these arrays; default: those whose samples have two axes or more");
  verb.add_option("--codec", options->codecs, "Codecs to measure; see 'tuckfold codecs'")
      .type_name("SPEC");
  verb.add_option("--peer", options->peers, "Other compressors: zfp, sz3, szx")
      .type_name("NAME[=PATH][@SETTING,..]");
  verb.add_threads(options->threads);
  verb.add_option("--min-time", options->min_time, "Seconds of rounds for each codec, default 0.5")
      .type_name("S")
      .range(0.0, 3600.0);
  verb.add_option("--repeat", options->repeat, "Fewest rounds, default 7")
      .type_name("N")
      .range(1, 1000000);
  verb.add_option("--as", options->read_as,
                  "What to pack; default: as stored, but f32 for integers of 8 and 16 bits")
      .type_name("f32|stored")
      .one_of({"f32", "stored"});
  verb.add_option("--synthetic", options->synthetic,
                  "Synthetic arrays, such as 100x3x256x256 or 64x64:f16")
      .type_name("SHAPE[:DTYPE]");
  verb.add_flag("--json", options->json, "Print a JSON array of objects");
  verb.footer(kFooter);
  verb.callback([options] { run(*options); });
}

}  // namespace tuckfold::cli
