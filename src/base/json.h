// The library's JSON: a value read from hostile text, and strings written. File schemas, manifests
// and the headers of inputs are read with it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tuckfold {

struct Json {
  enum class Kind : unsigned char { Null, Bool, Number, String, Array, Object };

  // Limits of a text, so that a hostile one costs little memory and no stack. A value takes about
  // 130 bytes.
  static constexpr int kMaxDepth = 64;
  static constexpr std::size_t kMaxBytes = 100'000'000;  // as safetensors has it for headers
  static constexpr std::size_t kMaxValues = std::size_t{1} << 20;

  // Throws InvalidArgument with the position for text that is not JSON or not UTF-8, a duplicate
  // key, half of a surrogate pair, a number that no double holds, and text that exceeds a limit.
  static Json parse(std::string_view text);

  // The member of an object, or null.
  const Json* find(std::string_view key) const;
  // A whole number from 0 to 2^63 - 1, or -1 where this is none.
  std::int64_t whole() const;

  Kind kind = Kind::Null;
  std::string_view text;          // the value's part of the text that was parsed
  std::string string;             // of a string, escapes undone
  std::vector<Json> items;        // of an array, or the members of an object
  std::vector<std::string> keys;  // of an object's members
};

// A string with its quotes and escapes.
std::string json_string(std::string_view text);

}  // namespace tuckfold
