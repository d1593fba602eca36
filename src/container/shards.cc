// A manifest is JSON beside its shards: {"tuckfold_manifest": 1, "shards": [{"file", "samples"}]}.
#include "container/shards.h"

#include "base/fail.h"
#include "base/io/file.h"
#include "base/json.h"

namespace tuckfold {
namespace {

constexpr int kVersion = 1;

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == path.npos ? "" : path.substr(0, slash + 1);
}

// A manifest from elsewhere must not make us read files elsewhere.
bool is_plain_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == name.npos &&
         name.find('\0') == name.npos;
}

}  // namespace

std::vector<ManifestShard> read_manifest(ByteSpan text, const std::string& path) {
  const auto corrupt = [&](std::string_view reason) {
    fail(Errc::CorruptData, "[open] '{}' is no manifest: {}; write it again", path, reason);
  };
  Json json;
  try {
    json = Json::parse(text_of(text));
  } catch (const Error& error) {
    corrupt(error.what());
  }
  const Json* version = json.find("tuckfold_manifest");
  if (version == nullptr || version->whole() < 0) corrupt("it has no 'tuckfold_manifest'");
  if (version->whole() != kVersion) {
    fail(Errc::Unsupported,
         "[open] '{}': manifests of version {} can be read, got {}; a newer tuckfold may read it",
         path, kVersion, version->whole());
  }
  const Json* shards = json.find("shards");
  if (shards == nullptr || shards->kind != Json::Kind::Array || shards->items.empty())
    corrupt("it names no shards");
  std::vector<ManifestShard> found;
  for (const Json& shard : shards->items) {
    const Json* file = shard.find("file");
    const Json* samples = shard.find("samples");
    if (file == nullptr || !is_plain_name(file->string)) corrupt("a shard is no file beside it");
    if (samples == nullptr || samples->whole() < 0) corrupt("a shard has no number of samples");
    found.push_back({.path = folder_of(path) + file->string, .samples = samples->whole()});
  }
  return found;
}

void check_same_arrays(const Schema& a, const Schema& b, const std::string& path) {
  bool same = a.arrays.size() == b.arrays.size();
  for (std::size_t i = 0; same && i < a.arrays.size(); ++i) {
    same = a.arrays[i].name == b.arrays[i].name && a.arrays[i].dtype == b.arrays[i].dtype &&
           a.arrays[i].shape == b.arrays[i].shape;
  }
  if (!same) invalid("[open] '{}' has other arrays than the first shard; leave it out", path);
}

std::string shard_name(std::string_view name, int shard, int shards) {
  if (shard < 0 || shard >= shards) {
    invalid("[shards] the number of a shard must be below {}, got {}", shards, shard);
  }
  return fmt::format("{}-{:05}-of-{:05}.tuck", name, shard, shards);
}

void write_manifest(const std::string& path, std::span<const std::string> shards) {
  if (shards.empty()) invalid("[shards] a manifest names at least one file, got none");
  std::vector<std::string> lines;
  std::optional<Schema> first;
  for (const std::string& shard : shards) {
    const std::string name = shard.substr(folder_of(shard).size());
    if (folder_of(shard) != folder_of(path) || !is_plain_name(name)) {
      invalid("[shards] '{}' must lie in the folder of '{}'", shard, path);
    }
    const MappedFile file(shard);
    const Index index = read_index(file.bytes(), shard);
    if (!first) first = index.schema;
    check_same_arrays(*first, index.schema, shard);
    lines.push_back(
        fmt::format(R"(    {{"file": {}, "samples": {}}})", json_string(name), index.samples));
  }
  const std::string text =
      fmt::format("{{\n  \"tuckfold_manifest\": {},\n  \"shards\": [\n{}\n  ]\n}}\n", kVersion,
                  fmt::join(lines, ",\n"));
  OutFile out(path + ".partial", OutFile::Open::Truncate);
  out.write(std::as_bytes(std::span(text)));
  out.sync();
  out.rename_to(path, true);
}

}  // namespace tuckfold
