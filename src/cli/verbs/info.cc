// tuckfold info: what .tuck files hold.
#include <memory>

#include "base/fail.h"
#include "base/fill.h"
#include "base/json.h"
#include "cli/dataset/dataset.h"
#include "cli/terminal/stdio.h"
#include "cli/terminal/table.h"
#include "cli/verbs/each_file.h"
#include "cli/verbs/verbs.h"

namespace tuckfold::cli {
namespace {

struct Options {
  std::vector<std::string> files;
  bool json = false, strict = false;
};

// Converts the library's JSON for printing.
Json printed(const tuckfold::Json& value) {
  using Kind = tuckfold::Json::Kind;
  switch (value.kind) {
    case Kind::Null: return nullptr;
    case Kind::Bool: return value.text == "true";
    case Kind::Number: return Json::parse(value.text);
    case Kind::String: return value.string;
    case Kind::Array: {
      Json items = Json::array();
      for (const tuckfold::Json& item : value.items) items.push_back(printed(item));
      return items;
    }
    case Kind::Object: break;
  }
  Json members = Json::object();
  for (std::size_t i = 0; i < value.items.size(); ++i) {
    members[value.keys[i]] = printed(value.items[i]);
  }
  return members;
}

// Names of a million samples are for programs.
std::string shortened(const std::string& metadata) {
  constexpr std::size_t kMost = 2000;
  if (metadata.size() <= kMost) return metadata;
  std::size_t end = kMost;
  while ((static_cast<unsigned char>(metadata[end]) & 0xc0) == 0x80) --end;  // whole characters
  return fmt::format("{} … ({} bytes; --json prints all)", metadata.substr(0, end),
                     metadata.size());
}

FoundInFile look_at(const Options& options, const std::string& file) {
  const FileReader reader = open_reader(input_path("info", file), options.strict);
  Json arrays = Json::array();
  Table table(
      {"<array", "<dtype", "<sample", "<codec", "samples/chunk", "bytes", "packed", "ratio"});
  std::string notes;
  std::uint64_t all = 0;
  for (std::size_t a = 0; a < reader.arrays().size(); ++a) {
    const ArrayInfo& array = reader.arrays()[a];
    const std::uint64_t bytes = static_cast<std::uint64_t>(reader.samples()) * array.sample_bytes();
    const std::uint64_t packed = packed_bytes_of(reader, a);
    const double ratio = packed == 0 ? 1 : static_cast<double>(bytes) / static_cast<double>(packed);
    all += bytes;
    table.add({array.name, std::string(to_string(array.dtype)), to_string(array.shape),
               array.codec.print(), fmt::format("{}", array.samples_per_chunk), size_text(bytes),
               size_text(packed), fmt::format("{:.2f}", ratio)});
    arrays.push_back({{"name", array.name},
                      {"dtype", to_string(array.dtype)},
                      {"shape", std::vector<std::int64_t>(array.shape.begin(), array.shape.end())},
                      {"codec", array.codec.print()},
                      {"samples_per_chunk", array.samples_per_chunk},
                      {"chunks", reader.chunks(a).size()},
                      {"bytes", bytes},
                      {"packed_bytes", packed},
                      {"ratio", ratio}});
    if (array.fill.empty()) continue;
    std::vector<std::string> fill;
    for (const FillValue& value : array.fill) fill.push_back(to_string(array.dtype, value));
    arrays.back()["fill"] = fill;
    notes += fmt::format("{}: fill values {}\n", array.name, fmt::join(fill, ", "));
  }
  bool trailer_broken = false;
  for (const TrailingData& trailing : reader.trailing_data()) {
    trailer_broken = trailer_broken || trailing.trailer_broken;
  }
  std::string text =
      fmt::format("{}: {} samples, {} in {} ({:.2f}x)\n", file, reader.samples(), size_text(all),
                  size_text(reader.file_bytes()),
                  static_cast<double>(all) / static_cast<double>(reader.file_bytes()));
  text += table.print() + notes;
  if (reader.metadata() != "{}")
    text += fmt::format("metadata: {}\n", shortened(reader.metadata()));
  if (options.files.size() > 1 && &file != &options.files.back()) text += '\n';
  return {.object = {{"file", file},
                     {"samples", reader.samples()},
                     {"bytes", all},
                     {"file_bytes", reader.file_bytes()},
                     {"trailing_bytes", reader.trailing_bytes()},
                     {"trailer_broken", trailer_broken},
                     {"metadata", printed(tuckfold::Json::parse(reader.metadata()))},
                     {"arrays", arrays}},
          .text = text,
          .judge = {}};
}

}  // namespace

void add_info(Command& app) {
  const auto options = std::make_shared<Options>();
  Command verb = app.add_subcommand("info", "List the arrays of .tuck files");
  add_tuck_files(verb, options->files);
  add_strict(verb, options->strict);
  verb.add_flag("--json", options->json, "Print a JSON array, an object for each file");
  verb.footer(R"_(Only the index is read; verify checks the samples.

Examples:
  tuckfold info train.tuck
  tuckfold info *.tuck --json)_");
  verb.callback([options] {
    look_at_each("info", options->files, options->json,
                 [&](const std::string& file) { return look_at(*options, file); });
  });
}

}  // namespace tuckfold::cli
