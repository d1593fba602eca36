// tuckfold help: what --help of a verb prints.
#include <memory>

#include "base/fail.h"
#include "cli/terminal/help_format.h"
#include "cli/terminal/table.h"
#include "cli/verbs/verbs.h"

namespace tuckfold::cli {

void add_help(CLI::App& app) {
  const auto name = std::make_shared<std::string>();
  CLI::App* verb = app.add_subcommand("help", "Print the options of a verb, as its --help does");
  verb->add_option("VERB", *name, "Whose; none: what verbs there are")->type_name("");
  verb->footer(R"_(Example:
  tuckfold help pack)_");
  verb->callback([name, &app] {
    std::vector<std::string> names;
    for (CLI::App* one : app.get_subcommands([](const CLI::App*) { return true; })) {
      if (one->get_name() == *name) {
        return print_out(fit_help(one->help(app.get_name()), terminal_columns()));
      }
      names.push_back(one->get_name());
    }
    if (name->empty()) {  // app.help() is that of the verb that was chosen: this one
      const std::string all =
          app.get_formatter()->make_help(&app, app.get_name(), CLI::AppFormatMode::Normal);
      return print_out(fit_help(all, terminal_columns()));
    }
    const std::vector<std::string_view> candidates(names.begin(), names.end());
    invalid("[help] {}", unknown_text("verb", *name, candidates));
  });
}

}  // namespace tuckfold::cli
