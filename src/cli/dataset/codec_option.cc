#include "cli/dataset/codec_option.h"

#include <algorithm>
#include <set>

#include "base/fail.h"
#include "cli/verbs/verbs.h"

namespace tuckfold::cli {
namespace {

struct Binding {
  std::optional<std::string_view> name;  // none: for all arrays
  std::string_view spec;
};

// In a spec "=" appears only in parentheses, so one before them ends a name.
Binding split(std::string_view text) {
  const std::size_t at = text.find_first_of("=(");
  if (at == text.npos || text[at] == '(') return {.name = {}, .spec = text};
  return {.name = text.substr(0, at), .spec = text.substr(at + 1)};
}

}  // namespace

void CodecOption::add_to(Command& verb) {
  verb.add_option("--codec", texts_,
                  "For arrays of samples with two axes or more; NAME=SPEC for one array; may be "
                  "repeated")
      .type_name("[NAME=]SPEC")
      .one_at_a_time();
}

bool CodecOption::for_all() const {
  return std::ranges::any_of(texts_, [](const std::string& text) { return !split(text).name; });
}

void CodecOption::check(const char* verb, std::span<const SourceArray> arrays) const {
  std::vector<std::string_view> names;
  for (const SourceArray& array : arrays) names.push_back(array.name);
  std::set<std::optional<std::string_view>> taken;
  for (const std::string& text : texts_) {
    const Binding one = split(text);
    if (one.name && one.name->empty()) {
      invalid("[{}] --codec takes SPEC or NAME=SPEC, got {}", verb, text);
    }
    if (one.name && std::ranges::find(names, *one.name) == names.end()) {
      invalid("[{}] --codec {}: {}", verb, text, unknown_text("array", *one.name, names));
    }
    if (taken.insert(one.name).second) continue;
    if (one.name) {
      invalid("[{}] --codec takes one codec for an array, got two for '{}'", verb, *one.name);
    }
    invalid("[{}] --codec takes one codec without a name, got {} too; bind it to an array: NAME={}",
            verb, text, text);
  }
}

std::optional<CodecSpec> CodecOption::bound_to(std::string_view array) const {
  for (const std::string& text : texts_) {
    if (const Binding one = split(text); one.name == array) return CodecSpec::parse(one.spec);
  }
  return {};
}

std::optional<CodecSpec> CodecOption::without_name(const Shape& sample) const {
  if (sample.rank() < 2) return {};
  for (const std::string& text : texts_) {
    if (!split(text).name) return CodecSpec::parse(text);
  }
  return {};
}

}  // namespace tuckfold::cli
