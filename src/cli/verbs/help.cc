// tuckfold help: what --help of a verb prints.
#include <memory>

#include "base/fail.h"
#include "cli/terminal/help_format.h"
#include "cli/terminal/table.h"
#include "cli/verbs/verb_table.h"
#include "cli/verbs/verbs.h"

namespace tuckfold::cli {

void add_help(Command& app) {
  const auto name = std::make_shared<std::string>();
  Command verb = app.add_subcommand("help", "Print the options of a verb, as its --help does");
  verb.add_option("VERB", *name, "The verb; none: list all verbs").type_name("");
  verb.footer(R"_(Example:
  tuckfold help pack)_");
  verb.callback([name, &app] {
    const std::string text = app.help(*name);
    if (!text.empty()) return print_out(fit_help(text, terminal_columns()));
    const std::vector<VerbRow> verbs = verb_table(app);
    std::vector<std::string_view> candidates;
    for (const VerbRow& row : verbs) candidates.push_back(row.name);
    invalid("[help] {}", unknown_text("verb", *name, candidates));
  });
}

}  // namespace tuckfold::cli
