// tuckfold man: manual pages, made from the parser's table.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <memory>
#include <sstream>

#include "base/fail.h"
#include "base/io/new_file.h"
#include "cli/terminal/table.h"
#include "cli/verbs/verb_table.h"
#include "cli/verbs/verbs.h"
#include "tuckfold/version.h"

namespace tuckfold::cli {
namespace {

constexpr const char* kFooter = R"_(Examples:
  tuckfold man bench | man -l -
  tuckfold man --out ~/.local/share/man/man1)_";

// Text for roff: hyphens that can be copied, no line that begins with a command.
std::string roff(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '\\') {
      result += "\\e";
    } else if (c == '-') {
      result += "\\-";
    } else if ((c == '.' || c == '\'') && (result.empty() || result.back() == '\n')) {
      result += fmt::format("\\&{}", c);
    } else {
      result += c;
    }
  }
  return result;
}

std::string head(const std::string& title, const std::string& name, const std::string& summary) {
  std::string capitals = title;
  std::transform(capitals.begin(), capitals.end(), capitals.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return fmt::format(".TH {} 1 \"\" \"tuckfold {}\"\n.SH NAME\n{} \\- {}\n", roff(capitals),
                     version(), roff(name), roff(summary));
}

// Lines that are indented, or follow "Examples:", are printed unchanged.
std::string notes(const std::string& footer) {
  std::string text;
  bool as_it_is = false;
  std::istringstream lines(footer);
  for (std::string line; std::getline(lines, line);) {
    if (line == "Examples:" || line == "Example:") {
      text += fmt::format("{}.SH EXAMPLES\n", as_it_is ? ".fi\n" : "");
      as_it_is = false;
      continue;
    }
    const bool indented = line.starts_with("  ");
    if (indented != as_it_is && !line.empty()) {
      text += indented ? ".nf\n" : ".fi\n";
      as_it_is = indented;
    }
    text += line.empty() ? ".PP\n" : roff(line) + "\n";
  }
  return text + (as_it_is ? ".fi\n" : "");
}

std::string option_text(const OptionRow& option) {
  std::string title;
  for (const std::string& name : {option.short_name, option.name}) {
    if (name.empty()) continue;
    if (!title.empty()) title += ", ";
    title += fmt::format("\\fB{}\\fR", roff(name));
  }
  if (!option.value.empty() && !option.positional) {
    title += fmt::format(" \\fI{}\\fR", roff(option.value));
  }
  return fmt::format(".TP\n{}\n{}\n", title, roff(option.summary));
}

std::string verb_page(const VerbRow& verb) {
  std::string text = head("tuckfold-" + verb.name, "tuckfold " + verb.name, verb.summary);
  text += fmt::format(".SH SYNOPSIS\n.B tuckfold {}\n[options]", verb.name);
  for (const OptionRow& option : verb.options) {
    if (option.positional) text += fmt::format(" \\fI{}\\fR", roff(option.name));
  }
  text += "\n.SH OPTIONS\n";
  for (const OptionRow& option : verb.options) text += option_text(option);
  return text + (verb.footer.empty() ? "" : ".SH NOTES\n" + notes(verb.footer)) +
         ".SH SEE ALSO\n.BR tuckfold (1)\n";
}

std::string main_page(const std::string& footer, const std::vector<VerbRow>& verbs) {
  std::string text = head("tuckfold", "tuckfold", "fold tensors small");
  text += ".SH SYNOPSIS\n.B tuckfold\n\\fIVERB\\fR [options]\n.SH VERBS\n";
  for (const VerbRow& verb : verbs) {
    text += fmt::format(".TP\n.BR tuckfold\\-{} (1)\n{}\n", verb.name, roff(verb.summary));
  }
  return text + ".SH NOTES\n" + notes(footer);
}

void write(const std::filesystem::path& folder, const std::string& name, const std::string& text) {
  std::error_code refused;
  std::filesystem::create_directories(folder, refused);
  NewFile file("man", folder / name);
  file.write(std::as_bytes(std::span(text)));
  file.finish();
}

}  // namespace

void add_man(Command& app) {
  struct Options {
    std::string name, folder;
  };
  const auto options = std::make_shared<Options>();
  Command verb = app.add_subcommand("man", "Print the manual page of a verb, or write them all");
  verb.add_option("VERB", options->name, "The verb; none: tuckfold's own page").type_name("");
  verb.add_option("--out", options->folder, "Write all pages to this folder").type_name("DIR");
  verb.footer(kFooter);
  verb.callback([options, &app] {
    const std::vector<VerbRow> verbs = verb_table(app);
    if (!options->folder.empty()) {
      write(options->folder, "tuckfold.1", main_page(app.footer(), verbs));
      for (const VerbRow& row : verbs) {
        write(options->folder, fmt::format("tuckfold-{}.1", row.name), verb_page(row));
      }
      return;
    }
    if (options->name.empty()) return print_out(main_page(app.footer(), verbs));
    std::vector<std::string_view> names;
    for (const VerbRow& row : verbs) {
      if (row.name == options->name) return print_out(verb_page(row));
      names.push_back(row.name);
    }
    invalid("[man] {}", unknown_text("verb", options->name, names));
  });
}

}  // namespace tuckfold::cli
