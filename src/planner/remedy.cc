// The search for what near a codec fits: every combination of a few changes, the fewest first.
#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "base/fail.h"
#include "planner/verdict.h"

namespace tuckfold {
namespace {

// The spec with one parameter of its first stage changed; false where there is no such spec, or it is
// the same.
bool change(Question& asked, std::string_view param, std::string_view value) {
  std::string text;
  for (const Stage& stage : asked.spec.stages()) {
    const bool first = &stage == asked.spec.stages().data();
    std::vector<std::string> params;
    for (std::size_t i = 0; i < stage.values.size(); ++i) {
      const ParamInfo& info = stage.codec->params[i];
      const bool changed = first && info.name == param;
      if (info.optional && stage.values[i] == 0 && !changed) continue;
      params.push_back(fmt::format(
          "{}={}", info.name, changed ? std::string(value) : to_string(info, stage.values[i])));
    }
    text += fmt::format("{}{}({})", text.empty() ? "" : " | ", stage.codec->name,
                        fmt::join(params, ", "));
  }
  try {
    const CodecSpec spec = CodecSpec::parse(text);
    const bool other = !(spec == asked.spec);
    asked.spec = spec;
    return other;
  } catch (const Error&) {
    return false;
  }
}

struct Answer {
  Fault fault = Fault::None;
  // What is lacking is so with other tiles, too: they only add operators, but for those that build
  // matrices, which smaller tiles may not need.
  bool stays = false;
};

// Answers about questions, each found once. Graphs of many tiles take long to make, so they are the
// last resort.
class Answers {
 public:
  explicit Answers(const DeviceInfo& device) : device_(device) {}

  // Nothing where there is no such codec, or it does not take the tensor. A Limit that is surely
  // exceeded may hide a Type or an Operator.
  std::optional<Answer> about(const Question& asked) {
    try {
      static_cast<void>(layout(asked.spec, asked.dtype, asked.shape));
      const auto& types = device_.dtypes;
      if (std::find(types.begin(), types.end(), asked.dtype) == types.end()) {
        return Answer{Fault::Type, true};
      }
      std::vector<Question> ways;
      for (const Direction way : {Direction::Pack, Direction::Unpack}) {
        if (asked.direction != Direction::Both && asked.direction != way) continue;
        ways.push_back(asked);
        ways.back().direction = way;
        if (exceeds(device_, ways.back())) return Answer{Fault::Limit};
      }
      Answer answer;
      for (const Question& way : ways) {
        const Answer one = about_one(way);
        if (one.stays) return one;
        if (answer.fault == Fault::None) answer = one;
      }
      return answer;
    } catch (const Error&) {
      return std::nullopt;
    }
  }

 private:
  Answer about_one(const Question& asked) {
    const bool packs = asked.direction == Direction::Pack;
    const std::string key = fmt::format("{} {} {} {}", asked.spec.print(), to_string(asked.dtype),
                                        to_string(asked.shape), packs);
    const auto known = known_.find(key);
    if (known != known_.end()) return known->second;
    const Verdict verdict = verdict_on(device_, asked);
    const bool stays = verdict.fault == Fault::Type ||
                       (verdict.fault == Fault::Operator && !verdict.builds_matrices);
    return known_.emplace(key, Answer{verdict.fault, stays}).first->second;
  }

