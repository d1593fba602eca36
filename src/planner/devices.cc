// Reading devices/*.json: every field is known, of the right kind, and has a source that the file
// lists.
#include "tuckfold/devices.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <limits>
#include <utility>

#include "base/fail.h"
#include "base/io/bytes.h"
#include "planner/field.h"
#include "portable/operators.h"

namespace tuckfold {
namespace {

using Names = std::initializer_list<std::string_view>;

constexpr std::array<std::string_view, 14> kNumbers = {"compute_units",
                                                       "on_chip_bytes",
                                                       "on_chip_bytes_per_unit",
                                                       "on_chip_bytes_per_s",
                                                       "off_chip_bytes",
                                                       "off_chip_bytes_per_s",
                                                       "host_link_bytes_per_s",
                                                       "link_bytes_per_s",
                                                       "peak_f32_flops",
                                                       "peak_tf32_flops",
                                                       "peak_f16_flops",
                                                       "peak_bf16_flops",
                                                       "clock_hz",
                                                       "power_w"};
constexpr std::array<std::string_view, 4> kRules = {"memory_bytes", "matrix_bytes", "matrix_side",
                                                    "planes"};
constexpr std::string_view kOnce = "listed once";
constexpr std::array<std::string_view, 3> kDirections = {"pack", "unpack", "both"};

// The operators of files, and shifts, which no file has and many devices lack.
std::vector<std::string_view> operator_names() {
  const auto all = portable::all_operators();
  std::vector<std::string_view> names(all.begin(), all.end());
  names.push_back("shift");
  return names;
}

class Reader {
 public:
  explicit Reader(const Field& root) : root_(root) {}

  DeviceInfo read() {
    root_.only(Names{"name", "title", "kind", "target", "software", "sources", "numbers", "dtypes",
                     "operators", "missing", "limits", "host_call", "serialize", "triangle",
                     "tiles", "stated", "restrictions"});
    device_.name = root_.at("name").text();
    device_.title = root_.at("title").text();
    device_.kind = root_.at("kind").text();
    device_.target = root_.at("target").word(portable::kTargets);
    device_.software = root_.at("software").text();
    for (const auto& [key, field] : root_.at("sources").members())
      device_.sources[key] = field.text();
    numbers();
    dtypes();
    operators();
    for (const Field& field : list("limits")) device_.limits.push_back(limit(field));
    if (const auto field = root_.find("host_call")) device_.host_call = host_call(*field);
    if (const auto field = root_.find("serialize")) device_.serialize = slower(*field);
    if (const auto field = root_.find("triangle")) device_.triangle = slower(*field);
    if (const auto field = root_.find("tiles")) device_.tiles = tiles(*field);
    for (const Field& field : list("stated")) device_.stated.push_back(statement(field));
    for (const Field& field : list("restrictions")) {
      field.only(Names{"text", "source", "at"});
      device_.restrictions.push_back({field.at("text").text(), origin(field)});
    }
    return device_;
  }

 private:
  std::vector<Field> list(std::string_view key) const {
    const auto field = root_.find(key);
    return field ? field->items() : std::vector<Field>();
  }

  Citation origin(const Field& field) const {
    Citation from{field.at("source").text(), field.at("at").text()};
    if (!device_.sources.contains(from.source)) field.at("source").wrong("a key of `sources`");
    return from;
  }

  // The pages show notes, which nothing else reads.
  static void check_note(const Field& field) {
    if (const auto note = field.find("note")) static_cast<void>(note->text());
  }

  void numbers() {
    const Field all = root_.at("numbers").only(kNumbers);
    for (const auto& [key, field] : all.members()) {
      field.only(Names{"value", "source", "at", "note"});
      const auto note = field.find("note");
      device_.numbers[key] = {field.at("value").above_zero(), origin(field),
                              note ? note->text() : ""};
    }
  }

