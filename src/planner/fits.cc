// Whether a codec's graphs fit a device: types, operators, then limits; and what near it would.
#include <algorithm>
#include <functional>

#include "base/fail.h"
#include "planner/graphs.h"
#include "portable/count.h"
#include "tuckfold/devices.h"

namespace tuckfold {
namespace {

using portable::Count;
using portable::Graph;
using portable::Op;

std::string source_text(const Citation& from) {
  return fmt::format("{}, {}", from.source, from.at);
}

std::string bytes_text(double bytes) {
  if (bytes >= 1e12) return fmt::format("{:.3g} TB", bytes / 1e12);
  if (bytes >= 1e9) return fmt::format("{:.3g} GB", bytes / 1e9);
  if (bytes >= 1e6) return fmt::format("{:.4g} MB", bytes / 1e6);
  return fmt::format("{:.4g} kB", bytes / 1e3);
}

std::string types_text(const DeviceInfo& device) {
  std::vector<std::string_view> names;
  for (const DType dtype : device.dtypes) names.push_back(to_string(dtype));
  return fmt::format("{}", fmt::join(names, ", "));
}

// Why a graph does not fit, or nothing.
std::string type_fault(const DeviceInfo& device, const Graph& graph) {
  for (const portable::Value& value : graph.values()) {
    const bool index = value.dtype == DType::I64;  // part of gather and scatter
    if (index ||
        std::find(device.dtypes.begin(), device.dtypes.end(), value.dtype) != device.dtypes.end()) {
      continue;
    }
    return fmt::format("the codec needs {}, and its types are {} ({})", to_string(value.dtype),
                       types_text(device), source_text(device.dtypes_from));
  }
  return "";
}

// Operators that a source says are missing come first: they are what a remedy must avoid.
std::string operator_fault(const DeviceInfo& device, const Graph& graph) {
  const std::string what = graph.name() == "Pack" ? "packing" : "unpacking";
  std::string unlisted;
  for (const portable::Use& use : portable::uses(graph)) {
    const std::string name(name_of(use.op));
    if (device.operators.contains(name)) continue;
    if (const auto known = device.missing.find(name); known != device.missing.end()) {
      return fmt::format("{} needs the operator {}, which it lacks: {} ({})", what, name,
                         known->second.text, source_text(known->second.from));
    }
    if (unlisted.empty()) unlisted = name;
  }
  if (unlisted.empty()) return "";
  return fmt::format("{} needs the operator {}, which no source lists for {}", what, unlisted,
                     device.target);
}

// Planes of at least as many values as the limit's sample; 0 where they are smaller. Narrow types
// count alike, since products are of f32.
std::int64_t planes_of(const DeviceLimit& limit, const Shape& shape) {
  const std::size_t rank = shape.rank();
  const std::int64_t plane = rank < 2 ? shape.elems() : shape[rank - 2] * shape[rank - 1];
  return plane < limit.sample.elems() ? 0 : shape.elems() / plane;
}

std::string limit_fault(const DeviceLimit& limit, const Count& count, const Shape& shape) {
  const auto over = [&](std::int64_t value) { return static_cast<double>(value) > limit.value; };
  switch (limit.rule) {
    case DeviceLimit::Rule::MemoryBytes:
      if (!over(count.peak_bytes)) return "";
      return fmt::format("it takes {} at once, and {} ({})",
                         bytes_text(static_cast<double>(count.peak_bytes)), limit.text,
                         source_text(limit.from));
    case DeviceLimit::Rule::MatrixBytes:
      if (!over(count.matrix_bytes)) return "";
      return fmt::format("a matrix takes {}, and {} ({})",
                         bytes_text(static_cast<double>(count.matrix_bytes)), limit.text,
                         source_text(limit.from));
    case DeviceLimit::Rule::MatrixSide:
      if (!over(count.matrix_side)) return "";
      return fmt::format("a matrix has a side of {}, and {} ({})", count.matrix_side, limit.text,
                         source_text(limit.from));
    case DeviceLimit::Rule::Planes:
      if (!over(planes_of(limit, shape))) return "";
      return fmt::format("the tensor has {} planes, and {} ({})", planes_of(limit, shape),
                         limit.text, source_text(limit.from));
  }
  return "";
}

struct Question {
  CodecSpec spec;
  DType dtype;
  Shape shape;
  Direction direction;
};

enum class Fault : unsigned char { None, Type, Operator, Limit };

struct Verdict {
  Fault fault = Fault::None;
  std::string why;
  std::int64_t peak_bytes = 0;

