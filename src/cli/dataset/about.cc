#include "cli/dataset/about.h"

#include <optional>

#include "base/fail.h"
#include "base/json.h"

namespace tuckfold::cli {
namespace {

constexpr std::string_view kKey = "source";

using Kind = tuckfold::Json::Kind;

// An object, or nothing: what is none is refused by the writer. It looks into the text.
std::optional<tuckfold::Json> parse_object(std::string_view text) {
  try {
    tuckfold::Json json = tuckfold::Json::parse(text);
    if (json.kind == Kind::Object) return json;
  } catch (const Error&) {
  }
  return std::nullopt;
}

// An object unchanged but for one member, which is replaced or added, or removed if its new text is empty.
std::string with_member(const tuckfold::Json& object, std::string_view key, std::string_view text) {
  std::vector<std::string> members;
  for (std::size_t i = 0; i < object.keys.size(); ++i) {
    if (object.keys[i] == key) continue;
    members.push_back(fmt::format("{}: {}", json_string(object.keys[i]), object.items[i].text));
  }
  if (!text.empty()) members.push_back(fmt::format("{}: {}", json_string(key), text));
  return fmt::format("{{{}}}", fmt::join(members, ", "));
}

}  // namespace

std::string with_about(const std::string& metadata, const Source& source, bool with_files) {
  const std::string about = source.about().json(with_files);
  if (about == "{}") return metadata;
  const std::string_view text = metadata.empty() ? "{}" : std::string_view(metadata);
  const std::optional<tuckfold::Json> given = parse_object(text);
  if (!given || given->find(kKey) != nullptr) return metadata;
  return with_member(*given, kKey, about);
}

std::string without_files(const std::string& metadata) {
  const std::optional<tuckfold::Json> all = parse_object(metadata);
  const tuckfold::Json* source = all ? all->find(kKey) : nullptr;
  if (source == nullptr || source->find("files") == nullptr) return metadata;
  const std::string rest = with_member(*source, "files", "");
  return with_member(*all, kKey, rest == "{}" ? "" : rest);
}

void check_classes(const std::string& path, const std::string& metadata, const Source& source) {
  const std::optional<tuckfold::Json> all = parse_object(metadata);
  const tuckfold::Json* about = all ? all->find(kKey) : nullptr;
  const tuckfold::Json* classes = about != nullptr ? about->find("classes") : nullptr;
  const std::vector<std::string>& given = source.about().classes;
  if (classes == nullptr || classes->kind != Kind::Array || given.empty()) return;
  std::vector<std::string> has;
  for (const tuckfold::Json& name : classes->items) has.push_back(name.string);
  if (has == given) return;
  std::size_t at = 0;
  while (at < has.size() && at < given.size() && has[at] == given[at]) ++at;
  invalid(
      "[pack] '{}' has {} classes and the inputs {}, and class {} is '{}' there and '{}' here; "
      "labels would mean two things, so pack them to another file",
      path, has.size(), given.size(), at, at < has.size() ? has[at] : "",
      at < given.size() ? given[at] : "");
}

}  // namespace tuckfold::cli