  const DeviceInfo& device_;
  std::map<std::string, Answer> known_;
};

// A change, and how unwelcome it is beside others: the values stay, the packed ones are rounded
// differently, the tensor is another, less comes back, one direction is missing.
struct Change {
  std::string text;
  int cost;
  std::function<bool(Question&)> apply;  // false: it changes nothing, or is not possible
};
using Choice = std::vector<Change>;  // of which one may be made

Change parameter(const char* name, const std::string& value, int cost) {
  return {fmt::format("{}={}", name, value), cost,
          [=](Question& asked) { return change(asked, name, value); }};
}

Change only(Direction direction, const char* name, int cost) {
  return {fmt::format("--only {}", name), cost, [=](Question& asked) {
            return std::exchange(asked.direction, direction) == Direction::Both;
          }};
}

// Changes of types and operators help where these are at fault alone: a smaller type is no remedy
// for a tensor that is too large.
std::vector<Choice> choices_for(Fault fault) {
  std::vector<Choice> choices = {{parameter("order", "rows", 1)}};
  if (fault == Fault::Limit) return choices;
  Choice coefs, dtypes;
  int cost = 0;
  for (const DType dtype : {DType::F32, DType::F16, DType::BF16}) {
    const std::string name(to_string(dtype));
    coefs.push_back(parameter("coef", name, 200 + cost));
    dtypes.push_back({"--dtype " + name, 300 + cost,
                      [=](Question& asked) { return std::exchange(asked.dtype, dtype) != dtype; }});
    ++cost;
  }
  choices.push_back(coefs);
  choices.push_back({parameter("shape", "square", 400)});
  choices.push_back({parameter("serialize", "1", 2)});
  choices.push_back(dtypes);
  choices.push_back({only(Direction::Unpack, "unpack", 500), only(Direction::Pack, "pack", 600)});
  return choices;
}

struct Candidate {
  Question question;
  std::vector<std::string> texts;
  int cost = 0;
  std::size_t base = 0;  // which it is with other tiles
};

// All that can be made of `from` by at most one change of each choice.
std::vector<Candidate> combined(const Candidate& from, const std::vector<Choice>& choices) {
  std::vector<Candidate> all = {from};
  for (const Choice& choice : choices) {
    const std::vector<Candidate> before = all;
    for (const Candidate& one : before) {
      for (const Change& change : choice) {
        Candidate other = one;
        if (!change.apply(other.question)) continue;
        other.texts.push_back(change.text);
        other.cost += change.cost;
        all.push_back(std::move(other));
      }
    }
  }
  return all;
}

constexpr int kMaxSerialize = 64;

// The numbers of tiles that the tensor's blocks allow.
std::vector<int> tilings_of(Question asked) {
  change(asked, "order", "rows");
  std::vector<int> found;
  for (int s = 2; s <= kMaxSerialize; ++s) {
    if (!change(asked, "serialize", std::to_string(s))) continue;
    try {
      static_cast<void>(layout(asked.spec, asked.dtype, asked.shape));
      found.push_back(s);
    } catch (const Error&) {
      continue;
    }
  }
  return found;
}

// Tiles of a plane whose sides are padded to whole ones; the plane is the tensor's last two axes. It
// is a tensor of more values, so tiles of the given one come first unless there are many of them.
Change padded_tiles(const Question& asked, int s) {
  constexpr int kPadding = 12;
  constexpr double kMostGrowth = 1.25;
  const Stage& stage = asked.spec.stages().front();
  const std::size_t rank = asked.shape.rank();
  Shape shape = asked.shape;
  bool possible = stage.codec->name == "dct_chop" && rank >= 2;
  if (possible) {
    const auto block = static_cast<std::int64_t>(stage["block"]);
    const std::int64_t whole = block * s;
    for (const std::size_t axis : {rank - 2, rank - 1}) {
      possible &= shape[axis] >= block;  // else axes are folded together
      shape[axis] = (shape[axis] + whole - 1) / whole * whole;
    }
    const auto grown =
        static_cast<double>(shape.elems()) / static_cast<double>(asked.shape.elems());
    possible &= grown > 1 && grown <= kMostGrowth;
  }
  const std::string text = possible ? fmt::format("serialize={} with sides padded to {} x {}", s,
                                                  shape[rank - 2], shape[rank - 1])
                                    : "";
  return {text, 2 + s + kPadding, [=](Question& question) {
            if (!possible) return false;
            question.shape = shape;
            return change(question, "serialize", std::to_string(s));
          }};
}

std::string text_of(std::vector<std::string> changes) {
  const std::string last = changes.back();
  changes.pop_back();
  return changes.empty() ? "use " + last
                         : fmt::format("use {} and {}", fmt::join(changes, ", "), last);
}

// The search among candidates, from the fewest changes to the most.
class Search {
 public:
  Search(const DeviceInfo& device, std::vector<Candidate> tried, std::size_t bases)
      : answers_(device), tried_(std::move(tried)), hopeless_(bases, false) {
    std::stable_sort(tried_.begin(), tried_.end(), [](const Candidate& a, const Candidate& b) {
      return std::tuple(a.texts.size(), a.cost) < std::tuple(b.texts.size(), b.cost);
    });
  }

