// Verbs and options as a table, read from the parser: completions and manual pages cannot say
// anything that --help does not.
#pragma once

#include <string>
#include <vector>

#include "cli/terminal/command.h"

namespace tuckfold::cli {

struct OptionRow {
  std::string name;        // "--threads", or "FILE" where it has a place instead of a name
  std::string short_name;  // "-o", or empty
  std::string value;       // "N"; empty: a flag
  std::string summary;
  bool positional = false;
  std::vector<std::string> words;  // that it takes; empty: anything
};

struct VerbRow {
  std::string name;
  std::string summary;
  std::string footer;  // notes and examples
  std::vector<OptionRow> options;
};

std::vector<VerbRow> verb_table(const Command& app);

}  // namespace tuckfold::cli
