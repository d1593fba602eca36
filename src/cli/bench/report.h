// One row of figures: what `bench` and `eval` print, as a table and as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>

#include "cli/bench/speed.h"
#include "cli/dataset/array.h"
#include "cli/quality/quality.h"

namespace tuckfold::cli {

using Json = nlohmann::ordered_json;

struct Report {
  std::string codec;
  bool peer = false, fixed = true;
  std::size_t packed_bytes = 0;
  double ratio = 0;         // against the array as it was packed
  double ratio_stored = 0;  // against the array as it was stored
  Quality quality;
  std::optional<Speed> speed;
};

// Packs and unpacks once more into memory that held no result, and compares.
Report checked_report(BenchTarget& bench_target, const Array& array, const HugeBuffer& out);

Json to_json(const Report& report, const Array& array, int threads);
std::string to_table(std::span<const Report> reports);

// "exact", "27.80", or "-" where there is none.
std::string psnr_text(const Quality& quality);

// An array, one object to a line.
std::string print_json(const Json& objects);

}  // namespace tuckfold::cli
