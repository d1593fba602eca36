// Expands inputs to the files to read: a folder of images stays one input, any other is replaced by
// the files in it.
#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "inputs/formats.h"

namespace tuckfold {

struct Expanded {
  std::vector<SourceInput> inputs;
  bool side_by_side = false;         // a folder of .npy files: each is an array
  std::vector<std::string> classes;  // from the file of names in a folder of CIFAR
};

// Opens every input. Throws InvalidArgument for a folder that has no files that can be read, files of
// several formats, or several splits of which options name none.
Expanded open_inputs(std::span<const std::filesystem::path> paths, const SourceOptions& options);

// The entries of a folder except hidden ones, sorted by name. Throws Io if it cannot be listed.
struct FolderEntries {
  std::vector<std::string> files, folders;  // names
};
FolderEntries entries_of(const std::filesystem::path& folder);

// Calls take(path) for every file below a folder, hidden ones left out, in any order, until it returns
// false.
void walk_files(const std::filesystem::path& folder,
                const std::function<bool(const std::string&)>& take);

// "train", "test" or "validation" of a name such as train-images-idx3-ubyte, t10k-… or test_batch.bin;
// empty for other names.
std::string_view split_of(std::string_view name);

// The names in a file beside CIFAR's batches; empty where it is none of those.
std::vector<std::string> read_class_names(const SourceInput& file);

}  // namespace tuckfold
