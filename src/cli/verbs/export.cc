// tuckfold export: a codec as a file for PyTorch, ONNX or an accelerator's SDK, in plain operators.
#include <algorithm>
#include <cctype>
#include <cstddef>
#include <filesystem>
#include <list>
#include <memory>
#include <optional>
#include <span>

#include "base/fail.h"
#include "base/io/new_file.h"
#include "cli/bench/report.h"
#include "cli/dataset/dataset.h"
#include "cli/terminal/interrupt.h"
#include "cli/terminal/stdio.h"
#include "cli/terminal/table.h"
#include "cli/verbs/portable_options.h"
#include "cli/verbs/verbs.h"
#include "portable/codec_graph.h"
#include "portable/count.h"
#include "portable/operators.h"
#include "portable/python_names.h"
#include "portable/targets.h"
#include "tuckfold/portable.h"

namespace tuckfold::cli {
namespace {

using portable::Count;
using portable::Graph;
using portable::Target;

constexpr const char* kFooter =
    R"_(The file needs no library of ours. For torch and the SDKs it is Python with the modules Pack and Unpack.
ONNX has a model for each: -o codec.onnx writes codec.pack.onnx and codec.unpack.onnx; with --only one
model goes to the file that is named. Both pack what this library packs, to rounding. A Python file needs
a name that can be imported and that no module of Python, torch, numpy, ONNX or an SDK has.

The codecs are dct_chop, block_quant(bits=8) and dct_chop(..) | block_quant(bits=8); of dct_quant only
the decoder (--only unpack). For an SDK, and if --device is given, the operators, types and sizes
are checked against the device's file first. No vendor's SDK was run with these files.

Examples:
  tuckfold export codec "dct_chop(keep=4)" --shape 100,3,256,256 --target torch -o codec.py
  tuckfold export codec "dct_chop(keep=4)" --shape 100,3,256,256 --target onnx -o codec.onnx
  tuckfold export codec "dct_chop(keep=4, serialize=2)" --shape 100,3,512,512 --target samba -o rdu.py
  tuckfold export codec "dct_quant(rate=4)" --shape 8,3,64,64 --only unpack --target onnx -o unpack.onnx)_";

struct Options {
  PortableOptions codec;
  std::string what, target, device, out;
  std::optional<int> opset;
  bool force = false, json = false;
};

// The device of an SDK: the one that was named, or the first with the target.
std::optional<DeviceInfo> device_for(const Options& options) {
  const bool sdk = options.target != "torch" && options.target != "onnx";
  if (!options.device.empty()) {
    const DeviceInfo device = find_device("export", options.device);
    if (sdk && device.target != options.target) {
      invalid("[export] {} takes --target {}, got {}", device.name, device.target, options.target);
    }
    return device;
  }
  if (!sdk) return std::nullopt;
  for (const std::string& name : device_names("export")) {
    DeviceInfo device = find_device("export", name);
    if (device.target == options.target) return device;
  }
  invalid("[export] no device file has the target {}; give one with --device", options.target);
}

// The name without this ending, in whatever case it is written; nothing where it has another one.
std::optional<std::string> without(const std::string& name, std::string_view ending) {
  if (name.size() < ending.size()) return std::nullopt;
  const std::size_t rest = name.size() - ending.size();
  const bool same =
      std::equal(ending.begin(), ending.end(), name.begin() + static_cast<std::ptrdiff_t>(rest),
                 [](char a, char b) { return a == std::tolower(static_cast<unsigned char>(b)); });
  return same ? std::optional(name.substr(0, rest)) : std::nullopt;
}

// Refuses a Python file that cannot be imported, or would be imported instead of another one.
void check_module(const std::filesystem::path& path, const std::string& named) {
  const std::string right =
      (path.parent_path() / (portable::importable_name(named) + ".py")).string();
  if (!portable::can_be_imported(named) || path.extension() != ".py") {
    invalid(
        "[export] {} cannot be imported under that name: it must be a Python identifier, no "
        "keyword, and end in .py; use -o {}",
        path.filename().string(), right);
  }
  if (portable::is_known_module(named)) {
    invalid(
        "[export] a file {} would be imported instead of the module {}; name it otherwise, as in "
        "-o {}",
        path.filename().string(), named, right);
  }
}

// Refuses a name that says something else than what is written to it.
void check_out(const Options& options, bool two_models) {
  if (is_stdout(options.out)) return;
  const std::filesystem::path path = options.out;
  const std::string name = path.filename().string();
  const bool onnx = options.target == "onnx";
  if (const auto named = without(name, onnx ? ".py" : ".onnx")) {
    const std::string right = onnx ? (named->empty() ? "codec" : *named) + ".onnx"
                                   : portable::importable_name(*named) + ".py";
    invalid("[export] --target {} writes {}, got -o {}; use -o {}", options.target,
            onnx ? "ONNX models" : "a Python file", options.out,
            (path.parent_path() / right).string());
  }
  std::error_code unknown;  // a path that cannot be looked at is refused when it is written
  const auto there = std::filesystem::status(path, unknown);
  const bool device =
      std::filesystem::is_character_file(there) || std::filesystem::is_block_file(there);
  const bool other = std::filesystem::exists(there) && !std::filesystem::is_regular_file(there) &&
                     !std::filesystem::is_directory(there);
  if (two_models && (device || other)) {
    invalid("[export] -o must name a file, got the {} {}; use -o codec.{}",
            device ? "device" : "pipe", options.out, onnx ? "onnx" : "py");
  }
  if (onnx) return;
  if (const auto named = without(name, ".py")) check_module(path, *named);
}

// Where one of a pair of models goes: the ending .onnx is left out, and with it a direction that is
// said before it. Any other ending is part of the name: codec.k4 and codec.k5 are two codecs.
std::string path_of_one(const std::string& out, const Graph& graph) {
  std::string path = out;
  if (const auto named = without(path, ".onnx")) {
    path = *named;
    for (const char* direction : {".pack", ".unpack"}) {
      if (const auto first = without(path, direction)) {
        path = *first;
        break;
      }
    }
  }
  return path + (graph.name() == "Pack" ? ".pack.onnx" : ".unpack.onnx");
}

// One file to write.
struct File {
  std::string path, bytes;
};

std::vector<File> files_of(const Options& options, const portable::Export& codec, Target target) {
  if (target != Target::Onnx) return {{options.out, portable::torch_file(codec, target)}};
  std::vector<File> files;
  for (const auto* graph : {&codec.pack, &codec.unpack}) {
    if (!graph->has_value()) continue;
    std::string path = options.out;
    if (codec.pack && codec.unpack) {
      if (is_stdout(options.out)) {
        invalid("[export] two models cannot go to {}; add --only pack or unpack", options.out);
      }
      if (std::filesystem::is_directory(path))
        invalid("[export] -o must name a file, got the folder {}; use -o {}", options.out,
                (std::filesystem::path(path) / "codec.onnx").string());
      path = path_of_one(options.out, **graph);
    }
    files.push_back(
        {path, portable::onnx_model(codec, **graph, options.opset.value_or(portable::kMinOpset))});
  }
  return files;
}

// Writes all files or none: they get their names when every byte is written. Ctrl-C waits until then.
void write(const std::vector<File>& files, NewFile::Replace replace) {
  const InterruptGuard guard;
  std::list<NewFile> outputs;
  for (const File& file : files) {
    outputs.emplace_back("export", file.path, replace).write(std::as_bytes(std::span(file.bytes)));
  }
  InterruptGuard::check();
  finish_all(outputs);
  InterruptGuard::check();
}

// Eq. 5 or 7 for all planes, where the codec is of whole blocks; else nothing.
std::optional<std::int64_t> flops_by_formula(const PortableCodec& codec, bool packs) {
  const Stage& stage = codec.spec.stages().front();
  if (stage.codec->name != "dct_chop") return std::nullopt;
  const std::string square = fmt::format("dct_chop(block={}, keep={}, serialize={})",
                                         stage["block"], stage["keep"], stage["serialize"]);
  const auto [rows, cols] = portable::plane_of(stage, codec.shape);
  try {
    const Flops one = flops(CodecSpec::parse(square), rows, cols);
    return (packs ? one.pack : one.unpack) * (codec.shape.elems() / (rows * cols));
  } catch (const Error&) {
    return std::nullopt;  // edges are part of the matrices
  }
}

std::optional<double> ratio_by_formula(const PortableCodec& codec) {
  const Stage& stage = codec.spec.stages().front();
  if (stage.codec->name != "dct_chop") return std::nullopt;
  return ratio(
      CodecSpec::parse(fmt::format("dct_chop(block={}, keep={}, shape={})", stage["block"],
                                   stage["keep"], stage["shape"] == 1 ? "triangle" : "square")));
}

// Eq. 3 is of the square alone.
bool is_triangle(const PortableCodec& codec) {
  const Stage& stage = codec.spec.stages().front();
  return stage.codec->name == "dct_chop" && stage["shape"] == 1;
}

// The size of packed tensors and graphs, with the paper's formulas beside what was counted.
class Summary {
 public:
  Summary(const PortableCodec& codec, const portable::Export& exported,
          const std::vector<File>& files, const std::optional<DeviceInfo>& device, Target target)
      : codec_(codec), exported_(exported), files_(files), device_(device), target_(target) {
    const Graph& graph = exported.pack ? *exported.pack : *exported.unpack;
    const Count sizes = count(graph);
    packed_bytes_ = exported.pack ? sizes.out_bytes : sizes.in_bytes;
    tensor_bytes_ = exported.pack ? sizes.in_bytes : sizes.out_bytes;
    // block_quant's headers are bf16 in the library's bytes.
    packed_bytes_ =
        static_cast<std::int64_t>(layout(codec.spec, codec.dtype, codec.shape).max_bytes);
  }

