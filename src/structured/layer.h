// A layer as the library holds it, and the parser of its text.
#pragma once

#include <string>
#include <vector>

#include "structured/family.h"

namespace tuckfold::structured {

struct Layer {
  const Family* family;
  std::vector<std::int64_t> values;  // of the family's options, in their order
  std::string text;
  std::int64_t in, out;
  Declaration declaration;
};

// `name(option=value, …)`; throws InvalidArgument.
struct Parsed {
  const Family* family;
  std::vector<std::int64_t> values;
};
Parsed parse(std::string_view text);
std::string print(const Parsed& parsed);

}  // namespace tuckfold::structured
