// --codec of pack and convert: SPEC for arrays whose samples have two axes or more, NAME=SPEC for
// one array.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/terminal/command.h"
#include "inputs/source.h"
#include "tuckfold/codec.h"

namespace tuckfold::cli {

class CodecOption {
 public:
  void add_to(Command& verb);

  bool given() const noexcept { return !texts_.empty(); }
  // Whether a codec was given without a name.
  bool for_all() const;
  // Throws InvalidArgument for a name that no array has, and for two codecs of one array.
  void check(const char* verb, std::span<const SourceArray> arrays) const;
  // The codec bound to the array, and the one without a name if the array's samples have two axes.
  std::optional<CodecSpec> bound_to(std::string_view array) const;
  std::optional<CodecSpec> without_name(const Shape& sample) const;

 private:
  std::vector<std::string> texts_;
};

}  // namespace tuckfold::cli
