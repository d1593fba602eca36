#include "cli/bench/report.h"

#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "cli/terminal/table.h"
#include "tuckfold/version.h"

namespace tuckfold::cli {

Report checked_report(BenchTarget& bench_target, const Array& array, const HugeBuffer& out) {
  std::memset(out.data(), 0xff, out.size());  // NaN, so that what is not written is seen
  Report report{.codec = bench_target.name(),
                .peer = bench_target.peer(),
                .fixed = bench_target.fixed(),
                .packed_bytes = bench_target.pack(),
                .quality = {},
                .speed = {}};
  bench_target.unpack();
  bench_target.finish_unpack();
  const auto packed = static_cast<double>(report.packed_bytes);
  report.ratio = static_cast<double>(array.bytes()) / packed;
  report.ratio_stored = static_cast<double>(array.stored_bytes) / packed;
  report.quality = compare(array.dtype, array.shape.elems(), array.values.data(), out.data(),
                           array.marks.empty() ? nullptr : array.marks.data());
  return report;
}

Json to_json(const Report& report, const Array& array, int threads) {
  // JSON has no infinity: null replaces it, and a PSNR that does not exist.
  const auto number = [](double value) {
    return std::isfinite(value) ? Json(value) : Json(nullptr);
  };
  Json json = {{"codec", report.codec},
               {"peer", report.peer},
               {"file", array.name},
               {"shape", std::vector<std::int64_t>(array.shape.begin(), array.shape.end())},
               {"dtype", to_string(array.dtype)},
               {"stored", array.stored},
               {"threads", threads},
               {"cpu_target", cpu_target()},
               {"fixed", report.fixed},
               {"packed_bytes", report.packed_bytes},
               {"ratio", number(report.ratio)},
               {"ratio_stored", number(report.ratio_stored)},
               {"psnr_db", number(report.quality.psnr_db)},
               {"max_error", number(report.quality.max_error)},
               {"range", number(report.quality.range)},
               {"lost_values", report.quality.lost}};
  if (report.speed) {
    const Speed& speed = *report.speed;
    json.update(Json{{"pack_gbps", speed.pack.best},
                     {"unpack_gbps", speed.unpack.best},
                     {"copy_gbps", speed.copy.best},
                     {"copy_prefetched_gbps", speed.copy_prefetched.best},
                     {"pack_of_copy", speed.pack_of_copy},
                     {"unpack_of_copy", speed.unpack_of_copy},
                     {"pack_gbps_median", speed.pack.median},
                     {"unpack_gbps_median", speed.unpack.median},
                     {"copy_gbps_median", speed.copy.median},
                     {"pack_of_copy_median", speed.pack_of_copy_median},
                     {"unpack_of_copy_median", speed.unpack_of_copy_median},
                     {"rounds", speed.rounds}});
  }
  return json;
}

std::string psnr_text(const Quality& quality) {
  if (quality.exact()) return "exact";
  return std::isfinite(quality.psnr_db) ? fmt::format("{:.2f}", quality.psnr_db) : "-";
}

std::string to_table(std::span<const Report> reports) {
  std::vector<std::string> titles = {"<codec", "ratio", "ratio stored", "PSNR dB", "max error"};
  const bool timed = !reports.empty() && reports.front().speed;
  if (timed) {
    for (const char* title : {"pack GB/s", "of copy", "unpack GB/s", "of copy", "copy GB/s"}) {
      titles.emplace_back(title);
    }
  }
  Table table(std::move(titles));
  std::string notes;
  for (const Report& report : reports) {
    std::vector<std::string> cells = {report.codec, fmt::format("{:.2f}", report.ratio),
                                      fmt::format("{:.2f}", report.ratio_stored),
                                      psnr_text(report.quality),
                                      fmt::format("{:.3g}", report.quality.max_error)};
    if (report.speed) {
      const Speed& speed = *report.speed;
      for (const double value : {speed.pack.median, speed.pack_of_copy_median, speed.unpack.median,
                                 speed.unpack_of_copy_median, speed.copy.median}) {
        cells.push_back(fmt::format("{:.2f}", value));
      }
    }
    table.add(std::move(cells));
    if (report.quality.lost > 0) {
      notes += fmt::format("note: {} finite values came back as NaN or infinity with {}\n",
                           report.quality.lost, report.codec);
    }
  }
  return table.print() + notes;
}

std::string print_json(const Json& objects) {
  std::string text = "[";
  for (const Json& object : objects) {
    // File names may hold any bytes; JSON text may not.
    text += (text.size() == 1 ? "\n" : ",\n") +
            object.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  return text + "\n]\n";
}

}  // namespace tuckfold::cli
