// tuckfold completion: completes verbs and options in shells, from the parser's table.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>

#include "base/fail.h"
#include "cli/terminal/table.h"
#include "cli/verbs/verb_table.h"
#include "cli/verbs/verbs.h"

namespace tuckfold::cli {
namespace {

constexpr const char* kFooter = R"_(Examples:
  source <(tuckfold completion bash)
  tuckfold completion zsh > ~/.zfunc/_tuckfold
  tuckfold completion fish > ~/.config/fish/completions/tuckfold.fish)_";

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
  return text;
}
// Between single quotes of a shell.
std::string quote(const std::string& text) { return "'" + replaced(text, "'", R"('\'')") + "'"; }

std::vector<std::string> names_of(const VerbRow& verb) {
  std::vector<std::string> names;
  for (const OptionRow& option : verb.options) {
    if (option.positional) continue;
    if (!option.name.empty()) names.push_back(option.name);
    if (!option.short_name.empty()) names.push_back(option.short_name);
  }
  return names;
}

std::string bash(const std::vector<VerbRow>& verbs) {
  std::vector<std::string> names;
  std::string words, places, options;  // branches of three cases
  for (const VerbRow& verb : verbs) {
    names.push_back(verb.name);
    options += fmt::format("    {}) options={} ;;\n", verb.name,
                           quote(fmt::format("{}", fmt::join(names_of(verb), " "))));
    for (const OptionRow& option : verb.options) {
      if (option.words.empty()) continue;
      const std::string list = quote(fmt::format("{}", fmt::join(option.words, " ")));
      (option.positional ? places : words) +=
          option.positional
              ? fmt::format("    {}) words={} ;;\n", verb.name, list)
              : fmt::format("    '{} {}') words={} ;;\n", verb.name, option.name, list);
    }
  }
  return fmt::format(R"_(_tuckfold() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}"
  local verb="${{COMP_WORDS[1]}}" options= words=
  case "$verb" in
{}  esac
  case "$verb" in
{}  esac
  case "$verb $before" in
{}  esac
  [ "$COMP_CWORD" = 1 ] && words={}
  case "$word" in
    -*) COMPREPLY=($(compgen -W "${{options:-$words}}" -- "$word")) ;;
    *) if [ -n "$words" ]; then COMPREPLY=($(compgen -W "$words" -- "$word"))
       else COMPREPLY=($(compgen -f -- "$word")); fi ;;
  esac
}}
complete -o filenames -F _tuckfold tuckfold
)_",
                     options, places, words,
                     quote(fmt::format("{} --help --version", fmt::join(names, " "))));
}

// One argument of _arguments: '--threads[Threads; 0 is every core]:N: '.
std::string zsh_argument(const OptionRow& option) {
  std::string summary = option.summary;
  for (const char* special : {"\\", "[", "]", ":"}) {
    summary = replaced(summary, special, std::string("\\") + special);
  }
  const std::string action =
      option.words.empty() ? "_files" : fmt::format("({})", fmt::join(option.words, " "));
  if (option.positional) return quote(fmt::format("*:{}:{}", summary, action));
  const std::string value = option.value.empty() ? "" : fmt::format(":{}:{}", option.value, action);
  const std::string& name = option.name.empty() ? option.short_name : option.name;
  return quote(fmt::format("*{}[{}]{}", name, summary, replaced(value, "|", " ")));
}

std::string zsh(const std::vector<VerbRow>& verbs) {
  std::string text = "#compdef tuckfold\n\n_tuckfold() {\n  local -a verbs=(\n";
  for (const VerbRow& verb : verbs) {
    text += fmt::format("    {}\n", quote(verb.name + ":" + replaced(verb.summary, ":", "\\:")));
  }
  text += "  )\n  if (( CURRENT == 2 )); then\n    _describe verb verbs\n    return\n  fi\n";
  text += "  shift words\n  (( CURRENT-- ))\n  case $words[1] in\n";
  for (const VerbRow& verb : verbs) {
    text += fmt::format("    {})\n      _arguments", verb.name);
    for (const OptionRow& option : verb.options) text += " \\\n        " + zsh_argument(option);
    text += "\n      ;;\n";
  }
  return text + "  esac\n}\n\n_tuckfold \"$@\"\n";
}

std::string fish(const std::vector<VerbRow>& verbs) {
  std::string text = "complete -c tuckfold -n __fish_use_subcommand -f\n";
  for (const VerbRow& verb : verbs) {
    text += fmt::format("complete -c tuckfold -n __fish_use_subcommand -a {} -d {}\n", verb.name,
                        quote(verb.summary));
  }
  for (const VerbRow& verb : verbs) {
    for (const OptionRow& option : verb.options) {
      if (option.positional) continue;
      text += fmt::format("complete -c tuckfold -n '__fish_seen_subcommand_from {}'", verb.name);
      if (!option.name.empty()) text += " -l " + option.name.substr(2);
      if (!option.short_name.empty()) text += " -s " + option.short_name.substr(1);
      if (!option.value.empty()) text += " -r";
      if (!option.words.empty()) {
        text += " -f -a " + quote(fmt::format("{}", fmt::join(option.words, " ")));
      }
      text += " -d " + quote(option.summary) + "\n";
    }
  }
  return text;
}

struct Shell {
  std::string_view name;
  std::string (*script)(const std::vector<VerbRow>&);
};
constexpr Shell kShells[] = {{"bash", bash}, {"zsh", zsh}, {"fish", fish}};

}  // namespace

void add_completion(Command& app) {
  const auto name = std::make_shared<std::string>();
  Command verb = app.add_subcommand("completion", "Print a script that completes words in a shell");
  verb.add_option("SHELL", *name, "bash, zsh or fish").type_name("bash|zsh|fish");
  verb.footer(kFooter);
  verb.callback([name, &app] {
    std::vector<std::string_view> names;
    for (const Shell& shell : kShells) {
      if (*name == shell.name) return print_out(shell.script(verb_table(app)));
      names.push_back(shell.name);
    }
    if (name->empty()) invalid("[completion] name a shell: bash, zsh or fish");
    invalid("[completion] {}", unknown_text("shell", *name, names));
  });
}

}  // namespace tuckfold::cli
