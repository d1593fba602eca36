#include "container/sharded.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>

#include "base/fail.h"
#include "base/io/bytes.h"
#include "base/io/destination.h"
#include "base/io/file.h"
#include "base/json.h"
#include "container/resume.h"
#include "container/shards.h"

namespace tuckfold {
namespace {

constexpr int kVersion = 1;

bool exists(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0;
}

std::string name_in(const std::string& path) { return path.substr(folder_of(path).size()); }

// "train" for "folder/train.tuck".
std::string stem_of(const std::string& path) {
  std::string name = name_in(path);
  if (name.ends_with(".tuck")) name.resize(name.size() - 5);
  return name;
}

// Whether a file is named as a shard of that manifest: NAME-00000-of-00008.tuck, or NAME.2-…
bool is_named_as_shard(std::string_view file, const std::string& stem) {
  if (!file.starts_with(stem) || !file.ends_with(".tuck")) return false;
  file.remove_prefix(stem.size());
  file.remove_suffix(5);
  const auto digits = [&](std::size_t least) {
    const std::size_t count = std::min(file.find_first_not_of("0123456789"), file.size());
    file.remove_prefix(count);
    return count >= least;
  };
  const auto text = [&](std::string_view wanted) {
    const bool there = file.starts_with(wanted);
    if (there) file.remove_prefix(wanted.size());
    return there;
  };
  if (text(".") && !digits(1)) return false;
  return text("-") && digits(5) && text("-of-") && digits(5) && file.empty();
}

// The contents of PATH.partial for a dataset of shards.
struct State {
  std::vector<std::string> shards;    // to be written: names in the folder
  std::vector<std::string> replaces;  // of the dataset before
  bool resumable = false, append = false;
  Begun begun;
  std::string schema;
};

std::string list_text(const std::vector<std::string>& names) {
  std::vector<std::string> quoted;
  for (const std::string& name : names) quoted.push_back(json_string(name));
  return fmt::format("[{}]", fmt::join(quoted, ", "));
}

std::string state_text(const State& state) {
  const Origin& origin = state.begun.origin;
  return fmt::format(
      "{{\"tuckfold_partial\": {},\n \"shards\": {},\n \"replaces\": {},\n \"resumable\": {}, "
      "\"append\": {},\n \"samples\": \"{}\", \"values\": \"{}\", \"files\": \"{}\", \"seed\": "
      "\"{}\",\n \"schema\": {}}}\n",
      kVersion, list_text(state.shards), list_text(state.replaces), state.resumable, state.append,
      origin.samples, origin.values, origin.files, state.begun.seed, state.schema);
}

// A valid state, or nothing: a writer that was stopped while writing it had not begun a shard.
// Files that a state lists may be removed, so it may list only shards of that stem.
std::optional<State> parse_state(const std::string& text, const std::string& stem) {
  try {
    const Json json = Json::parse(text);
    const auto member = [&](std::string_view key) -> const Json& {
      const Json* found = json.find(key);
      if (found == nullptr) throw Error(Errc::CorruptData, "");
      return *found;
    };
    const auto names = [&](std::string_view key) {
      std::vector<std::string> all;
      for (const Json& item : member(key).items) {
        if (!is_named_as_shard(item.string, stem)) throw Error(Errc::CorruptData, "");
        all.push_back(item.string);
      }
      return all;
    };
    const auto number = [&](std::string_view key) { return std::stoull(member(key).string); };
    if (member("tuckfold_partial").whole() != kVersion) return {};
    return State{.shards = names("shards"),
                 .replaces = names("replaces"),
                 .resumable = member("resumable").text == "true",
                 .append = member("append").text == "true",
                 .begun = {.origin = {.samples = number("samples"),
                                      .values = number("values"),
                                      .files = number("files")},
                           .seed = number("seed")},
                 .schema = std::string(member("schema").text)};
  } catch (const std::exception&) {
    return {};
  }
}

std::string partial_of(const std::string& path) { return path + ".partial"; }

std::string text_at(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::set<std::string> listed_at(const std::string& path) {
  std::set<std::string> names;
  for (const ManifestShard& shard : shards_at(path)) names.insert(name_in(shard.path));
  return names;
}

// Whether there is something to go on with. Where the manifest lists a shard of the state, its
// writer was stopped after all was written.
bool is_resumable(const State& state, const std::string& path) {
  if (!state.resumable) return false;
  try {
    const std::set<std::string> listed = listed_at(path);
    return std::ranges::none_of(state.shards,
                                [&](const auto& name) { return listed.contains(name); });
  } catch (const Error&) {  // a damaged manifest
    return true;
  }
}

std::optional<State> state_at(const std::string& path) {
  std::ifstream file(partial_of(path), std::ios::binary);
  if (file.peek() != '{') return {};
  return parse_state(text_at(partial_of(path)), stem_of(path));
}

// Whether the program has read it as one.
bool is_input(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && Bytes::was_mapped(info);
}

// Removes files of the folder, and what stopped writers left of them, except those that the
// manifest at the path lists.
void remove_unlisted(const std::string& path, const std::vector<std::string>& names) noexcept {
  try {
    const std::set<std::string> listed = listed_at(path);
    for (const std::string& name : names) {
      const std::string file = folder_of(path) + name;
      ::unlink(partial_of(file).c_str());
      if (!listed.contains(name) && !is_input(file)) ::unlink(file.c_str());
    }
  } catch (const std::exception&) {  // no memory: they stay
  }
}

void remove_files_of(const State& state, const std::string& path) noexcept {
  remove_unlisted(path, state.shards);
  remove_unlisted(path, state.replaces);
}

std::vector<std::string> own_shards_at(const std::string& path) {
  std::vector<std::string> names;
  for (const std::string& name : listed_at(path)) {
    if (is_named_as_shard(name, stem_of(path))) names.push_back(name);
  }
  return names;
}

// They are removed when the dataset at the path is replaced, which no input may be.
std::vector<std::string> replaced_shards_at(const std::string& path) {
  std::vector<std::string> names = own_shards_at(path);
  for (const std::string& name : names) {
    if (!is_input(folder_of(path) + name)) continue;
    invalid(
        "[shards] '{}{}' is an input, too, and would be removed with the other shards of '{}'; "
        "write to another file",
        folder_of(path), name, path);
  }
  return names;
}

// Unused names: NAME-00000-of-00008.tuck, or NAME.2-… if a dataset has those.
std::vector<std::string> unused_names(const std::string& path, int shards) {
  const std::string folder = folder_of(path), stem = stem_of(path);
  for (int generation = 1;; ++generation) {
    const std::string name = generation == 1 ? stem : fmt::format("{}.{}", stem, generation);
    std::vector<std::string> names;
    for (int i = 0; i < shards; ++i) names.push_back(shard_name(name, i, shards));
    if (std::ranges::none_of(names, [&](const std::string& file) {
          return exists(folder + file) || exists(partial_of(folder + file));
        })) {
      return names;
    }
  }
}

}  // namespace

struct ShardedOutput::Impl {
  std::string path;
  std::optional<OutFile> lock;  // PATH.partial
  State state;
  std::vector<std::string> paths;
  bool finished = false;