  std::string text() const {
    const std::string_view target = portable::kTargets[static_cast<std::size_t>(target_)];
    std::string text;
    for (const File& file : files_) {
      text += fmt::format("{}: {}, for {}{}\n", file.path, size_text(file.bytes.size()), target,
                          device_ ? " on " + device_->name : "");
    }
    text += fmt::format("{}: {} of {}, ratio {:.4g}", codec_.text(),
                        size_text(static_cast<std::uint64_t>(packed_bytes_)),
                        size_text(static_cast<std::uint64_t>(tensor_bytes_)), ratio());
    if (const auto formula = ratio_by_formula(codec_))
      text += fmt::format("; in values {:.4g} ({})", *formula,
                          is_triangle(codec_) ? "section 4.2.4" : "eq. 3");
    text += "\n";
    Table table({"<", "products", "FLOP", "FLOP by eq. 5, 7", "constants", "memory", "<operators"});
    for (const auto* graph : {&exported_.pack, &exported_.unpack}) {
      if (graph->has_value()) table.add(row(**graph));
    }
    return text + table.print();
  }

  Json json() const {
    Json json = {{"target", portable::kTargets[static_cast<std::size_t>(target_)]},
                 {"codec", codec_.spec.print()},
                 {"dtype", to_string(codec_.dtype)},
                 {"shape", std::vector<std::int64_t>(codec_.shape.begin(), codec_.shape.end())},
                 {"device", device_ ? Json(device_->name) : Json()},
                 {"files", Json::array()},
                 {"tensor_bytes", tensor_bytes_},
                 {"packed_bytes", packed_bytes_},
                 {"ratio", ratio()}};
    const auto formula = ratio_by_formula(codec_);
    json["ratio_values"] = formula ? Json(*formula) : Json();
    json["ratio_eq3"] = formula && !is_triangle(codec_) ? Json(*formula) : Json();
    for (const File& file : files_) json["files"].push_back(file.path);
    for (const auto* graph : {&exported_.pack, &exported_.unpack}) {
      if (!graph->has_value()) continue;
      const Count sizes = count(**graph);
      const bool packs = (*graph)->name() == "Pack";
      const auto flops = flops_by_formula(codec_, packs);
      json[packs ? "pack" : "unpack"] = {
          {"products", sizes.products},
          {"flops", sizes.flops},
          {packs ? "flops_eq5" : "flops_eq7", flops ? Json(*flops) : Json()},
          {"constant_bytes", sizes.constant_bytes},
          {"peak_bytes", sizes.peak_bytes},
          {"operators", operators_of(**graph, target_)}};
    }
    return json;
  }