  void dtypes() {
    const Field field = root_.at("dtypes").only(Names{"names", "source", "at", "note"});
    constexpr std::array<std::string_view, 4> kTypes = {"f32", "f16", "bf16", "u8"};
    for (const Field& name : field.at("names").items()) {
      const DType dtype = parse_dtype(name.word(kTypes));
      auto& known = device_.dtypes;
      if (std::find(known.begin(), known.end(), dtype) != known.end()) name.wrong(kOnce);
      known.push_back(dtype);
    }
    device_.dtypes_from = origin(field);
    check_note(field);
  }

  void operators() {
    const std::vector<std::string_view> known = operator_names();
    for (const Field& field : root_.at("operators").items()) {
      field.only(Names{"names", "source", "at", "note"});
      for (const Field& name : field.at("names").items()) {
        if (!device_.operators.emplace(name.word(known), origin(field)).second) name.wrong(kOnce);
      }
      check_note(field);
    }
    for (const Field& field : list("missing")) {
      field.only(Names{"name", "text", "source", "at"});
      const std::string name = field.at("name").word(known);
      if (device_.operators.contains(name))
        field.at("name").wrong("no operator that `operators` has");
      DeviceInfo::Missing entry{field.at("text").text(), origin(field)};
      if (!device_.missing.emplace(name, std::move(entry)).second) field.at("name").wrong(kOnce);
    }
  }

  DeviceLimit limit(const Field& field) const {
    field.only(Names{"rule", "value", "sample", "text", "source", "at"});
    const std::string rule = field.at("rule").word(kRules);
    const auto at = std::find(kRules.begin(), kRules.end(), rule) - kRules.begin();
    DeviceLimit limit{.rule = static_cast<DeviceLimit::Rule>(at),
                      .value = field.at("value").above_zero(),
                      .sample = {},
                      .text = field.at("text").text(),
                      .from = origin(field)};
    if (limit.rule == DeviceLimit::Rule::Planes) {
      limit.sample = field.at("sample").shape();
      if (limit.sample.rank() != 2)
        field.at("sample").wrong("a plane's two sides, [rows, columns]");
    } else if (const auto sample = field.find("sample")) {
      sample->wrong(fmt::format("left out: the rule {} has no sample", rule));
    }
    return limit;
  }

  // A time in ms or ns, as seconds. What is beyond a day is a mistake.
  static double seconds(const Field& field, double per_second) {
    constexpr double kMost = 86400;
    const double value = field.number() / per_second;
    if (value > kMost) field.wrong(fmt::format("at most {:g}, a day", kMost * per_second));
    return value;
  }

  // A rate in units of `unit` per second: below 10^-6 or above 10^9 of them it is a mistake, too.
  static double rate(const Field& field, double unit) {
    return unit * field.within(1e-6, 1e9,
                               "a number from 1e-6 to 1e9, and left out where it takes no time");
  }

  HostCallModel::Flat flat(const Field& field) const {
    field.only(Names{"ms", "until", "source", "at", "note"});
    static_cast<void>(field.at("ms").above_zero());
    check_note(field);
    return {.seconds = seconds(field.at("ms"), 1e3),
            .until = field.at("until").shape(),
            .from = origin(field)};
  }

  HostCallModel host_call(const Field& field) const {
    field.only(
        Names{"settings", "flat", "uncompressed", "error", "points", "source", "at", "note"});
    HostCallModel model;
    for (const Field& one : field.at("settings").items()) {
      one.only(Names{"t0_ms", "in_gbps", "out_gbps", "tflops"});
      const auto value = [&](std::string_view key, double unit) {
        const auto found = one.find(key);
        return found ? rate(*found, unit) : 0;
      };
      model.settings.push_back({.t0_s = seconds(one.at("t0_ms"), 1e3),
                                .in_bytes_per_s = value("in_gbps", 1e9),
                                .out_bytes_per_s = value("out_gbps", 1e9),
                                .flops = value("tflops", 1e12)});
    }
    for (const HostCallModel::Setting& one : model.settings) {
      if (one.t0_s + one.in_bytes_per_s + one.out_bytes_per_s + one.flops == 0) {
        field.at("settings").wrong("settings of which each takes time");
      }
    }
    if (model.settings.empty()) field.at("settings").wrong("a list of settings");
    if (const auto one = field.find("flat")) model.flat = flat(*one);
    const auto flag = field.find("uncompressed");
    model.uncompressed = flag && flag->flag();
    model.error = field.at("error").number();
    if (model.error >= 1) field.at("error").wrong("below 1");
    model.points = field.at("points").text();
    if (const auto note = field.find("note")) model.note = note->text();
    model.from = origin(field);
    return model;
  }

