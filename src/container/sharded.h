// A dataset of several files that appears as a whole, in place of what has its name, or not at all.
//
//   ShardedOutput output({.path = "train.tuck", .shards = 8, .schema = schema});
//   for (const std::string& path : output.paths()) write_file(path);
//   output.finish();            // the manifest appears; files that it replaces are removed
//
// New shards have names that no file has, so that the old dataset stays whole until the new
// manifest takes the name. PATH.partial lists new and old files meanwhile and is locked: one writer
// at a time, and whoever comes after a killed one finds what that left. docs/format.md has it.
#pragma once

#include <memory>
#include <span>
#include <string>
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
  // Throws InvalidArgument where something exists and may not be replaced, or what was left differs
  // from the request; Io where another writer is at it.
  explicit ShardedOutput(const ShardRequest& request);
  // Unless finished or resumable, removes the shards.
  ~ShardedOutput();
  ShardedOutput(const ShardedOutput&) = delete;
  ShardedOutput& operator=(const ShardedOutput&) = delete;

  // Of the shards to write, in order. Those that exist were finished by the writer that was stopped.
  std::span<const std::string> paths() const;
  // The shards that are whole, in any number, become the dataset.
  void finish();
  // Removes the shards, even where they are resumable.
  void discard() noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// What a stopped writer left for this path.
enum class Leftover : unsigned char { None, File, Shards, Useless };
Leftover find_leftover(const std::string& path);
// Removes it. Throws Io where a writer is still at it.
void remove_leftover(const std::string& path);

// The files of a manifest that has the path now, for removal once something else has it: those that
// are named as ShardedOutput names them, and no others.
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
