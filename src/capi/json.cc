#include "capi/json.h"

#include <fmt/format.h>

#include <vector>

#include "base/json.h"

namespace tuckfold::capi {
namespace {

// The shortest digits that read back as the same number, whole ones without a point.
std::string number(double value) { return fmt::format("{}", value); }

std::string value_json(const ParamInfo& param, double value) {
  if (!param.words.empty()) return json_string(param.words[static_cast<std::size_t>(value)]);
  return param.optional && value == 0 ? "null" : number(value);
}

std::string param_json(const ParamInfo& param) {
  std::string out =
      fmt::format(R"({{"name": {}, "summary": {}, "default": {})", json_string(param.name),
                  json_string(param.summary), value_json(param, param.default_value));
  if (param.words.empty()) {
    out += fmt::format(R"(, "min": {}, "max": {}, "step": {})", number(param.min),
                       number(param.max), number(param.step));
  } else {
    std::vector<std::string> words;
    for (const std::string_view word : param.words) words.push_back(json_string(word));
    out += fmt::format(R"(, "words": [{}])", fmt::join(words, ", "));
  }
  return out + "}";
}

}  // namespace

std::string codecs_json() {
  std::vector<std::string> codecs;
  for (const CodecInfo& codec : list_codecs()) {
    std::vector<std::string> params;
    for (const ParamInfo& param : codec.params) params.push_back(param_json(param));
    codecs.push_back(
        fmt::format(R"({{"name": {}, "summary": {}, "cuda": {}, "exact": {}, "params": [{}]}})",
                    json_string(codec.name), json_string(codec.summary), codec.cuda, codec.exact,
                    fmt::join(params, ", ")));
  }
  return fmt::format("[{}]", fmt::join(codecs, ", "));
}

std::string spec_json(const CodecSpec& spec) {
  std::vector<std::string> stages;
  for (const Stage& stage : spec.stages()) {
    std::vector<std::string> params;
    for (std::size_t i = 0; i < stage.values.size(); ++i) {
      const ParamInfo& param = stage.codec->params[i];
      params.push_back(
          fmt::format("{}: {}", json_string(param.name), value_json(param, stage.values[i])));
    }
    stages.push_back(fmt::format(R"({{"name": {}, "params": {{{}}}}})",
                                 json_string(stage.codec->name), fmt::join(params, ", ")));
  }
  return fmt::format("[{}]", fmt::join(stages, ", "));
}

}  // namespace tuckfold::capi
