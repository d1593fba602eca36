// --fill of verbs that read arrays: values that stand for missing ones, where the input does not
// name them.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "cli/terminal/command.h"
#include "inputs/source.h"

namespace tuckfold::cli {

class FillOption {
 public:
  void add_to(Command& verb);

  // Calls add(array, value) for each array and value that the option gives it. A value without a
  // name is for arrays whose dtype has it. Throws InvalidArgument for a text that is no number, a
  // name that no array has, and a value that none can have.
  void apply(const char* verb, std::span<const SourceArray> arrays,
             const std::function<void(std::size_t, FillValue)>& add) const;

 private:
  std::vector<std::string> texts_;
};

}  // namespace tuckfold::cli
