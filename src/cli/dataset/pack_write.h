// The files that pack writes: one, or several shards and the manifest that lists them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "inputs/source.h"
#include "tuckfold/container.h"

namespace tuckfold::cli {

struct PackOutput {
  std::string path;                 // of the file, or of the manifest
  std::vector<std::string> inputs;  // as they are given
  std::string metadata;
  std::uint64_t seed = 0;
  int threads = 1;
  int shards = 0;  // 0: one file and no manifest
  bool append = false, resume = false, force = false, quiet = false;
  bool temporary = false;            // nobody can go on with it
  bool reads_others = false;         // the inputs may lead to files that are not among them
  std::vector<ArrayCheck> checks{};  // for each array
};

struct PackTotal {
  std::uint64_t bytes = 0, file_bytes = 0;
  std::int64_t samples = 0;
  double seconds = 0;
  std::int64_t packed_samples = 0;     // those of the inputs: fewer, where a file is appended to
  std::vector<WrittenArray> arrays{};  // of these
};

// Throws InvalidArgument where there are fewer samples than shards, or what a stopped run left is in
// the way and --resume and --force are not given.
void check_output(const PackOutput& output, std::int64_t samples);

// Writes all samples. If that ends early, says how to resume, or removes files that cannot be
// resumed.
PackTotal write_samples(const PackOutput& output, const Source& source,
                        const std::vector<ArrayInfo>& arrays);

}  // namespace tuckfold::cli