  explicit Impl(const ShardRequest& request) : path(find_destination("shards", request.path).path) {
    const Destination destination = find_destination("shards", path);
    if (destination.stream) {
      fail(Errc::Io, "[shards] '{}' is a pipe or a device, and shards are several files", path);
    }
    check_not_input("shards", destination);
    lock.emplace(partial_of(path), OutFile::Open::Create);
    try {
      if (lock->size() == 0 || !go_on(request)) begin(request);
    } catch (...) {
      if (lock->size() == 0) ::unlink(partial_of(path).c_str());
      throw;
    }
    for (const std::string& name : state.shards) paths.push_back(folder_of(path) + name);
  }

  // Resumes what a stopped writer left, if requested; throws if a file may not be replaced.
  bool go_on(const ShardRequest& request) {
    const std::string partial = partial_of(path);
    const auto differs = [&](std::string_view what) {
      invalid(
          "[resume] '{}' was begun with something else. What differs is {}; give the same, or "
          "remove "
          "the file to start over",
          partial, what);
    };
    const std::optional<State> left = state_at(path);
    if (request.resume) {
      if (!left && !text_at(partial).starts_with('{')) {
        differs("the shards: none then, some now");
      }
      if (!left || !left->resumable) return false;
      if (left->shards.size() != static_cast<std::size_t>(request.shards)) {
        differs(fmt::format("the shards: {} then, {} now", left->shards.size(), request.shards));
      }
      if (left->schema != schema_text(request.schema)) {
        differs(difference(parse_schema(left->schema, partial), request.schema));
      }
      const std::string what = difference(left->begun, request.begun);
      if (!what.empty()) differs(what);
      state = *left;
      return true;
    }
    if (!request.replace && !(left && !is_resumable(*left, path))) {
      invalid("[shards] '{}' is what a stopped writer left; resume it, or force its replacement",
              partial);
    }
    return false;
  }

