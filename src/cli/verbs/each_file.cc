#include "cli/verbs/each_file.h"

#include <algorithm>
#include <optional>

#include "base/fail.h"
#include "cli/terminal/command.h"
#include "cli/terminal/message.h"
#include "cli/terminal/table.h"

namespace tuckfold::cli {

void add_tuck_files(Command& verb, std::vector<std::string>& files) {
  verb.add_option("FILE", files, ".tuck files, manifests of several, or - for standard input")
      .type_name("");
}

void look_at_each(const char* verb, const std::vector<std::string>& files, bool json,
                  const std::function<FoundInFile(const std::string&)>& look) {
  if (files.empty()) invalid("[{}] name a file", verb);
  if (std::count(files.begin(), files.end(), "-") > 1) {
    invalid("[{}] - is standard input, which can be read once", verb);
  }
  Json objects = Json::array();
  std::optional<Error> first;  // that was found
  for (const std::string& file : files) {
    try {
      FoundInFile found;
      try {
        found = look(file);
      } catch (const Error& error) {
        objects.push_back({{"file", file}, {"error", error.what()}});
        throw;
      }
      objects.push_back(std::move(found.object));
      if (!json) print_out(found.text);
      if (found.judge) found.judge();
    } catch (const Error& error) {
      if (!first) first = error;
      if (files.size() > 1) say("{}", error.what());
    }
  }
  const bool nothing = files.size() == 1 && first && objects.back().contains("error");
  if (json && !nothing) print_out(print_json(objects));
  if (!first) return;
  if (files.size() == 1) throw Error(*first);
  throw ExitStatus{exit_code(first->code())};
}

}  // namespace tuckfold::cli
