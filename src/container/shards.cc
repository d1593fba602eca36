// A manifest is JSON beside its shards, as defined in docs/format.md.
#include "container/shards.h"

#include <charconv>
#include <fstream>
#include <iterator>

#include "base/fail.h"
#include "base/io/file.h"
#include "base/io/new_file.h"
#include "base/json.h"
#include "base/text_scan.h"

namespace tuckfold {
namespace {

constexpr int kVersion = 1;

// A manifest must not make us read files outside of its folder.
bool is_plain_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == name.npos &&
         name.find('\0') == name.npos;
}

// The folder of the manifest's shards: its own; or, if a symbolic link in another folder leads to
// the manifest and that folder has no shards, the folder of the link's target.
std::string shard_folder(const std::string& path, const std::string& first) {
  struct stat info {};
  const std::string folder = folder_of(path);
  if (::stat((folder + first).c_str(), &info) == 0) return folder;
  return folder_of(find_destination("open", path).path);
}

class ManifestReader {
 public:
  explicit ManifestReader(const std::string& path) : path_(path) {}

  std::vector<ManifestShard> read(std::string_view text) const {
    const Json json = parse(text);
    const Json* version = json.find("tuckfold_manifest");
    if (version == nullptr || version->whole() < 0) corrupt("it has no 'tuckfold_manifest'");
    if (version->whole() != kVersion) {
      fail(Errc::Unsupported,
           "[open] '{}': manifests of version {} can be read, got {}; a newer tuckfold may read it",
           path_, kVersion, version->whole());
    }
    const Json* shards = json.find("shards");
    if (shards == nullptr || shards->kind != Json::Kind::Array || shards->items.empty()) {
      corrupt("it names no shards");
    }
    std::vector<ManifestShard> found;
    std::string folder;
    for (const Json& shard : shards->items) {
      const Json* file = shard.find("file");
      if (file == nullptr || !is_plain_name(file->string)) corrupt("a shard is no file beside it");
      if (found.empty()) folder = shard_folder(path_, file->string);
      found.push_back({.path = folder + file->string,
                       .samples = count(shard, "samples"),
                       .bytes = static_cast<std::uint64_t>(count(shard, "bytes")),
                       .index_crc = checksum(shard)});
    }
    return found;
  }

 private:
  [[noreturn]] void corrupt(std::string_view reason) const {
    fail(Errc::CorruptData, "[open] '{}' is no manifest: {}; write it again", path_, reason);
  }

  Json parse(std::string_view text) const {
    try {
      return Json::parse(text);
    } catch (const Error& error) {
      corrupt(error.what());
    }
  }

  std::int64_t count(const Json& shard, std::string_view key) const {
    const Json* value = shard.find(key);
    if (value == nullptr || value->whole() < 0) corrupt(fmt::format("a shard has no '{}'", key));
    return value->whole();
  }

  std::uint32_t checksum(const Json& shard) const {
    const Json* value = shard.find("index_crc");
    std::uint32_t crc = 0;
    if (value != nullptr && value->string.size() == 8) {
      const char* end = value->string.data() + 8;
      const auto [stop, error] = std::from_chars(value->string.data(), end, crc, 16);
      if (error == std::errc{} && stop == end) return crc;
    }
    corrupt("a shard has no 'index_crc'");
  }

  const std::string& path_;
};

}  // namespace

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == path.npos ? "" : path.substr(0, slash + 1);
}

bool is_manifest(ByteSpan file) { return begins_with(file, "{"); }

std::vector<ManifestShard> read_manifest(ByteSpan text, const std::string& path) {
  return ManifestReader(path).read(text_of(text));
}

std::vector<ManifestShard> shards_at(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return {};  // a pipe would wait
  // Read, not mapped: a file that is to be replaced does not count as an input.
  std::ifstream file(path, std::ios::binary);
  if (file.peek() != '{') return {};
  const std::string text(std::istreambuf_iterator<char>(file), {});
  try {
    return read_manifest(std::as_bytes(std::span(text)), path);
  } catch (const Error&) {
    return {};
  }
}

