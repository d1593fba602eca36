// tuckfold time: how long an accelerator takes to pack and unpack, as seen from the host.
#include <algorithm>
#include <cmath>
#include <memory>

#include "base/fail.h"
#include "cli/bench/report.h"
#include "cli/terminal/table.h"
#include "cli/verbs/portable_options.h"
#include "cli/verbs/verbs.h"

namespace tuckfold::cli {
namespace {

constexpr const char* kFooter =
    R"_(Predicts one call from the host, with its transfers: t = t0 + in/B_in + out/B_out, with parameters fitted
to published measurements of the device. Of the CS-2 and the SN30 one throughput is published for both
directions: there `in` is the tensor before packing, and `out` takes no time. The interval covers what the sources leave open. GB/s counts the
tensor before packing. If nothing was published about calls, the time is a lower bound. Only calls of
dct_chop were measured: for other codecs there is no upper bound.

Examples:
  tuckfold time "dct_chop(keep=4)" --shape 100,3,256,256 --device ipu-gc200
  tuckfold time "dct_chop(keep=7, serialize=2)" --shape 100,3,512,512 --device sn30 --json)_";

struct Options {
  PortableOptions codec;
  std::string device;
  bool json = false;
};

struct Row {
  const char* name;
  HostCallTime time;
};

std::string model_text(const DeviceInfo& device) {
  if (!device.host_call) return "";
  std::string text;
  for (const HostCallModel::Setting& setting : device.host_call->settings) {
    const auto part = [](std::string_view what, double per_s, const char* unit, double scale) {
      return per_s == 0 ? "" : fmt::format(" + {} / {:.4g} {}", what, per_s / scale, unit);
    };
    text += fmt::format(
        "{}{:.4g} ms{}{}{}", text.empty() ? "t = " : ", or ", setting.t0_s * 1e3,
        part(device.host_call->uncompressed ? "tensor" : "in", setting.in_bytes_per_s, "GB/s", 1e9),
        part("out", setting.out_bytes_per_s, "GB/s", 1e9),
        part("products", setting.flops, "TFLOP/s", 1e12));
  }
  return text;
}

void print_text(const DeviceInfo& device, const PortableCodec& codec,
                const std::vector<Row>& rows) {
  const double bytes =
      static_cast<double>(codec.shape.elems()) * static_cast<double>(size_bytes(codec.dtype));
  const bool small =
      std::any_of(rows.begin(), rows.end(), [](const Row& row) { return row.time.low < 1e-4; });
  const auto number = [&](double seconds) {
    if (std::isinf(seconds)) return std::string("-");
    return small ? fmt::format("{:.4g}", seconds * 1e6) : fmt::format("{:.3f}", seconds * 1e3);
  };
  Table table({"<", small ? "µs" : "ms", "least", "most", "GB/s"});
  for (const auto& [name, time] : rows) {
    table.add({name, number(time.seconds), number(time.low), number(time.high),
               fmt::format("{:.3g}", bytes / time.seconds / 1e9)});
  }
  std::string text = fmt::format("{}: {}, one call from the host\n{}", device_text(device),
                                 codec.text(), table.print());
  const std::string model = model_text(device);
  text += fmt::format("model: {}{}{}\n", model, model.empty() ? "" : "; ", rows.front().time.how);
  for (const Statement& said : device.stated) {
    text += fmt::format("stated: {} ({}, {})\n", said.text, said.from.source, said.from.at);
  }
  print_out(text);
}

Json described(const DeviceInfo& device, const PortableCodec& codec) {
  return {{"device", device.name},
          {"device_file", device.file},
          {"codec", codec.spec.print()},
          {"dtype", to_string(codec.dtype)},
          {"shape", std::vector<std::int64_t>(codec.shape.begin(), codec.shape.end())}};
}

void print_object(const DeviceInfo& device, const PortableCodec& codec,
                  const std::vector<Row>& rows) {
  Json json = described(device, codec);
  json["fits"] = true;
  for (const auto& [name, time] : rows) {
    json[name] = {{"seconds", time.seconds},
                  {"low", time.low},
                  {"high", std::isinf(time.high) ? Json() : Json(time.high)}};
  }
  json["model"] = model_text(device);
  json["how"] = rows.front().time.how;
  json["stated"] = Json::array();
  for (const Statement& said : device.stated) {
    json["stated"].push_back({{"text", said.text},
                              {"direction", said.direction},
                              {"gbps", {said.gbps_low, said.gbps_high}},
                              {"source", said.from.source},
                              {"at", said.from.at}});
  }
  print_out(print_json(Json::array({json})));
}

void run(const Options& options) {
  const PortableCodec codec("time", options.codec);
  if (options.device.empty()) {
    invalid("[time] give a device: --device {}", fmt::join(device_names("time"), ", "));
  }
  const DeviceInfo device = find_device("time", options.device);
  const Fit fit = fits(device, codec.spec, codec.dtype, codec.shape, codec.direction);
  if (!fit.fits) {
    if (options.json) {
      Json json = described(device, codec);
      json["fits"] = false;
      json["why"] = fit.why;
      json["remedy"] = fit.remedy.empty() ? Json() : Json(fit.remedy);
      print_out(print_json(Json::array({json})));
    }
    fail(Errc::Unsupported, "[time] {}: {}", device_text(device), refusal_text(fit));
  }
  std::vector<Row> rows;
  for (const Direction direction : {Direction::Pack, Direction::Unpack}) {
    if (codec.direction != Direction::Both && codec.direction != direction) continue;
    rows.push_back({direction == Direction::Pack ? "pack" : "unpack",
                    host_call_time(device, codec.spec, codec.dtype, codec.shape, direction)});
  }
  (options.json ? print_object : print_text)(device, codec, rows);
}

}  // namespace

void add_time(Command& app) {
  const auto options = std::make_shared<Options>();
  Command verb = app.add_subcommand("time", "Predict how long an accelerator takes for a codec");
  verb.add_option("SPEC", options->codec.spec, "The codec").type_name("");
  options->codec.add_to(verb);
  verb.add_option("--device", options->device, "The accelerator").type_name("NAME|FILE.json");
  verb.add_flag("--json", options->json, "Print a JSON array of one object");
  verb.footer(kFooter);
  verb.callback([options] { run(*options); });
}

}  // namespace tuckfold::cli