 private:
  double ratio() const {
    return static_cast<double>(tensor_bytes_) / static_cast<double>(packed_bytes_);
  }

  std::vector<std::string> row(const Graph& graph) const {
    const Count sizes = count(graph);
    const bool packs = graph.name() == "Pack";
    const auto flops = flops_by_formula(codec_, packs);
    const auto bytes = [](std::int64_t n) { return size_text(static_cast<std::uint64_t>(n)); };
    return {packs ? "pack" : "unpack",
            fmt::format("{}", sizes.products),
            fmt::format("{}", sizes.flops),
            flops ? fmt::format("{}", *flops) : "-",
            bytes(sizes.constant_bytes),
            bytes(sizes.peak_bytes),
            fmt::format("{}", fmt::join(operators_of(graph, target_), ", "))};
  }

  const PortableCodec& codec_;
  const portable::Export& exported_;
  const std::vector<File>& files_;
  const std::optional<DeviceInfo>& device_;
  Target target_;
  std::int64_t tensor_bytes_ = 0, packed_bytes_ = 0;
};

void run(const Options& options) {
  constexpr std::string_view kWhat[] = {"codec"};
  known_word("export", "thing to export", options.what, kWhat);
  const PortableCodec codec("export", options.codec);
  if (options.target.empty()) {
    invalid("[export] give a target: --target {}", fmt::join(portable::kTargets, ", "));
  }
  known_word("export", "target", options.target, portable::kTargets);
  if (options.out.empty()) invalid("[export] name the file to write: -o FILE");
  if (options.opset && options.target != "onnx") {
    invalid("[export] --opset is of ONNX models, got --target {}; leave it out", options.target);
  }
  check_out(options, options.target == "onnx" && codec.direction == Direction::Both);
  const auto at = std::find(portable::kTargets.begin(), portable::kTargets.end(), options.target);
  const auto target = static_cast<Target>(at - portable::kTargets.begin());

  portable::Export exported{codec.spec, codec.dtype, codec.shape, {}, {}};
  if (codec.direction != Direction::Unpack) {
    exported.pack = portable::pack_graph(codec.spec, codec.dtype, codec.shape);
  }
  if (codec.direction != Direction::Pack) {
    exported.unpack = portable::unpack_graph(codec.spec, codec.dtype, codec.shape);
  }
  std::optional<DeviceInfo> device = device_for(options);
  if (device) {
    device->target = options.target;  // whose operators are written, and so are checked
    const Fit fit = fits(*device, codec.spec, codec.dtype, codec.shape, codec.direction);
    if (!fit.fits)
      fail(Errc::Unsupported, "[export] {}: {}", device_text(*device), refusal_text(fit));
  }
  const std::vector<File> files = files_of(options, exported, target);
  for (const File& file : files) {
    if (!is_stdout(file.path)) {
      check_absent("export", file.path, options.force);
    } else if (target == Target::Onnx) {
      check_stdout("export", options.force);
    }
  }
  write(files, NewFile::Replace{options.force});
  const Summary summary(codec, exported, files, device, target);
  print_report(files.front().path,
               options.json ? print_json(Json::array({summary.json()})) : summary.text());
}

}  // namespace

void add_export(Command& app) {
  const auto options = std::make_shared<Options>();
  Command verb = app.add_subcommand("export", "Write a codec in plain operators, for accelerators");
  verb.add_option("WHAT", options->what, "codec").type_name("");
  verb.add_option("SPEC", options->codec.spec, "The codec").type_name("");
  options->codec.add_to(verb);
  verb.add_option("--target", options->target, "What the file is for")
      .type_name("torch|onnx|poptorch|samba|cerebras|groq");
  verb.add_option("--device", options->device, "Check against this accelerator")
      .type_name("NAME|FILE.json");
  verb.add_option("-o,--out", options->out, "File to write, - for standard output")
      .type_name("FILE");
  verb.add_option("--opset", options->opset, "ONNX operator set, 13 to 25, default 13")
      .type_name("N");
  verb.add_flag("-f,--force", options->force, "Overwrite files that exist");
  verb.add_flag("--json", options->json, "Print a JSON array of one object");
  verb.footer(kFooter);
  verb.callback([options] { run(*options); });
}

}  // namespace tuckfold::cli
