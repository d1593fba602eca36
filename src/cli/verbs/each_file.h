// Verbs that look at several files, one after the other.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/bench/report.h"
#include "cli/terminal/command.h"

namespace tuckfold::cli {

void add_tuck_files(Command& verb, std::vector<std::string>& files);

// Examines each file, and prints the results as a JSON array if that is wanted. `look` returns the
// object of a file and the text to print. If one of several files cannot be read, or is broken, the
// others are still examined; the exit status is that of the first.
struct FoundInFile {
  Json object;
  std::string text;
  std::function<void()> judge;  // throws where what was found is an error
};
void look_at_each(const char* verb, const std::vector<std::string>& files, bool json,
                  const std::function<FoundInFile(const std::string&)>& look);

}  // namespace tuckfold::cli
