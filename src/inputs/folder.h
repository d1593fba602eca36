// Inputs as they are given become files to read: a folder of images stays one input, any other stands
// for the files in it.
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
  std::vector<std::string> classes;  // names that lie beside CIFAR's batches
};

// Opens every input. Throws InvalidArgument for a folder that has no files that can be read, files of
// several formats, or several splits of which options name none.
Expanded open_inputs(std::span<const std::filesystem::path> paths, const SourceOptions& options);

// What stands in a folder, hidden entries left out, sorted by name. Throws Io where it cannot be
// listed.
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
