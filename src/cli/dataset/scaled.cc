#include "cli/dataset/scaled.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "base/json.h"
#include "cli/terminal/message.h"
#include "codec/registry.h"
#include "container/rewrite.h"

namespace tuckfold::cli {
namespace {

// Of a JSON object with attributes: a number, or a list of one.
double scale_factor_in(const tuckfold::Json* attributes) {
  const tuckfold::Json* said = attributes == nullptr ? nullptr : attributes->find("scale_factor");
  if (said != nullptr && said->kind == tuckfold::Json::Kind::Array && said->items.size() == 1) {
    said = said->items.data();
  }
  double factor = 1;
  if (said == nullptr || said->kind != tuckfold::Json::Kind::Number) return factor;
  const std::string_view text = said->text;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), factor);
  return error == std::errc{} && factor != 0 ? factor : 1;
}

}  // namespace

double scale_factor_of(const Source& source, std::string_view array) {
  const auto& all = source.about().array_attributes;
  const auto said = all.find(array);
  if (said == all.end()) return 1;
  const tuckfold::Json attributes = tuckfold::Json::parse(said->second.values);
  return scale_factor_in(&attributes);
}

double scale_factor_of(std::string_view metadata, std::string_view array) {
  if (metadata.empty()) return 1;
  const tuckfold::Json all = tuckfold::Json::parse(metadata);
  const tuckfold::Json* at = &all;
  constexpr std::string_view kSource = "source", kAttributes = "array_attributes";
  for (const std::string_view key : {kSource, kAttributes, array}) {
    at = at == nullptr ? nullptr : at->find(key);
  }
  return scale_factor_in(at);
}

std::string note_on_scale(std::string_view array, double scale_factor, double bound) {
  const double factor = std::abs(scale_factor);
  if (factor == 1 || !(bound > 0)) return "";
  return fmt::format(
      "'{}' has scale_factor {:.6g}: the bound {:.6g} is one of stored numbers, and {:.6g} of the "
      "values that netCDF readers make of them; give {:.6g} for {:.6g} of those",
      array, scale_factor, bound, bound * factor, bound / factor, bound);
}

void warn_of_scale(const char* verb, const CodecOption& codec, const Outcome& one,
                   double scale_factor) {
  const ArrayInfo& array = one.array;
  const bool bounds = one.target && one.target->kind == Target::Kind::MaxError;
  const bool given = codec.bound_to(array.name) || codec.without_name(array.shape);
  if (is_exact(array.codec) || (!bounds && !given)) return;
  const double bound = bounds ? one.target->value : error_bound(array.codec).value_or(0);
  const std::string note = note_on_scale(array.name, scale_factor, bound);
  if (!note.empty()) warn("[{}] {}", verb, note);
}

}  // namespace tuckfold::cli