Index read_shard_index(ByteSpan file, const ManifestShard& shard, const std::string& manifest) {
  const auto differs = [&](std::string_view how) {
    fail(Errc::CorruptData,
         "[open] '{}' is not the file that '{}' lists: {}; bring that back, or write the dataset "
         "again",
         shard.path, manifest, how);
  };
  if (file.size() < shard.bytes) {
    differs(fmt::format("it has {} bytes, and had {}", file.size(), shard.bytes));
  }
  const std::optional<std::uint32_t> crc = index_crc(file, shard.bytes);
  if (!crc) differs("its index is elsewhere, or damaged");
  if (*crc != shard.index_crc) differs("it has another index");
  Index index = read_index(file.first(shard.bytes), shard.path);
  if (static_cast<std::int64_t>(index.samples) != shard.samples) {
    differs(fmt::format("it has {} samples, and had {}", index.samples, shard.samples));
  }
  return index;
}

void check_same_arrays(const Schema& a, const Schema& b, const std::string& path) {
  bool same = a.arrays.size() == b.arrays.size();
  for (std::size_t i = 0; same && i < a.arrays.size(); ++i) {
    same = a.arrays[i].name == b.arrays[i].name && a.arrays[i].dtype == b.arrays[i].dtype &&
           a.arrays[i].shape == b.arrays[i].shape && a.arrays[i].fill == b.arrays[i].fill &&
           a.arrays[i].mask_of == b.arrays[i].mask_of;
  }
  if (!same)
    invalid("[open] '{}' has other arrays, or fill values, than the first shard; leave it out",
            path);
}

std::string shard_name(std::string_view name, int shard, int shards) {
  if (shard < 0 || shard >= shards) {
    invalid("[shards] the number of a shard must be below {}, got {}", shards, shard);
  }
  return fmt::format("{}-{:05}-of-{:05}.tuck", name, shard, shards);
}

ManifestShard list_shard(const std::string& path, Schema* schema) {
  const MappedFile file(path);
  Index index = read_index(file.bytes(), path);
  if (schema != nullptr) *schema = std::move(index.schema);
  return {.path = path,
          .samples = static_cast<std::int64_t>(index.samples),
          .bytes = index.end,
          .index_crc = index.crc};
}

void put_manifest(const std::string& path, const std::vector<ManifestShard>& shards) {
  std::vector<std::string> lines;
  for (const ManifestShard& shard : shards) {
    const std::string name = shard.path.substr(folder_of(shard.path).size());
    if (find_bad_utf8(name) != name.npos) {
      invalid("[shards] names in a manifest are UTF-8, and {} is not; give another",
              tuckfold::quoted(name));
    }
    lines.push_back(
        fmt::format(R"(    {{"file": {}, "samples": {}, "bytes": {}, "index_crc": "{:08x}"}})",
                    json_string(name), shard.samples, shard.bytes, shard.index_crc));
  }
  const std::string text =
      fmt::format("{{\n  \"tuckfold_manifest\": {},\n  \"shards\": [\n{}\n  ]\n}}\n", kVersion,
                  fmt::join(lines, ",\n"));
  NewFile out("write", path);
  out.write(std::as_bytes(std::span(text)));
  out.finish();
}

void write_manifest(const std::string& path, std::span<const std::string> shards) {
  if (shards.empty()) invalid("[shards] a manifest names at least one file, got none");
  std::vector<ManifestShard> listed;
  Schema first, schema;
  for (const std::string& shard : shards) {
    if (folder_of(shard) != folder_of(path) ||
        !is_plain_name(shard.substr(folder_of(shard).size()))) {
      invalid("[shards] '{}' must be in the folder of '{}'", shard, path);
    }
    listed.push_back(list_shard(shard, listed.empty() ? &first : &schema));
    if (listed.size() > 1) check_same_arrays(first, schema, shard);
  }
  put_manifest(path, listed);
}

}  // namespace tuckfold
