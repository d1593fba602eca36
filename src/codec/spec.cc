// CodecSpec: the one textual grammar.
//
//   spec   = stage *( "|" stage )
//   stage  = name [ "(" [ param *( "," param ) ] ")" ]
//   param  = name "=" value             value = number or word
//   number = decimal [ "/" decimal ]    as in 4, -5, 2.5, 1e-3, 1/255
//   name, word = letter *( letter / digit / "_" )
#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <string>

#include "base/fail.h"
#include "base/fp_env.h"
#include "base/text_scan.h"
#include "codec/registry.h"

namespace tuckfold {
namespace {

constexpr std::size_t kMaxText = 4096;  // longer than any real spec

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::optional<double> read_decimal(std::string_view text) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc{} && stop == end ? std::optional(number) : std::nullopt;
}

// A decimal, or the quotient of two.
std::optional<double> read_number(std::string_view text) {
  const std::size_t slash = text.find('/');
  if (slash == text.npos) return read_decimal(text);
  const auto above = read_decimal(text.substr(0, slash));
  const auto below = read_decimal(text.substr(slash + 1));
  return above && below && *below != 0 ? std::optional(*above / *below) : std::nullopt;
}

// The shortest text that reads back as the same number; 1/n where that is shorter.
std::string number_text(double value) {
  std::string text = fmt::format("{}", value);
  const double below = std::nearbyint(1 / value);
  if (std::abs(below) < 1e6 && 1 / below == value) {
    std::string fraction = fmt::format("1/{}", below);
    if (fraction.size() < text.size() && text.find('e') == text.npos) return fraction;
  }
  return text;
}

std::string suggestion(std::string_view word, std::span<const std::string_view> candidates) {
  const std::string_view nearest = nearest_word(word, candidates);
  return nearest.empty() ? fmt::format("; there are: {}", fmt::join(candidates, ", "))
                         : fmt::format("; did you mean '{}'?", nearest);
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  std::vector<Stage> parse() {
    if (text_.size() > kMaxText) {
      invalid("[codec] a spec has at most {} characters, got {}", kMaxText, text_.size());
    }
    std::vector<Stage> stages;
    do {
      if (stages.size() == kMaxStages) {
        complain(at_, 1, fmt::format("a chain has at most {} codecs", kMaxStages));
      }
      stages.push_back(stage());
    } while (accept('|'));
    if (at_ < text_.size()) complain(at_, 1, "expected '|' or the end of the spec");
    for (std::size_t i = 0; i + 1 < stages.size(); ++i) {
      if (const auto resolve = row_of(stages[i]).resolve) resolve(stages[i], row_of(stages[i + 1]));
    }
    return stages;
  }

 private:
  struct Word {
    std::string_view text;
    std::size_t at;
  };

  [[noreturn]] void complain(std::size_t at, std::size_t length, const std::string& rule) const {
    invalid("[codec] {}\n{}", rule, with_caret(text_, at, length));
  }
  [[noreturn]] void complain(const Word& word, const std::string& rule) const {
    complain(word.at, word.text.size(), rule);
  }

  void skip_space() {
    while (at_ < text_.size() && is_space(text_[at_])) ++at_;
  }

  bool accept(char wanted) {
    skip_space();
    if (at_ == text_.size() || text_[at_] != wanted) return false;
    ++at_;
    skip_space();
    return true;
  }

  // A name, or with `numeric` also a number.
  Word word(const char* what, bool numeric = false) {
    constexpr std::string_view kInNumbers = "+-./";
    skip_space();
    const std::size_t begin = at_;
    while (at_ < text_.size() && (is_letter(text_[at_]) || is_digit(text_[at_]) ||
                                  (numeric && kInNumbers.find(text_[at_]) != kInNumbers.npos))) {
      ++at_;
    }
    const bool starts_well = at_ > begin && (numeric || is_letter(text_[begin]));
    if (!starts_well) complain(begin, 1, fmt::format("expected {}", what));
    return {text_.substr(begin, at_ - begin), begin};
  }

  Stage stage() {
    const Word name = word("the name of a codec");
    const std::span<const CodecInfo> codecs = list_codecs();
    const auto found = std::find_if(codecs.begin(), codecs.end(),
                                    [&](const CodecInfo& info) { return info.name == name.text; });
    if (found == codecs.end()) {
      std::vector<std::string_view> names;
      for (const CodecInfo& info : codecs) names.push_back(info.name);
      complain(name,
               fmt::format("unknown codec {}{}", quoted(name.text), suggestion(name.text, names)));
    }
    Stage result{&*found, {}};
    for (const ParamInfo& info : found->params) result.values.push_back(info.default_value);
    // Where each parameter was given, for rules that are checked at the end; else at the name.
    std::vector<Word> given(found->params.size(), Word{{}, 0});
    if (accept('(') && !accept(')')) {
      do {
        parameter(*found, result, given);
      } while (accept(','));
      if (!accept(')')) complain(at_, 1, "expected ',' or ')'");
    }
    skip_space();
    if (const auto check = row_of(result).check) {
      const Codec::Complaint broken = check(result);
      if (!broken.rule.empty()) {
        for (std::size_t i = 0; i < given.size(); ++i) {
          if (found->params[i].name == broken.param && !given[i].text.empty()) {
            complain(given[i], broken.rule);
          }
        }
        complain(name, broken.rule);
      }
    }
    return result;
  }

  void parameter(const CodecInfo& codec, Stage& stage, std::vector<Word>& given) {
    const Word name = word("the name of a parameter");
    const auto found = std::find_if(codec.params.begin(), codec.params.end(),
                                    [&](const ParamInfo& info) { return info.name == name.text; });
    if (found == codec.params.end()) {
      if (codec.params.empty()) complain(name, fmt::format("{} has no parameters", codec.name));
      std::vector<std::string_view> names;
      for (const ParamInfo& info : codec.params) names.push_back(info.name);
      complain(name, fmt::format("{} has no parameter {}{}", codec.name, quoted(name.text),
                                 suggestion(name.text, names)));
    }
    const auto index = static_cast<std::size_t>(found - codec.params.begin());
    if (!given[index].text.empty()) complain(name, fmt::format("{} is given twice", found->name));
    if (!accept('=')) complain(at_, 1, fmt::format("expected '=' after {}", found->name));
    const Word value = word(!found->words.empty() ? "a word"
                            : found->step == 1    ? "a whole number"
                                                  : "a number",
                            true);
    stage.values[index] = value_of(*found, value);
    given[index] = value;
  }

  double value_of(const ParamInfo& info, const Word& value) const {
    std::string hint;
    if (info.words.empty()) {
      const std::optional<double> number = read_number(value.text);
      // Comparisons are false for NaN.
      if (number && *number >= info.min && *number <= info.max &&
          (info.step == 0 || std::remainder(*number, info.step) == 0)) {
        return *number + 0.0;  // -0 becomes 0
      }
    } else {
      const auto found = std::find(info.words.begin(), info.words.end(), value.text);
      if (found != info.words.end()) return static_cast<double>(found - info.words.begin());
      hint = suggestion_or_nothing(value.text, info.words);
    }
    complain(value, fmt::format("{} must be {}, got {}{}", info.name, values_text(info),
                                quoted(value.text), hint));
  }

  static std::string suggestion_or_nothing(std::string_view word,
                                           std::span<const std::string_view> candidates) {
    const std::string_view nearest = nearest_word(word, candidates);
    return nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest);
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

std::string print_stage(const Stage& stage) {
  std::string list;
  for (std::size_t i = 0; i < stage.values.size(); ++i) {
    const ParamInfo& info = stage.codec->params[i];
    const double value = stage.values[i];
    if (value == info.default_value && !info.headline) continue;
    list += fmt::format("{}{}=", list.empty() ? "" : ", ", info.name);
    list += to_string(info, value);
  }
  return list.empty() ? std::string(stage.codec->name)
                      : fmt::format("{}({})", stage.codec->name, list);
}

}  // namespace

std::string to_string(const ParamInfo& param, double value) {
  const FpEnv nearest;
  return param.words.empty() ? number_text(value)
                             : std::string(param.words[static_cast<std::size_t>(value)]);
}

std::string values_text(const ParamInfo& param) {
  if (!param.words.empty()) return fmt::format("one of {}", fmt::join(param.words, ", "));
  const std::string range = fmt::format("{}..{}", param.min, param.max);
  if (param.step == 1) return "a whole number " + range;
  if (param.step == 0) return "a number " + range;
  return fmt::format("a multiple of {} in {}", number_text(param.step), range);
}

double& value_of(Stage& stage, std::string_view param) {
  for (std::size_t i = 0; i < stage.values.size(); ++i) {
    if (stage.codec->params[i].name == param) return stage.values[i];
  }
  fail(Errc::Internal, "[codec] {} has no parameter '{}'", stage.codec->name, param);
}

double Stage::operator[](std::string_view param) const {
  return value_of(const_cast<Stage&>(*this), param);
}

CodecSpec CodecSpec::parse(std::string_view text) {
  const FpEnv nearest;  // decimals are rounded
  CodecSpec spec;
  spec.stages_ = Parser(text).parse();
  return spec;
}

std::string CodecSpec::print() const {
  std::string text;
  for (const Stage& stage : stages_) text += (text.empty() ? "" : " | ") + print_stage(stage);
  return text;
}

}  // namespace tuckfold
