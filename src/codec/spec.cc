// CodecSpec: the one textual grammar.
//
//   spec   = stage *( "|" stage )
//   stage  = name [ "(" [ param *( "," param ) ] ")" ]
//   param  = name "=" value             value = whole number or word
//   name, word = letter *( letter / digit / "_" )
#include <algorithm>
#include <charconv>
#include <string>

#include "base/fail.h"
#include "base/text_scan.h"
#include "codec/registry.h"

namespace tuckfold {
namespace {

constexpr std::size_t kMaxText = 4096;  // longer than any real spec
constexpr std::size_t kMaxStages = 8;

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string range_of(const ParamInfo& info) {
  return info.words.empty() ? fmt::format("{}..{}", info.min, info.max)
                            : fmt::format("{}", fmt::join(info.words, ", "));
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
    skip_space();
    const std::size_t begin = at_;
    const bool sign = numeric && at_ < text_.size() && text_[at_] == '-';
    if (sign) ++at_;
    while (at_ < text_.size() && (is_letter(text_[at_]) || is_digit(text_[at_]))) ++at_;
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
    const Word value = word(found->words.empty() ? "a whole number" : "a word", true);
    stage.values[index] = value_of(*found, value);
    given[index] = value;
  }

  std::int64_t value_of(const ParamInfo& info, const Word& value) const {
    if (!info.words.empty()) {
      const auto found = std::find(info.words.begin(), info.words.end(), value.text);
      if (found == info.words.end()) {
        complain(value,
                 fmt::format("{} must be one of {}, got {}{}", info.name, range_of(info),
                             quoted(value.text), suggestion_or_nothing(value.text, info.words)));
      }
      return found - info.words.begin();
    }
    std::int64_t number = 0;
    const char* end = value.text.data() + value.text.size();
    const auto [stop, error] = std::from_chars(value.text.data(), end, number);
    if (error != std::errc{} || stop != end || number < info.min || number > info.max) {
      complain(value, fmt::format("{} must be a whole number {}, got {}", info.name, range_of(info),
                                  quoted(value.text)));
    }
    return number;
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
    const std::int64_t value = stage.values[i];
    if (value == info.default_value && !info.headline) continue;
    list += fmt::format("{}{}=", list.empty() ? "" : ", ", info.name);
    list += info.words.empty() ? fmt::format("{}", value)
                               : std::string(info.words[static_cast<std::size_t>(value)]);
  }
  return list.empty() ? std::string(stage.codec->name)
                      : fmt::format("{}({})", stage.codec->name, list);
}

}  // namespace

std::int64_t Stage::operator[](std::string_view param) const {
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (codec->params[i].name == param) return values[i];
  }
  fail(Errc::Internal, "[codec] {} has no parameter '{}'", codec->name, param);
}

CodecSpec CodecSpec::parse(std::string_view text) {
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
