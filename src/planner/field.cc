#include "planner/field.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "base/fail.h"
#include "base/text_scan.h"

namespace tuckfold {
namespace {

// Where a character begins that moves a terminal's cursor or changes its colours, or npos.
std::size_t find_control(std::string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0u;
    if (byte < 0x20 || byte == 0x7f || (byte == 0xc2 && next < 0xa0)) return i;
  }
  return text.npos;
}

// Some of a file's text for a message of one line.
std::string shown(std::string_view text) {
  constexpr std::size_t kMost = 60;
  std::size_t end = std::min(text.size(), kMost);
  while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  std::string line(text.substr(0, end));
  for (std::size_t at; (at = find_control(line)) != line.npos;) {
    line.replace(at, static_cast<unsigned char>(line[at]) == 0xc2 ? 2 : 1, " ");
  }
  return line + (end < text.size() ? " …" : "");
}

}  // namespace

void Field::wrong(std::string_view rule) const {
  invalid("[device] {}: {} must be {}, got {}", file_, path_.empty() ? "the file" : shown(path_),
          rule, shown(json_->text));
}

void Field::need(Json::Kind kind, std::string_view rule) const {
  if (json_->kind != kind) wrong(rule);
}

const Field& Field::only(std::span<const std::string_view> keys) const {
  need(Json::Kind::Object, "an object");
  for (const std::string& key : json_->keys) {
    if (std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
    const std::string_view nearest = nearest_word(key, keys);
    invalid("[device] {}: unknown field {}{}; {}", file_, path_.empty() ? "" : path_ + ".",
            shown(key),
            nearest.empty() ? fmt::format("there are: {}", fmt::join(keys, ", "))
                            : fmt::format("did you mean '{}'?", nearest));
  }
  return *this;
}

std::optional<Field> Field::find(std::string_view key) const {
  need(Json::Kind::Object, "an object");
  const Json* found = json_->find(key);
  if (found == nullptr) return std::nullopt;
  return Field(*found, file_, (path_.empty() ? "" : path_ + ".") + std::string(key));
}

Field Field::at(std::string_view key) const {
  if (const auto found = find(key)) return *found;
  invalid("[device] {}: the field {}{} is missing", file_, path_.empty() ? "" : path_ + ".", key);
}

std::vector<std::pair<std::string, Field>> Field::members() const {
  need(Json::Kind::Object, "an object");
  std::vector<std::pair<std::string, Field>> result;
  for (const std::string& key : json_->keys) result.emplace_back(key, at(key));
  return result;
}

std::vector<Field> Field::items() const {
  need(Json::Kind::Array, "a list");
  std::vector<Field> result;
  for (std::size_t i = 0; i < json_->items.size(); ++i) {
    result.push_back(Field(json_->items[i], file_, fmt::format("{}[{}]", path_, i)));
  }
  return result;
}

std::string Field::text() const {
  if (json_->kind != Json::Kind::String || json_->string.empty()) wrong("a text");
  if (find_control(json_->string) != std::string::npos) {
    wrong("a text of one line, without control characters");
  }
  return json_->string;
}

std::string Field::word(std::span<const std::string_view> words) const {
  const std::string text = this->text();
  if (std::find(words.begin(), words.end(), text) != words.end()) return text;
  const std::string_view nearest = nearest_word(text, words);
  wrong(nearest.empty()
            ? fmt::format("one of {}", fmt::join(words, ", "))
            : fmt::format("one of {} (did you mean '{}'?)", fmt::join(words, ", "), nearest));
}

double Field::within(double least, double most, std::string_view rule) const {
  double value = 0;
  const std::string_view text = json_->text;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool read = error == std::errc{} && end == text.data() + text.size();
  if (json_->kind != Json::Kind::Number || !read || !(value >= least && value <= most)) wrong(rule);
  return value;
}

double Field::number() const {
  return within(0, std::numeric_limits<double>::max(), "a number, 0 or above");
}

double Field::above_zero() const {
  using Limits = std::numeric_limits<double>;
  return within(Limits::denorm_min(), Limits::max(), "a number above 0");
}

bool Field::flag() const {
  need(Json::Kind::Bool, "true or false");
  return json_->text == "true";
}

Shape Field::shape() const {
  Shape shape;
  for (const Field& axis : items()) {
    if (axis.json_->whole() < 1 || shape.rank() == Shape::kMaxRank)
      axis.wrong("a length of an axis");
    shape.push_back(axis.json_->whole());
  }
  if (shape.rank() == 0) wrong("a list of lengths");
  return shape;
}

std::pair<double, double> Field::range() const {
  if (json_->kind == Json::Kind::Number) return {number(), number()};
  const std::vector<Field> ends = items();
  if (ends.size() != 2 || ends[0].number() > ends[1].number()) wrong("a number, or [least, most]");
  return {ends[0].number(), ends[1].number()};
}

}  // namespace tuckfold
