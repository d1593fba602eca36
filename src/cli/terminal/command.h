// The parser of the command line as the verbs see it. CLI11 is a header that takes ten seconds to
// compile, so only command.cc, verb_table.cc and main.cc include it.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>

namespace CLI {  // NOLINT(readability-identifier-naming): the library's name
class App;
class Option;
}  // namespace CLI

namespace tuckfold::cli {

// One option of a verb, with its default value in the variable that it sets.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  Option& type_name(const char* name);  // what --help prints for the value
  Option& range(std::int64_t smallest, std::int64_t largest);
  Option& range(int smallest, int largest) {
    return range(std::int64_t{smallest}, std::int64_t{largest});
  }
  Option& range(double smallest, double largest);
  Option& one_of(std::initializer_list<const char*> words);
  // `wrong` returns an error message for a text, or an empty string.
  Option& check(std::function<std::string(const std::string&)> wrong);
  // A list takes one value each time that the option is given; without this, all that follow.
  Option& one_at_a_time();
  Option& delimiter(char separator);

 private:
  CLI::Option* option_;
};

// The program, or one of its verbs.
class Command {
 public:
  explicit Command(CLI::App& parser) : parser_(&parser) {}

  Command add_subcommand(const char* name, const char* summary);
  // Strings, numbers, optional ones, and lists of strings: those that command.cc names.
  template <class T>
  Option add_option(const char* names, T& value, const std::string& help);
  Option add_flag(const char* names, bool& value, const std::string& help);
  void add_threads(int& threads);  // --threads, of every verb that computes
  void footer(std::string text);
  std::string footer() const;
  void callback(std::function<void()> run);
  // What --help of a verb prints, or of the program where `verb` is empty; empty if there is none.
  std::string help(const std::string& verb) const;

  const CLI::App& parser() const { return *parser_; }

 private:
  CLI::App* parser_;
};

// Thrown by a verb that did its work and answers by its exit status.
struct ExitStatus {
  int value;
};

}  // namespace tuckfold::cli
