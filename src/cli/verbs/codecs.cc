// tuckfold codecs: what there is to choose from, straight from the registry.
#include <algorithm>
#include <memory>
#include <vector>

#include "base/fail.h"
#include "cli/bench/report.h"
#include "cli/terminal/table.h"
#include "cli/verbs/verbs.h"
#include "tuckfold/codec.h"

namespace tuckfold::cli {
namespace {

struct Options {
  std::string name;
  bool json = false;
};

std::string default_text(const ParamInfo& param) {
  return param.optional && param.default_value == 0 ? "" : to_string(param, param.default_value);
}

// As short as a column wants it: "1..16", "1..16 by 1/8", "square|triangle".
std::string range_text(const ParamInfo& param) {
  if (!param.words.empty()) return fmt::format("{}", fmt::join(param.words, "|"));
  const std::string range = fmt::format("{}..{}", param.min, param.max);
  return param.step == 0 || param.step == 1
             ? range
             : fmt::format("{} by {}", range, to_string(param, param.step));
}

std::string describe(const CodecInfo& codec) {
  std::string text =
      fmt::format("{}: {}{}\n", codec.name, codec.summary, codec.cuda ? " [CUDA]" : "");
  if (codec.params.empty()) return text;
  Table table({"<parameter", "<default", "<values", "<meaning"});
  for (const ParamInfo& param : codec.params) {
    table.add({std::string(param.name), default_text(param), range_text(param),
               std::string(param.summary)});
  }
  return text + table.print("  ");
}

// Whole numbers without a decimal point.
Json number_json(double value) {
  const auto whole = static_cast<std::int64_t>(std::clamp(value, -0x1p53, 0x1p53));
  return static_cast<double>(whole) == value ? Json(whole) : Json(value);
}

Json to_json(const CodecInfo& codec) {
  Json params = Json::array();
  for (const ParamInfo& param : codec.params) {
    Json json = {{"name", param.name}, {"summary", param.summary}};
    if (param.words.empty()) {
      json["default"] = param.optional ? Json() : number_json(param.default_value);
      json["min"] = number_json(param.min);
      json["max"] = number_json(param.max);
      json["step"] = number_json(param.step);
    } else {
      json["default"] = default_text(param);
      json["words"] = std::vector<std::string>(param.words.begin(), param.words.end());
    }
    params.push_back(std::move(json));
  }
  return {{"name", codec.name},
          {"summary", codec.summary},
          {"cuda", codec.cuda},
          {"exact", codec.exact},
          {"params", std::move(params)}};
}

std::vector<CodecInfo> chosen(const std::string& name) {
  std::vector<CodecInfo> codecs(list_codecs().begin(), list_codecs().end());
  if (name.empty()) return codecs;
  std::vector<std::string_view> names;
  for (const CodecInfo& codec : codecs) names.push_back(codec.name);
  const auto found = std::find(names.begin(), names.end(), name);
  if (found != names.end()) return {codecs[static_cast<std::size_t>(found - names.begin())]};
  invalid("[codecs] {}", unknown_text("codec", name, names));
}

void run(const Options& options) {
  const std::vector<CodecInfo> codecs = chosen(options.name);
  if (options.json) {
    Json all = Json::array();
    for (const CodecInfo& codec : codecs) all.push_back(to_json(codec));
    return print_out(print_json(all));
  }
  std::string text;
  for (const CodecInfo& codec : codecs) text += (text.empty() ? "" : "\n") + describe(codec);
  print_out(text);
}

}  // namespace

void add_codecs(Command& app) {
  const auto options = std::make_shared<Options>();
  Command verb = app.add_subcommand("codecs", "List codecs, their parameters, defaults and ranges");
  verb.add_option("NAME", options->name, "Only this codec").type_name("");
  verb.add_flag("--json", options->json, "Print a JSON array");
  verb.footer(
      "[CUDA] marks those that this build runs on a GPU, too.\n\nExample:\n  tuckfold codecs "
      "dct_chop");
  verb.callback([options] { run(*options); });
}

}  // namespace tuckfold::cli