  DeviceInfo::Slower slower(const Field& field) const {
    field.only(Names{"slower", "t0_ms", "ns_per_value", "source", "at", "note"});
    DeviceInfo::Slower result;
    std::tie(result.low, result.high) = field.at("slower").range();
    if (result.low == 0 || result.high > 1e6) field.at("slower").wrong("factors above 0, to 1e6");
    if (const auto t0 = field.find("t0_ms")) result.t0_s = seconds(*t0, 1e3);
    if (const auto each = field.find("ns_per_value")) result.s_per_value = seconds(*each, 1e9);
    result.from = origin(field);
    if (const auto note = field.find("note")) result.note = note->text();
    return result;
  }

  TileModel tiles(const Field& field) const {
    field.only(Names{"workers", "vertex_bytes", "edge_bytes", "compute_set_bytes", "message_bytes",
                     "code_bytes", "temporary_share", "source", "at", "note"});
    for (const char* number : {"compute_units", "on_chip_bytes_per_unit"}) {
      if (!device_.numbers.contains(number)) field.wrong("in a file that has numbers of units");
    }
    constexpr double kMost = std::numeric_limits<double>::max();
    TileModel model{.workers = field.at("workers").within(1, kMost, "a number, 1 or more"),
                    .vertex_bytes = field.at("vertex_bytes").number(),
                    .edge_bytes = field.at("edge_bytes").number(),
                    .compute_set_bytes = field.at("compute_set_bytes").number(),
                    .message_bytes = field.at("message_bytes").number(),
                    .code_bytes = field.at("code_bytes").number(),
                    .temporary_share = field.at("temporary_share").above_zero(),
                    .from = origin(field)};
    if (model.temporary_share > 1) {
      field.at("temporary_share").wrong("a number above 0, and 1 at most");
    }
    check_note(field);
    return model;
  }

  Statement statement(const Field& field) const {
    field.only(Names{"text", "direction", "gbps", "shape", "keep", "source", "at"});
    Statement result{.text = field.at("text").text(),
                     .direction = field.at("direction").word(kDirections),
                     .from = origin(field)};
    std::tie(result.gbps_low, result.gbps_high) = field.at("gbps").range();
    if (result.gbps_low == 0) field.at("gbps").wrong("above 0");
    if (const auto shape = field.find("shape")) result.shape = shape->shape();
    if (const auto keep = field.find("keep")) {
      for (const Field& one : keep->items()) {
        constexpr std::string_view kRule = "a whole number, 1 to 16";
        const double value = one.within(1, 16, kRule);
        if (value != std::floor(value)) one.wrong(kRule);
        result.keep.push_back(static_cast<int>(value));
      }
    }
    return result;
  }

  const Field& root_;
  DeviceInfo device_;
};

}  // namespace

DeviceInfo parse_device(std::string_view json, std::string_view path) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";  // which some editors write
  if (json.starts_with(kByteOrderMark)) json.remove_prefix(kByteOrderMark.size());
  Json parsed;
  try {
    parsed = Json::parse(json);
  } catch (const Error& error) {
    invalid("[device] {} is no JSON: {}", path, error.what());
  }
  const Field root(parsed, path);
  return Reader(root).read();
}

DeviceInfo read_device(const std::string& path) {
  const auto file = Bytes::map(path, "device");
  const auto bytes = file->span();
  DeviceInfo device =
      parse_device({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path);
  const std::filesystem::path called(path);
  if (called.extension() == ".json" && called.stem() != device.name) {
    invalid("[device] {}: name must be that of the file, \"{}\", got \"{}\"; change either", path,
            called.stem().string(), device.name);
  }
  device.file = path;
  return device;
}

}  // namespace tuckfold