  std::string remedy() {
    std::vector<const Candidate*> too_large, larger;  // of one change less, and of as many
    std::size_t changes = 0;
    for (const Candidate& one : tried_) {
      if (one.texts.size() > changes) {
        if (const std::string remedy = smaller_batch(too_large); !remedy.empty()) return remedy;
        too_large = std::exchange(larger, {});
        changes = one.texts.size();
      }
      const std::optional<Fault> found = fault_of(one, one.question);
      if (found == Fault::None) return text_of(one.texts);
      if (found == Fault::Limit) larger.push_back(&one);
    }
    const std::string remedy = smaller_batch(too_large);
    return remedy.empty() ? smaller_batch(larger) : remedy;
  }

 private:
  // Of a candidate, or of one with another batch; nothing where it is hopeless.
  std::optional<Fault> fault_of(const Candidate& one, const Question& asked) {
    if (hopeless_[one.base]) return std::nullopt;
    const std::optional<Answer> answer = answers_.about(asked);
    if (!answer) return std::nullopt;
    hopeless_[one.base] = answer->stays;
    return answer->fault;
  }

  // The largest batch below the one asked for that fits, or 0.
  std::int64_t largest_batch(const Candidate& one) {
    Question asked = one.question;
    if (asked.shape.rank() < 3 || asked.shape[0] == 1) return 0;
    const auto works = [&] { return fault_of(one, asked) == Fault::None; };
    std::int64_t low = 1, high = std::exchange(asked.shape[0], low);
    if (!works()) return 0;
    while (high - low > 1) {
      const std::int64_t middle = low + (high - low) / 2;
      asked.shape[0] = middle;
      (works() ? low : high) = middle;
    }
    return low;
  }

  // The first of these that fits with a smaller batch, as text; empty where none does.
  std::string smaller_batch(const std::vector<const Candidate*>& too_large) {
    for (const Candidate* one : too_large) {
      const std::int64_t batch = largest_batch(*one);
      if (batch == 0) continue;
      std::vector<std::string> texts = one->texts;
      texts.push_back(fmt::format("a batch of {} at most", batch));
      return text_of(std::move(texts));
    }
    return "";
  }

  Answers answers_;
  std::vector<Candidate> tried_;
  std::vector<bool> hopeless_;  // by base
};

}  // namespace

std::string remedy_for(const DeviceInfo& device, const Question& asked, Fault fault) {
  const std::vector<Candidate> bases =
      combined({.question = asked, .texts = {}}, choices_for(fault));
  const std::vector<int> tilings = tilings_of(asked);
  std::vector<Candidate> tried = bases;
  for (std::size_t i = 0; i < bases.size(); ++i) {
    tried[i].base = i;
    const bool untiled =
        std::count(bases[i].texts.begin(), bases[i].texts.end(), "serialize=1") > 0;
    if (untiled) continue;
    const auto add = [&](const Change& change) {
      Candidate tiled = tried[i];
      if (!change.apply(tiled.question)) return;
      tiled.texts.push_back(change.text);
      tiled.cost += change.cost;
      tried.push_back(std::move(tiled));
    };
    for (const int s : tilings) add(parameter("serialize", std::to_string(s), 2 + s));
    for (int s = 2; s <= kMaxSerialize; ++s) add(padded_tiles(asked, s));
  }
  return Search(device, std::move(tried), bases.size()).remedy();
}

}  // namespace tuckfold