  void begin(const ShardRequest& request) {
    if (const std::optional<State> left = state_at(path)) remove_files_of(*left, path);
    if (!request.replace && !request.append && exists(path)) {
      invalid("[shards] '{}' exists; force its replacement, or name another file", path);
    }
    state = {.shards = unused_names(path, request.shards),
             .replaces = request.append ? std::vector<std::string>() : replaced_shards_at(path),
             .resumable = request.resumable,
             .append = request.append,
             .begun = request.begun,
             .schema = schema_text(request.schema)};
    const std::string text = state_text(state);
    lock->truncate(0);
    lock->write(std::as_bytes(std::span(text)));
    // The list of shards must be on the disk before any shard.
    lock->sync();
    sync_folder_of("shards", path);
  }

  void remove_state() noexcept {
    if (lock && lock->is_there()) ::unlink(partial_of(path).c_str());
    lock.reset();
  }
};

ShardedOutput::ShardedOutput(const ShardRequest& request)
    : impl_(std::make_unique<Impl>(request)) {}

ShardedOutput::~ShardedOutput() {
  if (!impl_->finished && !impl_->state.resumable) discard();
}

std::span<const std::string> ShardedOutput::paths() const { return impl_->paths; }

void ShardedOutput::discard() noexcept {
  if (impl_->finished) return;
  remove_files_of(impl_->state, impl_->path);
  impl_->remove_state();
  impl_->finished = true;
}

void ShardedOutput::finish() {
  std::vector<ManifestShard> all;
  if (impl_->state.append) all = shards_at(impl_->path);
  Schema first, schema;
  for (const std::string& path : impl_->paths) {
    if (!exists(path)) continue;
    all.push_back(list_shard(path, &schema));
    if (first.arrays.empty()) first = schema;
    check_same_arrays(first, schema, path);
  }
  if (all.empty()) invalid("[shards] a manifest names at least one file, got none");
  put_manifest(impl_->path, all);
  impl_->finished = true;
  remove_files_of(impl_->state, impl_->path);
  impl_->remove_state();
}

std::optional<Begun> begun_at(const std::string& path) {
  if (!exists(partial_of(path))) return {};
  const MappedFile file(partial_of(path), "resume");
  if (!is_manifest(file.bytes())) return get_begun(file.bytes());
  const std::optional<State> state = state_at(path);
  return state ? std::optional(state->begun) : std::nullopt;
}

void check_shards(std::string_view who, std::int64_t shards, std::int64_t samples) {
  if (shards <= samples) return;
  if (samples == 0) invalid("{} divides samples, and there are none; leave it out", who);
  invalid("{} must be 1..{}, the number of samples, got {}", who, samples, shards);
}

Leftover find_leftover(const std::string& path) {
  const std::string partial = partial_of(path);
  struct stat info {};
  if (::lstat(partial.c_str(), &info) != 0) return Leftover::None;
  if (info.st_size == 0) return Leftover::Useless;
  std::ifstream file(partial, std::ios::binary);
  if (file.peek() != '{') return Leftover::File;
  const std::optional<State> state = state_at(path);
  return state && is_resumable(*state, path) ? Leftover::Shards : Leftover::Useless;
}

void remove_leftover(const std::string& path) {
  if (find_leftover(path) == Leftover::None) return;
  const OutFile lock(partial_of(path), OutFile::Open::Keep);
  if (const std::optional<State> state = state_at(path)) remove_files_of(*state, path);
  ::unlink(partial_of(path).c_str());
}

ReplacedShards::ReplacedShards(const std::string& path)
    : path_(find_destination("shards", path).path), files_(replaced_shards_at(path_)) {}

void ReplacedShards::remove() const noexcept { remove_unlisted(path_, files_); }

}  // namespace tuckfold
