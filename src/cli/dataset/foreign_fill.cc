#include "cli/dataset/foreign_fill.h"

#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>

#include "base/fill.h"
#include "base/json.h"
#include "cli/terminal/message.h"
#include "container/rewrite.h"

namespace tuckfold::cli {
namespace {

// A number; numbers as texts are none for netCDF, but for NaN and infinities, which metadata has so.
std::optional<double> number_of(const tuckfold::Json& json) {
  using Kind = tuckfold::Json::Kind;
  if (json.kind != Kind::Number && json.kind != Kind::String) return std::nullopt;
  const std::string_view text = json.kind == Kind::Number ? json.text : json.string;
  double value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || stop != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

void warn_of_foreign_fill(const char* verb, const Outcome& one, const Source& source) {
  const ArrayInfo& array = one.array;
  const auto& all = source.about().array_attributes;
  const auto said = all.find(array.name);
  if (is_exact(array.codec) || said == all.end()) return;
  const tuckfold::Json attributes = tuckfold::Json::parse(said->second.values);
  for (const char* name : {"_FillValue", "missing_value"}) {
    const tuckfold::Json* given = attributes.find(name);
    if (given == nullptr) continue;
    const bool is_list = given->kind == tuckfold::Json::Kind::Array;
    const tuckfold::Json* items = is_list ? given->items.data() : given;
    for (std::size_t i = 0; i < (is_list ? given->items.size() : 1); ++i) {
      const std::optional<double> value = number_of(items[i]);
      const bool is_text = items[i].kind == tuckfold::Json::Kind::String;
      if (!value || (is_text && !std::isfinite(*value))) continue;
      if (!is_text && fill_value_in(array.dtype, *value)) continue;
      warn(
          "[{}] '{}': {} {} is {}, so no value is taken as missing by it; if some are, name "
          "them with --fill {}=VALUE",
          verb, array.name, name, *value,
          is_text ? std::string("a text") : "no value of " + std::string(to_string(array.dtype)),
          array.name);
    }
  }
}

}  // namespace tuckfold::cli
