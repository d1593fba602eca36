// A value of a JSON file together with its path in the file, for error messages:
//
//   const Field limit = root.at("limits").items()[0];
//   limit.at("value").number();   // throws "[device] sn30.json: limits[0].value must be a number…"
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "tuckfold/tensor.h"

namespace tuckfold {

class Field {
 public:
  Field(const Json& json, std::string_view file) : json_(&json), file_(file) {}

  [[noreturn]] void wrong(std::string_view rule) const;

  // Members of an object; only() throws for a key that is none of these, with the nearest one.
  const Field& only(std::span<const std::string_view> keys) const;
  Field at(std::string_view key) const;
  std::optional<Field> find(std::string_view key) const;
  std::vector<std::pair<std::string, Field>> members() const;

  std::vector<Field> items() const;  // of an array
  std::string text() const;          // not empty
  std::string word(std::span<const std::string_view> words) const;
  double number() const;      // finite, 0 or above
  double above_zero() const;  // finite, above 0
  double within(double least, double most, std::string_view rule) const;
  bool flag() const;
  Shape shape() const;  // lengths of 1 or more
  // A number, or [low, high].
  std::pair<double, double> range() const;

 private:
  Field(const Json& json, std::string_view file, std::string path)
      : json_(&json), file_(file), path_(std::move(path)) {}
  void need(Json::Kind kind, std::string_view rule) const;

  const Json* json_;
  std::string_view file_;
  std::string path_;
};

}  // namespace tuckfold
