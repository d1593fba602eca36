// As much JSON as file schemas and manifests need: a value read from text, and strings written.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tuckfold {

struct Json {
  enum class Kind : unsigned char { Null, Bool, Number, String, Array, Object };

  // Throws InvalidArgument, saying where. Strings keep their UTF-8; a text nests 64 deep at most.
  static Json parse(std::string_view text);

  // The member of an object, or null.
  const Json* find(std::string_view key) const;
  // A whole number from 0 to 2^63 - 1, or -1 where this is none.
  std::int64_t whole() const;

  Kind kind = Kind::Null;
  std::string_view text;          // as it stands in the text that was parsed
  std::string string;             // of a string, escapes undone
  std::vector<Json> items;        // of an array, or the members of an object
  std::vector<std::string> keys;  // of an object's members
};

// A string with its quotes and escapes.
std::string json_string(std::string_view text);

}  // namespace tuckfold
