// The scanner of JSON headers.
#include "inputs/json_scan.h"

#include <algorithm>
#include <charconv>

#include "base/fail.h"
#include "base/text_scan.h"

namespace tuckfold {

void JsonScanner::corrupt(std::string_view rule) const {
  fail(Errc::CorruptData, "[{}] '{}': {}", verb_, path_, rule);
}

void JsonScanner::skip_space() {
  rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\r\n"), rest_.size()));
}

bool JsonScanner::accept(char wanted) {
  skip_space();
  if (rest_.empty() || rest_.front() != wanted) return false;
  rest_.remove_prefix(1);
  return true;
}

void JsonScanner::expect(char wanted) {
  if (!accept(wanted)) corrupt(fmt::format("the header has no '{}' where one must stand", wanted));
}

void JsonScanner::expect_end() {
  skip_space();
  if (!rest_.empty()) corrupt("the header goes on after its object");
}

bool JsonScanner::more(char close, bool& first) {
  if (accept(close)) return false;
  if (!first) expect(',');
  first = false;
  return true;
}

std::uint32_t JsonScanner::hex() {
  std::uint32_t value = 0;
  const char* end = rest_.data() + std::min<std::size_t>(rest_.size(), 4);
  const auto [stop, error] = std::from_chars(rest_.data(), end, value, 16);
  if (error != std::errc{} || stop != rest_.data() + 4) corrupt("an escape in the header is wrong");
  rest_.remove_prefix(4);
  return value;
}

std::string JsonScanner::string() {
  expect('"');
  std::string out;
  for (;;) {
    const std::size_t plain = std::min(rest_.find_first_of("\"\\"), rest_.size());
    out += rest_.substr(0, plain);
    rest_.remove_prefix(plain);
    if (rest_.size() < 2 && !rest_.starts_with('"')) corrupt("a string in the header does not end");
    const char what = rest_.front() == '"' ? '"' : rest_[1];
    const bool escaped = rest_.front() == '\\';
    rest_.remove_prefix(escaped ? 2 : 1);
    if (!escaped) return out;
    constexpr std::string_view kNames = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
    const std::size_t named = kNames.find(what);
    if (named != kNames.npos) {
      out += kMeanings[named];
    } else if (what == 'u') {
      std::uint32_t point = hex();
      if (point >= 0xd800 && point < 0xdc00 && rest_.starts_with("\\u")) {
        rest_.remove_prefix(2);
        const std::uint32_t low = hex();
        if (low < 0xdc00 || low > 0xdfff) corrupt("an escape in the header is wrong");
        point = 0x10000 + ((point - 0xd800) << 10) + (low - 0xdc00);
      }
      append_utf8(out, point);
    } else {
      corrupt("an escape in the header is wrong");
    }
  }
}

std::int64_t JsonScanner::length() {
  skip_space();
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
  if (error != std::errc{} || value < 0) corrupt("a number in the header is none that counts");
  rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
  return value;
}

void JsonScanner::skip_value() {
  std::size_t depth = 0;
  do {
    skip_space();
    if (rest_.empty()) corrupt("the header ends within a value");
    const char next = rest_.front();
    if (next == '"') {
      string();
    } else if (next == '{' || next == '[') {
      ++depth;
      rest_.remove_prefix(1);
    } else if (depth > 0 && (next == '}' || next == ']')) {
      --depth;
      rest_.remove_prefix(1);
    } else if (depth > 0 && (next == ',' || next == ':')) {
      rest_.remove_prefix(1);
    } else {  // a number, true, false or null
      const std::size_t word = std::min(rest_.find_first_of(",:{}[]\" \t\r\n"), rest_.size());
      if (word == 0) corrupt("the header has no value where one must stand");
      rest_.remove_prefix(word);
    }
  } while (depth > 0);
}

}  // namespace tuckfold
