// Whether a codec's graphs fit a device: types, operators, then limits.
#include <algorithm>

#include "base/fail.h"
#include "planner/graphs.h"
#include "planner/verdict.h"
#include "portable/count.h"
#include "portable/operators.h"

namespace tuckfold {

std::string source_text(const Citation& from) {
  return fmt::format("{}, {}", from.source, from.at);
}

std::string bytes_text(double bytes) {
  if (bytes >= 1e12) return fmt::format("{:.3g} TB", bytes / 1e12);
  if (bytes >= 1e9) return fmt::format("{:.3g} GB", bytes / 1e9);
  if (bytes >= 1e6) return fmt::format("{:.4g} MB", bytes / 1e6);
  return fmt::format("{:.4g} kB", bytes / 1e3);
}

namespace {

using portable::Count;
using portable::Graph;

std::string types_text(const DeviceInfo& device) {
  if (device.dtypes.empty()) return "its file lists no types";
  std::vector<std::string_view> names;
  for (const DType dtype : device.dtypes) names.push_back(to_string(dtype));
  return fmt::format("its types are {} ({})", fmt::join(names, ", "),
                     source_text(device.dtypes_from));
}

// Why a graph does not fit, or nothing.
std::string type_fault(const DeviceInfo& device, const Graph& graph) {
  for (const portable::Value& value : graph.values()) {
    const bool index = value.dtype == DType::I64;  // part of gather and scatter
    if (index ||
        std::find(device.dtypes.begin(), device.dtypes.end(), value.dtype) != device.dtypes.end()) {
      continue;
    }
    return fmt::format("the codec needs {}, and {}", to_string(value.dtype), types_text(device));
  }
  return "";
}

// Whose file is checked. A DeviceInfo that was not read from a file may have none.
portable::Target target_of(const DeviceInfo& device) {
  const auto& names = portable::kTargets;
  const auto at = std::find(names.begin(), names.end(), device.target);
  return at == names.end() ? portable::Target::Torch
                           : static_cast<portable::Target>(at - names.begin());
}

// Operators that a source says are missing come first: they are what a remedy must avoid.
std::string operator_fault(const DeviceInfo& device, const Graph& graph) {
  const std::string what = graph.name() == "Pack" ? "packing" : "unpacking";
  std::string unlisted;
  for (const std::string_view one : portable::operators_of(graph, target_of(device))) {
    const std::string name(one);
    if (device.operators.contains(name)) continue;
    if (const auto known = device.missing.find(name); known != device.missing.end()) {
      return fmt::format("{} needs the operator {}, which it lacks: {} ({})", what, name,
                         known->second.text, source_text(known->second.from));
    }
    if (unlisted.empty()) unlisted = name;
  }
  if (unlisted.empty()) return "";
  return fmt::format("{} needs the operator {}, which no source lists for {}", what, unlisted,
                     device.name);
}

// Values of each plane, the last two axes.
std::int64_t plane_elems(const Shape& shape) {
  const std::size_t rank = shape.rank();
  return rank < 2 ? shape.elems() : shape[rank - 2] * shape[rank - 1];
}

// Planes, of which those that are smaller than the limit's sample count as the part of it that they
// are. Narrow types count alike, since products are of f32.
double planes_of(const DeviceLimit& limit, const Shape& shape) {
  const std::int64_t plane = std::max(plane_elems(shape), limit.sample.elems());
  return static_cast<double>(shape.elems()) / static_cast<double>(plane);
}

std::string planes_text(const DeviceLimit& limit, const Shape& shape) {
  const double planes = planes_of(limit, shape);
  return plane_elems(shape) < limit.sample.elems()
             ? fmt::format("the tensor has the values of {:.1f} planes of {}", planes,
                           to_string(limit.sample))
             : fmt::format("the tensor has {} planes", planes);
}

std::string limit_fault(const DeviceLimit& limit, const Count& count, const Shape& shape) {
  const auto over = [&](auto value) { return static_cast<double>(value) > limit.value; };
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
      return fmt::format("{}, and {} ({})", planes_text(limit, shape), limit.text,
                         source_text(limit.from));
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

Verdict verdict_on(const DeviceInfo& device, const Question& asked) {
  Verdict verdict;
  const std::vector<Graph> graphs =
      graphs_of(asked.spec, asked.dtype, asked.shape, asked.direction);
  for (const Graph& graph : graphs) verdict.add(Fault::Type, type_fault(device, graph));
  for (const Graph& graph : graphs) verdict.add(Fault::Operator, operator_fault(device, graph));
  verdict.builds_matrices = target_of(device) == portable::Target::Onnx &&
                            std::any_of(graphs.begin(), graphs.end(), portable::builds_matrices);
  for (const Graph& graph : graphs) {
    const Count count = portable::count(graph);
    verdict.peak_bytes = std::max(verdict.peak_bytes, count.peak_bytes);
    for (const DeviceLimit& limit : device.limits) {
      verdict.add(Fault::Limit, limit_fault(limit, count, asked.shape));
    }
  }
  return verdict;
}

bool exceeds(const DeviceInfo& device, const Question& asked) {
  const Count least = portable::least_count(asked.spec, asked.dtype, asked.shape,
                                            asked.direction == Direction::Pack);
  return std::any_of(device.limits.begin(), device.limits.end(), [&](const DeviceLimit& limit) {
    return !limit_fault(limit, least, asked.shape).empty();
  });
}

Fit fits(const DeviceInfo& device, const CodecSpec& spec, DType dtype, const Shape& shape,
         Direction direction) {
  const Question asked{spec, dtype, shape, direction};
  const Verdict verdict = verdict_on(device, asked);
  if (verdict.fault == Fault::None) return {true, yes_text(device, asked, verdict), ""};
  return {false, verdict.why, remedy_for(device, asked, verdict.fault)};
}

}  // namespace tuckfold
