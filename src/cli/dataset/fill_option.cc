#include "cli/dataset/fill_option.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>

#include "base/dtype.h"
#include "base/fail.h"
#include "base/fill.h"
#include "cli/verbs/verbs.h"

namespace tuckfold::cli {
namespace {

struct Given {
  std::optional<std::string_view> name;
  double value = 0;
  bool rounded = false;  // a whole number of 64 bits that is no double
};

template <class Whole>
bool is_rounded(std::string_view number) {
  Whole whole = 0;
  const char* end = number.data() + number.size();
  const auto [stop, error] = std::from_chars(number.data(), end, whole);
  return error == std::errc{} && stop == end && !is_double(whole);
}

Given parse(const char* verb, std::string_view text) {
  const std::size_t at = text.rfind('=');
  const std::string_view number = at == text.npos ? text : text.substr(at + 1);
  Given given;
  const auto [stop, error] =
      std::from_chars(number.data(), number.data() + number.size(), given.value);
  if (error != std::errc{} || stop != number.data() + number.size() || at == 0) {
    invalid("[{}] --fill takes a number, nan or inf, or NAME=NUMBER, got {}", verb, text);
  }
  given.rounded = is_rounded<std::int64_t>(number) || is_rounded<std::uint64_t>(number);
  if (at != text.npos) given.name = text.substr(0, at);
  return given;
}

}  // namespace

void FillOption::add_to(Command& verb) {
  verb.add_option(
          "--fill", texts_,
          "A value that stands for a missing one, nan too; NAME=VALUE for one array; may be "
          "repeated")
      .type_name("[NAME=]VALUE")
      .one_at_a_time();
}

void FillOption::apply(const char* verb, std::span<const SourceArray> arrays,
                       const std::function<void(std::size_t, FillValue)>& add) const {
  std::vector<std::string_view> names;
  for (const SourceArray& array : arrays) names.push_back(array.name);
  for (const std::string& text : texts_) {
    const Given given = parse(verb, text);
    if (given.name && std::ranges::find(names, *given.name) == names.end()) {
      invalid("[{}] --fill {}: {}", verb, text, unknown_text("array", *given.name, names));
    }
    bool taken = false;
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      if (given.name && *given.name != names[i]) continue;
      const std::optional<FillValue> value = fill_value_in(arrays[i].dtype, given.value);
      const bool is_wide = arrays[i].dtype == DType::I64 || arrays[i].dtype == DType::U64;
      if (value && is_wide && given.rounded) {
        invalid("[{}] --fill {}: fill values are doubles, and this number is none", verb, text);
      }
      taken = taken || value;
      if (value) add(i, *value);
    }
    if (!taken) {
      invalid("[{}] --fill {}: no array has a dtype with this value; give one that it has", verb,
              text);
    }
  }
}

}  // namespace tuckfold::cli
