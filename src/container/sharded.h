// A dataset of several files that replaces its predecessor as a whole, or not at all.
//
//   ShardedOutput output({.path = "train.tuck", .shards = 8, .schema = schema});
//   for (const std::string& path : output.paths()) write_file(path);
//   output.finish();            // the manifest appears; files that it replaces are removed
//
// New shards have unused names, so that the old dataset stays valid until the new manifest takes
// its name. Meanwhile PATH.partial lists new and old files and is locked: there is one writer at a
// time, and the writer after a killed one finds its files. See docs/format.md.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "container/format.h"

namespace tuckfold {

struct ShardRequest {
  std::string path;  // of the manifest
  int shards = 1;
  Schema schema{};  // settled, as check_arrays leaves it
  Begun begun{};
  bool replace = false;    // a dataset that exists, and what a stopped writer left
  bool append = false;     // the new shards follow those that the manifest has
  bool resumable = false;  // what is left by a stopped writer is of use
  bool resume = false;     // go on with that, if there is any
};

class ShardedOutput {
 public:
  // Throws InvalidArgument if a file exists and may not be replaced, or if leftovers differ from
  // the request; Io if another writer is active.
  explicit ShardedOutput(const ShardRequest& request);
  // Unless finished or resumable, removes the shards.
  ~ShardedOutput();
  ShardedOutput(const ShardedOutput&) = delete;
  ShardedOutput& operator=(const ShardedOutput&) = delete;

  // The paths of the shards to write, in order. Shards that exist were finished by the writer that
  // was stopped.
  std::span<const std::string> paths() const;
  // Makes the valid shards, of any number, the dataset.
  void finish();
  // Removes the shards, even if they are resumable.
  void discard() noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Throws InvalidArgument where there are more shards than samples. The message begins with who, "[pack]
// --shards".
void check_shards(std::string_view who, std::int64_t shards, std::int64_t samples);

// What a stopped writer left for this path.
enum class Leftover : unsigned char { None, File, Shards, Useless };
Leftover find_leftover(const std::string& path);
// Removes it. Throws Io if a writer is still active.
void remove_leftover(const std::string& path);

// The shards of the manifest at the path, to be removed when another file has replaced it: only
// those with ShardedOutput's names.
class ReplacedShards {
 public:
  explicit ReplacedShards(const std::string& path);
  // Removes those that a manifest at the path does not list.
  void remove() const noexcept;

 private:
  std::string path_;
  std::vector<std::string> files_;
};

}  // namespace tuckfold
