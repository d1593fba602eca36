// A recursive reader of JSON, of bounded depth; every step stops at the end of the text.
#include "base/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "base/fail.h"
#include "base/text_scan.h"

namespace tuckfold {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Json document() {
    if (const std::size_t bad = find_bad_utf8(text_); bad != text_.npos) {
      invalid("[json] the text must be UTF-8, and byte {} ({:#04x}) is not", bad,
              static_cast<unsigned char>(text_[bad]));
    }
    Json value = this->value(0);
    skip_space();
    if (at_ < text_.size()) wrong("nothing more");
    return value;
  }

 private:
  [[noreturn]] void wrong(std::string_view wanted) const {
    invalid("[json] byte {} must be {}", at_, wanted);
  }

  void skip_space() { at_ = std::min(text_.find_first_not_of(" \t\r\n", at_), text_.size()); }

  bool accept(char c) {
    skip_space();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  void expect(char c, std::string_view wanted) {
    if (!accept(c)) wrong(wanted);
  }

  Json value(int depth) {
    if (depth > Json::kMaxDepth) invalid("[json] values nest at most {} deep", Json::kMaxDepth);
    if (++values_ > Json::kMaxValues) {
      invalid("[json] a text has at most {} values, got more by byte {}", Json::kMaxValues, at_);
    }
    skip_space();
    const std::size_t begin = at_;
    const char c = at_ < text_.size() ? text_[at_] : '\0';
    Json result;
    if (c == '{') {
      result.kind = Json::Kind::Object;
      object(result, depth);
    } else if (c == '[') {
      result.kind = Json::Kind::Array;
      array(result, depth);
    } else if (c == '"') {
      result.kind = Json::Kind::String;
      result.string = string();
    } else if (c == '-' || is_digit(c)) {
      result.kind = Json::Kind::Number;
      number();
    } else if (word("true") || word("false")) {
      result.kind = Json::Kind::Bool;
    } else if (!word("null")) {
      wrong("a value");
    }
    result.text = text_.substr(begin, at_ - begin);
    return result;
  }

  void object(Json& result, int depth) {
    ++at_;
    if (accept('}')) return;
    do {
      skip_space();
      std::string key = string();
      expect(':', "':'");
      result.keys.push_back(std::move(key));
      result.items.push_back(value(depth + 1));
    } while (accept(','));
    expect('}', "',' or '}'");
    std::vector<std::string_view> keys(result.keys.begin(), result.keys.end());
    std::sort(keys.begin(), keys.end());
    const auto twice = std::adjacent_find(keys.begin(), keys.end());
    if (twice != keys.end()) invalid("[json] the key '{}' must appear once", *twice);
  }

  void array(Json& result, int depth) {
    ++at_;
    if (accept(']')) return;
    do {
      result.items.push_back(value(depth + 1));
    } while (accept(','));
    expect(']', "',' or ']'");
  }

  bool word(std::string_view name) {
    if (!text_.substr(at_).starts_with(name)) return false;
    at_ += name.size();
    return true;
  }

  void digits() {
    if (at_ == text_.size() || !is_digit(text_[at_])) wrong("a digit");
    while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
  }

  void number() {
    const std::size_t begin = at_;
    if (text_[at_] == '-') ++at_;
    if (at_ < text_.size() && text_[at_] == '0') {
      ++at_;
    } else {
      digits();
    }
    if (at_ < text_.size() && text_[at_] == '.') {
      ++at_;
      digits();
    }
    if (at_ < text_.size() && (text_[at_] | 0x20) == 'e') {
      ++at_;
      if (at_ < text_.size() && (text_[at_] == '+' || text_[at_] == '-')) ++at_;
      digits();
    }
    // Other readers take numbers as doubles, and refuse a text with one that overflows.
    const std::string copy(text_.substr(begin, at_ - begin));
    if (std::isinf(std::strtod(copy.c_str(), nullptr))) {
      at_ = begin;
      wrong("a number below 1.8e308");
    }
  }

  std::string string() {
    if (at_ == text_.size() || text_[at_] != '"') wrong("'\"'");
    ++at_;
    std::string out;
    while (at_ < text_.size() && text_[at_] != '"') {
      const char c = text_[at_];
      if (static_cast<unsigned char>(c) < 0x20) wrong("part of a string; escape it");
      ++at_;
      if (c != '\\') {
        out += c;
      } else {
        escape(out);
      }
    }
    if (at_ == text_.size()) wrong("'\"'");
    ++at_;
    return out;
  }

  void escape(std::string& out) {
    constexpr std::string_view kLetters = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
    const char letter = at_ < text_.size() ? text_[at_] : '\0';
    if (letter == 'u') {
      ++at_;
      std::uint32_t code = hex4();
      if (code >= 0xd800 && code < 0xdc00 && word("\\u")) {
        const std::uint32_t low = hex4();
        if (low < 0xdc00 || low > 0xdfff) wrong("after the second half of a surrogate pair");
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
      }
      if (code >= 0xd800 && code < 0xe000) wrong("after a whole surrogate pair");
      append_utf8(out, code);
      return;
    }
    const std::size_t known = kLetters.find(letter);
    if (known == kLetters.npos) wrong("an escape");
    ++at_;
    out += kMeanings[known];
  }

  std::uint32_t hex4() {
    std::uint32_t code = 0;
    const std::string_view part = text_.substr(at_, 4);
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), code, 16);
    if (error != std::errc{} || end != part.data() + 4) wrong("four hexadecimal digits");
    at_ += 4;
    return code;
  }

  std::string_view text_;
  std::size_t at_ = 0, values_ = 0;
};

}  // namespace

Json Json::parse(std::string_view text) {
  if (text.size() > kMaxBytes) {
    invalid("[json] a text has at most {} bytes, got {}", kMaxBytes, text.size());
  }
  return Parser(text).document();
}

const Json* Json::find(std::string_view key) const {
  const auto found = std::find(keys.begin(), keys.end(), key);
  return found == keys.end() ? nullptr : &items[static_cast<std::size_t>(found - keys.begin())];
}

std::int64_t Json::whole() const {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool read = error == std::errc{} && end == text.data() + text.size();
  return kind == Kind::Number && read && number >= 0 ? number : -1;
}

std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

}  // namespace tuckfold
