#include "cli/verbs/verb_table.h"

#include <CLI/CLI.hpp>
#include <sstream>

namespace tuckfold::cli {
namespace {

// "f32|stored" names two words; "OUT.png" none.
std::vector<std::string> words_of(const std::string& value) {
  std::vector<std::string> words;
  if (value.find('|') == value.npos) return words;
  std::istringstream text(value);
  for (std::string word; std::getline(text, word, '|');) words.push_back(word);
  return words;
}

OptionRow row_of(const CLI::Option& option) {
  OptionRow row{.summary = option.get_description(), .positional = option.get_positional()};
  if (!option.get_lnames().empty()) row.name = "--" + option.get_lnames().front();
  if (!option.get_snames().empty()) row.short_name = "-" + option.get_snames().front();
  if (row.positional) row.name = option.get_name(true, false);
  if (option.get_type_size() != 0) row.value = option.get_type_name();
  row.words = words_of(row.value);
  return row;
}

}  // namespace

std::vector<VerbRow> verb_table(const Command& app) {
  std::vector<VerbRow> verbs;
  for (const CLI::App* verb : app.parser().get_subcommands([](const CLI::App*) { return true; })) {
    VerbRow row{
        .name = verb->get_name(), .summary = verb->get_description(), .footer = verb->get_footer()};
    for (const CLI::Option* option : verb->get_options()) row.options.push_back(row_of(*option));
    verbs.push_back(std::move(row));
  }
  return verbs;
}

}  // namespace tuckfold::cli
