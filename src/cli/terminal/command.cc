#include "cli/terminal/command.h"

#include <CLI/CLI.hpp>
#include <optional>
#include <utility>
#include <vector>

namespace tuckfold::cli {

Option& Option::type_name(const char* name) {
  option_->type_name(name);
  return *this;
}

// A validator's description would be printed beside the type's name.
Option& Option::range(std::int64_t smallest, std::int64_t largest) {
  option_->check(CLI::Range(smallest, largest).description(""));
  return *this;
}

Option& Option::range(double smallest, double largest) {
  option_->check(CLI::Range(smallest, largest).description(""));
  return *this;
}

Option& Option::one_of(std::initializer_list<const char*> words) {
  option_->check(
      CLI::IsMember(std::vector<std::string>(words.begin(), words.end())).description(""));
  return *this;
}

Option& Option::check(std::function<std::string(const std::string&)> wrong) {
  option_->check(std::move(wrong));
  return *this;
}

Option& Option::one_at_a_time() {
  option_->allow_extra_args(false);
  return *this;
}

Option& Option::delimiter(char separator) {
  option_->delimiter(separator);
  return *this;
}

Command Command::add_subcommand(const char* name, const char* summary) {
  return Command(*parser_->add_subcommand(name, summary));
}

template <class T>
Option Command::add_option(const char* names, T& value, const std::string& help) {
  return Option(parser_->add_option(names, value, help));
}

template Option Command::add_option(const char*, std::string&, const std::string&);
template Option Command::add_option(const char*, std::vector<std::string>&, const std::string&);
template Option Command::add_option(const char*, int&, const std::string&);
template Option Command::add_option(const char*, std::int64_t&, const std::string&);
template Option Command::add_option(const char*, std::uint64_t&, const std::string&);
template Option Command::add_option(const char*, double&, const std::string&);
template Option Command::add_option(const char*, std::optional<std::string>&, const std::string&);
template Option Command::add_option(const char*, std::optional<int>&, const std::string&);
template Option Command::add_option(const char*, std::optional<std::int64_t>&, const std::string&);
template Option Command::add_option(const char*, std::optional<std::uint64_t>&, const std::string&);
template Option Command::add_option(const char*, std::optional<double>&, const std::string&);

Option Command::add_flag(const char* names, bool& value, const std::string& help) {
  return Option(parser_->add_flag(names, value, help));
}

void Command::add_threads(int& threads) {
  add_option("--threads", threads, "Threads; 0 is every core").type_name("N").range(0, 255);
}

void Command::footer(std::string text) { parser_->footer(std::move(text)); }

std::string Command::footer() const { return parser_->get_footer(); }

void Command::callback(std::function<void()> run) { parser_->callback(std::move(run)); }

std::string Command::help(const std::string& verb) const {
  const std::string program = parser_->get_name();
  if (verb.empty()) {  // parser_->help() would be that of the verb that was chosen
    return parser_->get_formatter()->make_help(parser_, program, CLI::AppFormatMode::Normal);
  }
  for (const CLI::App* one : parser_->get_subcommands([](const CLI::App*) { return true; })) {
    if (one->get_name() == verb) return one->help(program);
  }
  return "";
}

}  // namespace tuckfold::cli
