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

}  // namespace

std::string SourceAbout::json(bool with_files) const {
  std::vector<std::string> members;
  add_names(members, "classes", classes);
  if (with_files) add_names(members, "files", files);
  if (!attributes.empty()) members.push_back(fmt::format(R"("attributes": {})", attributes));
  std::vector<std::string> arrays;
  for (const auto& [name, object] : array_attributes) {
    arrays.push_back(fmt::format("{}: {}", json_string(utf8_of(name)), object));
  }
  if (!arrays.empty()) {
    members.push_back(fmt::format(R"("array_attributes": {{{}}})", fmt::join(arrays, ", ")));
  }
  if (attributes_left_out > 0) {
    members.push_back(fmt::format(R"("attributes_left_out": {})", attributes_left_out));
  }
  return fmt::format("{{{}}}", fmt::join(members, ", "));
}

}  // namespace tuckfold