  void add(Fault kind, std::string text) {
    if (fault != Fault::None || text.empty()) return;
    fault = kind;
    why = std::move(text);
  }
};

Verdict verdict_on(const DeviceInfo& device, const Question& asked) {
  Verdict verdict;
  const std::vector<Graph> graphs =
      graphs_of(asked.spec, asked.dtype, asked.shape, asked.direction);
  for (const Graph& graph : graphs) verdict.add(Fault::Type, type_fault(device, graph));
  for (const Graph& graph : graphs) verdict.add(Fault::Operator, operator_fault(device, graph));
  for (const Graph& graph : graphs) {
    const Count count = portable::count(graph);
    verdict.peak_bytes = std::max(verdict.peak_bytes, count.peak_bytes);
    for (const DeviceLimit& limit : device.limits) {
      verdict.add(Fault::Limit, limit_fault(limit, count, asked.shape));
    }
  }
  return verdict;
}

bool works(const DeviceInfo& device, const Question& asked) {
  try {
    return verdict_on(device, asked).fault == Fault::None;
  } catch (const Error&) {
    return false;  // no such codec or tensor
  }
}

// The spec with one parameter of its first stage changed; false where there is no such spec.
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

// The largest batch below the one asked for that works, or 0.
std::int64_t largest_batch(const DeviceInfo& device, Question asked) {
  if (asked.shape.rank() < 3 || asked.shape[0] == 1) return 0;
  std::int64_t low = 1, high = std::exchange(asked.shape[0], low);
  if (!works(device, asked)) return 0;
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    asked.shape[0] = middle;
    (works(device, asked) ? low : high) = middle;
  }
  return low;
}

struct Change {
  std::string text;
  std::function<bool(Question&)> apply;  // false: it changes nothing
};

// What may help against a fault, the smallest changes first.
std::vector<Change> changes_for(Fault fault) {
  std::vector<Change> changes;
  const auto parameter = [&](const char* name, const std::string& value) {
    changes.push_back({fmt::format("use {}={}", name, value),
                       [=](Question& asked) { return change(asked, name, value); }});
  };
  if (fault == Fault::Type) {
    for (const char* coef : {"f32", "f16", "bf16"}) parameter("coef", coef);
    for (const DType dtype : {DType::F32, DType::F16, DType::BF16}) {
      changes.push_back({fmt::format("use --dtype {}", to_string(dtype)), [=](Question& asked) {
                           return std::exchange(asked.dtype, dtype) != dtype;
                         }});
    }
  } else if (fault == Fault::Operator) {
    parameter("shape", "square");
    parameter("coef", "f32");
    changes.push_back({"use --only unpack", [](Question& asked) {
                         return std::exchange(asked.direction, Direction::Unpack) ==
                                Direction::Both;
                       }});
  } else {
    for (int s = 2; s <= 64; ++s) parameter("serialize", std::to_string(s));
  }
  return changes;
}

// One change that makes it fit, or a smaller batch, or both; nothing where that does not help.
std::string remedy_for(const DeviceInfo& device, const Question& asked, Fault fault) {
  const std::vector<Change> changes = changes_for(fault);
  for (const Change& one : changes) {
    Question other = asked;
    if (one.apply(other) && works(device, other)) return one.text;
  }
  if (fault != Fault::Limit) return "";
  if (const std::int64_t batch = largest_batch(device, asked); batch > 0) {
    return fmt::format("use a batch of {} at most", batch);
  }
  for (const Change& one : changes) {
    Question other = asked;
    const std::int64_t batch = one.apply(other) ? largest_batch(device, other) : 0;
    if (batch > 0) return fmt::format("{} and a batch of {} at most", one.text, batch);
  }
  return "";
}

std::string yes_text(const DeviceInfo& device, const Question& asked, const Verdict& verdict) {
  std::string text =
      fmt::format("it takes {} at once", bytes_text(static_cast<double>(verdict.peak_bytes)));
  for (const DeviceLimit& limit : device.limits) {
    if (limit.rule == DeviceLimit::Rule::MemoryBytes)
      text += fmt::format(" of {}", bytes_text(limit.value));
  }
  const Stage& first = asked.spec.stages().front();
  const bool chop = first.codec->name == "dct_chop";
  if (chop && first["serialize"] > 1 && device.serialize && device.serialize->low >= 1) {
    text += fmt::format("; tiles cost {:.2g} to {:.2g} % of time ({})",
                        (device.serialize->low - 1) * 100, (device.serialize->high - 1) * 100,
                        source_text(device.serialize->from));
  }
  return text;
}

}  // namespace

Fit fits(const DeviceInfo& device, const CodecSpec& spec, DType dtype, const Shape& shape,
         Direction direction) {
  const Question asked{spec, dtype, shape, direction};
  const Verdict verdict = verdict_on(device, asked);
  if (verdict.fault == Fault::None) return {true, yes_text(device, asked, verdict), ""};
  return {false, verdict.why, remedy_for(device, asked, verdict.fault)};
}

}  // namespace tuckfold
