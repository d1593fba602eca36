#include "planner/store_json.h"

#include <array>
#include <charconv>
#include <limits>

#include "base/fail.h"
#include "base/json.h"
#include "tuckfold/planner.h"

namespace tuckfold::planner {
namespace {

constexpr double kNoLimit = std::numeric_limits<double>::infinity();

// In the order of StoreKind.
constexpr std::array<std::string_view, 5> kKinds = {"keep", "exact", "recompute", "codec",
                                                    "offload"};

const Json& need(const Json& json, std::string_view key) {
  const Json* member = json.kind == Json::Kind::Object ? json.find(key) : nullptr;
  if (member == nullptr) invalid("[plan] the problem must have \"{}\"", key);
  return *member;
}

const std::vector<Json>& array_of(const Json& json, std::string_view what) {
  if (json.kind != Json::Kind::Array) invalid("[plan] {} must be an array", what);
  return json.items;
}

std::int64_t whole_of(const Json& json, std::string_view what) {
  const std::int64_t value = json.whole();
  if (value < 0) invalid("[plan] {} must be a whole number of at least 0, got {}", what, json.text);
  return value;
}

int position_of(const Json& json) {
  const std::int64_t value = whole_of(json, "a position");
  if (value > std::numeric_limits<int>::max()) invalid("[plan] no step has position {}", value);
  return static_cast<int>(value);
}

double number_of(const Json& json, std::string_view what) {
  double value = 0;
  const char* end = json.text.data() + json.text.size();
  if (json.kind != Json::Kind::Number || std::from_chars(json.text.data(), end, value).ptr != end) {
    invalid("[plan] {} must be a number, got {}", what, json.text);
  }
  return value;
}

double number_or(const Json& json, std::string_view key, double otherwise) {
  const Json* member = json.find(key);
  return member == nullptr ? otherwise : number_of(*member, key);
}

std::string text_or_empty(const Json& json, std::string_view key) {
  const Json* member = json.find(key);
  return member == nullptr ? "" : member->string;
}

StoreKind kind_of(const Json& json) {
  for (std::size_t i = 0; i < kKinds.size(); ++i) {
    if (json.string == kKinds[i]) return static_cast<StoreKind>(i);
  }
  invalid("[plan] a kind must be one of {}, got {}", fmt::join(kKinds, ", "), json.text);
}

StoreChoice choice_of(const Json& json) {
  StoreChoice choice;
  if (json.kind != Json::Kind::Object) invalid("[plan] a choice must be an object");
  if (const Json* kind = json.find("kind")) choice.kind = kind_of(*kind);
  choice.how = text_or_empty(json, "how");
  choice.seconds = number_or(json, "seconds", 0);
  choice.noise = number_or(json, "noise", 0);
  for (const Json& span : array_of(need(json, "spans"), "spans")) {
    const std::vector<Json>& parts = array_of(span, "a span");
    if (parts.size() != 3) invalid("[plan] a span must be [first, last, bytes], got {}", span.text);
    choice.spans.push_back(
        {position_of(parts[0]), position_of(parts[1]), whole_of(parts[2], "bytes")});
  }
  return choice;
}

StoreProblem problem_of(const Json& json) {
  StoreProblem problem;
  for (const Json& bytes : array_of(need(json, "base"), "base")) {
    problem.base.push_back(whole_of(bytes, "base"));
  }
  for (const Json& item : array_of(need(json, "items"), "items")) {
    StoreItem& added = problem.items.emplace_back();
    for (const Json& choice : array_of(need(item, "choices"), "choices")) {
      added.choices.push_back(choice_of(choice));
    }
    added.name = text_or_empty(item, "name");
  }
  problem.noise_weight = number_or(json, "noise_weight", problem.noise_weight);
  problem.seconds_weight = number_or(json, "seconds_weight", problem.seconds_weight);
  return problem;
}

}  // namespace

std::string plan_json(std::string_view text) {
  const Json json = Json::parse(text);
  const StoreProblem problem = problem_of(json);
  const Json* budget = json.find("budget");
  const StorePlan plan = budget != nullptr
                             ? plan_within(problem, whole_of(*budget, "budget"))
                             : plan_smallest(problem, number_or(json, "noise", kNoLimit),
                                             number_or(json, "seconds", kNoLimit));
  return fmt::format(
      R"({{"fits": {}, "choice": [{}], "peak": {}, "peak_position": {}, "noise": {}, )"
      R"("seconds": {}, "cost": {}, "why": {}}})",
      plan.fits, fmt::join(plan.choice, ", "), plan.peak, plan.peak_position, plan.noise,
      plan.seconds, plan.cost, json_string(plan.why));
}

}  // namespace tuckfold::planner
