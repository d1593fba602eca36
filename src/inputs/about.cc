// What inputs say about their samples, as JSON of bounded size.
#include "base/fail.h"
#include "base/json.h"
#include "base/text_scan.h"
#include "inputs/source.h"

namespace tuckfold {
namespace {

// Names of files and classes may be in any encoding; JSON has one.
std::string utf8_of(std::string_view text) {
  std::string out;
  for (std::size_t bad = 0; (bad = find_bad_utf8(text)) != text.npos;) {
    out += text.substr(0, bad);
    append_utf8(out, 0xfffd);
    text.remove_prefix(bad + 1);
  }
  return out += text;
}

void add_names(std::vector<std::string>& members, std::string_view key,
               const std::vector<std::string>& names) {
  if (names.empty()) return;
  std::string list;
  for (const std::string& name : names) {
    if (names.size() > SourceAbout::kMostNames || list.size() > SourceAbout::kMostBytes) {
      members.push_back(fmt::format(R"("{}_left_out": {})", key, names.size()));
      return;
    }
    list += fmt::format("{}{}", list.empty() ? "" : ", ", json_string(utf8_of(name)));
  }
  members.push_back(fmt::format(R"("{}": [{}])", key, list));
}

void add_object(std::vector<std::string>& members, std::string_view key, std::string_view object) {
  if (!object.empty()) members.push_back(fmt::format("{}: {}", json_string(key), object));
}

std::string object_of(const std::vector<std::string>& members) {
  return members.empty() ? "" : fmt::format("{{{}}}", fmt::join(members, ", "));
}

}  // namespace

std::string SourceAbout::json(bool with_files) const {
  std::vector<std::string> members;
  add_names(members, "classes", classes);
  if (with_files) add_names(members, "files", files);
  add_object(members, "attributes", attributes.values);
  std::vector<std::string> values, types;
  for (const auto& [name, object] : array_attributes) {
    add_object(values, utf8_of(name), object.values);
    add_object(types, utf8_of(name), object.types);
  }
  add_object(members, "array_attributes", object_of(values));
  add_object(members, "attribute_types", attributes.types);
  add_object(members, "array_attribute_types", object_of(types));
  if (attributes_left_out > 0) {
    members.push_back(fmt::format(R"("attributes_left_out": {})", attributes_left_out));
  }
  return members.empty() ? "{}" : object_of(members);
}

}  // namespace tuckfold
