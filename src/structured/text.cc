// The text of a structure: butterfly(tied=true, blocks=2).
#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>
#include <vector>

#include "base/fail.h"
#include "base/text_scan.h"
#include "structured/layer.h"

namespace tuckfold::structured {
namespace {

class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  // A word of letters, digits, _ and -; empty where there is none.
  std::string_view word() {
    space();
    start_ = at_;
    const auto inside = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
             c == '_' || c == '-';
    };
    while (at_ < text_.size() && inside(text_[at_])) ++at_;
    return text_.substr(start_, at_ - start_);
  }
  bool take(char c) {
    space();
    start_ = at_;
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool ended() {
    space();
    start_ = at_;
    return at_ == text_.size();
  }
  // Says what is wrong with the word read last, or with what stands there instead.
  [[noreturn]] void wrong(std::string_view why) const {
    const std::size_t length = std::max<std::size_t>(at_ - start_, 1);
    invalid("[structure] {}\n{}", why, with_caret(text_, start_, length));
  }

 private:
  void space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
  }
  std::string_view text_;
  std::size_t at_ = 0, start_ = 0;
};

template <class Names>
std::string listed(const Names& names) {
  std::string all;
  for (std::string_view name : names) all += (all.empty() ? "" : ", ") + std::string(name);
  return all;
}

std::string suggestion(std::string_view word, std::span<const std::string_view> names) {
  const std::string_view near = nearest_word(word, names);
  return near.empty() ? "" : fmt::format("; did you mean {}?", near);
}

std::int64_t value_of(Scanner& scanner, const OptionInfo& option) {
  const std::string_view word = scanner.word();
  if (!option.words.empty()) {
    const auto found = std::find(option.words.begin(), option.words.end(), word);
    if (found == option.words.end()) {
      scanner.wrong(fmt::format("{} must be one of {}, got {}", option.name, listed(option.words),
                                quoted(word)));
    }
    return found - option.words.begin();
  }
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size() || value < option.least ||
      value > option.most) {
    scanner.wrong(fmt::format("{} must be {}..{}, got {}", option.name, option.least, option.most,
                              quoted(word)));
  }
  return value;
}

}  // namespace

Parsed parse(std::string_view text) {
  Scanner scanner(text);
  const std::string_view name = scanner.word();
  std::vector<std::string_view> names;
  for (const Family* family : families()) names.push_back(family->name);
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) {
    scanner.wrong(fmt::format("a structure is one of {}, got {}{}", listed(names), quoted(name),
                              suggestion(name, names)));
  }
  Parsed parsed{.family = families()[static_cast<std::size_t>(found - names.begin())]};
  const auto options = parsed.family->options;
  for (const OptionInfo& option : options) parsed.values.push_back(option.initial);
  if (scanner.take('(') && !scanner.take(')')) {
    std::vector<bool> given(options.size());
    std::vector<std::string_view> keys;
    for (const OptionInfo& option : options) keys.push_back(option.name);
    do {
      const std::string_view key = scanner.word();
      const auto at = std::find(keys.begin(), keys.end(), key);
      if (at == keys.end()) {
        scanner.wrong(fmt::format("{} has {}, no {}{}", name,
                                  keys.empty() ? "no options" : listed(keys), quoted(key),
                                  suggestion(key, keys)));
      }
      const auto index = static_cast<std::size_t>(at - keys.begin());
      if (given[index]) scanner.wrong(fmt::format("{} is given twice", key));
      given[index] = true;
      if (!scanner.take('=')) scanner.wrong(fmt::format("{} needs = and a value", key));
      parsed.values[index] = value_of(scanner, options[index]);
    } while (scanner.take(','));
    if (!scanner.take(')')) scanner.wrong("expected , or )");
  }
  if (!scanner.ended()) scanner.wrong("expected the end of the text");
  return parsed;
}

std::string print(const Parsed& parsed) {
  std::string inside;
  for (std::size_t i = 0; i < parsed.values.size(); ++i) {
    const OptionInfo& option = parsed.family->options[i];
    const std::int64_t value = parsed.values[i];
    if (value == option.initial) continue;
    inside += fmt::format(
        "{}{}={}", inside.empty() ? "" : ", ", option.name,
        option.words.empty() ? std::to_string(value) : std::string(option.words[value]));
  }
  return std::string(parsed.family->name) + (inside.empty() ? "" : "(" + inside + ")");
}

}  // namespace tuckfold::structured
